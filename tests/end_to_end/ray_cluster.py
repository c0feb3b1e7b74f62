"""A Ray cluster of three nodes, as processes of this machine; predicts and calibrates while one of them is killed.

Its argument is a folder: it reads rows from Parquet files there, and leaves what it found.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import selbo

ROWS, FILES, BATCH = 1200, 12, 50
STATED = {"accuracy": 0.55, "class_fractions": (0.5, 0.3, 0.2)}


def network() -> torch.nn.Module:
    return selbo.to_bayesian(selbo.models.MLP((4, 8, 3), generator=torch.Generator().manual_seed(0)), init_std=0.3)


def log_probs_of(bnn: torch.nn.Module, inputs: Tensor) -> Tensor:
    """The same weight samples for every batch, wherever it is predicted."""
    noise = torch.Generator().manual_seed(1)
    return 3 * selbo.predict(bnn, inputs, num_samples=8, generator=noise).log_probs


def load(folder: str) -> Callable[[Mapping[str, NDArray[Any]]], Tensor]:
    """A model that takes its time and says where it is."""
    import ray

    bnn = network()
    selbo.nn.load(bnn, Path(folder) / "model")
    node = ray.get_runtime_context().get_node_id()
    (Path(folder) / f"loaded.{os.getpid()}").touch()

    def predict(batch: Mapping[str, NDArray[Any]]) -> Tensor:
        (Path(folder) / f"batch.{node}.{time.time_ns()}").touch()
        time.sleep(0.2)
        return log_probs_of(bnn, torch.as_tensor(np.stack([batch[f"x{i}"] for i in range(4)], 1), dtype=torch.float32))

    return predict


def main(folder: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    from selbo.integrations.ray import BatchPredictor, calibrate_dataset

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    # one of them must do for two actors and a task that reads
    workers = [cluster.add_node(num_cpus=3) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    victims: list[str] = []

    def kill() -> None:
        """Kill the first worker that has predicted twice; other batches are waiting."""
        while not victims:
            for each in workers:
                if len(list(folder.glob(f"batch.{each.node_id}.*"))) >= 2:
                    victims.append(each.node_id)
                    cluster.remove_node(each, allow_graceful=False)
                    return
            time.sleep(0.05)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    predicted = ray.data.read_parquet(str(folder / "rows")).map_batches(
        BatchPredictor,
        fn_constructor_kwargs={"load": partial(load, str(folder)), "keep": ["id"]},
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=2),
    )
    held = predicted.materialize()
    killer.join(10)
    calibration = calibrate_dataset(held, **STATED)
    rows = sorted(held.iter_rows(), key=lambda row: row["id"])
    np.savez(
        folder / "found.npz", id=[row["id"] for row in rows], log_probs=np.stack([row["log_probs"] for row in rows])
    )
    alive = sum(node["Alive"] for node in ray.nodes())
    result = {"killed": len(victims), "alive": alive, "calibration": calibration.to_dict()}
    (folder / "found.json").write_text(json.dumps(result))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
