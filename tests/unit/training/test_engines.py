"""What surrounds the capture of a graph, where no GPU is needed to see it."""

import gc
import weakref

import pytest

from selbo.training.engines import no_garbage_collected


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
