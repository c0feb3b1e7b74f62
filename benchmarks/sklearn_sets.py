"""SummaryClassifier beside scikit-learn's classifiers on four of its data sets, with few rows to train on.

    python benchmarks/sklearn_sets.py --out results.jsonl [--data wine] [--sizes 50] [--seeds 0 1] [--methods ...]

What was measured is appended to the file, and what is in it already is not measured again; the tables of all that is in
the file are printed. The protocol was written down before any number was seen: default settings for everybody (but as
many iterations as convergence takes), features standardised for everybody by the training rows, the same stratified
split for all methods of a seed, all remaining rows to test on. The belief is one number for all tasks, accuracy
.95: that nearly every case can be decided is what someone who knows these tasks would say without looking at a label.

More methods state it with other concentrations than the default (n is the number of training rows), state an accuracy
that is too modest for most of these tasks, .85, or the class fractions of the whole table, or wrong ones. The true ones
differ from the fractions of the training rows only if rows are drawn at random, without regard to the classes:
`--draw random`. A made-up table has more rows than those of scikit-learn: `--data "made up" --sizes 5000`.
"""

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import selbo
from selbo.estimator import SummaryClassifier

MADE_UP = "made up"


def made_up(*, return_X_y: bool) -> Any:
    """Many rows, two classes, one label in ten wrong: the network gets about 85 % right, so that .95 is too bold."""
    assert return_X_y
    return make_classification(10_000, 20, n_informative=6, n_redundant=4, class_sep=1.5, flip_y=0.2, random_state=0)


DATA: dict[str, Callable[..., Any]] = {
    "iris": load_iris,
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
    "digits": load_digits,
    MADE_UP: made_up,
}
FEWEST_TEST_ROWS = 50
ACCURACY, TOO_MODEST = 0.95, 0.85
ITERATIONS = 2000

CONCENTRATIONS: dict[str, Callable[[int], float | str]] = {
    "1000": lambda n: 1000.0,
    "n": float,
    "0.3 n": lambda n: 0.3 * n,
    "0.1 n": lambda n: 0.1 * n,
    '"auto"': lambda n: "auto",
}


@dataclass(frozen=True)
class Task:
    """What a classifier may know before it sees a row: how many there will be, and how frequent classes are."""

    rows: int
    fractions: list[float]
    seed: int


def stating(
    accuracy: float | None, *, fractions: float | None = None, concentration: str | None = None
) -> Callable[[Task], ClassifierMixin]:
    """A SummaryClassifier with defaults, but for what is stated; class fractions may be wrong by so much."""
    return lambda task: SummaryClassifier(
        accuracy,
        None if fractions is None else off_by(fractions, task.fractions),
        None if concentration is None else CONCENTRATIONS[concentration](task.rows),
        random_state=task.seed,
    )


def off_by(more: float, fractions: list[float]) -> list[float]:
    """The first class is so much more frequent; the others give in proportion."""
    first, *others = fractions
    return [first + more, *(each * (1 - first - more) / (1 - first) for each in others)]


def mlp(task: Task) -> ClassifierMixin:
    return MLPClassifier(max_iter=ITERATIONS, random_state=task.seed)


