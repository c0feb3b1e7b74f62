"""Filters, warps and textures that the corruptions are made of, on batches of images and on any device.

Blurs and zooms are products with small matrices and sums of shifted images. These round alike on every device;
convolutions on a GPU may use a shorter format.
"""

import math
from functools import lru_cache
from typing import Final, Literal

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

Padding = Literal["nearest", "reflect", "mirror"]
"""How an image goes on outside: aaa|abc, cba|abc (the edge twice) or cb|abc (the edge once)."""

SMALLEST_WEIGHT: Final = 1e-5
"""Weights of a motion blur below it are left out: together they change less than a hundredth of a grey level."""

LEVEL_GUARD: Final = 1e-3
"""Added to grey levels before they are cut off to whole ones, so that rounding cannot take a level from a whole one."""


def whole_levels(images: Tensor) -> Tensor:
    """Images between 0 and 1 cut off, not rounded, to multiples of 1/255, as the published programs do."""
    return (images * 255 + LEVEL_GUARD).floor() / 255


# --- blur ---


def gaussian_filter(images: Tensor, sigma: float, *, truncate: float = 4.0, padding: Padding = "nearest") -> Tensor:
    """Each channel blurred with a Gaussian.

    Args:
        images: Shape (..., H, W).
        sigma: Standard deviation in pixels; 0 changes nothing.
        truncate: The weights end at this many standard deviations, rounded to whole pixels.
        padding: How the image goes on outside.
    """
    height, width = images.shape[-2:]
    rows = _gaussian_matrix(height, sigma, truncate, padding).to(images)
    columns = _gaussian_matrix(width, sigma, truncate, padding).to(images)
    return rows @ images @ columns.T


@lru_cache(maxsize=64)
def _gaussian_matrix(size: int, sigma: float, truncate: float, padding: Padding) -> Tensor:
    reach = int(truncate * sigma + 0.5)
    steps = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (steps / sigma) ** 2) if reach else np.ones(1)
    weights /= weights.sum()
    matrix = np.zeros((size, size))
    for step, weight in zip(steps, weights, strict=True):
        np.add.at(matrix, (np.arange(size), _inside(np.arange(size) + step, size, padding)), weight)
    return torch.from_numpy(matrix)


def _inside(indices: np.ndarray, size: int, padding: Padding) -> np.ndarray:
    """The pixels that stand for those outside."""
    if padding == "nearest":
        return indices.clip(0, size - 1)
    period = 2 * size if padding == "reflect" else max(2 * size - 2, 1)
    folded = indices % period
    return np.where(folded < size, folded, period - folded - (padding == "reflect"))


def disk_kernel(radius: float, alias_blur: float) -> Tensor:
    """Weights of a disk with an edge softened by a Gaussian of standard deviation `alias_blur`: shape (k, k), sum one.

    The Gaussian has 3 x 3 weights, or 5 x 5 for a radius above 8.
    """
    soft = 1 if radius <= 8 else 2
    reach = int(radius) + soft
    steps = np.arange(-reach, reach + 1)
    disk = (steps[:, None] ** 2 + steps[None, :] ** 2 <= radius**2).astype(np.float64)
    weights = np.exp(-0.5 * (np.arange(-soft, soft + 1) / alias_blur) ** 2)
    weights /= weights.sum()
    for axis in (0, 1):
        disk = np.apply_along_axis(np.convolve, axis, disk, weights, mode="same")
    return torch.from_numpy(disk / disk.sum())


