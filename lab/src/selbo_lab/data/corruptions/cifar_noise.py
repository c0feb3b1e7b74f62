"""The noise of CIFAR-10-C: Gaussian, shot, impulse and speckle."""

from typing import Final

import torch
from torch import Generator, Tensor

NOISE_STD: Final = (0.04, 0.06, 0.08, 0.09, 0.10)
PHOTONS: Final = (500.0, 250.0, 100.0, 75.0, 50.0)
"""Expected count of a white pixel; the fewer, the more noise."""
IMPULSE_SHARE: Final = (0.01, 0.02, 0.03, 0.05, 0.07)
SPECKLE_STD: Final = (0.06, 0.10, 0.12, 0.16, 0.20)
"""Relative to the pixel."""


def gaussian_noise(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Normal noise, each channel of each pixel by itself."""
    return images + NOISE_STD[severity - 1] * _normal(images, generator)


def shot_noise(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Counts of few photons: Poisson noise."""
    photons = PHOTONS[severity - 1]
    return torch.poisson(images * photons, generator=generator) / photons


def impulse_noise(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """A share of the values replaced by 0 or 1, each half of the time."""
    place = torch.rand(images.shape, generator=generator, device=images.device)
    share = IMPULSE_SHARE[severity - 1]
    return torch.where(place < share, (place < share / 2).to(images.dtype), images)


def speckle_noise(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Normal noise in proportion to the pixel."""
    return images + images * SPECKLE_STD[severity - 1] * _normal(images, generator)


def _normal(images: Tensor, generator: Generator) -> Tensor:
    return torch.randn(images.shape, generator=generator, device=images.device)
