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
from selbo.training.callbacks import JsonLines, Progress, TensorBoard


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_log_that_does_not_fit_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    log = JsonLines(path, records=[])
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as full:
        log.write({"step": 1})
    assert full.value.filename == str(path)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(**settings):
    settings = {"steps": 10, "batch_size": 8, "log_every": 4, **settings}
    return selbo.fit(network(), selbo.CrossEntropy(num_data=32), blobs(32), **settings)


@pytest.mark.parametrize("wanted", [None, False])
def test_quiet_where_nobody_looks(wanted, capfd):
    run(progress=wanted)
    assert capfd.readouterr() == ("", "")


def test_a_bar_on_a_terminal_or_on_demand(monkeypatch, capfd):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    run()
    assert "training" in screen.getvalue()
    assert "10/10" in screen.getvalue()
    monkeypatch.undo()
    run(progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "10/10" in err
    assert "loss" in err


def test_no_bar_on_a_terminal_if_not_wanted(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    run(progress=False)
    assert screen.getvalue() == ""


def test_no_bar_without_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with Progress(3, wanted=True, label="training") as bar:
        bar.show(1, {"loss": 1.0})
    assert bar.bar is None


def test_the_log_has_a_readable_line_every_so_many_steps(tmp_path):
    seen = []
    result = run(log=tmp_path / "new" / "log.jsonl", callbacks=[seen.append], val=blobs(20, seed=1), eval_every=5)
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
    run(log=tmp_path / "log")
    assert [json.loads(line)["step"] for line in (tmp_path / "log").read_text().splitlines()] == [4, 8, 10]


def test_a_run_that_goes_on_restores_its_lines(tmp_path):
    records = [{"step": 5, "loss": 0.1}, {"step": 10, "loss": 1 / 3}]
    (tmp_path / ".log.part").write_text("left by a kill")
    (tmp_path / "log").write_text('{"step": 5, "loss": 0.1}\n{"step": 10, "lo')
    lines = JsonLines(tmp_path / "log", records=records)
    lines.write({"step": 15})
    assert [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()] == [*records, {"step": 15}]
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_tensorboard_that_is_missing_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    net = network().eval()
    with pytest.raises(ValueError, match=r"^`tensorboard` needs the package tensorboard: pip install tensorboard$"):
        selbo.fit(net, selbo.CrossEntropy(num_data=32), blobs(32), steps=1, tensorboard=tmp_path)
    assert not net.training


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
    result = run(tensorboard=tmp_path / "board")
    writer = FakeWriter.last
    assert writer.folder == str(tmp_path / "board")
    assert writer.closed
    assert ("loss", result.history[1]["loss"], 8) in writer.points
    assert {name for name, _, _ in writer.points} == {"loss", "log_likelihood", "kl", "log_summary", "learning_rate"}


@pytest.mark.usefixtures("_fake_tensorboard")
@pytest.mark.parametrize(("start", "purge"), [(0, None), (10, 11)])
def test_tensorboard_keeps_the_point_at_which_a_run_goes_on(start, purge, tmp_path):
    TensorBoard(tmp_path, start=start)
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
