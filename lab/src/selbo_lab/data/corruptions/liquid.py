"""Steps towards drops of water: edges, distances from them and histogram equalisation, for a batch of grey images."""

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

TAN_SMALL: Final = math.tan(math.pi / 8)
TAN_LARGE: Final = math.tan(3 * math.pi / 8)
"""A gradient nearer to an axis than these slopes is compared along it, any other along a diagonal."""

HYSTERESIS_STEPS: Final = 8
"""Weak edges are followed this many pixels from a strong one; longer ones are not found in drops."""


def canny(images: Tensor, low: float, high: float) -> Tensor:
    """Edges by Canny's method: slopes over 3 x 3 pixels, the crest of their size |dx| + |dy|, two thresholds.

    Args:
        images: Grey levels from 0 to 255, shape (B, H, W).
        low: Crests above it are edges if they touch an edge.
        high: Crests above it are edges.

    Returns:
        True on edges, shape (B, H, W).
    """
    height, width = images.shape[-2:]
    padded = F.pad(images[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    across = padded[:, :, 2:] - padded[:, :, :-2]
    dx = across[:, :-2] + 2 * across[:, 1:-1] + across[:, 2:]
    down = padded[:, 2:] - padded[:, :-2]
    dy = down[:, :, :-2] + 2 * down[:, :, 1:-1] + down[:, :, 2:]
    size = dx.abs() + dy.abs()
    around = F.pad(size, (1, 1, 1, 1))

    def beside(row: int, column: int) -> Tensor:
        return around[:, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    flat, steep = dy.abs() < TAN_SMALL * dx.abs(), dy.abs() > TAN_LARGE * dx.abs()
    along = (size > beside(0, -1)) & (size >= beside(0, 1))
    across_rows = (size > beside(-1, 0)) & (size >= beside(1, 0))
    falling = (size > beside(-1, -1)) & (size > beside(1, 1))
    rising = (size > beside(-1, 1)) & (size > beside(1, -1))
    diagonal = torch.where(dx * dy < 0, rising, falling)
    crest = torch.where(flat, along, torch.where(steep, across_rows, diagonal))
    weak = crest & (size > low)
    edges = crest & (size > high)
    for _ in range(HYSTERESIS_STEPS):
        edges = weak & (F.max_pool2d(edges[:, None].to(images.dtype), 3, stride=1, padding=1)[:, 0] > 0)
    return edges


def distance_to(points: Tensor, *, most: float) -> Tensor:
    """Distance of each pixel from the nearest point, at most `most`; Euclidean, shape (B, H, W) as the points."""
    _, height, width = points.shape
    far = torch.full(points.shape, most**2, device=points.device).masked_fill_(points, 0.0)
    steps = torch.arange(max(height, width), device=points.device, dtype=far.dtype)
    for size in (width, height):  # squares of distances along rows, then from the best of the columns
        nearest = far.clone()
        for place in range(size):
            square = (steps[:size] - place) ** 2
            torch.minimum(nearest, far[..., place, None] + square, out=nearest)
        far = nearest.mT
    return far.clamp_max(most**2).sqrt()


def equalised(levels: Tensor) -> Tensor:
    """Grey levels spread so that each image has them about equally often, from 0 to 255; a flat image stays.

    Args:
        levels: Whole numbers from 0 to 255 in floating point, shape (B, H, W).
    """
    flat = levels.flatten(1).long()
    counts = torch.zeros(len(flat), 256, device=levels.device).scatter_add_(1, flat, torch.ones_like(levels.flatten(1)))
    lowest = flat.amin(1, keepdim=True)
    of_lowest = counts.gather(1, lowest)
    total = flat.shape[1]
    table = ((counts.cumsum(1) - of_lowest) * (255 / (total - of_lowest).clamp_min(1))).round().clamp(0, 255)
    table = torch.where(of_lowest == total, lowest.to(table.dtype), table)
    return table.gather(1, flat).reshape(levels.shape)


def box_mean(levels: Tensor) -> Tensor:
    """Means of 3 x 3 pixels, shape (B, H, W)."""
    return F.avg_pool2d(F.pad(levels[:, None], (1, 1, 1, 1), mode="reflect"), 3, stride=1)[:, 0]
