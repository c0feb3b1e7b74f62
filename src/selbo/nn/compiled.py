"""Compiled functions that take the network as an argument, so all networks of an architecture share compiled code."""

from collections.abc import Callable
from typing import Final, TypeVar

import torch
from torch import Tensor

from selbo._compile import keep_compiled_versions

BACKEND: Final = "inductor"

MOST_VERSIONS: Final = 128
"""Number of versions of a compiled function that a process keeps. A version is valid for one architecture, one shape,
and one value of each number that the function reads, such as a weight of the KL; a study has dozens. Beyond torch's own
limit of 8, a function would run uncompiled, with only a line in the log."""

Result = TypeVar("Result")


def compile_function(
    function: Callable[..., Result], *, backend: str | Callable[..., object] = BACKEND
) -> Callable[..., Result]:
    """Compile a function on its first call with each combination of shapes."""
    quick = torch.compile(function, dynamic=False, backend=backend)

    def call(*args: object) -> Result:
        with keep_compiled_versions(MOST_VERSIONS):
            return quick(*args)

    return call


def channels_last(inputs: Tensor) -> Tensor:
    """Convert images to channels-last, the fastest memory format for convolutions on CUDA."""
    if inputs.ndim != 4:
        return inputs
    _, channels, height, width = inputs.shape
    if channels == 1:  # both formats are valid; the strides select the one that layers preserve
        return inputs.contiguous().as_strided(inputs.shape, (height * width, 1, width, 1))
    return inputs.contiguous(memory_format=torch.channels_last)
