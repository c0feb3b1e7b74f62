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

from selbo.experiments import workers

KILLED = """
import time
from selbo.experiments.workers import pool_of

if __name__ == "__main__":
    pool = pool_of(2)
    busy, idle = pool.submit(time.sleep, 600), pool.submit(time.sleep, 0)
    idle.result()
    print("ready", flush=True)
    busy.result()
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_a_pool_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    owner = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        owner.kill()
        owner.communicate(timeout=20)  # until nobody is left who could write: the workers have the same output
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(owner.pid, signal.SIGKILL)


def test_a_process_that_nobody_started_is_left_alone() -> None:
    before = threading.active_count()
    workers.end_with_parent()
    assert threading.active_count() == before
