"""The store of published raw files: their paths, their verification, and how to get missing files."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from selbo_lab.data.digests import mismatch, readable
from selbo_lab.data.download import DownloadProgress

VARIABLE: Final = "SELBO_DATA"
"""The environment variable that names the root of the store."""

DOWNLOADING: Final = ".unfinished"
"""Folder in that of a source for unfinished downloads and unpacked files; removed on success."""

STAGE: Final = "stage"
"""Folder in that one for files that are not yet complete or checked."""

LOCKS: Final = ".locks"
"""Folder of lock files in the root, one per source, so that only one process at a time writes to it."""


class MissingData(FileNotFoundError):  # noqa: N818  (what is missing, not what went wrong)
    """Raw files are not in the store; the message names the command to get them."""


@dataclass(frozen=True)
class RawFile:
    """A file as it was published.

    Attributes:
        name: Path in the folder of its source, with ``/`` between folders.
        digest: ``md5:…``, ``sha1:…`` or ``sha256:…`` of the file as published; None where none is known.
        size: Size of the published file in bytes.
        unpacked_digest: Digest of the unpacked content, for a name that ends in ``.gz``. An unpacked file is stored as
            it is, under the name without ``.gz``.
        check: Validates the content, packed or unpacked, and raises ValueError; used in addition to the digest.
    """

    name: str
    digest: str | None = None
    size: int | None = None
    unpacked_digest: str | None = None
    check: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Download:
    """A download: an address, and the raw files that it provides.

    Attributes:
        url: Address that is tried first.
        digest: Digest of the downloaded file, as in `RawFile`.
        size: Size in bytes.
        gives: Names of raw files: the file itself, or members of an archive, found by the last parts of their path.
        mirrors: Further addresses, in order.
    """

    url: str
    digest: str | None
    size: int | None
    gives: tuple[str, ...]
    mirrors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """Raw files that belong together, and their downloads.

    Attributes:
        name: Name of its folder in the store.
        files: All raw files.
        downloads: Addresses that provide the files; none if there is no public address.
        title: Short description.
        homepage: Page that describes it.
        licence: Known terms of use.
        convert: Creates the raw files in a folder from a published archive in another format.
    """

    name: str
    files: tuple[RawFile, ...]
    downloads: tuple[Download, ...]
    title: str
    homepage: str
    licence: str
    convert: Callable[[Path, Path], None] | None = None


@dataclass(frozen=True)
class FileCheck:
    """Check result of a raw file in the store.

    Attributes:
        name: Name of the raw file.
        state: ``ok``, ``missing`` or ``wrong``.
        detail: What was compared, or the found and the expected value.
    """

    name: str
    state: str
    detail: str


def root() -> Path:
    """Root of the store: the environment variable ``SELBO_DATA``, or the cache folder of the user."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("selbo", appauthor=False)


def folder(source: Source) -> Path:
    """Folder of the raw files of a source."""
    return root() / source.name


def present(source: Source, names: Sequence[str] | None = None) -> bool:
    """Whether all raw files of a source, or those with these names, are in the store, packed or unpacked."""
    return not missing(source, names)


