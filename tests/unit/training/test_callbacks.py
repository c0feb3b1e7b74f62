"""What a run says: nothing unless asked or on a terminal; JSON lines that any tool reads; TensorBoard if installed."""

import io
import json
import os
import sys
import types

import pytest
import torch
from unit.training.toys import blobs, network

import selbo
from selbo.training import Callback, EarlyStopping, JsonLines, Progress, TensorBoard, Validation
from selbo.training.callbacks import Start


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_log_that_does_not_fit_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    log = JsonLines(path)
    log.on_start(Start(1, 0, []))
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as full:
        log.on_record({"step": 1})
    assert full.value.filename == str(path)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(**settings):
    settings = {"steps": 10, "batch_size": 8, "log_every": 4, **settings}
    return selbo.fit(network(), selbo.CrossEntropy(num_data=32), blobs(32), **settings)


@pytest.mark.parametrize("callbacks", [None, [], [Progress()], [Progress(False)]])
def test_quiet_where_nobody_looks(callbacks, capfd):
    run(callbacks=callbacks)
    assert capfd.readouterr() == ("", "")


def test_a_bar_on_a_terminal_or_on_demand(monkeypatch, capfd):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    run()
    assert "training" in screen.getvalue()
    assert "10/10" in screen.getvalue()
    monkeypatch.undo()
    run(callbacks=[Progress(True)])
    out, err = capfd.readouterr()
    assert out == ""
    assert "10/10" in err
    assert "loss" in err


def test_no_bar_on_a_terminal_if_not_wanted(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    run(callbacks=[])
    run(callbacks=[Progress(False)])
    assert screen.getvalue() == ""


def test_no_bar_without_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    bar = Progress(True)
    bar.on_start(Start(3, 0, []))
    bar.on_progress(1, {"loss": 1.0})
    assert bar.bar is None
    bar.on_end()


def test_the_log_has_a_readable_line_every_so_many_steps(tmp_path):
    seen = []
    callbacks = [JsonLines(tmp_path / "new" / "log.jsonl"), seen.append]
    result = run(callbacks=callbacks, val=blobs(20, seed=1), validation=Validation(every=5))
    lines = [json.loads(line) for line in (tmp_path / "new" / "log.jsonl").read_text().splitlines()]
    assert lines == result.history == seen
    assert [line["step"] for line in lines] == [4, 8, 10]
    for line, start in zip(lines, (0, 4, 8), strict=True):
        assert line["loss"] == pytest.approx(result.curve[start : line["step"], 0].mean().item())
        assert line["log_likelihood"] == pytest.approx(result.curve[start : line["step"], 1].mean().item())
        assert line["learning_rate"] == 1e-3
    assert "val_nll" not in lines[0]
    assert lines[2]["val_nll"] == result.val_nll != lines[1]["val_nll"]


def test_a_log_of_an_earlier_run_is_replaced(tmp_path):
    (tmp_path / "log").write_text('{"step": 1}\nrubbish')
    run(callbacks=[JsonLines(tmp_path / "log")])
    assert [json.loads(line)["step"] for line in (tmp_path / "log").read_text().splitlines()] == [4, 8, 10]


def test_a_run_that_goes_on_restores_its_lines(tmp_path):
    records = [{"step": 5, "loss": 0.1}, {"step": 10, "loss": 1 / 3}]
    (tmp_path / ".log.part").write_text("left by a kill")
    (tmp_path / "log").write_text('{"step": 5, "loss": 0.1}\n{"step": 10, "lo')
    lines = JsonLines(tmp_path / "log")
    lines.on_start(Start(20, 10, records))
    lines.on_record({"step": 15})
    assert [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()] == [*records, {"step": 15}]
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_tensorboard_that_is_missing_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match=r"^`TensorBoard` needs the package tensorboard: pip install tensorboard$"):
        TensorBoard(tmp_path)


class FakeWriter:
    def __init__(self, folder, purge_step):
        self.folder, self.purge_step, self.points, self.closed = folder, purge_step, [], False
        FakeWriter.last = self

    def add_scalar(self, name, value, step):
        self.points.append((name, value, step))

    def close(self):
        self.closed = True


@pytest.fixture
def _fake_tensorboard(monkeypatch):
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = FakeWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)


@pytest.mark.usefixtures("_fake_tensorboard")
def test_tensorboard_gets_every_term(tmp_path):
    result = run(callbacks=[TensorBoard(tmp_path / "board")])
    writer = FakeWriter.last
    assert writer.folder == str(tmp_path / "board")
    assert writer.closed
    assert ("loss", result.history[1]["loss"], 8) in writer.points
    assert {name for name, _, _ in writer.points} == {"loss", "log_likelihood", "kl", "log_summary", "learning_rate"}


