"""Straight, dotted and zigzag lines with soft edges, drawn in batches."""

from typing import Final

import torch
from torch import Generator, Tensor

REACH: Final = 2.3
"""A line fades with the vertical distance d from its middle as 1 + log(1 - d / reach), which is 0 at 1.45 pixels."""

DASH: Final = 2
"""Columns of each gap and of each dash of a dotted line; it begins with a gap."""

ZIGZAG_COLUMNS: Final = (2, 25)
"""Where a zigzag begins and ends."""

ZIGZAG_DRIFT: Final = (-5, 4)
"""How many rows lower a zigzag may end than it begins, both included."""

ZIGZAG_PITCH: Final = 2.0
"""Height of a zigzag to either side, and a quarter of its period, in pixels."""

ZIGZAG_TEETH: Final = 6
"""Turning points of a zigzag: as many as have room, whatever the drift."""


def dotted_lines(count: int, size: int, generator: Generator) -> Tensor:
    """A dotted line for each image, from the left edge to the right edge, at random heights.

    Args:
        count: Number of images.
        size: Height and width.
        generator: Of the heights; its device is that of the result.

    Returns:
        Brightness between 0 and 1, shape (count, size, size).
    """
    heights = torch.randint(size - 1, (count, 2), generator=generator, device=generator.device).float()
    ends = torch.tensor([0.0, size - 1.0], device=generator.device).expand(count, 2)
    line = _polyline(ends, heights, size)
    dashes = torch.arange(size, device=generator.device) // DASH % 2 == 1
    return line * dashes


def zigzags(count: int, size: int, generator: Generator) -> Tensor:
    """A zigzag for each image, from left to right, at a random height and with a random slope.

    Args:
        count: Number of images.
        size: Height and width.
        generator: Of the heights and slopes; its device is that of the result.

    Returns:
        Brightness between 0 and 1, shape (count, size, size).
    """
    device = generator.device
    start = torch.randint(size - 1, (count, 1), generator=generator, device=device).float()
    low, high = ZIGZAG_DRIFT
    drift = torch.randint(low, high + 1, (count, 1), generator=generator, device=device).float()
    first, last = ZIGZAG_COLUMNS
    angle = torch.atan(drift / (last - first))
    length = (last - first) / angle.cos()
    # along and across a straight line from the start: the start, the teeth, and the end
    teeth = torch.arange(ZIGZAG_TEETH, device=device)
    tops = (2 * teeth + 1) * ZIGZAG_PITCH
    sides = (1 - 2 * (teeth % 2)) * ZIGZAG_PITCH
    rest = length - length // (2 * ZIGZAG_PITCH) * (2 * ZIGZAG_PITCH)
    zero = torch.zeros_like(start)
    along = torch.cat([zero, tops.expand(count, -1), length], dim=1)
    across = torch.cat([zero, sides.expand(count, -1), sides[-1] / (2 * rest)], dim=1)
    columns = first + along * angle.cos() - across * angle.sin()
    rows = start + along * angle.sin() + across * angle.cos()
    return _polyline(columns, rows, size)


def _polyline(columns: Tensor, rows: Tensor, size: int) -> Tensor:
    """Lines through points (N, P) whose columns increase; each piece fills the columns it touches, the last one not."""
    line = torch.arange(size, device=columns.device, dtype=columns.dtype)
    picture = columns.new_zeros(len(columns), size, size)
    for piece in range(columns.shape[1] - 1):
        left, right = columns[:, piece, None], columns[:, piece + 1, None]
        top, bottom = rows[:, piece, None], rows[:, piece + 1, None]
        middle = top + (bottom - top) / (right - left) * (line - left)
        distance = (line[:, None] - middle[:, None, :]).abs()
        brightness = 1 + torch.log1p(-distance.clamp(max=0.99 * REACH) / REACH)
        touched = (line >= left.floor()) & (line < right.ceil())
        picture += brightness.clamp_min(0) * touched[:, None, :]
    return picture.clamp_max(1)
