"""Extracts members of an archive one at a time; a potentially harmful archive is rejected as a whole."""

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, Final

from selbo_lab.data.digests import BYTES_PER_READ, readable

MOST_MEMBERS: Final = 100_000
"""Archives with more members are rejected; the published ones have less than a thousand."""

LARGEST: Final = 8 << 30
"""Maximum bytes of a member of unknown size."""

LARGEST_HEADER: Final = BYTES_PER_READ
"""Maximum bytes that a tar archive may hold in memory for the name of a member."""

OPENERS: Final = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open}
"""First bytes of packed files, and functions to open them."""

NOT_ARCHIVES: Final = {".npz"}
"""Suffixes of files that are zip archives internally but are not unpacked."""

DAMAGE: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, gzip.BadGzipFile)


@dataclass(frozen=True)
class _Member:
    path: str
    kind: str
    handle: Any


def is_archive(path: Path) -> bool:
    """Whether a file is a tar, packed or not, or a zip that is not an ``.npz``."""
    if path.suffix in NOT_ARCHIVES:
        return False
    if zipfile.is_zipfile(path):
        return True
    try:
        with _unpacked(path) as stream, _tar(stream) as tar:
            return next(iter(tar), None) is not None  # zeros are a tar without members
    except (*DAMAGE, ValueError, OSError):
        return False


def matching(path: str, names: Iterable[str]) -> str | None:
    """The name whose parts are the last parts of a path; the longest, if there are several."""
    parts = PurePosixPath(path).parts
    fits = [name for name in names if parts[-len(PurePosixPath(name).parts) :] == PurePosixPath(name).parts]
    return max(fits, key=len, default=None)


def extract(archive: Path, wanted: Mapping[str, int | None], folder: Path) -> Iterator[tuple[str, Path]]:
    """Write the wanted members of a tar (also gz, xz) or zip archive into a folder, one after the other.

    Args:
        archive: Refused whole if any member, wanted or not, has an absolute path or ``..`` in it, is a link or a
            device, or if it is damaged. The order of members decides when that is noticed: do not use what was
            yielded before the end was reached.
        wanted: Names, and sizes in bytes that the members may not exceed, where known. A member is wanted if its path
            ends in a name; several members may have the same.
        folder: Must exist and be empty. The n-th wanted member goes to ``folder/n/name``.

    Yields:
        The name, and the path that was written.

    Raises:
        ValueError: If the archive is damaged or rejected.
    """
    count = 0
    try:
        with _opened(archive) as (members, open_member):
            for number, member in enumerate(members):
                if number >= MOST_MEMBERS:
                    raise ValueError(f"{archive} is refused: it has more than {MOST_MEMBERS} members")
                _refuse_harm(archive, member)
                name = matching(member.path, wanted)
                if name is None or member.kind == "folder":
                    continue
                limit = wanted[name]
                target = folder / str(count) / name
                count += 1
                target.parent.mkdir(parents=True)
                refusal = f"{archive} is refused: its member {member.path!r}"
                with open_member(member.handle) as stream:
                    _copy(stream, target, LARGEST if limit is None else limit, refusal)
                yield name, target
    except DAMAGE as error:
        raise ValueError(f"{archive} is damaged: {str(error).lower() or type(error).__name__}") from error
    except (NotImplementedError, RuntimeError) as error:  # of zipfile: an unknown method, or a password
        raise ValueError(f"{archive} cannot be unpacked: {error}") from error


def _refuse_harm(archive: Path, member: _Member) -> None:
    path = member.path
    parts = {*PurePosixPath(path).parts, *PureWindowsPath(path).parts}
    if path.startswith(("/", "\\")) or PureWindowsPath(path).drive:
        raise ValueError(f"{archive} is refused: the path of its member {path!r} is absolute")
    if ".." in parts:
        raise ValueError(f"{archive} is refused: the path of its member {path!r} leads out of the folder")
    if member.kind not in {"file", "folder"}:
        raise ValueError(f"{archive} is refused: its member {path!r} is a {member.kind}")


def _copy(stream: IO[bytes], target: Path, limit: int, refusal: str) -> None:
    """Copy a member up to its maximum size, regardless of its header."""
    came = 0
    with target.open("xb") as file:
        while block := stream.read(BYTES_PER_READ):
            came += len(block)
            if came > limit:
                raise ValueError(f"{refusal} has more than {readable(limit)}")
            file.write(block)


@contextmanager
def _opened(archive: Path) -> Iterator[tuple[Iterator[_Member], Any]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as found:
            yield (_zip_member(each) for each in found.infolist()), found.open
        return
    with _unpacked(archive) as stream:
        try:
            tar = _tar(stream)
        except tarfile.ReadError as error:
            raise ValueError(f"{archive} is not a tar or zip archive, or is damaged at its beginning") from error
        with tar:
            yield _tar_members(tar), tar.extractfile


def _tar(stream: IO[bytes]) -> tarfile.TarFile:
    bounded: Any = _Bounded(stream)
    return tarfile.open(fileobj=bounded, mode="r:")


def _tar_members(tar: Any) -> Iterator[_Member]:
    while (each := tar.next()) is not None:
        tar.members = []  # otherwise all are kept
        kinds = {"folder": each.isdir(), "link": each.islnk() or each.issym(), "file": each.isreg()}
        yield _Member(each.name, next((kind for kind, fits in kinds.items() if fits), "device"), each)


def _zip_member(each: zipfile.ZipInfo) -> _Member:
    kinds = {0o12: "link", 0o04: "folder", 0o10: "file", 0: "folder" if each.is_dir() else "file"}
    mode = each.external_attr >> 28
    # zipfile itself replaces what stands after a zero byte, and backslashes on Windows; the name as stored counts.
    return _Member(each.orig_filename, kinds.get(mode, "device"), each)


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        begin = file.read(max(map(len, OPENERS)))
    opener: Any = next((opener for magic, opener in OPENERS.items() if begin.startswith(magic)), open)
    with opener(path, "rb") as stream:
        yield stream


class _Bounded:
    """A stream that rejects very large reads, which a header of a member could request from tarfile."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, amount: int = -1) -> bytes:
        if not 0 <= amount <= LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of {amount} bytes")
        return self.stream.read(amount)
