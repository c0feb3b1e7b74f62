"""Parts of a data set, drawn by index with a seed."""

from typing import Final

import torch
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


def stratified_split(labels: Tensor, fraction: float, *, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows held out, in rising order: of each class its share, but never its last row.

    Args:
        labels: Classes, shape (N,).
        fraction: Share of each class to hold out, rounded; at least one row is held out in all.
        seed: Of the choice.

    Raises:
        ValueError: If no class can spare a row.

    Example:
        >>> kept, held_out = stratified_split(torch.tensor([0, 0, 0, 0, 1, 1, 2]), 0.5, seed=0)
        >>> len(kept), len(held_out)
        (4, 3)
    """
    checks.fraction("fraction", fraction, low=0, high=1)
    generator = generator_for(checks.whole("seed", seed, at_least=0), "stratified split")
    by_class = [(labels == each).nonzero().squeeze(1) for each in labels.unique()]
    if max(len(rows) for rows in by_class) < 2:
        raise ValueError("at least one class must have 2 rows, one to train on and one to hold out, but none has")
    counts = [min(round(fraction * len(rows)), len(rows) - 1) for rows in by_class]
    if sum(counts) == 0:
        counts[max(range(len(counts)), key=lambda k: len(by_class[k]))] = 1
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for rows, count in zip(by_class, counts, strict=True):
        chosen[rows[torch.randperm(len(rows), generator=generator)[:count]]] = True
    return (~chosen).nonzero().squeeze(1), chosen.nonzero().squeeze(1)


def draw(rows: Tensor, size: int | None, *, seed: int, purpose: str) -> Tensor:
    """Some of the rows in random order, or all; a smaller draw with the same seed is the beginning of a larger one.

    Raises:
        ValueError: If there are not so many.
    """
    if size is not None and checks.whole("train_size", size, at_least=1) > len(rows):
        raise ValueError(f"`train_size` must be at most {len(rows)}, but got {size}")
    order = torch.randperm(len(rows), generator=generator_for(seed, purpose))
    return rows[order[:size]]
