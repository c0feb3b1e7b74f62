"""Ray Data on several nodes: predictions and their calibration, while a node is killed, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from end_to_end.ray_cluster import BATCH, FILES, ROWS, STATED, log_probs_of, network
from ranks import SECONDS, TESTS

import selbo
from selbo.evaluation import BeliefCalibration

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: pip install 'selbo[ray]'")


@needs_ray
def test_a_killed_node_loses_nothing(tmp_path):
    polars = pytest.importorskip("polars")
    inputs = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(3))
    (tmp_path / "rows").mkdir()
    for number, rows in enumerate(torch.arange(ROWS).chunk(FILES)):
        columns = {"id": rows.numpy(), **{f"x{i}": inputs[rows, i].numpy() for i in range(4)}}
        polars.DataFrame(columns).write_parquet(tmp_path / "rows" / f"{number}.parquet")
    bnn = network()
    selbo.nn.save(bnn, tmp_path / "model")
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ray_cluster.py")), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "RAY_DEDUP_LOGS": "0"},
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,  # Ray takes half a minute to see that a node is gone
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found, numbers = json.loads((tmp_path / "found.json").read_text()), np.load(tmp_path / "found.npz")
    assert (found["killed"], found["alive"]) == (1, 2)
    assert len(list(tmp_path.glob("batch.*"))) > ROWS // BATCH  # some were predicted again
    assert len(list(tmp_path.glob("loaded.*"))) <= 4  # a model per actor, not per batch
    expected = log_probs_of(bnn, inputs)
    assert numbers["id"].tolist() == list(range(ROWS))
    np.testing.assert_allclose(numbers["log_probs"], expected.numpy(), rtol=1e-5, atol=1e-6)
    calibration = BeliefCalibration.from_dict(found["calibration"])
    alone = selbo.calibrate_to_belief(torch.as_tensor(numbers["log_probs"]), **STATED)
    assert calibration.num_inputs == ROWS
    assert calibration.temperature == pytest.approx(alone.temperature, rel=1e-6)
    assert calibration.offsets == pytest.approx(alone.offsets, rel=1e-6)
    assert calibration.log_temperature_error == pytest.approx(alone.log_temperature_error, rel=1e-5)
