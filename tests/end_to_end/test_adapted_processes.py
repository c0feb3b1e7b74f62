"""DDP in a plain loop, in Lightning and in the Trainer: two processes step as one with the whole batch."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from end_to_end.adapted_processes import BATCH, N, data, simple
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from unit.training.toys import summary

TESTS = Path(__file__).parents[1]


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [each for each in packages if find_spec(each) is None]  # importing them would touch random states
    return pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} not installed")


def two_processes(scenario: str, folder: Path) -> list[dict[str, Tensor]]:
    """What both left behind; see adapted_processes.py."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        **os.environ,
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "none",  # by this Lightning knows that its processes have been started
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
    }
    script = str(Path(__file__).with_name("adapted_processes.py"))
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, script, scenario, str(folder)],
                    env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            for rank in range(2)
        ]
        outputs = [process.communicate(timeout=280)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    return [load_file(folder / f"{scenario}.{rank}") for rank in range(2)]


def gradients(loss: Tensor, net: torch.nn.Module) -> dict[str, Tensor]:
    loss.backward()
    return {name: value.grad for name, value in net.named_parameters()}


def whole() -> tuple[dict[str, Tensor], Tensor]:
    """Gradient and predictions of one process with the whole batch."""
    net, (inputs, labels) = simple(), (each[:BATCH] for each in data())
    log_probs = net(inputs).log_softmax(-1)
    return gradients(F.nll_loss(log_probs, labels.clamp(min=0)) - summary()(log_probs) / N, net), log_probs.detach()


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


def test_a_plain_loop_has_one_histogram(tmp_path):
    expected, log_probs = whole()
    for found, part in zip(two_processes("plain", tmp_path), log_probs.chunk(2), strict=True):
        assert_equal(found, expected)
        torch.testing.assert_close(found["histogram"], summary().histogram(log_probs).double(), rtol=1e-5, atol=1e-8)
        # without gathering each process has its own, and the gradient is another
        alone = summary().histogram(part).double()
        torch.testing.assert_close(found["apart.histogram"], alone, rtol=1e-5, atol=1e-8)
        assert max((found[f"apart.{name}"] - value).abs().max() for name, value in expected.items()) > 0.01


@needs("lightning")
def test_lightning_has_one_histogram_and_one_process_that_shows_it(tmp_path):
    expected, log_probs = whole()
    for found in two_processes("lightning", tmp_path):
        assert_equal(found, expected)
        assert found["log_summary"].item() == pytest.approx(summary()(log_probs).item(), rel=1e-5)
    assert (tmp_path / "shown.0").exists()
    assert not (tmp_path / "shown.1").exists()


@needs("transformers", "accelerate")
def test_the_trainer_has_one_histogram_a_batch_of_both(tmp_path):
    net, (inputs, labels) = simple(), data()
    log_probs = net(inputs).log_softmax(-1)
    known = [int((part != -100).sum()) for part in labels.split(BATCH)]
    assert known[0] != known[1]
    worth = sum(count * summary()(part) for count, part in zip(known, log_probs.split(BATCH), strict=True)) / sum(known)
    expected = gradients(F.nll_loss(log_probs, labels) - worth / N, net)
    for found in two_processes("transformers", tmp_path):
        assert_equal(found, expected)
        torch.testing.assert_close(
            found["histogram"], summary().histogram(log_probs.detach()).double(), rtol=1e-5, atol=1e-8
        )
