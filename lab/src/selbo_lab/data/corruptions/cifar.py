"""CIFAR-10-C: 19 corruptions of small colour images at five severities, after Hendrycks and Dietterich (2019).

The definitions and severities are those of the program that made the published CIFAR-10-C. The random numbers are not,
and the ice of frost is drawn instead of photographed, so pixels agree with the published files in distribution only.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from selbo.checks import one_of
from selbo.random import generator_for
from selbo_lab.data.corruptions import cifar_blur, cifar_digital, cifar_noise, cifar_weather, filters

SEVERITIES: Final = (1, 2, 3, 4, 5)

SHAPE: Final = (3, 32, 32)

CIFAR_CHUNK: Final = 250
"""Images per chunk. It is part of the definition: random numbers are drawn chunk by chunk."""

Random = Callable[[Tensor, int, Generator], Tensor]
Fixed = Callable[[Tensor, int], Tensor]

RANDOM: Final[dict[str, Random]] = {
    "gaussian_noise": cifar_noise.gaussian_noise,
    "shot_noise": cifar_noise.shot_noise,
    "impulse_noise": cifar_noise.impulse_noise,
    "speckle_noise": cifar_noise.speckle_noise,
    "glass_blur": cifar_blur.glass_blur,
    "motion_blur": cifar_blur.motion_blur,
    "snow": cifar_weather.snow,
    "frost": cifar_weather.frost,
    "fog": cifar_weather.fog,
    "spatter": cifar_weather.spatter,
    "elastic_transform": cifar_digital.elastic_transform,
}
"""Corruptions that draw random numbers. Functions of images between 0 and 1, severity and generator."""

FIXED: Final[dict[str, Fixed]] = {
    "defocus_blur": cifar_blur.defocus_blur,
    "zoom_blur": cifar_blur.zoom_blur,
    "gaussian_blur": cifar_blur.gaussian_blur,
    "brightness": cifar_weather.brightness,
    "contrast": cifar_digital.contrast,
    "pixelate": cifar_digital.pixelate,
    "jpeg_compression": cifar_digital.jpeg_compression,
    "saturate": cifar_digital.saturate,
}
"""Corruptions that draw none."""

CIFAR_CORRUPTIONS: Final[tuple[str, ...]] = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "gaussian_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "spatter",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
    "saturate",
)
"""All names, as the published files have them."""


def corrupt_cifar(images: Tensor, name: str, severity: int, *, seed: int) -> Tensor:
    """Images under one corruption.

    The random numbers depend on seed, name, severity and the place of an image among the others. The first images come
    out the same whatever follows them. CPU and GPU draw different numbers.

    Args:
        images: Bytes, shape (N, 3, 32, 32).
        name: One of `CIFAR_CORRUPTIONS`.
        severity: From 1 to 5.
        seed: Of the random numbers.

    Returns:
        Bytes of the same shape on the same device.
    """
    one_of("name", name, CIFAR_CORRUPTIONS)
    if severity not in SEVERITIES or isinstance(severity, bool):
        raise ValueError(f"`severity` must be a whole number from 1 to 5, but got {severity!r}")
    if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.shape[1:] != SHAPE:
        came = f"{images.dtype} of shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"`images` must be bytes (torch.uint8) of shape (N, 3, 32, 32), but got {came}")
    result = torch.empty_like(images)
    for index, start in enumerate(range(0, len(images), CIFAR_CHUNK)):
        chunk = images[start : start + CIFAR_CHUNK]
        result[start : start + CIFAR_CHUNK] = _corrupt_chunk(chunk, name, severity, index, seed)
    return result


def _corrupt_chunk(chunk: Tensor, name: str, severity: int, index: int, seed: int) -> Tensor:
    pixels = chunk.float() / 255
    if name in FIXED:
        pixels = FIXED[name](pixels, severity)
    else:
        generator = generator_for(seed, "cifar-c", name, severity, index, device=chunk.device)
        # Always a full chunk, because what a generator draws for an image may depend on how many there are.
        pixels = F.pad(pixels, (0, 0, 0, 0, 0, 0, 0, CIFAR_CHUNK - len(pixels)))
        pixels = RANDOM[name](pixels, severity, generator)[: len(chunk)]
    return (filters.whole_levels(pixels.clamp(0, 1)) * 255).round().to(torch.uint8)
