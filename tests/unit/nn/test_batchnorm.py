"""Statistics of BatchNorm for given weights: means over batches, and nothing else changes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from selbo.nn.batchnorm import estimate_batchnorm


def test_statistics_are_means_over_batches() -> None:
    with torch.random.fork_rng():
        net = nn.Sequential(
            nn.Linear(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3, momentum=0.3), nn.BatchNorm1d(3)
        ).double()
    net[3].eval()
    net[2].running_mean.fill_(9.0)
    before = copy.deepcopy(net)
    inputs = torch.randn(10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    estimate_batchnorm(net, inputs, batch_size=4)  # parts of 4, 3 and 3
    hidden = [before[0](part) for part in (inputs[:4], inputs[4:7], inputs[7:])]
    torch.testing.assert_close(net[2].running_mean, torch.stack([each.mean(0) for each in hidden]).mean(0))
    torch.testing.assert_close(net[2].running_var, torch.stack([each.var(0) for each in hidden]).mean(0))
    assert net[2].momentum == 0.3
    assert [each.training for each in net] == [True, True, True, False]
    assert all(torch.equal(one, other) for one, other in zip(net.parameters(), before.parameters(), strict=True))


def test_one_input_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="`inputs` must hold at least two inputs to estimate statistics, but got 1"):
        estimate_batchnorm(nn.BatchNorm1d(3), torch.ones(1, 3))
    estimate_batchnorm(nn.Flatten(), torch.ones(1, 3))
