"""One of several processes that train together; started by test_two_processes.py with the variables of torchrun.

Every scenario leaves a file for each rank in the folder that is the only argument.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from unit.training.toys import FEATURES, blobs, network, summary

import selbo
from selbo.objectives import Grouped, Objective
from selbo.training import Callback, Checkpoint, JsonLines, Optimizer, Validation

N, BATCH = 40, 16


def simple(*, bayesian: bool) -> nn.Module:
    """Nothing that looks at its own part of a batch: no BatchNorm, no dropout."""
    generator = torch.Generator().manual_seed(3)
    net = selbo.models.MLP((FEATURES, 6, 3), generator=generator)
    return selbo.to_bayesian(net, init_std=0.3) if bayesian else net


SITES = {"here": blobs(21, seed=4)[0], "there": blobs(33, seed=6)[0]}


def several() -> Objective:
    """Two places and the training inputs; one of the histograms has a memory."""
    masses = selbo.Masses([0.5, 0.3, 0.2])
    here = selbo.SummaryLikelihood(selbo.ClassRegions(3), masses, 20.0, name="here", ema_decay=0.9)
    there = selbo.SummaryLikelihood(selbo.ClassRegions(3), masses, 30.0, name="there")
    return selbo.SummaryELBO([here, summary(), there], N)


def states(**options: Any) -> selbo.GroupedSummary:
    """Beliefs about five groups, which both processes have members of."""
    fractions = torch.tensor([[1, 2, 3], [3, 2, 1], [1, 1, 1], [4, 1, 1], [1, 1, 4]], dtype=torch.float64)
    fractions = fractions / fractions.sum(-1, keepdim=True)
    return selbo.GroupedSummary(selbo.ClassRegions(3), fractions, 20.0, name="states", **options)


GROUPS = torch.arange(N) ** 2 % 7 - 1  # four of the five groups, and none


GRADIENTS: dict[str, tuple[bool, Callable[[], Objective], dict[str, Any]]] = {
    "Summary ELBO": (True, lambda: selbo.SummaryELBO(summary(), N), {"num_samples": 3}),
    "Summary ELBO, moving average": (True, lambda: selbo.SummaryELBO(summary(ema_decay=0.9), N), {}),
    "Summary ELBO, unlabelled": (True, lambda: selbo.SummaryELBO(summary(), N), {"unlabelled": blobs(21, seed=4)[0]}),
    "Summary ELBO, several": (True, several, {"num_samples": 2, "unlabelled": SITES, "unlabelled_batch_size": 10}),
    "cross-entropy + summary": (False, lambda: selbo.CrossEntropy(N, summary()), {}),
    "groups without labels": (
        False,
        lambda: selbo.CrossEntropy(N, states()),
        {"train": blobs(N)[0], "groups": GROUPS, "rows_per_group": 3},
    ),
    "groups, averages, few labels": (
        True,
        lambda: selbo.SummaryELBO([states(ema_decay=0.9), summary()], N),
        {"train": (blobs(N)[0], torch.where(torch.arange(N) < 9, blobs(N)[1], -1)), "groups": GROUPS},
    ),
    "counts of unlabelled groups": (
        False,
        lambda: selbo.CrossEntropy(N, states(form="counts", exact_up_to=0)),
        {"unlabelled": Grouped(blobs(21, seed=4)[0], torch.arange(21) % 5), "unlabelled_batch_size": 10},
    ),
    "cross-entropy": (False, lambda: selbo.CrossEntropy(N), {}),
    "ELBO": (True, lambda: selbo.ELBO(N), {}),
}


def one_step(name: str) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The gradient of a step, as the difference it makes with a rate of one, and the terms."""
    bayesian, objective, settings = GRADIENTS[name]
    net = simple(bayesian=bayesian)
    before = {key: value.detach().clone() for key, value in net.named_parameters()}
    settings = {
        "steps": 1,
        "batch_size": BATCH,
        "optimizer": Optimizer("sgd", momentum=0.0),
        "learning_rate": 1.0,
        **settings,
    }
    result = selbo.fit(net, objective(), settings.pop("train", blobs(N)), seed=5, **settings)
    return {key: before[key] - value.detach() for key, value in net.named_parameters()}, result.curve


class Stop(Exception):  # noqa: N818
    """Ends a session."""


