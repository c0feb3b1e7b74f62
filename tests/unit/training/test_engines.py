"""What surrounds the capture of a graph, where no GPU is needed to see it."""

import gc
import importlib
import weakref

import pytest
import torch
from unit.training.toys import blobs, network

import selbo
from selbo.training.engines import WARM_UP_STEPS, CaptureFailed, GraphEngine, no_garbage_collected


class Knot:
    """Refers to itself, so that only the garbage collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_is_collected_before_and_not_during() -> None:
    before = weakref.ref(Knot())
    with no_garbage_collected():
        assert before() is None
        during = weakref.ref(Knot())
        knots = [Knot() for _ in range(10_000)]  # enough for the collector to start by itself
        assert not gc.isenabled()
        assert during() is not None
    assert gc.isenabled()
    assert len(knots) == 10_000


def test_the_collector_is_left_as_it_was() -> None:
    gc.disable()
    try:
        with pytest.raises(RuntimeError), no_garbage_collected():
            raise RuntimeError
        assert not gc.isenabled()
    finally:
        gc.enable()


def refused(error: Exception, monkeypatch: pytest.MonkeyPatch) -> BaseException:
    """What a step that is about to be captured raises, if the capture raises this error."""

    def capture(_: GraphEngine) -> None:
        raise error

    monkeypatch.setattr(GraphEngine, "_capture", capture)
    monkeypatch.setattr(GraphEngine, "_new_epochs", lambda *_: None)
    engine = object.__new__(GraphEngine)  # making one needs a GPU
    engine.eager_steps, engine.graph, engine.rate = WARM_UP_STEPS, None, 0.1
    with pytest.raises(Exception, match="the reason") as found:
        engine.run(7, 9, lambda _: 0.1, 1.0)
    return found.value


def test_a_capture_that_fails_is_told_from_other_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    found = refused(RuntimeError("the reason"), monkeypatch)
    assert type(found) is CaptureFailed
    assert str(found) == "RuntimeError: the reason"
    for other in (ValueError("the reason"), torch.cuda.OutOfMemoryError("the reason")):
        assert refused(other, monkeypatch) is other


@pytest.mark.parametrize(("steps", "chosen"), [(9_999, "cudagraph"), (10_000, "auto")])
def test_short_runs_are_not_compiled(steps: int, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(engine: str, *_: object) -> bool:
        raise InterruptedError(engine)

    monkeypatch.setattr(importlib.import_module("selbo.training.fit"), "wants_graph", stop)
    with pytest.raises(InterruptedError, match=chosen):
        selbo.fit(network(), selbo.CrossEntropy(4), blobs(4), steps=steps)
