"""Processes that work for another end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from selbo.training import processes

OWNER = f"""
import sys, time, types

# Every process runs this first: the package without its contents, so that none of them imports torch.
package = sys.modules["selbo.training"] = types.ModuleType("selbo.training")
package.__path__ = [{str(Path(processes.__file__).parent)!r}]
from selbo.training.processes import start_pool

if __name__ == "__main__":
    pool = start_pool(2)
    busy, idle = pool.submit(time.sleep, 600), pool.submit(time.sleep, 0)
    idle.result()
    print("ready", flush=True)
    busy.result()
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_pool_ends_with_its_owner(how: str, tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    owner = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        if how == "killed":
            owner.kill()
        else:
            os.killpg(owner.pid, signal.SIGINT)  # as a terminal does
        _, err = owner.communicate(timeout=300)  # until nobody is left who could write: workers have the same output
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(owner.pid, signal.SIGKILL)
    if how == "interrupted":
        assert err.count("Traceback") == 1, "only the owner says something"
        assert err.endswith("KeyboardInterrupt\n")


def test_a_process_that_nobody_started_is_left_alone() -> None:
    before = threading.active_count()
    processes.end_with_parent()
    assert threading.active_count() == before
