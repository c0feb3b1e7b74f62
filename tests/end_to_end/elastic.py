"""A worker of torchrun that trains twice, by `selbo.fit` and in the loop of an example, and is killed in both.

Its argument is a folder. If it is to be killed, rank 1 kills itself after six steps of the first training, and once it
was started again, of the second.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from unit.training.toys import blobs, network, summary

import selbo
from selbo.training import Checkpoint


@contextmanager
def killing(restarts: int | None) -> Iterator[None]:
    """A context that rank 1 does not survive if torchrun has restarted the processes so many times."""
    step, taken = torch.optim.Adam.step, []

    def step_and_count(self: torch.optim.Adam, *args: Any) -> Any:
        taken.append(1)
        if len(taken) == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *args)

    if os.environ["RANK"] == "1" and os.environ.get("TORCHELASTIC_RESTART_COUNT") == str(restarts):
        torch.optim.Adam.step = step_and_count  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.optim.Adam.step = step  # type: ignore[method-assign]


def fitted(folder: Path) -> dict[str, torch.Tensor]:
    """A run with BatchNorm, dropout and a moving average, and a checkpoint every two steps."""
    net, objective = network(bayesian=True), selbo.SummaryELBO(summary(ema_decay=0.9), 40)
    result = selbo.fit(
        net,
        objective,
        blobs(40),
        steps=12,
        batch_size=16,
        learning_rate=0.05,
        log_every=2,
        checkpoint=Checkpoint(folder / "run", every=0.0),
    )
    resumed = torch.tensor([result.resumed_from, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))])
    return {**net.state_dict(), "curve": result.curve, "resumed": resumed}


def main(folder: Path, killed: bool = False) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    with killing(0 if killed else None):
        found = fitted(folder)
    # of the session that trained to the end, not of the next one, which finds the run complete
    if not (folder / f"fit.{rank}").exists():
        save_file({name: value.contiguous() for name, value in found.items()}, folder / f"fit.{rank}")
    dist.barrier()
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    from scale_out import train

    with killing(1 if killed else None):
        train(rank, world, out=folder / "loop", shard=False, steps=12, every=4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
