"""Samplers have the exact posterior where it is known: a Gaussian regression, and two weights with a summary on a grid.

All chains are rows of one parameter, so that samples are independent and z-scores are exact.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import selbo

Z = 6.0
F64 = torch.float64
N, PRIOR_STD, NOISE_STD = 30, 0.8, 0.5


def sampled(
    kind: str, log_likelihood: Callable[[Tensor], Tensor], seed: int, *, chains: int, steps: int, **settings: float
) -> Tensor:
    """Last states of many chains of an optimiser, which start at zero: (C, 2)."""
    weights = nn.Parameter(torch.zeros(chains, 2, dtype=F64))
    if kind == "SGHMC":
        optimizer = selbo.SGHMC([weights], num_data=N, seed=seed, momentum_decay=0.3, **settings)
    else:
        optimizer = selbo.SGLD([weights], num_data=N, seed=seed, **settings)
    for _ in range(steps):
        optimizer.zero_grad()
        (-log_likelihood(weights).sum() / N).backward()
        optimizer.step()
    return weights.detach()


# --- Gaussian linear regression ---


def regression(seed: int) -> tuple[Tensor, Tensor]:
    """Precision of the likelihood and its product with the estimate; inputs are random, with fixed second moments."""
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(N, 2, generator=generator, dtype=F64))
    inputs = N**0.5 * basis @ torch.tensor([[1.0, 0.5], [0.0, 0.8]], dtype=F64)
    labels = inputs @ torch.tensor([1.0, -0.5], dtype=F64)
    labels = labels + NOISE_STD * torch.randn(N, generator=generator, dtype=F64)
    return inputs.T @ inputs / NOISE_STD**2, inputs.T @ labels / NOISE_STD**2


def z_scores(samples: Tensor, precision: Tensor, linear: Tensor, temperature: float) -> Tensor:
    """Of the means and second moments of whitened samples, which are standard normal if the posterior is exact."""
    whitened = (samples - torch.linalg.solve(precision, linear)) @ torch.linalg.cholesky(precision) / temperature**0.5
    root = len(samples) ** 0.5
    first, second = whitened.T
    deviations = [(each.square().mean() - 1) / 2**0.5 for each in (first, second)]
    return root * torch.stack([first.mean(), second.mean(), *deviations, (first * second).mean()])


@pytest.mark.parametrize("temperature", [1.0, 0.25])
@pytest.mark.parametrize("kind", ["SGHMC", "SGLD", "cyclical SGLD"])
def test_regression_has_the_exact_posterior(kind: str, temperature: float, seed: int) -> None:
    quadratic, linear = regression(seed)
    precision = quadratic + torch.eye(2, dtype=F64) / PRIOR_STD**2
    steps, rate, settings = {
        "SGHMC": (600, 0.02, {}),
        "SGLD": (1500, 0.02, {}),
        "cyclical SGLD": (1000, 0.1, {"cycle_steps": 500, "sampling_fraction": 0.8}),  # at the end of the second cycle
    }[kind]
    found = sampled(
        kind,
        lambda x: (x * linear).sum(-1) - 0.5 * ((x @ quadratic) * x).sum(-1),
        seed,
        chains=10_000,
        steps=steps,
        lr=rate * N / torch.linalg.eigvalsh(precision).max().item(),
        prior_std=PRIOR_STD,
        temperature=temperature,
        **settings,
    )
    assert z_scores(found, precision, linear, temperature).abs().max() < Z


def test_hmc_has_the_exact_posterior_of_a_regression(seed: int) -> None:
    quadratic, linear = regression(seed)
    precision = quadratic + torch.eye(2, dtype=F64) / PRIOR_STD**2
    result = selbo.hmc(
        lambda x: (x * linear).sum(-1) - 0.5 * ((x @ precision) * x).sum(-1),
        torch.zeros(10_000, 2, dtype=F64),
        num_samples=1,
        burn_in=40,
        step_size=0.8 / torch.linalg.eigvalsh(precision).max().item() ** 0.5,  # long steps, so that proposals fail
        leapfrog_steps=5,
        generator=torch.Generator().manual_seed(seed),
    )
    assert 0.5 < result.acceptance_rate < 0.99
    assert z_scores(result.samples[0], precision, linear, 1.0).abs().max() < Z


# --- two weights with a summary, beside a grid ---


def classification(seed: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Log-likelihood of labels, and log-likelihood of a summary that contradicts them, for weights (..., 2)."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(N, generator=generator, dtype=F64)
    labels = (torch.rand(N, generator=generator, dtype=F64) < torch.sigmoid(inputs)).long()
    summary = selbo.SummaryLikelihood(selbo.ClassRegions(2), selbo.Masses([0.2, 0.8]), concentration=20.0)

    def log_probs(weights: Tensor) -> Tensor:
        logits = weights[..., :1] + weights[..., 1:] * inputs
        return torch.stack([nn.functional.logsigmoid(-logits), nn.functional.logsigmoid(logits)], -1)

    return (
        lambda weights: log_probs(weights)[..., torch.arange(N), labels].sum(-1),
        lambda weights: summary(log_probs(weights)),
    )


def moments(weights: Tensor) -> Tensor:
    """First and second powers and the product of two weights: (..., 2) -> (..., 5)."""
    return torch.cat([weights, weights.square(), weights.prod(-1, keepdim=True)], -1)


def exact_moments(log_likelihood: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of `moments` under the posterior, by integration on a grid."""
    axis = torch.linspace(-6 * PRIOR_STD, 6 * PRIOR_STD, 161, dtype=F64)
    grid = torch.cartesian_prod(axis, axis)
    logs = log_likelihood(grid) - 0.5 * (grid / PRIOR_STD).square().sum(-1)
    found, masses = moments(grid), logs.softmax(0)[:, None]
    mean = (found * masses).sum(0)
    return mean, ((found - mean).square() * masses).sum(0).sqrt()


@pytest.mark.parametrize("kind", ["SGHMC", "SGLD", "HMC"])
def test_a_summary_shifts_samples_as_the_exact_posterior(kind: str, seed: int) -> None:
    labels, summary = classification(seed)
    both, chains = (lambda x: labels(x) + summary(x)), 1000
    mean, std = exact_moments(both)
    if kind == "HMC":
        found = selbo.hmc(
            lambda x: both(x) - 0.5 * (x / PRIOR_STD).square().sum(-1),
            torch.zeros(chains, 2, dtype=F64),
            num_samples=1,
            burn_in=20,
            step_size=0.15,
            leapfrog_steps=4,
            generator=torch.Generator().manual_seed(seed),
        ).samples[0]
    else:
        steps, lr = (250, 0.06) if kind == "SGHMC" else (450, 0.1)
        found = sampled(kind, both, seed, chains=chains, steps=steps, lr=lr, prior_std=PRIOR_STD)
    z = chains**0.5 * (moments(found).mean(0) - mean) / std
    assert z.abs().max() < Z
    without, _ = exact_moments(labels)
    assert (chains**0.5 * (without - mean) / std).abs().max() > 3 * Z  # the summary is what the test is about
