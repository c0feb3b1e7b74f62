"""Canny's edges against a plain version of the same steps, pixel by pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from selbo_lab.data.corruptions.mnist_edges import edges


def reference(picture: np.ndarray) -> np.ndarray:
    weight = ndimage.gaussian_filter(np.ones_like(picture), 1.0, mode="constant", truncate=4.0)
    smooth = ndimage.gaussian_filter(picture, 1.0, mode="constant", truncate=4.0) / weight
    down, right = ndimage.sobel(smooth, axis=0), ndimage.sobel(smooth, axis=1)
    slope = np.hypot(down, right)
    ridge = np.zeros(picture.shape, dtype=bool)
    for row in range(1, picture.shape[0] - 1):
        for column in range(1, picture.shape[1] - 1):
            i, j = down[row, column], right[row, column]
            longest = max(abs(i), abs(j))
            if longest > 0:
                # one step along the slope, to the frame of the eight neighbours, and one step against it
                ahead, behind = (between(slope, row + way * i / longest, column + way * j / longest) for way in (1, -1))
                ridge[row, column] = slope[row, column] >= max(ahead, behind)
    weak, _ = ndimage.label(ridge & (slope >= 0.1), np.ones((3, 3)))
    return np.isin(weak, np.unique(weak[ridge & (slope >= 0.2)])) & (weak > 0)


def between(values: np.ndarray, row: float, column: float) -> float:
    """Linear between the two neighbours that a point on the frame lies between."""
    top, left = math.floor(row), math.floor(column)
    down, right = row - top, column - left
    total = 0.0
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        share = (down if i else 1 - down) * (right if j else 1 - right)
        total += share * values[top + i, left + j] if share > 1e-12 else 0.0
    return total


def blots(count: int, size: tuple[int, int], seed: int) -> np.ndarray:
    """Soft random shapes with slopes around both thresholds, without ties."""
    noise = np.random.default_rng(seed).normal(size=(count, *size))
    return np.clip(4 * ndimage.gaussian_filter(noise, (0, 1.5, 1.5), mode="nearest"), 0, 1) ** 2


def test_edges_are_those_of_the_plain_version(seed: int) -> None:
    pictures = blots(4, (28, 20), seed)
    found = edges(torch.tensor(pictures))
    expected = np.stack([reference(picture) for picture in pictures])
    assert (found.numpy() != expected).sum() == 0
    assert 0.05 < expected.mean() < 0.5


def test_a_weak_edge_counts_only_beside_a_strong_one() -> None:
    size = 28
    weak = torch.zeros(1, size, size)
    weak[..., 14:, :] = 0.06  # slope 0.06 x 4 x 0.64 after the blur: between the thresholds
    assert not edges(weak).any()
    both = weak.clone()
    both[..., 14:, 14:] = torch.linspace(0.06, 0.13, 14)  # it grows strong to the right
    assert edges(both)[0, 13:15, 3].any(), "far from the strong part, but connected to it"
    assert not edges(torch.full((1, size, size), 0.7)).any()


def test_a_square_has_a_closed_outline_and_the_border_none() -> None:
    square = torch.zeros(1, 28, 28)
    square[..., 8:20, 8:20] = 1
    found = edges(square)[0]
    for turned in (found.T, found.flip(0), found.flip(1)):
        assert torch.equal(found, turned), "equal slopes on both sides of the edge are both kept, whatever the rounding"
    regions, count = ndimage.label(~found.numpy())
    assert count == 2, "inside and outside"
    assert regions[14, 14] != regions[0, 0]
    cut = torch.zeros(1, 28, 28)
    cut[..., :2, :] = 1  # its edge lies inside, its ends at the border
    assert edges(cut).any()
    assert not edges(cut)[..., [0, -1]].any()
    assert not edges(cut)[:, [0, -1]].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_do_not_depend_on_the_type(dtype: torch.dtype, seed: int) -> None:
    pictures = torch.tensor((255 * blots(2, (28, 28), seed)).round() / 255)
    assert torch.equal(edges(pictures.to(dtype)), edges(pictures))
