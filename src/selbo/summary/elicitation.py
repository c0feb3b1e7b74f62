"""Elicitation: build a belief about the predictions from the expected accuracy and the class fractions.

A calibrated classifier is correct with probability max_k p_k at each prediction, so its expected accuracy is
E max_k p_k; and it should predict each class as often as the class occurs, Eq. (14). If classes differ in frequency and
the task is hard, the two conditions are not exactly compatible: such a classifier predicts a rare class less often than
it occurs, and a belief with the stated frequency of predictions gives that class a larger mean probability
(`Claims.label_fractions` has the stated one, `describe` prints both).
"""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, Final, NamedTuple, overload

import numpy as np

from selbo import _checks
from selbo._numerics import FloatArray
from selbo.summary._dirichlet import (
    RARE,
    expected_accuracy,
    gamma_tables,
    largest_entry,
    log_gamma_cdf,
    log_integrand,
)
from selbo.summary._gauss_rule import gauss_rule
from selbo.summary.beliefs import Beta, Dirichlet

RESIDUAL: Final = 1e-8
"""Largest error of the fractions and the accuracy of the belief that `expect` returns."""

LOG_RATIO_BOUND: Final = 60.0
"""Search range of log(a / b) for a Beta; class fractions down to 1e-20."""

START: Final = 5.0
FIRST_STEP: Final = 1.0
SMALLEST_STEP: Final = 1e-3
"""Path of the Dirichlet solver, in log-odds of the accuracy on its range: start, first step and smallest step."""

MOST_NEWTON_STEPS: Final = 30
MOST_HALVINGS: Final = 4
LONGEST_STEP: Final = 5.0
NEWTON_ERROR: Final = 1e-11
DIFFERENCE: Final = 1e-3
"""Newton's method: limits on steps, halvings and step length, tolerance, and finite difference of a log-parameter."""

NODES: Final = (24, 48, 96)
INTERPOLATION_ERROR: Final = 1e-9
"""Numbers of nodes that represent more classes than that: the first whose relative errors of fractions are small enough
counts, else the last."""

LOG_FLOOR: Final = -37.0
"""Log of a fraction, 8.5e-17, below which parameters are proportional to fractions to the last digits."""

LARGEST_PARAMETER: Final = 2.5e7
"""Dirichlet parameters above this are not found: rounding errors of the accuracy exceed its distance from 1/K times
`RESIDUAL`. Accuracies down to 1/3 + 6e-5 for three classes and 1/10 + 3e-5 for ten."""

LOG_TOTAL_RANGE: Final = (math.log(1e-9), math.log(1e12))
"""Search range of the log sum of the parameters for a Beta; accuracies from 1/2 + 1e-6 to 1 - 1e-9."""


FRACTION_UNCERTAINTY: Final = 0.05
"""Default tolerance of stated class fractions of unlabelled rows, chosen together with their default concentration."""


def expect(
    accuracy: float, class_fractions: Sequence[float] | None = None, *, num_classes: int | None = None
) -> Beta | Dirichlet:
    r"""Build a belief from the achievable accuracy and the class fractions.

    For two classes it is the Beta distribution of the score with $P(\text{score} < 1/2)$ equal to the fraction of
    class 0, Eq. (14), and expected accuracy $E \max(s, 1 - s)$ equal to ``accuracy``, Eq. (9). For more classes it is
    the Dirichlet distribution whose argmax frequencies are the class fractions and for which $E \max_k p_k$ is
    ``accuracy``.

    Args:
        accuracy: Expected accuracy, strictly between 1/K and 1.
        class_fractions: Fraction of each class, positive, summing to one; equal fractions if not given.
        num_classes: K, if no fractions are given; 2 by default.

    Returns:
        A `Beta` (two classes) or a `Dirichlet` (more), accurate to 1e-8 in every stated number.

    Example:
        >>> expect(accuracy=0.95, class_fractions=[0.7, 0.3])
        Beta(0.0615255, 0.142041)
        >>> expect(accuracy=0.75, num_classes=2)
        Beta(1, 1)
    """
    fractions = _fractions(class_fractions, num_classes)
    reason = f", which is what {len(fractions)} classes can reach (1/K by guessing, 1 without any error)"
    _checks.fraction("accuracy", accuracy, low=1 / len(fractions), high=1.0, reason=reason)
    if len(fractions) == 2:
        return Beta(*_solve_beta(accuracy, *fractions), class_fractions=fractions)
    return Dirichlet(_solve_dirichlet(accuracy, np.array(fractions)).tolist(), class_fractions=fractions)


