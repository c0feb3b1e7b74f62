"""DistributedDataParallel and fully_shard (FSDP2) in a plain loop: two processes are one with the whole batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from end_to_end.scaled_out import CASES, SCENARIOS, train
from ranks import run_two
from safetensors.torch import load_file
from torch import Tensor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left behind; see scaled_out.py."""
    folder = tmp_path_factory.mktemp("out")
    run_two(Path(__file__).with_name("scaled_out.py"), str(folder))
    return folder


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Tensor]]:
    """One process with the whole batch."""
    return {name: train(name) for name in CASES}


@pytest.mark.parametrize(("name", "wrapper"), SCENARIOS)
def test_two_processes_are_one_with_the_whole_batch(name, wrapper, folder, alone):
    """Losses and gradients, and after five steps of the optimiser weights, deviations and moving averages."""
    for rank in range(2):
        found = load_file(folder / f"{name}, {wrapper}.{rank}")
        assert found.keys() == alone[name].keys()
        for key, value in alone[name].items():
            torch.testing.assert_close(
                found[key], value, rtol=1e-5, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
            )


def test_what_cannot_be_sharded_is_one_sentence(folder):
    for rank in range(2):
        messages = json.loads((folder / f"refused.{rank}.json").read_text())
        assert messages == {
            "natural gradient": "`params` must not be sharded here, as by `fully_shard`: a natural gradient trains a "
            "whole network, as DistributedDataParallel has it",
            "fit": "`model` must not be sharded here, as by `fully_shard`: pass the network as it is, or write the "
            "loop yourself (docs/how-to/scale-out.md)",
            "mean field": "`bnn` must not be sharded here, as by `fully_shard`: shard the whole network at once and "
            "call its unshard() before each step",
        }
