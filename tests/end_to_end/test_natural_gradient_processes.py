"""Natural gradient in two processes: the optimiser under DistributedDataParallel, and `selbo.fit`."""

from __future__ import annotations

from pathlib import Path

import torch
from end_to_end.ranks_natural_gradient import fitted, problem, train
from ranks import run_two
from safetensors.torch import load_file

from selbo.posteriors import NaturalGradient


def test_two_processes_are_one(tmp_path: Path) -> None:
    """Gradients and curvature are averaged, and the sample is the same on every rank."""
    run_two(Path(__file__).with_name("ranks_natural_gradient.py"), str(tmp_path))
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    network, inputs, labels = problem()
    optimizer = NaturalGradient(network.parameters(), num_data=20, prior_std=1.0)
    train(network, optimizer, inputs, labels)
    expected = {"weight": network.weight.detach(), "std": optimizer.std(network.weight)}
    expected |= {f"fit.{name}": value for name, value in fitted().items()}
    assert first.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value, rtol=1e-9, atol=1e-12)
