"""Crop-and-flip for images, a whole batch at a time on its own device."""

import torch
from torch import Tensor
from torch.nn import functional as F

from selbo import _checks


def crop_and_flip(images: Tensor, *, padding: int = 4, generator: torch.Generator | None = None) -> Tensor:
    """Shift each image by up to ``padding`` pixels, zeros coming in from outside, and mirror half of them, by chance.

    Args:
        images: Shape (B, C, H, W).
        padding: Largest shift.
        generator: Where shifts and flips come from; torch's own if not given.

    Returns:
        Shape (B, C, H, W), each image with a shift and a flip of its own.
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
    # all four indices, no slice: the result is laid out as (B, C, H, W), which convolutions may rely on
    return padded[image[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]
