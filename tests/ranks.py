"""Two processes of one script that train together, as torchrun would start them."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
SECONDS = 280


def run_two(script: Path, *arguments: str, **environment: str) -> None:
    """Start a script as ranks 0 and 1, with more of the environment if given, and see that both end well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")]),
        **environment,
    }
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(script), *arguments],
                    env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            for rank in range(2)
        ]
        outputs = [process.communicate(timeout=SECONDS)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
