"""Correction of predictions for a target domain with other class fractions, known or estimated.

All functions assume label shift: the inputs of each class have the same distribution in both domains, and only the
class fractions differ. Then the posterior in the target domain is that in the source domain times the ratio of the
fractions, normalised.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import FloatArray
from selbo.evaluation.belief_calibration import raise_zeros, zero_floor
from selbo.evaluation.calibrate import bias_corrected_temperature
from selbo.metrics.inputs import Array, as_class_labels, table
from selbo.objectives import LabelShift
from selbo.random import generator_for
from selbo.summary.estimation import EstimatedBelief, belief_from_samples

LEAST_FRACTION: Final = 1e-3
"""Smallest estimated fraction of a class: at 0, a single case of the class would have an infinite NLL."""

MOST_STEPS: Final = 2000
TOLERANCE: Final = 1e-8
"""EM stops after ``MOST_STEPS`` steps, or when no fraction changes by ``TOLERANCE`` or more in a step."""

FRACTION_METHODS: Final = ("em", "confusion", "regularised")

CALIBRATION_PRIOR: Final = 1.0
"""Strength of the prior of the calibration before EM, in labels: weak, as a bootstrap does not show a bias."""

REGULARISATION: Final = 0.03
"""Share of the worst-case error of the confusion matrix that `estimate_by_regularised_confusion` expects by default. At
the full bound, with a few hundred labels, estimates hardly move away from the class fractions of the labels."""

BOUND_LEVEL: Final = 0.05
"""Probability that the error of the confusion matrix exceeds its bound."""


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
    return _floored(_em(there, found))


def _em(there: Tensor, start: Tensor) -> Tensor:
    """Fractions of greatest likelihood, given the log-densities of the classes up to a number per row, (U, K)."""
    densities = (there - there.amax(-1, keepdim=True)).exp().cpu().numpy()
    found, least = start.cpu().numpy(), _least(len(start))
    for _ in range(MOST_STEPS):
        again = (found * (densities.T @ (1 / (densities @ found))) / len(densities)).clip(min=least)
        again = again / again.sum()
        moved = float(abs(again - found).max())
        found = again
        if moved < TOLERANCE:
            break
    return torch.from_numpy(found)


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
    confusion, predicted = _confusion(unlabelled, held_out, labels)
    return _as_fractions(torch.linalg.pinv(confusion) @ predicted, confusion)


def estimate_by_regularised_confusion(
    unlabelled: Tensor, held_out: Tensor, labels: Tensor, *, regularisation: float = REGULARISATION
) -> tuple[float, ...]:
    r"""Estimate class fractions of the target domain from predicted classes: RLLS (Azizzadenesheli et al., 2019).

    Where `estimate_by_confusion` solves $C w = \mu$ for the ratios $w$ of the class fractions, this one minimises

    $$\lVert C \theta - (\mu - C 1) \rVert + \Delta \lVert \theta \rVert, \qquad w = 1 + \theta,$$

    which keeps the estimate near no shift as far as the confusion matrix is uncertain. Its worst-case error after $n$
    labels is $\frac{2}{3n} \log\frac{2K}{\delta} + \sqrt{\frac{2}{n} \log\frac{2K}{\delta}}$, and $\Delta$ is a
    share of it. With few labels or weak predictions the estimate varies less.

    Args:
        unlabelled: Log-probabilities for unlabelled inputs of the target domain, shape (U, K).
        held_out: Log-probabilities for held-out labelled cases of the source domain, shape (B, K).
        labels: Classes of the held-out cases, shape (B,).
        regularisation: The share of the worst-case error; 0 for `estimate_by_confusion`.

    Returns:
        One fraction per class, none below `LEAST_FRACTION`. Negative ratios count as zero.
    """
    share = _checks.non_negative("regularisation", regularisation)
    confusion, predicted = _confusion(unlabelled, held_out, labels)
    log_term = math.log(2 * len(confusion) / BOUND_LEVEL)
    bound = 2 * log_term / (3 * len(labels)) + math.sqrt(2 * log_term / len(labels))
    return _as_fractions(1 + _least_deviation(confusion, predicted - confusion.sum(1), share * bound), confusion)


def _least_deviation(matrix: Tensor, goal: Tensor, penalty: float) -> Tensor:
    """The theta that minimises |matrix theta - goal| + penalty |theta|.

    It minimises |matrix theta - goal|² + m |theta|² too, for the m with m |theta| = penalty |matrix theta - goal|: that
    of a ridge regression, of which there is a closed form. There is no such m if theta is 0 or the penalty too small
    to matter.
    """
    from scipy.optimize import brentq

    left, sizes, right = np.linalg.svd(matrix.numpy())
    onto = left.T @ goal.numpy()
    kept = sizes > 1e-12 * sizes.max()

    def deviation(ridge: float) -> FloatArray:
        """Theta in the basis of the singular vectors."""
        return np.where(kept, sizes * onto / (sizes**2 + ridge + ~kept), 0.0)

    def excess(log_ridge: float) -> float:
        ridge = math.exp(log_ridge)
        rest = np.where(kept, ridge * onto / (sizes**2 + ridge), onto)  # exact for a small ridge
        return float(ridge * np.linalg.norm(deviation(ridge)) - penalty * np.linalg.norm(rest))

    low, high = (2 * math.log(float(sizes.max())) + each for each in (-60.0, 60.0))
    if penalty == 0 or excess(low) >= 0:
        found = deviation(0.0)
    elif excess(high) <= 0:
        found = np.zeros_like(onto)
    else:
        found = deviation(math.exp(brentq(excess, low, high, xtol=1e-12)))
    return torch.from_numpy(right.T @ found)


def _confusion(unlabelled: Tensor, held_out: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Fraction of held-out cases by predicted class and label, (K, K), and of unlabelled ones by predicted class."""
    count = held_out.shape[-1]
    if unlabelled.ndim != 2 or held_out.ndim != 2 or unlabelled.shape[-1] != count or len(labels) != len(held_out):
        raise ValueError(
            "`unlabelled` and `held_out` must have shapes (U, K) and (B, K), with one of `labels` for each of the B, "
            f"but got {tuple(unlabelled.shape)}, {tuple(held_out.shape)} and {tuple(labels.shape)}"
        )
    pairs = held_out.argmax(-1) * count + labels.to(held_out.device)
    confusion = torch.bincount(pairs, minlength=count * count).reshape(count, count).double() / len(labels)
    predicted = torch.bincount(unlabelled.argmax(-1), minlength=count).double() / len(unlabelled)
    return confusion.cpu(), predicted.cpu()


