"""Ensembles: members side by side are separate runs, predictions are mixtures, a summary is about either."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from unit.training.toys import CLASSES, FEATURES, blobs, images, network, states_equal, summary

import selbo
from selbo.evaluation.predict import mixture
from selbo.posteriors import Ensemble, as_posterior
from selbo.training import Callback, Checkpoint, Optimizer, Validation, fit

N = 60
TRAIN, VAL = blobs(N), blobs(41, seed=1)
UNLABELLED = blobs(21, seed=4)[0]


def dropped() -> nn.Module:
    layers = [nn.Linear(FEATURES, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, CLASSES)]
    return nn.Sequential(*layers)


def in_double(ensemble: Ensemble, *data: Tensor) -> list[Tensor]:
    ensemble.network.double()
    return [each.double() for each in data]


def run(model: nn.Module | Ensemble, **settings: object) -> selbo.training.FitResult:
    objective = settings.pop("objective", None) or selbo.CrossEntropy(N, summary())
    settings = {"train": TRAIN, "steps": 12, "batch_size": 16, "learning_rate": 0.05, **settings}
    return fit(model, objective, **settings)


def predict(model: nn.Module | Ensemble, num_samples: int = 1, **settings: int) -> selbo.Prediction:
    return selbo.predict(model, VAL[0], num_samples, generator=torch.Generator().manual_seed(0), **settings)


def members(ensemble: Ensemble) -> list[nn.Module]:
    return [ensemble.member(number) for number in range(ensemble.num_members)]


def assert_same_state(one: nn.Module, other: nn.Module, **tolerance: float) -> None:
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], **tolerance, msg=lambda text, name=name: f"{name}: {text}")


# --- training ---


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_member_is_the_network_step_by_step(optimizer: str, seed: int) -> None:
    """With dropout, whose masks are those of the network alone."""
    ensemble = Ensemble(dropped, 1, seed=seed)
    inputs, unlabelled = in_double(ensemble, TRAIN[0], UNLABELLED)
    alone = ensemble.member(0)
    settings = {"train": (inputs, TRAIN[1]), "unlabelled": unlabelled, "optimizer": optimizer, "seed": seed}
    one, other = (run(each, **settings) for each in (alone, ensemble))
    assert one.curve.shape == (12, 4)
    torch.testing.assert_close(one.curve, other.curve, rtol=1e-9, atol=1e-9)
    assert_same_state(alone, ensemble.member(0), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("optimizer", [Optimizer("sgd", weight_decay=0.01), Optimizer("adam", weight_decay=0.01)])
@pytest.mark.parametrize("has_summary", [False, True])
def test_members_side_by_side_are_separate_runs(optimizer: Optimizer, has_summary: bool, seed: int) -> None:
    ensemble = Ensemble(images, 3, seed=seed)
    (inputs,) = in_double(ensemble, TRAIN[0])
    separate, before = members(ensemble), members(ensemble)

    def trained(model: nn.Module | Ensemble) -> Tensor:
        objective = selbo.CrossEntropy(N, summary() if has_summary else None)
        settings = {"schedule": "cosine", "warmup_steps": 3, "optimizer": optimizer, "seed": seed}
        return run(model, objective=objective, train=(inputs, TRAIN[1]), **settings).curve

    curve = trained(ensemble)
    curves = torch.stack([trained(each) for each in separate])
    torch.testing.assert_close(curve, curves.mean(0), rtol=1e-9, atol=1e-9)
    for side_by_side, alone, start in zip(members(ensemble), separate, before, strict=True):
        assert_same_state(side_by_side, alone, rtol=1e-7, atol=1e-9)
        assert side_by_side[2].num_batches_tracked == 12, "BatchNorm of each member"
        assert not states_equal(alone, start)


def test_members_differ_and_do_not_depend_on_how_many_there_are() -> None:
    state = torch.get_rng_state()
    few, many, other = (Ensemble(dropped, count, seed=seed) for count, seed in ((2, 5), (4, 5), (4, 6)))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(states_equal(few.member(number), many.member(number)) for number in range(2))
    everyone = [each[0].weight for ensemble in (many, other) for each in members(ensemble)]
    assert all(not torch.equal(one, two) for one, two in itertools.combinations(everyone, 2))
    run(many)
    trained = [each[0].weight for each in members(many)]
    assert all(not torch.allclose(one, two, atol=0.01) for one, two in itertools.combinations(trained, 2))


def test_dropout_masks_differ_between_members() -> None:
    ensemble = Ensemble(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 8, bias=False)), 3)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        ensemble.network[1].weight.copy_(torch.eye(8).expand(3, 8, 8))
        torch.default_generator.manual_seed(0)
        masks = ensemble.logits(torch.ones(20, 8), 1)
    assert set(masks.unique().tolist()) == {0.0, 2.0}
    assert all(not torch.equal(one, other) for one, other in itertools.combinations(masks, 2))


class Tied(nn.Module):
    """Two layers with the same weight, a frozen layer and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(FEATURES, CLASSES).requires_grad_(requires_grad=False)
        self.register_buffer("shift", torch.rand(FEATURES), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.frozen(self.second(self.first(inputs + self.shift).relu()))


def test_shared_and_frozen_tensors(tmp_path: Path) -> None:
    ensemble = Ensemble(Tied, 2)
    alone, frozen = members(ensemble), ensemble.network.frozen.weight.clone()
    assert ensemble.network.first.weight is ensemble.network.second.weight
    assert alone[0].first.weight is alone[0].second.weight
    assert not torch.equal(alone[0].shift, alone[1].shift)
    run(ensemble)
    for number, each in enumerate(alone):
        run(each)
        assert_same_state(each, ensemble.member(number), rtol=1e-4, atol=1e-5)
    assert torch.equal(ensemble.network.frozen.weight, frozen)
    assert ensemble.network.first.weight is ensemble.network.second.weight
    path, other = ensemble.save(tmp_path / "ensemble"), Ensemble(Tied, 2, seed=1)
    other.load(path)
    assert states_equal(ensemble.network, other.network)


def test_no_step_walks_through_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    walks, walk = [], nn.Module.named_modules
    monkeypatch.setattr(nn.Module, "named_modules", lambda self, *a, **k: (walks.append(1), walk(self, *a, **k))[1])

    def counted(steps: int) -> int:
        walks.clear()
        run(Ensemble(dropped, 2), steps=steps)
        return len(walks)

    assert counted(3) == counted(9) > 0


# --- predictions ---


def test_the_prediction_is_the_mixture_of_the_members() -> None:
    ensemble = Ensemble(dropped, 3)
    run(ensemble)
    ensemble.network.train()
    found = predict(ensemble, batch_size=16)
    expected = mixture([predict(each) for each in members(ensemble)])
    for name in ("probs", "log_probs", "entropy", "expected_entropy", "mutual_information"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-5, atol=1e-6)
    assert found.mutual_information.mean() > 1e-3
    assert ensemble.network[3].training
    assert torch.equal(predict(ensemble, 1).probs, predict(ensemble, 64).probs)


def test_belief_weights_take_the_members() -> None:
    ensemble = Ensemble(dropped, 3)
    ensemble.network.eval()
    log_probs = ensemble.logits(VAL[0], 1).log_softmax(-1)
    assert selbo.belief_weights(log_probs, summary()).weights.shape == (3,)


# --- files ---


def test_a_round_trip_through_a_file(tmp_path: Path) -> None:
    one, other = Ensemble(dropped, 3), Ensemble(dropped, 3, seed=1)
    run(one)
    path = one.save(tmp_path / "ensemble.safetensors")
    assert not states_equal(one.network, other.network)
    other.load(path)
    assert states_equal(one.network, other.network)
    assert torch.equal(*(predict(each).probs for each in (one, other)))
    with pytest.raises(ValueError, match="is not the network that was saved in"):
        Ensemble(dropped, 2).load(path)
    with pytest.raises(ValueError, match="is not the network that was saved in"):
        as_posterior(network()).load(path)


class Stop(Exception):  # noqa: N818
    """Ends a session."""


class StopAt(Callback):
    """Ends a session after a record."""

    def on_record(self, record: dict[str, float]) -> None:
        if record["step"] == 8:
            raise Stop


def test_a_resumed_run_is_the_same_run(tmp_path: Path) -> None:
    settings = {"val": VAL, "validation": Validation(every=3, select="best"), "log_every": 2}
    whole, parts, other = (Ensemble(dropped, 2, seed=seed) for seed in (0, 0, 9))
    expected = run(whole, **settings)
    checkpoint = Checkpoint(tmp_path / "run", every=0.0)
    with pytest.raises(Stop):
        run(parts, checkpoint=checkpoint, callbacks=[StopAt()], **settings)
    found = run(other, checkpoint=checkpoint, **settings)
    assert found.resumed_from == 6
    assert torch.equal(found.curve, expected.curve)
    assert states_equal(whole.network, other.network)
    with pytest.raises(ValueError, match="posterior: summary_of"):
        run(Ensemble(dropped, 2, summary_of="mixture"), checkpoint=checkpoint, **settings)


# --- members or mixture ---


@pytest.mark.parametrize("summary_of", ["members", "mixture"])
@pytest.mark.parametrize("shifts", [False, True])
def test_what_a_summary_is_about(summary_of: str, shifts: bool) -> None:
    """The term and its gradients are those of the members' own graphs, with the correction of the predictions used."""
    shift = selbo.LabelShift([0.2, 0.3, 0.5], [0.5, 0.3, 0.2]) if shifts else None
    ensemble = Ensemble(images, 3, summary_of=summary_of)
    inputs, unlabelled = in_double(ensemble, TRAIN[0], UNLABELLED)
    ensemble.network.eval()
    terms = selbo.CrossEntropy(N, summary(), label_shift=shift)(ensemble, inputs, TRAIN[1], unlabelled=unlabelled)
    terms.loss.backward()
    alone = members(ensemble)
    log_probs = torch.stack([each(unlabelled).log_softmax(-1) for each in alone])
    if summary_of == "mixture":
        log_probs = log_probs.exp().mean(0, keepdim=True).log()
    if shifts:
        ratios = torch.tensor([2.5, 1.0, 0.4], dtype=torch.float64).log()
        log_probs = (log_probs + ratios).log_softmax(-1)
    expected = summary()(log_probs).mean()
    nll = torch.stack([nn.functional.cross_entropy(each(inputs), TRAIN[1]) for each in alone]).mean()
    (nll - expected / N).backward()
    torch.testing.assert_close(terms.log_summary, expected, rtol=1e-10, atol=0)
    for name, stacked in ensemble.network.named_parameters():
        by_member = torch.stack([each.get_parameter(name).grad for each in alone])
        torch.testing.assert_close(stacked.grad, by_member, rtol=1e-8, atol=1e-12)


def test_members_that_agree_make_no_difference() -> None:
    gradients, values = [], []
    for summary_of in ("members", "mixture"):
        ensemble = Ensemble(images, 3, summary_of=summary_of)
        (inputs,) = in_double(ensemble, TRAIN[0])
        with torch.no_grad():
            for each in ensemble.network.parameters():
                each.copy_(each[:1].expand_as(each).clone())
        terms = selbo.CrossEntropy(N, summary())(ensemble, inputs, TRAIN[1])
        gradients.append(torch.autograd.grad(terms.loss, list(ensemble.network.parameters())))
        values.append(terms.log_summary)
    torch.testing.assert_close(*values, rtol=1e-10, atol=0)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-12)


