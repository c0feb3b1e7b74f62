"""Files that are read must be there; files that are written are complete or absent, however a program ends.

Imports nothing slow: a command looks here for its input before it imports what takes seconds.
"""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

DATA_FILES: Final = (".csv", ".parquet", ".npz")
PREDICTION_FILES: Final = (".csv", ".parquet", ".jsonl")


def require_table(path: str | os.PathLike[str], what: str = "data") -> Path:
    """The path of a table.

    Args:
        path: The path.
        what: What it is, for errors.

    Raises:
        ValueError: If it has another ending, is not a file, or is empty.
    """
    return _required(what, path, DATA_FILES)


def require_predictions(path: str | os.PathLike[str]) -> Path:
    """The path of a file of predictions.

    Raises:
        ValueError: If it has another ending, is not a file, or is empty.
    """
    return _required("predictions", path, PREDICTION_FILES)


def _required(what: str, path: str | os.PathLike[str], endings: Sequence[str]) -> Path:
    file = Path(path)
    if file.suffix.lower() not in endings:
        raise ValueError(f"{what} must be a file that ends in {' or '.join(endings)}, but got {os.fspath(path)!r}")
    if not file.is_file():
        found = "a folder" if file.is_dir() else "not there"
        raise ValueError(f"{what} must be a file, but {os.fspath(path)!r} is {found}")
    if file.stat().st_size == 0:
        raise ValueError(f"{os.fspath(path)!r} is empty")
    return file


def require_model(folder: Path) -> None:
    """Check that the folder of a model exists; `selbo.tabular.saved_model` checks its content.

    Raises:
        ValueError: If it does not, or is a file.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "not there"
        raise ValueError(f"the model must be a folder made by selbo train, but {os.fspath(folder)!r} is {what}")


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


def columns_as_csv(columns: Mapping[str, Sequence[Any]], *, header: bool = True) -> str:
    """Columns of the same length as a CSV file, floats with eight digits, with or without a line of names.

    Example:
        >>> print(columns_as_csv({"a": [1, 2], "b": ["x, y", 0.1 + 0.2]}), end="")
        a,b
        1,"x, y"
        2,0.3
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{each:.8g}" if isinstance(each, float) else each for each in row])
    return text.getvalue()
