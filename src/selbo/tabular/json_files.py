"""JSON files of selbo, each with its format: those of models, calibrations and monitors."""

import json
import os
from pathlib import Path
from typing import Any

from selbo._files import replacing


class OtherVersionError(ValueError):
    """A file of selbo in a format that this version cannot read."""


def write_json(path: Path, content: Any) -> None:
    """Write a file atomically."""
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path, *, kind: str) -> dict[str, Any]:
    """Read a JSON file of selbo; raises an error if it is not of the given kind."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise ValueError(f"{os.fspath(path)!r} is not a file")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)!r} cannot be read: {error}") from error
    found = str(content.get("format")) if isinstance(content, dict) else ""
    if found != kind and found.rpartition("-")[0] == kind.rpartition("-")[0]:
        raise OtherVersionError(f"{os.fspath(path)!r} was written by another version of selbo: train the model again")
    if found != kind:
        raise ValueError(f"{os.fspath(path)!r} is not a file of selbo with the format {kind!r}")
    assert isinstance(content, dict)
    return content
