"""Selective prediction: the error among the most confident answers, as a function of how many are answered."""

from typing import NamedTuple

import torch
from torch import Tensor

from selbo.metrics.inputs import Array, as_class_labels, probs_table


class Ranked(NamedTuple):
    """Examples from the most confident to the least.

    Attributes:
        confidence: Largest probability of each, float64.
        order: Their rows.
        last: Whether an example is the last of those that are equally confident, which are answered together.
    """

    confidence: Tensor
    order: Tensor
    last: Tensor


def rank_by_confidence(rows: Tensor) -> Ranked:
    """Order the rows of a table of probabilities, (B, K), by their largest one."""
    confidence, order = rows.double().amax(-1).sort(descending=True, stable=True)
    return Ranked(confidence, order, torch.cat([confidence[1:] != confidence[:-1], torch.tensor([True])]))


def risk_coverage(probs: Array, labels: Array, *, validate: bool = True) -> tuple[Tensor, Tensor]:
    """Risk-coverage curve: the error rate among the answered examples, for each share of examples answered.

    Examples are answered from the most confident to the least; equally confident ones are answered together.

    Args:
        probs: Probabilities, shape (B, K), rows on the simplex.
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        Coverages, increasing to 1, and the risk at each of them.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4]])
        >>> coverages, risks = risk_coverage(probs, torch.tensor([0, 1, 1, 0]))
        >>> coverages.tolist(), risks.tolist()
        ([0.25, 0.5, 1.0], [0.0, 0.0, 0.25])
    """
    rows = probs_table(probs, validate=validate)
    wrong = (rows.argmax(-1) != as_class_labels(labels, rows, validate=validate)).double()
    ranked = rank_by_confidence(rows)
    answered, last = torch.arange(1, len(rows) + 1, dtype=torch.float64), ranked.last
    return (answered / len(rows))[last], (wrong[ranked.order].cumsum(0) / answered)[last]


def aurc(probs: Array, labels: Array, *, validate: bool = True) -> float:
    """Area under the risk-coverage curve: the mean risk over all coverages; smaller is better.

    It is small if few answers are wrong and the wrong ones are the least confident.

    Args:
        probs: Probabilities, shape (B, K), rows on the simplex.
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4]])
        >>> aurc(probs, torch.tensor([0, 1, 1, 0]))
        0.1250
    """
    coverages, risks = risk_coverage(probs, labels, validate=validate)
    widths = torch.cat([coverages[:1], coverages.diff()])
    return float((widths * risks).sum())
