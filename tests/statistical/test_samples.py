"""Draws of weights have the right mean, variance and independence, and gradients that are right on average."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from selbo.nn import to_bayesian
from selbo.nn.gaussian import draw_noise, gaussians
from selbo.posteriors import forward_samples

Z = 5.0
MANY_Z = 6.0  # where one test makes hundreds of comparisons
F64 = torch.float64
BLOCK = 2**16  # numbers that are compared with as many others of the same sample


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


def assert_mean(draws: Tensor, expected: Tensor | float, z: float = Z) -> None:
    error = draws.std(0) / math.sqrt(len(draws))
    scores = ((draws.mean(0) - expected) / error).abs()
    assert scores.max() < z, f"|z| up to {scores.max():.1f}"


def assert_uncorrelated(one: Tensor, two: Tensor, z: float = Z) -> None:
    """Standardised draws of shape (N, ...) that belong together in pairs, entry by entry."""
    assert_mean(one * two, 0.0, z)


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


# --- noise of large networks ---


def large() -> nn.Module:
    """Two tensors of weights, 300 000 together."""
    layers = [nn.utils.skip_init(nn.Linear, *size, bias=False) for size in ((BLOCK // 8, 9), (BLOCK // 16, 55))]
    with torch.no_grad():
        for layer in layers:
            layer.weight.zero_()
    return to_bayesian(nn.ModuleList(layers))


def large_noise(seed: int, draws: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    """Two calls after each other: (2 S, P)."""
    parameters = gaussians(large().to(dtype))
    generator = torch.Generator().manual_seed(seed)
    noise = torch.cat([draw_noise(parameters, draws, generator) for _ in range(2)])
    assert noise.shape == (2 * draws, 9 * BLOCK // 8 + 55 * BLOCK // 16)
    assert noise.dtype == dtype
    return noise.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_standard_normal(dtype: torch.dtype, seed: int) -> None:
    noise = large_noise(seed, dtype=dtype)
    for each in (noise.T, noise[:, : 4 * BLOCK].reshape(-1, BLOCK).T):  # sample by sample, block by block
        assert_mean(each, 0.0, MANY_Z)
        assert_mean(each.square(), 1.0, MANY_Z)
        assert_mean(each**3, 0.0, MANY_Z)
        assert_mean(each**4, 3.0, MANY_Z)
        inside = (each.abs() < 1).double()
        assert_mean(inside, math.erf(math.sqrt(0.5)), MANY_Z)
        assert_mean((each > 3).double(), 0.5 * math.erfc(3 * math.sqrt(0.5)), MANY_Z)


def test_noise_is_independent_between_draws_calls_parameters_and_blocks(seed: int) -> None:
    noise = large_noise(seed)  # (6, P): three draws of one call, three of the next
    first, second = torch.triu_indices(6, 6, offset=1)
    for one, two in zip(first.tolist(), second.tolist(), strict=True):
        assert_uncorrelated(noise[one, :, None], noise[two, :, None], MANY_Z)
        assert_uncorrelated(noise[one, :, None].square() - 1, noise[two, :, None].square() - 1, MANY_Z)
        assert_uncorrelated(noise[one, 1:, None], noise[two, :-1, None], MANY_Z)
    split = 9 * BLOCK // 8
    weights, others = noise[:, :split], noise[:, split : 2 * split]
    assert_uncorrelated(weights.T, others.T, MANY_Z)  # of two parameters
    blocks = noise[:, : 4 * BLOCK].unflatten(1, (4, BLOCK))
    for lag in (1, 2, 3):
        assert_uncorrelated(blocks[:, lag:].flatten(0, 1).T, blocks[:, :-lag].flatten(0, 1).T, MANY_Z)
    for lag in (1, 2, 7):
        assert_uncorrelated(noise[:, lag:].T, noise[:, :-lag].T, MANY_Z)


def test_neighbouring_seeds_give_independent_noise(seed: int) -> None:
    one, two = (large_noise(each, draws=1) for each in (seed, seed + 1))
    assert_uncorrelated(one.T, two.T, MANY_Z)
    short: list[Tensor] = []
    for each in (seed, seed + 1):
        layer = nn.utils.skip_init(nn.Linear, 2**12, 1, bias=False)
        nn.init.zeros_(layer.weight)
        short.append(draw_noise(gaussians(to_bayesian(layer)), 40, torch.Generator().manual_seed(each)))
    assert_uncorrelated(short[0].flatten()[:, None], short[1].flatten()[:, None], MANY_Z)
    assert_mean(short[0].flatten()[:, None], 0.0, MANY_Z)
    assert_mean(short[0].flatten()[:, None].square(), 1.0, MANY_Z)
