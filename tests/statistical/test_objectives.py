"""Objectives are right on average: values and gradients of random draws and batches, against quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Dirichlet

import selbo
from selbo.nn import to_bayesian
from selbo.nn.gaussian import gaussians
from selbo.objectives import ELBO, Evidential, LabelSmoothing, Objective, SummaryELBO
from selbo.objectives.likelihoods import LOSSES, expected_loss, misleading_evidence

Z = 5.0
F64 = torch.float64
MEAN, STD, PRIOR_STD = 0.8, 0.6, 1.3
INPUTS = torch.tensor([[-1.5], [0.3], [0.7], [2.0], [-0.4], [1.1], [-2.2]], dtype=F64)
LABELS = torch.tensor([0, 1, 0, 1, 1, 1, 0])
MASSES = [0.35, 0.65]
CONCENTRATION = 12.0
CALLS = 300
DRAWS = 16  # a call: means of several are nearer to normal, so that the standard error tells the truth


def assert_mean(draws: Tensor, expected: Tensor | float) -> None:
    error = draws.std(0) / math.sqrt(len(draws))
    scores = ((draws.mean(0) - expected) / error).abs()
    assert scores.max() < Z, f"|z| up to {scores.max():.1f}"


class OneWeight(nn.Module):
    """Logits (0, w x)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.skip_init(nn.Linear, 1, 1, bias=False, dtype=F64)
        nn.init.constant_(self.layer.weight, MEAN)

    def forward(self, x: Tensor) -> Tensor:
        slope = self.layer(x)
        return torch.cat([torch.zeros_like(slope), slope], -1)


def network() -> nn.Module:
    return to_bayesian(OneWeight(), prior_std=PRIOR_STD, init_std=STD)


def sampled(objective: Objective, count: int, batch_size: int, seed: int) -> Tensor:
    """Log-likelihood, log-summary, and the gradients of the total by mean and rho, call after call: (count, 4)."""
    bnn, generator = network(), torch.Generator().manual_seed(seed)
    (posterior,) = gaussians(bnn)
    rows = []
    for _ in range(count):
        batch = torch.randperm(len(INPUTS), generator=generator)[:batch_size]
        terms = objective(bnn, INPUTS[batch], LABELS[batch], DRAWS, generator=generator)
        gradients = torch.autograd.grad(terms.elbo, [posterior.mean, posterior.rho])
        rows.append(torch.stack([terms.log_likelihood, terms.log_summary, *(each.sum() for each in gradients)]))
    return torch.stack(rows).detach()


def by_quadrature(*, epsilon: float = 0.0, with_summary: bool = False) -> Tensor:
    """The same four numbers, expected: integrals over the one weight, and the divergence of two normals by formula."""
    nodes, weights = (torch.from_numpy(each) for each in np.polynomial.hermite_e.hermegauss(100))
    weights = weights / weights.sum()
    mean, rho = torch.tensor(MEAN, dtype=F64, requires_grad=True), torch.tensor(STD, dtype=F64).expm1().log()
    rho.requires_grad_()
    std = nn.functional.softplus(rho)
    slopes = (mean + std * nodes) * INPUTS  # (N, nodes)
    signs = 2 * LABELS[:, None] - 1
    right, wrong = nn.functional.logsigmoid(signs * slopes), nn.functional.logsigmoid(-signs * slopes)
    log_likelihood = (((1 - epsilon / 2) * right + epsilon / 2 * wrong).sum(0) * weights).sum()
    log_summary = torch.zeros((), dtype=F64)
    if with_summary:
        share = slopes.sigmoid().mean(0)
        densities = Dirichlet(CONCENTRATION * torch.stack([1 - share, share], -1)).log_prob(
            torch.tensor(MASSES, dtype=F64)
        )
        log_summary = (densities * weights).sum()
    kl = torch.log(PRIOR_STD / std) + (std**2 + mean**2) / (2 * PRIOR_STD**2) - 0.5
    gradients = torch.autograd.grad(log_likelihood + log_summary - kl, [mean, rho])
    return torch.stack([log_likelihood, log_summary, *gradients]).detach()


@pytest.mark.parametrize(("estimator", "batch_size"), [("shared", 3), ("shared", 7), ("local", 3), ("flipout", 3)])
def test_the_elbo_and_its_gradient_are_unbiased(estimator: str, batch_size: int, seed: int) -> None:
    """Over draws and over batches of three from seven: the first term of Eq. (1), and the gradient of both."""
    draws = sampled(ELBO(len(INPUTS), estimator=estimator), CALLS, batch_size, seed)
    expected = by_quadrature()
    assert_mean(draws[:, [0, 2, 3]], expected[[0, 2, 3]])


def test_label_smoothing_and_its_gradient_are_unbiased(seed: int) -> None:
    draws = sampled(LabelSmoothing(0.3, len(INPUTS)), CALLS, 3, seed)
    assert_mean(draws[:, [0, 2, 3]], by_quadrature(epsilon=0.3)[[0, 2, 3]])


def test_the_summary_elbo_and_its_gradient_are_unbiased_over_draws(seed: int) -> None:
    """Eq. (7), on the whole data set: its summary is of all inputs together."""
    summary = selbo.SummaryLikelihood(selbo.ClassRegions(2), selbo.Masses(MASSES), CONCENTRATION)
    draws = sampled(SummaryELBO(summary, len(INPUTS)), CALLS, len(INPUTS), seed)
    assert_mean(draws, by_quadrature(with_summary=True))


@pytest.mark.parametrize("loss", LOSSES)
def test_evidential_losses_by_monte_carlo(loss: str, seed: int) -> None:
    """Probabilities drawn as normalised gamma variables, with numpy; `log_marginal` is the log of a mean."""
    rng = np.random.default_rng(seed)
    alpha, labels = torch.tensor([[1.2, 3.4, 1.0], [9.0, 2.0, 5.5]], dtype=F64), torch.tensor([2, 0])
    probs = torch.from_numpy(np.stack([rng.dirichlet(row, size=40_000) for row in alpha.tolist()], 1))  # (S, 2, 3)
    exact = expected_loss(alpha, labels, loss=loss)
    of_label = probs[:, torch.arange(2), labels]
    if loss == "log_marginal":
        assert_mean(of_label, torch.exp(-exact))
    elif loss == "cross_entropy":
        assert_mean(-of_label.log(), exact)
    else:
        assert_mean((probs - nn.functional.one_hot(labels, 3)).square().sum(-1), exact)


def test_evidential_divergence_by_monte_carlo(seed: int) -> None:
    """The mean of log p(x) - log 1/volume under the misleading evidence; the simplex of three has a density of 2."""
    rng = np.random.default_rng(seed)
    alpha, labels = torch.tensor([[1.2, 3.4, 7.0]], dtype=F64), torch.tensor([1])
    probs = torch.from_numpy(rng.dirichlet([1.2, 1.0, 7.0], size=20_000))
    log_ratio = Dirichlet(torch.tensor([1.2, 1.0, 7.0], dtype=F64)).log_prob(probs) - math.log(2)
    assert_mean(log_ratio[:, None], misleading_evidence(alpha, labels))
    terms = Evidential(30, annealing_steps=0, activation="relu")(nn.Flatten(), alpha - 1, labels)
    assert terms.kl.item() == pytest.approx(30 * misleading_evidence(alpha, labels).item())
