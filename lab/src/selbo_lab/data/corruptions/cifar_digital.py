"""The digital corruptions of CIFAR-10-C: contrast, elastic transform, pixelate, JPEG compression and saturate."""

from functools import lru_cache
from typing import Final

import torch
from torch import Generator, Tensor

from selbo_lab.data.corruptions import filters, jpeg

CONTRAST: Final = (0.75, 0.5, 0.4, 0.3, 0.15)
"""What is left of the distance from the mean."""
ELASTIC: Final = ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
"""Scale of the local moves, their standard deviation of smoothing, reach of the affine move; all relative to the side.

The affine move shrinks while the local ones grow, so the pixels of severity 1 differ most from the clean ones.
"""
ELASTIC_TRUNCATE: Final = 3.0
PIXELATE: Final = (0.95, 0.9, 0.85, 0.75, 0.65)
"""Side of the small image, relative to the large one."""
JPEG_QUALITY: Final = (80, 65, 58, 50, 40)
SATURATE: Final = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))
"""Factor on the saturation, and what is added. Severities 1 and 2 take colour away, 3 to 5 add some."""


def contrast(images: Tensor, severity: int) -> Tensor:
    """Each channel drawn towards its mean over the image."""
    return images.mean((2, 3), keepdim=True).lerp(images, CONTRAST[severity - 1])


def elastic_transform(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """An affine move by three shifted points, then smooth local moves."""
    size = images.shape[-1]
    scale, sigma, reach = (size * value for value in ELASTIC[severity - 1])
    images = _affine(images, reach, generator)
    shape = (len(images), 2, size, size)
    moves = 2 * torch.rand(shape, generator=generator, device=images.device) - 1
    moves = scale * filters.gaussian_filter(moves, sigma, truncate=ELASTIC_TRUNCATE, padding="reflect")
    place = torch.arange(size, dtype=images.dtype, device=images.device)
    return filters.warp(images, place[:, None] + moves[:, 0], place + moves[:, 1])


def _affine(images: Tensor, reach: float, generator: Generator) -> Tensor:
    """The move that takes three corners of a square in the middle to places up to `reach` away, in both directions."""
    size, device = images.shape[-1], images.device
    middle, half = size // 2, size // 3
    low, high = middle - half, middle + half
    corners = torch.tensor([[high, high], [high, low], [low, low]], dtype=torch.float64, device=device)
    noise = torch.rand(len(images), 3, 2, generator=generator, device=device, dtype=torch.float64)
    moved = corners + reach * (2 * noise - 1)
    ones = torch.ones_like(moved[..., :1])
    back = torch.linalg.solve(torch.cat([moved, ones], -1), corners.expand_as(moved))
    place = torch.arange(size, dtype=torch.float64, device=device)
    columns, rows = (
        (
            place * back[:, 0, axis, None, None]
            + place[:, None] * back[:, 1, axis, None, None]
            + back[:, 2, axis, None, None]
        ).to(images.dtype)
        for axis in (0, 1)
    )
    return filters.warp(images, rows, columns, padding="mirror")


def pixelate(images: Tensor, severity: int) -> Tensor:
    """Made smaller and large again without smoothing, so that some pixels are merged; whole grey levels."""
    size = images.shape[-1]
    small = int(size * PIXELATE[severity - 1])
    down, up = _box_matrix(size, small).to(images), _box_matrix(small, size).to(images)
    levels = _whole(_mixed_and_turned(_whole(_mixed_and_turned(images * 255, down)), down))
    return _mixed_and_turned(_mixed_and_turned(levels, up), up) / 255


def _whole(levels: Tensor) -> Tensor:
    return (levels + 0.5).floor()


def _mixed_and_turned(images: Tensor, matrix: Tensor) -> Tensor:
    """Images with each row mixed by a matrix, then turned on their side; twice gives both directions.

    Turned in memory too, so that it is one large matrix and not many small ones: .7 s for 10 000 images on a
    Neoverse-N1 core, where many small ones take 17.
    """
    return (images @ matrix.T).mT.contiguous()


@lru_cache(maxsize=16)
def _box_matrix(size: int, new_size: int) -> Tensor:
    """Resampling with a box, as Pillow does it: a new pixel is the mean of those with their centre in it."""
    scale = size / new_size
    reach = max(scale, 1.0) / 2
    centres = (torch.arange(new_size, dtype=torch.float64) + 0.5) * scale
    distance = torch.arange(size, dtype=torch.float64) + 0.5 - centres[:, None]
    matrix = ((distance > -reach) & (distance <= reach)).double()
    return matrix / matrix.sum(1, keepdim=True)


def jpeg_compression(images: Tensor, severity: int) -> Tensor:
    """Compressed and decompressed."""
    return jpeg.compressed((images * 255).round(), JPEG_QUALITY[severity - 1]) / 255


def saturate(images: Tensor, severity: int) -> Tensor:
    """The saturation of HSV scaled and shifted; hue and value stay. Grey counts as red, which is hue 0."""
    factor, shift = SATURATE[severity - 1]
    value = images.amax(1, keepdim=True)
    span = value - images.amin(1, keepdim=True)
    saturation = (factor * span / value.clamp_min(1e-6) + shift).clamp(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0], dtype=images.dtype, device=images.device).reshape(1, 3, 1, 1)
    below = torch.where(span > 0, (value - images) / span.clamp_min(1e-6), red)
    return value * (1 - saturation * below)
