"""What `fit` refuses, in one sentence that names the argument, and before anything is changed."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from unit.training.toys import blobs, network, states_equal, summary

import selbo
from selbo.posteriors import as_posterior
from selbo.training import Checkpoint, Diverged, EarlyStopping, Optimizer, Validation
from selbo.training.engines import CaptureFailed, Engine, Plan
from selbo.training.fit import _device

TRAIN = blobs(32)

REFUSED = {
    "steps and epochs": ({"steps": 1, "epochs": 1}, "`steps` and `epochs` cannot both be given"),
    "no steps": ({"steps": 0}, "`steps` must be a whole number of at least 1, but got 0"),
    "half a step": ({"steps": 1.5}, "`steps` must be a whole number of at least 1, but got 1.5"),
    "no epochs": ({"epochs": 0}, "`epochs` must be a whole number of at least 1"),
    "batch size": ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1"),
    "draws": ({"num_samples": 0}, "`num_samples` must be a whole number of at least 1"),
    "optimizer": ({"optimizer": "lbfgs"}, r"`optimizer` must be one of \['adam', 'sgd'\], but got 'lbfgs'"),
    "rate": ({"learning_rate": 0.0}, "`learning_rate` must be a finite number greater than 0"),
    "schedule": ({"schedule": "step"}, r"`schedule` must be one of .* but got 'step'"),
    "augment": (
        {"augment": "mixup"},
        r"`augment` must be one of \['crop_and_flip', 'shift_and_flip'\], but got 'mixup'",
    ),
    "augment of vectors": ({"augment": "crop_and_flip"}, r"`augment` needs images of shape \(B, C, H, W\)"),
    "best of nothing": ({"validation": Validation(select="best")}, "`val` must be given for select='best'"),
    "validation": ({"validation": 5}, "`validation` must be a selbo.training.Validation, but got int"),
    "early stopping without data": ({"callbacks": [EarlyStopping()]}, "`val` must be given for EarlyStopping"),
    "callbacks": ({"callbacks": [3]}, "`callbacks` must hold functions or selbo.training callbacks, but got int"),
    "plateau of nothing": ({"schedule": "plateau"}, "`val` must be given for schedule='plateau'"),
    "seed": ({"seed": -1}, "`seed` must be a whole number of at least 0"),
    "seed, a word": ({"seed": "a"}, "`seed` must be a whole number of at least 0"),
    "device": ({"device": "gpu"}, "`device` must be a torch device such as 'cpu' or 'cuda', but got 'gpu'"),
    "precision": ({"precision": "fp16"}, r"`precision` must be one of \['bf16', 'fp32'\], but got 'fp16'"),
    "engine": (
        {"engine": "fast"},
        r"`engine` must be one of \['auto', 'compile\+cudagraph', .*, 'eager'\], but got 'fast'",
    ),
    "graph on a CPU": (
        {"engine": "compile+cudagraph", "device": "cpu"},
        r"`engine` can be 'compile\+cudagraph' only for tensors on CUDA",
    ),
    "log_every": ({"log_every": 0}, "`log_every` must be a whole number of at least 1"),
    "unlabelled": ({"unlabelled": TRAIN[0]}, "`unlabelled` is for a summary term, but CrossEntropy has"),
    "val": ({"val": 3}, r"`val` must be \(inputs, labels\), a Dataset or a DataLoader, but got int"),
}


REFUSED_AT_ONCE = {
    "momentum": (lambda: Optimizer("sgd", momentum=-1.0), "`momentum` must be a finite number of at least 0"),
    "weight decay": (lambda: Optimizer(weight_decay=-1.0), "`weight_decay` must be a finite number of at least 0"),
    "select": (lambda: Validation(select="first"), r"`select` must be one of \['best', 'last'\], but got 'first'"),
    "validation": (lambda: Validation(every=0), "`every` must be a whole number of at least 1"),
    "samples": (lambda: Validation(num_samples=0), "`num_samples` must be a whole number of at least 1"),
    "checkpoint": (lambda: Checkpoint("run", every=-1.0), "`every` must be a finite number of at least 0"),
    "patience": (lambda: EarlyStopping(0), "`patience` must be a whole number of at least 1"),
    "threshold": (lambda: EarlyStopping(min_delta=-1.0), "`min_delta` must be a finite number of at least 0"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED_AT_ONCE.values(), ids=REFUSED_AT_ONCE.keys())
def test_settings_are_refused_where_they_are_made(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_settings(settings, message, tmp_path):
    net, before = network(), network()
    net.eval()
    with pytest.raises(ValueError, match=message) as error:
        selbo.fit(net, selbo.CrossEntropy(num_data=32), TRAIN, checkpoint=tmp_path / "run", **settings)
    assert "\n" not in str(error.value)
    assert not net.training
    assert states_equal(net, before)
    assert list(tmp_path.iterdir()) == []


def test_cuda_where_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="`device` is 'cuda:1', but no CUDA device is available: use 'cpu'"):
        selbo.fit(network(), selbo.CrossEntropy(num_data=32), TRAIN, device="cuda:1")


def test_a_model_and_an_objective_that_are_none():
    with pytest.raises(ValueError, match="`model` must be a torch module or a selbo posterior, but got str"):
        selbo.fit("resnet", selbo.CrossEntropy(num_data=32), TRAIN)
    with pytest.raises(
        ValueError, match=r"`objective` must be an objective such as selbo\.ELBO, but got CrossEntropyLoss"
    ):
        selbo.fit(network(), nn.CrossEntropyLoss(), TRAIN)
    with pytest.raises(
        ValueError, match="`model` must have at least one parameter that requires a gradient, but has none"
    ):
        selbo.fit(network().requires_grad_(False), selbo.CrossEntropy(num_data=32), TRAIN)


def test_an_objective_for_another_kind_of_network():
    with pytest.raises(ValueError, match="`ELBO` is for Bayesian networks, but `model` is deterministic"):
        selbo.fit(network(), selbo.ELBO(num_data=32), TRAIN)


@pytest.mark.parametrize("unlabelled", [torch.zeros(0, 4), torch.tensor(1.0), [1.0]])
def test_bad_unlabelled_inputs(unlabelled):
    objective = selbo.CrossEntropy(32, summary())
    with pytest.raises(ValueError, match=r"`unlabelled` must be a tensor of inputs, shape \(U, \.\.\.\)"):
        selbo.fit(network(), objective, TRAIN, unlabelled=unlabelled)


def compiler_error():
    """What torch.compile raises if its backend fails."""

    def backend(*_):
        raise RuntimeError("no compiler\nin this place")

    torch.compiler.reset()
    with pytest.raises(Exception, match="no compiler") as error:
        torch.compile(lambda x: 2 * x, backend=backend)(torch.ones(3))
    torch.compiler.reset()
    return error.value


FAILURES = {
    "capture": (
        lambda: CaptureFailed("RuntimeError: no capture\nin this place"),
        "CaptureFailed: .* no capture in this",
    ),
    "compiler": (compiler_error, "BackendCompilerFailed: .* no compiler in this place"),
    "network": (lambda: RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
    "data": (lambda: ValueError("`labels` must be classes"), None),
}


@pytest.mark.parametrize(("make", "text"), FAILURES.values(), ids=FAILURES.keys())
def test_only_a_graph_that_cannot_be_had_gives_way_to_eager_steps(make, text, monkeypatch):
    """Those begin where it stood: the steps of the present call count, not those of earlier calls."""
    failure = make()
    net = network(dropout=0.0)
    parameters = list(net.parameters())
    optimizer = Optimizer("sgd", momentum=0.0).build(parameters, rate=0.1, on_graph=False)
    objective = selbo.CrossEntropy(num_data=32)
    plan = Plan(
        as_posterior(net), objective, optimizer, 1, "fp32", None, 0, 100, torch.device("cpu"), parameters=parameters
    )
    from selbo.training import engines
    from selbo.training.batches import TensorBatches

    batches = TensorBatches(*TRAIN, batch_size=8, seed=0)

    class Breaks(engines.EagerEngine):
        """Stands in for a graph: three eager steps, then the capture fails."""

        def __init__(self, plan, batches, unlabelled, *, start):
            super().__init__(plan, batches, unlabelled, start=start)
            self.name, self.graph, self.eager_steps, self.rows = "one graph", None, 0, torch.zeros(9, 4).double()

        def run(self, start, stop, rate_at, seconds):
            self.taken = 0
            for step in range(start, stop):
                if self.eager_steps == 3:
                    raise failure
                self.rows[self.taken] = super().run(step, step + 1, rate_at, seconds)[0]
                self.eager_steps, self.taken = self.eager_steps + 1, self.taken + 1
            return self.rows[: self.taken].clone()

    monkeypatch.setattr(engines, "EagerEngine", type("Plain", (engines.EagerEngine,), {}))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with torch.random.fork_rng(devices=[]):
        engine = Engine(plan, batches, None, start=0, choice="auto")
        engine.engine = Breaks(plan, batches, None, start=0)
        rows = [engine.run(0, 2, lambda _: 0.1, 9.0)]
        if text is None:
            with pytest.raises(type(failure), match=str(failure)):
                engine.run(2, 6, lambda _: 0.1, 9.0)
            return
        with pytest.warns(UserWarning, match=f"could not be one graph, so it runs eagerly, more slowly: {text}"):
            rows.append(engine.run(2, 6, lambda _: 0.1, 9.0))
    expected = selbo.fit(
        network(dropout=0.0),
        objective,
        TRAIN,
        steps=6,
        batch_size=8,
        optimizer=Optimizer("sgd", momentum=0.0),
        learning_rate=0.1,
    )
    assert torch.equal(torch.cat(rows), expected.curve)


def test_under_torchrun_each_process_has_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert _device("cuda") == torch.device("cuda", 3)
    assert _device("cuda:1") == torch.device("cuda", 1)
    assert _device("cpu") == torch.device("cpu")
    monkeypatch.delenv("LOCAL_RANK")
    assert _device("cuda") == torch.device("cuda")


def test_weight_decay_is_for_deterministic_networks():
    bnn = selbo.to_bayesian(network())
    with pytest.raises(ValueError, match=r"`weight_decay` is for deterministic networks, but got 0\.1 for a Bayesian"):
        selbo.fit(bnn, selbo.ELBO(num_data=32), TRAIN, steps=1, optimizer=Optimizer(weight_decay=0.1))


def test_an_optimiser_of_torchs_kind_is_refused_in_a_sentence():
    net = network()
    for optimizer in (selbo.NaturalGradient(net.parameters(), num_data=32), torch.optim.SGD(net.parameters())):
        with pytest.raises(ValueError, match=rf"got one of torch's kind, {type(optimizer).__name__}: use it in a loop"):
            selbo.fit(net, selbo.CrossEntropy(num_data=32), TRAIN, steps=1, optimizer=optimizer)


@pytest.mark.parametrize("moved", [1, -1])
def test_labels_that_are_no_classes(moved):
    with pytest.raises(
        ValueError, match=r"`labels` must be classes from 0 to \d, as the model has \d outputs, but got"
    ):
        selbo.fit(network(), selbo.CrossEntropy(num_data=32), (TRAIN[0], TRAIN[1] + moved), steps=1)


def test_a_network_that_answers_with_something_else():
    class Named(nn.Linear):
        def forward(self, input):
            return {"logits": super().forward(input)}

    width = TRAIN[0].shape[1]
    with torch.random.fork_rng():
        named = Named(width, 3)
        turned = nn.Sequential(nn.Linear(width, 3), nn.Flatten(0), nn.Unflatten(0, (2, -1)))
    with pytest.raises(ValueError, match="must return one tensor of logits, but returned dict"):
        selbo.fit(named, selbo.CrossEntropy(num_data=32), TRAIN, steps=1)
    with pytest.raises(ValueError, match="must return one row per input, but returned 2 rows for 32"):
        selbo.predict(turned, TRAIN[0][:32], generator=torch.Generator().manual_seed(0))


def test_a_loader_of_weights_is_told_what_to_do():
    data = torch.utils.data.TensorDataset(*TRAIN, torch.ones(len(TRAIN[1])))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    with pytest.raises(ValueError, match="must give pairs of tensors, inputs and labels, but gave 3 things; to use"):
        selbo.fit(network(), selbo.CrossEntropy(num_data=32), loader, steps=1)


def test_a_batch_without_weight_is_no_harm():
    weights = torch.zeros(len(TRAIN[1]))
    weights[0] = 1.0
    objective = selbo.CrossEntropy(num_data=32, summary=summary())
    result = selbo.fit(network(), objective, (*TRAIN, weights), steps=20, batch_size=4)
    assert torch.isfinite(result.curve).all()


@pytest.mark.parametrize("kind", ["tensors", "loader", "unlabelled"])
def test_inputs_that_are_not_numbers_are_named(kind):
    """Not the learning rate is to blame."""
    inputs, labels = TRAIN[0].clone(), TRAIN[1]
    unlabelled = inputs.clone()
    (unlabelled if kind == "unlabelled" else inputs)[5, 1] = float("nan")
    train = DataLoader(TensorDataset(inputs, labels), batch_size=8) if kind == "loader" else (inputs, labels)
    objective = selbo.CrossEntropy(len(labels), summary())
    where = {"tensors": "training inputs hold NaN or infinity in row 5", "loader": "in batch 0, row 5"}
    message = where.get(kind, "unlabelled inputs hold NaN or infinity in row 5")
    with pytest.raises(Diverged, match=message):
        selbo.fit(network(), objective, train, unlabelled=unlabelled if kind == "unlabelled" else None, steps=9)
