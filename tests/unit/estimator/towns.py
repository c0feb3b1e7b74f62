"""People in towns that differ in their class fractions, for classifiers taught by these fractions."""

from __future__ import annotations

from typing import Any

import numpy as np

from selbo.estimator import SummaryClassifier

QUICK = {"steps": 5, "num_samples": 8, "learning_rate": 0.03, "hidden": (8,), "random_state": 0}
TOWNS, SIZE = 20, 60
ROWS = TOWNS * SIZE


def quick(**others: Any) -> SummaryClassifier:
    return SummaryClassifier(**{**QUICK, **others})


def people(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, list[float]]]:
    """Features, labels and towns of 1200 people and 1200 others, and the class fractions of the first by town."""
    generator = np.random.default_rng(seed)
    town = np.arange(2 * ROWS) % TOWNS
    X = generator.normal(size=(TOWNS, 3))[town] + generator.normal(size=(2 * ROWS, 3))
    y = (generator.random(2 * ROWS) < 1 / (1 + np.exp(-2 * X[:, 0] + 2 * X[:, 1]))).astype(int)
    yes = [y[:ROWS][town[:ROWS] == each].mean() for each in range(TOWNS)]
    names = np.array([f"town {each}" for each in range(TOWNS)])
    return X * [1, 10, 0.1], y, names[town], {f"town {k}": [1 - each, each] for k, each in enumerate(yes)}


X, Y, TOWN, FRACTIONS = people()
STATED = {"groups": TOWN[:ROWS], "group_fractions": FRACTIONS}
