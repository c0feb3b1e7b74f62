"""Two processes of one script that train together, as torchrun would start them."""

import os
import socket
from pathlib import Path

from forked_python import start_forked

TESTS = Path(__file__).parent
SECONDS = 280


def run_two(script: Path, *arguments: str, **environment: str) -> None:
    """Start a script as ranks 0 and 1, with more of the environment if given, and see that both end well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
        **environment,
    }
    processes = [start_forked(script, *arguments, **shared, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]
    runs = [process.wait(SECONDS) for process in processes]
    said = "\n".join(f"{run.stdout}{run.stderr}" for run in runs)
    assert [run.returncode for run in runs] == [0, 0], said
