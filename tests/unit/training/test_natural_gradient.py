"""Training by natural gradient: the steps of a loop by hand, resuming, selection, and which objectives it takes."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from unit.training.toys import Rows, blobs, network, states_equal, summary

import selbo
from selbo.objectives import KL, Objective
from selbo.posteriors import NaturalGradient, NaturalGradientPosterior
from selbo.training import Callback, Checkpoint, Diverged, EarlyStopping, Optimizer, Validation
from selbo.training.batches import TensorBatches

N = 60
TRAIN, VAL = blobs(N), blobs(41, seed=1)
SETTINGS = {"prior_std": 0.5, "initial_curvature": 0.3, "betas": (0.9, 0.99), "temperature": 0.5}


def posterior_of(net: nn.Module | None = None, **settings: object) -> NaturalGradientPosterior:
    return NaturalGradientPosterior(network() if net is None else net, **{"num_data": N, **SETTINGS, **settings})


def run(posterior: NaturalGradientPosterior | None = None, **settings: object) -> selbo.training.FitResult:
    objective = settings.pop("objective", None) or selbo.CrossEntropy(N, summary(ema_decay=0.8))
    settings = {"train": TRAIN, "steps": 12, "batch_size": 16, "learning_rate": 0.05, **settings}
    return selbo.fit(posterior_of() if posterior is None else posterior, objective, **settings)


def same(one: NaturalGradientPosterior, other: NaturalGradientPosterior) -> bool:
    """Whether means, precisions and buffers agree bit for bit."""
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in ours.items())


# --- a step ---


@pytest.mark.parametrize("num_samples", [1, 3])
def test_steps_are_those_of_a_loop_by_hand(num_samples: int, seed: int) -> None:
    net, by_hand = network(dropout=0.0, seed=seed), network(dropout=0.0, seed=seed)
    result = run(
        posterior_of(net),
        objective=selbo.CrossEntropy(N),
        schedule="cosine",
        warmup_steps=4,
        seed=seed,
        num_samples=num_samples,
    )
    optimizer = NaturalGradient(by_hand.parameters(), num_data=N, seed=seed, **SETTINGS)
    batches = TensorBatches(*TRAIN, batch_size=16, seed=seed).from_step(0)
    losses = []
    for step in range(12):
        rate = 0.025 * (1 + math.cos(math.pi * step / 12)) * min(1, (step + 1) / 4)
        optimizer.param_groups[0]["lr"] = rate
        inputs, labels, *_ = next(batches)
        optimizer.zero_grad()
        found = []
        for _ in range(num_samples):
            with optimizer.sampled():
                loss = nn.functional.cross_entropy(by_hand(inputs), labels)
                (loss / num_samples).backward()
            found.append(loss.item())
        losses.append(sum(found) / num_samples)
        optimizer.step()
    for (name, value), other in zip(net.state_dict().items(), by_hand.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-6, msg=name)
    assert net[1].num_batches_tracked == 12 * num_samples
    torch.testing.assert_close(result.curve[:, 0], torch.tensor(losses).double(), rtol=1e-4, atol=1e-6)
    for name, std in result.posterior.stds().items():
        torch.testing.assert_close(std, optimizer.std(by_hand.get_parameter(name)), rtol=1e-5, atol=0)


def test_a_network_and_a_name_suffice() -> None:
    net, other = network(), network()
    result = selbo.fit(net, selbo.CrossEntropy(N), TRAIN, steps=12, batch_size=16, posterior="natural_gradient")
    posterior = NaturalGradientPosterior(other, num_data=N)
    selbo.fit(posterior, selbo.CrossEntropy(N), TRAIN, steps=12, batch_size=16, learning_rate=0.1)
    assert isinstance(result.posterior, NaturalGradientPosterior)
    assert result.posterior.network is net
    assert same(result.posterior, posterior)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_data_and_precision(precision: str) -> None:
    posterior = posterior_of()
    result = run(posterior, train=Rows(*TRAIN), val=VAL, precision=precision, objective=selbo.CrossEntropy(N))
    assert result.val_nll is not None
    assert math.isfinite(result.val_nll)
    assert posterior.network[0].weight.dtype == torch.float32


def test_unlabelled_inputs_go_through_the_same_sample() -> None:
    result = run(objective=selbo.CrossEntropy(N, summary()), unlabelled=blobs(21, seed=4)[0], num_samples=2)
    assert result.curve[-1, 3] != 0


def test_frozen_parameters_stay() -> None:
    net = network()
    net[0].requires_grad_(requires_grad=False)
    before = copy.deepcopy(net[0].state_dict())
    result = run(posterior_of(net))
    assert all(torch.equal(value, before[name]) for name, value in net[0].state_dict().items())
    assert set(result.posterior.stds()) == {"1.weight", "1.bias", "4.weight", "4.bias"}


def test_the_global_random_state_and_the_mode_are_left_alone() -> None:
    net = network().eval()
    state = torch.get_rng_state()
    run(posterior_of(net))
    assert torch.equal(torch.get_rng_state(), state)
    assert not net.training


# --- objectives: the update contains the KL ---


@pytest.mark.parametrize("pair", ["summary", "labels", "composed"])
def test_an_elbo_is_the_loss_without_its_kl(pair: str) -> None:
    objectives = {
        "summary": (selbo.CrossEntropy(N, summary()), selbo.SummaryELBO(summary(), N)),
        "labels": (selbo.CrossEntropy(N), selbo.ELBO(N)),
        "composed": (selbo.CrossEntropy(N), Objective(N)),
    }
    one, other = posterior_of(), posterior_of()
    for posterior, objective in zip((one, other), objectives[pair], strict=True):
        result = run(posterior, objective=objective)
        assert (result.curve[:, 2] == 0).all(), "no KL in the terms"
    assert same(one, other)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (selbo.ELBO(N, kl_weight=0.1), "`ELBO` must have a KL of weight 1 without warm-up .* temperature"),
        (selbo.ELBO(N, kl_warmup=10), "`ELBO` must have a KL of weight 1 without warm-up .* temperature"),
        (Objective(N, kl=KL(0.5)), "`Objective` must have a KL of weight 1"),
        (selbo.ELBO(N, estimator="local"), "`estimator` must be 'shared'"),
        (selbo.CrossEntropy(N + 1), "`num_data` must be the same"),
    ],
)
def test_objectives_that_do_not_fit_are_refused(objective: Objective, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(objective=objective)


def test_other_arguments_that_do_not_fit_are_refused() -> None:
    for optimizer in ("adam", "sgd", Optimizer("sgd")):
        with pytest.raises(ValueError, match="`optimizer` must not be given for a natural gradient"):
            run(optimizer=optimizer)
    with pytest.raises(ValueError, match="`posterior` must be"):
        selbo.fit(network(), selbo.CrossEntropy(N), TRAIN, posterior="laplace")
    with pytest.raises(ValueError, match="`model` must be a deterministic network for posterior='natural_gradient'"):
        selbo.fit(network(bayesian=True), selbo.ELBO(N), TRAIN, posterior="natural_gradient")
    with pytest.raises(ValueError, match="`warmup_steps` must be"):
        run(warmup_steps=-1)


# --- resuming, selection, the end ---


class Stop(Exception):  # noqa: N818
    """Ends a session."""


class StopAt(Callback):
    """Ends a session after a record."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_record(self, record: dict[str, float]) -> None:
        if record["step"] == self.step:
            raise Stop


