"""Run by two processes: a network in DistributedDataParallel, and `selbo.fit`; each process has half of the batch."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn

import selbo
from selbo.posteriors import NaturalGradient, NaturalGradientPosterior


def problem() -> tuple[nn.Linear, Tensor, Tensor]:
    """The same network, inputs and labels in every process."""
    generator = torch.Generator().manual_seed(0)
    network = nn.utils.skip_init(nn.Linear, 4, 3, dtype=torch.float64)
    with torch.no_grad():
        for each in network.parameters():
            each.copy_(torch.randn(each.shape, generator=generator))
    inputs = torch.randn(20, 4, generator=generator).double()
    return network, inputs, torch.randint(0, 3, (20,), generator=generator)


def train(
    network: nn.Module, optimizer: NaturalGradient, inputs: Tensor, labels: Tensor, *, num_samples: int = 1
) -> None:
    """Five steps."""
    for _ in range(5):
        optimizer.zero_grad()
        for _ in range(num_samples):
            with optimizer.sampled():
                (nn.functional.cross_entropy(network(inputs), labels) / num_samples).backward()
        optimizer.step()


def with_batch_norm() -> nn.Sequential:
    """The same network in every process, which keeps running statistics of its own batches."""
    return nn.Sequential(problem()[0], nn.BatchNorm1d(3, dtype=torch.float64))


def fitted() -> dict[str, Tensor]:
    """Means and precisions after five steps of `selbo.fit`, with two samples each and a summary."""
    network, inputs, labels = problem()
    posterior = NaturalGradientPosterior(network, num_data=20, prior_std=1.0, betas=(0.9, 0.9))
    summary = selbo.SummaryLikelihood(selbo.CornerShells(3), selbo.expect(0.8, num_classes=3), 10.0)
    objective = selbo.CrossEntropy(20, summary, summary_warmup=0)
    result = selbo.fit(posterior, objective, (inputs, labels), steps=5, batch_size=10, num_samples=2)
    return {**posterior.state_dict(), "curve": result.curve}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    network, inputs, labels = problem()
    optimizer = NaturalGradient(network.parameters(), num_data=20, prior_std=1.0)
    train(nn.parallel.DistributedDataParallel(network), optimizer, inputs[rank::2], labels[rank::2])
    found = {"weight": network.weight.detach(), "std": optimizer.std(network.weight)}
    network, inputs, labels = problem()
    optimizer = NaturalGradient(network.parameters(), num_data=20, prior_std=1.0)
    replicated = nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=True)
    train(replicated, optimizer, inputs[rank::2], labels[rank::2], num_samples=3)
    found |= {"shared.weight": network.weight.detach(), "shared.std": optimizer.std(network.weight)}
    network = with_batch_norm()
    optimizer = NaturalGradient(network.parameters(), num_data=20, prior_std=1.0)
    train(nn.parallel.DistributedDataParallel(network), optimizer, inputs[rank::2], labels[rank::2])
    found |= {f"norm.{name}": value for name, value in network.state_dict().items()}
    found |= {f"norm.std.{name}": optimizer.std(each) for name, each in network.named_parameters()}
    found |= {f"fit.{name}": value.contiguous() for name, value in fitted().items()}
    save_file(found, Path(sys.argv[1]) / f"{rank}.safetensors")
    dist.destroy_process_group()
