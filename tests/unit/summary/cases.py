"""Partitions of every kind and random predictions, for the tests of summaries."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

import selbo

PARTITIONS = {
    "bins": lambda: selbo.ScoreBins.equal(6),
    "shells": lambda: selbo.CornerShells(4),
    "classes": lambda: selbo.ClassRegions(3),
    "confidence": lambda: selbo.ConfidenceBins([0.4, 0.8], num_classes=5),
}


def random_log_probs(*shape: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).log_softmax(-1)


# --- groups ---


predictions = partial(random_log_probs, scale=1.5)


def fractions(*shape: int, seed: int = 0) -> Tensor:
    """Random class fractions."""
    generator = torch.Generator().manual_seed(seed + 50)
    return (0.7 * torch.randn(shape, generator=generator, dtype=torch.float64)).softmax(-1)


GROUPS = torch.tensor([3, 0, 0, 5, 3, -1, 3, 0, 5, 3, 3, 5, 1])  # unequal, 2 and 4 are not there, one row has none
