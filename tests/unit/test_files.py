"""Files are whole or absent, and errors name them."""

import errno
import os
from pathlib import Path

import pytest

from selbo._files import naming, replacing


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    with replacing(target) as unfinished:
        unfinished.write_text("new", encoding="utf-8")
        assert not target.exists()
    assert target.read_text(encoding="utf-8") == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize("written", [True, False])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, written: bool) -> None:
    target = tmp_path / "result.json"
    target.write_text("old", encoding="utf-8")

    def fail() -> None:
        with replacing(target) as unfinished:
            if written:
                unfinished.write_text("half", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_text(encoding="utf-8") == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_named_by_the_file_that_did_not_fit(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    (tmp_path / ".result.json.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as full, replacing(target) as unfinished:
        unfinished.write_text("new", encoding="utf-8")
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, os.fspath(target))
    assert list(tmp_path.iterdir()) == []


def test_the_final_name_is_told_not_that_of_the_unfinished_file(tmp_path: Path) -> None:
    target = tmp_path / "nowhere" / "result.json"
    with pytest.raises(FileNotFoundError) as gone, replacing(target) as unfinished:
        unfinished.write_text("new", encoding="utf-8")
    assert gone.value.filename == os.fspath(target)


def test_an_error_about_another_file_stays_what_it_is(tmp_path: Path) -> None:
    other = OSError(errno.EIO, "Input/output error", "other.csv")
    for error in (other, OSError("no number"), ValueError("not of the system")):
        with pytest.raises(type(error)) as raised, naming(tmp_path / "result.json"):
            raise error
        assert raised.value is error