def several_steps(folder: Path | None, *, seed: int = 0) -> dict[str, torch.Tensor]:
    """A run with everything that has a state: BatchNorm, dropout, moving averages, plateau, selection."""

    def who(record: dict[str, Any]) -> None:
        with (Path(sys.argv[1]) / "callbacks.txt").open("a") as file:
            file.write(os.environ["RANK"])

    net = network(seed=seed, bayesian=True)
    objective = selbo.SummaryELBO(summary(ema_decay=0.9), N)
    files: dict[str, Any] = {}
    if folder is not None:
        files["checkpoint"] = Checkpoint(folder / "run", every=0.0)
        files["callbacks"] = [JsonLines(folder / "log.jsonl"), who]
    result = selbo.fit(
        net,
        objective,
        blobs(N),
        blobs(21, seed=1),
        steps=12,
        batch_size=BATCH,
        learning_rate=0.05,
        schedule="plateau",
        validation=Validation(every=3, select="best"),
        log_every=2,
        **files,
    )
    state = {key: value.clone() for key, value in net.state_dict().items()}
    state |= {f"objective.{key}": value.clone() for key, value in objective.state_dict().items()}
    return {**state, "curve": result.curve, "resumed_from": torch.tensor(result.resumed_from)}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    for number, name in enumerate(GRADIENTS):
        if number == 1:  # the first joined its processes by itself; one group for the others saves time
            assert not dist.is_initialized()
            dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
        gradient, curve = one_step(name)
        save_file({**gradient, "curve": curve}, folder / f"{name}.{rank}")
    save_file(several_steps(None, seed=rank), folder / f"straight.{rank}")  # rank 1 starts elsewhere
    together = folder / "together"
    save_file(several_steps(together / "whole", seed=rank), folder / f"whole.{rank}")
    interrupted(together / "again", folder, rank)
    messages = {"loader": loader_is_refused(), "odd": odd_batch_is_refused()}
    messages["apart"] = checkpoint_of_one_only(folder, rank)
    messages["steps"] = stopped_by_the_first()
    (folder / f"messages.{rank}.json").write_text(json.dumps(messages))
    dist.destroy_process_group()


def interrupted(again: Path, folder: Path, rank: int) -> None:
    """Both processes stop after six steps, and start again."""
    from selbo.training import trainer as runs

    write, taken = runs.files.write_checkpoint, []

    def write_and_count(*args: Any, **options: Any) -> None:
        write(*args, **options)
        taken.append(1)

    take = runs.Trainer._take

    def take_six(self: runs.Trainer, rows: torch.Tensor) -> None:
        if self.state.step >= 6:
            raise Stop
        take(self, rows)

    runs.Trainer._take = take_six  # type: ignore[method-assign]
    runs.files.write_checkpoint = write_and_count
    with contextlib.suppress(Stop):
        several_steps(again)
    runs.Trainer._take, runs.files.write_checkpoint = take, write  # type: ignore[method-assign]
    assert bool(taken) == (rank == 0), "only the first process writes"
    dist.barrier()
    save_file(several_steps(again, seed=7 + rank), folder / f"again.{rank}")


def message_of(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return "no error"


def loader_is_refused() -> str:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*blobs(N)), batch_size=8)
    return message_of(lambda: selbo.fit(simple(bayesian=False), selbo.CrossEntropy(N), loader, steps=1))


def odd_batch_is_refused() -> str:
    return message_of(lambda: selbo.fit(simple(bayesian=False), selbo.CrossEntropy(N), blobs(N), steps=1, batch_size=7))


def stopped_by_the_first() -> str:
    """Only the first process is asked whether to stop; all of them do."""

    class Stopping(Callback):
        def on_validation(self, step: int, nll: float) -> bool:
            return step == 4

    net, how = simple(bayesian=False), Validation(every=2)
    result = selbo.fit(
        net,
        selbo.CrossEntropy(N),
        blobs(N),
        blobs(21, seed=1),
        steps=8,
        batch_size=8,
        validation=how,
        callbacks=[Stopping()],
    )
    return str(result.steps)


def checkpoint_of_one_only(folder: Path, rank: int) -> str:
    """A disk of its own for each process: the second finds nothing to go on from."""
    path = folder / f"disk{rank}" / "run"

    def train(steps: int) -> object:
        net = simple(bayesian=False)
        return selbo.fit(net, selbo.CrossEntropy(N), blobs(N), steps=steps, batch_size=8, checkpoint=path)

    train(2)
    return message_of(lambda: train(2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
