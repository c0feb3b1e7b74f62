"""Numerical constants that keep computations finite, and functions shared by all layers."""

import math
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo._compile import ConvertingModule, in_function_transform

FloatArray = NDArray[np.float64]

LOG_PROB_FLOOR: Final = -1e4
"""Log-probabilities are clamped to this value, so that log 0 = -inf becomes finite. exp(-1e4) is 0 in every
floating-point format, so no probability changes. Only the gradient of an entry below the floor is cut, which was 0."""

DIRICHLET_FLOOR: Final = 1e-30
"""Smallest parameter of a Dirichlet distribution. An empty region would have log-density -inf; with the floor it costs
69 nats. The slope there is at most 1e30 times the concentration, which fits in float32 for 1e6."""

MULTINOMIAL_FLOOR: Final = 1e-30
"""Smallest region mass inside a logarithm, for the same reason."""

LOG_HALF: Final = -math.log(2.0)
HALF_LOG_2PI: Final = 0.5 * math.log(2.0 * math.pi)

STIRLING_FROM: Final = 1000.0
"""Smallest argument for which Stirling's series replaces log-gamma: its third term is below 1e-18 there, and log-gamma,
of the order of 1e4, is still exact to 1e-12."""

CONSTANT: Final = 1e-12
"""A standard deviation smaller than this, relative to the largest value, counts as rounding error."""


def log_gamma_deficit(x: Tensor) -> Tensor:
    """The function x log x - x - log Gamma(x), for x > 0: the remainder when large terms of log-gamma cancel.

    For a concentration of 1e6, log Gamma(x) is of the order of 1e7. Where x log x - x cancels analytically, this
    remains, at full precision: log(x / 2 pi) / 2 for large x, log x for small x.
    """
    log_x = x.log()
    # log Gamma(x) is computed as log Gamma(x + 1) - log x, which is precise near the pole at 0
    direct = (x + 1) * log_x - x - torch.lgamma(x + 1)
    inverse = 1 / x.clamp(min=STIRLING_FROM)
    series = 0.5 * log_x - HALF_LOG_2PI - inverse * (1 / 12 - inverse * inverse / 360)
    return torch.where(x < STIRLING_FROM, direct, series)


def working_dtype(tensor: Tensor) -> torch.dtype:
    """Type in which region masses and log-densities are computed: float64 if the device supports it.

    Log-gamma functions of a concentration of 1e6 are of the order of 1e7 and cancel to a few nats: float32 would be
    wrong by a whole nat. The tensors are tiny (one number per region), so the cost of float64 is negligible.
    """
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def result_dtype(tensor: Tensor) -> torch.dtype:
    """Type of results computed from ``tensor``: its own, or float32 if wider (bf16 has steps of 16 at 3000 nats)."""
    return torch.promote_types(tensor.dtype, torch.float32)


def values_can_be_read(tensor: Tensor) -> bool:
    """Whether Python can read the values of a tensor: not in compiled code, under `vmap`, or in a CUDA graph."""
    if torch.compiler.is_compiling() or in_function_transform():
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


class _Widen(torch.autograd.Function):
    """Cast to a wider type; the backward pass clamps gradients to the range of the narrow type."""

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
    """Cast to a type at least as wide, with finite gradients in the backward pass.

    The largest float16 is 65504, which the gradient of a log-density by a nearly empty region exceeds.
    """
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return cast(Tensor, _Widen.apply(tensor, dtype))  # type: ignore[no-untyped-call]
    return tensor.to(dtype)


class PreciseModule(ConvertingModule):
    """A module whose buffers move between devices but never lose precision.

    ``model.half()`` or ``model.to(torch.bfloat16)`` on a network that contains such a module leaves the region edges
    and s0 in float64; on a device without float64 they are float32.
    """

    def conversion(self, function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """A function that moves tensors as ``function`` does, but keeps their type."""
        return function if isinstance(function, _KeepPrecision) else _KeepPrecision(function)


class _KeepPrecision:
    """Moves a tensor as a function would, but keeps its type."""

    def __init__(self, fn: Callable[[Tensor], Tensor]) -> None:
        self.fn = fn

    def __call__(self, tensor: Tensor) -> Tensor:
        try:
            moved = self.fn(tensor)
        except TypeError:  # the device has no float64
            return self.fn(tensor.float())
        return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)


def mean_and_std(values: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> tuple[float, float] | None:
    """Mean and standard deviation for standardising a column, or None if the column is constant.

    Args:
        values: The column, shape (rows,).
        weights: Weight per row, shape (rows,); equal weights if not given.
    """
    largest = float(np.abs(values).max())
    if largest == 0:
        return None
    scaled = values / largest  # squares of large numbers overflow
    mean = float(np.average(scaled, weights=weights))
    std = float(np.sqrt(np.average(np.square(scaled - mean), weights=weights)))
    return None if std < CONSTANT else (largest * mean, largest * std)
