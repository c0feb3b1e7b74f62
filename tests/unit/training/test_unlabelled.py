"""Inputs of the summaries in training: whose they are, how many a step, in which order, and with which engine."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from unit.training.toys import FEATURES, blobs, network, summary

import selbo
from selbo.objectives.unlabelled import Assigned
from selbo.posteriors import as_posterior
from selbo.random import derive
from selbo.training import engines
from selbo.training.batches import TensorBatches, UnlabelledBatches
from selbo.training.engines import EagerEngine, GraphEngine, Optimizer, Plan

N = 24
TRAIN = blobs(N)
HERE, THERE = blobs(70, seed=2)[0], 3 * blobs(50, seed=3)[0]


def fractions(name="fractions"):
    masses = selbo.Masses([0.5, 0.3, 0.2])
    return selbo.SummaryLikelihood(selbo.ClassRegions(3), masses, 20.0, name=name)


def batches_of(inputs, size, *purpose, seed=0):
    no_labels = torch.zeros(len(inputs)).long()
    return TensorBatches(inputs, no_labels, batch_size=size, seed=derive(seed, "unlabelled", *purpose)).from_step(0)


def simple():
    return selbo.models.MLP((FEATURES, 6, 3), generator=torch.Generator().manual_seed(3))


def test_steps_are_those_of_a_loop_by_hand():
    """Two sets in orders of their own, the training inputs for the third, warm-up by step."""

    def objective():
        return selbo.CrossEntropy(N, [fractions(), summary(), fractions("there")], summary_warmup=4)

    net, by_hand, given = simple(), simple(), {"fractions": HERE, "there": THERE}
    settings = {"optimizer": Optimizer("sgd", momentum=0.0), "learning_rate": 0.1}
    result = selbo.fit(
        net, objective(), TRAIN, unlabelled=given, unlabelled_batch_size=30, batch_size=8, steps=7, seed=5, **settings
    )
    batches = TensorBatches(*TRAIN, batch_size=8, seed=5).from_step(0)
    here, there = batches_of(HERE, 30, seed=5), batches_of(THERE, 30, 1, seed=5)
    optimizer, criterion = torch.optim.SGD(by_hand.parameters(), lr=0.1), objective()
    for step in range(7):
        inputs, labels, *_ = next(batches)
        seen = [next(here).inputs, None, next(there).inputs]
        terms = criterion(by_hand, inputs, labels, unlabelled=seen, step=step)
        optimizer.zero_grad()
        terms.loss.backward()
        optimizer.step()
        torch.testing.assert_close(result.curve[step], torch.stack(list(terms.named().values())).double())
    for one, other in zip(net.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_terms_of_several_summaries_are_logged_one_by_one(tmp_path):
    records = []
    objective = selbo.SummaryELBO([summary(), fractions()], N)
    options = {"steps": 4, "batch_size": 8, "log_every": 2, "callbacks": [records.append]}
    result = selbo.fit(network(bayesian=True), objective, TRAIN, unlabelled=HERE, **options)
    assert result.terms == ("loss", "log_likelihood", "kl", "log_summary", "log_summary/0", "log_summary/fractions")
    assert result.curve.shape == (4, 6)
    torch.testing.assert_close(result.curve[:, 3], result.curve[:, 4:].sum(1), rtol=1e-5, atol=1e-4)
    for index, record in enumerate(records):
        for column, name in enumerate(result.terms):
            assert record[name] == pytest.approx(result.curve[2 * index : 2 * index + 2, column].mean().item())


@pytest.mark.parametrize(
    ("given", "size"),
    [({}, 32), ({"unlabelled_batch_size": 50}, 50), ({"unlabelled_batch_size": 500}, 70), ({"loader": 6}, 6)],
    ids=str,
)
def test_few_labels_do_not_make_few_unlabelled_inputs(given, size):
    """A step has as many as were asked for, though there are only 24 labels; a loader has a size of its own."""
    seen = []

    class Watching(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = simple()

        def forward(self, x):
            seen.append(len(x))
            return self.inner(x)

    given = dict(given)
    loader = given.pop("loader", None)
    train = DataLoader(TensorDataset(*TRAIN), batch_size=loader) if loader else TRAIN
    objective = selbo.CrossEntropy(N, summary())
    selbo.fit(Watching(), objective, train, unlabelled=HERE, steps=1, batch_size=32, **given)
    assert seen == [(loader or N) + size]


def test_none_for_all_is_none():
    options = {"steps": 3, "batch_size": 8}
    without, given = (
        selbo.fit(simple(), selbo.CrossEntropy(N, [summary(), fractions()]), TRAIN, unlabelled=unlabelled, **options)
        for unlabelled in (None, {"fractions": None})
    )
    assert torch.equal(without.curve, given.curve)


def test_the_same_tensor_is_the_same_batch():
    shared = UnlabelledBatches(
        Assigned((HERE, THERE), (0, None, 0, 1)), batch_size=16, device=torch.device("cpu"), seed=1
    )
    first = next(shared.from_step(2))
    assert len(first.tensors) == 2
    assert first.which == (0, None, 0, 1)
    again = next(shared.from_step(2))
    assert all(torch.equal(one, other) for one, other in zip(first.tensors, again.tensors, strict=True))
    sizes, which, sums = shared.describe()
    assert sizes == [16, 16]
    assert which == [0, None, 0, 1]
    assert sums[0] != sums[1]


def test_the_engine_for_cuda_takes_the_same_steps(monkeypatch):
    """Its code, run on a CPU without a graph: the same batches of all sets, over epochs that end at different steps."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: None)
    monkeypatch.setattr(engines, "WARM_UP_STEPS", 99)

    def eagerly(self):
        self._step()
        self.plan.optimizer.zero_grad(set_to_none=True)

    monkeypatch.setattr(GraphEngine, "_eagerly", eagerly)
    rows = []
    for make in (EagerEngine, lambda *arguments, **start: GraphEngine(*arguments, **start, compiled=False)):
        net = simple()
        parameters = list(net.parameters())
        objective = selbo.CrossEntropy(N, [fractions(), summary(ema_decay=0.9), fractions("there")], summary_warmup=9)
        optimizer = Optimizer("sgd", momentum=0.0).build(parameters, rate=0.1, on_graph=False)
        posterior = as_posterior(net)
        plan = Plan(
            posterior, objective, optimizer, 1, "fp32", None, 0, 100, torch.device("cpu"), parameters=parameters
        )
        batches = TensorBatches(*TRAIN, batch_size=8, seed=0)
        others = UnlabelledBatches(Assigned((HERE, THERE), (0, None, 1)), batch_size=30, device=plan.device, seed=0)
        with torch.random.fork_rng(devices=[]):
            engine = make(plan, batches, others, start=1)
            stretches = [engine.run(first, last, lambda _: 0.1, 9.0).clone() for first, last in ((1, 4), (4, 9))]
            rows.append(torch.cat(stretches))
    assert rows[0].shape == (8, 7)
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-6, atol=1e-6)


BAD = {
    "a size": ({"unlabelled_batch_size": 0}, "`unlabelled_batch_size` must be a whole number of at least 1, but got 0"),
    "a name": (
        {"unlabelled": {"somewhere": HERE}},
        r"`unlabelled` must name terms or their inputs, \['0', 'fractions'\], but got 'so",
    ),
    "a number": ({"unlabelled": [HERE, None, None]}, "`unlabelled` must have one entry per term, 2 .* but got 3"),
    "a shape": ({"unlabelled": HERE[:, :2]}, r"`unlabelled` must have shape .* but got \(24, 2\)"),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_bad_arguments_are_refused(settings, message):
    objective = selbo.CrossEntropy(N, [summary(), fractions()])
    with pytest.raises(ValueError, match=message):
        selbo.fit(simple(), objective, TRAIN, steps=1, batch_size=24, **{"unlabelled": HERE, **settings})
