"""torchrun restarts killed processes, and training resumes from the last checkpoint as if nothing had happened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from ranks import SECONDS, TESTS, run_two
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from forked_python import start_forked

SCRIPT, AGENT = (Path(__file__).with_name(name) for name in ("elastic.py", "elastic_agent.py"))


@pytest.mark.skipif(not (TESTS.parent / "examples").exists(), reason="the example is in the repository")
def test_a_killed_worker_is_started_again_and_the_run_is_the_same(tmp_path):
    whole, again = tmp_path / "whole", tmp_path / "again"
    for folder in (whole, again):
        folder.mkdir()
    run_two(SCRIPT, str(whole))
    # processes that were restarted would find addresses of those before (pytorch/pytorch#135712)
    own = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    done = start_forked(AGENT, str(again), PYTHONPATH=path, **own).wait(SECONDS)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        expected, found = (load_file(folder / f"fit.{rank}") for folder in (whole, again))
        assert expected.pop("resumed").tolist() == [0, 0]
        assert found.pop("resumed").tolist() == [6, 1]
        assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
    # the loop was killed after six steps, and resumed at the fourth
    (printed,) = (again / "printed").rglob("attempt_2/0/stdout.log")
    assert "steps 4 to 12 in 2 processes" in printed.read_text(encoding="utf-8")
    for folder in (whole, again):
        dcp_to_torch_save(folder / "loop" / "step-000012", folder / "loop.pt")
    expected, found = (torch.load(folder / "loop.pt", weights_only=True) for folder in (whole, again))
    for part in (found, expected):
        assert part["model"]
        assert part["optimizer"]["state"]
    for one, two in (
        (found["model"], expected["model"]),
        (found["optimizer"]["state"], expected["optimizer"]["state"]),
    ):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
