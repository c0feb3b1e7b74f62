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


@pytest.mark.parametrize("concentration", [20.0, math.inf])
def test_false_alarms_are_bounded_with_restarts(concentration: float, seed: int) -> None:
    """4000 streams of 60 batches of 5 cases; evidence begins with any of the batches."""
    generator, streams, batches = np.random.default_rng(seed), 4000, 60
    masses = torch.tensor([0.8, 0.2], dtype=torch.float64)
    truth = 0.2 if math.isinf(concentration) else generator.beta(0.2 * 20, 0.8 * 20, size=(streams, 1))
    wrong = torch.from_numpy(generator.binomial(5, truth, size=(streams, batches))).double()
    before = torch.cat([torch.zeros(streams, 1), wrong.cumsum(1)], 1)
    start = torch.arange(1, batches + 1)
    log_weights = -(start * (start + 1)).double().log()
    largest = torch.full((streams,), -math.inf, dtype=torch.float64)
    for now in range(1, batches + 1):
        since = before[:, now, None] - before[:, :now]
        counts = torch.stack([5.0 * (now - start[:now] + 1) - since, since], -1)
        evidence = log_evidence(counts, masses, concentration) + log_weights[:now]
        largest = torch.maximum(largest, evidence.amax(1))
    for delta in (0.01, 0.05):
        assert int((largest >= -math.log(delta)).sum()) <= binom.ppf(1 - 1e-6, streams, delta)
