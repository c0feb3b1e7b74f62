"""Run by two processes: a network wrapped in DistributedDataParallel, each process with half of the batch."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn

from selbo.posteriors import NaturalGradient


def problem() -> tuple[nn.Linear, Tensor, Tensor]:
    """The same network, inputs and labels in every process."""
    generator = torch.Generator().manual_seed(0)
    network = nn.utils.skip_init(nn.Linear, 4, 3, dtype=torch.float64)
    with torch.no_grad():
        for each in network.parameters():
            each.copy_(torch.randn(each.shape, generator=generator))
    inputs = torch.randn(20, 4, generator=generator).double()
    return network, inputs, torch.randint(0, 3, (20,), generator=generator)


def train(network: nn.Module, optimizer: NaturalGradient, inputs: Tensor, labels: Tensor) -> None:
    """Five steps."""
    for _ in range(5):
        optimizer.zero_grad()
        with optimizer.sampled():
            nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    network, inputs, labels = problem()
    optimizer = NaturalGradient(network.parameters(), num_data=20, prior_std=1.0)
    train(nn.parallel.DistributedDataParallel(network), optimizer, inputs[rank::2], labels[rank::2])
    found = {"weight": network.weight.detach(), "std": optimizer.std(network.weight)}
    save_file(found, Path(sys.argv[1]) / f"{rank}.safetensors")
    dist.destroy_process_group()
