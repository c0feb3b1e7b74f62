"""The blur of CIFAR-10-C: defocus, glass, motion, zoom and Gaussian."""

from functools import lru_cache
from typing import Final

import torch
from torch import Generator, Tensor

from selbo_lab.data.corruptions import filters

DEFOCUS: Final = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
"""Radius of the disk, and the Gaussian that softens its edge."""
GLASS: Final = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
"""Standard deviation of the blur, distance of the moves, times over the image."""
MOTION: Final = ((6.0, 1.0), (6.0, 1.5), (6.0, 2.0), (8.0, 2.0), (9.0, 2.5))
"""Radius and standard deviation."""
MOTION_ANGLES: Final = (-45.0, 45.0)
ZOOM_COUNT: Final = (7, 12, 16, 21, 26)
"""How many zoom factors 1, 1.01, 1.02, ... are averaged: to 1.06, 1.11, 1.15, 1.20 and 1.25."""
ZOOM_STEP: Final = 0.01
BLUR_STD: Final = (0.4, 0.6, 0.7, 0.8, 1.0)


def defocus_blur(images: Tensor, severity: int) -> Tensor:
    """A lens out of focus: every point becomes a disk."""
    return filters.filter_each(images, filters.disk_kernel(*DEFOCUS[severity - 1]))


def glass_blur(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Frosted glass: blurred, pixels taken from beside or above, blurred again.

    The published program means to swap pixels. Its assignment of a colour through a view of the array overwrites one
    of the two instead, so in the published files pixels are copied; here too. Swapping is much harder on a classifier.
    """
    sigma, distance, iterations = GLASS[severity - 1]
    blurred = filters.whole_levels(filters.gaussian_filter(images, sigma))
    moved = filters.glass_shuffle(blurred, distance, iterations, generator, swap=False)
    return filters.gaussian_filter(moved, sigma)


def motion_blur(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """A camera that moves, at an angle of its own for each image; rounded to whole grey levels."""
    radius, sigma = MOTION[severity - 1]
    angles = uniform(len(images), MOTION_ANGLES, generator, images.device)
    return (filters.motion_filter(images, radius, sigma, angles) * 255).round() / 255


def zoom_blur(images: Tensor, severity: int) -> Tensor:
    """A camera that moves forward: the mean of the image and of itself at growing zoom."""
    operator = _zoom_operator(images.shape[-1], ZOOM_COUNT[severity - 1]).to(images)
    return (images.flatten(2) @ operator).reshape(images.shape)


@lru_cache(maxsize=len(ZOOM_COUNT))
def _zoom_operator(size: int, count: int) -> Tensor:
    """All of the zoom blur as one matrix, by which rows of pixels are multiplied."""
    total = torch.eye(size * size, dtype=torch.float64)
    for step in range(count):
        axis = filters.zoom_matrix(size, 1 + step * ZOOM_STEP).T.contiguous()
        total += torch.kron(axis, axis)
    return (total / (count + 1)).float()


def gaussian_blur(images: Tensor, severity: int) -> Tensor:
    """A Gaussian blur."""
    return filters.gaussian_filter(images, BLUR_STD[severity - 1])


def uniform(count: int, bounds: tuple[float, float], generator: Generator, device: torch.device) -> Tensor:
    """Numbers drawn evenly between two bounds, shape (count,)."""
    low, high = bounds
    return low + (high - low) * torch.rand(count, generator=generator, device=device)
