"""Compiled functions that take the network as an argument: one piece of code serves all networks of an architecture."""

from collections.abc import Callable
from functools import cache
from typing import Final, TypeVar

import torch
from torch import Tensor, nn

from selbo._compile import keep_compiled_versions
from selbo.nn.draws import forward_noise
from selbo.nn.gaussian import draw_noise, gaussians

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


def compiled_logits(
    model: nn.Module, inputs: Tensor, num_samples: int, *, rows: int, generator: torch.Generator | None = None
) -> Tensor:
    """What `forward_samples` (or a plain network, as one draw) answers, by compiled code: (S, B, K).

    One draw at a time, which is the fastest on an H200. The noise is drawn outside of the compiled code, so that it is
    the same as elsewhere. Call it without gradients and in evaluation mode.

    Args:
        model: A network made by `to_bayesian`, or a plain one.
        inputs: Shape (B, ...).
        num_samples: S, the number of draws.
        rows: The batch that the code is compiled for: inputs are filled up to it with copies of the last one.
        generator: Where the noise comes from; torch's own if not given.
    """
    count = len(inputs)
    if count < rows:
        inputs = torch.cat([inputs, inputs[-1:].expand(rows - count, *inputs.shape[1:])])
    if inputs.device.type == "cuda":
        inputs = channels_last(inputs)
    forward, parameters = _compiled_draw(BACKEND), gaussians(model)
    if not parameters:
        return forward(model, inputs, None)[:, :count]
    draws = [forward(model, inputs, draw_noise(parameters, 1, generator)) for _ in range(num_samples)]
    return torch.cat(draws)[:, :count]


def channels_last(inputs: Tensor) -> Tensor:
    """Images in the layout that convolutions on CUDA like best."""
    if inputs.ndim != 4:
        return inputs
    _, channels, height, width = inputs.shape
    if channels == 1:  # both layouts at once: the strides tell which one the layers are to keep
        return inputs.contiguous().as_strided(inputs.shape, (height * width, 1, width, 1))
    return inputs.contiguous(memory_format=torch.channels_last)


@cache
def _compiled_draw(backend: str | Callable[..., object]) -> Callable[..., Tensor]:
    """Made on first use, because it takes long to import the compiler."""
    return compile_function(_draw, backend=backend)


def _draw(model: nn.Module, inputs: Tensor, noise: Tensor | None) -> Tensor:
    """Logits (1, B, K) of a plain network, or of a Bayesian one for the noise (1, P) of its weights."""
    if noise is None:
        plain: Tensor = model(inputs).unsqueeze(0)
        return plain
    return forward_noise(model, inputs, gaussians(model), noise)