@pytest.mark.parametrize("num_samples", [1, 2])
def test_a_resumed_run_is_the_same_run(num_samples: int, tmp_path: Path) -> None:
    settings = {
        "val": VAL,
        "validation": Validation(every=3, select="best"),
        "schedule": "plateau",
        "warmup_steps": 3,
        "log_every": 2,
        "num_samples": num_samples,
    }
    whole, parts = posterior_of(), posterior_of()
    expected = run(whole, **settings)
    checkpoint = Checkpoint(tmp_path / "run", every=0.0)
    with pytest.raises(Stop):
        run(parts, checkpoint=checkpoint, callbacks=[StopAt(8)], **settings)
    other = posterior_of(network(seed=9))
    found = run(other, checkpoint=checkpoint, **settings)
    assert found.resumed_from == 6
    assert torch.equal(found.curve, expected.curve)
    assert same(other, whole)
    assert found.val_nll == expected.val_nll
    with pytest.raises(ValueError, match="posterior: prior_std"):
        run(posterior_of(prior_std=0.7), checkpoint=checkpoint, **settings)
    with pytest.raises(ValueError, match="warmup_steps"):
        run(posterior_of(), checkpoint=checkpoint, **{**settings, "warmup_steps": 0})


def test_the_best_weights_come_back_with_their_precisions() -> None:
    scores = iter([1.0, 3.0, 2.0, 1.0])
    snapshots: list[dict[str, Tensor]] = []
    posterior = posterior_of()

    def score(log_probs: Tensor, labels: Tensor) -> float:
        snapshots.append({name: value.clone() for name, value in posterior.state_dict().items()})
        return next(scores)

    result = run(posterior, val=VAL, validation=Validation(every=3, select=score))
    assert result.selected_step == 6
    assert all(torch.equal(value, snapshots[1][name]) for name, value in posterior.state_dict().items())
    name = "precision/0.weight"
    assert not torch.equal(snapshots[1][name], snapshots[3][name])


def test_early_stopping_and_divergence() -> None:
    result = run(val=VAL, validation=Validation(every=1), callbacks=[EarlyStopping(patience=1)], steps=200)
    assert result.steps < 200
    with pytest.raises(Diverged):
        run(learning_rate=1e30, steps=50)


def test_a_second_run_continues_from_the_precisions() -> None:
    posterior = posterior_of()
    run(posterior)
    before = {name: value.clone() for name, value in posterior.precisions().items()}
    run(posterior, learning_rate=1e-9, steps=1)
    for name, value in posterior.precisions().items():
        assert not torch.equal(value, before[name])
        torch.testing.assert_close(value, before[name], rtol=0.2, atol=0)


def test_a_network_trained_this_way_is_an_ordinary_network_afterwards(tmp_path: Path) -> None:
    net = network()
    run(posterior_of(net))
    twin = copy.deepcopy(net)
    assert states_equal(net, twin)
    torch.save(net.state_dict(), tmp_path / "network")
    twin = network(seed=5)
    twin.load_state_dict(torch.load(tmp_path / "network"))
    assert states_equal(net, twin)
    selbo.fit(net, selbo.CrossEntropy(N), TRAIN, steps=3, batch_size=16)
    assert not states_equal(net, twin)
