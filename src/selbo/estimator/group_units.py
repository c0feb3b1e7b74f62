"""Whether the numbers that state a group are fractions, percentages or counts; most groups decide."""

import numpy as np
from numpy.typing import NDArray

from selbo._numerics import FloatArray
from selbo.summary.grouped import FRACTION_SUM_TOLERANCE


def find_unit(values: FloatArray) -> float:
    """What 100 % is in shares of shape (groups, classes): 1 for fractions, 100 for percentages, 0 for counts.

    Most rows decide: a row with another sum is a mistake, and whole numbers that sum to 1 in some rows are counts.
    """
    sums = values.sum(1)
    off = sums_off(sums, 1)
    if not off.any() or (off.mean() <= 0.5 and not are_whole(values)):
        return 1.0
    return 100.0 if sums_off(sums, 100).mean() <= 0.5 else 0.0


def are_whole(values: FloatArray) -> bool:
    """Whether all numbers are whole, as counts are."""
    return bool((values == np.floor(values)).all())


def sums_off(sums: FloatArray, unit: float, tolerance: float = FRACTION_SUM_TOLERANCE) -> NDArray[np.bool_]:
    """Which sums differ from the unit by more than rounding does."""
    return np.asarray(abs(sums / unit - 1) > tolerance)
