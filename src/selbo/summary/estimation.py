r"""Beliefs estimated from data: class fractions from posterior samples, the accuracy from a few labels.

An estimate has an uncertainty, and a belief has a concentration. Both are the same: fractions that are distributed as
$\mathrm{Dir}(\alpha m)$ have the mean $m$ and are known as well as from $\alpha$ observations.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from selbo import _checks
from selbo._numerics import FloatArray
from selbo.summary.beliefs import Masses

SAMPLE_SUM_TOLERANCE: Final = 1e-3
"""Difference from 1 that rounding may give the sum of a sample of fractions; within it they are normalised."""

CONCENTRATION_RANGE: Final = (1e-6, 1e9)
"""Range of concentrations that are sought; beyond it, samples differ by less than rounding allows to measure."""

JEFFREYS: Final = 0.5
"""Pseudo-count of right and of wrong answers: the Jeffreys prior of a share."""


@dataclass(frozen=True)
class EstimatedBelief:
    """A belief estimated from data: an accuracy, class fractions or both, and their concentration.

    Pass it to `selbo.calibrate_to_belief`, or its numbers wherever they can be stated: ``accuracy`` and
    ``class_fractions`` to `selbo.expect`, ``masses()`` and ``concentration`` to a `selbo.SummaryLikelihood` of
    `selbo.ClassRegions`.

    Attributes:
        concentration: Number of observations behind the numbers.
        accuracy: Share of right answers; None if nothing is known about it.
        class_fractions: Fraction of each class; None if nothing is known about them.
        accuracy_interval: Interval that holds the accuracy with the probability ``level``.
        fraction_intervals: Such an interval for each class.
        level: Probability of each interval.
    """

    concentration: float
    accuracy: float | None = None
    class_fractions: tuple[float, ...] | None = None
    accuracy_interval: tuple[float, float] | None = None
    fraction_intervals: tuple[tuple[float, float], ...] | None = None
    level: float = 0.95

    def masses(self) -> Masses:
        """The class fractions as masses, for `selbo.ClassRegions`.

        Raises:
            ValueError: If there are none.
        """
        if self.class_fractions is None:
            raise ValueError("`class_fractions` must be known for masses, but this belief has none")
        return Masses(self.class_fractions)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, for `from_dict` and for ``selbo monitor --belief``."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "EstimatedBelief":
        """The belief that `to_dict` described.

        Raises:
            ValueError: If a number is missing or invalid.
        """
        accuracy, fractions = data.get("accuracy"), data.get("class_fractions")
        interval, intervals = data.get("accuracy_interval"), data.get("fraction_intervals")
        return cls(
            concentration=_checks.positive("concentration", data.get("concentration", math.nan)),
            accuracy=None if accuracy is None else _checks.fraction("accuracy", accuracy, low=0.0, high=1.0),
            class_fractions=None if fractions is None else _checks.simplex("class_fractions", fractions),
            accuracy_interval=None if interval is None else _ends("accuracy_interval", interval),
            fraction_intervals=None
            if intervals is None
            else tuple(_ends("fraction_intervals", each) for each in intervals),
            level=_checks.fraction("level", data.get("level", 0.95), low=0.0, high=1.0),
        )


def belief_from_samples(fractions: ArrayLike, *, level: float = 0.95) -> EstimatedBelief:
    r"""Turn posterior samples of class fractions into class fractions and a concentration.

    Samples come from a Bayesian quantifier, from MCMC, or from a bootstrap. The class fractions are the mean $m$ of the
    samples, the best guess under squared error. The concentration is the $\alpha$ under which $\mathrm{Dir}(\alpha m)$
    makes the samples most likely: the number of observations that would leave as much doubt. It solves

    $$\psi(\alpha) - \sum_k m_k \psi(\alpha m_k) + \sum_k m_k \overline{\log p_k} = 0,$$

    which has exactly one solution unless all samples are equal. One number cannot express that some classes are known
    better than others; it is then a compromise, and the intervals, which are those of the samples, show it.

    Args:
        fractions: Samples, shape (S, K), rows on the simplex. A zero counts as half of the smallest positive fraction
            of its class, because no Dirichlet distribution has zeros.
        level: Probability of the intervals.

    Returns:
        Class fractions, their intervals and the concentration.

    Raises:
        ValueError: If there are fewer than two samples, they do not differ, or a class has no positive fraction.

    Example:
        >>> samples = np.random.default_rng(0).dirichlet([60.0, 30.0, 10.0], size=4000)
        >>> found = belief_from_samples(samples)
        >>> [round(each, 2) for each in found.class_fractions], round(found.concentration)
        ([0.6, 0.3, 0.1], 101)
    """
    samples = _samples(fractions)
    chance = _checks.fraction("level", level, low=0.0, high=1.0)
    mean = samples.mean(0)
    ends = np.quantile(samples, [(1 - chance) / 2, (1 + chance) / 2], axis=0, method="weibull")  # fair for few samples
    return EstimatedBelief(
        concentration=_concentration(samples, mean / mean.sum()),
        class_fractions=tuple((mean / mean.sum()).tolist()),
        fraction_intervals=tuple((low, high) for low, high in ends.T.tolist()),
        level=chance,
    )


def belief_from_labels(num_correct: int, num_labels: int, *, level: float = 0.95) -> EstimatedBelief:
    """Turn a few labels into an accuracy with a concentration.

    If 41 of 50 answers that were checked are right, the accuracy has the posterior Beta(41.5, 9.5), under the Jeffreys
    prior. Its mean is the accuracy, and the sum of its parameters the concentration: 51, the 50 labels and the prior.
    The cases must be a random sample of those that the belief is about.

    Args:
        num_correct: Number of right answers.
        num_labels: Number of answers that were checked.
        level: Probability of the interval, which is the central one of the posterior.

    Returns:
        Accuracy, its interval and the concentration.

    Example:
        >>> found = belief_from_labels(41, 50)
        >>> found.accuracy, found.concentration, found.accuracy_interval
        (0.8137, 51.0, (0.6972, 0.9070))
    """
    from scipy.special import betaincinv

    total = _checks.whole("num_labels", num_labels, at_least=1)
    right = _checks.whole("num_correct", num_correct, at_least=0)
    if right > total:
        raise ValueError(f"`num_correct` must be at most `num_labels`, {total}, but got {right}")
    chance = _checks.fraction("level", level, low=0.0, high=1.0)
    a, b = right + JEFFREYS, total - right + JEFFREYS
    low, high = (float(betaincinv(a, b, each)) for each in ((1 - chance) / 2, (1 + chance) / 2))
    return EstimatedBelief(concentration=a + b, accuracy=a / (a + b), accuracy_interval=(low, high), level=chance)


def _samples(fractions: ArrayLike) -> FloatArray:
    """Checked samples without zeros, shape (S, K)."""
    try:
        samples = np.array(fractions, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("`fractions` must be numbers of shape (samples, classes), but are not") from None
    if samples.ndim != 2 or samples.shape[0] < 2 or samples.shape[1] < 2:
        raise ValueError(
            "`fractions` must have shape (samples, classes), at least two of each, but got "
            f"{tuple(int(each) for each in samples.shape)}"
        )
    if not bool((np.isfinite(samples) & (samples >= 0)).all()):
        raise ValueError("`fractions` must be finite numbers of at least 0, but some are not")
    worst = float(abs(samples.sum(1) - 1).max())
    if worst > SAMPLE_SUM_TOLERANCE:
        raise ValueError(f"`fractions` must sum to 1 in every sample, but a sum differs by {worst:.2g}")
    if not bool((samples > 0).any(0).all()):
        missing = int((samples > 0).any(0).argmin())
        raise ValueError(f"`fractions` must be positive in some sample, but class {missing} is 0 in all of them")
    smallest = np.where(samples > 0, samples, np.inf).min(0)
    samples = np.where(samples > 0, samples, smallest / 2)
    return np.asarray(samples / samples.sum(1, keepdims=True))


def _concentration(samples: FloatArray, mean: FloatArray) -> float:
    """Concentration of greatest likelihood, given the mean."""
    from scipy.optimize import brentq
    from scipy.special import digamma

    surprise = float(mean @ np.log(samples).mean(0))

    def slope(log_alpha: float) -> float:
        alpha = math.exp(log_alpha)
        return float(digamma(alpha) - mean @ digamma(alpha * mean)) + surprise

    low, high = (math.log(each) for each in CONCENTRATION_RANGE)
    if slope(high) >= 0:
        raise ValueError("`fractions` must differ between samples to estimate their precision, but are nearly equal")
    return math.exp(brentq(slope, low, high, xtol=1e-12))


def _ends(name: str, values: Any) -> tuple[float, float]:
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != 2:
        raise ValueError(f"`{name}` must be two numbers, but got {values!r}")
    low, high = (_checks.finite(name, each) for each in values)
    return low, high
