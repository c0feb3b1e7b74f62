"""A run that is killed, again and again and anywhere, ends bit for bit as one that was not."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader
from unit.training.toys import Rows, blobs, network, states_equal, summary

import selbo
from selbo.training import Checkpoint, EarlyStopping, Optimizer, Validation
from selbo.training import checkpoint as files

KILLS = {"tensors": 8, "loader": 4}
"""By the clock, in the midst of epochs and out of them; those while a checkpoint is written come on top."""
DATA = tuple(KILLS)
MOMENTS = ("half written", "written", "renamed")


class Server:
    """Starts sessions of a run in processes that can be killed."""

    def __init__(self) -> None:
        tests = Path(__file__).parents[1]
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("resume_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent / "src")])},
        )

    def start(self, folder: Path, **order: object) -> int:
        folder.mkdir(exist_ok=True)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"folder": str(folder), "data": "tensors", **order}) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def wait(self) -> int:
        """Exit status of the session."""
        return self._answer()

    def run(self, folder: Path, **order: object) -> int:
        self.start(folder, **order)
        return self.wait()

    def _answer(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    one = Server()
    with one.process:
        assert one.wait() == 0  # ready
        yield one
        assert one.process.stdin is not None
        one.process.stdin.close()


class Undisturbed(NamedTuple):
    """A run that nobody kills, and how long it takes."""

    folder: Path
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Undisturbed]:
    runs = {}
    for data in DATA:
        folder, begin = tmp_path_factory.mktemp("undisturbed"), time.perf_counter()
        assert server.run(folder, data=data) == 0
        runs[data] = Undisturbed(folder, time.perf_counter() - begin)
    return runs


def killed_after(server: Server, folder: Path, seconds: float, **order: object) -> bool:
    """A session that is killed after some time; False if it had ended by then."""
    child = server.start(folder, **order)
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return server.wait() == -signal.SIGKILL


def step_of(folder: Path) -> int:
    return int(files.read_checkpoint(folder / "run")[1]["step"]) if (folder / "run").exists() else 0


def assert_same_end(folder: Path, expected: Path) -> None:
    """Weights, moving averages, curve, history, log and checkpoint, bit for bit."""
    ours, theirs = (load_file(each / "end.safetensors") for each in (folder, expected))
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert (folder / "end.json").read_text() == (expected / "end.json").read_text()
    assert (folder / "log.jsonl").read_bytes() == (expected / "log.jsonl").read_bytes()
    (ours, here, _), (theirs, there, _) = (files.read_checkpoint(each / "run") for each in (folder, expected))
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []
    assert {**here, "seconds": 0} == {**there, "seconds": 0}
    assert sorted(each.name for each in folder.iterdir()) == sorted(each.name for each in expected.iterdir())


@pytest.mark.parametrize("data", DATA)
def test_kills_at_any_moment(data, server, undisturbed, tmp_path, seed):
    """Killed at least so often in all, in as many runs as it takes; each of them ends as if nothing had happened."""
    clock, kills, run, reached = random.Random(seed), 0, 0, set()
    while kills < KILLS[data]:
        folder = tmp_path / str(run)
        # at most a third of the run at a time, so that a run is killed several times; often before it goes on
        while kills < KILLS[data] and killed_after(
            server, folder, clock.uniform(0, undisturbed[data].seconds / 3), data=data
        ):
            kills += 1
            reached.add(step_of(folder))
        if not (folder / "end.json").exists():
            assert server.run(folder, data=data) == 0
        assert_same_end(folder, undisturbed[data].folder)
        run += 1
    assert len(reached - {0}) >= KILLS[data] // 4, "the kills did not come in the midst of the runs"


def test_kills_while_a_checkpoint_is_written(server, undisturbed, tmp_path):
    """Half of it on the disk; all of it, but not in its place; in its place, and nothing after."""
    folder, steps = tmp_path / "run", [0]
    for after, moment in enumerate(MOMENTS * 2):
        assert server.run(folder, moment=moment, after=2 + after) == -signal.SIGKILL
        assert (folder / ".run.part").exists() == (moment != "renamed")
        steps.append(step_of(folder))
        # sessions before the fatal one count: a file is replaced whole, or stays as it was
        assert steps[-1] > steps[-2]
    assert server.run(folder) == 0
    assert_same_end(folder, undisturbed["tensors"].folder)


def test_a_finished_run_returns_at_once_with_the_same_result(server, undisturbed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed["tensors"].folder, folder)
    (folder / ".run.part").write_bytes(b"left by a kill long ago")
    before = (folder / "run").read_bytes()
    (folder / "log.jsonl").unlink()
    assert server.run(folder) == 0
    assert (folder / "resumed_from").read_text() == "150"
    assert (folder / "run").read_bytes() == before
    (folder / ".run.part").unlink()
    assert_same_end(folder, undisturbed["tensors"].folder)


# --- in this process ---

N = 40
TRAIN, VAL = blobs(N), blobs(21, seed=1)


def several(**options):
    """Two summaries, both with a memory, that grow in."""
    partition, belief = selbo.ClassRegions(3), selbo.Masses([0.5, 0.3, 0.2])
    fractions = selbo.SummaryLikelihood(partition, belief, 20.0, name="fractions", ema_decay=0.8)
    return selbo.SummaryELBO([summary(ema_decay=0.9), fractions], N, **options)


class Stop(Exception):  # noqa: N818
    """Ends a session from a callback."""


def run(path, *, net=None, objective=None, train=TRAIN, stop_at=None, **settings):
    """A run of 12 steps, or its beginning."""

    def stop(record):
        if record["step"] == stop_at:
            raise Stop

    net = network(bayesian=True) if net is None else net
    if objective is None:
        objective = selbo.SummaryELBO(summary(ema_decay=0.9), N)
    elif not isinstance(objective, torch.nn.Module):
        objective = objective()
    settings = {"steps": 12, "batch_size": 16, "learning_rate": 0.02, "log_every": 1, **settings}
    checkpoint = None if path is None else Checkpoint(path, every=0)
    callbacks = [stop, *settings.pop("callbacks", [])]
    return selbo.fit(net, objective, train, checkpoint=checkpoint, callbacks=callbacks, **settings), net


SETTINGS = {
    "sgd": {"optimizer": "sgd", "schedule": "cosine"},
    "sgd without momentum": {"optimizer": Optimizer("sgd", momentum=0.0)},
    "best": {"validation": Validation(every=2, select="best"), "val": VAL},
    "bf16": {"precision": "bf16"},
    "unlabelled": {"unlabelled": torch.cat([TRAIN[0], VAL[0]])},
    "several": {
        "objective": lambda: several(summary_warmup=8),
        "unlabelled": {"fractions": VAL[0], "0": TRAIN[0]},
        "unlabelled_batch_size": 7,
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_every_setting_goes_on_from_where_it_was(settings, tmp_path):
    straight, expected = run(None, **settings)
    with pytest.raises(Stop):
        run(tmp_path / "run", stop_at=6, **settings)
    resumed, net = run(tmp_path / "run", net=network(seed=9, bayesian=True), **settings)
    assert resumed.resumed_from == 5  # the record of a step comes before its checkpoint
    assert torch.equal(resumed.curve, straight.curve)
    assert resumed.history == straight.history
    assert resumed.selected_step == straight.selected_step
    assert states_equal(net, expected)


@pytest.mark.parametrize("stop_at", [2, 3, 4, 5])
def test_in_the_midst_of_an_epoch_of_a_loader(stop_at, tmp_path):
    def loader():
        return DataLoader(Rows(*TRAIN, noise=0.3), batch_size=16, shuffle=True, generator=torch.Generator())

    plain = {"objective": selbo.CrossEntropy(N), "steps": 7}
    straight, expected = run(None, net=network(), train=loader(), **plain)
    with pytest.raises(Stop):
        run(tmp_path / "run", net=network(), train=loader(), stop_at=stop_at, **plain)
    resumed, net = run(tmp_path / "run", net=network(seed=1), train=loader(), **plain)
    assert resumed.resumed_from == stop_at - 1
    assert torch.equal(resumed.curve, straight.curve)
    assert states_equal(net, expected)


def test_early_stopping_goes_on_counting_where_it_was(tmp_path):
    """A run that is killed between two validations stops at the step where an undisturbed one does, and stays there."""

    def settings():
        how = Validation(every=2, select="best")
        return {"steps": 60, "learning_rate": 0.3, "val": VAL, "validation": how, "callbacks": [EarlyStopping(3)]}

    straight, expected = run(None, **settings())
    assert 8 < straight.steps < 60, "the test needs a run that stops early, but not at once"
    assert straight.steps == straight.selected_step + 6
    for stop_at in (straight.steps - 1, straight.steps - 3):
        path = tmp_path / str(stop_at)
        with pytest.raises(Stop):
            run(path, stop_at=stop_at, **settings())
        resumed, net = run(path, net=network(seed=9, bayesian=True), **settings())
        assert resumed.resumed_from == stop_at - 1
        assert torch.equal(resumed.curve, straight.curve)
        assert resumed.history == straight.history
        assert states_equal(net, expected)
    again, net = run(path, net=network(seed=9, bayesian=True), **settings())
    assert (again.steps, again.resumed_from) == (straight.steps, straight.steps), "it has ended"
    assert states_equal(net, expected)
    with pytest.raises(ValueError, match=r"its callbacks is \[\{'early stopping': \[3, 0"):
        run(path, **(settings() | {"callbacks": [EarlyStopping(4)]}))


ANOTHER_RUN = {
    "model": (
        lambda: {"net": network(bayesian=True, dropout=0.2, classes=2)},
        r"model: shapes: 4\.posteriors\.0\.mean",
    ),
    "prior": (
        lambda: {"net": selbo.to_bayesian(selbo.mean_network(network(bayesian=True)), prior_std=3.0)},
        r"model: posterior: prior_std is \[1\.0, .*, here it is \[3\.0",
    ),
    "rate": (lambda: {"learning_rate": 0.03}, r"schedule is \['constant', 0\.02\], here it is \['constant', 0\.03\]"),
    "seed": (lambda: {"seed": 1}, "seed is 0, here it is 1"),
    "steps": (lambda: {"steps": 13}, "steps is 12, here it is 13"),
    "batch size": (lambda: {"batch_size": 8}, "batch_size is 16, here it is 8"),
    "optimizer": (lambda: {"optimizer": "sgd"}, "optimizer: kind is 'adam', here it is 'sgd'"),
    "data": (lambda: {"train": blobs(N, seed=2)}, "data is '"),
    "labels": (lambda: {"train": (TRAIN[0], TRAIN[1].flip(0))}, "data is '"),
    "validation": (lambda: {"val": VAL}, "validation is none, here it is "),
    "unlabelled": (lambda: {"unlabelled": VAL[0]}, r"unlabelled data is none, here it is \[\[16"),
    "concentration": (
        lambda: {"objective": selbo.SummaryELBO(summary(ema_decay=0.9, concentration=7.0), N)},
        r"objective: terms\.0\.summary\.concentration is 50\.0, here it is 7\.0",
    ),
    "objective": (
        lambda: {"objective": selbo.ELBO(N)},
        "objective: objective is 'SummaryELBO', here it is 'ELBO'",
    ),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("begun") / "run"
    with pytest.raises(Stop):
        run(path, stop_at=3)
    return path


@pytest.mark.parametrize(("changed", "message"), ANOTHER_RUN.values(), ids=ANOTHER_RUN.keys())
def test_a_checkpoint_of_another_run_is_refused_in_one_sentence(changed, message, begun):
    before = begun.read_bytes()
    with pytest.raises(ValueError, match=f"`checkpoint` '.*run' belongs to another run: its {message}") as error:
        run(begun, **changed())
    assert "\n" not in str(error.value)
    assert begun.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_a_damaged_checkpoint_is_refused_in_one_sentence(content, begun, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(begun.read_bytes()[:-100] if content is None else content)
    with pytest.raises(ValueError, match=r"`checkpoint` '.*run' cannot be read: ") as error:
        run(path)
    assert "\n" not in str(error.value)
