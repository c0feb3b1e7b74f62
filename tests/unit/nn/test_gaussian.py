"""The Gaussian over weights and its KL divergence, against torch.distributions."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from torch.nn import functional as F
from unit.nn.nets import NAMES, SharedLayer, TiedWeights, bayesian, build, weight_names

from selbo.nn import to_bayesian
from selbo.nn.gaussian import GaussianParameter, gaussians, softplus_inverse
from selbo.posteriors import kl_divergence

F64 = torch.float64


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def lopsided() -> nn.Module:
    """Three layers of different sizes and priors, with posteriors away from where they start."""
    net = build("mlp")[0]
    bnn = to_bayesian(net, prior_std={"0": 0.3, "2": 1.7, "4": "fan_in"})
    with torch.no_grad():
        for index, each in enumerate(gaussians(bnn)):
            each.mean.add_(random(*each.mean.shape, seed=index))
            each.rho.copy_(2 * random(*each.mean.shape, seed=100 + index) - 1)
    return bnn


LOPSIDED_PRIORS = [0.3, 0.3, 1.7, 1.7, 0.5, 0.5]


def by_torch(bnn: nn.Module, priors: list[float]) -> list[Tensor]:
    terms = []
    for each, prior in zip(gaussians(bnn), priors, strict=True):
        posterior = Normal(each.mean, (1 + each.rho.exp()).log())
        terms.append(torch.distributions.kl_divergence(posterior, Normal(torch.zeros((), dtype=F64), prior)))
    return terms


def test_softplus_inverse_round_trip() -> None:
    x = torch.logspace(-8, torch.log10(torch.tensor(50.0)).item(), 400, dtype=F64)
    # F.softplus is the identity from 20 on, which is wrong by exp(-20) = 2e-9 there, 1e-10 of the value
    torch.testing.assert_close(F.softplus(softplus_inverse(x)), x, rtol=2e-10, atol=0)
    rho = torch.linspace(-18, 30, 97, dtype=F64)
    torch.testing.assert_close(softplus_inverse(torch.logaddexp(rho, torch.zeros_like(rho))), rho, rtol=1e-7, atol=1e-9)
    small = torch.tensor([1e-8, 1e-3, 1.0, 50.0])
    torch.testing.assert_close(F.softplus(softplus_inverse(small)), small, rtol=1e-5, atol=0)


def test_a_gaussian_starts_where_it_is_told_and_keeps_a_copy() -> None:
    mean, std = random(3, 2), random(3, 2, seed=1).abs() + 0.01
    each = GaussianParameter(mean, std, 0.7)
    assert torch.equal(each.mean, mean)
    torch.testing.assert_close(each.std, std, rtol=1e-10, atol=0)
    mean.zero_()
    assert each.mean.abs().min() > 0
    assert {name for name, _ in each.named_parameters()} == {"mean", "rho"}
    noise = random(5, 3, 2, seed=2)
    expected = torch.stack([each.mean + each.std * row for row in noise])
    torch.testing.assert_close(each.reparameterise(noise, each.std), expected, rtol=1e-14, atol=0)
    with pytest.raises(ValueError, match="`prior_std`"):
        GaussianParameter(mean, std, 0.0)


def test_kl_divergence_is_that_of_normal_distributions() -> None:
    """The KL term of Eq. (1)."""
    bnn = lopsided()
    expected = torch.stack([term.sum() for term in by_torch(bnn, LOPSIDED_PRIORS)]).sum()
    got = kl_divergence(bnn)
    assert got.shape == ()
    assert got.dtype == F64
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=0)


def test_kl_divergence_by_an_integral() -> None:
    mean, std, prior = 0.7, 0.2, 1.3
    gaussian = GaussianParameter(torch.full((1,), mean, dtype=F64), torch.full((1,), std, dtype=F64), prior)
    w = torch.linspace(mean - 12 * std, mean + 12 * std, 20_001, dtype=F64)
    q, p = (Normal(*torch.tensor(each, dtype=F64)) for each in ((mean, std), (0.0, prior)))
    integral = torch.trapezoid(q.log_prob(w).exp() * (q.log_prob(w) - p.log_prob(w)), w)
    torch.testing.assert_close(gaussian.kl_divergence()[0], integral, rtol=1e-10, atol=0)


def test_kl_divergence_is_zero_at_the_prior_alone() -> None:
    net = build("mlp")[0]
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    for prior in (0.01, 0.4, 7.0):
        bnn = to_bayesian(net, prior_std=prior, init_std=prior)
        assert abs(kl_divergence(bnn).item()) < 1e-12
        for change in ("mean", "rho"):
            for amount in (-0.1, 0.1):
                moved = to_bayesian(net, prior_std=prior, init_std=prior)
                with torch.no_grad():
                    getattr(gaussians(moved)[2], change)[1, 3] += amount * prior
                assert kl_divergence(moved) > 1e-8


@pytest.mark.parametrize("name", NAMES)
def test_kl_divergence_is_positive_and_counts_every_weight(name: str) -> None:
    net, bnn, _ = bayesian(name)
    names = weight_names(net)
    assert len(gaussians(bnn)) == len(names)
    expected = sum(term.sum() for term in by_torch(bnn, [1.0] * len(names)))
    assert expected > 0
    torch.testing.assert_close(kl_divergence(bnn), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("std", [1e-8, 1e-4, 50.0])
def test_kl_divergence_at_extremes(std: float) -> None:
    each = GaussianParameter(random(3), torch.full((3,), std, dtype=F64), 1e-2)
    posterior = Normal(each.mean, torch.tensor(std, dtype=F64))
    expected = torch.distributions.kl_divergence(posterior, Normal(torch.zeros((), dtype=F64), 1e-2))
    torch.testing.assert_close(each.kl_divergence(), expected, rtol=1e-9, atol=0)
    each.kl_divergence().sum().backward()
    assert each.mean.grad.isfinite().all()
    assert each.rho.grad.isfinite().all()


def test_gradient_of_the_kl_divergence() -> None:
    bnn = to_bayesian(build("a single layer")[0], prior_std=0.6, init_std=0.3)
    leaves = tuple(bnn.parameters())
    assert len(leaves) == 4

    def kl(*values: Tensor) -> Tensor:
        names = [name for name, _ in bnn.named_parameters()]
        return torch.func.functional_call(Kl(bnn), {f"bnn.{n}": v for n, v in zip(names, values, strict=True)})

    inputs = tuple(leaf.detach().clone().requires_grad_() for leaf in leaves)
    assert torch.autograd.gradcheck(kl, inputs, rtol=1e-6, atol=1e-8)


class Kl(nn.Module):
    def __init__(self, bnn: nn.Module) -> None:
        super().__init__()
        self.bnn = bnn

    def forward(self) -> Tensor:
        return kl_divergence(self.bnn)


def test_shared_layers_and_tied_weights_count_once() -> None:
    shared, tied = bayesian("shared layer")[1], bayesian("tied weights")[1]
    assert isinstance(shared, SharedLayer)
    assert isinstance(tied, TiedWeights)
    assert [tuple(each.mean.shape) for each in gaussians(shared)] == [(5, 5), (5,), (3, 5), (3,)]
    assert [tuple(each.mean.shape) for each in gaussians(tied)] == [(11, 4), (4, 4), (4,), (11,)]
    for bnn in (shared, tied):
        expected = sum(term.sum() for term in by_torch(bnn, [1.0] * 4))
        torch.testing.assert_close(kl_divergence(bnn), expected, rtol=1e-10, atol=0)


def test_deterministic_layers_do_not_count() -> None:
    net = build("mlp")[0]
    whole, last = to_bayesian(net), to_bayesian(net, only="4")
    assert len(gaussians(last)) == 2
    expected = sum(term.sum() for term in by_torch(whole, [1.0] * 6)[4:])
    torch.testing.assert_close(kl_divergence(last), expected, rtol=1e-10, atol=0)


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"`bnn` must be a network made by .* Sequential has no posterior"):
        kl_divergence(build("mlp")[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("joined", [True, False])
def test_the_kl_of_a_network_in_half_precision_is_summed_in_single(
    dtype: torch.dtype, joined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selbo.posteriors.mean_field.MOST_JOINED", 10**9 if joined else 0)
    with torch.random.fork_rng():
        bnn = to_bayesian(nn.Linear(300, 300))
    found = kl_divergence(copy.deepcopy(bnn).to(dtype))
    assert found.dtype == torch.float32
    assert found.item() > 65504  # the largest number of float16
    assert found.item() == pytest.approx(kl_divergence(bnn).item(), rel=0.01)
