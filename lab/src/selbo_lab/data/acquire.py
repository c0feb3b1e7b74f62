"""Downloads raw files into the store, or imports them from local files."""

import gzip
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from selbo_lab.data import archives, store
from selbo_lab.data.digests import BYTES_PER_READ, mismatch
from selbo_lab.data.download import DownloadError, DownloadProgress, fetch, file_name
from selbo_lab.data.store import Download, MissingData, RawFile, Source

MOST_SHRUNK: Final = 100
"""Maximum ratio of unpacked to packed size; it is 5 for idx files of images."""


def download_missing(source: Source, *, progress: DownloadProgress | None = None) -> None:
    """Download the missing files of a source, verified and atomically, in one process at a time.

    Raises:
        DownloadError: If no address provides a file. A partial download is kept for the next attempt.
        MissingData: If there is no address to download from.
    """
    if store.present(source):
        return
    if not source.downloads:
        raise MissingData(store.what_to_type(source))
    with store.writing(source, progress) as unfinished:
        for download in store.needed_downloads(source):
            file = unfinished / file_name(download.url)
            _download(source, download, file, progress)
            with store.staging(source) as stage:
                try:
                    staged = _checked(source, _contents(source, download, file, stage))
                    if lacking := set(download.gives) - set(staged):
                        raise ValueError(f"it lacks {store.enumerated(sorted(lacking))}")  # noqa: TRY301
                except ValueError as error:
                    file.unlink(missing_ok=True)
                    raise ValueError(f"what came from {download.url} is not as it should be: {error}") from error
                store.install(source, staged)
            file.unlink(missing_ok=True)


def _download(source: Source, download: Download, file: Path, progress: DownloadProgress | None) -> None:
    try:
        fetch(
            (download.url, *download.mirrors),
            file,
            digest=download.digest,
            size=download.size,
            progress=progress,
            room=sum(raw.size or 0 for raw in source.files if raw.name in download.gives),
        )
    except DownloadError as error:
        raise DownloadError(f"{error}; {store.how_to_import(source)}") from error


def _contents(source: Source, download: Download, file: Path, stage: Path) -> Iterable[tuple[str, Path]]:
    """Raw files, by name and path, that a download holds."""
    (only, *others) = download.gives
    if source.convert is None and not others and (file.name == Path(only).name or not archives.is_archive(file)):
        target = stage / only
        target.parent.mkdir(parents=True, exist_ok=True)
        return [(only, file.replace(target))]
    return _unpacked(source, file, stage, {raw.name: raw.size for raw in source.files if raw.name in download.gives})


def _unpacked(
    source: Source, archive: Path, stage: Path, wanted: Mapping[str, int | None]
) -> Iterable[tuple[str, Path]]:
    if source.convert is None:
        return archives.extract(archive, wanted, stage)
    source.convert(archive, stage)
    return [(raw.name, stage / raw.name) for raw in source.files if (stage / raw.name).is_file()]


def import_from(source: Source, path: Path) -> list[str]:
    """Copy local raw files into the store; all of them are verified before the first is copied.

    Args:
        source: Source of the files.
        path: A folder, searched with all its folders for files with the original names; an archive that holds such
            files (tar, also gz or xz, or zip), or the one that is published; or a single file with its original name.
            Files that are published as ``.gz`` may be unpacked, or packed anew, where the digest of the content is
            known; they are then kept unpacked.

    Returns:
        Names of the imported files in the store.

    Raises:
        ValueError: If a file does not match its name, or there is none; nothing is imported.
    """
    path = Path(os.path.abspath(path.expanduser()))
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    with store.writing(source), store.staging(source) as stage:
        staged = _checked(source, _found(source, path, stage), path)
        if not staged:
            names = store.enumerated([raw.name for raw in source.files])
            raise ValueError(f"there is no file of {source.name} in {path}: their names are {names}")
        store.install(source, staged)
    return list(staged)


