"""The loop: what a step is, what decides a run, which weights are kept, and what happens when there are none."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from unit.training.toys import FEATURES, Rows, blobs, network, states_equal, summary

import selbo
from selbo.objectives.predictive import predictive_log_probs
from selbo.random import derive
from selbo.training import Checkpoint, Diverged, Optimizer, Validation
from selbo.training import checkpoint as files
from selbo.training.batches import TensorBatches

N = 60
TRAIN, VAL = blobs(N), blobs(41, seed=1)


def objective_of(net, **settings):
    bayesian = any("posteriors" in name for name, _ in net.named_parameters())
    return selbo.SummaryELBO(summary(ema_decay=0.8), N, **settings) if bayesian else selbo.CrossEntropy(N)


def run(net=None, *, objective=None, train=TRAIN, **settings):
    net = network(bayesian=True) if net is None else net
    settings = {"steps": 12, "batch_size": 16, "learning_rate": 0.01, **settings}
    return selbo.fit(net, objective or objective_of(net), train, **settings), net


# --- a step ---


@pytest.mark.parametrize("kind", ["adam", "sgd"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_steps_are_those_of_a_loop_by_hand(kind, schedule):
    net, by_hand = network(dropout=0.0), network(dropout=0.0)
    run(net, optimizer=Optimizer(kind, 0.8, 0.02), schedule=schedule, seed=3)
    rates = {"lr": 0.01, "weight_decay": 0.02}
    if kind == "adam":
        optimizer = torch.optim.Adam(by_hand.parameters(), **rates)
    else:
        optimizer = torch.optim.SGD(by_hand.parameters(), momentum=0.8, nesterov=True, **rates)
    batches = TensorBatches(*TRAIN, batch_size=16, seed=3).from_step(0)
    for step in range(12):
        if schedule == "cosine":
            optimizer.param_groups[0]["lr"] = 0.005 * (1 + math.cos(math.pi * step / 12))
        inputs, labels, *_ = next(batches)
        optimizer.zero_grad()
        F.cross_entropy(by_hand(inputs), labels).backward()
        optimizer.step()
    for (name, value), other in zip(net.state_dict().items(), by_hand.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("bayesian", [False, True])
def test_a_weight_counts_an_example_as_often_as_it_says(bayesian):
    """All rows in every batch, so that it can be compared with rows that are repeated; validation likewise."""
    counts = torch.arange(N) % 3
    repeated = [each.repeat_interleave(counts, 0) for each in TRAIN]
    validation = torch.arange(len(VAL[1])) % 2
    found = []
    for train, val in (
        ((TRAIN[0].double(), TRAIN[1], counts.double()), (VAL[0].double(), VAL[1], validation.double())),
        ((repeated[0].double(), repeated[1]), (VAL[0][1::2].double(), VAL[1][1::2])),
    ):
        net = selbo.models.MLP((FEATURES, 3), generator=torch.Generator().manual_seed(0)).double()
        net = selbo.to_bayesian(net) if bayesian else net
        objective = selbo.SummaryELBO(summary(), N) if bayesian else selbo.CrossEntropy(N, summary())
        result = selbo.fit(net, objective, train, val, steps=12, batch_size=1000, learning_rate=0.01)
        found.append((result, net))
    (weighted, net), (plain, other) = found
    torch.testing.assert_close(weighted.curve, plain.curve, rtol=1e-9, atol=1e-9)
    assert weighted.val_nll == pytest.approx(plain.val_nll, rel=1e-9)
    for value, expected in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-7, atol=1e-9)


def test_an_epoch_is_a_pass():
    result, _ = run(steps=None, epochs=4)  # 60 // 16 = 3 batches an epoch
    assert result.steps == 12
    assert result.curve.shape == (12, 4)
    loader = DataLoader(Rows(*TRAIN), batch_size=16)
    assert run(network(), train=loader, steps=None, epochs=4)[0].steps == 16  # the incomplete one counts
    assert run(train=loader, steps=None, epochs=4)[0].steps == 12  # and does not with a summary


def test_the_curve_holds_the_terms_and_warm_up_is_by_step():
    result, _ = run(objective=selbo.SummaryELBO(summary(), N, summary_warmup=6, kl_warmup=3, kl_weight=0.5))
    loss, log_likelihood, kl, log_summary = result.curve.T
    grown = torch.arange(1, 13)
    total = log_likelihood - 0.5 * (grown / 3).clamp(max=1) * kl + (grown / 6).clamp(max=1) * log_summary
    torch.testing.assert_close(loss, -total / N, rtol=1e-5, atol=1e-6)
    assert result.curve.dtype == torch.float64
    assert (kl > 0).all()
    assert (log_summary != 0).all()


def test_the_summary_is_about_unlabelled_inputs_if_there_are_any():
    far = 50 * torch.randn(33, FEATURES, generator=torch.Generator().manual_seed(0))

    def first_step(**settings):
        with torch.random.fork_rng(devices=[]):
            net = selbo.to_bayesian(nn.Linear(FEATURES, 3), init_std=1e-6)
        nn.init.eye_(net.posteriors[0].mean)
        nn.init.zeros_(net.posteriors[1].mean)
        return run(net, objective=selbo.SummaryELBO(likelihood, N), steps=1, **settings)[0].curve[0]

    likelihood = summary()
    without, given = first_step(), first_step(unlabelled=far, seed=0)
    assert torch.equal(without[1:3], given[1:3])  # labels and weights know nothing of it
    rows = TensorBatches(far, torch.zeros(33).long(), batch_size=16, seed=derive(0, "unlabelled")).from_step(0)
    expected = likelihood(next(rows).inputs[:, :3].log_softmax(-1))
    torch.testing.assert_close(given[3], expected.double(), rtol=1e-4, atol=1e-4)
    assert abs(without[3] - given[3]) > 1


def test_bf16_is_near_fp32_and_trains_on_a_cpu():
    exact, rough = (run(network(dropout=0.0), precision=precision, steps=60)[0] for precision in ("fp32", "bf16"))
    assert not torch.equal(exact.curve, rough.curve)
    torch.testing.assert_close(exact.curve[0, 0], rough.curve[0, 0], rtol=0.02, atol=0)
    assert rough.curve[-10:, 0].mean() < rough.curve[:10, 0].mean()
    assert rough.engine == "eager, bf16, cpu"
    assert exact.engine == "eager, fp32, cpu"


def test_frozen_weights_stay_and_modes_come_back():
    net, before = network(), network()
    net[0].requires_grad_(False)
    net[3].eval()
    run(net)
    assert torch.equal(net[0].weight, before[0].weight)
    assert not torch.equal(net[4].weight, before[4].weight)
    assert net.training
    assert not net[3].training


# --- what decides a run ---


@pytest.mark.parametrize("bayesian", [True, False])
def test_the_seed_and_nothing_else_decides_a_run(bayesian, seed):
    def curve(seed, state):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(state)
            result, net = run(network(bayesian=bayesian), seed=seed, val=VAL)
        return result, net

    (one, net), (same, same_net), (other, _) = curve(seed, 1), curve(seed, 2), curve(seed + 1, 1)
    assert torch.equal(one.curve, same.curve)
    assert one.history == same.history
    assert states_equal(net, same_net)
    assert not torch.equal(one.curve, other.curve)


def test_the_same_data_in_another_wrapping_is_the_same_run():
    one, other = run()[0], run(train=TensorDataset(*TRAIN))[0]
    assert torch.equal(one.curve, other.curve)


def test_tasks_of_a_run_have_random_numbers_of_their_own():
    purposes = [("noise", 0), ("noise", 1), ("noise", 0, 0), ("order", 0), ("torch", 0, 0), ("augment", 0, 0)]
    seeds = {derive(seed, *purpose) for seed in (0, 1) for purpose in purposes}
    assert len(seeds) == 12
    assert all(0 <= each < 2**63 for each in seeds)
    assert derive(0, "noise", 0, 0) == derive(0, "noise", 0, 0)


def test_how_often_a_run_looks_up_changes_nothing(tmp_path):
    one, _ = run(log_every=1, val=VAL, validation=Validation(every=6))
    other, _ = run(
        log_every=5, val=VAL, validation=Validation(every=6), checkpoint=Checkpoint(tmp_path / "run", every=0)
    )
    assert torch.equal(one.curve, other.curve)
    assert one.val_nll == other.val_nll


def test_an_objective_that_was_used_before_starts_anew():
    objective = selbo.SummaryELBO(summary(ema_decay=0.9), N)
    first, second = (run(objective=objective)[0] for _ in range(2))
    assert torch.equal(first.curve, second.curve)


@pytest.mark.parametrize("loader", ["shuffled", "own generator", "noisy"])
def test_loaders_are_decided_by_the_seed_too(loader):
    settings = {
        "shuffled": {},
        "own generator": {"generator": torch.Generator().manual_seed(0)},
        "noisy": {},
    }[loader]
    rows = Rows(*TRAIN, noise=0.5 * (loader == "noisy"))
    one, same, other = (
        run(
            train=DataLoader(rows, batch_size=16, shuffle=True, **settings), val=DataLoader(rows, shuffle=True), seed=s
        )[0]
        for s in (0, 0, 1)
    )
    assert torch.equal(one.curve, same.curve)
    assert one.val_nll == same.val_nll
    assert not torch.equal(one.curve, other.curve)


# --- which weights are kept ---


class Watch:
    """The weights at each record."""

    def __init__(self, net):
        self.net, self.seen = net, {}

    def __call__(self, record):
        self.seen[record["step"]] = {name: value.clone() for name, value in self.net.state_dict().items()}


def nll_of(net, objective, step):
    generator = torch.Generator().manual_seed(derive(0, "validation", step))
    log_probs = predictive_log_probs(net, VAL[0], num_samples=1, objective=objective, generator=generator)
    return F.nll_loss(log_probs, VAL[1]).item()


@pytest.mark.parametrize("select", ["last", "best"])
@pytest.mark.parametrize("bayesian", [True, False])
def test_selection(select, bayesian):
    net = network(bayesian=bayesian)
    objective = objective_of(net)
    watch = Watch(net)
    often = {"validation": Validation(2, 1, select), "log_every": 2, "callbacks": [watch]}
    result, _ = run(net, objective=objective, val=VAL, learning_rate=1.0, steps=10, **often)
    nll = {record["step"]: record["val_nll"] for record in result.history}
    best = min(nll, key=nll.get)
    chosen = best if select == "best" else 10
    assert best not in (2, 10), "the test needs a run that gets worse again"
    assert result.selection == select
    assert result.selected_step == chosen
    assert result.val_nll == nll[chosen] == pytest.approx(nll_of(net, objective, chosen), rel=1e-5)
    assert all(torch.equal(value, watch.seen[chosen][name]) for name, value in net.state_dict().items())


def accuracy(log_probs, labels):
    return (log_probs.argmax(-1) == labels).double().mean()


def test_selection_by_a_function_of_the_validation_predictions():
    net = network()
    watch = Watch(net)
    often = {"validation": Validation(every=2, select=accuracy), "log_every": 2, "callbacks": [watch]}
    result, _ = run(net, val=VAL, learning_rate=1.0, steps=20, **often)
    scores = {}
    for step, weights in watch.seen.items():
        net.load_state_dict(weights)
        noise = torch.Generator().manual_seed(0)
        log_probs = predictive_log_probs(net, VAL[0], num_samples=1, objective=objective_of(net), generator=noise)
        scores[step] = accuracy(log_probs, VAL[1]).item()
    assert len(set(scores.values())) > 1, "the test needs a run that changes"
    assert result.selected_step == max(scores, key=scores.get)  # the first of several
    assert result.selection == "accuracy"
    assert result.val_nll == next(each["val_nll"] for each in result.history if each["step"] == result.selected_step)


def test_the_last_weights_are_kept_by_default():
    result, _ = run()
    assert (result.selection, result.selected_step, result.val_nll) == ("last", 12, None)
    assert (result.resumed_from, result.checkpoint, result.steps) == (0, None, 12)


def test_validation_is_in_evaluation_mode_and_at_the_end():
    result, net = run(network(), val=VAL, validation=Validation(every=5), log_every=1)
    seen = [record.get("val_nll") for record in result.history]
    assert seen[3] is None
    assert len({each for each in seen if each is not None}) == 3  # steps 5, 10 and 12
    assert result.val_nll == pytest.approx(F.cross_entropy(net.eval()(VAL[0]), VAL[1]).item(), rel=1e-5)


def test_cosine_and_plateau_reach_the_optimiser():
    rates = [record["learning_rate"] for record in run(schedule="cosine", log_every=1)[0].history]
    assert rates[0] == 0.01
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.005 * (1 + math.cos(math.pi * 11 / 12)))
    often = {"validation": Validation(every=1), "log_every": 1}
    stuck, _ = run(network(), schedule="plateau", val=VAL, steps=40, learning_rate=0.5, **often)
    rates = [record["learning_rate"] for record in stuck.history]
    assert set(rates) <= {0.5 / 2**halved for halved in range(4)}
    assert len(set(rates)) > 1


# --- not a number ---


class Breaks(nn.Module):
    """Answers with NaN, or with infinity, from some training step on."""

    def __init__(self, after, value=math.nan):
        super().__init__()
        self.net, self.after, self.value, self.calls = network(dropout=0.0), after, value, 0

    def forward(self, inputs):
        self.calls += self.training
        return self.net(inputs) + (self.value if self.calls > self.after and self.training else 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_last_good_checkpoint(value, tmp_path):
    path = tmp_path / "run"
    settings = {"checkpoint": Checkpoint(path, every=0), "log_every": 2}
    with pytest.raises(
        Diverged, match=r"the loss is not finite at step 5 \(loss nan, log_likelihood nan, kl 0, log_su"
    ) as e:
        run(Breaks(5, value), objective=selbo.CrossEntropy(N), **settings)
    assert f"the last good checkpoint is {str(path)!r}, of step 4" in str(e.value)
    tensors, description, history = files.read_checkpoint(path)
    assert description["step"] == 4
    assert [record["step"] for record in history] == [2, 4]
    assert all(value.isfinite().all() for value in tensors.values())
    # it is good: a run that does not break goes on from it, and ends as if nothing had happened
    resumed, net = run(Breaks(99), objective=selbo.CrossEntropy(N), **settings)
    straight, other = run(Breaks(99), objective=selbo.CrossEntropy(N))
    assert resumed.resumed_from == 4
    assert torch.equal(resumed.curve, straight.curve)
    assert states_equal(net, other)


def test_a_checkpoint_may_be_for_the_time_before_the_end_alone(tmp_path):
    path = tmp_path / "run"
    short, _ = run(checkpoint=Checkpoint(path, at_end=False))
    assert short.checkpoint is None
    assert not path.exists()
    long, net = run(checkpoint=Checkpoint(path, every=0, at_end=False), log_every=2)
    assert long.checkpoint == path
    assert 0 < files.read_checkpoint(path)[1]["step"] < long.steps
    again, other = run(checkpoint=Checkpoint(path, at_end=False))
    assert 0 < again.resumed_from < again.steps
    assert (short.earlier_seconds, again.earlier_seconds) == (0, files.read_checkpoint(path)[1]["seconds"])
    assert again.earlier_seconds < again.seconds
    assert torch.equal(again.curve, long.curve)
    assert states_equal(net, other)


def test_without_a_checkpoint_that_is_said(tmp_path):
    with pytest.raises(Diverged, match=r"at step 0 .*; no checkpoint was written before; a smaller learning rate"):
        run(Breaks(0), objective=selbo.CrossEntropy(N))
    with pytest.raises(Diverged, match=r"at step 0 .*; no checkpoint was written before; a smaller learning rate"):
        run(Breaks(0), objective=selbo.CrossEntropy(N), checkpoint=Checkpoint(tmp_path / "run", every=0), log_every=1)
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_finite_are_not_kept(tmp_path):
    """The loss of a step may be finite and its gradient not: the checkpoint has to be from before."""
    net, calls = network(dropout=0.0), []

    def break_third(gradient):
        calls.append(1)
        return gradient * math.nan if len(calls) == 3 else gradient

    net[0].weight.register_hook(break_third)
    with pytest.raises(
        Diverged, match=r"the weights are not finite at step 2 \(loss \d.*, of step 2; a smaller learning"
    ):
        run(net, checkpoint=Checkpoint(tmp_path / "run", every=0), log_every=1)
    tensors, description, _ = files.read_checkpoint(tmp_path / "run")
    assert description["step"] == 2
    assert all(value.isfinite().all() for value in tensors.values())


def test_a_run_does_not_end_with_weights_that_are_not_finite():
    net = network(dropout=0.0)
    net[0].weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(Diverged, match=r"the weights are not finite at step 0 "):
        run(net, steps=1)


def test_a_validation_nll_that_is_not_finite_stops_the_run():
    inputs = VAL[0].clone()
    inputs[3] = math.inf
    with pytest.raises(Diverged, match="the validation NLL is not finite at step 3"):
        run(network(), val=(inputs, VAL[1]), validation=Validation(every=4, select="best"))
