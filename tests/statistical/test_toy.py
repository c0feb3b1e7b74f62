"""The summary term alone moves 2048 free logits to where s0 says, from wherever they start (audit part C)."""

import pytest
import torch

import selbo

EDGES = [i / 10 for i in range(1, 10)]
BELIEFS = {"uniform": selbo.Uniform(), "Beta(5, 5)": selbo.Beta(5, 5)}


@pytest.fixture(autouse=True)
def one_thread():
    """The tensors are small: a second thread only waits for the first, for most of a minute on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def start_logits(start: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2048, generator=generator)
    sign = torch.where(torch.rand(2048, generator=generator) < 0.5, -1.0, 1.0)
    return sign * (6 + noise) if start == "over-confident" else 0.3 * noise


def total_variation(
    summary: selbo.SummaryLikelihood,
    *starts: torch.Tensor,
    steps: int = 1000,
    slope_factors: torch.Tensor | None = None,
) -> list[float]:
    """Distance of the hard histogram to s0 after training; starts share the steps and nothing else."""
    logits = torch.stack(starts).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.05)

    def log_probs() -> torch.Tensor:
        return torch.stack([torch.nn.functional.logsigmoid(-logits), torch.nn.functional.logsigmoid(logits)], -1)

    for step in range(steps):
        if slope_factors is not None:
            summary.partition.set_slope_factor(slope_factors[step])
        optimizer.zero_grad()
        (-summary(log_probs())).sum().backward()
        optimizer.step()
    regions = summary.partition.assign(log_probs().detach())
    hard = torch.nn.functional.one_hot(regions, summary.partition.num_regions).double().mean(-2)
    return (0.5 * (hard - summary.s0).abs().sum(-1)).tolist()


@pytest.mark.parametrize("belief", BELIEFS.values(), ids=BELIEFS.keys())
class TestToy:
    """From over-confident and from central logits."""

    def test_the_default_slope_comes_within_5_per_cent(self, belief, seed):
        """Also with a learning rate of .02, which takes longer: docs/reference/measurements.md."""
        summary = selbo.SummaryLikelihood(selbo.ScoreBins(EDGES), belief, concentration=1000.0)
        far, near = total_variation(summary, start_logits("over-confident", seed), start_logits("central", seed))
        assert far <= 0.05
        assert near <= 0.05

    def test_an_annealed_slope_comes_within_1_per_cent(self, belief, seed):
        summary = selbo.SummaryLikelihood(selbo.ScoreBins(EDGES), belief, concentration=1000.0)
        starts = start_logits("over-confident", seed), start_logits("central", seed)
        far, near = total_variation(summary, *starts, steps=600, slope_factors=torch.logspace(0, 2, 600))
        assert far <= 0.01
        assert near <= 0.01
