"""Correction of predictions for a target domain with other class fractions, known or estimated.

All functions assume label shift: the inputs of each class have the same distribution in both domains, and only the
class fractions differ. Then the posterior in the target domain is that in the source domain times the ratio of the
fractions, normalised.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from selbo import _checks
from selbo.objectives import LabelShift

LEAST_FRACTION: Final = 1e-3
"""Smallest estimated fraction of a class: at 0, a single case of the class would have an infinite NLL."""

MOST_STEPS: Final = 2000
TOLERANCE: Final = 1e-8
"""EM stops after ``MOST_STEPS`` steps, or when no fraction changes by ``TOLERANCE`` or more in a step."""


def correct_prior(log_probs: Tensor, before: Sequence[float], after: Sequence[float]) -> Tensor:
    r"""Predictions under other class fractions: $p'(k \mid x) \propto p(k \mid x)\, \pi'_k / \pi_k$.

    Args:
        log_probs: Log-probabilities of a network for the source domain, shape (B, K).
        before: $\pi$, fraction of each class among the training labels; positive, summing to one.
        after: $\pi'$, fraction of each class in the target domain; positive, summing to one.

    Returns:
        Log-probabilities for the target domain, shape (B, K), of the same type.

    Example:
        >>> correct_prior(torch.tensor([[0.9, 0.1]]).log(), [0.9, 0.1], [0.5, 0.5]).exp()
        tensor([[0.5000, 0.5000]])
    """
    for name, fractions in (("after", after), ("before", before)):
        _fractions(name, fractions, log_probs)
    return LabelShift(before, after).to_target(log_probs.double()).to(log_probs)


def estimate_by_em(log_probs: Tensor, before: Sequence[float]) -> tuple[float, ...]:
    """Estimate class fractions of the target domain by EM on unlabelled predictions (Saerens et al., 2002).

    Each step corrects the predictions by the current estimate and takes their mean as the next one. The likelihood of
    the inputs does not decrease. Predictions must be calibrated. If they hardly separate the classes, the likelihood is
    flat, and the estimate may not have reached its maximum after 2000 steps.

    Args:
        log_probs: Log-probabilities for unlabelled inputs of the target domain, shape (U, K).
        before: Fraction of each class among the training labels.

    Returns:
        One fraction per class, none below `LEAST_FRACTION`.
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
    r"""Estimate class fractions of the target domain from predicted classes: BBSE (Lipton et al., 2018).

    Let $C_{ij}$ be the fraction of held-out labelled cases that have class j and are predicted as i, and $\mu_i$ the
    fraction of unlabelled inputs predicted as i. The ratios of the class fractions solve $C w = \mu$. Predictions need
    not be calibrated, but held-out labels are required.

    Args:
        unlabelled: Log-probabilities for unlabelled inputs of the target domain, shape (U, K).
        held_out: Log-probabilities for held-out labelled cases of the source domain, shape (B, K).
        labels: Classes of the held-out cases, shape (B,).

    Returns:
        One fraction per class, none below `LEAST_FRACTION`. Negative ratios count as zero. If C is singular, for
        example because a class has no case, the least-squares solution of smallest norm is used.
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
    if float(found.sum()) <= 0:  # no class has a positive estimate
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
    """Raise fractions to the least fraction and reduce the others in proportion.

    With many classes the least fraction is a tenth of an equal share.
    """
    least = _least(len(fractions))
    low = fractions < least
    rest = fractions.masked_fill(low, 0.0)
    kept = rest * (1 - least * int(low.sum())) / rest.sum()
    return tuple(torch.where(low, least, kept).tolist())
