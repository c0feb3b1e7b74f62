"""Where results are: one JSON file a run, whole or absent, named by the hash of the run's configuration."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from selbo_lab.files import replacing
from selbo_lab.run.provenance import code_version
from selbo_lab.studies.run_spec import RUN_FORMAT, RunSpec

RUNS: Final = "runs"
UNFINISHED: Final = "unfinished"
"""Folder of checkpoints, each run with one of its own that is gone when its result is there."""


class Store:
    """Results in a folder.

    Args:
        folder: Where; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / RUNS

    def path(self, run_id: str) -> Path:
        """File of a run."""
        return self.runs / f"{run_id}.json"

    def has(self, spec: RunSpec) -> bool:
        """Whether the result of a run is there."""
        return self.path(spec.id).is_file()

    def write(self, result: dict[str, Any]) -> None:
        """Keep a result, whole or not at all."""
        self.runs.mkdir(parents=True, exist_ok=True)
        with replacing(self.path(result["id"])) as unfinished:
            unfinished.write_text(json.dumps(result, allow_nan=False, separators=(",", ":")) + "\n", encoding="utf-8")

    def unfinished(self, spec: RunSpec, device: str) -> Path:
        """Folder for the checkpoints of a run; other code, or another kind of device, does not go on with them."""
        return self.folder / UNFINISHED / f"{spec.id}-{code_version()}-{device.partition(':')[0]}"

    def forget_unfinished(self, spec: RunSpec) -> None:
        """Remove the checkpoints of a run, whoever wrote them."""
        for folder in (self.folder / UNFINISHED).glob(f"{spec.id}-*"):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # others are at work there
            (self.folder / UNFINISHED).rmdir()

    def read(self, spec: RunSpec) -> dict[str, Any] | None:
        """The result of a run, if it is there.

        Raises:
            ValueError: If the file is not the result of that run.
        """
        path = self.path(spec.id)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{os.fspath(path)!r} cannot be read: {error}; remove it, and the run is done again"
            ) from error
        if not isinstance(found, dict) or found.get("format") != RUN_FORMAT or found.get("id") != spec.id:
            raise ValueError(
                f"{os.fspath(path)!r} is not the result of run {spec.id}; remove it, and the run is done again"
            )
        return found
