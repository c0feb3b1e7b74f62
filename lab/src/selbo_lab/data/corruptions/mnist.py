"""The 15 corruptions of MNIST-C (Mu and Gilmer 2019), made in batches on any device from their published definitions.

Values and formulas follow the program that made the published files, where it differs from the paper's words too. The
pixels are not those of the files: the random numbers are others.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from selbo.checks import one_of, whole
from selbo.random import generator_for
from selbo_lab.data.corruptions.filters import gaussian_filter, motion_filter, plasma_fractal
from selbo_lab.data.corruptions.mnist_edges import edges
from selbo_lab.data.corruptions.mnist_lines import dotted_lines, zigzags

IMAGE_SIZE: Final = 28
"""Height and width of an image."""

MNIST_CHUNK: Final = 500
"""Images at a time. The random numbers of a chunk depend on its index, so another size gives other pixels."""

CENTRE: Final = (IMAGE_SIZE - 1) / 2
"""What affine maps keep in place, in pixels."""

FOG_SIZE: Final = 256
"""Side of the map that the fog is cut from; its brightness is scaled by the whole map, so no smaller one will do."""

MUD: Final = 63 / 255
"""Grey of the spatter."""

MUD_COVERAGE: Final = 0.8
"""Where the blurred outline of the spatter is below it, there is none."""

MOTION_ANGLE: Final = 45.0
"""Motion is up to this many degrees from the horizontal."""

BYTE_ROUNDING: Final = 1e-3
"""Added before pixels are cut to whole bytes, so that those that are whole up to rounding stay what they are."""

STRIPE: Final = (7, 21)
"""Columns that the stripe leaves alone; those to the left and to the right are inverted."""


def corrupt_mnist(images: Tensor, name: str, *, seed: int, severity: int | None = None) -> Tensor:
    """Corrupted copies of images, each corrupted by itself.

    The result depends on the images, the name, the severity, the seed and the kind of device: random numbers of a CPU
    and of a GPU differ.

    Args:
        images: Bytes, shape (N, 1, 28, 28), white on black.
        name: One of `MNIST_CORRUPTIONS`.
        seed: Seed for the noise.
        severity: From 1 to 5, where the corruption has severities; None takes the one of MNIST-C.

    Returns:
        Bytes, of the same shape, on the same device.
    """
    one_of("name", name, MNIST_CORRUPTIONS)
    if images.dtype != torch.uint8 or images.ndim != 4 or tuple(images.shape[1:]) != (1, IMAGE_SIZE, IMAGE_SIZE):
        raise ValueError(
            f"`images` must be bytes of shape (N, 1, {IMAGE_SIZE}, {IMAGE_SIZE}), "
            f"but got {tuple(images.shape)}, {images.dtype}"
        )
    corruption = _TABLE[name]
    level = _level(name, corruption, severity)
    corrupted = torch.empty_like(images)
    for index, start in enumerate(range(0, len(images), MNIST_CHUNK)):
        pixels = images[start : start + MNIST_CHUNK, 0].float() / 255
        generator = generator_for(seed, "mnist-c", name, index, device=images.device)
        changed = corruption.apply(pixels, level, generator)
        corrupted[start : start + MNIST_CHUNK, 0] = (changed * 255).round().clamp(0, 255).byte()
    return corrupted


def _shot_noise(pixels: Tensor, photons: float, generator: Generator) -> Tensor:
    return torch.poisson(pixels * photons, generator=generator) / photons


def _impulse_noise(pixels: Tensor, share: float, generator: Generator) -> Tensor:
    chance = torch.rand(pixels.shape, generator=generator, device=pixels.device)
    noisy = pixels.masked_fill(chance < share / 2, 0)
    return noisy.masked_fill(chance >= 1 - share / 2, 1)


def _glass_blur(pixels: Tensor, level: tuple[float, int, int], generator: Generator) -> Tensor:
    """Blur, swap pixels with near ones, blur; the blur is of columns only, as in the published program."""
    sigma, distance, iterations = level
    blurred = (_blurred_columns(pixels, sigma) * 255 + BYTE_ROUNDING).floor() / 255
    return _blurred_columns(_swap_pixels(blurred, distance, iterations, generator), sigma)


def _blurred_columns(pixels: Tensor, sigma: float) -> Tensor:
    return gaussian_filter(pixels.mT[..., None], sigma)[..., 0].mT


def _swap_pixels(pixels: Tensor, distance: int, iterations: int, generator: Generator) -> Tensor:
    """Pixel by pixel, from the bottom right on, every other one is swapped with a near one.

    That lies up to ``distance`` rows and columns before it, or up to ``distance`` - 1 after it. Which pixels are
    swapped is a matter of chance, unlike in `selbo_lab.data.corruptions.filters.glass_shuffle`.
    """
    count, device = len(pixels), pixels.device
    line = torch.arange(IMAGE_SIZE - distance, distance, -1, device=device)
    places = (line[:, None] * IMAGE_SIZE + line).flatten()
    flat = pixels.flatten(1).T.contiguous()  # (pixels, images): one place of all images at a time
    for _ in range(iterations):
        shape = (2, len(places), count)
        down, right = torch.randint(-distance, distance, shape, generator=generator, device=device)
        swapped = torch.randint(2, shape[1:], generator=generator, device=device)
        partners = places[:, None] + swapped * (down * IMAGE_SIZE + right)
        for place, partner in zip(places.tolist(), partners.split(1), strict=True):
            here, there = flat[place : place + 1].clone(), flat.gather(0, partner)
            flat.scatter_(0, partner, here)
            flat[place : place + 1] = there
    return flat.T.reshape(pixels.shape)


def _motion_blur(pixels: Tensor, level: tuple[int, float], generator: Generator) -> Tensor:
    """Mean of the pixels ahead in the direction of a random angle, with weights of half a Gaussian."""
    radius, sigma = level
    turns = torch.rand(len(pixels), generator=generator, device=pixels.device) * 2 - 1
    return motion_filter(pixels[:, None], radius, sigma, turns * MOTION_ANGLE)[:, 0]


def _signs(count: int, generator: Generator) -> Tensor:
    return torch.randint(2, (count,), generator=generator, device=generator.device) * 2.0 - 1


def _affine(pixels: Tensor, maps: tuple[tuple[Tensor | float, ...], ...]) -> Tensor:
    """Images whose pixel (x, y) is pixel (a x + b y + c, d x + e y + f) of the old ones, from the centre; 0 outside."""
    line = torch.linspace(-1, 1, IMAGE_SIZE, device=pixels.device)
    ones = pixels.new_ones(len(pixels), 1, 1)
    grids = []
    for row in maps:
        across, down, shift = (ones * (value[:, None, None] if isinstance(value, Tensor) else value) for value in row)
        grids.append(across * line + down * line[:, None] + shift / CENTRE)
    grid = torch.stack(grids, dim=-1)
    return F.grid_sample(pixels[:, None], grid, mode="bilinear", padding_mode="zeros", align_corners=True)[:, 0]


def _shear(pixels: Tensor, angle: float, generator: Generator) -> Tensor:
    """Upright lines lean by the angle and grow longer by one over its cosine, as in the published program."""
    angles = angle * _signs(len(pixels), generator)
    return _affine(pixels, ((1.0, -angles.sin(), 0.0), (0.0, angles.cos(), 0.0)))


def _scale(pixels: Tensor, factor: float, _: Generator) -> Tensor:
    return _affine(pixels, ((1 / factor, 0.0, 0.0), (0.0, 1 / factor, 0.0)))


def _rotate(pixels: Tensor, angle: float, generator: Generator) -> Tensor:
    angles = angle * _signs(len(pixels), generator)
    return _affine(pixels, ((angles.cos(), -angles.sin(), 0.0), (angles.sin(), angles.cos(), 0.0)))


def _translate(pixels: Tensor, distance: float, generator: Generator) -> Tensor:
    right, down = (distance * _signs(len(pixels), generator) for _ in range(2))
    return _affine(pixels, ((1.0, 0.0, right), (0.0, 1.0, down)))


def _brightness(pixels: Tensor, amount: float, _: Generator) -> Tensor:
    return pixels + amount


def _stripe(pixels: Tensor, _: None, __: Generator) -> Tensor:
    left, right = STRIPE
    inverted = 1 - pixels
    inverted[..., left:right] = pixels[..., left:right]
    return inverted


def _fog(pixels: Tensor, level: tuple[float, float], generator: Generator) -> Tensor:
    amount, decay = level
    clouds = plasma_fractal(len(pixels), FOG_SIZE, decay, generator, pixels.device)[..., :IMAGE_SIZE, :IMAGE_SIZE]
    brightest = pixels.amax((1, 2), keepdim=True)
    return (pixels + amount * clouds) * brightest / (brightest + amount)


def _spatter(pixels: Tensor, level: tuple[float, float, float, float, float], generator: Generator) -> Tensor:
    mean, std, sigma, threshold, outline_sigma = level
    noise = torch.randn(pixels.shape, generator=generator, device=pixels.device)
    liquid = gaussian_filter(mean + std * noise, sigma)
    mud = gaussian_filter((liquid > threshold).to(pixels.dtype), outline_sigma)
    mud = mud.masked_fill(mud < MUD_COVERAGE, 0)
    return pixels * (1 - mud) + MUD * mud


def _dotted_line(pixels: Tensor, _: None, generator: Generator) -> Tensor:
    return pixels + dotted_lines(len(pixels), IMAGE_SIZE, generator)


def _zigzag(pixels: Tensor, _: None, generator: Generator) -> Tensor:
    return pixels + zigzags(len(pixels), IMAGE_SIZE, generator)


def _canny_edges(pixels: Tensor, _: None, __: Generator) -> Tensor:
    return edges(pixels).to(pixels.dtype)


class _Corruption(NamedTuple):
    apply: Callable[[Tensor, Any, Generator], Tensor]
    severity: int | None = None  # the one of MNIST-C
    levels: tuple[Any, ...] = (None,)


_TABLE: Final = {
    # expected photons of a white pixel
    "shot_noise": _Corruption(_shot_noise, 5, (60, 25, 12, 5, 3)),
    # share of pixels made black or white
    "impulse_noise": _Corruption(_impulse_noise, 4, (0.03, 0.06, 0.09, 0.17, 0.27)),
    # sigma of the blur, distance of swaps, rounds of swaps
    "glass_blur": _Corruption(_glass_blur, 1, ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))),
    # radius and sigma
    "motion_blur": _Corruption(_motion_blur, 1, ((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0))),
    # radians
    "shear": _Corruption(_shear, 2, (0.2, 0.4, 0.6, 0.8, 1.0)),
    # size of the result
    "scale": _Corruption(_scale, 3, (0.9, 0.8, 0.7, 0.6, 0.5)),
    # radians
    "rotate": _Corruption(_rotate, 2, (0.2, 0.4, 0.6, 0.8, 1.0)),
    # added to pixels between 0 and 1
    "brightness": _Corruption(_brightness, 5, (0.1, 0.2, 0.3, 0.4, 0.5)),
    # pixels, along both axes
    "translate": _Corruption(_translate, 3, (1.0, 2.0, 3.0, 4.0, 5.0)),
    "stripe": _Corruption(_stripe),
    # amount, and what the roughness is divided by from scale to scale
    "fog": _Corruption(_fog, 5, ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))),
    # mean and std of the liquid, sigma of its blur, threshold, sigma of the outline's blur
    "spatter": _Corruption(
        _spatter,
        4,
        (
            (0.65, 0.3, 4.0, 0.69, 0.6),
            (0.65, 0.3, 3.0, 0.68, 0.6),
            (0.65, 0.3, 2.0, 0.68, 0.5),
            (0.65, 0.3, 1.0, 0.65, 1.5),
            (0.67, 0.4, 1.0, 0.65, 1.5),
        ),
    ),
    "dotted_line": _Corruption(_dotted_line),
    "zigzag": _Corruption(_zigzag),
    "canny_edges": _Corruption(_canny_edges),
}

MNIST_CORRUPTIONS: Final[tuple[str, ...]] = tuple(_TABLE)
"""Their names, as the folders of MNIST-C have them and in its order; the folder ``identity`` is the test set itself."""

DEFAULT_SEVERITIES: Final[dict[str, int | None]] = {name: entry.severity for name, entry in _TABLE.items()}
"""The severity of MNIST-C; None for corruptions that have one strength only."""


def _level(name: str, corruption: _Corruption, severity: int | None) -> Any:
    if corruption.severity is None:
        if severity is not None:
            raise ValueError(f"`severity` must be None for {name}, which has one strength only, but got {severity!r}")
        return corruption.levels[0]
    chosen = corruption.severity if severity is None else whole("severity", severity, at_least=1)
    if chosen > len(corruption.levels):
        raise ValueError(f"`severity` must be a whole number from 1 to {len(corruption.levels)}, but got {severity!r}")
    return corruption.levels[chosen - 1]