def missing(source: Source, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of the raw files, all or some, that are not in the store."""
    wanted = [raw for raw in source.files if names is None or raw.name in names]
    return tuple(raw.name for raw in wanted if _stored(source, raw) is None)


def locate(source: Source, name: str) -> Path:
    """Path of a raw file in the store; it lacks ``.gz`` if it was imported unpacked.

    Raises:
        MissingData: If it is not in the store; the message names the command to get it.
    """
    raw = next((raw for raw in source.files if raw.name == name), None)
    if raw is None:
        raise ValueError(f"`name` must be a file of {source.name}, but got {name!r}")
    path = _stored(source, raw)
    if path is None:
        raise MissingData(what_to_type(source))
    return path


def what_to_type(source: Source) -> str:
    """One sentence on the missing files of a source, and how to get them."""
    lacking = missing(source)
    some = len(lacking) < len(source.files)
    fault = f"{source.name} in {root()} lacks {enumerated(lacking)}" if some else f"{source.name} is not in {root()}"
    ways = [how_to_import(source)]
    if source.downloads:
        size = download_size(source)
        ways.insert(0, f"'selbo data get {source.name}' downloads it" + (f" ({readable(size)})" if size else ""))
    return f"{fault}: {', '.join(ways)}"


def how_to_import(source: Source) -> str:
    """How to import local files, as half a sentence for messages."""
    return f"'selbo data import {source.name} PATH' takes files you have"


def enumerated(names: Sequence[str], most: int = 3) -> str:
    """The first few names, for a sentence."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def download_size(source: Source) -> int:
    """Bytes to download for the missing files, as far as known."""
    return sum(each.size or 0 for each in needed_downloads(source))


def needed_downloads(source: Source) -> list[Download]:
    """Downloads that provide a missing file."""
    lacking = set(missing(source))
    return [each for each in source.downloads if lacking & set(each.gives)]


def _stored(source: Source, raw: RawFile) -> Path | None:
    return next((path for name in variants(raw) if (path := folder(source) / name).is_file()), None)


def variants(raw: RawFile) -> tuple[str, ...]:
    """Names under which a raw file may be held: as published, and unpacked where that is known."""
    return (raw.name, raw.name.removesuffix(".gz")) if raw.unpacked_digest else (raw.name,)


def fault(raw: RawFile, path: Path) -> str | None:
    """What is wrong with a file that should be this raw file, packed or unpacked by its name; None if nothing is."""
    unpacked = raw.unpacked_digest is not None and path.suffix != ".gz"
    wrong = mismatch(path, raw.unpacked_digest) if unpacked else mismatch(path, raw.digest, raw.size)
    if wrong is None and raw.check is not None:
        try:
            raw.check(path)
        except ValueError as error:
            return str(error)
    return wrong


def verify_files(source: Source) -> list[FileCheck]:
    """Verify every raw file of a source by its digest and its check."""
    results = []
    for raw in source.files:
        path = _stored(source, raw)
        wrong = None if path is None else fault(raw, path)
        if path is None:
            results.append(FileCheck(raw.name, "missing", ""))
        elif wrong is not None:
            results.append(FileCheck(raw.name, "wrong", wrong))
        else:
            digest = raw.digest if path.name == Path(raw.name).name else raw.unpacked_digest
            looked = "no digest is published" + ("; the content looks right" if raw.check else "")
            results.append(FileCheck(raw.name, "ok", digest or looked))
    return results


@contextmanager
def writing(source: Source, progress: DownloadProgress | None = None) -> Iterator[Path]:
    """Lock the folder of a source for writing; other processes wait.

    Yields:
        A folder for unfinished downloads. Its content at the end is kept for the next attempt.

    Raises:
        ValueError: The store cannot be written to.
    """
    from filelock import FileLock, Timeout

    unfinished = folder(source) / DOWNLOADING
    lock = FileLock(root() / LOCKS / f"{source.name}.lock")
    try:
        (root() / LOCKS).mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if progress is not None:
                progress("another process gets it", 0, None)
            lock.acquire()
        unfinished.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        lock.release()
        raise ValueError(
            f"the data folder {root()} cannot be written to ({(error.strerror or str(error)).lower()}): "
            f"the environment variable {VARIABLE} can name another"
        ) from error
    try:
        yield unfinished
    finally:
        for each in (unfinished, folder(source)):
            with suppress(OSError):  # it is not empty
                each.rmdir()
        lock.release()


@contextmanager
def staging(source: Source) -> Iterator[Path]:
    """A temporary empty folder next to the raw files, in which new ones are created. Only within `writing`."""
    stage = folder(source) / DOWNLOADING / STAGE
    shutil.rmtree(stage, ignore_errors=True)  # of a process that was killed
    stage.mkdir()
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def install(source: Source, staged: Mapping[str, Path]) -> None:
    """Move finished files into the folder of a source, each atomically; other variants of them are removed."""
    for name, path in staged.items():
        with path.open("rb") as file:
            os.fsync(file.fileno())
        target = folder(source) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
        raw = next(raw for raw in source.files if name in variants(raw))
        for other in set(variants(raw)) - {name}:
            (folder(source) / other).unlink(missing_ok=True)
