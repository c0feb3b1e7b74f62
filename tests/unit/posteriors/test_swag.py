"""SWAG: moments of stored weights, samples with these moments, BatchNorm statistics of each sample, files."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from seeded import noise
from torch import Tensor, nn

import selbo
from selbo.posteriors import SWAG


def network(seed: int = 0, *, batchnorm: bool = False) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        middle = [nn.BatchNorm1d(3)] if batchnorm else []
        return nn.Sequential(nn.Linear(4, 3), *middle, nn.Tanh(), nn.Linear(3, 3)).double()


def inputs(count: int = 40) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def collected(net: nn.Module, count: int, seed: int = 0, **settings: object) -> tuple[SWAG, np.ndarray]:
    """A posterior of weights that move at random, and those weights."""
    swag, stored, generator = SWAG(net, **settings), [], noise(seed)
    for _ in range(count):
        with torch.no_grad():
            for each in net.parameters():
                each.add_(0.1 * torch.randn(each.shape, generator=generator, dtype=each.dtype))
        swag.collect()
        stored.append(torch.cat([each.detach().flatten() for each in net.parameters()]).numpy())
    return swag, np.stack(stored)


@pytest.mark.parametrize("count", [2, 5, 9])
def test_moments_are_those_of_the_stored_weights(count: int) -> None:
    swag, stored = collected(network(), count, max_rank=4)
    np.testing.assert_allclose(swag.mean, stored.mean(0), rtol=1e-12)
    np.testing.assert_allclose(swag.variances, stored.var(0), rtol=1e-10)
    means = np.cumsum(stored, 0) / np.arange(1, count + 1)[:, None]
    np.testing.assert_allclose(swag.deviations, (stored - means)[-4:], rtol=1e-10, atol=1e-14)
    assert swag.count == count


def test_variances_are_exact_where_weights_hardly_vary() -> None:
    net = nn.utils.skip_init(nn.Linear, 1, 2, bias=False)
    swag, stored = SWAG(net), []
    for step in range(100):
        nn.init.constant_(net.weight, 1 + 1e-5 * (step % 2))
        swag.collect()
        stored.append(net.weight.detach().double().flatten().numpy().copy())
    np.testing.assert_allclose(swag.variances, np.stack(stored).var(0), rtol=1e-2)


@pytest.mark.parametrize("max_rank", [0, 3])
def test_samples_have_the_covariance_of_the_paper(max_rank: int, seed: int) -> None:
    swag, stored = collected(network(), 7, seed, max_rank=max_rank)
    swag.scale = 1.5
    expected = np.diag(stored.var(0))
    if max_rank:
        means = np.cumsum(stored, 0) / np.arange(1, 8)[:, None]
        deviations = (stored - means)[-max_rank:]
        expected = expected / 2 + deviations.T @ deviations / (2 * (max_rank - 1))
    expected, count = expected * 1.5**2, 4000
    seeds = swag.draw_noise(count, noise(seed))[:, 0].tolist()
    drawn = np.stack([swag.sample_weights(each) for each in seeds])
    variances = np.diag(expected)
    assert np.abs((drawn.mean(0) - stored.mean(0)) / np.sqrt(variances / count)).max() < 5
    found = np.cov(drawn.T)
    error = np.sqrt((np.outer(variances, variances) + expected**2) / count)
    assert np.abs((found - expected) / error).max() < 5


def test_logits_are_those_of_the_sampled_weights() -> None:
    net = network().eval()
    swag, stored = collected(net, 5)
    before = copy.deepcopy(net.state_dict())
    seeds = swag.draw_noise(3, noise())
    found = swag.forward_noise(inputs(), seeds)
    for seed, logits in zip(seeds[:, 0].tolist(), found, strict=True):
        other = copy.deepcopy(net)
        nn.utils.vector_to_parameters(swag.sample_weights(seed), other.parameters())
        torch.testing.assert_close(logits, other(inputs()))
    assert all(torch.equal(each, before[name]) for name, each in net.state_dict().items())
    np.testing.assert_allclose(nn.utils.parameters_to_vector(swag.mean_network().parameters()).detach(), stored.mean(0))
    swag.scale = 1e-9
    torch.testing.assert_close(swag.forward_noise(inputs(), seeds)[0], swag.mean_network()(inputs()))


def test_batchnorm_has_the_statistics_of_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of one pass in training mode with these weights, estimated once for all blocks of inputs."""
    net = network(batchnorm=True).train()
    swag, _ = collected(net, 5, batchnorm_inputs=inputs())
    before = copy.deepcopy(net.state_dict())
    calls, forward = [], net[0].forward
    monkeypatch.setattr(net[0], "forward", lambda values: (calls.append(len(values)), forward(values))[1])
    found = swag.log_probs(inputs(6), 2, generator=noise(), batch_size=2)
    assert calls.count(40) == 2, "once per sample"
    assert len(calls) == 2 + 2 * 3
    monkeypatch.undo()
    for seed, log_probs in zip(swag.draw_noise(2, noise())[:, 0].tolist(), found, strict=True):
        other = copy.deepcopy(net)
        nn.utils.vector_to_parameters(swag.sample_weights(seed), other.parameters())
        with torch.no_grad():
            hidden = other[0](inputs())
            other[1].running_mean.copy_(hidden.mean(0))
            other[1].running_var.copy_(hidden.var(0))
            torch.testing.assert_close(log_probs, other.eval()(inputs(6)).log_softmax(-1))
    assert all(torch.equal(each, before[name]) for name, each in net.state_dict().items())
    assert all(each.training for each in net.modules())
    assert net[1].momentum == 0.1
    swag.batchnorm_inputs = None
    swag.scale = 2.0
    with pytest.raises(ValueError, match="`batchnorm_inputs` must be given for a network with BatchNorm"):
        swag.log_probs(inputs(6), 2, generator=noise())


