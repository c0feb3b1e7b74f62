"""Training rows as tensors, and the number of threads suited to their size."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

SMALL_STEP: Final = 2**23
"""Multiplications per step (rows times weights) below which a second thread does not pay off."""


@dataclass(frozen=True)
class Rows:
    """Standardised inputs, labels and weights, and unlabelled inputs.

    ``weights`` is None if all rows have weight 1; ``unlabelled`` is None if there are no such inputs.
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor | None
    unlabelled: Tensor | None = None

    @property
    def total(self) -> float:
        """Sum of the weights; the number of rows if there are none."""
        return float(len(self.labels)) if self.weights is None else float(self.weights.sum())

    def __getitem__(self, rows: Tensor) -> "Rows":
        weights = None if self.weights is None else self.weights[rows]
        return Rows(self.inputs[rows], self.labels[rows], weights, self.unlabelled)

    def as_data(self) -> Any:
        """The data in the form that `selbo.fit` takes."""
        return (self.inputs, self.labels) if self.weights is None else (self.inputs, self.labels, self.weights)


@contextmanager
def few_threads(rows: Rows, hidden: Sequence[int], batch_size: int) -> Iterator[None]:
    """Use one thread for a small network, and an unchanged number for a large one; restored on exit."""
    before = torch.get_num_threads()
    widths = (rows.inputs.shape[1], *hidden)
    largest = max(a * b for a, b in zip(widths, (*hidden, 2), strict=True))
    unlabelled = 0 if rows.unlabelled is None else len(rows.unlabelled)
    small = (min(batch_size, len(rows.labels)) + min(batch_size, unlabelled)) * largest < SMALL_STEP
    try:
        if small:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
