"""Reads tables from CSV, Parquet and NPZ files: named columns of numbers, text, dates, or an unsupported type.

A CSV file has no types, so they are inferred from its values: a column is numeric if every value is a number or a word
for a missing value, and text otherwise. Nothing is unpickled.
"""

import csv
import difflib
import io
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selbo._files import require_table
from selbo.tabular.csv_files import FALLBACK, UTF8, Header, find_encoding, name_columns, open_as_utf8

if TYPE_CHECKING:
    import polars as pl

Numbers = NDArray[np.float64]
Texts = list[str | None]

MISSING_WORDS: Final = ("na", "n/a", "nan", "null", "none", "?", "-")
"""Words for a missing number in a CSV file, in any case. In a text column they are ordinary values, but only ``none``
may be the name of a class."""

DATE: Final = (
    r"^(\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{4})"
    r"([ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?$"
)
"""Pattern of a date, with or without a time, in a CSV file."""

NAMES_SHOWN: Final = 6

SEPARATORS: Final = (",", ";", "\t")
ROWS_TO_COMPARE: Final = 20
SPELT_NUMBER: Final = re.compile(r"[+-]?\d*[.,]?\d+")
"""What may separate columns; the number of rows that decide if the header has several; and a number, with a decimal
point or comma."""

MOST_LINE_BYTES: Final = 32 * 2**20
"""Maximum line length of a CSV file: parsing takes many times the memory of the longest line."""

MOST_COLUMNS: Final = 1_000_000
"""Maximum number of columns of a CSV file: more names would fill the memory."""

BYTES_PER_BLOCK: Final = 2**20


@dataclass(frozen=True)
class TableColumn:
    """A column.

    Attributes:
        kind: ``"integer"``, ``"number"``, ``"text"``, ``"date"``, or the name of an unsupported type.
        numbers: Values, NaN if missing; None for a column that is not numeric.
        texts: Returns the values as text, as in the file, None if missing.
    """

    kind: str
    numbers: Numbers | None
    texts: Callable[[], Texts]


class Read(NamedTuple):
    """What is read of a file: names of all columns, the columns that were read, and how a CSV file was taken."""

    names: Sequence[str]
    columns: dict[str, TableColumn]
    notes: tuple[str, ...] = ()
    header: Header | None = None


@dataclass(frozen=True)
class Table:
    """Columns of the same length.

    Attributes:
        name: Name of the file.
        columns: Columns that were read, by name, in the order of the file.
        num_rows: Length of each column, at least 1.
        other_columns: Names of columns that were not read.
        notes: How the file was read, for the user.
        header: The names in a CSV file.
    """

    name: str
    columns: dict[str, TableColumn]
    num_rows: int
    other_columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    header: Header | None = None

    def __getitem__(self, name: str) -> TableColumn:
        if name not in self.columns:
            there = [*self.columns, *self.other_columns]
            raise ValueError(f"there is no column {name!r} in {self.name}: {nearest(name, there)}{self.hint}")
        return self.columns[name]

    @property
    def hint(self) -> str:
        """What may be wrong if a column is not there, as the end of a sentence."""
        if self.header is not None and self.header.numbered:
            return f"; with `no_header`, columns are called by position, column_1 to {self.header.names[-1]}"
        like_data = self.header is not None and self.header.looks_like_data
        return "; its first line looks like data: pass `no_header` if it has no names" if like_data else ""

    def require_single(self, name: str | None) -> None:
        """Raise an error if another column had this name, which is that of the target: it may give the target away."""
        if self.header is not None and name in self.header.renamed.values():
            raise ValueError(f"{self.name} has the column {name!r}, the target, more than once: remove all but one")