def _found(source: Source, path: Path, stage: Path) -> Iterator[tuple[str, Path]]:
    """Copies of the files in a folder, an archive or a file that have the name of a raw file, in the stage."""
    wanted = {name: _limit(raw, name) for raw in source.files for name in store.variants(raw)}
    published = {file_name(download.url) for download in source.downloads}
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for number, file in enumerate(each for each in files if each.is_file()):
        name = archives.matching(file.as_posix(), wanted)
        place = stage / str(number)
        if name is not None:
            target = place / name
            target.parent.mkdir(parents=True)
            shutil.copyfile(file, target)
            yield name, target
        elif file == path or file.name in published:
            if not archives.is_archive(file):
                raise ValueError(_unknown(source, file))
            place.mkdir()
            yield from _from_archive(source, file, place, wanted)


def _limit(raw: RawFile, name: str) -> int | None:
    """Maximum size of a file in bytes, packed or unpacked."""
    if raw.size is None:
        return None
    packed_anew = 2 if raw.unpacked_digest is not None else 1
    return raw.size * (packed_anew if name == raw.name else MOST_SHRUNK)


def _from_archive(
    source: Source, archive: Path, place: Path, wanted: Mapping[str, int | None]
) -> Iterator[tuple[str, Path]]:
    """Raw files in an archive as they are; if there are none, those that are made from a published one."""
    count = 0
    for found in archives.extract(archive, wanted, place):
        count += 1
        yield found
    if not count and source.convert is not None:
        yield from _unpacked(source, archive, place, {})


def _checked(source: Source, found: Iterable[tuple[str, Path]], origin: Path | None = None) -> dict[str, Path]:
    """The files that match their names; if several have the same name, one of them must match."""
    right: dict[str, Path] = {}
    wrong: dict[str, str] = {}
    for name, path in found:
        raw = next(raw for raw in source.files if name in store.variants(raw))
        reason = store.fault(raw, path)
        if reason is None:
            right.setdefault(name, path)
        elif (unpacked := _packed_anew(raw, path)) is not None:
            right.setdefault(raw.name.removesuffix(".gz"), unpacked)
        elif name not in wrong:
            wrong[name] = _told(source, raw, name, path, reason)
    for name, sentence in wrong.items():
        raw = next(raw for raw in source.files if name in store.variants(raw))
        if not any(other in right for other in store.variants(raw)):
            raise ValueError(f"{sentence}; nothing was taken from {origin}" if origin else sentence)
    return right


def _packed_anew(raw: RawFile, path: Path) -> Path | None:
    """The content of a ``.gz`` file that somebody packed anew, beside it, if that is what was published."""
    if raw.unpacked_digest is None or path.suffix != ".gz":
        return None
    unpacked, left = path.with_suffix(""), (raw.size or path.stat().st_size) * MOST_SHRUNK
    try:
        with gzip.open(path) as packed, unpacked.open("wb") as file:
            while (block := packed.read(BYTES_PER_READ)) and left > 0:
                file.write(block)
                left -= len(block)
    except (OSError, EOFError, zlib.error):
        return None
    return unpacked if mismatch(unpacked, raw.unpacked_digest) is None else None


def _told(source: Source, raw: RawFile, name: str, path: Path, reason: str) -> str:
    """Error message for a file that does not match its name."""
    really = _identity(source, path)
    if really is not None and really not in store.variants(raw):
        return f"the file named {name} is really {really} of {source.name}, renamed"
    return f"{name} is not the file of {source.name}: {reason}"


def _unknown(source: Source, file: Path) -> str:
    really = _identity(source, file)
    if really is not None:
        return f"{file} is really {really} of {source.name}, renamed: give it back its name"
    names = store.enumerated([raw.name for raw in source.files])
    return f"{file} is neither an archive nor a file of {source.name}: their names are {names}"


def _identity(source: Source, path: Path) -> str | None:
    """The original name of a file by its content, if known."""
    for raw in source.files:
        if raw.digest is not None and mismatch(path, raw.digest, raw.size) is None:
            return raw.name
        if raw.unpacked_digest is not None and mismatch(path, raw.unpacked_digest) is None:
            return raw.name.removesuffix(".gz")
    return None
