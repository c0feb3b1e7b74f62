"""Two processes train as one: the same gradient, the same draws where a summary needs them, one checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from end_to_end.two_processes import BATCH, GRADIENTS, N, one_step, simple
from ranks import run_two
from safetensors.torch import load_file
from unit.training.toys import blobs

import selbo
from selbo.random import derive
from selbo.training.batches import TensorBatches


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left behind; see two_processes.py."""
    folder = tmp_path_factory.mktemp("two")
    run_two(Path(__file__).with_name("two_processes.py"), str(folder))
    return folder


@pytest.mark.parametrize("name", [name for name in GRADIENTS if name != "ELBO"])
def test_the_gradient_is_that_of_one_process_on_the_whole_batch(name, folder):
    expected, curve = one_step(name)
    for rank in range(2):
        found = load_file(folder / f"{name}.{rank}")
        torch.testing.assert_close(found.pop("curve"), curve, rtol=1e-5, atol=1e-4)
        assert found.keys() == expected.keys()
        largest = max(value.abs().max() for value in expected.values())
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-5 * float(largest))


def test_without_a_summary_processes_draw_for_themselves(folder):
    """The gradient is the mean of two, each with draws of its own on its part of the batch."""
    batch = next(TensorBatches(*blobs(N), batch_size=BATCH, seed=5).from_step(0))
    objective, halves = selbo.ELBO(N), []
    for rank, (inputs, labels) in enumerate(zip(batch.inputs.chunk(2), batch.labels.chunk(2), strict=True)):
        net = simple(bayesian=True)
        noise = torch.Generator().manual_seed(derive(5, "noise", rank, 0))
        objective(net, inputs, labels, generator=noise, step=0).loss.backward()
        halves.append({key: value.grad for key, value in net.named_parameters()})
    found = load_file(folder / "ELBO.0")
    for key, value in halves[0].items():
        torch.testing.assert_close(found[key], (value + halves[1][key]) / 2, rtol=1e-4, atol=1e-5)
    other, _ = one_step("ELBO")  # one process has one draw for all
    assert any(not torch.allclose(found[key], other[key], rtol=1e-3, atol=1e-3) for key in other)


@pytest.mark.parametrize("name", [*GRADIENTS, "straight", "whole", "again"])
def test_processes_stay_the_same(name, folder):
    one, other = (load_file(folder / f"{name}.{rank}") for rank in range(2))
    assert [key for key in one if not torch.equal(one[key], other[key])] == []


def test_files_change_nothing_and_a_run_goes_on_with_all_its_state(folder):
    straight, whole, again = (load_file(folder / f"{name}.0") for name in ("straight", "whole", "again"))
    assert int(straight.pop("resumed_from")) == int(whole.pop("resumed_from")) == 0
    assert int(again.pop("resumed_from")) == 6
    assert [key for key in straight if not torch.equal(straight[key], whole[key])] == []
    assert [key for key in straight if not torch.equal(straight[key], again[key])] == []


def test_only_the_first_process_writes(folder):
    together = folder / "together"
    for name in ("whole", "again"):
        assert sorted(each.name for each in (together / name).iterdir()) == ["log.jsonl", "run"]
        lines = [json.loads(line)["step"] for line in (together / name / "log.jsonl").read_text().splitlines()]
        assert lines == [2, 4, 6, 8, 10, 12]
    logs = [(together / name / "log.jsonl").read_bytes() for name in ("whole", "again")]
    assert logs[0] == logs[1]
    assert set((folder / "callbacks.txt").read_text()) == {"0"}
    assert (folder / "disk0" / "run").exists()
    assert not (folder / "disk1").exists()


def test_what_several_processes_cannot_do_is_one_sentence(folder):
    for rank in range(2):
        messages = json.loads((folder / f"messages.{rank}.json").read_text())
        assert messages["loader"] == "`train` must be tensors or a TensorDataset to train with several processes"
        assert messages["odd"].startswith("`batch_size` must be a multiple of the number of processes, but got 7 for 2")
        assert messages["steps"] == "4"
        assert messages["apart"].startswith("`checkpoint` must be one file for all processes, but only some found")
