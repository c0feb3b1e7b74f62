"""Argument checks with uniform error messages: the argument, the expected value, the given value."""

import itertools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

ROW_SUM_TOLERANCE: Final = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Tolerance of the sum of a row of probabilities: rounding of log-softmax in each type, with a margin."""

MASS_SUM_TOLERANCE: Final = 1e-6
"""Tolerance of the sum of masses that a user states; within it they are normalised, beyond it is an error."""


def finite(name: str, value: float) -> float:
    """A finite number."""
    number = _number(name, value)
    if math.isinf(number):
        raise ValueError(f"`{name}` must be a finite number, but got {value!r}")
    return number


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


def fraction(name: str, value: float, *, low: float, high: float, reason: str = "") -> float:
    """A number strictly between two bounds."""
    number = _number(name, value)
    if not (low < number < high):
        hint = f": {number:g} % is {number / 100:g}" if high <= 1 < number <= 100 else ""
        raise ValueError(f"`{name}` must lie strictly between {low:g} and {high:g}{reason}, but got {value!r}{hint}")
    return number


def uncertainty(name: str, value: float) -> float:
    """A tolerance of a fraction, from 0 to below 1."""
    if not 0 <= non_negative(name, value) < 1:
        raise ValueError(f"`{name}` must be a number from 0 to below 1, but got {value!r}")
    return value


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


def unsharded(name: str, tensors: Iterable[Tensor], remedy: str) -> None:
    """Tensors that this process holds as a whole, not a shard of them as after `fully_shard`."""
    if any(hasattr(each, "full_tensor") for each in tensors):
        raise ValueError(f"`{name}` must not be sharded here, as by `fully_shard`: {remedy}")


def increasing(name: str, values: Sequence[float], *, low: float, high: float, reason: str = "") -> tuple[float, ...]:
    """At least one number, strictly increasing, strictly inside an interval, for a reason that may be named."""
    numbers = tuple(_number(name, v) for v in values)
    if not numbers:
        raise ValueError(f"`{name}` must hold at least one number, but got none")
    if not all(low < v < high for v in numbers):
        raise ValueError(f"`{name}` must lie strictly between {low:g} and {high:g}{reason}, but got {list(numbers)}")
    if any(b <= a for a, b in itertools.pairwise(numbers)):
        raise ValueError(f"`{name}` must be strictly increasing, but got {list(numbers)}")
    return numbers


def simplex(name: str, values: Sequence[float], *, at_least: int = 2) -> tuple[float, ...]:
    """Positive numbers that sum to one, normalised exactly."""
    numbers = tuple(_number(name, v) for v in values)
    if len(numbers) < at_least:
        raise ValueError(f"`{name}` must hold at least {at_least} numbers, but got {len(numbers)}")
    if not all(0 < v < math.inf for v in numbers):
        raise ValueError(f"`{name}` must be positive, every one of them, but got {list(numbers)}")
    total = math.fsum(numbers)
    if abs(total - 1) > MASS_SUM_TOLERANCE:
        raise ValueError(f"`{name}` must sum to 1, but the sum of {list(numbers)} is {total:g}")
    return tuple(v / total for v in numbers)


def floating(name: str, tensor: Tensor) -> Tensor:
    """A tensor of a floating-point type."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        came = f"dtype {tensor.dtype}" if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f"`{name}` must be a floating-point tensor, but got {came}")
    return tensor


def log_probs(tensor: Tensor, *, num_classes: int, validate: bool, name: str = "log_probs") -> Tensor:
    """Log-probabilities of shape (..., B, K).

    Type and shape are always checked. Values are checked only with ``validate``, because this synchronises with the
    device.
    """
    floating(name, tensor)
    if tensor.ndim < 2:
        raise ValueError(f"`{name}` must have shape (..., batch, classes), but got {tuple(tensor.shape)}")
    if tensor.shape[-1] != num_classes:
        raise ValueError(
            f"`{name}` must have {num_classes} classes in its last dimension, as the partition has, "
            f"but got shape {tuple(tensor.shape)}"
        )
    if 0 in tensor.shape:
        raise ValueError(f"`{name}` must not be an empty batch, but got shape {tuple(tensor.shape)}")
    if validate:
        _log_prob_values(name, tensor)
    return tensor


def _log_prob_values(name: str, tensor: Tensor) -> None:
    values = tensor.detach()
    if torch.isnan(values).any():
        count = int(torch.isnan(values).sum())
        raise ValueError(f"`{name}` must hold numbers, but got {count} NaN")
    tolerance = ROW_SUM_TOLERANCE[values.dtype]
    if (values > tolerance).any():
        if bool((values >= 0).all()) and (values.double().sum(-1) - 1).abs().max().item() <= tolerance:
            raise ValueError(f"`{name}` must be logarithms of probabilities, but got probabilities: pass `probs.log()`")
        raise ValueError(
            f"`{name}` must be logarithms of probabilities, at most 0, but the largest is {values.max().item():.4g}; "
            "if these are logits, pass `logits.log_softmax(-1)`"
        )
    worst = (values.double().exp().sum(-1) - 1).abs().max().item()
    if worst > tolerance:
        raise ValueError(
            f"`{name}` must lie on the simplex: the probabilities of a row differ from a sum of 1 by up to {worst:.2g}"
        )


def _number(name: str, value: Any) -> float:
    try:
        number = float("not a number" if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"`{name}` must be a number, but got {value!r}") from None
    if math.isnan(number):
        raise ValueError(f"`{name}` must be a number, but got NaN")
    return number


def on_simplex(name: str, masses: Tensor, *, strictly_positive: bool = False) -> None:
    """Masses that are not negative (or all positive) and sum to one; synchronises with the device."""
    values = masses.detach().double()
    if torch.isnan(values).any():
        raise ValueError(f"`{name}` must hold numbers, but got {int(torch.isnan(values).sum())} NaN")
    lowest = values.min().item()
    if lowest < 0 or (strictly_positive and lowest == 0):
        bound = "positive" if strictly_positive else "at least 0"
        raise ValueError(f"`{name}` must be {bound} everywhere, but the smallest mass is {lowest:.4g}")
    worst = (values.sum(-1) - 1).abs().max().item()
    if worst > ROW_SUM_TOLERANCE[masses.dtype]:
        raise ValueError(f"`{name}` must lie on the simplex: the masses differ from a sum of 1 by up to {worst:.2g}")
