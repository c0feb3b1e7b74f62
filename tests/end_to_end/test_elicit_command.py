"""`selbo elicit` as a process: the whole group is interrupted, as a terminal does, early and late."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from selbo.summary.elicitation import expect
from selbo.summary.partitions import ScoreBins


@pytest.mark.parametrize("asked", [False, True], ids=["while it starts", "after a question"])
def test_ctrl_c_ends_everything_in_silence(asked: bool, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "selbo", "elicit", "--no-browser", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert found is not None
            if asked:
                request = urllib.request.Request(
                    f"{found[0]}api/belief", data=b'{"accuracy": 0.8}', headers={"Content-Type": "application/json"}
                )
                with urllib.request.urlopen(request, timeout=60) as reply:
                    s0 = json.load(reply)["s0"]
                assert s0 == pytest.approx(expect(0.8).masses(ScoreBins.equal(10)).tolist(), rel=1e-12)
        finally:
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("Stopped.\n")
    assert list(tmp_path.iterdir()) == []  # nothing is kept
