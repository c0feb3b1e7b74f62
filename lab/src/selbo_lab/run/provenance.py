"""Provenance of a result: code, packages and machine."""

import os
import platform
import subprocess
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

import torch

from selbo import __version__
from selbo_lab.run.records import RunProvenance

PACKAGES: Final = ("torch", "numpy", "scipy")


def describe_run(device: str) -> RunProvenance:
    """Collect code version, packages and machine."""
    machine = platform.machine()
    if device.startswith("cuda"):
        machine = torch.cuda.get_device_name(torch.device(device))
    return RunProvenance(
        selbo=__version__,
        code=code_version(),
        python=platform.python_version(),
        **versions(),
        machine=machine,
        threads=torch.get_num_threads(),
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


@cache
def versions() -> dict[str, str]:
    """Versions of the packages that affect the numbers."""
    return {name: metadata.version(name) for name in PACKAGES}


def code_version() -> str | None:
    """Commit of the source tree, with a plus if it was changed; None for an installed package."""
    return os.environ.get("SELBO_CODE_VERSION") or _commit()


@cache
def _commit() -> str | None:
    """The commit at the first call, which is closest to the running code."""
    here = Path(__file__).parent
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
        tracked = subprocess.run(
            ["git", "ls-files", "--error-unmatch", __file__], cwd=here, capture_output=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() if tracked.returncode == 0 else None
