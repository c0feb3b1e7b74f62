"""A file is replaced as a whole, or stays as it was; the error names the file that was asked for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from selbo_lab.files import replacing


def test_a_file_is_replaced_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with replacing(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.json"]


def write_half(path: Path) -> None:
    with replacing(path) as unfinished:
        unfinished.write_text("half")
        raise RuntimeError("no luck")


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="no luck"):
        write_half(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_full_disk_names_the_file_and_other_errors_keep_theirs(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(OSError, match="No space left") as found, replacing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert found.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as missing, replacing(path):
        (tmp_path / "b").read_text()
    assert missing.value.filename == str(tmp_path / "b")
