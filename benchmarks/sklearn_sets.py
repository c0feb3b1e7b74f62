"""SummaryClassifier beside scikit-learn's classifiers on three of its data sets, with few rows to train on.

    python benchmarks/sklearn_sets.py --out results.jsonl [--data wine] [--sizes 50] [--seeds 0 1] [--methods ...]

What was measured is appended to the file, and what is in it already is not measured again; the tables of all that is in
the file are printed. The protocol was written down before any number was seen: default settings for everybody (but as
many iterations as convergence takes), features standardised for everybody by the training rows, the same stratified
split for all methods of a seed, all remaining rows to test on. The belief is one number for all three tasks, accuracy
.95: that nearly every case can be decided is what someone who knows these tasks would say without looking at a label.
"""

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
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

DATA: dict[str, Callable[..., Any]] = {
    "breast cancer": load_breast_cancer,
    "wine": load_wine,
    "digits": load_digits,
}
FEWEST_TEST_ROWS = 50
ACCURACY = 0.95
ITERATIONS = 2000

METHODS: dict[str, Callable[[int, int], ClassifierMixin]] = {
    "LogisticRegression": lambda n, seed: LogisticRegression(max_iter=ITERATIONS),
    "MLPClassifier": lambda n, seed: MLPClassifier(max_iter=ITERATIONS, random_state=seed),
    "MLPClassifier, calibrated": lambda n, seed: CalibratedClassifierCV(
        MLPClassifier(max_iter=ITERATIONS, random_state=seed)
    ),
    "RandomForest": lambda n, seed: RandomForestClassifier(random_state=seed),
    "SummaryClassifier, nothing stated": lambda n, seed: SummaryClassifier(random_state=seed),
    "SummaryClassifier, accuracy .95": lambda n, seed: SummaryClassifier(ACCURACY, random_state=seed),
    "SummaryClassifier, accuracy .95, concentration n": lambda n, seed: SummaryClassifier(
        ACCURACY, concentration=float(n), random_state=seed
    ),
    'SummaryClassifier, accuracy .95, concentration "auto"': lambda n, seed: SummaryClassifier(
        ACCURACY, concentration="auto", random_state=seed
    ),
}
REFERENCE = "SummaryClassifier, accuracy .95"
METRICS = ("nll", "ece", "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--data", nargs="*", default=list(DATA), choices=list(DATA))
    parser.add_argument("--sizes", nargs="*", type=int, default=[50])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    records = read(options.out)
    known = {key_of(record) for record in records}
    for name in options.data:
        X, y = DATA[name](return_X_y=True)
        for size in options.sizes:
            if len(y) - size < FEWEST_TEST_ROWS:
                continue
            for seed in options.seeds:
                split = train_test_split(X, y, train_size=size, stratify=y, random_state=seed)
                for method in options.methods:
                    if (name, size, method, seed) in known:
                        continue
                    record = {
                        "data": name,
                        "size": size,
                        "method": method,
                        "seed": seed,
                        **measure(method, split, seed),
                    }
                    records.append(record)
                    if options.out is not None:
                        with options.out.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(record) + "\n")
    print_tables(records)


def read(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def key_of(record: dict[str, Any]) -> tuple[str, int, str, int]:
    return record["data"], record["size"], record["method"], record["seed"]


def measure(method: str, split: list[Any], seed: int) -> dict[str, float]:
    """NLL (probabilities of zero raised to 2e-16), ECE (15 bins) and accuracy on the test rows."""
    train, test, train_labels, test_labels = split
    classifier = make_pipeline(StandardScaler(), METHODS[method](len(train_labels), seed))
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        classifier.fit(train, train_labels)
    seconds = time.perf_counter() - begin
    probs = classifier.predict_proba(test)
    found = selbo.evaluate(probs / probs.sum(1, keepdims=True), test_labels)
    return {
        "nll": log_loss(test_labels, probs),
        "ece": found["ece"],
        "accuracy": found["accuracy"],
        "seconds": seconds,
    }


def print_tables(records: list[dict[str, Any]]) -> None:
    """Mean and standard error over seeds, and of the difference from the reference on the same splits."""
    by_key = {key_of(record): record for record in records}
    cells = sorted(
        {(record["data"], record["size"]) for record in records}, key=lambda c: (list(DATA).index(c[0]), c[1])
    )
    for name, size in cells:
        seeds = sorted({seed for data, n, _, seed in by_key if (data, n) == (name, size)})
        print(f"\n**{name}, {size} rows to train on** (seeds {seeds[0]} to {seeds[-1]})\n")
        print("| | NLL | difference | ECE, % | difference | accuracy, % | difference | s |")
        print("|---|---|---|---|---|---|---|---|")
        for method in METHODS:
            found = [by_key.get((name, size, method, seed)) for seed in seeds]
            if not all(found):
                continue
            row = [method]
            for metric in METRICS:
                factor, digits = (1, 3) if metric == "nll" else (100, 1)
                values = [factor * record[metric] for record in found if record]
                row.append(with_error(values, digits))
                against = [by_key.get((name, size, REFERENCE, seed)) for seed in seeds]
                if method == REFERENCE or not all(against):
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
