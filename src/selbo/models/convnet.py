"""A convolutional network with batch normalisation for small grey images."""

import torch
from torch import Tensor, nn

from selbo import checks
from selbo.models.lenet import IMAGE_SHAPE, convolution
from selbo.models.mlp import MLP


class ConvNet(nn.Module):
    """Five convolutions with batch normalisation, the larger of the paper's two networks for binary MNIST.

    Inputs have shape (B, 1, 28, 28), the output is logits, shape (B, K). The 3 x 3 convolutions have 16, 16, 64, 64 and
    64 channels, are padded by 1, and are each followed by BatchNorm and ReLU; then 1024-128-128-K. The paper does not
    say where it pools. Here a max-pooling by 2, rounded up, follows the second, fourth and fifth convolution, so that
    the maps measure 28, 14, 7 and 4.

    Args:
        num_classes: K, at least 2.
        generator: Source of the initial weights; without one, torch's global state.

    Example:
        >>> net = ConvNet(generator=torch.Generator().manual_seed(0)).eval()
        >>> net(torch.zeros(3, 1, 28, 28)).shape
        torch.Size([3, 2])
    """

    def __init__(self, num_classes: int = 2, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.num_classes = checks.whole("num_classes", num_classes, at_least=2)
        layers: list[nn.Module] = []
        in_channels = 1
        # Rounding up leaves 1024 features, which agrees with the network of the paper's code: there the KL summed over
        # weights is 14 600 times the one averaged in each tensor, and that is the number of weights over 16 tensors.
        for out_channels, pooled in ((16, False), (16, True), (64, False), (64, True), (64, True)):
            layers += [
                convolution(in_channels, out_channels, 3, padding=1, generator=generator),
                nn.BatchNorm2d(out_channels),
                nn.ReLU(),
            ]
            if pooled:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
            in_channels = out_channels
        self.features = nn.Sequential(*layers)
        self.head = MLP((64 * 4 * 4, 128, 128, self.num_classes), generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits: (B, 1, 28, 28) -> (B, K)."""
        if inputs.shape[1:] != IMAGE_SHAPE:
            raise ValueError(f"`inputs` must have shape (batch, 1, 28, 28), but got {tuple(inputs.shape)}")
        logits: Tensor = self.head(self.features(inputs))
        return logits
