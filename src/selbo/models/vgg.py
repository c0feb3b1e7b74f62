"""VGG11 with batch normalisation for small colour images, and its initialisation."""

from typing import Final

import torch
from torch import Tensor, nn

from selbo import _checks

STAGES: Final = ((64,), (128,), (256, 256), (512, 512), (512, 512))
"""Channels of the convolutions before each max-pooling; five poolings reduce 32 pixels to one."""

CIFAR_SHAPE: Final = (3, 32, 32)
"""Channels, height and width of a CIFAR image."""

HEAD_WIDTH: Final = 4096
"""Units in each of the two hidden layers after the convolutions, as in VGG for large images."""

HEAD_STD: Final = 0.01
"""Standard deviation of the initial weights of the linear layers, the value of the paper's code."""


class VGG11(nn.Module):
    """VGG11 with batch normalisation, the paper's network for CIFAR-10 and its imbalanced variant.

    Inputs have shape (B, 3, 32, 32), the output is logits, shape (B, K). The 3 x 3 convolutions have 64, 128, 256, 256
    and four times 512 channels, each followed by BatchNorm and ReLU; then 512-4096-4096-K with ReLU and dropout .5.
    Convolutions are initialised from Kaiming's normal distribution (fan-out), linear layers from a normal distribution
    of standard deviation .01, and biases with 0. In training, dropout uses torch's global random state.

    Args:
        num_classes: K, at least 2.
        width: Factor on the number of channels and hidden units, rounded down to at least one; below 1 for a quick
            trial.
        generator: Source of the initial weights; without one, torch's global state.

    Example:
        >>> net = VGG11(generator=torch.Generator().manual_seed(0)).eval()
        >>> net(torch.zeros(1, 3, 32, 32)).shape
        torch.Size([1, 10])
        >>> sum(parameter.numel() for parameter in net.parameters())
        28149514
    """

    def __init__(self, num_classes: int = 10, *, width: float = 1.0, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.num_classes = _checks.whole("num_classes", num_classes, at_least=2)
        factor = _checks.positive("width", width)
        layers: list[nn.Module] = []
        in_channels = CIFAR_SHAPE[0]
        for stage in STAGES:
            for channels in stage:
                out_channels = max(1, int(factor * channels))
                layers += [
                    _convolution(in_channels, out_channels, generator),
                    nn.BatchNorm2d(out_channels),
                    nn.ReLU(),
                ]
                in_channels = out_channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        units = max(1, int(factor * HEAD_WIDTH))
        self.head = nn.Sequential(
            _linear(in_channels, units, generator),
            nn.ReLU(),
            nn.Dropout(0.5),
            _linear(units, units, generator),
            nn.ReLU(),
            nn.Dropout(0.5),
            _linear(units, self.num_classes, generator),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits: (B, 3, 32, 32) -> (B, K)."""
        if inputs.shape[1:] != CIFAR_SHAPE:
            raise ValueError(f"`inputs` must have shape (batch, 3, 32, 32), but got {tuple(inputs.shape)}")
        logits: Tensor = self.head(self.features(inputs).flatten(1))
        return logits


def _convolution(in_channels: int, out_channels: int, generator: torch.Generator | None) -> nn.Conv2d:
    device = torch.get_default_device()
    layer: nn.Conv2d = nn.utils.skip_init(nn.Conv2d, in_channels, out_channels, 3, padding=1, device=device)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)
    nn.init.zeros_(layer.get_parameter("bias"))
    return layer


def _linear(in_features: int, out_features: int, generator: torch.Generator | None) -> nn.Linear:
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, in_features, out_features, device=torch.get_default_device())
    nn.init.normal_(layer.weight, std=HEAD_STD, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
