"""Compiled functions that take the network as an argument: one piece of code serves all networks of an architecture."""

from collections.abc import Callable
from typing import Final, TypeVar

import torch
from torch import Tensor

from selbo._compile import keep_compiled_versions

BACKEND: Final = "inductor"

MOST_VERSIONS: Final = 128
"""Versions of a compiled function that a process keeps. A version is good for one architecture, one shape, and one
value of each number that the function reads, such as a weight of the KL; a study has dozens. Past torch's own limit, 8,
a function runs uncompiled, and only the log says so."""

Result = TypeVar("Result")


def compile_function(
    function: Callable[..., Result], *, backend: str | Callable[..., object] = BACKEND
) -> Callable[..., Result]:
    """A function that is compiled for the very shapes it is called with, when it is called."""
    quick = torch.compile(function, dynamic=False, backend=backend)

    def call(*args: object) -> Result:
        with keep_compiled_versions(MOST_VERSIONS):
            return quick(*args)

    return call


def channels_last(inputs: Tensor) -> Tensor:
    """Images in the layout that convolutions on CUDA like best."""
    if inputs.ndim != 4:
        return inputs
    _, channels, height, width = inputs.shape
    if channels == 1:  # both layouts at once: the strides tell which one the layers are to keep
        return inputs.contiguous().as_strided(inputs.shape, (height * width, 1, width, 1))
    return inputs.contiguous(memory_format=torch.channels_last)
