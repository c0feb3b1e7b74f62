"""Raw files come into the store whole and right, or not at all, whoever else asks for them."""

from __future__ import annotations

import dataclasses
import gzip
import re
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
from unit.data import tiny as tiny_module
from unit.data.servers import serving
from unit.data.tiny import ARCHIVE, FILES, IDX, MEMBERS, not_bad, served, tar_bytes, tiny, tree, write, zip_bytes

from selbo_lab.data import download, store
from selbo_lab.data.acquire import download_missing, import_from
from selbo_lab.data.download import DownloadError
from selbo_lab.data.store import Download, MissingData, RawFile

STORED = {f"tiny/{name}": content for name, content in FILES.items()}
UNPACKED = {**{name: FILES[name] for name in ("train.bin", "deep/test.bin")}, "labels-ubyte": IDX}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "store"))
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)
    monkeypatch.setattr(download, "DOWNLOAD_BLOCK", 10)
    return tmp_path / "store"


# --- get ---


def test_get_leaves_the_files_and_nothing_else(root: Path) -> None:
    calls = []
    with serving(files=served()) as server:
        source = tiny(server.address)
        download_missing(source, progress=lambda *call: calls.append(call))
        assert tree(root) == STORED
        assert {call[0] for call in calls} == {"tiny.tar.gz", "labels-ubyte.gz"}
        download_missing(source)
    assert [path for path, _ in server.requests] == ["/tiny.tar.gz", "/labels-ubyte.gz"]
    assert sorted(path.name for path in (root / "tiny").iterdir()) == ["deep", "labels-ubyte.gz", "train.bin"]


def test_get_downloads_only_what_is_missing(root: Path) -> None:
    write(root, {"tiny/labels-ubyte": IDX, "tiny/train.bin": FILES["train.bin"]})
    with serving(files=served()) as server:
        download_missing(tiny(server.address))
    assert [path for path, _ in server.requests] == ["/tiny.tar.gz"]
    assert store.present(tiny())


def test_get_converts(root: Path) -> None:
    def convert(archive: Path, folder: Path) -> None:
        with tarfile.open(archive) as tar:
            write(folder, {"made.tsv": "\n".join(tar.getnames()).encode()})

    with serving(files=served()) as server:
        download = Download(f"{server.address}/tiny.tar.gz", None, None, ("made.tsv",))
        source = dataclasses.replace(tiny(), files=(RawFile("made.tsv"),), downloads=(download,), convert=convert)
        download_missing(source)
    assert tree(root) == {"tiny/made.tsv": "\n".join(MEMBERS).encode()}
    write(root.parent, {"tiny.tar.gz": ARCHIVE})
    (root / "tiny" / "made.tsv").unlink()
    assert import_from(source, root.parent / "tiny.tar.gz") == ["made.tsv"]
    assert tree(root) == {"tiny/made.tsv": "\n".join(MEMBERS).encode()}


def test_get_from_nowhere(root: Path) -> None:
    with pytest.raises(MissingData, match=r"^tiny is not in .*: 'selbo data import tiny PATH' takes files you have$"):
        download_missing(dataclasses.replace(tiny(), downloads=()))
    assert not root.exists()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"release/train.bin": FILES["train.bin"]}, "it lacks deep/test.bin"),
        ({**MEMBERS, "release/train.bin": b"other"}, "train.bin is not the file of tiny: it has 5 bytes, not 1500"),
        ({**MEMBERS, "../x": b""}, "leads out of the folder"),
        ({**MEMBERS, "release/deep/test.bin": b"x" * 1000}, "has more than 800 bytes"),
    ],
)
def test_a_published_archive_that_is_wrong_inside_is_refused(
    root: Path, members: dict[str, bytes], message: str
) -> None:
    archive = tar_bytes(members)
    with serving(files=served(archive)) as server:
        with pytest.raises(ValueError, match=re.escape(message)) as refused:
            download_missing(tiny(server.address, archive))
        assert str(refused.value).startswith(f"what came from {server.address}/tiny.tar.gz is not as it should be: ")
    assert tree(root) == {}
    assert not (root / "tiny").exists()


def test_a_wrong_download_leaves_nothing(root: Path) -> None:
    wrong = {**served(), "/tiny.tar.gz": b"x" * len(ARCHIVE)}
    with (
        serving(files=wrong) as server,
        pytest.raises(
            DownloadError, match=r"its digest is wrong\); 'selbo data import tiny PATH' takes files you have$"
        ),
    ):
        download_missing(tiny(server.address))
    assert tree(root) == {}
    assert not (root / "tiny").exists()