def nearest(name: str, known: Iterable[str], *, there: Iterable[str] | None = None) -> str:
    """Suggest the closest known name, as the end of a sentence, or list the existing names.

    Args:
        name: The requested name.
        known: Names to suggest.
        there: Names to list, if different from ``known``.

    Example:
        >>> nearest("Diagnosi", ["age", "diagnosis"]), nearest("y", ["age", "bmi"])
        ("did you mean 'diagnosis'?", "there are 'age', 'bmi'")
    """
    names = list(known)
    lower = {each.strip().lower(): each for each in reversed(names)}
    if close := difflib.get_close_matches(name.strip().lower(), lower, n=1, cutoff=0.6):
        return f"did you mean {lower[close[0]]!r}?"
    return f"there are {listed(names if there is None else list(there))}"


def listed(names: Sequence[object]) -> str:
    """The first names in quotes, and the number of the others.

    Example:
        >>> listed(["a", "b"]), listed(range(9))
        ("'a', 'b'", "'0', '1', '2', '3', '4', '5' and 3 more")
    """
    shown = ", ".join(repr(str(name)) for name in names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"


def read_table(
    path: str | os.PathLike[str], *, columns: Collection[str] | None = None, no_header: bool = False
) -> Table:
    """Read a table.

    Args:
        path: A file that ends in ``.csv``, ``.parquet`` or ``.npz``. In an NPZ file an array of one dimension is a
            column; one of two, with name ``x``, is the columns ``x_0``, ``x_1``, ...
        columns: Names of the columns to read, all if not given; names that do not exist are ignored.
        no_header: Whether the first line of a CSV file is a row; the columns are then ``column_1``, ``column_2``, ...

    Returns:
        The columns, with any content: unusable values raise an error only where they are used.

    Raises:
        ValueError: If the file does not exist, is empty, or cannot be read.
    """
    file = require_table(path)
    require_csv(file, no_header)
    reader = READERS[file.suffix.lower()]
    read = _read_csv(file, columns, no_header=True) if no_header else reader(file, columns)
    names, found = read.names, read.columns
    if not names:
        raise ValueError(f"{os.fspath(path)!r} has no columns")
    lengths = {len(column.numbers if column.numbers is not None else column.texts()) for column in found.values()}
    if len(lengths) > 1:
        raise ValueError(f"{os.fspath(path)!r} has columns of different lengths, from {min(lengths)} to {max(lengths)}")
    if lengths == {0}:
        raise ValueError(f"{os.fspath(path)!r} has no rows, only the names of {len(names)} columns")
    others = tuple(name for name in names if name not in found)
    return Table(file.name, found, lengths.pop(), others, read.notes, read.header)


def require_csv(file: Path, no_header: bool) -> None:
    """Raise an error if a file has names for its columns, but is said to have none."""
    if no_header and file.suffix.lower() != ".csv":
        raise ValueError(f"`no_header` is for .csv files, but got {os.fspath(file)!r}")


def _wanted(names: Sequence[str], columns: Collection[str] | None) -> Sequence[str]:
    """Columns to read: at least one, which gives the number of rows."""
    if columns is None:
        return names
    chosen = set(columns)
    return [name for name in names if name in chosen] or names[:1]


# --- CSV and Parquet, by polars ---


def import_polars(file: Path) -> Any:
    """The package polars, which reads a file; an error that says how to install it if it is not there."""
    try:
        import polars
    except ImportError:
        raise ModuleNotFoundError(
            f"reading {file.suffix} files needs the package polars: pip install 'selbo[train]'"
        ) from None
    return polars


def _read_csv(file: Path, columns: Collection[str] | None, no_header: bool = False) -> Read:
    header, frame = read_texts(file, columns, no_header=no_header)
    found = {series.name: column_of_texts(series) for series in frame}
    return Read(header.names, found, notes_on_text(file, header), header)


def read_texts(
    file: Path, columns: Collection[str] | None = None, *, no_header: bool = False
) -> "tuple[Header, pl.DataFrame]":
    """The names of all columns of a CSV file, and the columns to read, as text.

    Args:
        file: The file.
        columns: Names of the columns to read, all if not given.
        no_header: Whether the first line is a row.
    """
    polars = import_polars(file)
    mark, encoding = find_separator(file), find_encoding(file)
    _check_lines(file, mark)
    how = {"glob": False, "infer_schema": False, "separator": mark, "has_header": not no_header}
    how |= {} if encoding == UTF8 else {"encoding": encoding}
    try:
        if columns is None:
            frame = polars.read_csv(file, **how)
            header = name_columns(file, frame.columns, mark, no_header=no_header)
            wanted: Sequence[str] = header.names
        else:
            names = polars.read_csv(file, **how, n_rows=int(no_header)).columns
            header = name_columns(file, names, mark, no_header=no_header)
            wanted = _wanted(header.names, columns)
            # a line with more values than names is an error only if all are read
            whole = len(wanted) == len(names) or _may_be_longer(file, len(names), mark)
            of_polars = dict(zip(header.names, names, strict=True))
            frame = polars.read_csv(file, **how, columns=None if whole else [of_polars[name] for name in wanted])
    except polars.exceptions.NoDataError:
        raise ValueError(f"{os.fspath(file)!r} is empty") from None
    except polars.exceptions.PolarsError as error:
        raise ValueError(f"{os.fspath(file)!r} {csv_fault(file, error, mark)}") from error
    if frame.width == len(header.names):
        frame.columns = list(header.names)
        return header, frame.select(wanted)
    frame.columns = list(wanted)
    return header, frame


def notes_on_text(file: Path, header: Header) -> tuple[str, ...]:
    """How the text of a CSV file was taken, if that may not be what is meant."""
    notes = []
    if find_encoding(file) == FALLBACK:
        notes.append("the file is not text in UTF-8: it is read as Windows-1252")
    if header.renamed:
        notes.append(f"columns of the same name are renamed: {listed(list(header.renamed))}")
    if header.looks_like_data:
        notes.append("the first line looks like data, not like names of columns: pass `no_header` if it is")
    return tuple(notes)


def find_separator(file: Path) -> str:
    """What separates the columns of a CSV file: commas, semicolons or tabs.

    If the header has more than one of them, it is the one that gives the first rows as many values as the header, and
    then the one that gives more numbers.
    """
    with open_as_utf8(file) as stream:
        header = b""
        while not header.strip():
            if not (header := stream.readline(MOST_LINE_BYTES)):
                return ","
        bare = re.sub(rb'"[^"]*"', b"", header)
        found = [mark for mark in SEPARATORS if mark.encode() in bare]
        if len(found) < 2:
            return next(iter(found), ",")
        lines = [header, *(stream.readline(MOST_LINE_BYTES) for _ in range(ROWS_TO_COMPARE))]
    texts = [line.decode("utf-8-sig", errors="replace") for line in lines if line.strip()]
    if len(texts) == 1:
        return found[0]
    return max(reversed(found), key=lambda mark: _regularity(texts, mark))  # of equal ones, commas may be decimal marks


def _regularity(lines: Sequence[str], mark: str) -> tuple[float, float]:
    """Share of the rows with as many values as the header, and share of their values that are numbers."""
    try:
        header, *rows = csv.reader(lines, delimiter=mark)
    except (csv.Error, ValueError):
        return 0.0, 0.0
    values = [value for row in rows for value in row]
    numbers = sum(bool(SPELT_NUMBER.fullmatch(value.strip())) for value in values)
    return sum(len(row) == len(header) for row in rows) / max(len(rows), 1), numbers / max(len(values), 1)


def _check_lines(file: Path, mark: str) -> None:
    """Reject lines and headers that are too long to parse."""
    with open_as_utf8(file) as stream:
        if stream.readline(MOST_LINE_BYTES).count(mark.encode()) >= MOST_COLUMNS:
            raise ValueError(
                f"{os.fspath(file)!r} has more than {MOST_COLUMNS} columns, which is more than can be read"
            )
    with open_as_utf8(file) as stream:
        length = 0  # of the last line, over all blocks so far
        while block := stream.read(BYTES_PER_BLOCK):
            first = block.find(b"\n")
            length += len(block) if first < 0 else first
            if length > MOST_LINE_BYTES:
                raise ValueError(
                    f"{os.fspath(file)!r} has a line of more than {MOST_LINE_BYTES // 2**20} MB, too long to be parsed"
                )
            if first >= 0:
                length = len(block) - block.rfind(b"\n") - 1


def _may_be_longer(file: Path, num_columns: int, mark: str) -> bool:
    """Whether a row may have more values than there are columns. False is certain, True is not.

    A line has at least as many commas as separators, unless a quoted value continues on the next line.
    """
    with open_as_utf8(file) as lines:
        return any(line.count(mark.encode()) >= num_columns or line.count(b'"') % 2 for line in lines)


def csv_fault(file: Path, error: Exception, mark: str) -> str:
    """Explain why polars cannot read a file, and how to fix it."""
    unknown = f"cannot be read as CSV: {first_sentence(error)}"
    try:
        with open_as_utf8(file) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines, delimiter=mark)
            header = next(row for row in rows if row)
            what = {",": "comma", ";": "semicolon", "\t": "tab"}[mark]
            more = ", and write numbers with a decimal point" if mark == "," else ""
            for row in rows:
                if len(row) > len(header):
                    return (
                        f"has {len(row)} values in line {rows.line_num}, but {len(header)} columns: put a value with a "
                        f"{what} in it in quotes{more}"
                    )
    except (csv.Error, StopIteration, UnicodeDecodeError):
        return unknown
    return unknown


