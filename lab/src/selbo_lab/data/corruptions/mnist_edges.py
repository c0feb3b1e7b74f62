"""Edges of images after Canny (1986), in batches."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

TRUNCATE: Final = 4.0
"""The Gaussian is cut off at this many standard deviations."""

EDGE_SIGMA: Final = 1.0
"""Of the blur before edges are sought, in pixels."""

WEAK: Final = 0.1
"""Least slope of an edge, by Sobel's operator with weights that sum to 8, on pixels between 0 and 1."""

STRONG_EDGE: Final = 0.2
"""A connected edge counts if its slope reaches this somewhere."""

SLOPE_TIE: Final = 1e-9
"""Slopes that differ by less, relatively, count as equal, and both stay: rounding does not decide, nor the device."""


def edges(pixels: Tensor) -> Tensor:
    """Edges, mostly one pixel wide: blur, slopes, the maxima along them, and hysteresis. Border pixels are never edges.

    Args:
        pixels: Between 0 and 1, shape (N, H, W).

    Returns:
        Truth values, shape (N, H, W).
    """
    pixels = pixels.double()  # slopes on both sides of a line are often equal, up to rounding
    rows, columns = (_blur_matrix(size).to(pixels) for size in pixels.shape[1:])
    down, right = _slopes(rows @ pixels @ columns.T)
    slopes = torch.hypot(down, right)
    ridges = _maxima_along_slope(slopes, down, right)
    weak, strong = ridges & (slopes >= WEAK), ridges & (slopes >= STRONG_EDGE)
    return _connected(strong, within=weak)


def _blur_matrix(size: int) -> Tensor:
    """A Gaussian along one axis, float64; what lies outside of the image does not count."""
    places = torch.arange(size, dtype=torch.float64)
    offsets = (places[:, None] - places) / EDGE_SIGMA
    weights = (-0.5 * offsets**2).exp().masked_fill(offsets.abs() > TRUNCATE, 0)
    return weights / weights.sum(1, keepdim=True)


def _slopes(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Sobel's differences, downwards and to the right."""
    padded = F.pad(pixels[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    across = padded[:, :, :-2] + 2 * padded[:, :, 1:-1] + padded[:, :, 2:]
    along = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    return across[:, 2:] - across[:, :-2], along[:, :, 2:] - along[:, :, :-2]


def _maxima_along_slope(slopes: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Where the slope is no smaller than ahead and behind, between the two nearest pixels of either side."""
    steep = down.abs() >= right.abs()  # the slope is nearer to the vertical
    falling = down * right >= 0  # down and to the right, or up and to the left
    larger, smaller = torch.maximum(down.abs(), right.abs()), torch.minimum(down.abs(), right.abs())
    lean = smaller / larger.clamp_min(torch.finfo(slopes.dtype).tiny)
    padded = F.pad(slopes, (1, 1, 1, 1))
    height, width = slopes.shape[1:]

    def neighbour(row: int, column: int) -> Tensor:
        return padded[:, 1 + row : 1 + row + height, 1 + column : 1 + column + width]

    maxima = slopes > 0
    for way in (1, -1):
        straight = torch.where(steep, neighbour(way, 0), neighbour(0, way))
        falls = neighbour(way, way)
        rises = torch.where(steep, neighbour(way, -way), neighbour(-way, way))
        oblique = torch.where(falling, falls, rises)
        maxima &= oblique * lean + straight * (1 - lean) <= slopes * (1 + SLOPE_TIE)
    inside = torch.zeros_like(maxima)
    inside[:, 1:-1, 1:-1] = True
    return maxima & inside


def _connected(seeds: Tensor, *, within: Tensor) -> Tensor:
    """The parts of ``within`` that touch a seed, corner to corner or through others."""
    reached, allowed = seeds.float(), within.float()
    while True:
        grown = F.max_pool2d(reached, 3, stride=1, padding=1) * allowed
        if torch.equal(grown, reached):
            return grown > 0
        reached = grown
