"""A multilayer perceptron of any widths, and initialisation of its layers from a generator."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from selbo import _checks


def build_linear(in_features: int, out_features: int, *, generator: torch.Generator | None = None) -> nn.Linear:
    """Build a linear layer with torch's default initialisation, drawn from a generator.

    Args:
        in_features: Width of the input.
        out_features: Width of the output.
        generator: Source of the initial weights; without one, torch's global state.
    """
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, in_features, out_features, device=torch.get_default_device())
    draw_uniform(layer, generator=generator)
    return layer


def draw_uniform(layer: nn.Linear | nn.Conv2d, *, generator: torch.Generator | None = None) -> None:
    r"""Draw weights and biases in place from torch's default, $U(-1/\sqrt{n}, 1/\sqrt{n})$ with n inputs per unit.

    Args:
        layer: A linear or a convolutional layer with biases.
        generator: Source of the numbers; without one, torch's global state.
    """
    bound = 1 / math.sqrt(layer.weight[0].numel())
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)


class MLP(nn.Module):
    """A multilayer perceptron with ReLU, for vectors such as embeddings; (768, 128, 2) is the paper's SST-2 network.

    Inputs have shape (B, widths[0]), or (B, ...) with that many numbers per input, which are flattened. The output is
    logits, shape (B, widths[-1]). In training, dropout uses torch's global random state.

    Args:
        widths: Width of the input, of each hidden layer, and of the output.
        dropout: Probability of dropping a hidden unit in training, in [0, 1).
        generator: Source of the initial weights; without one, torch's global state.

    Example:
        >>> net = MLP((3, 5, 2), generator=torch.Generator().manual_seed(0))
        >>> net(torch.ones(4, 3)).shape
        torch.Size([4, 2])
        >>> [tuple(parameter.shape) for parameter in net.parameters()]
        [(5, 3), (5,), (2, 5), (2,)]
    """

    def __init__(
        self, widths: Sequence[int], *, dropout: float = 0.0, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if not isinstance(widths, Sequence) or len(widths) < 2:
            raise ValueError(f"`widths` must hold at least 2 numbers, of the input and the output, but got {widths!r}")
        self.widths = tuple(_checks.whole(f"widths[{i}]", width, at_least=1) for i, width in enumerate(widths))
        if dropout != 0:
            _checks.fraction("dropout", dropout, low=0, high=1, reason=", or be 0 for none")
        *hidden, last = itertools.pairwise(self.widths)
        layers: list[nn.Module] = []
        for pair in hidden:
            layers += [build_linear(*pair, generator=generator), nn.ReLU()]
            if dropout != 0:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, build_linear(*last, generator=generator))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits: (B, ...) -> (B, widths[-1])."""
        if math.prod(inputs.shape[1:]) != self.widths[0] or inputs.ndim < 2:
            raise ValueError(
                f"`inputs` must have shape (batch, {self.widths[0]}), or as many numbers per input in more dimensions, "
                f"but got shape {tuple(inputs.shape)}"
            )
        logits: Tensor = self.layers(inputs.flatten(1))
        return logits
