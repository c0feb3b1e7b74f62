"""Do labels contradict a belief? Predictive p-values and Bayes factors between the belief and no belief.

A summary says more than its term in the objective uses: that classes are as frequent, and a calibrated classifier as
often right, as `SummaryLikelihood.describe` states. Taken as a Dirichlet process over predictions and labels together,
with the summary as its margin, the belief makes the fractions of the labels Dirichlet distributed around the claimed
ones, with the concentration of the summary; counts are Dirichlet-multinomial. "No belief" is the Jeffreys prior.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from selbo import checks
from selbo.metrics.inputs import Array, labels_of, log_probs_table, on_host
from selbo.seeding import derive
from selbo.summary.likelihood import SummaryLikelihood

LEVEL: Final = 0.01
"""A p-value below this speaks against the belief."""

STRONG: Final = math.log(10.0)
"""So does a Bayes factor beyond one to ten, Jeffreys' threshold for strong evidence. Both are asked for: with many
labels a p-value finds differences too small to matter, and a Bayes factor hangs on what stands for no belief."""

JEFFREYS: Final = 0.5
SIMULATIONS: Final = 9999
"""Simulated data sets behind a p-value that cannot be summed: its error is below .001 at .01."""

EXACT: Final = 1e-6
"""Bounds that are nearer to each other are one number."""

GRID: Final = 200
IMPOSSIBLE: Final = 1e-9
"""Points of a claimed range over which a Bayes factor is averaged, and how near they come to 0 and 1."""

LOG_LIKELIHOOD: Final = "log-likelihood"
FLIPS_AT_A_TIME: Final = 1 << 22

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """What labels say about one claim.

    Attributes:
        about: What was claimed: ``"class fractions"``, ``"accuracy"`` or ``"log-likelihood"``.
        claimed: The claim; for the log-likelihood, the mean over examples with the belief.
        observed: What the labels show; for the log-likelihood, the mean without the belief.
        num_examples: Number of labels.
        p_value: Probability, if the belief is right, of labels as unlikely as these or more so; for the log-likelihood,
            of a mean difference as low as this one or lower, if the belief made no difference.
        log_bayes_factor: In nats, of the belief against no belief: above zero the labels speak for it.
        claimed_to: Where the claim is a range, its other end. The p-value is then that of the fraction within it which
            fits best, and the Bayes factor a mean over the range.
    """

    about: str
    claimed: tuple[float, ...]
    observed: tuple[float, ...]
    num_examples: int
    p_value: float
    log_bayes_factor: float
    claimed_to: tuple[float, ...] | None = None

    @property
    def contradicted(self) -> bool:
        """Whether the labels speak clearly against the belief: both numbers are beyond their thresholds."""
        return self.p_value < LEVEL and self.log_bayes_factor < -STRONG

    def __str__(self) -> str:
        found = "contradicted by" if self.contradicted else "not contradicted by"
        ours, theirs = ("with", "without") if self.about == LOG_LIKELIHOOD else ("claimed", "found")
        claim = _shown(self.claimed) + (f" to {_shown(self.claimed_to)}" if self.claimed_to else "")
        return (
            f"{self.about}: {found} {self.num_examples} labels ({ours} {claim}, {theirs} "
            f"{_shown(self.observed)}; p = {self.p_value:.2g}, log Bayes factor {self.log_bayes_factor:+.1f})"
        )


def check_belief(
    summary: SummaryLikelihood,
    labels: Array,
    *,
    log_probs: Array | None = None,
    without: Array | None = None,
    seed: int = 0,
) -> tuple[Verdict, ...]:
    """Whether labelled examples that were not trained on contradict a summary.

    The examples must come **from the place that the summary speaks of**. Labels of the training distribution judge a
    belief about the training inputs. A belief about other inputs they contradict even if it is right, because that is
    what such a belief is for: half of the training cases may be ill and one patient in ten at the clinic. Label a few
    cases there. What each verdict takes for granted:

    - ``class fractions``, if the summary states them: that the labels are a random sample; the network plays no part.
      Stated are those given to `expect` or, with `ClassRegions`, to `Masses`. Of another belief it is the mean
      probability of each class that is compared, which is the share of its labels if predictions are calibrated.
    - ``accuracy``, if it is stated and ``log_probs`` is given: besides, that the network is as good as the task allows.
      More right answers than claimed contradict the belief; fewer may be the network's fault, not the belief's.
    - ``log-likelihood``, if ``without`` is given: nothing about the belief. It compares two networks, and on labels of
      the place of use it is the one that decides whether to deploy with the belief. On other labels it tells the price
      of the belief there.

    Args:
        summary: What was believed.
        labels: Classes of the examples, shape (B,).
        log_probs: Predictions for them by the network trained with the belief, logarithms, shape (B, K).
        without: The same by a network trained without it.
        seed: Of the simulations behind p-values that have no sum.

    Returns:
        One verdict a claim that can be judged.

    Example:
        >>> import torch, selbo
        >>> belief = selbo.expect(accuracy=0.9, class_fractions=[0.5, 0.5])
        >>> summary = selbo.SummaryLikelihood(
        ...     selbo.ScoreBins.equal(10), belief, concentration=100.0
        ... )
        >>> # one in ten is of class 1
        >>> (verdict,) = check_belief(summary, torch.arange(200) % 10 // 9)
        >>> print(verdict)
        class fractions: contradicted by 200 labels (claimed .500 .500, found .900 .100;
        p = 7.2e-14, log Bayes factor -26.2)
    """
    if not isinstance(summary, SummaryLikelihood):
        raise ValueError(f"`summary` must be a selbo.SummaryLikelihood, but got {type(summary).__name__}")
    if without is not None and log_probs is None:
        raise ValueError("`without` is compared with `log_probs`, which must be given too, but is not")
    claims, num_classes = summary.describe(), summary.partition.num_classes
    verdicts = []
    if claims.label_fractions is not None:
        low, high = (np.array(ends) for ends in zip(*claims.label_fractions, strict=True))
        if (high - low < EXACT).all():
            verdicts.append(check_fractions(low.tolist(), labels, concentration=claims.concentration, seed=seed))
        elif num_classes == 2:
            counts = np.bincount(_classes(labels, 2), minlength=2).astype(np.float64)
            verdicts.append(_between("class fractions", low[0], high[0], counts, claims.concentration))
    if log_probs is not None:
        rows = log_probs_table(log_probs)
        if rows.shape[1] != num_classes:
            raise ValueError(
                f"`log_probs` must have {num_classes} classes, as the summary has, but got {rows.shape[1]}"
            )
        right = rows.argmax(-1) == labels_of(labels, rows)
        if claims.accuracy is not None:
            verdicts.append(check_accuracy(claims.accuracy, right, concentration=claims.concentration))
        if without is not None:
            verdicts.append(check_likelihood(rows, without, labels, seed=seed))
    return tuple(verdicts)


def check_fractions(
    claimed: Sequence[float], labels: Array, *, concentration: float = math.inf, seed: int = 0
) -> Verdict:
    """Whether labels contradict stated class fractions; a network is not needed.

    Args:
        claimed: Fraction of each class, positive, summing to one.
        labels: Classes, shape (B,): a random sample of the cases that the statement is about.
        concentration: How sure the statement is, in observations that it is worth; infinite if it is exact.
        seed: Of the simulations, if there are more than two classes.
    """
    fractions = np.array(checks.simplex("claimed", claimed))
    classes = _classes(labels, len(fractions))
    counts = np.bincount(classes, minlength=len(fractions)).astype(np.float64)
    return _verdict("class fractions", fractions, counts, _concentration(concentration), seed)


def check_accuracy(claimed: float | tuple[float, float], correct: Array, *, concentration: float = math.inf) -> Verdict:
    """Whether the number of right answers contradicts a stated accuracy.

    Args:
        claimed: The accuracy, or bounds of it, from 0 to 1.
        correct: Whether each answer was right, shape (B,).
        concentration: How sure the statement is, in observations that it is worth; infinite if it is exact.
    """
    answers = on_host("correct", correct)
    if answers.ndim != 1 or len(answers) == 0 or not bool(((answers == 0) | (answers == 1)).all()):
        raise ValueError(f"`correct` must hold true or false, shape (B,), B at least 1, but got {tuple(answers.shape)}")
    right = float(answers.double().sum())
    counts = np.array([right, len(answers) - right])
    low, high = (claimed, claimed) if isinstance(claimed, (int, float)) else claimed
    if abs(high - low) < EXACT:
        accuracy = checks.fraction("claimed", low, low=0.0, high=1.0)
        found = _verdict("accuracy", np.array([accuracy, 1 - accuracy]), counts, _concentration(concentration), seed=0)
    else:
        if not 0 <= low < high <= 1:
            raise ValueError(f"`claimed` must be bounds between 0 and 1, the lower one first, but got {claimed!r}")
        found = _between("accuracy", low, high, counts, _concentration(concentration))
    ends = None if found.claimed_to is None else found.claimed_to[:1]
    return replace(found, claimed=found.claimed[:1], observed=found.observed[:1], claimed_to=ends)


def check_likelihood(log_probs: Array, without: Array, labels: Array, *, seed: int = 0) -> Verdict:
    """Whether a network with the belief gives labels less probability than one without it, example by example.

    The logarithm of the Bayes factor is the sum of the differences of the log-probabilities of the labels. The p-value
    is that of a paired randomisation test: if the belief made no difference, each of them could have either sign.

    Args:
        log_probs: Predictions with the belief, logarithms of probabilities, shape (B, K).
        without: Predictions for the same inputs without it.
        labels: Classes, shape (B,).
        seed: Of the randomisation.
    """
    ours, theirs = log_probs_table(log_probs), log_probs_table(without)
    if ours.shape != theirs.shape:
        raise ValueError(
            f"`without` must have the shape of `log_probs`, {tuple(ours.shape)}, but got {tuple(theirs.shape)}"
        )
    classes = labels_of(labels, ours)[:, None]
    by_example = [rows.double().gather(1, classes).squeeze(1).numpy() for rows in (ours, theirs)]
    difference = by_example[0] - by_example[1]
    if not np.isfinite(difference).all():
        raise ValueError("`log_probs` and `without` must give every label some probability, but some have none")
    return Verdict(
        about=LOG_LIKELIHOOD,
        claimed=(float(by_example[0].mean()),),
        observed=(float(by_example[1].mean()),),
        num_examples=len(difference),
        p_value=_sign_flip_p_value(difference, seed),
        log_bayes_factor=float(difference.sum()),
    )


def _verdict(about: str, claimed: Floats, counts: Floats, concentration: float, seed: int) -> Verdict:
    total = counts.sum()
    return Verdict(
        about=about,
        claimed=tuple(claimed.tolist()),
        observed=tuple((counts / total).tolist()),
        num_examples=int(total),
        p_value=_p_value(claimed, counts, concentration, seed),
        log_bayes_factor=_log_factor(claimed, counts, concentration),
    )


def _between(about: str, low: float, high: float, counts: Floats, concentration: float) -> Verdict:
    """Two classes, the first of which is claimed to have a fraction from ``low`` to ``high``."""
    inner = np.clip([low, high], IMPOSSIBLE, 1 - IMPOSSIBLE)
    nearest = float(np.clip(counts[0] / counts.sum(), *inner))
    best = _verdict(about, np.array([nearest, 1 - nearest]), counts, concentration, seed=0)
    grid = inner[0] + (np.arange(GRID) + 0.5) / GRID * (inner[1] - inner[0])
    factors = np.array([_log_factor(np.array([each, 1 - each]), counts, concentration) for each in grid])
    mean = float(np.logaddexp.reduce(factors) - math.log(GRID))
    return replace(best, claimed=(low, 1 - low), claimed_to=(high, 1 - high), log_bayes_factor=mean)


def _log_factor(claimed: Floats, counts: Floats, concentration: float) -> float:
    """Logarithm of the Bayes factor of stated fractions against no belief."""
    by_belief = _log_pmf(counts, concentration * claimed if concentration < math.inf else None, claimed)
    return float(by_belief - _log_pmf(counts, np.full(len(counts), JEFFREYS), claimed))


def _log_pmf(counts: Floats, parameters: Floats | None, fractions: Floats) -> Any:
    """Log-probability of counts, Dirichlet-multinomial or, without parameters, multinomial: (..., K) -> (...)."""
    from scipy.special import gammaln

    total = counts.sum(-1)
    ways = gammaln(total + 1) - gammaln(counts + 1).sum(-1)
    if parameters is None:
        return ways + (counts * np.log(fractions)).sum(-1)
    rising = gammaln(counts + parameters) - gammaln(parameters)
    whole = parameters.sum()
    return ways + rising.sum(-1) + gammaln(whole) - gammaln(total + whole)


def _p_value(fractions: Floats, counts: Floats, concentration: float, seed: int) -> float:
    """Probability of counts no more probable than these: summed for two classes, simulated for more."""
    total, parameters = int(counts.sum()), concentration * fractions if concentration < math.inf else None
    limit = _log_pmf(counts, parameters, fractions) + 1e-9  # rounding must not split ties
    if len(fractions) == 2:
        first = np.arange(total + 1.0)
        log_pmf = _log_pmf(np.stack([first, total - first], -1), parameters, fractions)
        return float(min(1.0, np.exp(log_pmf[log_pmf <= limit]).sum()))
    generator = np.random.default_rng(derive(seed, "counts"))
    drawn = np.tile(fractions, (SIMULATIONS, 1))
    if parameters is not None:
        drawn = generator.dirichlet(parameters, SIMULATIONS)
    simulated = generator.multinomial(total, drawn).astype(np.float64)
    return float((1 + (_log_pmf(simulated, parameters, fractions) <= limit).sum()) / (1 + SIMULATIONS))


def _sign_flip_p_value(difference: Floats, seed: int) -> float:
    generator = np.random.default_rng(derive(seed, "signs"))
    limit, low, left = difference.sum() + 1e-12 * np.abs(difference).sum(), 0, SIMULATIONS
    while left:
        rows = min(left, max(1, FLIPS_AT_A_TIME // len(difference)))
        signs = generator.integers(0, 2, size=(rows, len(difference)), dtype=np.int8) * 2.0 - 1
        low += int((signs @ difference <= limit).sum())
        left -= rows
    return (1 + low) / (1 + SIMULATIONS)


def _concentration(value: float) -> float:
    return value if value == math.inf else checks.positive("concentration", value)


def _classes(labels: Array, num_classes: int) -> NDArray[np.int64]:
    given = on_host("labels", labels)
    if given.ndim != 1 or len(given) == 0 or given.dtype.is_floating_point or given.dtype.is_complex:
        raise ValueError(
            f"`labels` must hold classes as whole numbers, shape (B,), B at least 1, but got {tuple(given.shape)} of "
            f"{given.dtype}"
        )
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= num_classes:
        raise ValueError(f"`labels` must be classes from 0 to {num_classes - 1}, but got {low if low < 0 else high}")
    return given.long().numpy()


def _shown(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}" for value in values)
