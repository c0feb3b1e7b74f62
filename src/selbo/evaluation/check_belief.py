"""Belief checks: tests with known error rates whether held-out labels contradict what a belief states.

The tests use the numbers that a belief states, as `SummaryLikelihood.describe` prints them: class fractions and an
accuracy. They do not use the concentration, which is the weight of the belief in training and not its uncertainty. If a
statement is approximate, pass an ``uncertainty``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from selbo import _checks
from selbo.evaluation.check_groups import GroupCheck, check_groups
from selbo.metrics.inputs import Array, as_class_labels, class_numbers, log_probs_table, on_host
from selbo.random import derive
from selbo.summary.estimation import JEFFREYS
from selbo.summary.grouped import GroupedSummary
from selbo.summary.likelihood import SummaryLikelihood

SIGNIFICANCE: Final = 0.01
"""Largest probability of contradicting a correct belief, divided equally among the checks of one call."""

STRONG_EVIDENCE: Final = math.log(10.0)
"""A contradiction also requires a Bayes factor below one to ten, Jeffreys' threshold for strong evidence: with many
labels a p-value detects differences too small to matter."""

SIMULATIONS: Final = 9999
"""Number of simulations for a p-value that cannot be computed exactly; its standard error is below .001 at .01."""

EXACT: Final = 1e-6
"""Bounds that differ by less than this count as one number."""

GRID: Final = 200
IMPOSSIBLE: Final = 1e-9
"""Number of points of a claimed range over which a Bayes factor is averaged, and their distance from 0 and 1."""

BETS: Final = 0.5 ** np.arange(8)
"""Stakes of the bets against a network, as fractions of the largest stake that cannot lose more than the whole wealth.
Small stakes detect small differences in many labels, large stakes large differences in few labels."""

FRACTIONS: Final = "class fractions"
ACCURACY: Final = "accuracy"
LOG_LIKELIHOOD: Final = "log-likelihood"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CheckResult:
    """Result of checking one claim against labels.

    Attributes:
        about: Subject of the claim: ``"class fractions"``, ``"accuracy"`` or ``"log-likelihood"``.
        claimed: Claimed values; for the log-likelihood, the mean over examples with the belief.
        observed: Observed values; for the log-likelihood, the mean without the belief.
        num_examples: Number of labels.
        p_value: Upper bound on the probability of labels at least as unlikely as these if the claim is correct; for the
            log-likelihood, if the network with the belief is not worse than the one without.
        log_bayes_factor: Log Bayes factor, in nats, of the claim against no claim (the Jeffreys prior); a positive
            value supports the claim. For the log-likelihood, of the network with the belief against the one without.
        claimed_to: Upper ends of the claim, if it is a range.
        level: The claim is contradicted only if the p-value is below this.
    """

    about: str
    claimed: tuple[float, ...]
    observed: tuple[float, ...]
    num_examples: int
    p_value: float
    log_bayes_factor: float
    claimed_to: tuple[float, ...] | None = None
    level: float = SIGNIFICANCE

    @property
    def contradicted(self) -> bool:
        """Whether the labels contradict the claim: p-value *and* Bayes factor are below their thresholds."""
        return self.p_value < self.level and self.log_bayes_factor < -STRONG_EVIDENCE

    def __str__(self) -> str:
        found = "contradicted by" if self.contradicted else "not contradicted by"
        ours, theirs = ("with", "without") if self.about == LOG_LIKELIHOOD else ("claimed", "found")
        claim = _shown(self.claimed) + (f" to {_shown(self.claimed_to)}" if self.claimed_to else "")
        return (
            f"{self.about}: {found} {self.num_examples} labels ({ours} {claim}, {theirs} "
            f"{_shown(self.observed)}; p = {self.p_value:.2g}, log Bayes factor {self.log_bayes_factor:+.1f})"
        )


@overload
def check_belief(
    summary: SummaryLikelihood,
    labels: Array,
    *,
    groups: None = None,
    log_probs: Array | None = None,
    without: Array | None = None,
    uncertainty: float = 0.0,
    level: float = SIGNIFICANCE,
    seed: int = 0,
) -> tuple[CheckResult, ...]: ...


@overload
def check_belief(
    summary: GroupedSummary, labels: Array, *, groups: Array, level: float = SIGNIFICANCE
) -> tuple[GroupCheck, ...]: ...


def check_belief(
    summary: SummaryLikelihood | GroupedSummary,
    labels: Array,
    *,
    groups: Array | None = None,
    log_probs: Array | None = None,
    without: Array | None = None,
    uncertainty: float = 0.0,
    level: float = SIGNIFICANCE,
    seed: int = 0,
) -> tuple[CheckResult, ...] | tuple[GroupCheck, ...]:
    """Check whether held-out labelled examples contradict a summary.

    The examples must come **from the distribution that the summary describes**. Labels of the source domain check a
    belief about the source domain. They can contradict a correct belief about another domain: half of the training
    cases may be ill, but only one in ten patients at the clinic. To check such a belief, label a few cases of the
    target domain.

    The function runs up to three checks. Each tests a null hypothesis at level ``level`` / (number of checks), so the
    probability that *any* check contradicts a correct belief is at most ``level``, for every number of labels. The
    concentration of the summary does not matter.

    - ``class fractions``, if the summary states them. Null hypothesis: the labels are a random sample from
      the stated fractions. The network is not used. The stated fractions are those given to `expect` or, with
      `ClassRegions`, to `Masses`. For other beliefs they are the mean probabilities of the classes, which equal the
      fractions of the labels if predictions are calibrated; for `Empirical`, the means of the predictions it was made
      from, taken as exact.
    - ``accuracy``, if it is stated and ``log_probs`` is given. Null hypothesis: each example is
      classified correctly with the stated probability. If more examples are correct, the stated accuracy is too low. If
      fewer are, it is too high *or the network does not reach it*.
    - ``log-likelihood``, if ``without`` is given. Null hypothesis: for these inputs and these two networks, the
      expected mean log-probability of the labels is at least as high with the belief as without. This check does not
      test the statement; on labels of the target domain it shows whether to deploy the network with the belief.

    For a `GroupedSummary`, pass the group of each example: see `selbo.evaluation.check_groups`, which also checks
    groups by predictions, without labels. There the concentrations matter: they are the precision of each fraction.

    Args:
        summary: The summary to check.
        labels: Classes of the examples, shape (B,). With groups, -1 marks unlabelled examples, which are left out.
        groups: Group of each example, shape (B,), for a `GroupedSummary`.
        log_probs: Log-probabilities of the network trained with the belief, shape (B, K).
        without: Log-probabilities of a network trained without the belief, shape (B, K).
        uncertainty: Tolerance of each stated fraction and of the stated accuracy: with 0.05, a stated accuracy of 0.9
            means 0.85 to 0.95.
        level: Largest probability of contradicting a correct belief.
        seed: Seed for the simulated p-value of the fractions of more than two classes.

    Returns:
        One result per claim that can be checked, or per group.

    Example:
        >>> import torch, selbo
        >>> belief = selbo.expect(accuracy=0.9, class_fractions=[0.5, 0.5])
        >>> summary = selbo.SummaryLikelihood(
        ...     selbo.ScoreBins.equal(10), belief, concentration=100.0
        ... )
        >>> # one in ten is of class 1
        >>> (result,) = check_belief(summary, torch.arange(200) % 10 // 9)
        >>> print(result)
        class fractions: contradicted by 200 labels (claimed .500 .500, found .900 .100;
        p = 2.3e-33, log Bayes factor -70.7)
    """
    if isinstance(summary, GroupedSummary):
        if groups is None or log_probs is not None or without is not None or uncertainty:
            raise ValueError("`groups` must be given with a selbo.GroupedSummary, beside `labels` and `level` alone")
        return check_groups(summary, groups, labels=labels, level=level)
    if groups is not None:
        raise ValueError("`groups` is for a selbo.GroupedSummary, but `summary` is another one")
    if not isinstance(summary, SummaryLikelihood):
        raise ValueError(f"`summary` must be a selbo.SummaryLikelihood, but got {type(summary).__name__}")
    if without is not None and log_probs is None:
        raise ValueError("`without` is compared with `log_probs`, which must be given too, but is not")
    _checks.fraction("level", level, low=0.0, high=1.0)
    _uncertainty(uncertainty)
    claims, num_classes = summary.describe(), summary.partition.num_classes
    results = []
    if claims.label_fractions is not None:
        low, high = (np.array(ends) for ends in zip(*claims.label_fractions, strict=True))
        counts = np.bincount(class_numbers(labels, num_classes), minlength=num_classes).astype(np.float64)
        if (high - low < EXACT).all():
            low = high = low / low.sum()  # means were computed in single precision
        results.append(_check(FRACTIONS, (low, high), counts, uncertainty=uncertainty, seed=seed))
    if log_probs is not None:
        rows = log_probs_table(log_probs)
        if rows.shape[1] != num_classes:
            raise ValueError(
                f"`log_probs` must have {num_classes} classes, as the summary has, but got {rows.shape[1]}"
            )
        correct = rows.argmax(-1) == as_class_labels(labels, rows)
        if claims.accuracy is not None:
            results.append(check_accuracy(claims.accuracy, correct, uncertainty=uncertainty))
        if without is not None:
            results.append(check_likelihood(rows, without, labels))
    return tuple(replace(each, level=level / len(results)) for each in results)


def check_fractions(claimed: Sequence[float], labels: Array, *, uncertainty: float = 0.0, seed: int = 0) -> CheckResult:
    """Check whether labels contradict stated class fractions; needs no network.

    The p-value is exact. For two classes it is twice the smaller tail of the binomial distribution: it is below a
    level if the Clopper-Pearson interval excludes the stated fraction. For more classes it is the probability of counts
    that are no more probable than these, from 9999 simulations; with an uncertainty, it is the smallest p-value of a
    single class against the others, times the number of classes.

    Args:
        claimed: Fraction of each class, positive, summing to one.
        labels: Classes, shape (B,): a random sample of the cases that the statement describes.
        uncertainty: Tolerance of each fraction.
        seed: Seed for the simulations.
    """
    fractions = np.array(_checks.simplex("claimed", claimed))
    counts = np.bincount(class_numbers(labels, len(fractions)), minlength=len(fractions)).astype(np.float64)
    return _check(FRACTIONS, (fractions, fractions), counts, uncertainty=_uncertainty(uncertainty), seed=seed)


def check_accuracy(claimed: float | tuple[float, float], correct: Array, *, uncertainty: float = 0.0) -> CheckResult:
    """Check whether the number of correct predictions contradicts a stated accuracy.

    The p-value is exact: twice the smaller tail of the binomial distribution.

    Args:
        claimed: The accuracy, or a pair of bounds, from 0 to 1.
        correct: Whether each prediction is correct, shape (B,).
        uncertainty: Tolerance of the accuracy, or of each bound.
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
    found = _check(
        ACCURACY,
        (np.array([low, 1 - high]), np.array([high, 1 - low])),
        np.array([count, len(answers) - count]),
        uncertainty=_uncertainty(uncertainty),
    )
    ends = None if found.claimed_to is None else found.claimed_to[:1]
    return replace(found, claimed=found.claimed[:1], observed=found.observed[:1], claimed_to=ends)


def check_likelihood(log_probs: Array, without: Array, labels: Array) -> CheckResult:
    r"""Check whether a network with the belief gives the labels less probability than one without it.

    The logarithm of the Bayes factor is the sum over examples of $d_i$, the log-probability of the label with the
    belief minus that without. The null hypothesis is that its expectation, over labels given the inputs, is not
    negative. Unlike a sign test, this counts the size of each difference, not only how many examples favour one
    network.

    The test is a bet against the network with the belief. $1 - \lambda d_i$ is not negative if $\lambda$ is at most
    $1 / \max_{i, k} \log (p_{ik} / p'_{ik})$, which depends only on the predictions. Under the null hypothesis, the
    product over independent examples has an expectation of at most $\exp(-\lambda \sum_i \mathrm{E} d_i) \le 1$, and so
    has its mean over several $\lambda$. By Markov's inequality, one over that mean is a p-value for every number of
    labels. It is 1 if the network without the belief excludes a class that the other does not.

    Args:
        log_probs: Log-probabilities with the belief, shape (B, K).
        without: Log-probabilities for the same inputs without the belief, shape (B, K).
        labels: Classes, shape (B,).
    """
    ours, theirs = log_probs_table(log_probs), log_probs_table(without)
    if ours.shape != theirs.shape:
        raise ValueError(
            f"`without` must have the shape of `log_probs`, {tuple(ours.shape)}, but got {tuple(theirs.shape)}"
        )
    classes = as_class_labels(labels, ours)[:, None]
    by_example = [rows.double().gather(1, classes).squeeze(1).numpy() for rows in (ours, theirs)]
    difference = by_example[0] - by_example[1]
    if not np.isfinite(difference).all():
        raise ValueError("`log_probs` and `without` must give every label some probability, but some have none")
    possible = (ours.double() - theirs.double()).nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    return CheckResult(
        about=LOG_LIKELIHOOD,
        claimed=(float(by_example[0].mean()),),
        observed=(float(by_example[1].mean()),),
        num_examples=len(difference),
        p_value=_p_value_of_bets(difference, most=float(possible.max())),
        log_bayes_factor=float(difference.sum()),
    )


def shortfall(result: CheckResult, labels: Array) -> str | None:
    """Message for a network whose accuracy is clearly below the stated one; None if it is not.

    The labels do not show whether the stated accuracy is too high or the network does not reach it. In both cases a
    network trained with that accuracy is overconfident.

    Args:
        result: Result of `check_belief` or `check_accuracy` on held-out examples.
        labels: Classes of these examples, shape (B,).
    """
    if result.about != ACCURACY or not result.contradicted or result.observed[0] >= result.claimed[0]:
        return None
    reached, total = result.observed[0], result.num_examples
    low, high = _interval(round(reached * total), total)
    ends = {result.claimed[0], (result.claimed_to or result.claimed)[0]}
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
    """Clopper-Pearson interval of a probability, at 95 %."""
    from scipy.special import betaincinv

    low = betaincinv(count, total - count + 1, 0.025) if count > 0 else 0.0
    high = betaincinv(count + 1, total - count, 0.975) if count < total else 1.0
    return float(low), float(high)


def _check(
    about: str, claimed: tuple[Floats, Floats], counts: Floats, *, uncertainty: float, seed: int = 0
) -> CheckResult:
    """Check counts against fractions that are claimed to lie between bounds, which may be equal."""
    low, high = np.maximum(claimed[0] - uncertainty, 0.0), np.minimum(claimed[1] + uncertainty, 1.0)
    total = counts.sum()
    ranges = bool((high - low >= EXACT).any())
    if len(counts) > 2 and not ranges:
        p_value, factor = _multinomial_p_value(low, counts, seed), float(_log_factor(low, counts))
    else:
        tested = range(len(counts)) if len(counts) > 2 else [0]  # for two classes, one test suffices
        p_values = [_binomial_p_value(low[k], high[k], counts[k], total) for k in tested]
        worst = int(np.argmin(p_values))
        p_value = min(1.0, len(p_values) * p_values[worst])
        factor = _mean_log_factor(low[worst], high[worst], np.array([counts[worst], total - counts[worst]]))
    return CheckResult(
        about=about,
        claimed=tuple(low.tolist()),
        observed=tuple((counts / total).tolist()),
        num_examples=int(total),
        p_value=p_value,
        log_bayes_factor=factor,
        claimed_to=tuple(high.tolist()) if ranges else None,
    )


def _binomial_p_value(low: float, high: float, count: float, total: float) -> float:
    """Twice the smaller tail of ``count`` successes, each tail at the bound of the probability that maximises it."""
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


def _shown(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}" for value in values)
