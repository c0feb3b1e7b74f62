"""Stratified split into training, validation and test rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from selbo import _checks


@dataclass(frozen=True)
class Parts:
    """Indices of the training, validation and test rows, in rising order."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


def split(labels: Sequence[Any], *, test_fraction: float, val_fraction: float, seed: int) -> Parts:
    """Split rows into three parts, with every class in each part, as close to its share as whole rows allow.

    Args:
        labels: Labels of all rows; at least three rows per class.
        test_fraction: Share of each class for testing.
        val_fraction: Share of each class for validation.
        seed: Seed for the split.

    Example:
        >>> parts = split(["a"] * 8 + ["b"] * 4, test_fraction=0.25, val_fraction=0.25, seed=0)
        >>> len(parts.train), len(parts.val), len(parts.test)
        (6, 3, 3)
    """
    _checks.fraction("test_fraction", test_fraction, low=0, high=1)
    _checks.fraction("val_fraction", val_fraction, low=0, high=1)
    if test_fraction + val_fraction >= 1:
        raise ValueError(
            f"`test_fraction` and `val_fraction` must leave rows to train on, but got {test_fraction:g} and "
            f"{val_fraction:g}, together {test_fraction + val_fraction:g}"
        )
    generator = torch.Generator().manual_seed(_checks.whole("seed", seed, at_least=0))
    names = np.asarray(labels)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        rows = rows[torch.randperm(len(rows), generator=generator).numpy()]
        test = min(max(1, round(test_fraction * len(rows))), len(rows) - 2)
        val = min(max(1, round(val_fraction * len(rows))), len(rows) - test - 1)
        for part, chosen in zip(parts, (rows[test + val :], rows[test : test + val], rows[:test]), strict=True):
            part.extend(chosen.tolist())
    return Parts(*(np.sort(np.array(part, dtype=np.int64)) for part in parts))
