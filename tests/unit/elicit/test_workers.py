"""Computing under a time limit: slow, failing and dying calls, several at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from selbo.elicit.refused import RefusedError
from selbo.elicit.workers import UnavailableError, Workers, _outcome, _Worker
from worker_tasks import perform

LIMIT = 300.0  # so long that no busy machine exceeds it


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers(perform, count=2, limit=LIMIT)
    found.start()
    processes(found)  # wait for both, so that tests do not measure their start
    yield found
    found.close()
    assert all(worker.process is None for worker in found.all)


def processes(workers: Workers, *, apart_from: frozenset[int] = frozenset()) -> set[int]:
    """Numbers of the processes, once all are idle and run, and none is one of those given; nothing is asked."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if workers.free.qsize() == len(workers.all):
            found = {worker.process.pid for worker in workers.all if worker.process and worker.process.pid}
            if len(found) == len(workers.all) and not found & apart_from:
                return found
        time.sleep(0.05)
    raise AssertionError("a process was not replaced")


def test_another_process_answers(workers: Workers) -> None:
    found = workers.call("say", 5)
    assert found["value"] == 5
    assert found["process"] != os.getpid()


def test_a_first_question_waits_for_a_start_that_takes_longer_than_questions_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, go = threading.Event(), threading.Event()

    def slowly(_: _Worker) -> None:
        began.set()
        go.wait(30)

    monkeypatch.setattr(_Worker, "ensure_started", slowly)
    monkeypatch.setattr(_Worker, "call", lambda *_: {"value": 7})
    found = Workers(perform, count=1, limit=0.05)
    found.start()
    assert began.wait(30)
    threading.Timer(0.3, go.set).start()
    assert found.call("say") == {"value": 7}
    found.close()


def test_what_is_refused_keeps_its_field(workers: Workers) -> None:
    with pytest.raises(RefusedError, match=r"No\.") as refused:
        workers.call("refuse")
    assert refused.value.field == "field"
    with pytest.raises(RefusedError, match=r"^x must be one\.$"):
        workers.call("value")


def test_a_failure_names_its_kind_and_nothing_else(workers: Workers) -> None:
    with pytest.raises(
        UnavailableError, match=r"failed \(ZeroDivisionError\): the terminal of selbo elicit says where"
    ):
        workers.call("fail")


def test_a_failure_is_shown_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert _outcome(perform, ("fail",)) == ("failed", "ZeroDivisionError")
    assert "Traceback" in capsys.readouterr().err


def test_a_call_that_takes_too_long_is_stopped_and_the_next_one_answered(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(workers, "limit", 0.1)
        with pytest.raises(UnavailableError, match=r"takes more than 0\.1 seconds and was stopped"):
            workers.call("sleep", 600)
    assert [workers.call("say", i)["value"] for i in range(4)] == [0, 1, 2, 3]


def test_a_process_that_dies_is_replaced(workers: Workers) -> None:
    before = processes(workers)
    with pytest.raises(UnavailableError, match="ended unexpectedly"):
        workers.call("die")
    assert len(processes(workers) & before) == 1  # before anyone asks
    assert [workers.call("say", i)["value"] for i in range(4)] == [0, 1, 2, 3]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no such signal")
def test_idle_processes_that_are_killed_are_replaced_before_anyone_asks(workers: Workers) -> None:
    for count in (1, 2):
        before = processes(workers)
        killed = frozenset(sorted(before)[:count])
        for process in killed:
            os.kill(process, signal.SIGKILL)
        after = processes(workers, apart_from=killed)
        assert len(after & before) == 2 - count
        assert {workers.call("say", i)["process"] for i in range(4)} == after


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no such signal")
def test_a_process_that_is_killed_at_work_is_replaced_before_anyone_asks_again(tmp_path: Path) -> None:
    workers = Workers(perform, count=1, limit=100)
    workers.start()
    (before,) = processes(workers)
    errors: list[UnavailableError] = []

    def work() -> None:
        try:
            workers.call("mark", str(tmp_path / "at work"))
        except UnavailableError as error:
            errors.append(error)

    asker = threading.Thread(target=work)
    asker.start()
    while not (tmp_path / "at work").exists() and asker.is_alive():
        time.sleep(0.01)
    os.kill(before, signal.SIGKILL)
    asker.join()
    assert str(errors[0]) == "The computation has ended unexpectedly: try again."
    processes(workers, apart_from=frozenset({before}))
    workers.close()


def test_a_process_that_cannot_start_is_not_started_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Semaphore(0)

    def broken(worker: _Worker) -> None:
        tried.release()
        raise UnavailableError("no")

    monkeypatch.setattr(_Worker, "ensure_started", broken)
    monkeypatch.setattr("selbo.elicit.workers.CHECK_SECONDS", 0.01)
    found = Workers(perform, count=1)
    found.start()
    assert tried.acquire(timeout=30)
    assert not tried.acquire(timeout=0.3)
    found.close()


def test_a_slow_call_does_not_block_another(tmp_path: Path) -> None:
    workers, gate, found = Workers(perform, count=2, limit=600), tmp_path / "gate", []
    slow = threading.Thread(target=lambda: found.append(workers.call("wait for", str(gate))))
    slow.start()
    try:
        assert workers.call("say", 1)["value"] == 1
        assert slow.is_alive()
        assert not found
        gate.touch()
        slow.join()
        assert found[0]["value"] == str(gate)
    finally:
        workers.close()
        slow.join()


def test_when_all_are_busy_one_is_told_so() -> None:
    workers = Workers(perform, count=1, limit=0.05)
    held = workers.free.get()
    with pytest.raises(UnavailableError, match="All workers are busy"):
        workers.call("say")
    workers.free.put(held)
    workers.close()
