"""Frozen classifiers calibrated by the class counts of groups of unlabelled rows, beside calibration by labels.

    python benchmarks/calibrate_by_counts.py [--seeds 5] [--first-seed 10] [--rows 320]

Classifiers of scikit-learn at their defaults, trained on 800 rows (digits 300). Groups are random parts of 3000 other
rows (digits 900; fewer with `--rows`), whose counts are known without an error; with Adult also its groups by
education and occupation.
`calibrate_to_belief` fits a temperature and one offset per class to the counts, bias-corrected temperature scaling
(BCTS) the same to labels of these rows. Printed: mean NLL and ECE on the other rows, over classifiers and seeds; and in
how many of these pairs counts are at least as good. Data: `selbo data get fashion adult magic`.
"""

import argparse
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from torch import Tensor

import selbo
from selbo.evaluation import calibrate
from selbo.evaluation.belief_calibration import raise_zeros, zero_floor
from selbo_lab.data import catalogue
from selbo_lab.data.dataset import LabelledData

SIZES = (4, 16, 64, 256)
LABELS = (100, 1000)
FEWEST = 35
"""Rows of the smallest group by education and occupation, of which there are about a hundred among all rows."""

CLASSIFIERS: dict[str, Callable[[], ClassifierMixin]] = {
    "logistic regression": lambda: LogisticRegression(max_iter=1000),
    "random forest": lambda: RandomForestClassifier(random_state=0),
    "boosted trees": lambda: HistGradientBoostingClassifier(random_state=0),
    "naive Bayes": GaussianNB,
}


def load(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int, int]:
    """Inputs, labels, groups if there are some, and numbers of rows for training and for calibration."""
    if name == "digits":
        return *load_digits(return_X_y=True), None, 300, 900
    if name == "Fashion-MNIST":
        images: LabelledData = catalogue.load_set("fashion", "test")
        return images.network_inputs().flatten(1).numpy(), images.labels.numpy(), None, 800, 3000
    table = catalogue.TABLES[name.split(",", maxsplit=1)[0].lower()]()
    codes = table.groups("education x occupation").codes.numpy() if "," in name else None
    return table.rows.network_inputs().numpy(), table.rows.labels.numpy(), codes, 800, 3000 if codes is None else 12_000


def counted(groups: Tensor, labels: Tensor, classes: int) -> selbo.GroupedSummary:
    """The class counts of groups as beliefs without an error."""
    counts = torch.zeros(int(groups.max()) + 1, classes, dtype=torch.float64)
    counts.index_put_((groups, labels), torch.ones(len(labels), dtype=torch.float64), accumulate=True)
    sizes = counts.sum(1)
    return selbo.GroupedSummary(
        selbo.ClassRegions(classes), counts / sizes[:, None], 100 * sizes, form="counts", exact_up_to=64
    )


def corrections(
    log_probs: Tensor, labels: Tensor, codes: np.ndarray | None
) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Corrections of predictions for rows whose labels are counted or known."""
    yield "as predicted", lambda given: given
    classes = log_probs.shape[1]
    for size in (size for size in SIZES if codes is None and size <= len(labels) / 2):
        groups = torch.arange(len(labels)) // size
        yield f"counts of {size}", selbo.calibrate_to_belief(log_probs, counted(groups, labels, classes), groups=groups)
    if codes is not None and len(labels) >= 100 * FEWEST:
        _, at, sizes = np.unique(codes, return_inverse=True, return_counts=True)
        kept = (sizes >= FEWEST)[at]
        groups = torch.from_numpy(np.unique(at[kept], return_inverse=True)[1])
        rows = torch.from_numpy(np.flatnonzero(kept))
        yield (
            "counts by group",
            selbo.calibrate_to_belief(log_probs[rows], counted(groups, labels[rows], classes), groups=groups),
        )
    for count in (min(count, len(labels)) for count in LABELS):
        fitted = calibrate.bias_corrected_temperature(log_probs[:count], labels[:count])
        yield f"{count} labels", fitted.scale


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--rows", type=int, default=12_000, help="rows in groups, or with labels, at most")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("Fashion-MNIST", "digits", "Adult", "MAGIC", "Adult, by education and occupation"):
        inputs, labels, codes, training, used = load(name)
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            order = np.random.default_rng(seed).permutation(len(labels))
            train, given, test = order[:training], order[training : training + used], order[training + used :]
            given = given[: options.rows]
            for make in CLASSIFIERS.values():
                model: Any = make().fit(inputs[train], labels[train])
                with np.errstate(divide="ignore"):
                    logs = [torch.from_numpy(np.log(model.predict_proba(inputs[rows]))) for rows in (given, test)]
                floor = zero_floor(logs[0])
                here, there = (raise_zeros(each, floor).log_softmax(-1) for each in logs)
                targets = torch.from_numpy(labels[test]).long()
                own = None if codes is None else codes[given]
                for row, correct in corrections(here, torch.from_numpy(labels[given]).long(), own):
                    corrected = correct(there)
                    nll = torch.nn.functional.nll_loss(corrected, targets).item()
                    found[row].append((nll, float(selbo.metrics.ece(corrected.exp(), targets))))
        print(f"\n{name}: {options.seeds} seeds, {len(CLASSIFIERS)} classifiers")
        for row, scores in found.items():
            nll, error = (statistics.fmean(each) for each in zip(*scores, strict=True))
            print(f"{row:16} NLL {nll:.3f}  ECE {100 * error:4.1f} %", flush=True)
        for row in (each for each in found if each.startswith("counts")):
            for other in (each for each in found if each.endswith("labels")):
                pairs = list(zip(found[row], found[other], strict=True))
                wins = [sum(ours[k] <= theirs[k] for ours, theirs in pairs) for k in (0, 1)]
                print(f"{row} against {other}: NLL {wins[0]} and ECE {wins[1]} of {len(pairs)} at least as good")


if __name__ == "__main__":
    main()
