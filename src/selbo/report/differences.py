"""Paired differences of two methods over seeds, with their 95 % intervals."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from selbo.report.comparison import mean_and_error

LEVEL: Final = 0.95
"""Confidence level of all intervals."""

SAME: Final = 1e-6
"""Smaller differences are rounding, such as those of a correction that changes nothing."""


class Difference(NamedTuple):
    """Difference between a method and the reference, over the seeds that have both.

    Attributes:
        mean: Mean difference; None if there is no pair.
        error: Its standard error (ddof 1); None for fewer than two pairs.
        low: Lower end of the 95 % interval, from Student's t.
        high: Upper end of the interval.
        pairs: Number of seeds that have both.
        seeds: Expected number of seeds.
    """

    mean: float | None
    error: float | None
    low: float | None
    high: float | None
    pairs: int
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether every seed has a pair and the interval excludes 0 by more than rounding."""
        if self.pairs < self.seeds or self.low is None or self.high is None:
            return False
        return self.low > SAME or self.high < -SAME


def compute_difference(differences: Sequence[float], *, seeds: int) -> Difference:
    """The mean of paired differences and its 95 % interval, from Student's t.

    Args:
        differences: One difference per seed that has both values.
        seeds: Expected number of seeds.

    Example:
        >>> compute_difference([-0.02, -0.03, -0.01], seeds=3)
        Difference(mean=-0.02, error=0.0058, low=-0.0448, high=0.0048, pairs=3, seeds=3)
    """
    pairs = len(differences)
    if not differences:
        return Difference(None, None, None, None, 0, seeds)
    mean, error = mean_and_error(differences)
    if error is None:
        return Difference(mean, None, None, None, pairs, seeds)
    return Difference(mean, error, *around(mean, t_quantile(pairs - 1) * error), pairs, seeds)


def t_quantile(freedom: int) -> float:
    """Half width of a 95 % interval, in standard errors, for the given degrees of freedom.

    Example:
        >>> t_quantile(4), t_quantile(1)
        (2.7764, 12.7062)
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + LEVEL / 2))


def around(middle: float, half: float) -> tuple[float, float]:
    """Both ends of an interval."""
    return middle - half, middle + half
