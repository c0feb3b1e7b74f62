"""Crop-and-flip augmentation for images, for a whole batch on its device."""

import torch
from torch import Tensor
from torch.nn import functional as F

from selbo import _checks


def crop_and_flip(images: Tensor, *, padding: int = 4, generator: torch.Generator | None = None) -> Tensor:
    """Shift each image at random by up to ``padding`` pixels, padded with zeros, and mirror it with probability 0.5.

    Args:
        images: Shape (B, C, H, W).
        padding: Largest shift, in pixels.
        generator: Source of shifts and flips; torch's default generator if not given.

    Returns:
        Shape (B, C, H, W), with an independent shift and flip per image.
    """
    if images.ndim != 4:
        raise ValueError(f"`augment` needs images of shape (B, C, H, W), but got {tuple(images.shape)}")
    _checks.whole("padding", padding, at_least=0)
    count, channels, height, width = images.shape
    device = images.device
    shifts = torch.randint(2 * padding + 1, (2, count, 1), generator=generator, device=device)
    mirrored = torch.randint(2, (count, 1), generator=generator, device=device).bool()
    rows = shifts[0] + torch.arange(height, device=device)  # (B, H)
    columns = torch.arange(width, device=device).expand(count, width)
    columns = shifts[1] + torch.where(mirrored, columns.flip(1), columns)  # (B, W)
    padded = F.pad(images, (padding,) * 4)
    image, channel = torch.arange(count, device=device), torch.arange(channels, device=device)
    # index all four dimensions, without slices: the result is contiguous as (B, C, H, W), as convolutions may expect
    return padded[image[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]
