"""The summary term alone moves 2048 free logits to where s0 says, from wherever they start (audit part C)."""

import pytest
import torch

import selbo
from selbo.summary.likelihood import PUBLISHED_HISTOGRAM_FLOOR, PUBLISHED_PSEUDO_COUNT

STEPS = 1000
EDGES = [i / 10 for i in range(1, 10)]
BELIEFS = {"uniform": selbo.Uniform(), "Beta(5, 5)": selbo.Beta(5, 5)}


def start_logits(start: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2048, generator=generator)
    sign = torch.where(torch.rand(2048, generator=generator) < 0.5, -1.0, 1.0)
    return sign * (6 + noise) if start == "over-confident" else 0.3 * noise


def total_variation(
    summary: selbo.SummaryLikelihood, logits: torch.Tensor, slope_factors: torch.Tensor | None
) -> float:
    """Distance of the hard histogram to s0 after training."""
    logits = logits.clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.05)

    def log_probs() -> torch.Tensor:
        return torch.stack([torch.nn.functional.logsigmoid(-logits), torch.nn.functional.logsigmoid(logits)], -1)

    for step in range(STEPS):
        if slope_factors is not None:
            summary.partition.set_slope_factor(slope_factors[step])
        optimizer.zero_grad()
        (-summary(log_probs())).backward()
        optimizer.step()
    regions = summary.partition.assign(log_probs().detach())
    hard = torch.bincount(regions, minlength=summary.partition.num_regions) / len(regions)
    return 0.5 * (hard - summary.s0).abs().sum().item()


@pytest.mark.parametrize("start", ["over-confident", "central"])
@pytest.mark.parametrize("belief", BELIEFS.values(), ids=BELIEFS.keys())
class TestToy:
    def test_the_default_slope_comes_within_5_per_cent(self, belief, start):
        """From one start and with this learning rate; others ended up to .08 away (docs/measurements.md)."""
        summary = selbo.SummaryLikelihood(selbo.ScoreBins(EDGES), belief, concentration=1000.0)
        assert total_variation(summary, start_logits(start, seed=0), None) <= 0.05

    def test_an_annealed_slope_comes_within_1_per_cent(self, belief, start, seed):
        summary = selbo.SummaryLikelihood(selbo.ScoreBins(EDGES), belief, concentration=1000.0)
        assert total_variation(summary, start_logits(start, seed), torch.logspace(0, 2, STEPS)) <= 0.01


@pytest.mark.parametrize(("belief", "stuck_at"), [("uniform", 0.79), ("Beta(5, 5)", 0.98)])
def test_the_published_histogram_cannot_repair_over_confidence(belief, stuck_at, seed):
    """The audit found .797 and .995 where it started from .80 and 1.00: nothing comes back from the ends."""
    summary = selbo.SummaryLikelihood(
        selbo.ScoreBins.published(EDGES),
        BELIEFS[belief],
        concentration=1000.0,
        pseudo_count=PUBLISHED_PSEUDO_COUNT,
        histogram_floor=PUBLISHED_HISTOGRAM_FLOOR,
    )
    assert total_variation(summary, start_logits("over-confident", seed), None) > stuck_at
