"""Distributed training (torch.distributed, torchrun): each batch is split; histogram and gradients are shared."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from selbo.objectives import Objective
from selbo.summary.likelihood import Summary


@contextmanager
def process_group(device: torch.device) -> Iterator[tuple[int, int]]:
    """Rank and number of processes; joins the process group of torchrun if that has not happened yet."""
    if not dist.is_available() or not (dist.is_initialized() or announced_processes() > 1):
        yield 0, 1
        return
    joined = not dist.is_initialized()
    if joined:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        if joined:
            dist.destroy_process_group()


def announced_processes() -> int:
    """Number of processes that torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def number_of_processes() -> int:
    """Number of processes of the process group; 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class _SumOverProcesses(torch.autograd.Function):
    """Sum over all processes; the backward pass sums the gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        total = tensor.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


def sum_over_processes(tensor: Tensor) -> Tensor:
    """Differentiable sum over all processes."""
    return cast(Tensor, _SumOverProcesses.apply(tensor))  # type: ignore[no-untyped-call]


@contextmanager
def global_histograms(objective: Objective, world: int) -> Iterator[None]:
    """Compute the histograms of an objective's summaries over the batches of all processes."""
    if world == 1:
        yield
        return
    summaries = [each for each in objective.modules() if isinstance(each, Summary)]
    added = [each for each in summaries if sum_over_processes not in each.reductions]
    for each in added:
        each.reductions.insert(0, sum_over_processes)
    try:
        yield
    finally:
        for each in added:
            each.reductions.remove(sum_over_processes)


def average_gradients(parameters: list[nn.Parameter], world: int) -> None:
    """Average all gradients over processes, in one communication."""
    if world == 1:
        return
    gradients = [each.grad for each in parameters if each.grad is not None]
    flat = torch.cat([each.reshape(-1) for each in gradients])
    dist.all_reduce(flat)
    flat /= world
    for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
        gradient.copy_(part.reshape(gradient.shape))


def average(tensor: Tensor, world: int) -> Tensor:
    """Mean over processes."""
    if world == 1:
        return tensor
    total = tensor.clone()
    dist.all_reduce(total)
    return total / world


def agree(number: int, world: int, device: torch.device) -> bool:
    """Whether all processes have the same number."""
    if world == 1:
        return True
    ends = torch.tensor([number, -number], device=device)
    dist.all_reduce(ends, dist.ReduceOp.MAX)
    return bool(ends[0] == -ends[1])


def holds_in_any(flag: bool, world: int, device: torch.device) -> bool:
    """Whether a flag is set in at least one process."""
    if world == 1:
        return flag
    most = torch.tensor(int(flag), device=device)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return bool(most)


def average_statistics(model: nn.Module, world: int) -> None:
    """Average running statistics over processes; each process tracks them for its own part of the batches."""
    if world == 1:
        return
    for name, buffer in model.named_buffers():
        if name.rpartition(".")[2] in ("running_mean", "running_var"):
            buffer.copy_(average(buffer, world))


def copy_from_first(state: dict[str, Tensor], world: int) -> None:
    """Start all processes from the state of the first, in place."""
    if world > 1:
        for value in state.values():
            dist.broadcast(value, 0)