@pytest.mark.usefixtures("_fake_tensorboard")
@pytest.mark.parametrize(("start", "purge"), [(0, None), (10, 11)])
def test_tensorboard_keeps_the_point_at_which_a_run_goes_on(start, purge, tmp_path):
    TensorBoard(tmp_path).on_start(Start(20, start, []))
    assert FakeWriter.last.purge_step == purge


def test_a_callback_that_fails_stops_the_run_and_leaves_the_modes():
    def stop(record):
        raise KeyboardInterrupt

    net = network()
    net[1].eval()
    with pytest.raises(KeyboardInterrupt):
        selbo.fit(net, selbo.CrossEntropy(num_data=32), blobs(32), steps=5, log_every=2, callbacks=[stop])
    assert net.training
    assert not net[1].training
    assert torch.isfinite(net[0].weight).all()


class Told(Callback):
    """Writes down what it is told, and stops the run at a validation."""

    def __init__(self, stop_at=None):
        self.stop_at, self.told = stop_at, []

    def on_start(self, start):
        self.told.append(("start", start.steps, start.step, list(start.history)))

    def on_validation(self, step, nll):
        self.told.append(("validation", step, nll))
        return step == self.stop_at

    def on_record(self, record):
        self.told.append(("record", record["step"], record.get("val_nll")))

    def on_end(self):
        self.told.append(("end",))


def test_a_callback_of_ones_own_is_told_everything_in_order():
    told = Told()
    result = run(callbacks=[told], val=blobs(20, seed=1), validation=Validation(every=5))
    at_five = next(each[2] for each in told.told if each[:2] == ("validation", 5))
    assert told.told == [
        ("start", 10, 0, []),
        ("record", 4, None),
        ("validation", 5, at_five),
        ("record", 8, at_five),
        ("validation", 10, result.val_nll),
        ("record", 10, result.val_nll),
        ("end",),
    ]


def test_a_callback_may_end_the_run_at_a_validation():
    told = Told(stop_at=5)
    result = run(callbacks=[told], val=blobs(20, seed=1), validation=Validation(every=5))
    whole = run(callbacks=[], val=blobs(20, seed=1), validation=Validation(every=5))
    assert (result.steps, result.selected_step, len(result.curve)) == (5, 5, 5)
    assert torch.equal(result.curve, whole.curve[:5])
    assert [record["step"] for record in result.history] == [4, 5]
    assert result.val_nll == result.history[-1]["val_nll"]
    assert told.told[-2:] == [("record", 5, result.val_nll), ("end",)]


def test_callbacks_are_told_of_the_end_after_an_error_too():
    def fail(record):
        raise KeyboardInterrupt

    class Late(Told):
        def on_start(self, start):
            raise ZeroDivisionError

    told, late = Told(), Late()
    with pytest.raises(KeyboardInterrupt):
        run(callbacks=[told, fail])
    assert told.told[-1] == ("end",)
    told.told.clear()
    with pytest.raises(ZeroDivisionError):
        run(callbacks=[told, late])
    assert [each[0] for each in told.told] == ["start", "end"]


@pytest.mark.parametrize(
    ("nlls", "patience", "min_delta", "stops_at"),
    [
        ([3, 2, 1, 1, 1], 2, 0.0, 4),
        ([3, 2, 2.5, 1, 2, 2], 2, 0.0, 5),
        ([3, 2, 1, 0], 1, 0.0, None),
        ([3, 2.9, 2.8, 2.7], 2, 0.5, 2),
        ([3, 2.8, 2.4, 2.3], 2, 0.5, None),
        ([1, 2], 1, 0.0, 1),
    ],
)
def test_early_stopping_counts_validations_without_improvement(nlls, patience, min_delta, stops_at):
    stopping = EarlyStopping(patience, min_delta=min_delta)
    stopping.on_start(Start(100, 0, []))
    wishes = [stopping.on_validation(10 * number, nll) for number, nll in enumerate(nlls)]
    assert (wishes.index(True) if True in wishes else None) == stops_at


def test_early_stopping_serves_one_run_after_the_other():
    stopping = EarlyStopping(1)
    for _ in range(2):
        stopping.on_start(Start(100, 0, []))
        assert [stopping.on_validation(step, nll) for step, nll in ((1, 2.0), (2, 1.0), (3, 1.5))] == [
            False,
            False,
            True,
        ]