@overload
def elicit_concentration(
    margin: float | None = None, *, count: float | None = None, fraction: float = 0.5, level: float = 0.95
) -> float: ...


@overload
def elicit_concentration(
    margin: Sequence[float] | FloatArray | None = None,
    *,
    count: Sequence[float] | FloatArray | None = None,
    fraction: float | Sequence[float] | FloatArray = 0.5,
    level: float = 0.95,
) -> FloatArray: ...


def elicit_concentration(
    margin: float | Sequence[float] | FloatArray | None = None,
    *,
    count: float | Sequence[float] | FloatArray | None = None,
    fraction: float | Sequence[float] | FloatArray = 0.5,
    level: float = 0.95,
) -> float | FloatArray:
    r"""Concentration of a stated fraction, from its margin of error or from the number of cases behind it.

    A fraction $f$ with concentration $\alpha$ has a standard deviation of $\sqrt{f (1 - f) / (\alpha + 1)}$. "52 %,
    plus or minus 3 points" states 1.96 of them, a concentration of about 1060. Include all possible errors
    of a number: official results that differ from the vote of the people at hand by 6.7 points (one
    standard deviation) correspond to a concentration of about 50, for any number of voters.

    Args:
        margin: Half the width of the interval that holds the fraction with probability ``level``: .03 for 3 points.
        count: Number of cases in which the fraction was counted, instead of a margin, if these cases are a random
            sample. The concentration equals it.
        fraction: The stated fraction, strictly between 0 and 1; one half if not given, for which polls usually state
            their margin.
        level: Probability of the interval.

    Returns:
        The concentration; an array if an argument is one, with one entry per group.

    Example:
        >>> round(elicit_concentration(0.03, fraction=0.52))
        1064
        >>> elicit_concentration([0.03, 0.1], fraction=[0.52, 0.4]).round()
        array([1064.,   91.])
        >>> elicit_concentration(count=800)
        800.0
    """
    if (margin is None) == (count is None):
        came = "neither" if margin is None else "both"
        raise ValueError(f"`margin` or `count` must be given, and not both, but got {came}")
    if count is not None:
        found = _numbers("count", count, "800")
        for each in found.ravel():
            _checks.positive("count", float(each))
        return found if found.ndim else float(found)
    width, stated = np.broadcast_arrays(_numbers("margin", margin, ".03"), _numbers("fraction", fraction, ".52"))
    for one, other in zip(width.ravel(), stated.ravel(), strict=True):
        _checks.positive("margin", float(one))
        _checks.fraction("fraction", float(other), low=0.0, high=1.0)
    z = NormalDist().inv_cdf((1 + _checks.fraction("level", level, low=0.0, high=1.0)) / 2)
    strength = stated * (1 - stated) * (z / width) ** 2 - 1
    if bool((strength <= 0).any()):
        widest = float(np.asarray(width)[strength <= 0].max())
        hint = f": {widest:g} points are {widest / 100:g}" if 1 <= widest <= 100 else ""
        raise ValueError(f"`margin` must be smaller to be informative about the fraction, but got {widest:g}{hint}")
    return strength if strength.ndim else float(strength)


