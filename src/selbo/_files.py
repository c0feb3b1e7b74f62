"""Atomic writing of files: they are complete or absent, however a program ends."""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def naming(path: Path, *, written_as: Path | None = None) -> Iterator[None]:
    """Add the file name to operating system errors within the block that name no file, such as a full disk.

    Args:
        path: The file that is being written.
        written_as: Its temporary name, which is replaced by ``path`` in errors.
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
    """Yield a temporary path next to ``path``; at the end of the block the file is flushed to disk and renamed.

    If the block fails, an existing file at ``path`` is unchanged and the temporary file is removed. After a kill,
    ``.name.part`` may remain; the next attempt overwrites it.
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


def columns_as_csv(columns: Mapping[str, Sequence[Any]]) -> str:
    """Columns of the same length as a CSV file, floats with eight digits.

    Example:
        >>> print(columns_as_csv({"a": [1, 2], "b": ["x, y", 0.1 + 0.2]}), end="")
        a,b
        1,"x, y"
        2,0.3
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{each:.8g}" if isinstance(each, float) else each for each in row])
    return text.getvalue()
