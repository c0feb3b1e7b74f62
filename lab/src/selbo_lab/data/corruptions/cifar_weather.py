"""The weather of CIFAR-10-C: snow, frost, fog, brightness and spatter."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Generator, Tensor

from selbo_lab.data.corruptions import filters, liquid
from selbo_lab.data.corruptions import frost as ice
from selbo_lab.data.corruptions.cifar_blur import uniform


@dataclass(frozen=True)
class Snow:
    """One severity of snow.

    Attributes:
        mean: Of the noise that flakes are cut from.
        std: Of the noise.
        zoom: Size of a flake.
        threshold: Noise below it is no flake.
        radius: Of the motion blur.
        sigma: Of the motion blur.
        colour: What is left of the image; the rest is turned pale.
    """

    mean: float
    std: float
    zoom: float
    threshold: float
    radius: float
    sigma: float
    colour: float


@dataclass(frozen=True)
class Spatter:
    """One severity of spatter.

    Attributes:
        mean: Of the noise that drops are cut from.
        std: Of the noise.
        sigma: Of the blur of the noise: size of a drop.
        threshold: Noise below it is no drop.
        strength: Of water; of mud the blur of its edge.
        mud: Whether it is mud.
    """

    mean: float
    std: float
    sigma: float
    threshold: float
    strength: float
    mud: bool = False


SNOW: Final = (
    Snow(0.1, 0.2, 1.0, 0.6, 8, 3, 0.95),
    Snow(0.1, 0.2, 1.0, 0.5, 10, 4, 0.9),
    Snow(0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
    Snow(0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
    Snow(0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
)
SNOW_ANGLES: Final = (-135.0, -45.0)
FROST: Final = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))
"""Weight of the image, and of the ice."""
FOG: Final = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))
"""Thickness, and decay of the fractal."""
BRIGHTNESS: Final = (0.05, 0.1, 0.15, 0.2, 0.3)
SPATTER: Final = (
    Spatter(0.62, 0.1, 0.7, 0.7, 0.5),
    Spatter(0.65, 0.1, 0.8, 0.7, 0.5),
    Spatter(0.65, 0.3, 1.0, 0.69, 0.5),
    Spatter(0.65, 0.1, 0.7, 0.69, 0.6, mud=True),
    Spatter(0.65, 0.1, 0.5, 0.68, 0.6, mud=True),
)
LUMA: Final = (0.299, 0.587, 0.114)
PALE_TURQUOISE: Final = (175, 238, 238)
MUD_BROWN: Final = (63, 42, 20)
MUD_THRESHOLD: Final = 0.8
CANNY: Final = (50.0, 150.0)
FARTHEST: Final = 20.0
"""Distances from the edge of a drop are cut off here."""
EMBOSS: Final = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
"""Light from one side."""


def snow(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Flakes that fall, the same from below again, over an image turned pale."""
    c = SNOW[severity - 1]
    layer = c.mean + c.std * _normal_layer(images, generator)
    layer = filters.clipped_zoom(layer, c.zoom)
    layer = filters.whole_levels(torch.where(layer < c.threshold, 0.0, layer).clamp(0, 1))
    angles = uniform(len(images), SNOW_ANGLES, generator, images.device)
    layer = (filters.motion_filter(layer, c.radius, c.sigma, angles) * 255).round() / 255
    weights = torch.tensor(LUMA, device=images.device, dtype=images.dtype).reshape(1, 3, 1, 1)
    grey = (images * weights).sum(1, keepdim=True)
    pale = torch.maximum(images, 1.5 * grey + 0.5)
    return c.colour * images + (1 - c.colour) * pale + layer + layer.flip(2, 3)


def frost(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Ice laid over the image."""
    image_weight, ice_weight = FROST[severity - 1]
    return image_weight * images + ice_weight * ice.crops(len(images), images.shape[-1], generator, images.device)


def fog(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """A fractal cloud added, then all scaled back to the brightness that the image had."""
    thickness, decay = FOG[severity - 1]
    size = images.shape[-1]
    clouds = filters.plasma_fractal(len(images), size, decay, generator, images.device)
    brightest = images.amax((1, 2, 3), keepdim=True)
    return (images + thickness * clouds[:, None]) * brightest / (brightest + thickness)


def brightness(images: Tensor, severity: int) -> Tensor:
    """The value of HSV raised; hue and saturation stay."""
    value = images.amax(1, keepdim=True)
    raised = (value + BRIGHTNESS[severity - 1]).clamp_max(1)
    return torch.where(value > 0, images * (raised / value.clamp_min(1e-6)), raised)


def spatter(images: Tensor, severity: int, generator: Generator) -> Tensor:
    """Drops of water with light on them, or flecks of mud."""
    c = SPATTER[severity - 1]
    layer = c.mean + c.std * _normal_layer(images, generator)
    layer = filters.gaussian_filter(layer, c.sigma)
    layer = torch.where(layer < c.threshold, 0.0, layer)
    if c.mud:
        cover = filters.gaussian_filter((layer > c.threshold).to(images.dtype), c.strength)
        cover = torch.where(cover < MUD_THRESHOLD, 0.0, cover)
        return images * (1 - cover) + cover * _colour(MUD_BROWN, images)
    return images + c.strength * _water((layer[:, 0] * 255).floor())[:, None] * _colour(PALE_TURQUOISE, images)


def _water(levels: Tensor) -> Tensor:
    """Light on drops, from 0 to 1 and with 1 somewhere, shape (B, H, W).

    The steps are the published ones. Distances are Euclidean to the pixel, where the original approximates them.
    """
    levels = levels.clamp(0, 255)
    distance = liquid.distance_to(liquid.canny(levels, *CANNY), most=FARTHEST)
    relief = liquid.equalised(liquid.box_mean(distance).floor())
    emboss = torch.tensor(EMBOSS, dtype=levels.dtype, device=levels.device)
    relief = filters.filter_each(relief[:, None], emboss)[:, 0].clamp(0, 255)
    light = levels * liquid.box_mean(relief).round()
    return light / light.amax((1, 2), keepdim=True).clamp_min(1)


def _colour(levels: tuple[int, int, int], images: Tensor) -> Tensor:
    return torch.tensor(levels, dtype=images.dtype, device=images.device).reshape(1, 3, 1, 1) / 255


def _normal_layer(images: Tensor, generator: Generator) -> Tensor:
    return torch.randn(len(images), 1, *images.shape[-2:], generator=generator, device=images.device)