def filter_each(images: Tensor, kernels: Tensor, *, padding: Padding = "mirror") -> Tensor:
    """Every channel correlated with a kernel, the same for all images or one per image.

    Args:
        images: Shape (B, C, H, W).
        kernels: Shape (k, k) or (B, k, k), k odd.
        padding: How the image goes on outside; "reflect" is not known here.
    """
    height, width = images.shape[-2:]
    size = kernels.shape[-1]
    kernels = kernels.reshape(-1, size, size)
    places = (kernels != 0).any(0).nonzero().tolist()
    kernels = kernels.to(images)
    padded = F.pad(images, [size // 2] * 4, mode={"nearest": "replicate", "mirror": "reflect"}[padding])
    result = torch.zeros_like(images)
    for row, column in places:
        weight = kernels[:, row, column, None, None, None]
        result.addcmul_(padded[..., row : row + height, column : column + width], weight)
    return result


def _motion_path(radius: float, sigma: float, angles: Tensor) -> tuple[list[float], list[Tensor], list[Tensor]]:
    """Weights along the line, and row and column steps of each image, as ImageMagick has them.

    The weights are one side of a Gaussian; the points of the line are rounded to pixels, halves down.
    """
    count = 2 * math.ceil(radius) + 1
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(count)]
    weights = [weight / sum(weights) for weight in weights]
    kept = [i for i in range(count) if weights[i] >= SMALLEST_WEIGHT]
    total = sum(weights[i] for i in kept)
    radians = angles.double() * (math.pi / 180)
    rows = [torch.ceil(i * radians.sin() - 0.5).long() for i in kept]
    columns = [torch.ceil(i * radians.cos() - 0.5).long() for i in kept]
    return [weights[i] / total for i in kept], rows, columns


def motion_kernels(radius: float, sigma: float, angles: Tensor) -> Tensor:
    """Kernels of a motion blur for `filter_each`, with padding "nearest".

    A pixel is mixed with those ahead of it on a line; 0 degrees points right and 90 degrees down.

    Args:
        radius: The line is 2 ceil(radius) + 1 pixels long.
        sigma: Standard deviation of the half Gaussian along the line, in pixels.
        angles: In degrees, shape (B,).

    Returns:
        Shape (B, k, k), each with sum one.
    """
    reach = 2 * math.ceil(radius)
    kernels = torch.zeros(len(angles), 2 * reach + 1, 2 * reach + 1, device=angles.device)
    image = torch.arange(len(angles), device=angles.device)
    for weight, row, column in zip(*_motion_path(radius, sigma, angles), strict=True):
        kernels.index_put_((image, reach + row, reach + column), kernels.new_tensor(weight), accumulate=True)
    return kernels


def motion_filter(images: Tensor, radius: float, sigma: float, angles: Tensor) -> Tensor:
    """Images (B, C, H, W) under the kernels of `motion_kernels`, one per image; quicker than `filter_each`."""
    batch, channels, height, width = images.shape
    pixels = images.reshape(batch, channels, height * width)
    result = torch.zeros_like(pixels)
    row_of = torch.arange(height, device=images.device)
    column_of = torch.arange(width, device=images.device)
    for weight, row, column in zip(*_motion_path(radius, sigma, angles), strict=True):
        rows = (row_of + row[:, None]).clamp(0, height - 1) * width
        columns = (column_of + column[:, None]).clamp(0, width - 1)
        index = (rows[:, :, None] + columns[:, None, :]).reshape(batch, 1, -1).expand(-1, channels, -1)
        result.add_(pixels.gather(2, index), alpha=weight)
    return result.reshape(images.shape)


# --- movement ---


def warp(images: Tensor, rows: Tensor, columns: Tensor, *, padding: Literal["reflect", "mirror"] = "reflect") -> Tensor:
    """Images looked up between pixels, bilinearly.

    Args:
        images: Shape (B, C, H, W).
        rows: Where each pixel is looked up, in pixels, shape (B, H', W').
        columns: Likewise.
        padding: How the image goes on outside.
    """
    height, width = images.shape[-2:]
    mirror = padding == "mirror"
    if mirror:
        grid = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], -1)
    else:
        grid = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], -1)
    return F.grid_sample(images, grid.to(images), mode="bilinear", padding_mode="reflection", align_corners=mirror)


def clipped_zoom(images: Tensor, factor: float) -> Tensor:
    """The middle of images (..., H, W), enlarged to their size; `factor` of at least 1."""
    rows, columns = (zoom_matrix(size, factor).to(images) for size in images.shape[-2:])
    return rows @ images @ columns.T


