"""Labels take priority: they determine which cases belong to which class, before a belief shapes the predictions.

A belief about the distribution of predictions does not identify which case belongs to which class: if classes are
equally frequent, swapping them leaves its likelihood unchanged. A summary term that outweighs the labels from the first
step is satisfied by whatever assignment the initial weights are closest to. Three rules prevent that. The summary term
waits until the labels have been fitted. A belief weighs no more than all labels together unless the user asks for it.
After training, the network is compared with a constant classifier on labelled data.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.summary.grouped import GroupedSummary
from selbo.summary.likelihood import DEFAULT_CONCENTRATION, SummaryLikelihood

LABELS_ALONE: Final = 0.25
"""Fraction of the steps that train on the labels alone."""

FULL_WEIGHT: Final = 0.5
"""Fraction of the steps after which the summary term has its full weight."""

STANDARD_DEVIATIONS: Final = 2.0
"""Warn if the accuracy lies more than this many binomial standard deviations below that of a constant classifier."""


def labels_first(step: int | Tensor | None, steps: int | Tensor | None) -> float | Tensor:
    """Weight of a summary term that waits for the labels: 0 in the first quarter of the steps, 1 from half of them on.

    In between it grows linearly. In your own training loop, multiply the summary term by this weight::

        loss = (
            F.nll_loss(log_probs, labels)
            - selbo.labels_first(step, steps) * summary(log_probs) / num_data
        )

    Args:
        step: Number of steps taken so far, from 0; a tensor inside a compiled step or a CUDA graph.
        steps: Number of steps of the whole run; may also be a tensor.

    Returns:
        The weight, a tensor if either argument is one; 1 if ``step`` or ``steps`` is None.

    Example:
        >>> [labels_first(step, 8) for step in range(8)]
        [0.0, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    if step is None or steps is None:
        return 1.0
    if isinstance(step, Tensor) or isinstance(steps, Tensor):
        total = torch.as_tensor(steps)
        first, ramp = (LABELS_ALONE * total).floor(), ((FULL_WEIGHT - LABELS_ALONE) * total).floor().clamp(min=1.0)
        return ((step + 1 - first) / ramp).clamp(0.0, 1.0)
    alone, growing = math.floor(LABELS_ALONE * steps), max(1, math.floor((FULL_WEIGHT - LABELS_ALONE) * steps))
    return min(1.0, max(0.0, (step + 1 - alone) / growing))


@contextmanager
def limited_to_labels(objective: nn.Module, num_data: int) -> Iterator[None]:
    """Limit the concentration of each summary to the number of labels, unless it has ``overrule_labels``.

    The limit applies within the block. Lowering a concentration that differs from the default issues a warning.
    Beliefs about groups count as many labels as their concentrations; without labels and groups there is no limit.

    Args:
        objective: Objective that contains the summaries.
        num_data: N, the number of labelled examples.
    """
    before: list[tuple[Tensor, float]] = []
    grouped = [each for each in objective.modules() if isinstance(each, GroupedSummary)]
    num_data += math.floor(sum(each.concentration.sum().item() for each in grouped))
    if num_data == 0:
        yield
        return
    for summary in objective.modules():
        if not isinstance(summary, SummaryLikelihood) or summary.overrule_labels:
            continue
        stated = summary.concentration.item()
        if stated <= num_data:
            continue
        if stated != DEFAULT_CONCENTRATION:
            warnings.warn(
                f"the concentration {stated:g} exceeds the number of labels, so {num_data} is used and the belief "
                "weighs as much as the labels; pass overrule_labels=True to selbo.SummaryLikelihood to keep it",
                UserWarning,
                stacklevel=4,
            )
        before.append((summary.concentration, stated))
        summary.concentration.fill_(num_data)
    try:
        yield
    finally:
        for buffer, stated in before:
            buffer.fill_(stated)


@dataclass(frozen=True)
class LabelCheck:
    """Accuracy on labelled data, compared with that of a constant classifier.

    Attributes:
        accuracy: Fraction of the labelled examples that the network classifies correctly.
        majority: Fraction of the most frequent class, which a constant classifier reaches.
        num_examples: Number of labelled examples checked; with weights, the effective sample size.
    """

    accuracy: float
    majority: float
    num_examples: float

    @property
    def below_majority(self) -> bool:
        """Whether the network is clearly worse than always predicting the most frequent class."""
        std = math.sqrt(self.majority * (1 - self.majority) / self.num_examples)
        return self.accuracy < self.majority - STANDARD_DEVIATIONS * std

    def __str__(self) -> str:
        """The warning: one sentence with the finding, one with the remedy."""
        return (
            f"the network is correct on {100 * self.accuracy:.3g} % of the labelled training examples, but always "
            f"answering with the most frequent class would be on {100 * self.majority:.3g} %: the belief has overruled "
            "the labels, or classes are swapped. Lower the concentration, correct the belief, or train for longer"
        )


def check_labels(log_probs: Tensor, labels: Tensor, weights: Tensor | None = None) -> LabelCheck:
    """Compare a trained network with a constant classifier on labelled data.

    Args:
        log_probs: Log-probabilities, shape (B, K).
        labels: Classes, shape (B,).
        weights: Weight per example, shape (B,); equal weights if not given.

    Example:
        >>> swapped = torch.tensor([[0.1, 0.9]] * 6 + [[0.9, 0.1]] * 4).log()
        >>> check_labels(swapped, torch.tensor([0] * 6 + [1] * 4)).below_majority
        True
    """
    _checks.floating("log_probs", log_probs)
    each = torch.ones(len(labels), dtype=torch.float64) if weights is None else weights.detach().double().cpu()
    classes = labels.long().cpu()
    total = each.sum()
    hits = each[log_probs.argmax(-1).cpu() == classes].sum() / total
    shares = torch.bincount(classes, each, minlength=log_probs.shape[-1]) / total
    return LabelCheck(hits.item(), shares.max().item(), (total**2 / (each**2).sum()).item())