def column_of_texts(series: "pl.Series", kind: str | None = None) -> TableColumn:
    """A column of a CSV file: numbers if all values are, else dates or text.

    Args:
        series: The values as they are written.
        kind: What the column holds, if it is known: ``"number"``, ``"date"``, ``"boolean"`` or ``"text"``.
    """
    import polars

    text = stripped(series)
    numbers = None
    if kind in {None, "number"}:
        numbers = text.cast(polars.Float64, strict=False)
        if kind is None:
            kind = TextKinds().add(text, numbers).kind
    if kind == "number":
        assert numbers is not None
        values = numbers.fill_null(np.nan).to_numpy().astype(np.float64)
        return TableColumn(_number_kind(values), values, text.to_list)
    if kind == "date":
        return TableColumn("date", None, text.to_list)
    if kind == "boolean":
        text = text.str.to_lowercase()  # one spelling of booleans
    return TableColumn("text", None, text.to_list)


def stripped(series: "pl.Series") -> "pl.Series":
    """Texts without space around them, null where nothing is left."""
    text = series.str.strip_chars()
    return text.set(text == "", None)


@dataclass
class TextKinds:
    """What the texts of a column may be, judged by all parts of it that were added."""

    numbers: bool = True
    dates: bool = True
    booleans: bool = True
    empty: bool = True
    without_number: bool = True

    def add(self, text: "pl.Series", numbers: "pl.Series | None" = None) -> "TextKinds":
        """Add a part of the column; ``numbers`` are its values as numbers, null if they are none."""
        import polars

        there = text.drop_nulls()
        self.empty = self.empty and len(there) == 0
        if self.numbers:
            values = text.cast(polars.Float64, strict=False) if numbers is None else numbers
            odd = text.filter(values.is_null() & text.is_not_null())
            missing = odd.str.to_lowercase().is_in(MISSING_WORDS)
            self.numbers = bool(missing.all())
            # "nan" is a number to polars, but a word for a missing value
            certain = text.filter(values.is_not_null()).str.to_lowercase().is_in(MISSING_WORDS)
            self.without_number = self.without_number and bool(certain.all())
        if self.dates and len(there):
            self.dates = bool(there.str.contains(DATE).all())
        if self.booleans and len(there):
            self.booleans = bool(there.str.to_lowercase().is_in(["true", "false"]).all())
        return self

    @property
    def kind(self) -> str:
        """``"number"``, ``"date"``, ``"boolean"`` or ``"text"``."""
        if self.numbers and (self.empty or not self.without_number):
            return "number"
        return "date" if self.dates else "boolean" if self.booleans else "text"


