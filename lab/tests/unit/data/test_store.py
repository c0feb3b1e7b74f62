"""Where raw files are, whether they are right, and what is said if they are not."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest
from unit.data.tiny import FILES, IDX, not_bad, sha256, tiny, tree, write

from selbo_lab.data import store
from selbo_lab.data.store import MissingData, RawFile

STORED = {f"tiny/{name}": content for name, content in FILES.items()}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "store"))
    return tmp_path / "store"


def test_the_root_is_what_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SELBO_DATA", str(tmp_path))
    assert store.root() == tmp_path
    assert store.folder(tiny()) == tmp_path / "tiny"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SELBO_DATA", "here")
    assert store.root() == tmp_path / "here"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SELBO_DATA", "~/there")
    assert store.root() == tmp_path / "there"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the cache is another folder")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/cache"}, "/cache/selbo"),
        ({"XDG_CACHE_HOME": "/cache", "SELBO_DATA": ""}, "/cache/selbo"),
        ({}, "/home/her/.cache/selbo"),
    ],
)
def test_the_root_is_the_cache_of_the_user_otherwise(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("SELBO_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/her", **variables}.items():
        monkeypatch.setenv(name, value)
    assert store.root() == Path(expected)


def test_what_is_missing_is_told_with_what_to_type(root: Path) -> None:
    source = tiny()
    assert not store.present(source)
    with pytest.raises(MissingData) as missing:
        store.locate(source, "train.bin")
    size = f"{sum(each.size or 0 for each in source.downloads)} bytes"
    ways = "'selbo data import tiny PATH' takes files you have"
    assert str(missing.value) == f"tiny is not in {root}: 'selbo data get tiny' downloads it ({size}), {ways}"
    write(root / "tiny", {"train.bin": b""})
    with pytest.raises(MissingData, match=r"^tiny in .*store lacks deep/test.bin, labels-ubyte.gz: 'selbo data get"):
        store.locate(source, "labels-ubyte.gz")
    with pytest.raises(MissingData) as missing:
        store.locate(dataclasses.replace(source, downloads=()), "labels-ubyte.gz")
    assert str(missing.value) == f"tiny in {root} lacks deep/test.bin, labels-ubyte.gz: {ways}"
    with pytest.raises(ValueError, match="`name` must be a file of tiny, but got 'else'"):
        store.locate(source, "else")


def test_files_are_found_packed_or_unpacked(root: Path) -> None:
    source = tiny()
    write(root, {f"tiny/{name}": content for name, content in FILES.items() if name != "labels-ubyte.gz"})
    assert store.missing(source) == ("labels-ubyte.gz",)
    assert store.present(source, ["train.bin", "deep/test.bin"])
    assert not store.present(source, ["train.bin", "labels-ubyte.gz"])
    write(root, {"tiny/labels-ubyte": IDX})
    assert store.present(source)
    assert store.locate(source, "labels-ubyte.gz") == root / "tiny" / "labels-ubyte"
    write(root, STORED)
    assert store.locate(source, "labels-ubyte.gz") == root / "tiny" / "labels-ubyte.gz"
    assert store.locate(source, "deep/test.bin") == root / "tiny" / "deep" / "test.bin"


def test_verify(root: Path) -> None:
    source = tiny()
    assert [verdict.state for verdict in store.verify_files(source)] == ["missing"] * 3
    write(root, STORED)
    assert [(v.state, v.detail) for v in store.verify_files(source)] == [("ok", raw.digest) for raw in source.files]
    damaged = b"T" + FILES["train.bin"][1:]
    write(root, {"tiny/train.bin": damaged, "tiny/deep/test.bin": b"short", "tiny/labels-ubyte": IDX})
    (root / "tiny" / "labels-ubyte.gz").unlink()
    assert [(v.name, v.state, v.detail) for v in store.verify_files(source)] == [
        ("train.bin", "wrong", f"its digest is {sha256(damaged)}, not {source.files[0].digest}"),
        ("deep/test.bin", "wrong", "it has 5 bytes, not 800"),
        ("labels-ubyte.gz", "ok", sha256(IDX)),
    ]
    write(root, {"tiny/labels-ubyte": IDX[:-1]})
    assert store.verify_files(source)[2].state == "wrong"


def test_verify_looks_into_the_content(root: Path) -> None:
    source = dataclasses.replace(tiny(), files=(RawFile("x", check=not_bad), RawFile("y", check=not_bad), RawFile("z")))
    write(root, {"tiny/x": b"good", "tiny/y": b"bad", "tiny/z": b""})
    assert [(v.state, v.detail) for v in store.verify_files(source)] == [
        ("ok", "no digest is published; the content looks right"),
        ("wrong", "y must not be bad"),
        ("ok", "no digest is published"),
    ]


def test_what_is_staged_is_gone_after_a_failure(root: Path) -> None:
    source = tiny()

    def fail() -> None:
        with store.writing(source) as unfinished, store.staging(source) as stage:
            write(stage, {"x": b"half"})
            assert unfinished.is_dir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert tree(root) == {}
    assert not (root / "tiny").exists()


def test_what_a_killed_process_has_staged_is_gone_at_the_next_attempt(root: Path) -> None:
    write(root / "tiny" / store.DOWNLOADING / store.STAGE, {"train.bin": b"half"})
    assert not store.present(tiny(), ["train.bin"])
    with store.writing(tiny()), store.staging(tiny()) as stage:
        assert list(stage.iterdir()) == []
    assert tree(root) == {}


def test_one_form_of_a_file_replaces_the_other(root: Path) -> None:
    write(root, {"tiny/labels-ubyte.gz": b"damaged"})
    with store.writing(tiny()), store.staging(tiny()) as stage:
        store.install(tiny(), {"labels-ubyte": write(stage, {"x": IDX}) / "x"})
    assert tree(root) == {"tiny/labels-ubyte": IDX}


@pytest.mark.parametrize("kind", ["file", "read-only"])
def test_a_store_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "file":
        (tmp_path / "file").touch()
        root, reason = tmp_path / "file" / "store", "not a directory"
    else:
        root, reason = tmp_path / "store", "permission denied"
        root.mkdir(mode=0o500)
        if os.access(root, os.W_OK):  # the administrator may write everywhere
            monkeypatch.setattr(Path, "mkdir", denied)
    monkeypatch.setenv("SELBO_DATA", str(root))
    message = rf"^the data folder {root} cannot be written to \({reason}\): .* SELBO_DATA can name another$"
    with pytest.raises(ValueError, match=message), store.writing(tiny()):
        pass


def denied(self: Path, *_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied", str(self))
