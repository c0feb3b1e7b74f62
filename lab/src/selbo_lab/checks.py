"""Validation of arguments: all errors name the argument, the expected and the given value."""

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final

SUM_TOLERANCE: Final = 1e-6
"""Tolerance for the sum of fractions typed by a user, which are then normalised."""


def positive(name: str, value: float) -> float:
    """A finite number above zero."""
    number = _number(name, value)
    if not (0 < number < math.inf):
        raise ValueError(f"`{name}` must be a finite number greater than 0, but got {value!r}")
    return number


def non_negative(name: str, value: float) -> float:
    """A finite number of at least zero."""
    number = _number(name, value)
    if not (0 <= number < math.inf):
        raise ValueError(f"`{name}` must be a finite number of at least 0, but got {value!r}")
    return number


def fraction(name: str, value: float, *, low: float, high: float) -> float:
    """A number strictly between two bounds."""
    number = _number(name, value)
    if not (low < number < high):
        raise ValueError(f"`{name}` must lie strictly between {low:g} and {high:g}, but got {value!r}")
    return number


def whole(name: str, value: int, *, at_least: int) -> int:
    """A whole number with a lower bound."""
    try:
        number = operator.index(value)
    except TypeError:
        number = at_least - 1
    if isinstance(value, bool) or number < at_least:
        raise ValueError(f"`{name}` must be a whole number of at least {at_least}, but got {value!r}")
    return number


def one_of(name: str, value: str, choices: Iterable[str]) -> str:
    """A choice by name."""
    known = sorted(choices)
    if value not in known:
        raise ValueError(f"`{name}` must be one of {known}, but got {value!r}")
    return value


def simplex(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """At least two positive numbers that sum to one (and are normalised exactly)."""
    numbers = tuple(_number(name, v) for v in values)
    if len(numbers) < 2:
        raise ValueError(f"`{name}` must hold at least 2 numbers, but got {len(numbers)}")
    if not all(0 < v < math.inf for v in numbers):
        raise ValueError(f"`{name}` must be positive, every one of them, but got {list(numbers)}")
    total = math.fsum(numbers)
    if abs(total - 1) > SUM_TOLERANCE:
        raise ValueError(f"`{name}` must sum to 1, but the sum of {list(numbers)} is {total:g}")
    return tuple(v / total for v in numbers)


def _number(name: str, value: Any) -> float:
    try:
        number = float("not a number" if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"`{name}` must be a number, but got {value!r}") from None
    if math.isnan(number):
        raise ValueError(f"`{name}` must be a number, but got NaN")
    return number
