"""CSV files as they are found: their encoding, what separates columns, and the names of columns.

A file is text in UTF-8, in UTF-16 or UTF-32 if it begins with a byte-order mark, and else in Windows-1252, which has
the letters of Latin-1. Whatever reads it sees UTF-8.
"""

import codecs
import csv
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

UTF8: Final = "utf-8"
FALLBACK: Final = "windows-1252"

BYTE_ORDER_MARKS: Final = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by the bytes that a file begins with; the longest first, as one begins with another."""

NOT_TEXT: Final = "is not text in UTF-8, UTF-16 or Windows-1252: save the table as UTF-8 (in a spreadsheet: CSV UTF-8)"

BYTES_DECODED: Final = 2**20
"""Bytes that are decoded at a time."""


def find_encoding(file: Path) -> str:
    """The encoding of a text file.

    Raises:
        ValueError: If the file is no text.
    """
    return _examined(file).encoding


def size_as_utf8(file: Path) -> int:
    """The number of bytes of a text file in UTF-8."""
    return _examined(file).size


class _Examined(NamedTuple):
    encoding: str
    size: int


def _examined(file: Path) -> _Examined:
    state = file.stat()
    return _examine(file, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _examine(file: Path, _changed: int, size: int) -> _Examined:
    """The encoding of a file, and its size as UTF-8. As long as it does not change it is read once."""
    with file.open("rb") as stream:
        start = stream.read(4)
    marked = next((name for mark, name in BYTE_ORDER_MARKS.items() if start.startswith(mark)), None)
    for encoding in (UTF8, FALLBACK) if marked is None else (marked,):
        decoder, found = codecs.getincrementaldecoder(encoding)(), 0
        with suppress(UnicodeDecodeError), file.open("rb") as stream:
            while block := stream.read(BYTES_DECODED):
                text = decoder.decode(block)
                if encoding != UTF8:
                    found += len(text.encode())
                if encoding == FALLBACK and "\0" in text:  # nearly all bytes are letters in it
                    break
            else:
                decoder.decode(b"", final=True)
                return _Examined(encoding, size if encoding == UTF8 else found)
    raise ValueError(f"{os.fspath(file)!r} {NOT_TEXT}")


class _Recoded(io.RawIOBase):
    """A file, as UTF-8."""

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream, self._decoder, self._left = stream, codecs.getincrementaldecoder(encoding)(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]  # what io.BufferedReader passes
        while not self._left:
            block = self._stream.read(BYTES_DECODED)
            self._left = self._decoder.decode(block, final=not block).encode()
            if not block:
                break
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_as_utf8(file: Path) -> BinaryIO:
    """A text file as bytes in UTF-8; a byte-order mark of UTF-8 is kept. It is read from start to end."""
    encoding = find_encoding(file)
    if encoding == UTF8:
        return file.open("rb")
    return io.BufferedReader(_Recoded(file.open("rb"), encoding), BYTES_DECODED)


@dataclass(frozen=True)
class Header:
    """The names of the columns of a CSV file.

    Attributes:
        names: A name of its own for each column.
        renamed: Names as they are in the file, by those of columns that repeat one.
        looks_like_data: Whether the line of the names looks like a row.
        numbered: Whether the file has no names, and columns are called by their position.
    """

    names: tuple[str, ...]
    renamed: dict[str, str]
    looks_like_data: bool = False
    numbered: bool = False


def name_columns(file: Path, found: Sequence[str], mark: str, *, no_header: bool = False) -> Header:
    """Names for the columns of a file.

    Args:
        file: The file.
        found: Names that polars gives the columns, which are different.
        mark: What separates the columns.
        no_header: Whether the first line is a row; the names are then ``column_1``, ``column_2``, ...
    """
    if no_header:
        return Header(tuple(f"column_{k}" for k in range(1, len(found) + 1)), {}, numbered=True)
    written = _first_row(file, mark)
    like_data = looks_like_row(written)
    if len(written) != len(found) or len({name.strip() for name in written}) == len(written):
        return Header(tuple(found), {}, like_data)
    names = unique_names(written)
    renamed = {new: old.strip() for new, old in zip(names, written, strict=True) if new != old}
    return Header(names, renamed, like_data)


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names, with a number at the end of those that are there before; space around a name does not count.

    Example:
        >>> unique_names(["a", "b", "a", "a", "b_2", " b"])
        ('a', 'b', 'a_2', 'a_3', 'b_2', 'b_3')
    """
    taken, last, found = {name.strip() for name in names}, dict[str, int](), []
    for name in names:
        plain = name.strip()
        if plain not in last:
            last[plain] = 1
            found.append(name)
            continue
        while (new := f"{plain or 'column'}_{last[plain] + 1}") in taken:
            last[plain] += 1
        last[plain] += 1
        taken.add(new)
        found.append(new)
    return tuple(found)


def _first_row(file: Path, mark: str) -> list[str]:
    """The values of the first line; none if it cannot be parsed."""
    try:
        with open_as_utf8(file) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as lines:
            return next((row for row in csv.reader(lines, delimiter=mark) if row), [])
    except csv.Error:
        return []


def looks_like_row(values: Sequence[str]) -> bool:
    """Whether half of the values or more are numbers, but not increasing whole ones, as names of years or classes are.

    Example:
        >>> looks_like_row(["5.1", "3.5", "setosa"]), looks_like_row(["id", "0", "1", "2"])
        (True, False)
    """
    numbers = [number for number in map(_number, values) if number is not None]
    rising = all(one < other for one, other in pairwise(numbers))
    whole = all(number.is_integer() for number in numbers)
    return 0 < len(values) <= 2 * len(numbers) and not (rising and whole)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
