"""Boards that remember, and random states put back after libraries that seed them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch


class Memory:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.points, self.histograms, self.figures = [], [], []

    def scalars(self, values, step):
        self.points.append((dict(values), step))

    def histogram(self, name, snapshot, step):
        self.histograms.append((name, snapshot, step))

    def figure(self, name, figure, step):
        self.figures.append((name, figure, step))


@pytest.fixture
def logger() -> Memory:
    return Memory()


@pytest.fixture
def _global_states() -> Iterator[None]:
    """Trainers of other libraries seed and draw from the global random states."""
    state, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        yield
    random.setstate(state)
    np.random.set_state(legacy)  # noqa: NPY002
