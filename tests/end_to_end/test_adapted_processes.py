"""DDP in a plain loop, Accelerate, Lightning and the Trainer: two processes step as one with the whole batch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from end_to_end.adapted_processes import BATCH, N, bayesian, data, simple
from ranks import run_two
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from unit.training.toys import summary

from selbo.random import generator_for


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [each for each in packages if find_spec(each) is None]  # importing them would touch random states
    return pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} not installed")


def two_processes(scenario: str, folder: Path) -> list[dict[str, Tensor]]:
    """What both left behind; see adapted_processes.py."""
    run_two(
        Path(__file__).with_name("adapted_processes.py"),
        scenario,
        str(folder),
        LOCAL_WORLD_SIZE="2",
        GROUP_RANK="0",
        TORCHELASTIC_RUN_ID="none",  # by this Lightning knows that its processes have been started
    )
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


@needs("accelerate")
def test_accelerate_has_one_histogram(tmp_path):
    expected, log_probs = whole()
    for found in two_processes("accelerate", tmp_path):
        assert_equal(found, expected)
        torch.testing.assert_close(found["histogram"], summary().histogram(log_probs).double(), rtol=1e-5, atol=1e-8)


@needs("lightning")
def test_a_bayesian_network_in_lightning_is_trained_as_in_one_process(tmp_path):
    (net, objective), (inputs, labels) = bayesian(), (each[:BATCH] for each in data())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        noise = generator_for(0, "noise", step)
        objective(net, inputs, labels.clamp(min=0), num_samples=3, generator=noise).loss.backward()
        optimizer.step()
    for found in two_processes("lightning_bayesian", tmp_path):
        for name, value in net.named_parameters():
            torch.testing.assert_close(found[name], value.detach(), rtol=1e-5, atol=1e-5)


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
