"""Wanted members come out whole; an archive that could do harm is refused whole."""

from __future__ import annotations

import gzip
import io
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from selbo_lab.data import archives

WANTED = {"a.bin": 6, "sub/b.bin": None}


def tar_of(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def member(
    name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, content


def zip_of(path: Path, members: dict[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return path


def extracted(archive: Path, wanted: dict[str, int | None] = WANTED) -> dict[str, bytes]:
    stage = archive.parent / "stage"
    stage.mkdir()
    return {name: path.read_bytes() for name, path in archives.extract(archive, wanted, stage)}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_only_wanted_members_of_a_tar_are_written(tmp_path: Path, mode: str) -> None:
    members = member("top/a.bin", b"abcdef"), member("top/sub/b.bin", b"b" * 512), member("top/b.bin", b"other")
    archive = tar_of(tmp_path / "it", member("top", kind=tarfile.DIRTYPE), *members, mode=mode)
    assert archives.is_archive(archive)
    assert extracted(archive) == {"a.bin": b"abcdef", "sub/b.bin": b"b" * 512}
    assert sum(path.is_file() for path in (tmp_path / "stage").rglob("*")) == 2


def test_only_wanted_members_of_a_zip_are_written(tmp_path: Path) -> None:
    archive = zip_of(tmp_path / "it", {"top/": b"", "top/a.bin": b"abc", "top/sub/b.bin": b"de", "a.bin.txt": b""})
    assert archives.is_archive(archive)
    assert extracted(archive) == {"a.bin": b"abc", "sub/b.bin": b"de"}


def test_members_with_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "it.tar", member("x/a.bin", b"first"), member("y/a.bin", b"second"), mode="w")
    (tmp_path / "stage").mkdir()
    found = [path.read_bytes() for _, path in archives.extract(archive, {"a.bin": None}, tmp_path / "stage")]
    assert found == [b"first", b"second"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a.bin", "a.bin"),
        ("/long/way/a.bin", "a.bin"),
        ("x/sub/a.bin", "sub/a.bin"),
        ("xa.bin", None),
        ("a.bin/x", None),
        ("", None),
    ],
)
def test_matching(path: str, name: str | None) -> None:
    assert archives.matching(path, ["a.bin", "sub/a.bin"]) == name


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "absolute": (lambda p: tar_of(p, member("/etc/a.bin", b"x")), "'/etc/a.bin' is absolute"),
    "absolute-in-windows": (lambda p: zip_of(p, {"C:\\a.bin": b"x"}), "is absolute"),
    "backslash": (lambda p: zip_of(p, {"\\\\host\\a.bin": b"x"}), "is absolute"),
    "parent": (lambda p: tar_of(p, member("x/../../a.bin", b"x")), "leads out of the folder"),
    "parent-in-windows": (lambda p: zip_of(p, {"..\\a.bin": b"x"}), "leads out of the folder"),
    "parent-in-zip": (lambda p: zip_of(p, {"../a.bin": b"x"}), "leads out of the folder"),
    "symlink": (lambda p: tar_of(p, member("a.bin", kind=tarfile.SYMTYPE, link="/etc/passwd")), "is a link"),
    "hard-link": (lambda p: tar_of(p, member("a.bin", kind=tarfile.LNKTYPE, link="/etc/passwd")), "is a link"),
    "symlink-in-zip": (lambda p: zip_of(p, {"a.bin": b"/etc/passwd"}, stat.S_IFLNK | 0o777), "is a link"),
    "fifo": (lambda p: tar_of(p, member("a.bin", kind=tarfile.FIFOTYPE)), "is a device"),
    "device": (lambda p: tar_of(p, member("a.bin", kind=tarfile.CHRTYPE)), "is a device"),
    "fifo-in-zip": (lambda p: zip_of(p, {"a.bin": b"x"}, stat.S_IFIFO | 0o666), "is a device"),
    "bomb": (lambda p: tar_of(p, member("a.bin", bytes(1 << 20))), "has more than 6 bytes"),
    "bomb-in-zip": (lambda p: zip_of(p, {"a.bin": bytes(1 << 20)}), "has more than 6 bytes"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_archive_that_could_do_harm_is_refused(tmp_path: Path, kind: str) -> None:
    make, message = HOSTILE[kind]
    archive = make(tmp_path / "it")
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        extracted(archive)
    assert str(archive) in str(refused.value)
    assert not any(path.stat().st_size for path in (tmp_path / "stage").rglob("*") if path.is_file())


def test_harm_in_members_that_are_not_wanted_counts(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "it", member("a.bin", b"abc"), member("other", kind=tarfile.SYMTYPE, link="/"))
    with pytest.raises(ValueError, match="'other' is a link"):
        extracted(archive)


def test_a_zip_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    """The directory of the archive says 3 bytes, the content has a mebibyte."""
    archive = zip_of(tmp_path / "it.zip", {"a.bin": bytes(1 << 20)})
    content = archive.read_bytes()
    archive.write_bytes(content.replace((1 << 20).to_bytes(4, "little"), (3).to_bytes(4, "little")))
    with pytest.raises(ValueError, match="is damaged: bad crc-32"):
        extracted(archive)


def test_a_header_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "it.tgz", member("././@LongLink", bytes(8 << 20), tarfile.GNUTYPE_LONGNAME))
    with pytest.raises(ValueError, match="is not a tar or zip archive, or is damaged"):
        extracted(archive)
    archive = tar_of(archive, member("z", b""), member("././@LongLink", bytes(8 << 20), tarfile.GNUTYPE_LONGNAME))
    (tmp_path / "stage").rmdir()
    with pytest.raises(ValueError, match="is damaged: a header of"):
        extracted(archive)


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    archive = tar_of(tmp_path / "it", *(member(str(number)) for number in range(3)))
    with pytest.raises(ValueError, match="more than 2 members"):
        extracted(archive)


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_archive_is_refused(tmp_path: Path, keep: float) -> None:
    noise = b"".join(number.to_bytes(2, "big") for number in range(20000))
    for name, archive in (
        ("gz", tar_of(tmp_path / "a.tgz", member("a.bin", noise))),
        ("tar", tar_of(tmp_path / "a.tar", member("a.bin", noise), mode="w")),
    ):
        content = archive.read_bytes()
        archive.write_bytes(content[: int(keep * 40000) if name == "tar" else int(keep * len(content))])
        (tmp_path / name).mkdir()
        with pytest.raises(ValueError, match="is damaged"):
            list(archives.extract(archive, {"a.bin": None}, tmp_path / name))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"words",
        bytes(4096),
        gzip.compress(b"words", mtime=0),
        gzip.compress(b"words" * 999, mtime=0)[:20],
        b"PK\x03\x04",
    ],
)
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "it").write_bytes(content)
    assert not archives.is_archive(tmp_path / "it")


def test_arrays_in_a_zip_are_no_archive(tmp_path: Path) -> None:
    assert not archives.is_archive(zip_of(tmp_path / "it.npz", {"x.npy": b""}))
