"""The last-layer Laplace approximation: brute-force Hessians, exact posteriors, evidence, samples, files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from seeded import noise
from torch import Tensor, nn
from torch.func import functional_call

import selbo
from selbo.posteriors import LastLayerLaplace

N, K = 30, 3


def network(seed: int = 0, *, bias: bool = True) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, K, bias=bias)).double()


def inputs(count: int = N) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def labels() -> Tensor:
    return torch.randint(K, (N,), generator=torch.Generator().manual_seed(4))


def observed(net: nn.Module, **settings: object) -> LastLayerLaplace:
    posterior = LastLayerLaplace(net, **settings)
    posterior.observe(inputs(), batch_size=7)
    return posterior


def hessian(net: nn.Module) -> Tensor:
    """Of the negative log-likelihood by the last layer, by autograd; rows of the weight, each with its bias."""
    last = net[-1]
    columns = last.in_features + (last.bias is not None)

    def loss(flat: Tensor) -> Tensor:
        weights = flat.view(K, columns)
        values = {"2.weight": weights[:, : last.in_features]}
        if last.bias is not None:
            values["2.bias"] = weights[:, -1]
        return nn.functional.cross_entropy(functional_call(net, values, (inputs(),)), labels(), reduction="sum")

    weights = last.weight if last.bias is None else torch.cat([last.weight, last.bias[:, None]], 1)
    return torch.autograd.functional.hessian(loss, weights.detach().flatten())


@pytest.mark.parametrize("bias", [False, True])
def test_the_covariance_is_that_of_a_brute_force_hessian(bias: bool) -> None:
    net = network(bias=bias)
    posterior = observed(net, prior_precision=0.7)
    assert posterior.curvature == "full"
    expected = torch.linalg.inv(hessian(net) + 0.7 * torch.eye(K * (5 + bias), dtype=torch.float64))
    torch.testing.assert_close(posterior.covariance(), expected)
    posterior.scale = 2.0
    torch.testing.assert_close(posterior.covariance(), 4 * expected)


def test_the_kronecker_form_is_the_product_of_its_factors() -> None:
    net = network()
    posterior = observed(net, prior_precision=0.7, curvature="kronecker")
    probs, features = net(inputs()).softmax(-1), torch.cat([net[:2](inputs()), torch.ones(N, 1)], 1)
    first = sum(torch.diag(p) - torch.outer(p, p) for p in probs)
    second = sum(torch.outer(f, f) for f in features)
    curvature = torch.kron(first, second).detach() / N
    expected = torch.linalg.inv(curvature + 0.7 * torch.eye(K * 6, dtype=torch.float64))
    torch.testing.assert_close(posterior.covariance(), expected)


def test_the_kronecker_form_is_exact_if_all_probabilities_are_the_same() -> None:
    net = network()
    nn.init.zeros_(net[2].weight)
    forms = [observed(net, curvature=curvature).covariance() for curvature in ("full", "kronecker")]
    torch.testing.assert_close(*forms)


@pytest.mark.parametrize("curvature", ["full", "kronecker"])
def test_samples_have_the_mean_and_covariance(curvature: str, seed: int) -> None:
    net, count = network(), 3000
    posterior = observed(net, prior_precision=2.0, curvature=curvature)
    posterior.scale = 0.5
    with torch.no_grad():
        drawn = posterior.forward_samples(inputs(4), count, generator=noise(seed)).flatten(1).numpy()
        mean = net(inputs(4)).flatten().numpy()
        features = torch.cat([net[:2](inputs(4)), torch.ones(4, 1)], 1)
    # logits are linear in the weights: rows are inputs and classes
    linear = torch.stack([torch.kron(row, each) for each in features for row in torch.eye(K, dtype=torch.float64)])
    expected = (linear @ posterior.covariance() @ linear.T).numpy()
    variances = np.diag(expected)
    assert np.abs((drawn.mean(0) - mean) / np.sqrt(variances / count)).max() < 5
    error = np.sqrt((np.outer(variances, variances) + expected**2) / count)
    assert np.abs((np.cov(drawn.T) - expected) / error).max() < 5


def test_the_evidence_is_exact_for_a_gaussian_likelihood() -> None:
    """Linear regression with unit noise: its Hessian is that of the features, and the evidence has a closed form."""
    net = network(bias=False)
    posterior = LastLayerLaplace(net, prior_precision=0.4)
    rows = torch.randn(12, posterior.num_weights, generator=noise(), dtype=torch.float64)
    targets = torch.randn(12, generator=noise(1), dtype=torch.float64)
    exact_mean = torch.linalg.solve(rows.T @ rows + 0.4 * torch.eye(len(rows.T)), rows.T @ targets)
    with torch.no_grad():
        net[2].weight.copy_(exact_mean.view(K, 5))
    posterior.load_state_dict(
        {**posterior.state_dict(), "laplace/hessian": rows.T @ rows, "laplace/count": torch.tensor(12)}
    )
    log_likelihood = stats.norm.logpdf(targets, rows @ exact_mean).sum()
    covariance = np.eye(12) + (rows @ rows.T).numpy() / 0.4
    expected = stats.multivariate_normal(np.zeros(12), covariance).logpdf(targets.numpy())
    assert posterior.log_evidence(log_likelihood) == pytest.approx(expected, rel=1e-10)
    exact = torch.linalg.inv(rows.T @ rows + 0.4 * torch.eye(len(rows.T)))
    torch.testing.assert_close(posterior.covariance(), exact)


@pytest.mark.parametrize("curvature", ["full", "kronecker"])
def test_the_chosen_precision_has_the_largest_evidence(curvature: str) -> None:
    posterior = observed(network(), curvature=curvature)
    chosen = posterior.maximise_evidence()
    assert posterior.prior_precision == chosen
    best = posterior.log_evidence()
    for factor in (0.5, 0.99, 1.01, 2.0):
        posterior.prior_precision = chosen * factor
        assert posterior.log_evidence() < best


def test_samples_do_not_depend_on_blocks_and_the_network_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network().eval()
    posterior = observed(net)
    whole, parts = (selbo.predict(posterior, inputs(), 5, generator=noise(), batch_size=size) for size in (30, 4))
    torch.testing.assert_close(whole.log_probs, parts.log_probs)
    calls, forward = [], net[0].forward
    monkeypatch.setattr(net[0], "forward", lambda values: (calls.append(1), forward(values))[1])
    posterior.forward_samples(inputs(), 50, generator=noise())
    assert len(calls) == 1


@pytest.mark.parametrize("curvature", ["full", "kronecker"])
def test_a_saved_posterior_comes_back(curvature: str, tmp_path: Path) -> None:
    posterior = observed(network(), prior_precision=3.0, curvature=curvature)
    posterior.scale = 0.5
    path = posterior.save(tmp_path / "laplace.safetensors")
    other = LastLayerLaplace(network(1), curvature=curvature)
    other.load(path)
    assert (other.prior_precision, other.scale, other.count) == (3.0, 0.5, N)
    one, two = (each.log_probs(inputs(), 4, generator=noise()) for each in (posterior, other))
    assert torch.equal(one, two)
    summary = selbo.SummaryLikelihood(selbo.ClassRegions(K), selbo.Masses([0.6, 0.3, 0.1]), 5.0)
    assert 1 <= selbo.belief_weights(one, summary).effective_sample_size <= 4
    with pytest.raises(ValueError, match="is not the network that was saved"):
        LastLayerLaplace(network(1), curvature={"full": "kronecker"}.get(curvature, "full")).load(path)


def test_many_weights_are_factored() -> None:
    assert LastLayerLaplace(nn.utils.skip_init(nn.Linear, 300, 7)).curvature == "kronecker"
    assert LastLayerLaplace(nn.utils.skip_init(nn.Linear, 200, 7)).curvature == "full"


def test_what_is_not_a_last_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="the curvature is empty: call `observe`"):
        selbo.predict(LastLayerLaplace(network()), inputs(), 2, generator=noise())
    with pytest.raises(ValueError, match="must end with a linear layer, but has none"):
        LastLayerLaplace(nn.Flatten())
    with pytest.raises(ValueError, match="`layer` must be the name of a linear layer"):
        LastLayerLaplace(network(), layer="1")
    with pytest.raises(ValueError, match="'0' is not: its outputs are not those of the network"):
        LastLayerLaplace(network(), layer="0").observe(inputs())
    with pytest.raises(ValueError, match="`prior_precision` must be"):
        LastLayerLaplace(network()).prior_precision = 0.0
    with pytest.raises(ValueError, match=r"made by selbo\.to_bayesian"):
        LastLayerLaplace(selbo.to_bayesian(network()))
    assert math.isfinite(observed(network()).maximise_evidence())
