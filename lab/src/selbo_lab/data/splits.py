"""Random splits of a data set by index, with a seed."""

from typing import Final

import torch
from torch import Tensor

from selbo.checks import whole
from selbo.random import generator_for

PARTS: Final = ("train", "val", "test")

ORIGINS: Final = ("auto", "official", "generated")
"""Where corrupted images come from; the first takes official files where they are in the store."""


def random_split(count: int, held_out: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Training and held-out rows, in random order, as ``torch.utils.data.random_split`` draws them.

    The numbers come from ``torch.Generator().manual_seed(seed)`` on the CPU, not from a derived seed, so that published
    splits with a seed are reproduced exactly.

    Args:
        count: Number of rows.
        held_out: Number of held-out rows.
        seed: Seed for the order.
    """
    generator = torch.Generator().manual_seed(whole("seed", seed, at_least=0))
    order = torch.randperm(count, generator=generator)
    return order[: count - held_out], order[count - held_out :]


def draw(rows: Tensor, size: int | None, *, seed: int, purpose: str) -> Tensor:
    """Some of the rows in random order, or all; a smaller draw with the same seed is the beginning of a larger one.

    Raises:
        ValueError: If there are not so many.
    """
    if size is not None and whole("train_size", size, at_least=1) > len(rows):
        raise ValueError(f"`train_size` must be at most {len(rows)}, but got {size}")
    order = torch.randperm(len(rows), generator=generator_for(seed, purpose))
    return rows[order[:size]]