def _read_parquet(file: Path, columns: Collection[str] | None) -> Read:
    polars = import_polars(file)
    try:
        with file.open("rb") as stream:
            names = list(polars.read_parquet_schema(stream))
        frame = polars.read_parquet(file, glob=False, columns=list(_wanted(names, columns)), use_pyarrow=False)
    except (polars.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{os.fspath(file)!r} cannot be read as Parquet: {first_sentence(error)}") from error
    return Read(names, {series.name: column_of_type(series) for series in frame})


def column_of_type(series: "pl.Series") -> TableColumn:
    """A column of a Parquet file, by its declared type."""
    import polars

    kind = series.dtype
    texts: Callable[[], Texts] = lambda: series.cast(polars.String).to_list()  # noqa: E731  (read only if needed)
    if kind.is_numeric() or kind == polars.Null:
        values = series.cast(polars.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
        return TableColumn(_number_kind(values), values, texts)
    if kind == polars.Boolean or kind in (polars.String, polars.Categorical, polars.Enum):
        text = series.cast(polars.String).str.strip_chars()
        return TableColumn("text", None, text.set(text == "", None).to_list)
    if kind.is_temporal():
        return TableColumn("date", None, texts)
    nothing: Texts = [None] * len(series)
    return TableColumn(str(kind), None, lambda: nothing)


def first_sentence(error: Exception) -> str:
    """The first line of an error of a library, without its advice."""
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__


# --- NPZ, by numpy ---


def _read_npz(file: Path, columns: Collection[str] | None) -> Read:
    found: dict[str, NDArray[Any]] = {}
    if not zipfile.is_zipfile(file):
        raise ValueError(f"{os.fspath(file)!r} is not an NPZ file, or damaged: write it with numpy.savez")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            for name in arrays.files:
                for column, values in _columns_of_array(name, arrays[name]).items():
                    if column in found:
                        raise ValueError(f"two arrays give a column {column!r}: rename one")  # noqa: TRY301
                    found[column] = values
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        reason = first_sentence(error)
        if "allow_pickle" in reason:
            reason = "an array holds Python objects: store text as fixed-width strings, numbers as numbers"
        raise ValueError(f"{os.fspath(file)!r} cannot be read as NPZ: {reason}") from error
    names = list(found)
    return Read(names, {name: _column_of_array(found[name]) for name in _wanted(names, columns)})


def _columns_of_array(name: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    if values.ndim == 1:
        return {name: values}
    if values.ndim == 2:
        return {f"{name}_{i}": values[:, i] for i in range(values.shape[1])}
    raise ValueError(f"the array {name!r} has shape {values.shape}: a table needs one or two dimensions")


def _column_of_array(values: NDArray[Any]) -> TableColumn:
    if values.dtype.kind in "iuf":
        numbers = values.astype(np.float64)
        return TableColumn(_number_kind(numbers), numbers, lambda: [str(each) for each in values.tolist()])
    if values.dtype.kind == "b":
        return TableColumn("text", None, lambda: [str(each).lower() for each in values.tolist()])
    if values.dtype.kind in "US":
        text = np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values
        return TableColumn("text", None, lambda: [each.strip() or None for each in text.tolist()])
    if values.dtype.kind in "Mm":
        return TableColumn("date", None, lambda: [str(each) for each in values])
    nothing: Texts = [None] * len(values)
    return TableColumn(str(values.dtype), None, lambda: nothing)


def _number_kind(values: Numbers) -> str:
    there = values[~np.isnan(values)]
    with np.errstate(invalid="ignore"):  # infinity has no fraction
        whole = bool(np.isfinite(there).all() and (there == np.floor(there)).all())
    return "integer" if whole else "number"


READERS: Final[dict[str, Callable[[Path, Collection[str] | None], Read]]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
