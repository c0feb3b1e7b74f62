"""JPEG compression and decompression of a batch, as the common library does it: baseline, chroma at half size.

Colours, subsampling, quantisation and smooth upsampling follow libjpeg's integer arithmetic, and only the cosine
transform is in floating point. The Huffman code loses nothing and is left out. Pixels differ from libjpeg's rarely, by
a grey level or two.
"""

import math
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

BLOCK: Final = 8

LUMINANCE: Final = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE: Final = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)
"""Quantisation of the two kinds of channel at quality 50: annex K of the standard."""

FIRST_PASS: Final = 4 * math.sqrt(8)
"""The library transforms along one axis, rounds to multiples of one over this, and goes on along the other."""

HALF_TIE: Final = 1e-4
"""Added before rounding, so that what is a half in whole numbers goes up in floating point too."""


def compressed(images: Tensor, quality: int) -> Tensor:
    """Images after compression at a quality from 1 to 100.

    Args:
        images: Whole grey levels from 0 to 255 in floating point, shape (B, 3, H, W), H and W multiples of 16.
        quality: As libjpeg scales its tables.
    """
    if images.shape[-2] % (2 * BLOCK) or images.shape[-1] % (2 * BLOCK):
        raise ValueError(f"`images` must have sides that are multiples of 16, but got shape {tuple(images.shape)}")
    red, green, blue = images.unbind(1)
    luma = _round_down(0.299 * red + 0.587 * green + 0.114 * blue)
    chroma = torch.stack(
        [
            _round_down(128 - 0.168735892 * red - 0.331264108 * green + 0.5 * blue),
            _round_down(128 + 0.5 * red - 0.418687589 * green - 0.081312411 * blue),
        ],
        1,
    )
    luma = _quantised(luma, _table(LUMINANCE, quality))
    chroma_blue, chroma_red = (_doubled(_quantised(_halved(chroma), _table(CHROMINANCE, quality))) - 128).unbind(1)
    return torch.stack(
        [
            luma + _round_up(1.402 * chroma_red),
            luma + _round_up(-0.344136286 * chroma_blue - 0.714136286 * chroma_red),
            luma + _round_up(1.772 * chroma_blue),
        ],
        1,
    ).clamp(0, 255)


def _round_up(values: Tensor) -> Tensor:
    return (values + 0.5 + HALF_TIE).floor()


def _round_down(values: Tensor) -> Tensor:
    return (values - 0.5).ceil()


def _table(base: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((torch.tensor(base) * percent + 50) // 100).clamp(1, 255)


def _halved(channels: Tensor) -> Tensor:
    """Means of 2 x 2; halves are rounded down and up in turn from column to column."""
    bias = 1 + torch.arange(channels.shape[-1] // 2, device=channels.device) % 2
    rows = channels[..., ::2, :] + channels[..., 1::2, :]
    return ((rows[..., ::2] + rows[..., 1::2] + bias) / 4).floor()


def _doubled(channels: Tensor) -> Tensor:
    """Upsampling with weights 9, 3, 3 and 1; halves are rounded up and down in turn."""

    def both(values: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        size = values.shape[axis]
        first, last = values.narrow(axis, 0, 1), values.narrow(axis, size - 1, 1)
        before = torch.cat([first, values.narrow(axis, 0, size - 1)], axis)
        after = torch.cat([values.narrow(axis, 1, size - 1), last], axis)
        return 3 * values + before, 3 * values + after

    rows = torch.stack(both(channels, -2), -2).flatten(-3, -2)
    left, right = both(rows, -1)
    return torch.stack([((left + 8) / 16).floor(), ((right + 7) / 16).floor()], -1).flatten(-2)


def _quantised(channels: Tensor, table: Tensor) -> Tensor:
    """There and back through the cosine transform of 8 x 8 blocks; whole levels again."""
    height, width = channels.shape[-2:]
    rows, columns = _cosines(height // BLOCK).to(channels), _cosines(width // BLOCK).to(channels)
    steps = table.repeat(height // BLOCK, width // BLOCK).to(channels)
    waves = _round_up(_round_up((channels - 128) @ columns.T * FIRST_PASS).mT @ rows.T / FIRST_PASS * 8).mT
    waves = waves.sign() * ((waves.abs() + 4 * steps) / (8 * steps)).floor() * steps
    return _round_up(_round_up(rows.T @ waves * FIRST_PASS) @ columns / FIRST_PASS + 128).clamp(0, 255)


@lru_cache(maxsize=8)
def _cosines(blocks: int) -> Tensor:
    """The orthonormal transform of all blocks along an axis."""
    wave, place = torch.arange(BLOCK, dtype=torch.float64)[:, None], torch.arange(BLOCK, dtype=torch.float64)
    matrix = torch.cos(math.pi / BLOCK * (place + 0.5) * wave) * math.sqrt(2 / BLOCK)
    matrix[0] /= math.sqrt(2)
    whole: Tensor = torch.block_diag(*[matrix] * blocks)
    return whole