def _as_fractions(ratios: Tensor, confusion: Tensor) -> tuple[float, ...]:
    """Class fractions from their ratios to those of the held-out labels."""
    found = ratios.clamp(min=0) * confusion.sum(0)
    if float(found.sum()) <= 0:  # no class has a positive estimate
        found = torch.ones_like(found)
    return _floored(found / found.sum())


def estimate_fractions(
    unlabelled: Array,
    held_out: Array,
    labels: Array,
    *,
    method: str = "em",
    level: float = 0.95,
    num_samples: int = 200,
    seed: int = 0,
) -> EstimatedBelief:
    """Estimate class fractions of the target domain, with intervals and a concentration.

    By default predictions are first calibrated on held-out labels, by a temperature and one offset per class, and EM
    then finds the fractions of greatest likelihood (Alexandari et al., 2020): EM relies on calibrated predictions. The
    intervals are those of a bootstrap: held-out cases and unlabelled inputs are resampled, and everything is
    estimated again. The concentration is that of `selbo.belief_from_samples` for these estimates. What they do not
    contain is a violation of the assumption: under label shift, inputs of one class are alike in both domains.

    Args:
        unlabelled: Log-probabilities or logits for unlabelled inputs of the target domain, shape (U, K).
        held_out: The same for labelled cases of the source domain that the classifier was not trained on, shape (B, K).
        labels: Classes of the held-out cases, shape (B,); at least one of every class.
        method: ``"em"``; or, without calibration, ``"confusion"`` (`estimate_by_confusion`) or ``"regularised"``
            (`estimate_by_regularised_confusion`).
        level: Probability of the intervals.
        num_samples: Number of bootstrap samples.
        seed: Seed of the bootstrap.

    Returns:
        Class fractions, their intervals and the concentration.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> def cases(count, share):
        ...     labels = (torch.rand(count, generator=generator) < share).long()
        ...     scores = 2 * labels - 1 + torch.randn(count, generator=generator)
        ...     return torch.stack([-9 * scores, 9 * scores], -1), labels  # far too certain
        >>> found = estimate_fractions(cases(2000, 0.7)[0], *cases(500, 0.2))
        >>> low, high = found.fraction_intervals[1]
        >>> round(found.class_fractions[1], 2), round(low, 2), round(high, 2)
        (0.66, 0.61, 0.72)
    """
    there, here = table("unlabelled", unlabelled), table("held_out", held_out)
    if there.shape[1] != here.shape[1]:
        raise ValueError(f"`unlabelled` must have {here.shape[1]} classes, as `held_out` has, but got {there.shape[1]}")
    classes = as_class_labels(labels, here)
    count = here.shape[1]
    if len(missing := sorted(set(range(count)) - set(classes.tolist()))) > 0:
        raise ValueError(f"`labels` must have cases of every class, but has none of class {missing[0]}")
    _checks.one_of("method", method, FRACTION_METHODS)
    repeats = _checks.whole("num_samples", num_samples, at_least=2)
    estimate: Callable[[Tensor, Tensor, Tensor], tuple[float, ...]] = {
        "em": _estimate_calibrated,
        "confusion": estimate_by_confusion,
        "regularised": estimate_by_regularised_confusion,
    }[method]
    floor = min(zero_floor(there), zero_floor(here))
    there, here = raise_zeros(there.double(), floor), raise_zeros(here.double(), floor)
    found = estimate(there, here, classes)
    generator = generator_for(_checks.whole("seed", seed, at_least=0), "bootstrap of class fractions")
    samples = np.array([estimate(*_drawn_anew(there, here, classes, generator)) for _ in range(repeats)])
    return replace(belief_from_samples(samples, level=level), class_fractions=found)


def _estimate_calibrated(unlabelled: Tensor, held_out: Tensor, labels: Tensor) -> tuple[float, ...]:
    """EM after bias-corrected temperature scaling; the source domain has the mean of the calibrated predictions."""
    correction = bias_corrected_temperature(held_out, labels, prior_strength=CALIBRATION_PRIOR)
    before = correction.scale(held_out).exp().mean(0)
    return _floored(_em(correction.scale(unlabelled) - before.log(), before))


def _drawn_anew(
    unlabelled: Tensor, held_out: Tensor, labels: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """A bootstrap sample. Held-out cases are drawn within each class, as only their inputs matter under label shift."""
    some = torch.randint(len(unlabelled), (len(unlabelled),), generator=generator)
    rows = torch.empty_like(labels)
    for each in labels.unique():
        places = (labels == each).nonzero()[:, 0]
        rows[places] = places[torch.randint(len(places), (len(places),), generator=generator)]
    return unlabelled[some], held_out[rows], labels[rows]


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
