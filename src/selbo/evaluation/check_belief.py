"""Do labels contradict a belief? Tests of what it states, with known error rates, on labels that were not trained on.

What is tested are the numbers that a belief states, as `SummaryLikelihood.describe` prints them: class fractions and an
accuracy. The concentration plays no part: it says how much the belief counts in training, not how sure it is. A
statement that is not meant to the last digit gets an ``uncertainty`` of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from selbo import _checks
from selbo.metrics.inputs import Array, labels_of, log_probs_table, on_host
from selbo.random import derive
from selbo.summary.likelihood import SummaryLikelihood

LEVEL: Final = 0.01
"""Largest probability of contradicting a belief that is right; checks made at once share it equally."""

STRONG: Final = math.log(10.0)
"""A belief is contradicted if, besides, a Bayes factor is beyond one to ten, Jeffreys' threshold for strong evidence:
with many labels a p-value finds differences too small to matter."""

JEFFREYS: Final = 0.5
SIMULATIONS: Final = 9999
"""Simulated data sets behind a p-value that cannot be summed: its error is below .001 at .01."""

EXACT: Final = 1e-6
"""Bounds that are nearer to each other are one number."""

GRID: Final = 200
IMPOSSIBLE: Final = 1e-9
"""Points of a claimed range over which a Bayes factor is averaged, and how near they come to 0 and 1."""

BETS: Final = 0.5 ** np.arange(8)
"""Stakes of the bets against a network, as parts of the largest that cannot lose more than there is: small ones find
small differences in many labels, large ones large differences in few."""

FRACTIONS: Final = "class fractions"
ACCURACY: Final = "accuracy"
LOG_LIKELIHOOD: Final = "log-likelihood"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """What labels say about one claim.

    Attributes:
        about: What was claimed: ``"class fractions"``, ``"accuracy"`` or ``"log-likelihood"``.
        claimed: The claim; for the log-likelihood, the mean over examples with the belief.
        observed: What the labels show; for the log-likelihood, the mean without the belief.
        num_examples: Number of labels.
        p_value: Probability, at most, of labels as unlikely as these or more so if the claim is right; for the
            log-likelihood, if the network with the belief is no worse than the other one.
        log_bayes_factor: In nats, of the claim against no claim (the Jeffreys prior): above zero the labels speak for
            it. For the log-likelihood, of one network against the other.
        claimed_to: Where the claim is a range, its upper ends.
        level: The p-value below which the claim is contradicted.
    """

    about: str
    claimed: tuple[float, ...]
    observed: tuple[float, ...]
    num_examples: int
    p_value: float
    log_bayes_factor: float
    claimed_to: tuple[float, ...] | None = None
    level: float = LEVEL

    @property
    def contradicted(self) -> bool:
        """Whether labels clearly speak against the claim: p-value *and* Bayes factor are beyond their thresholds."""
        return self.p_value < self.level and self.log_bayes_factor < -STRONG

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
    uncertainty: float = 0.0,
    level: float = LEVEL,
    seed: int = 0,
) -> tuple[Verdict, ...]:
    """Whether labelled examples that were not trained on contradict a summary.

    The examples must come **from the distribution that the summary is about**. Labels of the training distribution
    check a belief about the training inputs. They contradict a belief about other inputs even if it is right: half of
    the training cases may be ill, and one patient in ten at the clinic. Label a few cases there.

    Up to three checks are made. Each tests a null hypothesis, and contradicts it only if it would do so in a fraction
    ``level`` / (number of checks) of all samples at most, were it true: the probability that *any* check contradicts a
    belief that is right is at most ``level``, for every number of labels. The concentration of the summary does not
    matter.

    - ``class fractions``, if the summary states them. Null hypothesis: the labels are a random sample from
      the stated fractions. The network plays no part. Stated are those given to `expect` or, with `ClassRegions`, to
      `Masses`. For other beliefs it is the mean probability of each class, which is its share of the labels if
      predictions are calibrated; for `Empirical`, that of the predictions it was made from, taken as exact.
    - ``accuracy``, if it is stated and ``log_probs`` is given. Null hypothesis: each example is
      classified correctly with the stated probability. More correct answers than that show that the statement is too
      modest; fewer, that it is too bold *or that the network falls short of it*.
    - ``log-likelihood``, if ``without`` is given. Null hypothesis: for these inputs and these two networks, the
      expected mean log-probability of the labels is at least as high with the belief as without. It says
      nothing about the statement; on labels of the target domain it decides whether to deploy with the belief.

    Args:
        summary: What was believed.
        labels: Classes of the examples, shape (B,).
        log_probs: Predictions for them by the network trained with the belief, logarithms, shape (B, K).
        without: The same by a network trained without it.
        uncertainty: How far off the stated fractions and the stated accuracy may be, each by itself, and still count
            as right: with 0.05 a stated accuracy of 0.9 means 0.85 to 0.95.
        level: Probability, at most, of contradicting a belief that is right.
        seed: Of the simulated p-value of the fractions of more than two classes.

    Returns:
        One result per claim that can be checked.

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
        p = 2.3e-33, log Bayes factor -70.7)
    """
    if not isinstance(summary, SummaryLikelihood):
        raise ValueError(f"`summary` must be a selbo.SummaryLikelihood, but got {type(summary).__name__}")
    if without is not None and log_probs is None:
        raise ValueError("`without` is compared with `log_probs`, which must be given too, but is not")
    _checks.fraction("level", level, low=0.0, high=1.0)
    _uncertainty(uncertainty)
    claims, num_classes = summary.describe(), summary.partition.num_classes
    verdicts = []
    if claims.label_fractions is not None:
        low, high = (np.array(ends) for ends in zip(*claims.label_fractions, strict=True))
        counts = np.bincount(_classes(labels, num_classes), minlength=num_classes).astype(np.float64)
        if (high - low < EXACT).all():
            low = high = low / low.sum()  # means of single precision
        verdicts.append(_verdict(FRACTIONS, (low, high), counts, uncertainty=uncertainty, seed=seed))
    if log_probs is not None:
        rows = log_probs_table(log_probs)
        if rows.shape[1] != num_classes:
            raise ValueError(
                f"`log_probs` must have {num_classes} classes, as the summary has, but got {rows.shape[1]}"
            )
        correct = rows.argmax(-1) == labels_of(labels, rows)
        if claims.accuracy is not None:
            verdicts.append(check_accuracy(claims.accuracy, correct, uncertainty=uncertainty))
        if without is not None:
            verdicts.append(check_likelihood(rows, without, labels))
    return tuple(replace(each, level=level / len(verdicts)) for each in verdicts)


def check_fractions(claimed: Sequence[float], labels: Array, *, uncertainty: float = 0.0, seed: int = 0) -> Verdict:
    """Whether labels contradict stated class fractions; a network is not needed.

    The p-value is exact. For two classes it is twice the smaller tail of the binomial distribution: it is below a
    level if the Clopper-Pearson interval leaves out what was stated. For more classes it is the probability of counts
    that are no more probable than these, from 9999 simulations; with an uncertainty, it is the smallest p-value of a
    single class against the others, times the number of classes.

    Args:
        claimed: Fraction of each class, positive, summing to one.
        labels: Classes, shape (B,): a random sample of the cases that the statement is about.
        uncertainty: How far off each fraction may be and still count as right.
        seed: Of the simulations.
    """
    fractions = np.array(_checks.simplex("claimed", claimed))
    counts = np.bincount(_classes(labels, len(fractions)), minlength=len(fractions)).astype(np.float64)
    return _verdict(FRACTIONS, (fractions, fractions), counts, uncertainty=_uncertainty(uncertainty), seed=seed)


def check_accuracy(claimed: float | tuple[float, float], correct: Array, *, uncertainty: float = 0.0) -> Verdict:
    """Whether the number of correct answers contradicts a stated accuracy.

    The p-value is twice the smaller tail of the binomial distribution, exact.

    Args:
        claimed: The accuracy, or bounds of it, from 0 to 1.
        correct: Whether each answer is correct, shape (B,).
        uncertainty: How far off the accuracy, or each bound, may be and still count as right.
    """
    answers = on_host("correct", correct)
    if answers.ndim != 1 or len(answers) == 0 or not bool(((answers == 0) | (answers == 1)).all()):
        raise ValueError(f"`correct` must hold true or false, shape (B,), B at least 1, but got {tuple(answers.shape)}")
    count = float(answers.double().sum())
    low, high = (claimed, claimed) if isinstance(claimed, (int, float)) else claimed
    if abs(high - low) < EXACT:
        low = high = _checks.fraction("claimed", low, low=0.0, high=1.0)
    elif not 0 <= low < high <= 1:
        raise ValueError(f"`claimed` must be bounds between 0 and 1, the lower one first, but got {claimed!r}")
    found = _verdict(
        ACCURACY,
        (np.array([low, 1 - high]), np.array([high, 1 - low])),
        np.array([count, len(answers) - count]),
        uncertainty=_uncertainty(uncertainty),
    )
    ends = None if found.claimed_to is None else found.claimed_to[:1]
    return replace(found, claimed=found.claimed[:1], observed=found.observed[:1], claimed_to=ends)


def check_likelihood(log_probs: Array, without: Array, labels: Array) -> Verdict:
    r"""Whether a network with the belief gives the labels less probability than one without it.

    The logarithm of the Bayes factor is the sum over examples of $d_i$, the log-probability of the label with the
    belief less that without. The null hypothesis is that its expectation, over labels given the inputs, is not
    negative. Whether one network is a little better on most examples or much better on few, which a test of signs
    confuses, makes no difference.

    The test is a bet against the network with the belief. $1 - \lambda d_i$ is not negative if $\lambda$ is at most
    $1 / \max_{i, k} \log (p_{ik} / p'_{ik})$, which depends on the predictions only. The product over independent
    examples has an expectation of at most $\exp(-\lambda \sum_i \mathrm{E} d_i) \le 1$ under the null hypothesis, and
    so has its mean over several $\lambda$. By Markov's inequality one over that mean is a p-value, for every number of
    labels. It is 1 if the network without the belief excludes a class that the other does not.

    Args:
        log_probs: Predictions with the belief, logarithms of probabilities, shape (B, K).
        without: Predictions for the same inputs without it.
        labels: Classes, shape (B,).
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
    possible = (ours.double() - theirs.double()).nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    return Verdict(
        about=LOG_LIKELIHOOD,
        claimed=(float(by_example[0].mean()),),
        observed=(float(by_example[1].mean()),),
        num_examples=len(difference),
        p_value=_p_value_of_bets(difference, most=float(possible.max())),
        log_bayes_factor=float(difference.sum()),
    )


def shortfall(verdict: Verdict, labels: Array) -> str | None:
    """What to tell a user whose network clearly misses the stated accuracy; None if it does not.

    Whether the statement is too bold or the network falls short cannot be told from the labels; in both cases a network
    that was trained to look that accurate is overconfident.

    Args:
        verdict: Of `check_belief` or `check_accuracy`, about held-out examples.
        labels: Classes of these examples, shape (B,).
    """
    if verdict.about != ACCURACY or not verdict.contradicted or verdict.observed[0] >= verdict.claimed[0]:
        return None
    reached, total = verdict.observed[0], verdict.num_examples
    low, high = _interval(round(reached * total), total)
    ends = {verdict.claimed[0], (verdict.claimed_to or verdict.claimed)[0]}
    stated = " to ".join(f"{100 * each:.3g}" for each in sorted(ends))
    counts = np.bincount(on_host("labels", labels).long().numpy())
    found = (
        f"{100 * reached:.1f} % of {total} held-out rows are classified correctly (95 % interval {100 * low:.1f} to "
        f"{100 * high:.1f} %), clearly below the stated {stated} %"
    )
    if reached <= counts.max() / total:
        return (
            f"{found}, and no more than the most frequent class alone would give ({100 * counts.max() / total:.1f} %): "
            "it is no better than guessing, so check the data and the training before the statement"
        )
    return (
        f"{found}: either the statement is too bold or the network falls short of it; in both cases its probabilities "
        f"are overconfident, so state about {100 * reached:.0f} % instead"
    )


def _interval(count: int, total: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of a probability, at 95 %."""
    from scipy.special import betaincinv

    low = betaincinv(count, total - count + 1, 0.025) if count > 0 else 0.0
    high = betaincinv(count + 1, total - count, 0.975) if count < total else 1.0
    return float(low), float(high)


def _verdict(
    about: str, claimed: tuple[Floats, Floats], counts: Floats, *, uncertainty: float, seed: int = 0
) -> Verdict:
    """Counts against fractions that are claimed to lie between bounds, which may be equal."""
    low, high = np.maximum(claimed[0] - uncertainty, 0.0), np.minimum(claimed[1] + uncertainty, 1.0)
    total = counts.sum()
    ranges = bool((high - low >= EXACT).any())
    if len(counts) > 2 and not ranges:
        p_value, factor = _multinomial_p_value(low, counts, seed), float(_log_factor(low, counts))
    else:
        tested = range(len(counts)) if len(counts) > 2 else [0]  # of two classes, one says it all
        p_values = [_binomial_p_value(low[k], high[k], counts[k], total) for k in tested]
        worst = int(np.argmin(p_values))
        p_value = min(1.0, len(p_values) * p_values[worst])
        factor = _mean_log_factor(low[worst], high[worst], np.array([counts[worst], total - counts[worst]]))
    return Verdict(
        about=about,
        claimed=tuple(low.tolist()),
        observed=tuple((counts / total).tolist()),
        num_examples=int(total),
        p_value=p_value,
        log_bayes_factor=factor,
        claimed_to=tuple(high.tolist()) if ranges else None,
    )


def _binomial_p_value(low: float, high: float, count: float, total: float) -> float:
    """Twice the smaller tail of so many successes, each at the bound of the probability that makes it largest."""
    from scipy.special import bdtr, bdtrc

    few, many = bdtr(count, int(total), low), bdtrc(count - 1, int(total), high)
    return float(min(1.0, 2 * min(few, many)))


def _multinomial_p_value(fractions: Floats, counts: Floats, seed: int) -> float:
    """Probability of counts no more probable than these, simulated."""
    generator = np.random.default_rng(derive(seed, "counts"))
    limit = _log_pmf(counts, None, fractions) + 1e-9  # rounding must not split ties
    simulated = generator.multinomial(int(counts.sum()), fractions, SIMULATIONS).astype(np.float64)
    return float((1 + (_log_pmf(simulated, None, fractions) <= limit).sum()) / (1 + SIMULATIONS))


def _p_value_of_bets(difference: Floats, *, most: float) -> float:
    if most <= 0:
        return 1.0  # the same predictions
    with np.errstate(divide="ignore"):  # a bet may lose everything
        log_wealth = np.log(np.maximum(1 - BETS[:, None] / most * difference, 0.0)).sum(-1)
    return float(np.exp(min(0.0, math.log(len(BETS)) - np.logaddexp.reduce(log_wealth))))


def _mean_log_factor(low: float, high: float, counts: Floats) -> float:
    """Logarithm of a mean of Bayes factors over a range of the first of two fractions."""
    if high - low < EXACT:
        return float(_log_factor(np.array([low, 1 - low]), counts))
    ends = np.clip([low, high], IMPOSSIBLE, 1 - IMPOSSIBLE)
    grid = ends[0] + (np.arange(GRID) + 0.5) / GRID * (ends[1] - ends[0])
    factors = _log_factor(np.stack([grid, 1 - grid], -1), counts)
    return float(np.logaddexp.reduce(factors) - math.log(GRID))


def _log_factor(claimed: Floats, counts: Floats) -> Any:
    """Logarithm of the Bayes factor of stated fractions against no claim."""
    return _log_pmf(counts, None, claimed) - _log_pmf(counts, np.full(len(counts), JEFFREYS), claimed)


def _log_pmf(counts: Floats, parameters: Floats | None, fractions: Floats) -> Any:
    """Log-probability of counts, Dirichlet-multinomial or, without parameters, multinomial: (..., K) -> (...)."""
    from scipy.special import gammaln, xlogy

    total = counts.sum(-1)
    ways = gammaln(total + 1) - gammaln(counts + 1).sum(-1)
    if parameters is None:
        return ways + xlogy(counts, fractions).sum(-1)  # a fraction of 0 allows a count of 0
    rising = gammaln(counts + parameters) - gammaln(parameters)
    whole = parameters.sum()
    return ways + rising.sum(-1) + gammaln(whole) - gammaln(total + whole)


def _uncertainty(value: float) -> float:
    if _checks.non_negative("uncertainty", value) >= 1:
        raise ValueError(f"`uncertainty` must be a number from 0 to below 1, but got {value!r}")
    return float(value)


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
