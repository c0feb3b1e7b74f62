"""An LSTM on sentences of SST-2, with the summary term from the first step, labels first, or in the second half."""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import selbo

WORDS, LENGTH, WIDTH, BATCH, EPOCHS = 8000, 40, 64, 64, 8
WAYS = ("no summary", "from the first step", "labels first", "after half of the steps")


class Sentences(nn.Module):
    """Embedding, LSTM, two logits of the last word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS + 1, WIDTH)
        self.recurrent = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.output = nn.Linear(WIDTH, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.output(self.recurrent(self.embedding(words))[0][:, -1]).log_softmax(-1)


def read(path: Path) -> tuple[list[list[str]], Tensor]:
    """Words and label of each line: the label, a tabulator, the sentence."""
    rows = [line.rstrip("\n").split("\t") for line in path.open(encoding="utf-8")]
    return [row[1].lower().split() for row in rows], torch.tensor([int(row[0]) for row in rows])


def encode(sentences: list[list[str]], numbers: dict[str, int]) -> Tensor:
    """Numbers of the first words, zeros before them: (sentences, LENGTH)."""
    found = torch.zeros(len(sentences), LENGTH, dtype=torch.long)
    for row, words in enumerate(sentences):
        known = torch.tensor([numbers.get(word, 0) for word in words[:LENGTH]])
        found[row, LENGTH - len(known) :] = known
    return found


def weight_of(way: str, step: int, steps: int) -> float:
    return {WAYS[0]: 0.0, WAYS[1]: 1.0, WAYS[2]: float(selbo.labels_first(step, steps))}.get(
        way, float(2 * step >= steps)
    )


def trained(way: str, seed: int, inputs: Tensor, labels: Tensor) -> nn.Module:
    torch.manual_seed(seed)
    network = Sentences().to(inputs.device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    share = labels.float().mean().item()
    belief = selbo.expect(accuracy=0.83, class_fractions=[1 - share, share])
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, concentration=len(labels)).to(inputs.device)
    steps, step = EPOCHS * (len(labels) // BATCH), 0
    for _ in range(EPOCHS):
        order = torch.randperm(len(labels), device=inputs.device)
        for batch in order[: len(labels) // BATCH * BATCH].split(BATCH):
            log_probs = network(inputs[batch])
            loss = F.nll_loss(log_probs, labels[batch])
            if (weight := weight_of(way, step, steps)) > 0:
                loss = loss - weight * summary(log_probs) / len(labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return network.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(".data/sst"), help="folder with train.tsv and test.tsv")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    if not (arguments.data / "train.tsv").is_file():
        print(f"there is no train.tsv in {arguments.data}: get it with `selbo data get sst`")
        return
    (words, labels), (tested, truth) = (read(arguments.data / f"{name}.tsv") for name in ("train", "test"))
    frequent = Counter(word for sentence in words for word in sentence).most_common(WORDS)
    numbers = {word: number + 1 for number, (word, _) in enumerate(frequent)}
    inputs, labels = encode(words, numbers).to(arguments.device), labels.to(arguments.device)
    others = encode(tested, numbers).to(arguments.device)
    print(f"{'':<26}{'accuracy':>14}{'NLL':>14}{'ECE':>14}   mean ± standard error")
    for way in WAYS:
        found = []
        for seed in range(arguments.seeds):
            network = trained(way, seed, inputs, labels)
            with torch.no_grad():
                probs = network(others).exp().cpu()
            metrics = selbo.evaluate(probs, truth)
            found.append([metrics[name] for name in ("accuracy", "nll", "ece")])
        mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / len(found) ** 0.5
        print(f"{way:<26}" + "".join(f"{m:>7.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)), flush=True)


if __name__ == "__main__":
    main()
