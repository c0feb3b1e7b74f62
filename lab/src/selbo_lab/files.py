"""Files that are whole or absent, however a program ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file beside its final place: at the end of the block it is flushed to the disk and renamed.

    If the block fails, what stood at ``path`` stays, and nothing else is left. After a kill ``.name.part`` may be left,
    which the next attempt overwrites. An error of the operating system names ``path``.
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
