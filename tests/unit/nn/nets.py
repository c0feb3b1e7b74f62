"""Small networks of every kind, in float64, and what they compute with given weights, without `selbo`."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from selbo.nn import Relative, to_bayesian

BATCH = 3
DRAWS = 4
INIT = Relative(0.3, floor=0.05)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    def __init__(self, channels: int, stride: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Conv2d(channels, width, 1, stride=stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class Transformer(nn.Module):
    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(
            8, 2, dim_feedforward=12, dropout=0.0, batch_first=True, norm_first=norm_first
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x)).mean(1))


class Attention(nn.Module):
    """Self-attention with a padding mask and the attention weights in the output."""

    def __init__(self, batch_first: bool, **options: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.mix = nn.Linear(6, 6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=batch_first, **options)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.mix(x))
        mask = x[..., 0] > 0.2  # differs between draws
        mask[:, 0] = False
        tokens = x if self.batch_first else x.transpose(0, 1)
        y, weights = self.attention(tokens, tokens, tokens, mask, average_attn_weights=False)
        y = y if self.batch_first else y.transpose(0, 1)
        return self.head(y.mean(1)) + weights.square().mean((1, 2, 3)).unsqueeze(1)


class CrossAttention(nn.Module):
    """Keys and values of other widths and another length than the queries, all arguments by name."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(6, 6)
        self.attention = nn.MultiheadAttention(4, 2, kdim=3, vdim=6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.mix(x))
        mask = x[:, 1:, 0] > 0.2  # differs between draws
        mask[:, 0] = False
        query, key, value = x[:, :2, :4], x[:, 1:, :3], x[:, 1:]
        y, weights = self.attention(
            query=query, key=key, value=value, key_padding_mask=mask, need_weights=False, attn_mask=None
        )
        assert weights is None
        return y.sum(1)


class OutputSize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up1 = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(3, 2, (3, 2), stride=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.up1(x, [8, 6]))
        return self.up2(y, output_size=[18, 19]).mean(2)


class SharedLayer(nn.Module):
    """One layer called twice, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = self.first
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class TiedWeights(nn.Module):
    """Input and output embeddings are one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.mix = nn.Linear(4, 4)
        self.head = nn.Linear(4, 11)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.embed(x).mean(1))))