@lru_cache(maxsize=64)
def zoom_matrix(size: int, factor: float) -> Tensor:
    """One axis of `clipped_zoom` as a matrix, float64.

    The middle ceil(size / factor) pixels are stretched linearly, ends on ends, to a whole number of pixels, of which
    the middle `size` are kept. At small factors that rounding moves the image by up to a pixel, as in the published
    files.
    """
    kept = math.ceil(size / factor)
    grown = round(kept * factor)
    first, stretch = (grown - size) // 2, (kept - 1) / max(grown - 1, 1)
    places = (size - kept) // 2 + (np.arange(size) + first) * stretch
    below = np.floor(places).astype(int).clip(0, size - 1)
    matrix = np.zeros((size, size))
    np.add.at(matrix, (np.arange(size), below), 1 - (places - below))
    np.add.at(matrix, (np.arange(size), (below + 1).clip(0, size - 1)), places - below)
    return torch.from_numpy(matrix)


def glass_shuffle(images: Tensor, distance: int, iterations: int, generator: Generator, *, swap: bool = True) -> Tensor:
    """Pixels exchanged with near ones, from the bottom right to the top left.

    Each pixel in turn, but for a border, is swapped with one up to `distance` before it or `distance` - 1 after it in
    row and in column. Pixels too far apart to meet are done at once, in an order that gives the same result.

    Args:
        images: Shape (B, C, H, W).
        distance: In pixels, at least 1.
        iterations: How many times over the image.
        generator: On the device of the images.
        swap: Whether the other pixel takes this one's colour; if not, it keeps its own.
    """
    batch, channels, height, width = images.shape
    source = torch.arange(height * width, device=images.device).repeat(batch, 1)
    rows, columns = range(height - distance, distance, -1), range(width - distance, distance, -1)
    fronts: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            fronts.setdefault(2 * distance * i + j, []).append(row * width + column)
    order = [torch.tensor(fronts[time], device=images.device) for time in sorted(fronts)]
    for _ in range(iterations):
        shape = (2, batch, height * width)
        down, right = torch.randint(-distance, distance, shape, generator=generator, device=images.device)
        step = down * width + right
        for here in order:
            there = here + step[:, here]
            moved, left = source.gather(1, there), source[:, here]
            source[:, here] = moved
            if swap:
                source.scatter_(1, there, left)
    pixels = images.reshape(batch, channels, -1)
    return pixels.gather(2, source[:, None].expand(-1, channels, -1)).reshape(images.shape)


# --- textures ---


def plasma_fractal(
    count: int, size: int, decay: float, generator: Generator, device: torch.device | str = "cpu"
) -> Tensor:
    """Clouds by the diamond-square algorithm on a torus, each scaled to [0, 1].

    Args:
        count: How many.
        size: Pixels of a side, a power of 2.
        decay: The random part shrinks by its square from one scale to the next.
        generator: On the device.
        device: Where.

    Returns:
        Shape (count, size, size).
    """
    if size < 2 or size & (size - 1):
        raise ValueError(f"`size` must be a power of 2 and at least 2, but got {size}")
    clouds = torch.zeros(count, size, size, device=device)
    step, swing = size, 1.0

    def middle(total: Tensor) -> Tensor:
        noise = torch.rand(total.shape, generator=generator, device=device)
        return total / 4 + swing * (2 * noise - 1)

    while step >= 2:
        half = step // 2
        corners = clouds[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        clouds[:, half::step, half::step] = middle(pairs + pairs.roll(-1, 2))
        centres = clouds[:, half::step, half::step]
        clouds[:, ::step, half::step] = middle(centres + centres.roll(1, 1) + corners + corners.roll(-1, 2))
        clouds[:, half::step, ::step] = middle(centres + centres.roll(1, 2) + corners + corners.roll(-1, 1))
        step, swing = half, swing / decay**2
    clouds -= clouds.amin((1, 2), keepdim=True)
    return clouds / clouds.amax((1, 2), keepdim=True)
