"""The mean-field posterior: standard deviations computed once in a step, nothing left behind, no walk in a step."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unit.nn.nets import bayesian
from unit.nn.test_gaussian import lopsided

from selbo.nn.gaussian import softplus_inverse
from selbo.nn.layers import VariationalLayer
from selbo.posteriors import MeanField, Posterior

F64 = torch.float64


def loss(posterior: Posterior, inputs: Tensor, estimator: str = "shared", chunk_size: int | None = None) -> Tensor:
    source = torch.Generator().manual_seed(4)
    logits = posterior.forward_samples(inputs, 4, generator=source, estimator=estimator, chunk_size=chunk_size)
    kl = posterior.kl_divergence()
    assert kl is not None
    return logits.square().mean() + 0.3 * kl


def gradients(posterior: Posterior, value: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(value, list(posterior.network.parameters()), materialize_grads=True))


@pytest.mark.parametrize("estimator", ["shared", "local", "flipout"])
@pytest.mark.parametrize("name", ["mlp", "lenet", "transformer", "tied weights", "shared layer"])
def test_once_changes_neither_value_nor_gradients(name: str, estimator: str) -> None:
    _, bnn, inputs = bayesian(name)
    posterior = MeanField(bnn.eval())
    for chunk_size in (None, 3):
        expected = loss(posterior, inputs, estimator, chunk_size)
        with posterior.once():
            got = loss(posterior, inputs, estimator, chunk_size)
        assert torch.equal(got, expected)
        for one, two in zip(gradients(posterior, got), gradients(posterior, expected), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-14)


def test_samples_and_kl_share_their_standard_deviations(monkeypatch: pytest.MonkeyPatch) -> None:
    _, bnn, inputs = bayesian("mlp")
    posterior, calls = MeanField(bnn), []
    softplus = F.softplus
    monkeypatch.setattr(nn.functional, "softplus", lambda x: calls.append(1) or softplus(x))
    with posterior.once():
        loss(posterior, inputs, chunk_size=1)
    assert len(calls) == len(posterior.gaussians)


def test_stds_are_one_tensor_inside_and_fresh_outside() -> None:
    posterior = MeanField(lopsided())
    each = posterior.gaussians[0]
    assert posterior.stds()[0] is not posterior.stds()[0]
    with posterior.once():
        first = posterior.stds()[0]
        assert posterior.stds()[0] is first
        with posterior.once(), torch.no_grad():
            assert posterior.stds()[0] is first
        assert posterior.stds()[0] is first, "the inner context leaves the outer one alone"
        with torch.no_grad():
            each.rho.add_(1.0)
        torch.testing.assert_close(posterior.stds()[0], F.softplus(each.rho), rtol=0, atol=0)
        assert posterior.stds()[0] is not first, "a change of the posterior is seen"
    assert posterior.stds()[0] is not posterior.stds()[0]


class Kl(nn.Module):
    def __init__(self, posterior: MeanField) -> None:
        super().__init__()
        self.bnn, self.of = posterior.network, posterior.kl_divergence

    def forward(self) -> Tensor:
        return self.of()


def test_stds_met_without_gradients_first_have_them_later() -> None:
    posterior = MeanField(lopsided())
    for without in (torch.no_grad, torch.inference_mode):
        with posterior.once():
            with without():
                posterior.kl_divergence()
            assert all(grad.abs().max() > 0 for grad in gradients(posterior, posterior.kl_divergence()))
            other = nn.Parameter(posterior.gaussians[0].rho.detach() + 2.0)
            got = torch.func.functional_call(Kl(posterior), {"bnn.0.posteriors.0.rho": other}, ())
        assert got > posterior.kl_divergence(), "of the parameter that was put in"


def test_stds_are_forgotten_after_an_exception() -> None:
    posterior = MeanField(lopsided())
    with pytest.raises(ZeroDivisionError), posterior.once():
        posterior.stds()[1 // 0]
    assert posterior.stds()[0] is not posterior.stds()[0]


def test_a_network_can_be_copied_while_samples_go_through() -> None:
    """What belongs to the pass has a graph, and stays behind."""
    _, bnn, inputs = bayesian("mlp")
    copies = []
    bnn.register_forward_pre_hook(lambda module, _: copies.append(copy.deepcopy(module)))
    MeanField(bnn).forward_samples(inputs, 2, generator=torch.Generator().manual_seed(1))
    (twin,) = copies
    assert all(each.sampled is None for each in twin.modules() if isinstance(each, VariationalLayer))


def test_the_kl_by_tensor_adds_up() -> None:
    posterior = MeanField(lopsided())
    by_tensor = posterior.kl_by_tensor()
    assert [each.shape for each in by_tensor] == [each.mean.shape for each in posterior.gaussians]
    torch.testing.assert_close(torch.stack([each.sum() for each in by_tensor]).sum(), posterior.kl_divergence())


def test_a_network_without_gaussians_is_refused() -> None:
    with pytest.raises(ValueError, match="`bnn` must be a network made by"):
        MeanField(nn.Identity())


@pytest.mark.parametrize("estimator", ["shared", "local", "flipout"])
def test_a_scale_multiplies_the_standard_deviations(estimator: str, tmp_path: Path) -> None:
    _, bnn, inputs = bayesian("mlp")
    one, other = (MeanField(copy.deepcopy(bnn).eval()) for _ in range(2))
    one.scale = 1.7
    with torch.no_grad():
        for each in other.gaussians:
            each.rho.copy_(softplus_inverse(1.7 * each.std))
        found, expected = (
            posterior.forward_samples(inputs, 3, generator=torch.Generator().manual_seed(1), estimator=estimator)
            for posterior in (one, other)
        )
    torch.testing.assert_close(found, expected)
    assert one.kl_divergence() != other.kl_divergence(), "the posterior itself is as before"
    loaded = MeanField(copy.deepcopy(bnn))
    loaded.load(one.save(tmp_path / "posterior.safetensors"))
    assert loaded.scale == 1.7
    loaded.load(other.save(tmp_path / "posterior.safetensors"))
    assert loaded.scale == 1.0
    with pytest.raises(ValueError, match="`scale` must be a finite number greater than 0"):
        one.scale = 0.0
