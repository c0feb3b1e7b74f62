"""LeNet for small grey images: two convolutions with pooling, then three linear layers."""

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.models.mlp import MLP, draw_uniform

MNIST_SHAPE = (1, 28, 28)
"""Channels, height and width of an MNIST image."""


def build_convolution(
    in_channels: int, out_channels: int, kernel_size: int, *, padding: int, generator: torch.Generator | None = None
) -> nn.Conv2d:
    """Build a convolution with torch's default initialisation, drawn from a generator.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Height and width of the kernel.
        padding: Zeros added on each side.
        generator: Source of the initial weights; without one, torch's global state.
    """
    layer: nn.Conv2d = nn.utils.skip_init(
        nn.Conv2d, in_channels, out_channels, kernel_size, padding=padding, device=torch.get_default_device()
    )
    draw_uniform(layer, generator=generator)
    return layer


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max-pooling, the smaller of the paper's two networks for binary MNIST.

    Inputs have shape (B, 1, 28, 28), the output is logits, shape (B, K). Two 5 x 5 convolutions have 6 and 16 channels
    and no padding, as in the authors' code, so that the maps measure 24, 12 (pooled), 8 and 4 (pooled); then
    256-120-84-K.

    Args:
        num_classes: K, at least 2.
        generator: Source of the initial weights; without one, torch's global state.

    Example:
        >>> net = LeNet(generator=torch.Generator().manual_seed(0))
        >>> net(torch.zeros(3, 1, 28, 28)).shape
        torch.Size([3, 2])
    """

    def __init__(self, num_classes: int = 2, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.num_classes = _checks.whole("num_classes", num_classes, at_least=2)
        self.features = nn.Sequential(
            build_convolution(1, 6, 5, padding=0, generator=generator),
            nn.ReLU(),
            nn.MaxPool2d(2),
            build_convolution(6, 16, 5, padding=0, generator=generator),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = MLP((16 * 4 * 4, 120, 84, self.num_classes), generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits: (B, 1, 28, 28) -> (B, K)."""
        if inputs.shape[1:] != MNIST_SHAPE:
            raise ValueError(f"`inputs` must have shape (batch, 1, 28, 28), but got {tuple(inputs.shape)}")
        logits: Tensor = self.head(self.features(inputs))
        return logits
