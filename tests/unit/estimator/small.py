"""Small data and quick settings for tests of the classifier."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from sklearn.utils.validation import _get_feature_names

from selbo.estimator.classifier import SummaryClassifier

needs_names = pytest.mark.skipif(
    _get_feature_names(pl.DataFrame({"a": [1]})) is None,
    reason="scikit-learn 1.7, the last one for Python 3.10, does not read the names of columns of polars 2",
)
QUICK = {"steps": 20, "num_samples": 8, "learning_rate": 0.03, "hidden": (16,), "random_state": 0}


def quick(**others) -> SummaryClassifier:
    return SummaryClassifier(**{**QUICK, **others})


def blobs(rows: int, *, classes: int = 3, features: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unequal classes around centres of their own, in columns of different scales."""
    generator = np.random.default_rng(seed)
    shares = np.arange(1, classes + 1) / np.arange(1, classes + 1).sum()
    labels = np.concatenate([np.arange(classes), generator.choice(classes, rows - classes, p=shares)])
    centres = 2 * np.eye(classes, features)
    X = centres[labels] + generator.normal(size=(rows, features))
    return X * [1, 10, 0.1, 1000][:features] + 5, labels


def two_groups(seed: int, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Of which 84 % can be told apart."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, rows)
    return generator.normal(size=(rows, 2)) + np.outer(2 * labels - 1, [1, 0]), labels
