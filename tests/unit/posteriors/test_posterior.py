"""The handle of a network: made once and handed down; a kind of one's own serves everything that takes a network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from unit.training.toys import OBJECTIVES, blobs, network, states_equal, summary

import selbo
from selbo.posteriors import Deterministic, MeanField, Posterior, as_posterior
from selbo.training import fit


def noise() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def test_the_kind_follows_from_the_network() -> None:
    plain, bnn = network(), network(bayesian=True)
    assert type(as_posterior(plain)) is Deterministic
    handle = as_posterior(bnn)
    assert type(handle) is MeanField
    assert as_posterior(handle) is handle
    assert (as_posterior(plain).is_bayesian, handle.is_bayesian) == (False, True)
    assert as_posterior(plain).kl_divergence() is None
    assert handle.device == torch.device("cpu")
    with pytest.raises(ValueError, match="`model` must be a torch module or a selbo posterior, but got int"):
        as_posterior(3)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_handle_stands_for_its_network(name: str) -> None:
    bayesian, make = OBJECTIVES[name]
    net, (inputs, labels) = network(bayesian=bayesian, dropout=0.0), blobs(20)
    handle = as_posterior(net)
    one, other = (make(20, 3)(each, inputs, labels, 2, generator=noise()) for each in (net, handle))
    assert torch.equal(one.loss, other.loss)
    predictions = [selbo.predict(each, inputs, 4, generator=noise()).probs for each in (net, handle)]
    assert torch.equal(*predictions)
    if bayesian:
        assert torch.equal(selbo.kl_divergence(net), selbo.kl_divergence(handle))
        samples = [selbo.forward_samples(each, inputs, 2, generator=noise()) for each in (net, handle)]
        assert torch.equal(*samples)
        assert states_equal(selbo.mean_network(net), handle.mean_network())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_step_walks_through_the_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of more steps asks for the modules of a network or an objective as often as a short one."""
    bayesian, make = OBJECTIVES[name]
    walks, walk = [], nn.Module.named_modules
    monkeypatch.setattr(nn.Module, "named_modules", lambda self, *a, **k: (walks.append(1), walk(self, *a, **k))[1])

    def counted(steps: int) -> int:
        walks.clear()
        fit(network(bayesian=bayesian), make(40, 3), blobs(40), steps=steps, batch_size=8)
        return len(walks)

    few, many = counted(3), counted(9)
    assert few > 0, "the count sees those before the first step"
    assert few == many


@pytest.mark.parametrize("bayesian", [False, True])
def test_a_round_trip_through_a_file(bayesian: bool, tmp_path: Path) -> None:
    one, other = (as_posterior(network(seed=seed, bayesian=bayesian)) for seed in (0, 1))
    path = one.save(tmp_path / "posterior.safetensors")
    assert not states_equal(one.network, other.network)
    other.load(path)
    assert states_equal(one.network, other.network)
    with pytest.raises(ValueError, match="is not the network that was saved in"):
        as_posterior(network(bayesian=not bayesian)).load(path)


class TwoMembers(Posterior):
    """An ensemble of two, in a file that is not the library's: a sample is a member."""

    def draw_noise(self, num_samples: int, generator: torch.Generator | None) -> Tensor:
        return torch.randint(2, (num_samples, 1), generator=generator, device=self.device)

    def forward_noise(
        self,
        inputs: Tensor,
        noise: Tensor | None,
        *,
        estimator: str = "shared",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        assert noise is not None
        members = [self.network.get_submodule(str(int(which)))(inputs) for which in noise]
        return torch.stack(members)


def test_a_kind_of_ones_own() -> None:
    """It trains, is checkpointed and predicts without a change in the library."""
    members = nn.ModuleList([network(seed=0, dropout=0.0), network(seed=1, dropout=0.0)])
    posterior = TwoMembers(members)
    inputs, labels = blobs(60)
    objective = selbo.SummaryELBO(summary(), 60)
    first = selbo.predict(posterior, inputs, 16, generator=noise())
    result = fit(posterior, objective, (inputs, labels), steps=60, batch_size=20, learning_rate=0.02)
    assert result.curve[:, 2].eq(0).all(), "no KL"
    found = selbo.predict(posterior, inputs, 16, generator=noise())
    assert (found.classes == labels).double().mean() > (first.classes == labels).double().mean()
    members.eval()
    each = [member(inputs).softmax(-1) for member in members]
    drawn = torch.randint(2, (16, 1), generator=noise())
    share = drawn.double().mean().item()
    assert 0 < share < 1
    torch.testing.assert_close(found.probs, (1 - share) * each[0] + share * each[1])
    with pytest.raises(ValueError, match="`bnn` must have a KL divergence, but TwoMembers has none"):
        selbo.kl_divergence(posterior)
