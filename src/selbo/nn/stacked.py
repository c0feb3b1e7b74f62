"""Linear layers, convolutions and embeddings with S sets of weights at once, one per block of rows."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

SMALL_CONVOLUTION: Final = 2**22
"""Number of products below which call overhead dominates a convolution, so that one call for all samples is faster."""


def linear(inputs: Tensor, samples: dict[str, Tensor], num_samples: int, *, shared: bool) -> Tensor:
    """Linear layer with S weights: maps S blocks of rows, or the same ``shared`` rows for all, to S blocks."""
    weight, bias = samples["weight"], samples.get("bias")
    if shared:  # one matrix product
        outputs = F.linear(inputs, weight.flatten(0, 1), None if bias is None else bias.flatten())
        by_sample: Tensor = outputs.unflatten(-1, (num_samples, -1)).movedim(-2, 0)  # (S, B, ..., out)
        return by_sample.flatten(0, 1).contiguous()  # for one input it would be a view with distant rows
    blocks = inputs.reshape(num_samples, -1, inputs.shape[-1])
    transposed = weight.transpose(1, 2)
    outputs = blocks @ transposed if bias is None else torch.baddbmm(bias.unsqueeze(1), blocks, transposed)
    return outputs.reshape(*inputs.shape[:-1], -1)


def convolution(
    plain: nn.Module, inputs: Tensor, samples: dict[str, Tensor], num_samples: int, *, shared: bool
) -> Tensor:
    """Convolution of any dimension with S kernels: maps S blocks of rows, or ``shared`` rows, to S blocks."""
    weight, bias = samples["weight"], samples.get("bias")
    if shared:  # one convolution with S times the channels
        outputs = convolve(plain, inputs, weight.flatten(0, 1), None if bias is None else bias.flatten())
        return _channels_to_rows(outputs, num_samples)
    size = inputs.numel() // num_samples * weight[0, :, 0].numel()  # approximate number of products per sample
    if inputs.device.type == "cpu" and size < SMALL_CONVOLUTION:
        return _samples_as_groups(plain, inputs, weight, bias)
    # One sample after the other: one grouped convolution for all samples is slower on GPU and CPU (VGG11's layers, four
    # samples of 64 images, forward and backward on two Neoverse-N1 cores: 287, 732, 1555 and 3020 ms against 246, 657,
    # 1443 and 2848 ms).
    blocks = [
        convolve(plain, block, weight[s], None if bias is None else bias[s])
        for s, block in enumerate(inputs.chunk(num_samples))
    ]
    return torch.cat(blocks)


def _samples_as_groups(plain: nn.Module, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    assert isinstance(plain, CONVOLUTIONS)
    num_samples = len(weight)
    side_by_side = inputs.unflatten(0, (num_samples, -1)).transpose(0, 1).flatten(1, 2)  # (B, S C, ...)
    stacked, offsets = weight.flatten(0, 1), None if bias is None else bias.flatten()
    function: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[stacked.ndim - 3]
    settings = (plain.stride, plain.padding, plain.dilation, num_samples * plain.groups)
    return _channels_to_rows(function(side_by_side, stacked, offsets, *settings), num_samples)


def _channels_to_rows(outputs: Tensor, num_samples: int) -> Tensor:
    """Move samples from the channels, (B, S C, ...), to S blocks of rows, (S B, C, ...), in the same memory format."""
    if outputs.ndim == 4 and outputs.stride(1) == 1:  # channels-last; works inside torch.vmap, unlike `is_contiguous`
        # on a GPU, BatchNorm takes six times as long in the other format (lab/docs/reference/performance-lab.md)
        by_place = outputs.permute(0, 2, 3, 1).unflatten(-1, (num_samples, -1))  # (B, H, W, S, C)
        rows: Tensor = by_place.permute(3, 0, 1, 2, 4).flatten(0, 1).permute(0, 3, 1, 2)
    else:
        rows = outputs.unflatten(1, (num_samples, -1)).transpose(0, 1).flatten(0, 1)
    return rows


def convolve(plain: nn.Module, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Convolution with the settings of a layer, zero padding and the given weights."""
    assert isinstance(plain, CONVOLUTIONS)
    function: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[weight.ndim - 3]
    return function(inputs, weight, bias, plain.stride, plain.padding, plain.dilation, plain.groups)


def only_looks_up(plain: nn.Embedding) -> bool:
    """Whether an embedding has none of the settings that change its rows or their gradients."""
    return plain.max_norm is None and plain.padding_idx is None and not plain.scale_grad_by_freq


def embedding(plain: nn.Embedding, inputs: Tensor, samples: dict[str, Tensor], num_samples: int) -> Tensor:
    """Look-up in S concatenated embedding tables."""
    first = torch.arange(num_samples, device=inputs.device) * plain.num_embeddings
    shifted = inputs.unflatten(0, (num_samples, -1)) + first.reshape(-1, *[1] * inputs.ndim)
    return F.embedding(shifted.flatten(0, 1), samples["weight"].flatten(0, 1))
