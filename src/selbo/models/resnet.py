"""ResNet-20 with filter response normalisation for small colour images."""

from itertools import pairwise
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selbo import _checks
from selbo.models.vgg import CIFAR_SHAPE

RESNET_STAGES: Final = (16, 32, 64)
"""Channels of the three stages, each of which halves the image but the first."""

BLOCKS: Final = 3
"""Residual blocks per stage: 3 stages x 3 blocks x 2 convolutions, the first convolution and the last layer make 20."""


class FilterResponseNorm(nn.Module):
    r"""Filter response normalisation (Singh and Krishnan, CVPR 2020, https://arxiv.org/abs/1911.09737).

    Each channel of each image is divided by its root mean square, $y = \gamma x / \sqrt{\nu^2 + \epsilon} + \beta$ with
    $\nu^2$ the mean of $x^2$ over the pixels. Unlike BatchNorm, predictions for an input do not depend on other inputs,
    and there are no running statistics, so that a likelihood is defined for every sample of the weights.

    Args:
        channels: Number of channels.
        epsilon: Added to the mean square.

    Example:
        >>> FilterResponseNorm(2)(torch.full((1, 2, 4, 4), 3.0)).mean().round().item()
        1.0
    """

    def __init__(self, channels: int, *, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise (B, C, H, W)."""
        exact = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        scale = self.weight[:, None, None] * (exact.square().mean((2, 3), keepdim=True) + self.epsilon).rsqrt()
        return (exact * scale + self.bias[:, None, None]).to(inputs.dtype)


class ResNet20(nn.Module):
    """ResNet-20 with filter response normalisation and SiLU, a network that samplers are compared on.

    Inputs have shape (B, 3, 32, 32), the output is logits, shape (B, K). A 3 x 3 convolution with 16 channels, three
    stages of three residual blocks with 16, 32 and 64 channels, the mean over the pixels, and a linear layer. Shortcuts
    between stages are 1 x 1 convolutions. It has no BatchNorm and no dropout, so the likelihood of the weights is well
    defined (Wenzel et al., 2020; Izmailov et al., 2021). Weights are initialised from Kaiming's normal distribution,
    biases with 0.

    Args:
        num_classes: K, at least 2.
        width: Factor on the number of channels, rounded down to at least one; below 1 for a quick trial.
        generator: Source of the initial weights; without one, torch's global state.

    Example:
        >>> net = ResNet20(generator=torch.Generator().manual_seed(0))
        >>> net(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
    """

    def __init__(self, num_classes: int = 10, *, width: float = 1.0, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.num_classes = _checks.whole("num_classes", num_classes, at_least=2)
        factor = _checks.positive("width", width)
        stages = [max(1, int(factor * channels)) for channels in RESNET_STAGES]
        self.first = _convolution(CIFAR_SHAPE[0], stages[0], generator)
        self.norm = FilterResponseNorm(stages[0])
        blocks = [_Block(stages[0], stages[0], generator) for _ in range(BLOCKS)]
        for before, channels in pairwise(stages):
            blocks.append(_Block(before, channels, generator, stride=2))
            blocks += [_Block(channels, channels, generator) for _ in range(BLOCKS - 1)]
        self.blocks = nn.Sequential(*blocks)
        device = torch.get_default_device()
        self.head: nn.Linear = nn.utils.skip_init(nn.Linear, stages[-1], self.num_classes, device=device)
        _initialise(self.head, generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits: (B, 3, 32, 32) -> (B, K)."""
        if inputs.shape[1:] != CIFAR_SHAPE:
            raise ValueError(f"`inputs` must have shape (batch, 3, 32, 32), but got {tuple(inputs.shape)}")
        features = self.blocks(F.silu(self.norm(self.first(inputs))))
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


class _Block(nn.Module):
    """Two convolutions with a shortcut, which is a convolution if the shape changes."""

    def __init__(self, in_channels: int, channels: int, generator: torch.Generator | None, *, stride: int = 1) -> None:
        super().__init__()
        self.first = _convolution(in_channels, channels, generator, stride=stride)
        self.norm_first = FilterResponseNorm(channels)
        self.second = _convolution(channels, channels, generator)
        self.norm_second = FilterResponseNorm(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = _convolution(in_channels, channels, generator, size=1, stride=stride)

    def forward(self, inputs: Tensor) -> Tensor:
        through = self.norm_second(self.second(F.silu(self.norm_first(self.first(inputs)))))
        return F.silu(through + self.shortcut(inputs))


def _convolution(
    in_channels: int, channels: int, generator: torch.Generator | None, *, size: int = 3, stride: int = 1
) -> nn.Conv2d:
    layer: nn.Conv2d = nn.utils.skip_init(
        nn.Conv2d, in_channels, channels, size, stride, padding=size // 2, device=torch.get_default_device()
    )
    _initialise(layer, generator)
    return layer


def _initialise(layer: nn.Conv2d | nn.Linear, generator: torch.Generator | None) -> None:
    nn.init.kaiming_normal_(layer.weight, generator=generator)
    nn.init.zeros_(layer.get_parameter("bias"))
