"""The file of a run: whole or not there, readable without running code, and only for the run it is of."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from unit.training.toys import network, summary

import selbo
from selbo.posteriors import as_posterior
from selbo.training import checkpoint as files


def model_with_layout(layout):
    with torch.random.fork_rng(devices=[]):
        net = nn.Sequential(nn.Conv2d(3, 4, (2, 3)), nn.Flatten(), nn.Linear(4 * 4 * 3, 2))
    return net.to(memory_format=layout)


def step(model, optimizer, seed):
    inputs = torch.randn(6, 3, 5, 5, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "down" / "run.safetensors"
    tensors = {
        "a": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).T,
        "b": torch.tensor(7),
        "c": torch.zeros(0),
    }
    history = [{"step": 1, "loss": 0.1 + 0.2}, {"step": 2, "loss": 1e-300}]
    files.write_checkpoint(path, tensors, {"step": 2, "best": [0, None]}, history=history)
    found, description, records = files.read_checkpoint(path)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert description["step"] == 2
    assert description["best"] == [0, None]
    assert records == history
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_that_is_there_survives_a_failure_to_write(tmp_path, monkeypatch):
    path = tmp_path / "run"
    files.write_checkpoint(path, {"a": torch.zeros(2)}, {})
    before = path.read_bytes()

    def full(_):
        raise OSError("no space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        files.write_checkpoint(path, {"a": torch.ones(2)}, {})
    assert path.read_bytes() == before
    monkeypatch.undo()
    files.write_checkpoint(path, {"a": torch.ones(2)}, {})  # what the failure left is no obstacle
    assert torch.equal(files.read_checkpoint(path)[0]["a"], torch.ones(2))
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("damage", ["empty", "cut", "header", "text", "folder", "history"])
def test_a_damaged_file_is_one_sentence(damage, tmp_path):
    path = tmp_path / "run"
    files.write_checkpoint(path, {"a": torch.zeros(100)}, {})
    content = path.read_bytes()
    if damage == "history":
        content = content.replace(b'"history"', b'"histori"')
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(
            {"empty": b"", "cut": content[:-10], "header": b"\xff" * 8 + content[8:], "text": b"hello"}.get(
                damage, content
            )
        )
    with pytest.raises(ValueError, match=r"`checkpoint` '.*run' cannot be read: .*; remove the file to start again"):
        files.read_checkpoint(path)


@pytest.mark.parametrize("metadata", [None, {"selbo": json.dumps({"format": "selbo-bnn-1"})}])
def test_another_safetensors_file_is_refused(metadata, tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "run", metadata=metadata)
    with pytest.raises(ValueError, match=r"`checkpoint` must be a file written by selbo\.fit, but '.*run' is not"):
        files.read_checkpoint(tmp_path / "run")


def test_the_first_difference_is_named(tmp_path):
    settings = {"seed": 1, "model": {"shapes": {"a": [2], "b": [3, 4]}}, "augment": None}
    files.check_same_run(tmp_path, settings, json.loads(json.dumps(settings)))
    for other, message in {
        "seed": ({**settings, "seed": 2}, "its seed is 1, here it is 2"),
        "shape": (
            {**settings, "model": {"shapes": {"a": [2], "b": [5]}}},
            r"its model: shapes: b is \[3, 4\], here it is \[5\]",
        ),
        "less": ({**settings, "model": {"shapes": {"a": [2]}}}, r"its model: shapes: b is \[3, 4\], here it is none"),
        "more": ({**settings, "augment": "x" * 200}, "its augment is none, here it is 'xxx.{90,95}xxx[.]{3};"),
    }.values():
        with pytest.raises(ValueError, match=f"belongs to another run: {message}"):
            files.check_same_run(tmp_path, settings, other)


def test_descriptions_of_models_tell_them_apart():
    def described(model):
        return json.dumps(files.describe_model(as_posterior(model)))

    with torch.random.fork_rng(devices=[]):
        wide = selbo.to_bayesian(nn.Linear(4, 3), prior_std=2.0)
        narrow = selbo.to_bayesian(nn.Linear(4, 3), prior_std=1.0)
        nets = [network(), network(bayesian=True), wide, narrow, nn.Sequential(nn.Linear(4, 3), nn.Tanh())]
        nets.append(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    assert len({described(each) for each in nets}) == len(nets)
    assert described(network(seed=1)) == described(network(seed=2))  # not the weights


def test_descriptions_of_objectives_tell_them_apart():
    belief = selbo.Masses((0.2, 0.3, 0.5))
    bins = selbo.ScoreBins([0.3, 0.6])

    def likelihood(**settings):
        return selbo.SummaryLikelihood(bins, belief, **settings)

    objectives = [
        selbo.CrossEntropy(10),
        selbo.CrossEntropy(11),
        selbo.CrossEntropy(10, likelihood()),
        selbo.CrossEntropy(10, likelihood(concentration=10.0)),
        selbo.CrossEntropy(10, likelihood(form="multinomial")),
        selbo.CrossEntropy(10, selbo.SummaryLikelihood(bins, selbo.Masses((0.2, 0.4, 0.4)))),
        selbo.CrossEntropy(10, selbo.SummaryLikelihood(selbo.ScoreBins([0.3, 0.7]), belief)),
        selbo.ELBO(10),
        selbo.ELBO(10, kl_warmup=5),
    ]
    assert len({json.dumps(files.describe_objective(each)) for each in objectives}) == len(objectives)
    one, other = (selbo.SummaryELBO(summary(ema_decay=0.9), 10) for _ in range(2))
    other.summaries[0].average.weight += 1  # moving averages are no setting
    assert files.describe_objective(one) == files.describe_objective(other)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_an_optimiser_goes_on_in_any_memory_layout(kind, layout):
    """A state that is contiguous beside weights that are not would be paired entry by wrong entry."""
    settings = {"lr": 0.1, "fused": True, **({"momentum": 0.9} if kind is torch.optim.SGD else {})}
    model = model_with_layout(layout)
    optimizer = kind(model.parameters(), **settings)
    step(model, optimizer, 0)
    tensors = {name: value.contiguous().clone() for name, value in files.optimizer_tensors(optimizer).items()}
    other = model_with_layout(layout)
    other.load_state_dict(model.state_dict())
    resumed = kind(other.parameters(), **settings)
    files.load_optimizer(resumed, tensors)
    for seed in (1, 2):
        step(model, optimizer, seed)
        step(other, resumed, seed)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_sgd_without_momentum_has_no_state():
    model = model_with_layout(torch.contiguous_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step(model, optimizer, 0)
    assert files.optimizer_tensors(optimizer) == {}


def test_a_missing_package_is_named_at_once(monkeypatch):
    monkeypatch.setattr(files.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match="`checkpoint` needs the package safetensors: pip install"):
        files.check_available()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: nn.Dropout(0.1), lambda: nn.Dropout(0.9)),
        (lambda: nn.LeakyReLU(0.01), lambda: nn.LeakyReLU(5.0)),
        (lambda: nn.MultiheadAttention(8, 1), lambda: nn.MultiheadAttention(8, 4)),
        (lambda: nn.Conv1d(1, 1, 3), lambda: nn.Conv1d(1, 1, 3, stride=2, padding=1)),
        (lambda: nn.Linear(2, 2), lambda: nn.Linear(2, 2).requires_grad_(False)),
    ],
)
def test_settings_that_change_no_shape_are_part_of_a_network(one, other):
    with torch.random.fork_rng():
        networks = [nn.Sequential(each()) for each in (one, one, other)]
    described = [json.loads(json.dumps(files.describe_model(as_posterior(each)))) for each in networks]
    assert described[0] == described[1] != described[2]


def test_a_network_is_described_alike_before_and_after_it_ran():
    with torch.random.fork_rng():
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    bnn = selbo.to_bayesian(net)
    before = files.describe_model(as_posterior(bnn))
    selbo.forward_samples(bnn, torch.zeros(3, 1, 4, 4), 2, generator=torch.Generator().manual_seed(0))
    assert files.describe_model(as_posterior(bnn.eval())) == before
