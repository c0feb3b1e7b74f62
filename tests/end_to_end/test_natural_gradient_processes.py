"""The natural-gradient optimiser in two processes, under DistributedDataParallel."""

from __future__ import annotations

from pathlib import Path

import torch
from ranks import run_two
from safetensors.torch import load_file
from torch import nn

from selbo.posteriors import NaturalGradient


def test_two_processes_are_one(tmp_path: Path) -> None:
    """Gradients and curvature are averaged, and the draw is the same on every rank."""
    run_two(Path(__file__).with_name("ranks_natural_gradient.py"), str(tmp_path))
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        network = nn.Linear(4, 3).double()
    with torch.no_grad():
        for each in network.parameters():
            each.copy_(torch.randn(each.shape, generator=generator))
    inputs = torch.randn(20, 4, generator=generator).double()
    labels = torch.randint(0, 3, (20,), generator=generator)
    optimizer = NaturalGradient(network.parameters(), num_data=20, prior_std=1.0)
    for _ in range(5):
        optimizer.zero_grad()
        with optimizer.sampled():
            nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
    for name, value in (("weight", network.weight.detach()), ("std", optimizer.std(network.weight))):
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value, rtol=1e-9, atol=1e-12)