class Recurrent(nn.Module):
    """A recurrent cell by hand: the same layers for every step."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(5, 4)
        self.state = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 4)
        for step in range(x.shape[1]):
            state = torch.tanh(self.inputs(x[:, step]) + self.state(state))
        return state


def real(*shape: int) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.randn(BATCH, *shape, generator=generator, dtype=torch.float64)


def tokens(length: int) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.randint(0, 11, (BATCH, length), generator=generator)


def stack(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(1))


def twice(first: nn.Module, second: nn.Module) -> nn.Module:
    """The first layer meets the inputs of the network, the second one rows that differ between draws."""
    return stack(first, nn.Tanh(), second)


def padded(mode: str) -> Callable[[], nn.Module]:
    return lambda: twice(
        nn.Conv2d(2, 4, (3, 2), padding=(2, 1), padding_mode=mode), nn.Conv2d(4, 3, 3, padding=1, padding_mode=mode)
    )


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3, padding=1),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(10, 6),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Linear(6, 3),
    )


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(30, 7),
        nn.ReLU(),
        nn.Linear(7, 3),
    )


def resnet() -> nn.Module:
    pool = Apply(lambda x: x.mean((2, 3)))
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), Residual(4, 1, 4), Residual(4, 2, 6), pool, nn.Linear(6, 3))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.GroupNorm(2, 6), nn.Linear(6, 3))


def patches() -> nn.Module:
    """Patches become rows of the batch, and come back."""
    fold, unfold = Apply(lambda x: x.flatten(0, 1)), Apply(lambda x: x.unflatten(0, (-1, 4)).mean(1))
    return nn.Sequential(fold, nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3), unfold)


Builder = Callable[[], nn.Module]
NETS: dict[str, tuple[Builder, Callable[[torch.Generator], Tensor]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 3)), real(5)),
    "linear without bias": (lambda: twice(nn.Linear(5, 7, bias=False), nn.Linear(7, 3, bias=False)), real(5)),
    "linear of sequences": (lambda: twice(nn.Linear(5, 7), nn.Linear(7, 3)), real(2, 6, 5)),
    "a single layer": (lambda: nn.Linear(5, 3), real(5)),
    "layer norm": (normalised, real(5)),
    "lenet": (lenet, real(1, 8, 10)),
    "vgg": (vgg, real(2, 8, 4)),
    "resnet": (resnet, real(2, 6, 7)),
    "transformer": (Transformer, tokens(5)),
    "transformer, norm first": (lambda: Transformer(norm_first=True), tokens(5)),
    "conv1d": (lambda: twice(nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.Conv1d(4, 3, 2)), real(2, 9)),
    "conv2d": (
        lambda: twice(nn.Conv2d(2, 4, (3, 2), stride=(2, 1)), nn.Conv2d(4, 3, (1, 2), padding=1)),
        real(2, 7, 5),
    ),
    "conv3d": (lambda: twice(nn.Conv3d(2, 3, (2, 1, 3)), nn.Conv3d(3, 2, (1, 2, 1), stride=2)), real(2, 3, 4, 5)),
    "conv without bias": (lambda: twice(nn.Conv2d(2, 4, 3, bias=False), nn.Conv2d(4, 3, 2, bias=False)), real(2, 6, 5)),
    "groups": (lambda: twice(nn.Conv2d(4, 6, 3, groups=2), nn.Conv2d(6, 6, 2, groups=6)), real(4, 6, 5)),
    "dilation": (lambda: twice(nn.Conv2d(2, 4, 3, dilation=(2, 1)), nn.Conv2d(4, 3, 2, dilation=2)), real(2, 7, 6)),
    "same": (lambda: twice(nn.Conv2d(2, 4, (3, 5), padding="same"), nn.Conv2d(4, 3, 3, padding="same")), real(2, 5, 6)),
    "circular": (padded("circular"), real(2, 5, 6)),
    "reflect": (padded("reflect"), real(2, 5, 6)),
    "replicate": (padded("replicate"), real(2, 5, 6)),
    "transposed 1d": (lambda: twice(nn.ConvTranspose1d(2, 4, 3, stride=2), nn.ConvTranspose1d(4, 3, 2)), real(2, 5)),
    "transposed 2d": (
        lambda: twice(
            nn.ConvTranspose2d(2, 4, (3, 2), stride=(2, 3), groups=2, output_padding=(1, 0)),
            nn.ConvTranspose2d(4, 3, 2, dilation=2, bias=False),
        ),
        real(2, 3, 4),
    ),
    "transposed 3d": (
        lambda: twice(nn.ConvTranspose3d(2, 3, (1, 2, 3)), nn.ConvTranspose3d(3, 1, 2)),
        real(2, 2, 3, 2),
    ),
    "output size": (OutputSize, real(2, 4, 3)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(11, 4), nn.Flatten(), nn.Linear(20, 3)), tokens(5)),
    "padding index": (
        lambda: nn.Sequential(nn.Embedding(11, 4, padding_idx=2), nn.Flatten(), nn.Linear(80, 3)),
        tokens(20),
    ),
    "attention": (lambda: Attention(batch_first=True), real(5, 6)),
    "attention, sequence first": (lambda: Attention(batch_first=False), real(5, 6)),
    "attention without bias": (lambda: Attention(batch_first=True, bias=False), real(5, 6)),
    "attention with bias_kv": (lambda: Attention(batch_first=True, add_bias_kv=True), real(5, 6)),
    "cross attention": (CrossAttention, real(5, 6)),
    "shared layer": (SharedLayer, real(5)),
    "tied weights": (TiedWeights, tokens(5)),
    "recurrent": (Recurrent, real(4, 5)),
    "patches": (patches, real(4, 5)),
}
WITH_BATCH_NORM = ("vgg", "resnet")
NAMES = tuple(NETS)


def build(name: str) -> tuple[nn.Module, Tensor]:
    """A plain network with no weight at zero and used normalisation statistics, in training mode; and inputs."""
    make, inputs = NETS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make().double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        for module in net.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.running_mean.copy_(0.3 * torch.randn(module.num_features, generator=generator))
                module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=generator))
    return net, inputs(generator)


def bayesian(name: str) -> tuple[nn.Module, nn.Module, Tensor]:
    """Plain network, Bayesian one, inputs."""
    net, inputs = build(name)
    return net, to_bayesian(net, init_std=INIT), inputs


def weight_names(net: nn.Module) -> list[str]:
    """Parameters that get a posterior, each once: all but those of normalisation layers."""
    norms = {
        f"{name}.{own}" for name, each in net.named_modules() if isinstance(each, NORMS) for own in each._parameters
    }
    return [name for name, _ in net.named_parameters() if name not in norms]


def expected_std(weights: Tensor) -> Tensor:
    return torch.maximum(0.3 * weights.abs(), torch.tensor(0.05, dtype=weights.dtype))


def noise_for(net: nn.Module, draws: int = DRAWS, seed: int = 2) -> Tensor:
    total = sum(net.get_parameter(name).numel() for name in weight_names(net))
    return torch.randn(draws, total, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def leaves(net: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and standard deviation of each weight, to differentiate by."""
    found = {}
    for name in weight_names(net):
        mean = net.get_parameter(name).detach().clone()
        found[name] = (mean.requires_grad_(), expected_std(mean.detach()).requires_grad_())
    return found


def reference(net: nn.Module, inputs: Tensor, noise: Tensor, of: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
    """The plain network with weights mean + std * noise, draw after draw: (S, B, ...)."""
    outputs = []
    for row in noise:
        weights, start = {}, 0
        for name, (mean, std) in of.items():
            stop = start + mean.numel()
            weights[name] = mean + std * row[start:stop].reshape(mean.shape)
            start = stop
        assert start == len(row)
        # a copy, since functional_call does not restore a layer that is there under two names
        outputs.append(functional_call(copy.deepcopy(net), weights, (inputs,)))
    return torch.stack(outputs)
