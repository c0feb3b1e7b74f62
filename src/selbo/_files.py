"""Files that are whole or absent, however a program ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path, *, written_as: Path | None = None) -> Iterator[None]:
    """Within the block, an error of the operating system that names no file, such as a full disk, names this one.

    Args:
        path: The file that is being written.
        written_as: What it is called until it is complete, which nobody needs to know.
    """
    try:
        yield
    except OSError as error:
        named = None if error.filename is None else Path(os.fsdecode(error.filename))
        if error.errno is None or named not in {None, written_as}:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file beside its final place: at the end of the block it is flushed to the disk and renamed.

    If the block fails, what stood at ``path`` stays, and nothing else is left. After a kill ``.name.part`` may be left,
    which the next attempt overwrites.
    """
    unfinished = path.with_name(f".{path.name}.part")
    try:
        with naming(path, written_as=unfinished):
            yield unfinished
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
