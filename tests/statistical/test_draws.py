"""Draws of weights have the right mean, variance and independence, and gradients that are right on average."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from selbo.nn import forward_samples, to_bayesian
from selbo.nn.gaussian import gaussians

Z = 5.0
F64 = torch.float64


def network(init_std: float, *, hidden: bool = False) -> nn.Module:
    """Logits that are the weights themselves, given `exposing()`: 3 units of 4 inputs."""
    layer = nn.utils.skip_init(nn.Linear, 4, 3, dtype=F64)
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(-2, 3, 12, dtype=F64).reshape(3, 4))
        layer.bias.copy_(torch.tensor([0.5, -1.0, 4.0], dtype=F64))
    # a layer in front of it takes another path: rows then differ between draws
    return to_bayesian(nn.Sequential(nn.Identity(), Offset(), layer) if hidden else layer, init_std=init_std)


class Offset(nn.Module):
    """A new tensor of the same values."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.0


def exposing() -> Tensor:
    """Zeros for the bias alone, and one row for each input: (5, 4)."""
    return torch.cat([torch.zeros(1, 4, dtype=F64), torch.eye(4, dtype=F64)])


def drawn_weights(bnn: nn.Module, draws: int, generator: torch.Generator) -> Tensor:
    """Draws of all weights of the network, bias last: (draws, 15)."""
    logits = forward_samples(bnn, exposing(), draws, generator=generator).detach()  # (S, 5, 3)
    bias = logits[:, 0]
    weight = (logits[:, 1:] - bias[:, None]).transpose(1, 2)
    return torch.cat([weight.flatten(1), bias], 1)


def assert_mean(draws: Tensor, expected: Tensor | float) -> None:
    error = draws.std(0) / math.sqrt(len(draws))
    scores = ((draws.mean(0) - expected) / error).abs()
    assert scores.max() < Z, f"|z| up to {scores.max():.1f}"


def assert_uncorrelated(one: Tensor, two: Tensor) -> None:
    """Standardised draws of shape (N, ...) that belong together in pairs, entry by entry."""
    assert_mean(one * two, 0.0)


EXPECTED_MEAN = torch.cat([torch.linspace(-2, 3, 12, dtype=F64), torch.tensor([0.5, -1.0, 4.0], dtype=F64)])


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("std", [0.05, 2.0])
def test_mean_and_variance_of_weights(std: float, hidden: bool, seed: int) -> None:
    weights = drawn_weights(network(std, hidden=hidden), 4000, torch.Generator().manual_seed(seed))
    assert_mean(weights, EXPECTED_MEAN)
    deviations = weights - EXPECTED_MEAN
    assert_mean(deviations.square(), std**2)
    assert_mean((deviations / std) ** 3, 0.0)
    # the fourth moment of a normal variable, pooled: its own average is far from normal at this number of draws
    assert_mean(((deviations / std) ** 4).flatten()[:, None], 3.0)


@pytest.mark.parametrize("hidden", [False, True])
def test_weights_of_one_draw_are_independent(hidden: bool, seed: int) -> None:
    z = (drawn_weights(network(0.7, hidden=hidden), 4000, torch.Generator().manual_seed(seed)) - EXPECTED_MEAN) / 0.7
    first, second = torch.triu_indices(15, 15, offset=1)
    assert_uncorrelated(z[:, first], z[:, second])


def wide(mean: float, std: float, units: int, *, hidden: bool) -> nn.Module:
    """One input, and many units that are alike: as many independent experiments."""
    layer = nn.utils.skip_init(nn.Linear, 1, units, bias=False, dtype=F64)
    nn.init.constant_(layer.weight, mean)
    return to_bayesian(nn.Sequential(Offset(), layer) if hidden else layer, init_std=std)


@pytest.mark.parametrize("hidden", [False, True])
def test_draws_are_independent_in_a_call_and_between_calls(hidden: bool, seed: int) -> None:
    generator, bnn = torch.Generator().manual_seed(seed), wide(-1.5, 0.7, 10_000, hidden=hidden)
    one = torch.ones(1, 1, dtype=F64)
    calls = [forward_samples(bnn, one, 3, generator=generator, chunk_size=size) for size in (None, 2, 1)]
    z = (torch.cat(calls)[:, 0].detach().T + 1.5) / 0.7  # (units, 9)
    first, second = torch.triu_indices(9, 9, offset=1)
    assert_uncorrelated(z[:, first], z[:, second])
    assert_uncorrelated(z[:, first].square() - 1, z[:, second].square() - 1)
    assert_uncorrelated(z[1:, first], z[:-1, second])  # nor with a neighbour


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("draws", [1, 3])
def test_gradients_are_unbiased(draws: int, hidden: bool, seed: int) -> None:
    """E (w x)^2 = (mu^2 + s^2) x^2: slopes 2 mu x^2 and 2 s x^2."""
    s, x = 0.6, 1.3
    generator = torch.Generator().manual_seed(seed)
    for mu in (0.8, -1.7):
        bnn = wide(mu, s, 10_000, hidden=hidden)
        (posterior,) = gaussians(bnn)
        logits = forward_samples(bnn, torch.tensor([[x]], dtype=F64), draws, generator=generator)
        by_mean, by_rho = torch.autograd.grad(logits.square().mean(0).sum(), [posterior.mean, posterior.rho])
        by_std = by_rho / torch.sigmoid(posterior.rho.detach())  # slope of softplus
        assert_mean(by_mean, 2 * mu * x**2)
        assert_mean(by_std, 2 * s * x**2)
        # (2 x^2)^2 s^2 / S: draws are averaged, not repeated
        assert_mean((by_mean - 2 * mu * x**2).square(), (2 * x**2 * s) ** 2 / draws)