REFERENCE = "SummaryClassifier, accuracy .95"
METHODS: dict[str, Callable[[Task], ClassifierMixin]] = (
    {
        "LogisticRegression": lambda task: LogisticRegression(max_iter=ITERATIONS),
        "MLPClassifier": mlp,
        "MLPClassifier, calibrated": lambda task: CalibratedClassifierCV(mlp(task)),
        "RandomForest": lambda task: RandomForestClassifier(random_state=task.seed),
        "SummaryClassifier, nothing stated": stating(None),
        "SummaryClassifier, class fractions": stating(None, fractions=0.0),
        REFERENCE: stating(ACCURACY),
        "SummaryClassifier, accuracy .95 and class fractions": stating(ACCURACY, fractions=0.0),
        "SummaryClassifier, accuracy .85": stating(TOO_MODEST),
    }
    | {
        f"SummaryClassifier, {words}, concentration {name}": stating(accuracy, concentration=name)
        for words, accuracy in (("nothing stated", None), ("accuracy .95", ACCURACY), ("accuracy .85", TOO_MODEST))
        for name in CONCENTRATIONS
    }
    | {
        f"SummaryClassifier, class fractions{words}, concentration {name}": stating(
            None, fractions=more, concentration=name
        )
        for words, more in (("", 0.0), (" off by .1", 0.1), (" off by .2", 0.2))
        for name in ("1000", "n")
    }
)
METRICS = ("nll", "ece", "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--data", nargs="*", default=[each for each in DATA if each != MADE_UP], choices=list(DATA))
    parser.add_argument("--sizes", nargs="*", type=int, default=[50])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--draw", default="stratified", choices=["stratified", "random"])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--reference", default=REFERENCE, choices=list(METHODS), help="what differences are from")
    options = parser.parse_args()
    records = read(options.out)
    known = {key_of(record) for record in records}
    for name in options.data:
        X, y = DATA[name](return_X_y=True)
        fractions = (np.bincount(y) / len(y)).tolist()
        for size in options.sizes:
            if len(y) - size < FEWEST_TEST_ROWS:
                continue
            for seed in options.seeds:
                classes = y if options.draw == "stratified" else None
                split = train_test_split(X, y, train_size=size, stratify=classes, random_state=seed)
                for method in options.methods:
                    cell = {"data": name, "draw": options.draw, "size": size, "method": method, "seed": seed}
                    if key_of(cell) in known:
                        continue
                    record = {**cell, **measure(METHODS[method](Task(size, fractions, seed)), split)}
                    records.append(record)
                    if options.out is not None:
                        with options.out.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(record) + "\n")
    print_tables(records, options.reference)


def read(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def key_of(record: dict[str, Any]) -> tuple[str, str, int, str, int]:
    return record["data"], record["draw"], record["size"], record["method"], record["seed"]


def measure(classifier: ClassifierMixin, split: list[Any]) -> dict[str, float]:
    """NLL (probabilities of zero raised to 2e-16), ECE (15 bins) and accuracy on the test rows."""
    train, test, train_labels, test_labels = split
    pipeline = make_pipeline(StandardScaler(), classifier)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        pipeline.fit(train, train_labels)
    seconds = time.perf_counter() - begin
    probs = pipeline.predict_proba(test)
    found = selbo.evaluate(probs / probs.sum(1, keepdims=True), test_labels)
    return {
        "nll": log_loss(test_labels, probs),
        "ece": found["ece"],
        "accuracy": found["accuracy"],
        "seconds": seconds,
    }


def print_tables(records: list[dict[str, Any]], reference: str) -> None:
    """Mean and standard error over seeds, and of the difference from the reference on the same splits."""
    by_key = {key_of(record): record for record in records}
    cells = sorted({key[:3] for key in by_key}, key=lambda c: (c[1], list(DATA).index(c[0]), c[2]))
    for cell in cells:
        seeds = sorted({key[-1] for key in by_key if key[:3] == cell})
        drawn = "" if cell[1] == "stratified" else f", drawn at {cell[1]}"
        print(f"\n**{cell[0]}, {cell[2]} rows to train on{drawn}** (seeds {seeds[0]} to {seeds[-1]})\n")
        print("| | NLL | difference | ECE, % | difference | accuracy, % | difference | s |")
        print("|---|---|---|---|---|---|---|---|")
        for method in METHODS:
            found = [by_key.get((*cell, method, seed)) for seed in seeds]
            if not all(found):
                continue
            row = [method]
            for metric in METRICS:
                factor, digits = (1, 3) if metric == "nll" else (100, 1)
                values = [factor * record[metric] for record in found if record]
                row.append(with_error(values, digits))
                against = [by_key.get((*cell, reference, seed)) for seed in seeds]
                if method == reference or not all(against):
                    row.append("")
                    continue
                others = [factor * record[metric] for record in against if record]
                row.append(with_error([a - b for a, b in zip(values, others, strict=True)], digits, sign="+"))
            row.append(f"{statistics.mean(record['seconds'] for record in found if record):.1f}")
            print(f"| {' | '.join(row)} |")


def with_error(values: list[float], digits: int, sign: str = "") -> str:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):{sign}.{digits}f} ± {error:.{digits}f}"


if __name__ == "__main__":
    main()
