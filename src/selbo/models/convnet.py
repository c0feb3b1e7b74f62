"""A convolutional network with batch normalisation for small grey images."""

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.models.lenet import MNIST_SHAPE, build_convolution
from selbo.models.mlp import MLP


class ConvNet(nn.Module):
    """Five convolutions with batch normalisation, the larger of the paper's two networks for binary MNIST.

    Inputs have shape (B, 1, 28, 28), the output is logits, shape (B, K). The 3 x 3 convolutions have 16, 16, 64, 64 and
    64 channels, and each is followed by BatchNorm and ReLU; then 1024-128-128-K. As in the authors' code, the first
    four convolutions have no padding and the last is padded by 1, and max-pooling by 2 follows the second and the
    fifth, so that the maps measure 26, 24, 12 (pooled), 10, 8, 8 and 4 (pooled).

    Args:
        num_classes: K, at least 2.
        padded: Pad all convolutions by 1 and pool, rounded up, after the second, fourth and fifth: 28, 14, 7 and 4.
            This is not the authors' network, although all weights have the same shapes.
        width: Factor on the number of channels and hidden units, rounded down to at least one; below 1 for a quick
            trial.
        generator: Source of the initial weights; without one, torch's global state.

    Example:
        >>> net = ConvNet(generator=torch.Generator().manual_seed(0)).eval()
        >>> net(torch.zeros(3, 1, 28, 28)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        num_classes: int = 2,
        *,
        padded: bool = False,
        width: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = _checks.whole("num_classes", num_classes, at_least=2)
        factor = _checks.positive("width", width)
        layers: list[nn.Module] = []
        in_channels = 1
        pooled = (2, 4, 5) if padded else (2, 5)
        for number, channels in enumerate((16, 16, 64, 64, 64), start=1):
            out_channels = max(1, int(factor * channels))
            padding = 1 if padded or number == 5 else 0
            layers += [
                build_convolution(in_channels, out_channels, 3, padding=padding, generator=generator),
                nn.BatchNorm2d(out_channels),
                nn.ReLU(),
            ]
            if number in pooled:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
            in_channels = out_channels
        self.features = nn.Sequential(*layers)
        units = max(1, int(factor * 128))
        self.head = MLP((in_channels * 4 * 4, units, units, self.num_classes), generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits: (B, 1, 28, 28) -> (B, K)."""
        if inputs.shape[1:] != MNIST_SHAPE:
            raise ValueError(f"`inputs` must have shape (batch, 1, 28, 28), but got {tuple(inputs.shape)}")
        logits: Tensor = self.head(self.features(inputs))
        return logits
