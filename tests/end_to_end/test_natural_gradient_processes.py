"""Natural gradient in two processes: the optimiser under DistributedDataParallel, and `selbo.fit`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from end_to_end.ranks_natural_gradient import fitted, problem, train, with_batch_norm
from ranks import run_two
from safetensors.torch import load_file
from torch import Tensor, nn

from selbo.posteriors import NaturalGradient


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    """What each process has found."""
    folder = tmp_path_factory.mktemp("ranks")
    run_two(Path(__file__).with_name("ranks_natural_gradient.py"), str(folder))
    return [load_file(folder / f"{rank}.safetensors") for rank in range(2)]


def test_two_processes_are_one(ranks: list[dict[str, Tensor]]) -> None:
    """Gradients and curvature are averaged, and the sample is the same on every rank."""
    network, inputs, labels = problem()
    optimizer = NaturalGradient(network.parameters(), num_data=20, prior_std=1.0)
    train(network, optimizer, inputs, labels)
    expected = {"weight": network.weight.detach(), "std": optimizer.std(network.weight)}
    network, inputs, labels = problem()
    optimizer = NaturalGradient(network.parameters(), num_data=20, prior_std=1.0)
    train(network, optimizer, inputs, labels, num_samples=3)  # there, gradients share the memory of the messages
    expected |= {"shared.weight": network.weight.detach(), "shared.std": optimizer.std(network.weight)}
    expected |= {f"fit.{name}": value for name, value in fitted().items()}
    first, second = ({name: each[name] for name in each if not name.startswith("norm.")} for each in ranks)
    assert first.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value, rtol=1e-9, atol=1e-12)


def test_batch_norm_uses_the_batch_of_each_process(ranks: list[dict[str, Tensor]]) -> None:
    """Each pass starts from the running statistics of rank 0; gradients are means over the halves of the batch."""
    network, (_, inputs, labels) = with_batch_norm(), problem()
    optimizer = NaturalGradient(network.parameters(), num_data=20, prior_std=1.0)
    for _ in range(5):
        before = {name: value.clone() for name, value in network.named_buffers()}
        statistics = []
        optimizer.zero_grad()
        with optimizer.sampled():
            for rank in (1, 0):
                network.load_state_dict(before, strict=False)
                (nn.functional.cross_entropy(network(inputs[rank::2]), labels[rank::2]) / 2).backward()
                statistics.insert(0, {name: value.clone() for name, value in network.named_buffers()})
        optimizer.step()
    for found, buffers in zip(ranks, statistics, strict=True):
        for name, value in [*network.named_parameters(), *buffers.items()]:
            torch.testing.assert_close(found[f"norm.{name}"], value.detach(), rtol=1e-9, atol=1e-12)
        for name, each in network.named_parameters():
            torch.testing.assert_close(found[f"norm.std.{name}"], optimizer.std(each), rtol=1e-9, atol=1e-12)
            assert torch.equal(ranks[0][f"norm.{name}"], ranks[1][f"norm.{name}"])
    assert not torch.equal(statistics[0]["1.running_mean"], statistics[1]["1.running_mean"])
