"""Reads large tables chunk by chunk: consecutive rows of a CSV or Parquet file, in bounded memory.

A CSV file is read in blocks of bytes that end where a line ends; a Parquet file in slices of rows. A chunk is a `Table`
with the columns that the whole file would have, so what works on a table works on a chunk.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from selbo._files import require_table
from selbo.random import derive
from selbo.tabular.csv_files import UTF8, Header, find_encoding, name_columns, open_as_utf8, size_as_utf8
from selbo.tabular.table import (
    MOST_LINE_BYTES,
    Table,
    TableColumn,
    TextKinds,
    column_of_texts,
    column_of_type,
    csv_fault,
    find_separator,
    first_sentence,
    import_polars,
    notes_on_text,
    require_csv,
    stripped,
)

if TYPE_CHECKING:
    import polars as pl

LARGE_BYTES: Final = {".csv": 400_000_000, ".parquet": 200_000_000}
"""Size of a file from which on it is read chunk by chunk, unless an option says otherwise: in memory a table takes
several times as much. Other kinds of files are always read as a whole."""

BYTES_PER_CHUNK: Final = 32 * 2**20
"""Bytes of a CSV file per chunk."""

ROWS_PER_CHUNK: Final = 131_072
CELLS_PER_CHUNK: Final = 2**23
"""Rows of a Parquet file per chunk, fewer if there are many columns."""

ReadingReport = Callable[[str, float], None]
"""Called with what is being done, and the share of the file since the last call."""


def no_report(label: str, share: float) -> None:
    """Report nothing."""


def is_large(path: str | os.PathLike[str], *, stream: bool | None = None) -> bool:
    """Whether a table is read chunk by chunk: as asked for, or by the size of the file.

    Raises:
        ValueError: If this is asked for, and the file is neither CSV nor Parquet.
    """
    file = require_table(path)
    if file.suffix.lower() not in LARGE_BYTES:
        if stream:
            raise ValueError(f"`stream` is for .csv and .parquet files, but got {os.fspath(path)!r}")
        return False
    return file.stat().st_size >= LARGE_BYTES[file.suffix.lower()] if stream is None else stream


class Chunk:
    """Consecutive rows of a file.

    Args:
        source: The file.
        first: Number of the rows before.
        frame: The columns that were asked for, as they are in the file: those of a CSV file are text.
        share: Share of the file that these rows are.
    """

    def __init__(self, source: "LargeTable", first: int, frame: "pl.DataFrame", share: float) -> None:
        self.source, self.first, self.frame, self.share = source, first, frame, share

    @cached_property
    def table(self) -> Table:
        """The rows as a table."""
        return self.source.as_table(self.frame)

    @property
    def num_rows(self) -> int:
        """Number of the rows."""
        return self.frame.height


@dataclass(frozen=True)
class LargeTable:
    """A CSV or Parquet file that is read chunk by chunk.

    Attributes:
        path: The file.
        names: Names of all its columns.
        kinds: What columns of a CSV file hold, see `column_of_texts`; each chunk is judged by itself if not given.
        columns: The columns to read.
        numeric: Columns of a CSV file of which only the numbers are needed; they are parsed as such where all values of
            a chunk are numbers, which is quicker.
        notes: How the file is read, for the user.
        header: The names in a CSV file.
        no_header: Whether the first line of a CSV file is a row.
    """

    path: Path
    names: tuple[str, ...]
    kinds: Mapping[str, str]
    columns: tuple[str, ...]
    numeric: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    header: Header | None = None
    no_header: bool = False

    @property
    def is_csv(self) -> bool:
        """Whether the file is text, without types."""
        return self.path.suffix.lower() == ".csv"

    def only(
        self, columns: Collection[str], kinds: Mapping[str, str] | None = None, numeric: Collection[str] = ()
    ) -> "LargeTable":
        """The same file with some of its columns, at least one; names that do not exist are ignored."""
        chosen = tuple(name for name in self.names if name in set(columns)) or self.names[:1]
        return replace(self, columns=chosen, kinds=self.kinds if kinds is None else kinds, numeric=frozenset(numeric))

    def chunks(self) -> Iterator[Chunk]:
        """All rows, in order.

        Raises:
            ValueError: If the file cannot be read, or has no rows.
        """
        first = 0
        for frame, share in (_csv_frames if self.is_csv else _parquet_frames)(self):
            if frame.height:
                yield Chunk(self, first, frame, share)
                first += frame.height
        if first == 0:
            raise ValueError(f"{os.fspath(self.path)!r} has no rows, only the names of {len(self.names)} columns")

    def as_table(self, frame: "pl.DataFrame") -> Table:
        """Some rows as a table."""
        others = tuple(name for name in self.names if name not in frame.columns)
        columns = {each.name: self.as_column(each) for each in frame}
        return Table(self.path.name, columns, frame.height, others, self.notes, self.header)

    def as_column(self, series: "pl.Series") -> TableColumn:
        """Some values of a column."""
        if self.is_csv and not series.dtype.is_float():
            return column_of_texts(series, self.kinds.get(series.name))
        return column_of_type(series)


def open_large(path: str | os.PathLike[str], *, no_header: bool = False) -> LargeTable:
    """A large table; reads the names of its columns.

    Args:
        path: The file.
        no_header: Whether the first line of a CSV file is a row.

    Raises:
        ValueError: If the file does not exist or its columns cannot be read.
    """
    file = require_table(path)
    require_csv(file, no_header)
    polars = import_polars(file)
    header, notes = None, tuple[str, ...]()
    if file.suffix.lower() == ".csv":
        header = _read_header(file, no_header)
        names, notes = header.names, notes_on_text(file, header)
    else:
        try:
            with file.open("rb") as stream:
                names = tuple(polars.read_parquet_schema(stream))
        except (polars.exceptions.PolarsError, OSError) as error:
            raise ValueError(f"{os.fspath(file)!r} cannot be read as Parquet: {first_sentence(error)}") from error
    if not names:
        raise ValueError(f"{os.fspath(path)!r} has no columns")
    return LargeTable(file, names, {}, names, notes=notes, header=header, no_header=no_header)


def _read_header(file: Path, no_header: bool) -> Header:
    """The names of the columns of a CSV file."""
    import polars

    mark = find_separator(file)
    try:
        source: Any = file
        if find_encoding(file) != UTF8:  # polars would read all of it
            with open_as_utf8(file) as stream:
                start = stream.read(BYTES_PER_CHUNK).lstrip(b"\r\n")
            source = start[: _first_end(start)]
        found = polars.read_csv(
            source, glob=False, infer_schema=False, has_header=not no_header, n_rows=int(no_header), separator=mark
        ).columns
    except polars.exceptions.PolarsError as error:
        raise ValueError(f"{os.fspath(file)!r} {csv_fault(file, error, mark)}") from error
    return name_columns(file, found, mark, no_header=no_header)


def _parquet_frames(table: LargeTable) -> Iterator[tuple["pl.DataFrame", float]]:
    import polars

    rows = min(ROWS_PER_CHUNK, max(1, CELLS_PER_CHUNK // len(table.columns)))
    try:
        lazy = polars.scan_parquet(table.path, glob=False)
        total = int(lazy.select(polars.len()).collect().item())
        lazy = lazy.select(table.columns)
        for first in range(0, total, rows):
            frame = lazy.slice(first, rows).collect()
            yield frame, frame.height / total
    except (polars.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{os.fspath(table.path)!r} cannot be read as Parquet: {first_sentence(error)}") from error


def _csv_frames(table: LargeTable) -> Iterator[tuple["pl.DataFrame", float]]:
    import polars

    mark, size = find_separator(table.path), size_as_utf8(table.path)
    texts: Any = dict.fromkeys(table.names, polars.String)
    numbers = {name: polars.Float64 if name in table.numeric else polars.String for name in table.names}
    for block in _blocks(table.path, header=not table.no_header):
        frame = None
        if table.numeric:
            with suppress(polars.exceptions.PolarsError):  # a value is no number
                frame = polars.read_csv(block, has_header=False, schema=numbers, separator=mark, glob=False)
        try:
            if frame is None:
                frame = _read_block(block, texts, mark)
        except polars.exceptions.NoDataError:
            continue
        except polars.exceptions.PolarsError as error:
            raise ValueError(f"{os.fspath(table.path)!r} {csv_fault(table.path, error, mark)}") from error
        yield frame.select(table.columns), len(block) / size


def _read_block(block: bytes, schema: Any, mark: str) -> "pl.DataFrame":
    """Rows of a CSV file, as text."""
    import polars

    try:
        return polars.read_csv(block, has_header=False, schema=schema, separator=mark, glob=False)
    except polars.exceptions.SchemaError:  # the first row is shorter than the others, as in a file that was cut off
        full = (mark * (len(schema) - 1) + "\n").encode()
        return polars.read_csv(full + block, has_header=False, schema=schema, separator=mark, glob=False)[1:]


def _blocks(path: Path, *, header: bool) -> Iterator[bytes]:
    """The lines of a CSV file after its header, if it has one, in blocks that end where a row ends."""
    with open_as_utf8(path) as stream:
        left, start = stream.read(3).removeprefix(b"\xef\xbb\xbf"), True
        while True:
            more = stream.read(BYTES_PER_CHUNK)
            block = left + more
            if start:
                block = block.lstrip(b"\r\n")
            end = len(block) if not more else _last_end(block)
            if start and end:
                yield from _parts(block[_first_end(block) if header else 0 : end])
                start = False
            elif end:
                yield block[:end]
            left = block[end:]
            if not more:
                return
            if len(left) > MOST_LINE_BYTES + BYTES_PER_CHUNK:
                raise ValueError(
                    f"{os.fspath(path)!r} has a line of more than {MOST_LINE_BYTES // 2**20} MB, too long to be parsed"
                )


def _parts(block: bytes) -> Iterator[bytes]:
    if block.strip(b"\r\n"):
        yield block


def _last_end(block: bytes) -> int:
    """Where the last row of a block ends: after a line feed with an even number of quotes before; 0 if nowhere."""
    end = block.rfind(b"\n") + 1
    while end and block.count(b'"', 0, end) % 2:
        quote = block.rfind(b'"', 0, end)  # opens a value that continues
        end = block.rfind(b"\n", 0, quote) + 1
    return end


def _first_end(block: bytes) -> int:
    """Where the first row of a block ends."""
    end = block.find(b"\n") + 1
    while end and block.count(b'"', 0, end) % 2:
        end = block.find(b"\n", end) + 1
    return end or len(block)


# --- a sample of the rows, and what the columns hold ---


class Reservoir:
    """A uniform sample of rows, all of them if there are no more than asked for; in the order of the file.

    Args:
        most: Maximum number of rows.
        seed: Seed for the choice.
    """

    def __init__(self, most: int, *, seed: int) -> None:
        self.most, self.seed = most, seed
        self.frames: list[pl.DataFrame] = []
        self.keys = np.empty(0)
        self.rows = np.empty(0, dtype=np.int64)

    def add(self, first: int, frame: "pl.DataFrame") -> None:
        """Offer consecutive rows."""
        keys = np.random.default_rng(derive(self.seed, "reservoir", first)).random(frame.height)
        bar = np.partition(self.keys, self.most - 1)[self.most - 1] if len(self.keys) >= self.most else np.inf
        chosen = np.flatnonzero(keys < bar)
        if len(chosen) == 0:
            return
        self.frames.append(frame[chosen])
        self.keys = np.concatenate([self.keys, keys[chosen]])
        self.rows = np.concatenate([self.rows, first + chosen])
        if len(self.keys) >= 2 * self.most:
            self._prune()

    def _prune(self) -> None:
        import polars

        whole = polars.concat(self.frames)
        if len(self.keys) > self.most:
            kept = np.sort(np.argpartition(self.keys, self.most - 1)[: self.most])
            whole, self.keys, self.rows = whole[kept], self.keys[kept], self.rows[kept]
        self.frames = [whole]

    def sample(self) -> tuple["pl.DataFrame", "np.ndarray[Any, np.dtype[np.int64]]"]:
        """The sample, and the numbers of its rows, from 0."""
        self._prune()
        return self.frames[0], self.rows


def read_sample(
    path: Path,
    *,
    most: int,
    seed: int,
    columns: Collection[str] | None = None,
    no_header: bool = False,
    report: ReadingReport = no_report,
) -> tuple[Table, int]:
    """A uniform sample of the rows of a large table, and the number of all rows.

    Args:
        path: The file.
        most: Maximum number of rows of the sample.
        seed: Seed for the choice.
        columns: The columns to read, all if not given.
        no_header: Whether the first line of a CSV file is a row.
        report: Called with the progress.
    """
    large = open_large(path, no_header=no_header)
    large = large if columns is None else large.only(columns)
    reservoir, kinds, total = Reservoir(most, seed=seed), KindScan(large), 0
    for chunk in large.chunks():
        reservoir.add(chunk.first, chunk.frame)
        kinds.add(chunk.frame)
        total += chunk.frame.height
        report(f"reading {path.name}", chunk.share)
    frame, _ = reservoir.sample()
    return replace(large, kinds=kinds.found()).as_table(frame), total


class KindScan:
    """What the columns of a CSV file hold, by all of its rows."""

    def __init__(self, table: LargeTable) -> None:
        self.kinds = {name: TextKinds() for name in table.columns} if table.is_csv else {}

    def add(self, frame: "pl.DataFrame") -> None:
        """Add rows of the file."""
        for name, each in self.kinds.items():
            each.add(stripped(frame[name]))

    def found(self) -> dict[str, str]:
        """What each column holds, see `column_of_texts`."""
        return {name: each.kind for name, each in self.kinds.items()}
