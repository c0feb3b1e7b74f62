"""Numbers that keep the arithmetic finite, each with its reason, and the few functions that every layer shares."""

import math
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo._compile import ConvertingModule, in_function_transform

LOG_PROB_FLOOR: Final = -1e4
"""Log-probabilities are clamped here, so that log 0 = -inf becomes a number. exp(-1e4) is 0 in every floating-point
format, so no probability changes; only the gradient of an entry below the floor is cut, and it was 0 already."""

DIRICHLET_FLOOR: Final = 1e-30
"""Smallest parameter of a Dirichlet distribution. An empty region would have log-density -inf; with the floor it costs
69 nats. The slope there is at most 1e30 times the concentration, which float32 still holds for 1e6."""

MULTINOMIAL_FLOOR: Final = 1e-30
"""Smallest region mass inside a logarithm, for the same reason."""

LOG_HALF: Final = -math.log(2.0)
HALF_LOG_2PI: Final = 0.5 * math.log(2.0 * math.pi)

STIRLING_FROM: Final = 1000.0
"""Where Stirling's series takes over from log-gamma: its third term is below 1e-18 there, and log-gamma, of the order
of 1e4, is still exact to 1e-12."""

CONSTANT: Final = 1e-12
"""A standard deviation that is smaller, relative to the largest value, is rounding."""


def log_gamma_deficit(x: Tensor) -> Tensor:
    """The number x log x - x - log Gamma(x), for x > 0: what is left of log-gamma functions whose large terms cancel.

    For a concentration of 1e6 log Gamma(x) is of the order of 1e7; where x log x - x cancels on paper, this remains, at
    full precision: log(x / 2 pi) / 2 for large x, log x for small x.
    """
    log_x = x.log()
    # log Gamma(x) as log Gamma(x + 1) - log x: the second form knows the pole at 0 and keeps its digits there
    direct = (x + 1) * log_x - x - torch.lgamma(x + 1)
    inverse = 1 / x.clamp(min=STIRLING_FROM)
    series = 0.5 * log_x - HALF_LOG_2PI - inverse * (1 / 12 - inverse * inverse / 360)
    return torch.where(x < STIRLING_FROM, direct, series)


def working_dtype(tensor: Tensor) -> torch.dtype:
    """Type in which region masses and log-densities are computed: float64 where the device has it.

    Log-gamma functions of a concentration of 1e6 are of the order of 1e7 and cancel to a few nats: float32 would be
    wrong by a whole nat. The tensors are tiny (one number a region), so float64 costs nothing that can be measured.
    """
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def result_dtype(tensor: Tensor) -> torch.dtype:
    """Type of what is made from ``tensor``: its own, but at least float32 (bf16 has steps of 16 at 3000 nats)."""
    return torch.promote_types(tensor.dtype, torch.float32)


def values_can_be_read(tensor: Tensor) -> bool:
    """Whether Python may look at the values of a tensor: not in compiled code, under `vmap`, or in a CUDA graph."""
    if torch.compiler.is_compiling() or in_function_transform():
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


class _Widen(torch.autograd.Function):
    """Cast to a wider type; on the way back, a gradient too large for the narrow type becomes its largest number."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        return tensor.to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.dtype], output: Tensor) -> None:
        ctx.narrow = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        limit = torch.finfo(ctx.narrow).max
        return gradients[0].clamp(-limit, limit).to(ctx.narrow), None


def widen(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast to a type at least as wide, so that gradients come back finite.

    float16 ends at 65504, which the gradient of a log-density by a nearly empty region exceeds.
    """
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return cast(Tensor, _Widen.apply(tensor, dtype))  # type: ignore[no-untyped-call]
    return tensor.to(dtype)


class PreciseModule(ConvertingModule):
    """A module whose buffers follow it between devices but never lose precision.

    ``model.half()`` or ``model.to(torch.bfloat16)`` on a network that holds such a module leaves the region edges
    and s0 in float64; a device without float64 gets float32.
    """

    def conversion(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """Moves tensors as ``function`` does, but keeps their type."""
        return function if isinstance(function, _KeepPrecision) else _KeepPrecision(function)


class _KeepPrecision:
    """Moves a tensor as a function would, but leaves its type alone."""

    def __init__(self, fn: Callable[[Tensor], Tensor]) -> None:
        self.fn = fn

    def __call__(self, tensor: Tensor) -> Tensor:
        try:
            moved = self.fn(tensor)
        except TypeError:  # the device has no float64
            return self.fn(tensor.float())
        return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)


def mean_and_std(values: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> tuple[float, float] | None:
    """Mean and standard deviation to standardise a column with, or None if it has one value only.

    Args:
        values: The column, shape (rows,).
        weights: How many times each row counts, shape (rows,); once if not given.
    """
    largest = float(np.abs(values).max())
    if largest == 0:
        return None
    scaled = values / largest  # squares of large numbers are no numbers
    mean = float(np.average(scaled, weights=weights))
    std = float(np.sqrt(np.average(np.square(scaled - mean), weights=weights)))
    return None if std < CONSTANT else (largest * mean, largest * std)
