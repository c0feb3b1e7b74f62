"""Predictions for a place where classes are otherwise frequent: corrected by the fractions there, known or estimated.

All of it rests on label shift: inputs of a class look alike in both places, and only the classes' fractions differ.
Then the posterior at the place of use is that of the training place times the ratio of the fractions, normalised.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from selbo import _checks
from selbo.objectives import LabelShift

LEAST_FRACTION: Final = 1e-3
"""Of a class, in an estimate: none is declared impossible, because a single case of it would have no finite NLL."""

MOST_STEPS: Final = 2000
TOLERANCE: Final = 1e-8
"""When EM stops: after so many steps, or when no fraction moves further than that in one."""


def correct_prior(log_probs: Tensor, before: Sequence[float], after: Sequence[float]) -> Tensor:
    r"""Predictions under other class fractions: $p'(k \mid x) \propto p(k \mid x)\, \pi'_k / \pi_k$.

    Args:
        log_probs: Log-probabilities that a network of the training place gives, shape (B, K).
        before: $\pi$, fraction of each class among the training labels; positive, summing to one.
        after: $\pi'$, fraction of each class at the place of use, likewise.

    Returns:
        Log-probabilities for the place of use, shape (B, K), of the same type.

    Example:
        >>> correct_prior(torch.tensor([[0.9, 0.1]]).log(), [0.9, 0.1], [0.5, 0.5]).exp()
        tensor([[0.5000, 0.5000]])
    """
    for name, fractions in (("after", after), ("before", before)):
        _fractions(name, fractions, log_probs)
    return LabelShift(before, after).to_use(log_probs.double()).to(log_probs)


def estimate_by_em(log_probs: Tensor, before: Sequence[float]) -> tuple[float, ...]:
    """Class fractions at the place of use, by EM over predictions for its unlabelled inputs (Saerens et al., 2002).

    Each step corrects the predictions by the present estimate and takes their mean as the next one; the likelihood of
    the inputs grows with every step. It needs calibrated predictions. Where they hardly tell the classes apart, the
    likelihood is flat, and the estimate after 2000 steps may be short of its maximum.

    Args:
        log_probs: Log-probabilities for unlabelled inputs of the place of use, shape (U, K).
        before: Fraction of each class among the training labels.

    Returns:
        One fraction a class, none below `LEAST_FRACTION`.
    """
    there = log_probs.double() - _fractions("before", before, log_probs).log()
    found = _fractions("before", before, log_probs)
    for _ in range(MOST_STEPS):
        again = (there + found.log()).softmax(-1).mean(0).clamp(min=_least(len(found)))
        again = again / again.sum()
        moved = float((again - found).abs().max())
        found = again
        if moved < TOLERANCE:
            break
    return _floored(found)


def estimate_by_confusion(unlabelled: Tensor, held_out: Tensor, labels: Tensor) -> tuple[float, ...]:
    r"""Class fractions at the place of use from the classes predicted there: BBSE (Lipton et al., 2018).

    With $C_{ij}$ the share of held-out labelled cases of class j that are predicted as i, and $\mu_i$ the share of
    unlabelled inputs predicted as i, the ratios of the fractions solve $C w = \mu$. It needs no calibration, but labels
    that were not trained on.

    Args:
        unlabelled: Log-probabilities for unlabelled inputs of the place of use, shape (U, K).
        held_out: Log-probabilities for labelled cases of the training place that were not trained on, shape (B, K).
        labels: Their classes, shape (B,).

    Returns:
        One fraction a class, none below `LEAST_FRACTION`. A ratio below zero counts as zero; if C cannot be inverted,
        as when a class has no case, the solution of least squares with the smallest ratios is taken.
    """
    count = held_out.shape[-1]
    if unlabelled.ndim != 2 or held_out.ndim != 2 or unlabelled.shape[-1] != count or len(labels) != len(held_out):
        raise ValueError(
            "`unlabelled` and `held_out` must have shapes (U, K) and (B, K), with one of `labels` for each of the B, "
            f"but got {tuple(unlabelled.shape)}, {tuple(held_out.shape)} and {tuple(labels.shape)}"
        )
    pairs = held_out.argmax(-1) * count + labels.to(held_out.device)
    confusion = torch.bincount(pairs, minlength=count * count).reshape(count, count).double() / len(labels)
    predicted = torch.bincount(unlabelled.argmax(-1), minlength=count).double() / len(unlabelled)
    ratios = torch.linalg.pinv(confusion.cpu()) @ predicted.cpu()
    found = ratios.clamp(min=0) * confusion.sum(0).cpu()
    if float(found.sum()) <= 0:  # nothing was learned of any class
        found = torch.ones(count, dtype=torch.float64)
    return _floored(found / found.sum())


def _fractions(name: str, values: Sequence[float], log_probs: Tensor) -> Tensor:
    _checks.floating("log_probs", log_probs)
    fractions = _checks.simplex(name, values)
    if log_probs.ndim != 2 or log_probs.shape[-1] != len(fractions):
        raise ValueError(
            f"`log_probs` must have shape (B, {len(fractions)}), one column for each of `{name}`, "
            f"but got {tuple(log_probs.shape)}"
        )
    return torch.tensor(fractions, dtype=torch.float64, device=log_probs.device)


def _least(num_classes: int) -> float:
    return min(LEAST_FRACTION, 0.1 / num_classes)


def _floored(fractions: Tensor) -> tuple[float, ...]:
    """No class below the least fraction; what they are given, the others give in proportion.

    With many classes the least is a tenth of an equal share.
    """
    least = _least(len(fractions))
    low = fractions < least
    rest = fractions.masked_fill(low, 0.0)
    kept = rest * (1 - least * int(low.sum())) / rest.sum()
    return tuple(torch.where(low, least, kept).tolist())