def test_an_interrupted_download_goes_on(root: Path) -> None:
    with serving(files=served(), cuts=[100], codes=[200, *[503] * download.RETRIES]) as server:
        with pytest.raises(DownloadError, match="503"):
            download_missing(tiny(server.address))
        assert tree(root) == {"tiny/.unfinished/tiny.tar.gz.part": ARCHIVE[:100]}
        assert not store.present(tiny())
        download_missing(tiny(server.address))
    assert server.requests[-2:] == [("/tiny.tar.gz", 100), ("/labels-ubyte.gz", 0)]
    assert tree(root) == STORED


GET = """
import sys, types
for name, path in {packages!r}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
sys.path.insert(0, {tests!r})
from selbo_lab.data import download
from selbo_lab.data.acquire import download_missing
from unit.data.tiny import tiny
download.DOWNLOAD_BLOCK = 100
print("ready", flush=True)
sys.stdin.readline()
download_missing(tiny({address!r}), progress=lambda *call: print(*call, flush=True))
"""


def other_process(address: str) -> subprocess.Popen[str]:
    """A process that gets the source once it is told to; it leaves out torch, which takes seconds to load."""
    data = Path(store.__file__).parent
    packages = {"selbo_lab": str(data.parent), "selbo_lab.data": str(data)}
    code = GET.format(packages=packages, tests=str(Path(tiny_module.__file__).parents[2]), address=address)
    return subprocess.Popen([sys.executable, "-c", code], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_two_processes_at_once_download_once_and_a_killed_one_is_continued(root: Path) -> None:
    with serving(files=served(), delay=0.3) as server:
        processes = [other_process(server.address) for _ in range(3)]
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        first, second, third = processes
        first.stdin.write("\n")
        second.stdin.write("\n")
        first.stdin.close()
        second.stdin.close()
        told = [process.stdout.read() for process in (first, second)]
        assert [process.wait() for process in (first, second)] == [0, 0]
        assert sum("another process gets it" in text for text in told) == 1
        assert [path for path, _ in server.requests] == ["/tiny.tar.gz", "/labels-ubyte.gz"]
        assert tree(root) == STORED

        (root / "tiny" / "train.bin").unlink()
        stalled = threading.Event()
        server.stall = (100, stalled)
        third.stdin.write("\n")
        third.stdin.flush()
        assert any(line.startswith("tiny.tar.gz 100 ") for line in third.stdout)
        third.kill()
        third.wait()
        third.stdin.close()
        stalled.set()
        server.stall = None
        assert not store.present(tiny())
        server.requests.clear()
        download_missing(tiny(server.address))  # neither the lock nor the stage of the killed process is in the way
        assert server.requests == [("/tiny.tar.gz", 100)]
        assert tree(root) == STORED
    for process in processes:
        process.stdout.close()


# --- import ---


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({f"mine/x/{name}": content for name, content in UNPACKED.items()}, "mine"),
        ({"mine.tgz": tar_bytes({f"package/{name}": content for name, content in UNPACKED.items()})}, "mine.tgz"),
        ({"mine.zip": zip_bytes({f"package/{name}": content for name, content in UNPACKED.items()})}, "mine.zip"),
        ({"mine/tiny.tar.gz": ARCHIVE, "mine/labels-ubyte": IDX}, "mine"),
    ],
    ids=["folder", "tar", "zip", "published archive in a folder"],
)
def test_import_of_all_files(root: Path, files: dict[str, bytes], path: str) -> None:
    mine = root.parent / "user"
    write(mine, files)
    assert sorted(import_from(tiny(), mine / path)) == sorted(UNPACKED)
    assert tree(root) == {f"tiny/{name}": content for name, content in UNPACKED.items()}
    assert tree(mine) == files  # the user's own stay
    assert store.present(tiny())
    assert all(verdict.state == "ok" for verdict in store.verify_files(tiny()))


@pytest.mark.parametrize(
    ("name", "content"),
    [("train.bin", FILES["train.bin"]), ("labels-ubyte.gz", FILES["labels-ubyte.gz"]), ("labels-ubyte", IDX)],
)
def test_import_of_a_single_file(root: Path, name: str, content: bytes) -> None:
    write(root.parent, {name: content})
    assert import_from(tiny(), root.parent / name) == [name]
    assert tree(root) == {f"tiny/{name}": content}