def test_fit_collects_at_regular_steps() -> None:
    net = network()
    swag = SWAG(net, max_rank=3)
    labels = (inputs()[:, 0] > 0).long()
    stored: list[np.ndarray] = []
    selbo.fit(
        net,
        selbo.CrossEntropy(40),
        (inputs(), labels),
        steps=20,
        batch_size=8,
        optimizer="sgd",
        learning_rate=0.1,
        log_every=4,
        callbacks=[swag.collect, lambda _: stored.append(nn.utils.parameters_to_vector(net.parameters()).tolist())],
    )
    assert swag.count == 5
    np.testing.assert_allclose(swag.mean, np.mean(stored, 0))
    np.testing.assert_allclose(swag.variances, np.var(stored, 0), rtol=1e-8)


def test_a_saved_posterior_comes_back(tmp_path: Path) -> None:
    swag, _ = collected(network(batchnorm=True), 5, max_rank=3, batchnorm_inputs=inputs())
    swag.scale = 0.5
    path = swag.save(tmp_path / "swag.safetensors")
    other = SWAG(network(1, batchnorm=True), batchnorm_inputs=inputs())
    other.load(path)
    assert (other.count, other.scale) == (5, 0.5)
    one, two = (each.log_probs(inputs(7), 4, generator=noise()) for each in (swag, other))
    assert torch.equal(one, two)
    third = SWAG(network(2, batchnorm=True), batchnorm_inputs=inputs())
    third.load_state_dict(swag.state_dict())
    third.scale = 0.5
    assert torch.equal(third.log_probs(inputs(7), 4, generator=noise()), one)
    with pytest.raises(ValueError, match="is not the network that was saved"):
        SWAG(network()).load(path)


def test_what_cannot_be_sampled_is_refused() -> None:
    swag, _ = collected(network(), 1)
    with pytest.raises(ValueError, match="SWAG needs weights of at least two steps, but has 1"):
        selbo.predict(swag, inputs(), 2, generator=noise())
    with pytest.raises(ValueError, match=r"made by selbo\.to_bayesian"):
        SWAG(selbo.to_bayesian(network()))
    with pytest.raises(ValueError, match="at least one parameter that requires a gradient"):
        SWAG(network().requires_grad_(requires_grad=False))
    with pytest.raises(ValueError, match="`max_rank` must be"):
        SWAG(network(), max_rank=-1)
