"""One of two processes that train by DistributedDataParallel or fully_shard in a loop; started by test_scaled_out.py.

`train` without a wrapper is the same loop in one process with the whole batch. The script leaves what it found for each
rank in the folder that is its only argument.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from unit.training.toys import FEATURES, blobs, summary

import selbo
from selbo.integrations.monitor import SummaryMonitor
from selbo.objectives import Objective
from selbo.random import generator_for

N, STEPS = 32, 5
GROUPS = torch.arange(N) ** 2 % 7 - 1  # several groups, and none; each process has other rows of them
FRACTIONS = torch.tensor([[1, 2, 3], [3, 2, 1], [1, 1, 1], [4, 1, 1]], dtype=torch.float64)


def groups(**options: Any) -> selbo.GroupedSummary:
    stated = FRACTIONS / FRACTIONS.sum(-1, keepdim=True)
    return selbo.GroupedSummary(selbo.ClassRegions(3), stated, 20.0, name="groups", **options)


class Case:
    """A network, its objective, and what the objective is called with."""

    def __init__(self, objective: Callable[[], Objective], **given: Any) -> None:
        self.objective, self.given = objective, given
        self.bayesian = given.pop("bayesian", False)
        self.natural = given.pop("natural", False)

    def network(self) -> nn.Module:
        net = selbo.models.MLP((FEATURES, 6, 5, 3), generator=torch.Generator().manual_seed(3))
        with torch.no_grad():
            for value in net.parameters():
                value.mul_(2)  # sure of itself, so that the histograms of two parts of a batch differ
        return selbo.to_bayesian(net, init_std=0.1) if self.bayesian else net


THERE = blobs(N, seed=4)[0]
CASES = {
    "deterministic": Case(lambda: selbo.CrossEntropy(N, summary(), summary_warmup=0)),
    "moving average": Case(lambda: selbo.CrossEntropy(N, summary(ema_decay=0.9), summary_warmup=0), unlabelled=THERE),
    "mean field": Case(lambda: selbo.SummaryELBO(summary(), N, summary_warmup=0), bayesian=True, num_samples=3),
    "mean field, unlabelled": Case(
        lambda: selbo.SummaryELBO(summary(), N, summary_warmup=0), bayesian=True, num_samples=2, unlabelled=THERE
    ),
    "groups": Case(lambda: selbo.CrossEntropy(N, groups()), groups=GROUPS),
    "groups, mean field": Case(
        lambda: selbo.SummaryELBO([groups(form="counts", ema_decay=0.9), summary()], N, summary_warmup=0),
        bayesian=True,
        groups=GROUPS,
    ),
    "natural gradient": Case(lambda: selbo.CrossEntropy(N, summary(), summary_warmup=0), natural=True),
}


def train(name: str, wrapper: str | None = None) -> dict[str, Tensor]:
    """Mean losses of the processes, gradients of the first step, and weights after the last one."""
    case = CASES[name]
    network, objective = case.network(), case.objective()
    rank, world = (0, 1) if wrapper is None else (dist.get_rank(), dist.get_world_size())
    rows = {key: value for key, value in case.given.items() if isinstance(value, Tensor)}
    inputs, labels = blobs(N)
    order = labels.argsort(stable=True)  # so that the parts of the processes differ
    inputs, labels = (each[order].chunk(world)[rank] for each in (inputs, labels))
    given = {**case.given, **{key: value.chunk(world)[rank] for key, value in rows.items()}}
    model = wrap(network, wrapper, whole=case.bayesian)
    weights = list(network.parameters())
    if case.natural:
        optimizer: torch.optim.Optimizer = selbo.NaturalGradient(weights, num_data=N, prior_std=1.0)
    else:
        optimizer = torch.optim.Adam(weights, lr=0.01)
    found: dict[str, Tensor] = {}
    losses = []
    with SummaryMonitor(objective):
        for step in range(STEPS):
            optimizer.zero_grad()
            noise = generator_for(0, "noise", step)  # the same in all processes
            for _ in range(2 if case.natural else 1):
                if wrapper == "fsdp" and case.bayesian:
                    network.unshard()  # type: ignore[operator]
                with optimizer.sampled() if case.natural else nullcontext():
                    loss = objective(model, inputs, labels, **given, generator=noise).loss / (2 if case.natural else 1)
                    loss.backward()
            if step == 0:
                found |= {f"gradient.{key}": full(value.grad) for key, value in network.named_parameters()}
            optimizer.step()
            losses.append(loss.detach())
    together = torch.stack(losses)
    if wrapper is not None:
        dist.all_reduce(together)
    found |= {key: full(value.detach()) for key, value in network.named_parameters()}
    found |= {f"objective.{key}": value for key, value in objective.state_dict().items()}
    if case.natural:
        found |= {f"std.{key}": optimizer.std(value) for key, value in network.named_parameters()}
    return {**{key: value.clone() for key, value in found.items()}, "losses": together / world}


def wrap(network: nn.Module, wrapper: str | None, *, whole: bool) -> nn.Module:
    if wrapper == "ddp":
        return nn.parallel.DistributedDataParallel(network)
    if wrapper == "fsdp":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for each in network.modules() if not whole else ():
            if isinstance(each, nn.Linear):
                fully_shard(each, mesh=mesh)
        fully_shard(network, mesh=mesh)
    return network


def full(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


SCENARIOS = [(name, "ddp") for name in CASES] + [(name, "fsdp") for name, case in CASES.items() if not case.natural]


def refused() -> dict[str, str]:
    """What cannot be sharded, in one sentence each."""
    network = wrap(CASES["deterministic"].network(), "fsdp", whole=True)
    bnn = wrap(CASES["mean field"].network(), "fsdp", whole=True)
    calls: dict[str, Callable[[], object]] = {
        "natural gradient": lambda: selbo.NaturalGradient(network.parameters(), num_data=N),
        "fit": lambda: selbo.fit(network, selbo.CrossEntropy(N), blobs(N), steps=1, batch_size=8),
        "mean field": lambda: selbo.ELBO(N)(bnn, *blobs(N)),
    }
    return {name: message_of(call) for name, call in calls.items()}


def message_of(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return "no error"


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    for case, kind in SCENARIOS:
        save_file(train(case, kind), folder / f"{case}, {kind}.{dist.get_rank()}")
    (folder / f"refused.{dist.get_rank()}.json").write_text(json.dumps(refused()))
    dist.destroy_process_group()
