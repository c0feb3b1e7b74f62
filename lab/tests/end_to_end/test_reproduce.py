"""Studies from the command line: all of them in a trial, killed and begun again, and nothing done twice."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from forked_python import run_forked, start_forked
from selbo.cli.main import main
from selbo_lab.data import MissingData
from selbo_lab.schedule import runner
from selbo_lab.studies import plan, reader
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec
from selbo_lab.studies.study import TRACKS


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "selbo", *arguments]


def selbo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked("selbo", *arguments, COLUMNS="80")


def selbo_in_a_terminal(*arguments: str) -> tuple[str, str]:
    """What a command writes to its output, a file, and to its error stream, a terminal."""
    mine, terminal = os.openpty()
    seen = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # that is how the end of a terminal reads
            while part := os.read(mine, 4096):
                seen.extend(part)

    listener = threading.Thread(target=read)
    listener.start()
    ended = start_forked("selbo", *arguments, terminal=Path(os.ttyname(terminal)), COLUMNS="80").wait(300)
    os.close(terminal)
    listener.join()
    os.close(mine)
    assert ended.returncode == 0
    return ended.stdout, seen.decode()


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "runs").glob("*.json")}


def test_a_study_on_the_command_line_twice(tmp_path: Path) -> None:
    chosen = ("--track", "published", "--seeds", "1", "--jobs", "2", "--device", "cpu")
    arguments = ("reproduce", "sigma0", "--smoke", *chosen, "--out", str(tmp_path))
    first = selbo(*arguments)
    assert first.returncode == 0, first.stderr
    folder = tmp_path / "sigma0-smoke"
    before = times(folder)
    assert len(before) == len(
        list(plan.final_jobs(runner.load_known_study("sigma0", trial=True), ["published"], range(1), {}))
    )
    assert (folder / "report.html").is_file()
    assert list((folder / "tables").glob("*.csv"))
    assert list((folder / "figures").glob("*.png"))
    assert max(map(len, first.stdout.splitlines())) <= 80 + len(str(folder))
    again = selbo(*arguments)
    assert again.returncode == 0
    assert times(folder) == before
    for made in ("report.html", "study.json"):
        assert (folder / made).is_file()
    (folder / "report.html").unlink()
    assert selbo("report", str(tmp_path)).returncode == 0
    assert (folder / "report.html").is_file()
    assert times(folder) == before


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_study_in_a_terminal_says_how_many_runs_are_done(tmp_path: Path) -> None:
    chosen = ("--seeds", "1", "--executor", "here", "--device", "cpu", "--out", str(tmp_path))
    _, seen = selbo_in_a_terminal("reproduce", "scores", "--smoke", *chosen)
    said = re.findall(r"scores .*?(\d+/\d+ done, \d running)", seen)
    assert (said[0], said[-1]) == ("0/5 done, 1 running", "5/5 done, 0 running")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_reports_of_one_study_and_of_two_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "sigma0-smoke"
    runner.run_study(
        runner.load_known_study("sigma0", trial=True), folder, tracks=["published"], seeds=1, executor="here"
    )
    alone, seen = selbo_in_a_terminal("report", str(folder))
    assert "sigma0-smoke: tables, figures and the report" in seen
    page = (folder / "report.html").read_bytes()
    shutil.copytree(folder, tmp_path / "sigma0-twin", ignore=shutil.ignore_patterns("report.html", "figures", "tables"))
    both, seen = selbo_in_a_terminal("report", str(tmp_path))  # in two processes
    assert both == alone + alone.replace("sigma0-smoke", "sigma0-twin")
    assert "2 studies" in seen
    assert "tables, figures" not in seen  # of two at a time there is one bar
    assert page == (folder / "report.html").read_bytes() == (tmp_path / "sigma0-twin" / "report.html").read_bytes()
    packed = selbo("report", str(folder), "--pack")
    assert (packed.returncode, packed.stderr) == (0, "")
    assert packed.stdout == f"{folder}.jsonl.xz: {len(list((tmp_path / 'sigma0-twin' / 'runs').glob('*.json')))} runs\n"
    assert not (folder / "runs").exists()
    (folder / "report.html").unlink()
    again = selbo("report", str(tmp_path))  # one packed, one not; and not in a terminal
    assert (again.returncode, again.stdout, again.stderr) == (0, both, "")
    assert page == (folder / "report.html").read_bytes()
    (broken,) = list((tmp_path / "sigma0-twin" / "runs").glob("*.json"))[:1]
    broken.write_text("{")
    refused = selbo("report", str(tmp_path))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert broken.name in refused.stderr


def test_killed_and_begun_again_nothing_is_lost_but_the_run_in_flight(tmp_path: Path) -> None:
    arguments = ("reproduce", "sst", "--smoke", "--track", "published", "--out", str(tmp_path), "--executor", "here")
    folder = tmp_path / "sst-smoke"
    running = start_forked("selbo", *arguments, "--device", "cpu")
    deadline = time.monotonic() + 300
    while len(list((folder / "runs").glob("*.json"))) < 3:
        assert running.process.is_alive(), "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.process.kill()
    running.wait(300)
    kept = times(folder)
    total = len(list(plan.final_jobs(runner.load_known_study("sst", trial=True), ["published"], range(2), {})))
    assert 3 <= len(kept) < total
    assert all(json.loads((folder / "runs" / name).read_text())["status"] == "finished" for name in kept)
    again = selbo(*arguments, "--device", "cpu")
    assert again.returncode == 0, again.stderr
    after = times(folder)
    assert len(after) == total
    assert {name: after[name] for name in kept} == kept  # none of them was done again
    undisturbed = runner.run_study(
        runner.load_known_study("sst", trial=True), tmp_path / "other", tracks=["published"], executor="here"
    )
    disturbed = runner.gather(folder)
    for one, other in zip(undisturbed.comparisons, disturbed.comparisons, strict=True):
        for method, same in zip(one.methods, other.methods, strict=True):
            metrics = [[run.conditions for run in each.runs] for each in (method, same)]
            assert metrics[0] == metrics[1]


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_the_processes_of_a_study_that_is_killed_end_with_it(tmp_path: Path) -> None:
    chosen = ("--track", "published", "--jobs", "2", "--device", "cpu")
    process = subprocess.Popen(
        command("reproduce", "sst", "--smoke", *chosen, "--out", str(tmp_path)),
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not list((tmp_path / "sst-smoke" / "runs").glob("*.json")):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        process.communicate(timeout=300)  # until nobody is left who could write: the workers have the same output
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_a_run_that_fails_is_told_and_the_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from selbo_lab.run import evaluate

    study, calls = runner.load_known_study("scores", trial=True), 0
    real = evaluate.build_map

    def fails_once(*given: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("out of luck")
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(evaluate, "build_map", fails_once)
    with pytest.raises(runner.Failed, match=r"1 of 10 runs failed, the first, \w+, with RuntimeError: out of luck"):
        runner.run_study(study, tmp_path, executor="here")
    assert len(times(tmp_path)) == 9
    results = runner.gather(tmp_path)
    missing = [run for each in results.comparisons[0].methods for run in each.runs if run is None]
    assert len(missing) == 1
    runner.run_study(study, tmp_path, executor="here")
    assert len(times(tmp_path)) == 10


def test_a_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    runner.run_study(runner.load_known_study("scores", trial=True), tmp_path, executor="here", seeds=1)
    with pytest.raises(ValueError, match="holds a trial of the study 'scores'"):
        runner.run_study(runner.load_known_study("sst", trial=True), tmp_path, executor="here")


def test_tracks_and_seeds_are_added_to_what_is_there(tmp_path: Path) -> None:
    study = runner.load_known_study("sigma0", trial=True)
    runner.run_study(study, tmp_path, tracks=["published"], seeds=2, executor="here")
    first = times(tmp_path)
    results = runner.run_study(study, tmp_path, tracks=["selbo"], seeds=1, executor="here")
    assert [each.track for each in results.comparisons] == list(TRACKS)
    assert results.seeds == (0, 1)
    assert first.items() <= times(tmp_path).items()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "cifar100"), "NAME must be one of scores, sst"),
        (("reproduce", "sst", "--track", "ours"), "`--track` must be published, selbo or both"),
        (("reproduce", "sst", "--executor", "slurm"), "`--executor` must be one of"),
        (("report", "nowhere"), "DIR must be a folder of selbo reproduce"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    found = selbo(*arguments, *(("--out", str(tmp_path)) if arguments[0] == "reproduce" else ()))
    assert found.returncode == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("names", [["sst"], ["scores", "sst"]])
def test_missing_data_are_told_before_anything_is_written(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_sst(data: DataSpec, _: EvaluationSpec) -> None:
        if data.name == "sst":
            raise MissingData("sst is not in the store")

    monkeypatch.setattr(runner, "require_files", only_sst)
    monkeypatch.setattr(sys, "argv", ["selbo", "reproduce", *names, "--out", str(tmp_path / "out"), "--device", "cpu"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert list(tmp_path.iterdir()) == []


def test_ray_that_is_not_there_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    chosen = ["--smoke", "--executor", "ray", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["selbo", "reproduce", "sst", *chosen, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "needs the package ray" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_data_of_runs_that_are_there_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> None:
        raise MissingData

    study = runner.load_known_study("scores", trial=True)
    track = study.tracks[0].name
    runner.run_study(study, tmp_path, tracks=[track], executor="here", seeds=1)
    monkeypatch.setattr(runner, "require_files", nothing)
    runner.require_data(study, tmp_path, tracks=[track], seeds=1)
    with pytest.raises(MissingData):
        runner.require_data(study, tmp_path, tracks=[track], seeds=2)
    runner.require_data(study, tmp_path, tracks=[track], seeds=2, executor="ray")  # its machines have their own


def test_the_list_fits_a_terminal() -> None:
    found = selbo("list")
    assert found.returncode == 0
    assert all(name in found.stdout for name in reader.names())
    assert max(map(len, found.stdout.splitlines())) <= 80
