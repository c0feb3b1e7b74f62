"""Ensembles of Bayesian members: each is trained as on its own, predictions are mixtures, files hold all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from seeded import noise
from torch import Tensor, nn
from unit.training.toys import CLASSES, FEATURES, blobs, images, summary

import selbo
from selbo.posteriors import MeanField, MeanFieldEnsemble, NaturalGradientEnsemble, Posterior, as_posterior
from selbo.training import FitResult

N = 60
INPUTS, LABELS = blobs(N)
INPUTS = INPUTS.double()
Either = MeanFieldEnsemble | NaturalGradientEnsemble


def doubles() -> nn.Module:
    return images().double()


def make(kind: str, num_members: int, *, seed: int = 0, summary_of: str = "members") -> Either:
    if kind == "mean field":
        return MeanFieldEnsemble(
            lambda: selbo.to_bayesian(doubles(), init_std=0.2), num_members, seed=seed, summary_of=summary_of
        )
    return NaturalGradientEnsemble(doubles, num_members, num_data=N, seed=seed, summary_of=summary_of, prior_std=0.5)


def run(model: Posterior | nn.Module, *, has_summary: bool = True, **settings: object) -> FitResult:
    objective = selbo.SummaryELBO(summary(), N) if has_summary else selbo.ELBO(N)
    settings = {"steps": 12, "batch_size": 16, "learning_rate": 0.05, "num_samples": 2, "callbacks": (), **settings}
    return selbo.fit(model, objective, (INPUTS, LABELS), **settings)


def state(member: Posterior | nn.Module) -> dict[str, Tensor]:
    return {name: each.clone() for name, each in as_posterior(member).state_dict().items()}


both = pytest.mark.parametrize("kind", ["mean field", "natural gradient"])


# --- training ---


@both
def test_one_member_is_the_posterior_step_by_step(kind: str, seed: int) -> None:
    ensemble = make(kind, 1, seed=seed)
    alone = ensemble.member(0)
    one, other = (run(each, seed=seed, steps=8) for each in (alone, ensemble))
    torch.testing.assert_close(one.curve, other.curve, rtol=1e-8, atol=1e-8)
    ours, theirs = state(alone), state(ensemble.member(0))
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-6, atol=1e-8)


@both
def test_a_member_does_not_depend_on_the_others(kind: str) -> None:
    """Training of the first of three members, with other weights of the last one."""
    first, last = {}, {}
    for change in (0.0, 1.0):
        ensemble = make(kind, 3)
        with torch.no_grad():
            for each in ensemble.network.parameters():
                each[2].add_(change)
        before = state(ensemble.member(0))
        run(ensemble)
        first[change], last[change] = state(ensemble.member(0)), state(ensemble.member(2))
        assert any(not torch.equal(value, before[name]) for name, value in first[change].items()), "it is trained"
    for name, value in first[0.0].items():
        torch.testing.assert_close(value, first[1.0][name], rtol=1e-7, atol=1e-9)
    assert any(not torch.allclose(value.double(), last[1.0][name].double()) for name, value in last[0.0].items())


def test_logits_kl_and_gradients_are_those_of_separate_networks() -> None:
    ensemble = make("mean field", 3)
    separate = [MeanField(ensemble.member(number)) for number in range(3)]
    drawn = ensemble.draw_noise(2, noise())
    assert drawn.shape == (2, 3, separate[0].num_weights)
    found = ensemble.forward_noise(INPUTS, drawn)
    outputs = [each.forward_noise(INPUTS, drawn[:, number]) for number, each in enumerate(separate)]
    torch.testing.assert_close(found, torch.stack(outputs, 1).flatten(0, 1))
    kls = [each.kl_divergence() for each in separate]
    torch.testing.assert_close(ensemble.kl_divergence(), torch.stack(kls).mean())
    (3 * (found.square().mean() + ensemble.kl_divergence())).backward()
    sum(one.square().mean() + kl for one, kl in zip(outputs, kls, strict=True)).backward()
    for name, value in ensemble.network.named_parameters():
        expected = torch.stack([each.network.get_parameter(name).grad for each in separate])
        torch.testing.assert_close(value.grad, expected, rtol=1e-8, atol=1e-10)


@both
def test_a_summary_is_about_members_or_their_mixture(kind: str) -> None:
    curves = [run(make(kind, 3, summary_of=of), steps=1, seed=1).curve[0] for of in ("members", "mixture")]
    likelihood, summaries = (torch.stack(curves)[:, i] for i in (1, 3))
    assert likelihood[0] == likelihood[1]
    assert summaries[0] != summaries[1]
    ensemble = make("mean field", 3, summary_of="mixture")
    log_probs = ensemble.log_probs(INPUTS, 2, generator=noise())
    expected = torch.stack([part.exp().mean(0).log() for part in log_probs.split(3)])
    torch.testing.assert_close(ensemble.summarised(log_probs), expected)


# --- predictions ---


@both
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_predictions_are_the_mixture_of_all_samples_of_all_members(kind: str, scale: float) -> None:
    ensemble = make(kind, 3)
    run(ensemble, has_summary=False)
    ensemble.scale = scale
    log_probs = ensemble.log_probs(INPUTS, 4, generator=noise())
    assert log_probs.shape == (12, N, CLASSES)
    drawn = ensemble.draw_noise(4, noise())
    for number in range(3):
        member = as_posterior(ensemble.member(number))
        member.scale = scale
        member.network.eval()
        if kind == "mean field":
            own = drawn[:, number]
        else:
            sizes = [each.numel() for each in ensemble.network.parameters()]
            parts = [part.unflatten(1, (3, -1))[:, number] for part in drawn.split(sizes, 1)]
            own = torch.cat(parts, 1)
        with torch.no_grad():
            expected = member.forward_noise(INPUTS, own).log_softmax(-1)
        torch.testing.assert_close(log_probs[number::3], expected)
    prediction = selbo.predict(ensemble, INPUTS, 4, generator=noise())
    torch.testing.assert_close(prediction.probs, log_probs.exp().mean(0))
    assert selbo.belief_weights(log_probs, summary()).weights.shape == (12,)


@both
def test_a_saved_ensemble_comes_back(kind: str, tmp_path: Path) -> None:
    ensemble, other = make(kind, 3), make(kind, 3, seed=1)
    run(ensemble)
    path = ensemble.save(tmp_path / "ensemble.safetensors")
    other.load(path)
    one, two = (each.log_probs(INPUTS, 2, generator=noise()) for each in (ensemble, other))
    assert torch.equal(one, two)
    with pytest.raises(ValueError, match="is not the network that was saved"):
        make(kind, 2).load(path)


@both
def test_a_run_resumes_from_its_checkpoint(kind: str, tmp_path: Path) -> None:
    whole = make(kind, 2)
    expected = run(whole).curve

    class Stop(Exception):  # noqa: N818
        pass

    def interrupt(record: dict[str, float]) -> None:
        if record["step"] == 8:
            raise Stop

    settings = {"checkpoint": selbo.training.Checkpoint(tmp_path / "run", every=1e-9), "log_every": 4}
    with pytest.raises(Stop):
        run(make(kind, 2), **settings, callbacks=[interrupt])
    again = make(kind, 2, seed=5)
    result = run(again, **settings)
    assert 0 < result.resumed_from < 12
    torch.testing.assert_close(result.curve, expected, rtol=0, atol=0)


def test_mistakes_are_named() -> None:
    linear = torch.nn.utils.skip_init
    with pytest.raises(ValueError, match=r"must return a network made by selbo\.to_bayesian, but it is deterministic"):
        MeanFieldEnsemble(doubles, 2)
    with pytest.raises(ValueError, match="must return a deterministic network"):
        NaturalGradientEnsemble(lambda: selbo.to_bayesian(linear(nn.Linear, FEATURES, 2)), 2, num_data=N)
    ensemble = make("mean field", 2)
    with pytest.raises(ValueError, match="`estimator` must be 'shared' for MeanFieldEnsemble"):
        ensemble.forward_samples(INPUTS, 1, estimator="flipout", generator=noise())
    natural = make("natural gradient", 2)
    with pytest.raises(ValueError, match="an ensemble has none: use `member`"):
        natural.mean_network()
    with pytest.raises(ValueError, match="an ensemble is not one network"):
        natural.bayesian_network()
