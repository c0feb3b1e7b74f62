"""Stratified split into training, validation and test rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from selbo import _checks
from selbo.random import derive
from selbo.training.stratified import stratified_split

FEWEST_ROWS: Final = 3
"""Rows of a class from which on some are held out: one each for training, validation and testing."""

FEWEST_LABELS: Final = 50
"""Number of labels of a table with groups from which some are held out; with fewer, all are used for training."""

FEWEST_TO_VALIDATE: Final = 200
"""Number of labelled rows from which some are held out to validate, if nothing is said: a tenth of them are 20. With
fewer, a temperature would be fitted to a handful of rows."""

TEST_FRACTION: Final = 0.2
VAL_FRACTION: Final = 0.1
"""Shares of the labelled rows that are held out if nothing is said."""

SMALL_GROUP: Final = 20
"""Groups of fewer rows are held out as a whole: their fractions say little about a part of them."""


@dataclass(frozen=True)
class Parts:
    """Indices of the training, validation and test rows, in rising order."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


def split(labels: Sequence[Any] | NDArray[Any], *, test_fraction: float, val_fraction: float, seed: int) -> Parts:
    """Split rows into three parts, with every class in each part, as close to its share as whole rows allow.

    Classes of fewer than three rows are used for training only.

    Args:
        labels: Labels of all rows.
        test_fraction: Share of each class for testing; 0 for none.
        val_fraction: Share of each class for validation; 0 for none.
        seed: Seed for the split.

    Example:
        >>> parts = split(["a"] * 8 + ["b"] * 4, test_fraction=0.25, val_fraction=0.25, seed=0)
        >>> len(parts.train), len(parts.val), len(parts.test)
        (6, 3, 3)
    """
    _check_shares(test_fraction, val_fraction)
    generator = torch.Generator().manual_seed(_checks.whole("seed", seed, at_least=0))
    names = np.asarray(labels)
    parts: tuple[list[NDArray[np.int64]], ...] = ([], [], [])
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        rows = rows[torch.randperm(len(rows), generator=generator).numpy()]
        few = len(rows) < FEWEST_ROWS
        test = 0 if few or test_fraction == 0 else min(max(1, round(test_fraction * len(rows))), len(rows) - 2)
        val = 0 if few or val_fraction == 0 else min(max(1, round(val_fraction * len(rows))), len(rows) - test - 1)
        for part, chosen in zip(parts, (rows[test + val :], rows[test : test + val], rows[:test]), strict=True):
            part.append(chosen)
    return Parts(*(np.sort(np.concatenate([np.empty(0, dtype=np.int64), *part])) for part in parts))


def split_groups(
    groups: Sequence[str | None],
    labels: NDArray[np.int64],
    *,
    test_fraction: float,
    val_fraction: float,
    seed: int,
) -> Parts:
    """Split rows of groups, few or none of which have a label.

    Labelled rows are split by class if there are at least 50, and otherwise all used for training. Of the others, a
    share of each group is held out for testing, and groups of fewer than 20 rows as a whole. Validation rows have
    labels.

    Args:
        groups: Group of each row; None for none. Rows without group and label are used for training.
        labels: Class of each row; -1 for none.
        test_fraction: Share for testing.
        val_fraction: Share of the labelled rows for validation.
        seed: Seed for the split.

    Example:
        >>> parts = split_groups(
        ...     ["a"] * 50 + ["b"] * 30,
        ...     np.full(80, -1),
        ...     test_fraction=0.2,
        ...     val_fraction=0.1,
        ...     seed=0,
        ... )
        >>> len(parts.train), len(parts.val), len(parts.test)
        (64, 0, 16)
    """
    _check_shares(test_fraction, val_fraction)
    part = np.zeros(len(labels), dtype=np.int64)  # 0 to train, 1 to validate, 2 to test
    labelled = np.flatnonzero(labels >= 0)
    if len(labelled) >= FEWEST_LABELS:
        for number, share in ((2, test_fraction), (1, val_fraction / (1 - test_fraction))):
            if share == 0:
                continue
            left = labelled[part[labelled] == 0]
            part[left[_held_out(labels[left], share, derive(seed, "labelled", number))]] = number
    names, index = np.unique(np.array(["" if each is None else f"={each}" for each in groups]), return_inverse=True)
    index = np.where(names[index] == "", -1, index)
    free = np.flatnonzero((labels < 0) & (index >= 0))
    sizes = np.bincount(index[free], minlength=len(names))
    large = free[sizes[index[free]] >= SMALL_GROUP]
    if len(large) and test_fraction:
        part[large[_held_out(index[large], test_fraction, derive(seed, "parts of groups"))]] = 2
    small = np.flatnonzero((sizes > 0) & (sizes < SMALL_GROUP))
    chosen = np.random.default_rng(derive(seed, "groups")).permutation(small)[: int(test_fraction * len(small))]
    part[free[np.isin(index[free], chosen)]] = 2
    return Parts(*(np.flatnonzero(part == number) for number in range(3)))


def _held_out(strata: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    return stratified_split(torch.from_numpy(strata), share, seed=seed)[1].numpy()


def _check_shares(test_fraction: float, val_fraction: float) -> None:
    _checks.uncertainty("test_fraction", test_fraction)
    _checks.uncertainty("val_fraction", val_fraction)
    if test_fraction + val_fraction >= 1:
        raise ValueError(
            f"`test_fraction` and `val_fraction` must leave rows to train on, but got {test_fraction:g} and "
            f"{val_fraction:g}, together {test_fraction + val_fraction:g}"
        )