def _numbers(name: str, given: Any, example: str) -> FloatArray:
    """One number, or one per group."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"`{name}` must be a number such as {example}, or one per group, but got {given!r}") from None


def uncertainty_for(class_fractions: Sequence[float]) -> float:
    """Default tolerance of stated class fractions of unlabelled rows: .05, or half of the smallest fraction.

    Example:
        >>> uncertainty_for([0.5, 0.5]), uncertainty_for([0.98, 0.02])
        (0.05, 0.01)
    """
    return min(FRACTION_UNCERTAINTY, min(class_fractions) / 2)


def _fractions(class_fractions: Sequence[float] | None, num_classes: int | None) -> tuple[float, ...]:
    if class_fractions is None:
        count = _checks.whole("num_classes", 2 if num_classes is None else num_classes, at_least=2)
        return (1 / count,) * count
    fractions = _checks.simplex("class_fractions", class_fractions)
    if num_classes is not None and num_classes != len(fractions):
        raise ValueError(
            f"`num_classes` must be the number of `class_fractions`, {len(fractions)}, but got {num_classes}"
        )
    return fractions


def _solve_beta(accuracy: float, fraction_0: float, fraction_1: float) -> tuple[float, float]:
    """Beta(a, b) with F(1/2) = fraction_0, Eq. (14), and the expected accuracy.

    Solves two nested one-dimensional root problems, each of a monotone function: given a + b, the mean determines
    F(1/2); along the curve of the correct F(1/2), the accuracy falls as a + b grows. This needs no starting point and
    cannot diverge.
    """
    from scipy.special import betainc

    def with_total(log_total: float) -> tuple[float, float]:
        total = math.exp(log_total)

        def excess(log_ratio: float) -> float:
            a, b = total * _sigmoid(log_ratio), total * _sigmoid(-log_ratio)
            # compare the smaller side, so that a fraction of 1e-9 is resolved as well as one of 1/2
            return float(fraction_0 - betainc(a, b, 0.5) if fraction_0 < 0.5 else betainc(b, a, 0.5) - fraction_1)

        log_ratio = _root(excess, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        return total * _sigmoid(log_ratio), total * _sigmoid(-log_ratio)

    a, b = with_total(_root(lambda t: accuracy - expected_accuracy(*with_total(t)), *LOG_TOTAL_RANGE))
    _accept(accuracy, max(abs(expected_accuracy(a, b) - accuracy), abs(float(betainc(a, b, 0.5)) - fraction_0)))
    return a, b


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    if increasing(low) >= 0:
        return low
    if increasing(high) <= 0:
        return high
    return float(brentq(increasing, low, high, xtol=1e-14, rtol=1e-15, maxiter=500))


def _accept(accuracy: float, residual: float) -> None:
    if not residual <= RESIDUAL:
        raise ValueError(
            f"`accuracy` of {accuracy!r} is so close to the end of its range that no belief could be found for it "
            f"to {RESIDUAL:g}: move it inwards"
        )


class _Stated(NamedTuple):
    """Class fractions, and the number of classes with each; of representatives, it need not be whole."""

    fractions: FloatArray
    counts: FloatArray

    @property
    def num_classes(self) -> int:
        """K, the number of classes that are represented."""
        return round(float(self.counts.sum()))


def _solve_dirichlet(accuracy: float, fractions: FloatArray) -> FloatArray:
    """Dirichlet parameters with the given argmax frequencies and expected accuracy.

    All classes meet the same largest Gamma variable, whose distribution function is the product over all classes, so
    their log-parameters are one smooth function of the log-fractions. It is found at a few nodes of the log-fractions,
    whose weights turn the product over nodes into that over classes, and interpolated. The probabilities of all classes
    are then computed without nodes, and tell whether there were enough.
    """
    if _least_parameter(accuracy, len(fractions)) > LARGEST_PARAMETER:
        _accept(accuracy, math.inf)
    different, place, counts = np.unique(fractions, return_inverse=True, return_counts=True)  # of equal classes, one
    points = np.maximum(np.log(different), LOG_FLOOR)
    a, residual = fractions, math.inf
    for size in NODES:
        rule = gauss_rule(points, counts.astype(np.float64), size)
        log_nodes = _follow_path(accuracy, _Stated(np.exp(rule.nodes), rule.weights))
        if log_nodes is not None:
            a = np.exp(rule.interpolation @ log_nodes + np.log(different) - points)[place]
            entry = largest_entry(a)
            residual = float(max(abs(entry.expected - accuracy), np.abs(entry.probabilities - fractions).max()))
            relative = np.abs(entry.probabilities - fractions) / np.maximum(fractions, RARE)
            if relative.max() < INTERPOLATION_ERROR:
                break
        if len(different) <= size:
            break
    _accept(accuracy, residual)
    return a


def _follow_path(accuracy: float, stated: _Stated) -> FloatArray | None:
    """Logarithms of the parameters, by Newton's method continued along a path; None if it does not get there.

    As the accuracy approaches one, the parameters become proportional to the fractions. The path starts near there and
    lowers the accuracy in steps of its log-odds.
    """
    fractions, counts, num_classes = *stated, stated.num_classes
    goal = _coordinate(accuracy, num_classes)
    position = max(goal, START)
    # for small parameters 1 - E max p = A log 2 P(two sampled classes differ), A their sum
    rest = (1 - 1 / num_classes) * _sigmoid(-position)
    guess = np.log(fractions * rest / (math.log(2) * (1 - counts @ fractions**2)))
    log_a, slope, step = _newton(guess, position, stated), np.zeros(len(fractions)), FIRST_STEP
    while log_a is not None and position > goal and step > SMALLEST_STEP:
        ahead = max(goal, position - step)
        trial = _newton(log_a + slope * (ahead - position), ahead, stated)
        if trial is None:
            step /= 2
        else:
            slope, step = (trial - log_a) / (ahead - position), 2 * step
            log_a, position = trial, ahead
    return None if position > goal else log_a


def _least_parameter(accuracy: float, num_classes: int) -> float:
    """Mean of the parameters that an accuracy near 1/K needs at least, which it does with equal fractions.

    K large and equal parameters a give E max p = 1/K + e / (K sqrt(a)), with e the expected largest of K standard
    normal variables, here by Blom's approximation.
    """
    from scipy.special import ndtri

    largest = ndtri((num_classes - 0.375) / (num_classes + 0.25))
    return float((largest / (num_classes * max(accuracy - 1 / num_classes, 1e-150))) ** 2)


def _coordinate(accuracy: float, num_classes: int) -> float:
    """Log-odds of the accuracy on its own range, from 1/K to 1."""
    return math.log(max(accuracy - 1 / num_classes, 1e-300) / max(1 - accuracy, 1e-300))


def _newton(log_a: FloatArray, position: float, stated: _Stated) -> FloatArray | None:
    """The solution near a starting point, or None if the steps stop improving before it is reached."""
    error, jacobian = _errors(log_a, position, stated)
    for _ in range(MOST_NEWTON_STEPS):
        if np.abs(error).max() < NEWTON_ERROR:
            return log_a
        step = np.clip(np.linalg.lstsq(jacobian, -error, rcond=None)[0], -LONGEST_STEP, LONGEST_STEP)
        for _ in range(MOST_HALVINGS):
            trial_error, trial_jacobian = _errors(log_a + step, position, stated)
            if np.linalg.norm(trial_error) < np.linalg.norm(error):
                break
            step /= 2
        else:
            return log_a if np.abs(error).max() < RESIDUAL else None
        log_a, error, jacobian = np.asarray(log_a + step), trial_error, trial_jacobian
    return None


def _errors(log_a: FloatArray, position: float, stated: _Stated) -> tuple[FloatArray, FloatArray]:
    """Errors of log-frequencies and of the coordinate of the accuracy, (M + 1,), and their derivative by log a (M,)."""
    from scipy.special import digamma

    a, counts = np.exp(log_a), stated.counts
    total = a @ counts
    share = a / total
    tables = gamma_tables(a, counts)
    integrand = np.exp(log_integrand(tables))  # (n, M), of one class each
    tail = np.exp(tables.log_tail) * share
    probabilities = integrand.sum(0) + tail
    expected = np.exp(tables.nodes) @ (integrand @ counts) / total

    change = DIFFERENCE / np.sqrt(1 + a)
    d_log_cdf = (
        log_gamma_cdf(a * np.exp(change), tables.nodes[:, None])
        - log_gamma_cdf(a * np.exp(-change), tables.nodes[:, None])
    ) / (2 * change)
    d_log_density = a * (tables.nodes[:, None] - digamma(a))
    own = integrand * (d_log_density - d_log_cdf)
    d_probabilities = integrand.T @ (counts * d_log_cdf) + np.diag(own.sum(0))
    d_log_tail = counts * (a * (tables.low - digamma(a + 1)) - share)
    d_probabilities += tail[:, None] * d_log_tail + np.diag(tail)
    d_sum = np.exp(tables.nodes) @ (counts * ((integrand @ counts)[:, None] * d_log_cdf + own))
    d_expected = d_sum / total - expected * share * counts

    slope = 1 / (expected - 1 / stated.num_classes) + 1 / (1 - expected)
    with np.errstate(divide="ignore"):  # after too long a step, log 0 makes the error infinite, and the step is halved
        error = np.append(
            np.log(probabilities / stated.fractions), _coordinate(float(expected), stated.num_classes) - position
        )
    return error, np.vstack([d_probabilities / probabilities[:, None], slope * d_expected])
