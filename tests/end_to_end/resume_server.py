"""Sessions of one training run, each in a process of its own that may be killed at any moment.

Starting Python and importing torch takes seconds, so this process does it once and forks a child for each session. One
line of JSON on standard input starts one: the folder of the run, and where it is to kill itself, if anywhere. Standard
output has a zero when this process is ready, and then a line when a session has started, with its id, and one when it
has ended, with its exit status (-9: killed).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import safetensors.torch
import torch
from torch.utils.data import DataLoader
from unit.training.toys import Rows, blobs, network, summary

import selbo
from selbo.training import Checkpoint, JsonLines, Validation, checkpoint

STEPS, N = 150, 90


def session(folder: Path, data: str) -> None:
    """Train, from the beginning or from where the last session was killed, and write down the end."""
    net = network(bayesian=True)
    objective = selbo.SummaryELBO(summary(ema_decay=0.95), N)
    train = blobs(N) if data == "tensors" else DataLoader(Rows(*blobs(N), noise=0.1), batch_size=16, shuffle=True)
    result = selbo.fit(
        net,
        objective,
        train,
        blobs(31, seed=1),
        steps=STEPS,
        batch_size=16,
        num_samples=2,
        learning_rate=0.05,
        schedule="plateau",
        validation=Validation(every=3, select="best"),
        checkpoint=Checkpoint(folder / "run", every=0.0),
        callbacks=[JsonLines(folder / "log.jsonl")],
        log_every=2,
    )
    tensors = {f"net.{name}": value for name, value in net.state_dict().items()}
    tensors |= {f"objective.{name}": value.clone() for name, value in objective.state_dict().items()}
    end = {"history": result.history, "selected_step": result.selected_step, "val_nll": result.val_nll}
    safetensors.torch.save_file({**tensors, "curve": result.curve}, folder / "end.safetensors")
    unfinished = folder / "end.json.unfinished"
    unfinished.write_text(json.dumps(end))
    unfinished.replace(folder / "end.json")  # whole or not at all: the test may kill here too
    (folder / "resumed_from").write_text(str(result.resumed_from))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_writing(folder: Path, moment: str, after: int) -> None:
    """Arrange for a kill in the midst of the checkpoint number ``after`` of this session."""
    left = [after]
    save, fsync, replace = safetensors.torch.save, os.fsync, Path.replace

    def now() -> bool:
        left[0] -= 1
        return left[0] < 0

    def half(content: dict[str, torch.Tensor], metadata: dict[str, str]) -> bytes:
        whole = save(content, metadata=metadata)
        if now():
            (folder / ".run.part").write_bytes(whole[: len(whole) // 2])
            die()
        return whole

    def flush(number: int) -> None:
        fsync(number)
        if now():
            die()

    def rename(self: Path, target: Path) -> Path:
        done = replace(self, target)
        if self.name == ".run.part" and now():
            die()
        return done

    if moment == "half written":
        safetensors.torch.save = half
    elif moment == "written":
        checkpoint.os.fsync = flush
    elif moment == "renamed":
        Path.replace = rename  # type: ignore[method-assign,assignment]


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main() -> None:
    torch.set_num_threads(1)  # and no backward pass here: a fork takes no threads along
    summary()  # what is imported on first use is imported here
    torch.optim.Adam(network().parameters())
    say(0)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                folder = Path(order["folder"])
                if "moment" in order:
                    die_while_writing(folder, order["moment"], order["after"])
                session(folder, order["data"])
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        say(child)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
