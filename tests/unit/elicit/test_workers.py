"""Computing under a time limit: slow, failing and dying calls, several at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from selbo.elicit.state import RefusedError
from selbo.elicit.workers import UnavailableError, Workers, _outcome, _Worker
from worker_tasks import perform

LIMIT = 1.5


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers(perform, count=2, limit=LIMIT)
    found.start()
    for _ in range(2):  # wait for both, so that tests do not measure their start
        waiting = found.free.get()
        waiting.ensure_started()
        found.free.put(waiting)
    yield found
    found.close()
    assert all(worker.process is None for worker in found.all)


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


def test_a_failure_is_shown_in_the_terminal(caplog: pytest.LogCaptureFixture) -> None:
    assert _outcome(perform, ("fail",)) == ("failed", "ZeroDivisionError")
    assert "Traceback" in caplog.text


def test_a_call_that_takes_too_long_is_stopped_and_the_next_one_answered(workers: Workers) -> None:
    with pytest.raises(UnavailableError, match=r"takes more than 1\.5 seconds and was stopped"):
        workers.call("sleep", 600)
    assert [workers.call("say", i)["value"] for i in range(4)] == [0, 1, 2, 3]


def test_a_process_that_dies_is_replaced(workers: Workers) -> None:
    with pytest.raises(UnavailableError, match="ended unexpectedly"):
        workers.call("die")
    assert [workers.call("say", i)["value"] for i in range(4)] == [0, 1, 2, 3]


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
    with pytest.raises(UnavailableError, match="Others are computing"):
        workers.call("say")
    workers.free.put(held)
    workers.close()
