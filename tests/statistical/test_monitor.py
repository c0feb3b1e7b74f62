"""False alarms of a monitor over all time, by simulation."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from selbo.evaluation.monitor import log_evidence

STREAMS = 10_000


@pytest.mark.parametrize("concentration", [20.0, 500.0, math.inf])
def test_false_alarms_are_bounded_over_all_time(concentration: float, seed: int) -> None:
    """10 000 streams of 400 cases, looked at after each case; the masses are those that the belief allows."""
    generator = np.random.default_rng(seed)
    masses = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    if math.isinf(concentration):
        truth = np.broadcast_to(masses.numpy(), (STREAMS, 3))
    else:
        truth = generator.dirichlet(concentration * masses.numpy(), size=STREAMS)
    edges, counts = truth.cumsum(1), torch.zeros(STREAMS, 3, dtype=torch.float64)
    largest, rows = torch.zeros(STREAMS, dtype=torch.float64), torch.arange(STREAMS)
    for _ in range(400):
        drawn = (generator.random((STREAMS, 1)) > edges[:, :2]).sum(1)
        counts[rows, torch.from_numpy(drawn)] += 1
        largest = torch.maximum(largest, log_evidence(counts, masses, concentration))
    for delta in (0.01, 0.05):
        alarms = int((largest >= -math.log(delta)).sum())
        assert alarms <= binom.ppf(1 - 1e-6, STREAMS, delta)
    assert alarms > 0.005 * STREAMS  # the bound is not empty
