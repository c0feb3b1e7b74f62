"""The posterior of a natural gradient: samples, means that nothing disturbs, files."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from seeded import noise
from torch import Tensor, nn

import selbo
from selbo.nn import compiled
from selbo.posteriors import NaturalGradientPosterior, as_posterior

N = 40


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).double()


def inputs(count: int = 7) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def posterior_of(net: nn.Module | None = None, **settings: object) -> NaturalGradientPosterior:
    """A posterior with different precisions of all weights."""
    posterior = NaturalGradientPosterior(network() if net is None else net, num_data=N, **settings)
    generator = torch.Generator().manual_seed(5)
    for each in posterior.precisions().values():
        each.mul_(1 + torch.rand(each.shape, generator=generator))
    return posterior


def snapshot(posterior: NaturalGradientPosterior) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in posterior.state_dict().items()}


def unchanged(posterior: NaturalGradientPosterior, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in posterior.state_dict().items())


def test_logits_are_those_of_sampled_weights() -> None:
    posterior = posterior_of()
    net = posterior.network.eval()
    before = snapshot(posterior)
    drawn = posterior.draw_noise(3, noise())
    with torch.no_grad():
        found = posterior.forward_noise(inputs(), drawn)
    assert unchanged(posterior, before)
    for row, logits in zip(drawn, found, strict=True):
        other, parts = copy.deepcopy(net), row.split([each.numel() for each in net.parameters()])
        with torch.no_grad():
            for (name, each), part in zip(other.named_parameters(), parts, strict=True):
                precision = posterior.precisions()[name] * N
                each.add_(part.reshape(each.shape) / precision.sqrt())
            torch.testing.assert_close(logits, other(inputs()))
    assert not torch.equal(found[0], found[1])


def test_samples_have_the_right_moments(seed: int) -> None:
    posterior = posterior_of(network(seed))
    drawn = posterior.draw_noise(4000, noise(seed))
    count = drawn.numel()
    assert abs(drawn.mean()) < 5 / count**0.5
    assert abs(drawn.square().mean() - 1) < 5 * (2 / count) ** 0.5


@pytest.mark.parametrize("chunk_size", [1, 2, 5])
def test_samples_do_not_depend_on_chunks_and_blocks(chunk_size: int) -> None:
    posterior = posterior_of()
    posterior.network.eval()
    with torch.no_grad():
        expected = posterior.forward_samples(inputs(), 5, generator=noise())
        assert torch.equal(posterior.forward_samples(inputs(), 5, generator=noise(), chunk_size=chunk_size), expected)
    whole, parts = (selbo.predict(posterior, inputs(), 5, generator=noise(), batch_size=size) for size in (7, 2))
    torch.testing.assert_close(whole.log_probs, parts.log_probs)


def test_an_exception_while_predicting_leaves_the_means() -> None:
    class Fails(nn.Module):
        def forward(self, values: Tensor) -> Tensor:
            raise KeyError

    net = network()
    posterior = posterior_of(nn.Sequential(net, Fails()))
    before = snapshot(posterior)
    memory = [each.data_ptr() for each in net.parameters()]
    with pytest.raises(KeyError):
        selbo.predict(posterior, inputs(), 4, generator=noise())
    assert unchanged(posterior, before)
    assert [each.data_ptr() for each in net.parameters()] == memory


def test_layers_that_keep_a_list_of_their_weights_are_sampled() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 2)

        def forward(self, values: Tensor) -> Tensor:
            return self.head(self.layer(values.reshape(len(values), 2, 2))[0][:, -1])

    with torch.random.fork_rng():
        posterior = posterior_of(Recurrent().double())
    posterior.network.head.requires_grad_(requires_grad=False)
    samples = selbo.forward_samples(posterior_of(posterior.network), inputs(), 3, generator=noise())
    assert (samples.std(0) > 1e-4).all()


def test_a_compiled_prediction_is_the_eager_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(compiled, "BACKEND", backend)
    torch.compiler.reset()
    posterior = posterior_of()
    eager, quick = (
        selbo.predict(posterior, inputs(), 3, generator=noise(), engine=engine) for engine in ("eager", "compiled")
    )
    torch.testing.assert_close(quick.log_probs, eager.log_probs)
    assert graphs
    torch.compiler.reset()


def test_the_bayesian_network_has_the_same_predictions(seed: int) -> None:
    """A network of linear layers: all weights are converted, so predictions agree within sampling error."""
    with torch.random.fork_rng():
        net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    posterior = posterior_of(net)
    with torch.no_grad():
        ours = posterior.forward_samples(inputs(), 2000, generator=noise(seed)).softmax(-1)
        theirs = selbo.forward_samples(posterior.bayesian_network(), inputs(), 2000, generator=noise(seed)).softmax(-1)
    error = ((ours.var(0) + theirs.var(0)) / 2000).sqrt()
    assert ((ours.mean(0) - theirs.mean(0)) / error).abs().max() < 5
    assert (ours.std(0) / theirs.std(0) - 1).abs().max() < 0.2


def test_a_saved_posterior_comes_back_with_its_settings(tmp_path: Path) -> None:
    posterior = posterior_of(prior_std=0.3, temperature=0.5, betas=(0.8, 0.9))
    posterior.network[1].running_mean.fill_(0.5)
    path = posterior.save(tmp_path / "posterior.safetensors")
    other = NaturalGradientPosterior(network(1), num_data=3)
    other.load(path)
    assert other.settings() == posterior.settings()
    assert unchanged(other, snapshot(posterior))
    one, two = (selbo.predict(each, inputs(), 4, generator=noise()) for each in (posterior, other))
    assert torch.equal(one.log_probs, two.log_probs)
    with pytest.raises(ValueError, match="this is not the network that was saved"):
        NaturalGradientPosterior(network()[0], num_data=N).load(path)
    with pytest.raises(ValueError, match="is not the network that was saved"):
        as_posterior(network()).load(path)


def test_shared_weights_are_saved_once(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        layer = nn.Linear(4, 4).double()
        posterior = posterior_of(nn.Sequential(layer, nn.Tanh(), layer))
    other = NaturalGradientPosterior(copy.deepcopy(posterior.network), num_data=N)
    with torch.no_grad():
        other.network[0].weight.zero_()
    other.load(posterior.save(tmp_path / "file"))
    assert unchanged(other, snapshot(posterior))


def test_layers_may_thaw_between_two_runs() -> None:
    net = network()
    first = next(net.parameters()).requires_grad_(requires_grad=False)
    posterior = posterior_of(net)
    data = inputs(8), torch.arange(8) % 3
    before = first.detach().clone()
    selbo.fit(posterior, selbo.CrossEntropy(posterior.num_data), data, steps=3, batch_size=8)
    assert torch.equal(first, before)
    first.requires_grad_(requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    assert selbo.predict(posterior, data[0], 2, generator=generator).probs.isfinite().all()
    selbo.fit(posterior, selbo.CrossEntropy(posterior.num_data), data, steps=3, batch_size=8)
    assert not torch.equal(first, before)
    assert posterior.stds().keys() == dict(net.named_parameters()).keys()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"made by selbo\.to_bayesian"):
        NaturalGradientPosterior(selbo.to_bayesian(network()), num_data=N)
    with pytest.raises(ValueError, match="at least one parameter"):
        NaturalGradientPosterior(network().requires_grad_(requires_grad=False), num_data=N)
    with pytest.raises(ValueError, match="`prior_std` must be"):
        NaturalGradientPosterior(network(), num_data=N, prior_std=0.0)
    with pytest.raises(ValueError, match="`estimator` must be 'shared'"):
        selbo.forward_samples(posterior_of(), inputs(), 2, estimator="local", generator=noise())
    with pytest.raises(ValueError, match="must have a KL divergence"):
        selbo.kl_divergence(posterior_of())


def test_the_mean_network_is_a_copy() -> None:
    posterior = posterior_of()
    mean = posterior.mean_network().eval()
    posterior.network.eval()
    assert torch.equal(mean(inputs()), posterior.network(inputs()))
    with torch.no_grad():
        mean[0].weight.zero_()
    assert posterior.network[0].weight.abs().sum() > 0


def test_a_scale_is_the_root_of_a_temperature(tmp_path: Path) -> None:
    posterior, hotter = posterior_of(), posterior_of(temperature=4.0)
    before = snapshot(posterior)
    posterior.scale = 2.0
    ours, theirs = (each.log_probs(inputs(), 3, generator=noise()) for each in (posterior, hotter))
    torch.testing.assert_close(ours, theirs)
    assert unchanged(posterior, before)
    other = NaturalGradientPosterior(network(1), num_data=N)
    other.load(posterior.save(tmp_path / "posterior.safetensors"))
    assert other.scale == 2.0
    assert torch.equal(other.log_probs(inputs(), 3, generator=noise()), ours)
    data = (inputs(N), torch.zeros(N, dtype=torch.long))
    with pytest.raises(ValueError, match="`scale` of the posterior must be 1 in training, but is 2"):
        selbo.fit(posterior, selbo.CrossEntropy(N), data, steps=1)
    posterior.scale = 1
    selbo.fit(posterior, selbo.CrossEntropy(N), data, steps=1, batch_size=N)
