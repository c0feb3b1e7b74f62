"""Atomic writing of files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path next to ``path`` to write to; on exit the file is flushed to disk and renamed.

    If the block fails, an existing file at ``path`` is kept, and the temporary file is removed. A killed process may
    leave ``.name.part``, which the next attempt overwrites. Errors of the operating system name ``path``.
    """
    unfinished = path.with_name(f".{path.name}.part")
    try:
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        if error.errno is None or error.filename not in {None, os.fspath(unfinished)}:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
