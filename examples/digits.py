"""One line more in a training loop: a small network on noisy digits, with and without the summary term.

    python examples/digits.py --out demo

Assume that about 70 % of these noisy digits can be read, and that all ten are equally frequent. `expect` makes a belief
of that; its likelihood is added to the loss, and the rest of the loop does not change.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import selbo
from selbo.plots import save_figure, summary_against_histogram


def noisy_digits(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """400 images to train on and 1397 to test on, 8 x 8 pixels, with so much noise that a third cannot be read."""
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(seed)
    noisy = images.float() / 16 + 0.4 * torch.randn(images.shape, generator=generator)
    order = torch.randperm(len(noisy), generator=generator)
    return noisy[order[:400]], labels[order[:400]], noisy[order[400:]], labels[order[400:]]


def train(images: Tensor, labels: Tensor, summary: nn.Module | None, *, steps: int, seed: int) -> nn.Module:
    """An ordinary training loop, plus the line after `if summary`."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for step in range(steps):
        batch = torch.randint(len(images), (128,))
        log_probs = network(images[batch]).log_softmax(-1)
        loss = nn.functional.nll_loss(log_probs, labels[batch])
        if summary is not None:
            loss = loss - selbo.labels_first(step, steps) * summary(log_probs) / len(images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def scores(log_probs: Tensor, labels: Tensor) -> list[float]:
    """NLL, accuracy and expected calibration error with ten bins."""
    confidence, predicted = log_probs.exp().max(-1)
    right, bins = (predicted == labels).float(), (10 * confidence).long().clamp(max=9)
    gaps = torch.zeros(10).index_add(0, bins, right - confidence).abs() / len(labels)
    return [nn.functional.nll_loss(log_probs, labels).item(), right.mean().item(), gaps.sum().item()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that everything works")
    arguments = parser.parse_args()
    steps, seeds = (20, 2) if arguments.smoke else (1000, 3)
    partition = selbo.ConfidenceBins([0.3, 0.5, 0.7, 0.9], num_classes=10)
    summary = selbo.SummaryLikelihood(partition, selbo.expect(accuracy=0.7, num_classes=10), concentration=400.0)
    print(f"{'test set, ' + str(seeds) + ' seeds':20}" + "".join(f"{head:>17}" for head in ("NLL", "accuracy", "ECE")))
    histograms = {}
    for name, term in {"plain": None, "plain + summary": summary}.items():
        results, counted = [], []
        for seed in range(seeds):
            *training, images, labels = noisy_digits(seed)
            log_probs = train(*training, term, steps=steps, seed=seed)(images).log_softmax(-1).detach()
            results.append(scores(log_probs, labels))
            counted.append(summary.histogram(log_probs))
        histograms[name] = torch.stack(counted).mean(0)
        mean, error = torch.tensor(results).mean(0), torch.tensor(results).std(0) / seeds**0.5
        print(f"{name:20}" + "".join(f"{m:9.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)), flush=True)
    figure = summary_against_histogram(partition, summary.s0, histograms)
    path = save_figure(figure, arguments.out, "confidence")[0]
    print(f"How sure the networks are, against how sure they should be: {path}")


if __name__ == "__main__":
    main()
