"""Stratified hold-out split."""

import torch
from torch import Tensor

from selbo import _checks
from selbo.random import generator_for


def stratified_split(labels: Tensor, fraction: float, *, seed: int) -> tuple[Tensor, Tensor]:
    """Split into training and held-out rows, in rising order: a share of each class, but never its last row.

    Args:
        labels: Classes, shape (N,).
        fraction: Share of each class to hold out, rounded; at least one row is held out in all.
        seed: Seed for the choice of rows.

    Raises:
        ValueError: If no class can spare a row.

    Example:
        >>> kept, held_out = stratified_split(torch.tensor([0, 0, 0, 0, 1, 1, 2]), 0.5, seed=0)
        >>> len(kept), len(held_out)
        (4, 3)
    """
    _checks.fraction("fraction", fraction, low=0, high=1)
    generator = generator_for(_checks.whole("seed", seed, at_least=0), "stratified split")
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