@pytest.mark.slow
def test_training_serves_what_the_summary_is_about() -> None:
    """Members with the stated confidence make a mixture with less; for a mixture with it, members have more."""
    likelihoods, confidences = {}, {}
    for summary_of in ("members", "mixture"):
        ensemble = Ensemble(lambda: selbo.models.MLP((FEATURES, 16, CLASSES)), 4, summary_of=summary_of)
        objective = selbo.CrossEntropy(N, summary(concentration=500.0))
        run(ensemble, objective=objective, steps=150, batch_size=N)
        log_probs = ensemble.logits(TRAIN[0], 1).detach().log_softmax(-1)
        mixed = log_probs.exp().mean(0).log()
        likelihoods[summary_of] = {"members": summary()(log_probs).mean(), "mixture": summary()(mixed)}
        confidences[summary_of] = {
            "members": log_probs.exp().amax(-1).mean(),
            "mixture": mixed.exp().amax(-1).mean(),
        }
    assert likelihoods["mixture"]["mixture"] > likelihoods["members"]["mixture"] + 1
    assert likelihoods["members"]["members"] > likelihoods["mixture"]["members"] + 1
    assert confidences["members"]["mixture"] < confidences["members"]["members"] < confidences["mixture"]["members"]


# --- arguments ---


class Pair(nn.Linear):
    """Returns more than logits."""

    def __init__(self) -> None:
        super().__init__(FEATURES, CLASSES)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(inputs), inputs


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="`make_network` must be a function that returns a network, but got Linear"):
        Ensemble(network()[0], 2)
    with pytest.raises(ValueError, match="`make_network` must return a torch module, but returned int"):
        Ensemble(lambda: 3, 2)
    with pytest.raises(ValueError, match="`make_network` must return a deterministic network"):
        Ensemble(lambda: network(bayesian=True), 2)
    with pytest.raises(ValueError, match="two members have the same weights"):
        Ensemble(network, 2)  # seeds itself
    shared = network()
    with pytest.raises(ValueError, match="must return a new network at each call"):
        Ensemble(lambda: shared, 2)
    widths = itertools.count(2)
    with pytest.raises(ValueError, match="networks of the same architecture"):
        Ensemble(lambda: nn.Linear(4, next(widths)), 2)
    with pytest.raises(ValueError, match="`num_members` must be"):
        Ensemble(dropped, 0)
    with pytest.raises(ValueError, match="`summary_of` must be"):
        Ensemble(dropped, 2, summary_of="mean")
    ensemble = Ensemble(dropped, 2)
    for number in (-1, 2):
        with pytest.raises(ValueError, match="`number` must be"):
            ensemble.member(number)
    with pytest.raises(ValueError, match=r"`model` must be a deterministic network for .* but is Ensemble"):
        run(ensemble, posterior="natural_gradient")
    with pytest.raises(ValueError, match="must return one tensor of logits"):
        Ensemble(Pair, 2).logits(torch.ones(2, FEATURES), 1)
