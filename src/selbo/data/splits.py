"""Parts of a data set, drawn by index with a seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo import checks
from selbo.seeding import generator_for

PARTS: Final = ("train", "val", "test")

ORIGINS: Final = ("auto", "official", "generated")
"""Where corrupted images come from; the first takes official files where they are in the store."""


def random_split(count: int, held_out: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows held out, in random order, as ``torch.utils.data.random_split`` draws them.

    The numbers come from ``torch.Generator().manual_seed(seed)`` on the CPU, not from a derived seed, so that published
    splits that name a seed are met exactly.

    Args:
        count: Number of rows.
        held_out: How many of them are held out.
        seed: Of the order.
    """
    generator = torch.Generator().manual_seed(checks.whole("seed", seed, at_least=0))
    order = torch.randperm(count, generator=generator)
    return order[: count - held_out], order[count - held_out :]


@dataclass(frozen=True)
class Parts:
    """Rows to train, to validate and to test on, in rising order."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


def split(labels: Sequence[Any], *, test_fraction: float, val_fraction: float, seed: int) -> Parts:
    """Rows in three parts, every class in each part, as near to its share as whole rows allow.

    Args:
        labels: Of all rows; each class at least three times.
        test_fraction: Share of each class to test on.
        val_fraction: Share of each class to validate on.
        seed: Of the choice.

    Example:
        >>> parts = split(["a"] * 8 + ["b"] * 4, test_fraction=0.25, val_fraction=0.25, seed=0)
        >>> len(parts.train), len(parts.val), len(parts.test)
        (6, 3, 3)
    """
    checks.fraction("test_fraction", test_fraction, low=0, high=1)
    checks.fraction("val_fraction", val_fraction, low=0, high=1)
    if test_fraction + val_fraction >= 1:
        raise ValueError(
            f"`test_fraction` and `val_fraction` must leave rows to train on, but got {test_fraction:g} and "
            f"{val_fraction:g}, together {test_fraction + val_fraction:g}"
        )
    generator = torch.Generator().manual_seed(checks.whole("seed", seed, at_least=0))
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


def draw(rows: Tensor, size: int | None, *, seed: int, purpose: str) -> Tensor:
    """Some of the rows in random order, or all; a smaller draw with the same seed is the beginning of a larger one.

    Raises:
        ValueError: If there are not so many.
    """
    if size is not None and checks.whole("train_size", size, at_least=1) > len(rows):
        raise ValueError(f"`train_size` must be at most {len(rows)}, but got {size}")
    order = torch.randperm(len(rows), generator=generator_for(seed, purpose))
    return rows[order[:size]]
