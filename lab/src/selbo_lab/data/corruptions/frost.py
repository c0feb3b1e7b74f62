"""Ice on a window, drawn by numbers: textures that stand for the photographs of the published frost."""

import math
from functools import lru_cache
from typing import Final

import torch
from torch import Generator, Tensor

from selbo.random import generator_for

TEXTURE_SIZE: Final = 256
"""Side of a texture; the published photographs are about as large when they are used."""
COUNT: Final = 5
TEXTURE_SEED: Final = 20190328
"""The textures are always the same, as photographs are. The number has no meaning."""
OCTAVES: Final = (6.0, 12.0, 24.0)
"""Crystals a texture is wide at each scale, from ferns to needles."""
PATCHES: Final = 2.0
"""Likewise of places with thick ice, or with needles of one direction."""
DIRECTIONS: Final = 6
"""Needles grow in this many directions, as ice has six."""
STRETCH: Final = 3.0
"""How much longer a needle is than wide."""
COLOUR: Final = (0.86, 0.94, 1.0)
"""A cold white: red, green, blue."""
ICE_BRIGHTNESS: Final = (0.05, 1.0)
"""Brightness of clear glass and of thick ice.

With the scales above, chosen by the accuracy of a plain network on the test images, so that frost is on average a
little harder than snow, as people report of the published files. How hard frost is here is therefore no evidence.
"""


@lru_cache(maxsize=1)
def textures() -> Tensor:
    """All textures, bytes, shape (COUNT, 3, SIZE, SIZE)."""
    return torch.stack([_texture(generator_for(TEXTURE_SEED, "frost", index)) for index in range(COUNT)])


def crops(count: int, size: int, generator: Generator, device: torch.device) -> Tensor:
    """Squares cut from the textures at random, between 0 and 1, shape (count, 3, size, size)."""
    which = torch.randint(COUNT, (count,), generator=generator, device=device)
    rows, columns = torch.randint(TEXTURE_SIZE - size, (2, count, 1), generator=generator, device=device)
    place = torch.arange(size, device=device)
    pixels = textures().to(device).permute(0, 2, 3, 1)
    cut = pixels[which[:, None, None], (rows + place)[:, :, None], (columns + place)[:, None, :]]
    return cut.permute(0, 3, 1, 2).float() / 255


def _texture(generator: Generator) -> Tensor:
    """Ridges of noise at several scales and directions, thick in some places and thin in others."""
    ice = torch.zeros(TEXTURE_SIZE, TEXTURE_SIZE)
    turn = torch.rand((), generator=generator).item()
    for octave, waves in enumerate(OCTAVES):
        ridges = torch.zeros(TEXTURE_SIZE, TEXTURE_SIZE)
        for direction in range(DIRECTIONS):
            angle = math.pi * (turn + direction / DIRECTIONS + 0.1 * octave)
            noise = _noise(waves, generator, angle=angle, stretch=STRETCH)
            grows = _noise(PATCHES, generator) > 0.3
            ridges = torch.maximum(ridges, (1 - 2 * noise.abs()).clamp_min(0) * grows)
        ice += ridges**2 / (1 + 0.35 * octave)
    thickness = torch.sigmoid(2 * _noise(PATCHES, generator) + 0.3)
    ice = torch.tanh(1.1 * ice) * (0.35 + 0.65 * thickness) + 0.25 * thickness
    low, high = ice.quantile(0.01), ice.quantile(0.99)
    shade = ICE_BRIGHTNESS[0] + (ICE_BRIGHTNESS[1] - ICE_BRIGHTNESS[0]) * ((ice - low) / (high - low)).clamp(0, 1)
    tint = torch.tensor(COLOUR)[:, None, None]
    return (shade * (tint + (1 - tint) * shade) * 255).round().to(torch.uint8)  # thick ice is white


def _noise(waves: float, generator: Generator, *, angle: float = 0.0, stretch: float = 1.0) -> Tensor:
    """Smooth normal noise without seams, mean 0 and variance 1, about `waves` waves wide and longer along the angle."""
    spectrum = torch.fft.fft2(torch.randn(TEXTURE_SIZE, TEXTURE_SIZE, generator=generator))
    frequency = torch.fft.fftfreq(TEXTURE_SIZE) * TEXTURE_SIZE
    along = frequency * math.cos(angle) + frequency[:, None] * math.sin(angle)
    across = frequency[:, None] * math.cos(angle) - frequency * math.sin(angle)
    weight = torch.exp(-0.5 * ((stretch * along) ** 2 + across**2) / waves**2)
    noise: Tensor = torch.fft.ifft2(spectrum * weight).real
    return (noise - noise.mean()) / noise.std()