def test_import_finds_the_right_one_of_files_with_the_same_name(root: Path) -> None:
    mine = write(root.parent / "user", {"a/train.bin": b"other", "b/train.bin": FILES["train.bin"], "c/train.bin": b""})
    assert import_from(tiny(), mine) == ["train.bin"]
    assert tree(root) == {"tiny/train.bin": FILES["train.bin"]}


def test_import_adds_to_what_is_there_and_replaces_it(root: Path) -> None:
    write(root, {"tiny/train.bin": b"damaged", "tiny/labels-ubyte.gz": FILES["labels-ubyte.gz"]})
    write(root.parent, {"mine.tgz": ARCHIVE})
    assert sorted(import_from(tiny(), root.parent / "mine.tgz")) == ["deep/test.bin", "train.bin"]
    assert tree(root) == STORED


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        ({}, "none", "none does not exist"),
        ({"mine/x": b""}, "mine", r"there is no file of tiny in .*mine: their names are train.bin, deep/test.bin, lab"),
        ({"mine.zip": zip_bytes({"x": b""})}, "mine.zip", "there is no file of tiny in .*mine.zip"),
        ({"x": b"words"}, "x", "x is neither an archive nor a file of tiny: their names are train.bin"),
        ({"train.bin": b"other"}, "train.bin", r"train.bin is not the file of tiny: it has 5 bytes, not 1500; nothing"),
        ({"my.bin": FILES["train.bin"]}, "my.bin", r"my.bin is really train.bin of tiny, renamed: give it back"),
        ({"my.bin": IDX}, "my.bin", r"my.bin is really labels-ubyte of tiny, renamed"),
        ({"labels-ubyte.gz": IDX}, "labels-ubyte.gz", r"it has \d+ bytes, not \d+"),
        (
            {"mine/train.bin": FILES["train.bin"], "mine/deep/test.bin": FILES["train.bin"]},
            "mine",
            r"the file named deep/test.bin is really train.bin of tiny, renamed; nothing was taken from",
        ),
        ({"mine.tgz": ARCHIVE[:120]}, "mine.tgz", "mine.tgz is damaged: compressed file ended"),
        ({"mine.tgz": tar_bytes({**MEMBERS, "/x": b""})}, "mine.tgz", "is absolute"),
        ({"labels-ubyte.gz": FILES["labels-ubyte.gz"][:-5]}, "labels-ubyte.gz", "is not the file of tiny"),
    ],
)
def test_imports_that_are_refused(root: Path, files: dict[str, bytes], path: str, message: str) -> None:
    mine = write(root.parent / "user", files)
    write(root, {"tiny/train.bin": b"old"})
    with pytest.raises(ValueError, match=message):
        import_from(tiny(), mine / path)
    assert tree(root) == {"tiny/train.bin": b"old"}
    assert tree(mine) == files if files else True


def test_import_looks_into_the_content(root: Path) -> None:
    source = dataclasses.replace(tiny(), files=(RawFile("x.npy", check=not_bad),), downloads=())
    mine = write(root.parent, {"x.npy": b"bad"})
    with pytest.raises(ValueError, match=r"x.npy is not the file of tiny: x.npy must not be bad; nothing"):
        import_from(source, mine / "x.npy")
    assert tree(root) == {}


@pytest.mark.parametrize("level", [0, 1])
def test_a_file_that_was_packed_anew_is_known_by_its_content(root: Path, level: int) -> None:
    packed = gzip.compress(IDX, compresslevel=level, mtime=1)
    assert packed != FILES["labels-ubyte.gz"]
    write(root.parent, {"mine/labels-ubyte.gz": packed})
    assert import_from(tiny(), root.parent / "mine") == ["labels-ubyte"]
    assert (root / "tiny" / "labels-ubyte").read_bytes() == IDX


@pytest.mark.parametrize(
    "content", [gzip.compress(IDX + b"1", mtime=0), gzip.compress(IDX, mtime=0)[:-9], b"\x1f\x8bno"]
)
def test_a_packed_file_with_other_content_is_refused(root: Path, content: bytes) -> None:
    write(root.parent, {"mine/labels-ubyte.gz": content})
    with pytest.raises(ValueError, match=r"labels-ubyte\.gz is not the file of tiny"):
        import_from(tiny(), root.parent / "mine")
    assert not (root / "tiny" / "labels-ubyte").exists()
