"""What torchrun does with a worker that it may restart, but for the import of torch in each: workers are forked.

Its argument is a folder. The workers write what they print to files below it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def launch(folder: Path) -> None:
    from elastic import main  # beside this file: pytest reads it for doctests from another folder

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id="elastic",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=3,
        monitor_interval=0.1,
        start_method="forkserver",
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "printed"), redirects=Std.ALL),
    )
    elastic_launch(config, main)(folder, True)  # killed


if __name__ == "__main__":
    launch(Path(sys.argv[1]))
