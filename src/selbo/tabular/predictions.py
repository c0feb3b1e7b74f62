"""Files of predictions: one column per class with probabilities, log-probabilities or logits, and any other columns.

Two classes may have a single column, the score of one of them.

What a language model or another program wrote is read as it is. The class columns can be replaced, and everything else
is written back unchanged.
"""

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selbo._files import require_predictions
from selbo.evaluation.belief_calibration import UNLABELLED
from selbo.tabular.table import Numbers, Table, TableColumn, Texts, listed, nearest, read_table, read_texts, require_csv

PREFIX: Final = "p_"
"""What `selbo predict` writes before the name of a class."""

PREDICTION_KINDS: Final = ("probabilities", "log-probabilities", "logits")

SUM_TOLERANCE: Final = 0.02
"""Difference from 1 that rounding may give the sum of the probabilities of a row."""

ROWS_AT_A_TIME: Final = 2**17
"""Rows that are computed with at a time, where there may be many."""

NOT_SCORED: Final = -9999.0
"""Log-probability at which a class counts as impossible; some services return it for a class that was not scored."""


@dataclass(frozen=True)
class PredictionFile:
    """The content of a file of predictions.

    Attributes:
        path: The file.
        table: Its columns, as numbers and text.
        values: Every column as it was read: text of a CSV file, polars series of a Parquet file, values of JSON lines.
        records: The objects of JSON lines; None for other files.
    """

    path: Path
    table: Table
    values: Mapping[str, Any]
    records: list[dict[str, Any]] | None

    def replaced(self, new: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """All columns in their order, with new values for some. In a Parquet file they keep their types."""
        return {name: new.get(name, values) for name, values in self.values.items()}

    def replaced_records(self, new: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        """The objects of JSON lines, with new values for some entries."""
        assert self.records is not None
        return [
            {**record, **{name: values[row] for name, values in new.items()}} for row, record in enumerate(self.records)
        ]

    def replaced_texts(self, new: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """All columns for a CSV file: new numbers as they are, everything else as text."""
        return {name: new[name] if name in new else [_as_text(e) for e in old] for name, old in self.values.items()}


def read_predictions(path: Path, *, no_header: bool = False) -> PredictionFile:
    """Read a file of predictions.

    Args:
        path: A file that ends in ``.csv``, ``.parquet`` or ``.jsonl`` (one JSON object per line).
        no_header: Whether the first line of a CSV file is a row.

    Raises:
        ValueError: If it does not exist, is empty, or cannot be read.
    """
    suffix = require_predictions(path).suffix.lower()
    require_csv(path, no_header)
    if suffix == ".jsonl":
        return _read_lines(path)
    table = read_table(path, no_header=no_header)
    import polars

    if suffix == ".csv":
        _, frame = read_texts(path, no_header=no_header)
        return PredictionFile(path, table, {series.name: series.to_list() for series in frame}, None)
    frame = polars.read_parquet(path, glob=False, use_pyarrow=False)
    return PredictionFile(path, table, dict(frame.to_dict(as_series=True)), None)


def _read_lines(path: Path) -> PredictionFile:
    records: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    records.append(_record(path, number, line))
    except UnicodeDecodeError:
        raise ValueError(f"{os.fspath(path)!r} is not text in UTF-8") from None
    if not records:
        raise ValueError(f"{os.fspath(path)!r} is empty")
    names = list(dict.fromkeys(name for record in records for name in record))
    values = {name: [record.get(name) for record in records] for name in names}
    columns = {name: _column_of_values(each) for name, each in values.items()}
    return PredictionFile(path, Table(path.name, columns, len(records)), dict(values), records)


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise ValueError(f"every line of {os.fspath(path)!r} must be a JSON object, but line {number} is none")
    return record


def _column_of_values(values: list[Any]) -> TableColumn:
    """A column of JSON lines: numbers if all values are numbers or missing."""
    texts: Callable[[], Texts] = lambda: [_as_text(each) or None for each in values]  # noqa: E731  (only if needed)
    if not all(each is None or (isinstance(each, int | float) and not isinstance(each, bool)) for each in values):
        return TableColumn("text", None, texts)
    try:
        numbers = np.array([np.nan if each is None else float(each) for each in values])
    except OverflowError:  # a whole number of hundreds of digits is a name
        return TableColumn("text", None, texts)
    there = numbers[np.isfinite(numbers)]
    whole = len(there) == len(numbers) and bool((there == np.floor(there)).all())
    return TableColumn("integer" if whole else "number", numbers, texts)


def _as_text(value: Any) -> str:
    """A value for a CSV file. A float keeps all its digits."""
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


# --- the columns of the classes ---


REMEDY: Final = "; if it is no class, name the classes with `columns`"

ENOUGH_ROWS: Final = 20
"""From so many rows on, logits are not expected to lie between 0 and 1 in all rows of a class."""


def split_names(text: str) -> list[str]:
    """Names of columns that are separated by commas; a name with a comma is put in quotes.

    Example:
        >>> split_names('alive, "died, at home"')
        ['alive', 'died, at home']
    """
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), []) if name.strip()]


class ClassColumns(NamedTuple):
    """Columns with the predictions.

    Attributes:
        columns: Their names in the file.
        classes: Names of their classes; of a single column, both classes, with the one that it scores last.
        others: Columns of numbers that were left alone.
    """

    columns: tuple[str, ...]
    classes: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def positive(self) -> str | None:
        """The class that a single column scores; None if there is one column per class."""
        return self.classes[-1] if len(self.columns) == 1 else None


def find_class_columns(
    table: Table,
    *,
    columns: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    labels: str | None = None,
    names: Sequence[str] | None = None,
) -> ClassColumns:
    """Find the columns with the predictions: one per class, or the score of one of two classes.

    Args:
        table: The file.
        columns: Their names, if they are stated.
        classes: The classes, if they are known; their columns may have the prefix of `selbo predict`.
        labels: Column with labels, which is none of them.
        names: The two classes of a single column, with the one that it scores last.

    Returns:
        Stated columns; else those of known classes; else those that `selbo predict` writes; else all columns of
        numbers, apart from whole numbers such as ids, unless they are zeros and ones that complete probabilities.

    Raises:
        ValueError: If there are none, or one does not hold numbers.
    """
    numeric = [
        name
        for name, each in table.columns.items()
        if each.numbers is not None and name != labels and not bool(np.isnan(each.numbers).all())
    ]
    prefixed = [name for name in numeric if _is_prefixed(name)]
    if columns is not None:
        found = list(columns)
    elif classes is not None and names is None:
        found = _columns_of_classes(table, classes, numeric)
    elif len(prefixed) > 1:
        found = prefixed
    else:
        found = _scores(table, numeric)
        if found == prefixed:  # the column of another class may hold text by mistake: it must not be left out
            found = [name for name in table.columns if _is_prefixed(name) and name != labels]
    if len(set(found)) < len(found):
        raise ValueError(f"`columns` must name every column once, but got {listed(found)}")
    if labels in found:
        raise ValueError(f"`labels` must be a column of its own, but {labels!r} is one of the columns of the classes")
    for name in found:
        if table[name].numbers is None:
            raise ValueError(f"`columns` must hold numbers, but {name!r} in {table.name} holds {table[name].kind}")
    if not found:
        raise ValueError(
            f"`columns` must be one per class, or a single score, but in {table.name} none holds numbers with fractions"
        )
    if len(found) == 1 and found[0] in (together := _probability_columns(table, numeric)):
        raise ValueError(
            f"`columns` must be all that are probabilities together in {table.name}, {listed(together)}, but only "
            f"{found[0]!r} is named"
        )
    others = tuple(name for name in numeric if name not in found)
    return ClassColumns(tuple(found), name_classes(found, classes, names), others)


def is_from_selbo(table: Table, chosen: ClassColumns) -> bool:
    """Whether `selbo predict` wrote the columns, so that the predicted class stands beside them."""
    prefixed = len(chosen.columns) > 1 and all(name.startswith(PREFIX) for name in chosen.columns)
    return prefixed and "predicted_class" in table.columns


def name_classes(
    columns: Sequence[str], classes: Sequence[str] | None = None, names: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Names of the classes of columns, without the prefix of `selbo predict`; checked, if the classes are known.

    Example:
        >>> name_classes(["p_ham", "p_spam"]), name_classes(["p_ham", "spam"])
        (('ham', 'spam'), ('p_ham', 'spam'))
        >>> name_classes(["p_spam"]), name_classes(["p_spam"], names=["ham", "spam"])
        (('not spam', 'spam'), ('ham', 'spam'))
    """
    shortened = all(map(_is_prefixed, columns))
    found = tuple((name[len(PREFIX) :] if shortened else name).strip() for name in columns)
    if names is not None:
        if len(columns) > 1:
            raise ValueError(f"`classes` names those of a single column, but the columns are {listed(columns)}")
        if len(set(names)) != 2 or len(names) != 2:
            raise ValueError(f"`classes` must be two names, with the class of the score last, but got {listed(names)}")
        found = tuple(names)
    elif len(found) == 1:
        known = [name for name in classes or () if name != found[0]]
        found = (known[0] if len(known) == 1 else f"not {found[0]}", *found)
    if classes is not None and sorted(found) != sorted(classes):
        raise ValueError(
            f"`columns` must be those of the classes that the calibration was fitted to, {listed(classes)}, but are "
            f"{listed(found)}"
        )
    return found


def _is_prefixed(name: str) -> bool:
    return name.startswith(PREFIX) and len(name) > len(PREFIX)


def _columns_of_classes(table: Table, classes: Sequence[str], numeric: Sequence[str]) -> list[str]:
    named = [[f"{prefix}{name}" for name in classes if f"{prefix}{name}" in table.columns] for prefix in (PREFIX, "")]
    for found in named:
        if len(found) == len(classes):
            return found
    for found in named:  # a single score, and nothing that may be the score of the other class
        alone = len(classes) == 2 and found == _with_fractions(table, numeric)
        if len(found) == 1 and (alone or set(name_classes(found)) == set(classes)):
            return found
    there = {each for name in table.columns for each in (name, name.removeprefix(PREFIX))}
    missing = next((name for name in classes if name not in there), classes[0])
    matched = {f"{prefix}{name}" for prefix in (PREFIX, "") for name in classes}
    unmatched = [name for name in table.columns if name not in matched]
    raise ValueError(
        f"there is no column for the class {missing!r}, which the calibration was fitted to, in {table.name}: "
        f"{nearest(missing, unmatched, there=table.columns)}"
    )


def _scores(table: Table, numeric: Sequence[str]) -> list[str]:
    """Columns of numbers without ids and flags: those that are probabilities together, else all.

    Zeros and ones count where they complete probabilities. Measurements beside probabilities are left alone.
    """
    if together := _probability_columns(table, numeric):
        return together
    fractions = _with_fractions(table, numeric)
    inside = [name for name in fractions if _in_unit_interval(table[name])]
    if 0 < len(inside) < len(fractions) and table.num_rows >= ENOUGH_ROWS:
        odd = next(name for name in fractions if name not in inside)
        raise ValueError(
            f"`columns` must name the columns of the classes in {table.name}: {inside[0]!r} has values from 0 to 1, "
            f"{odd!r} has others, and no columns are probabilities together"
        )
    return fractions


def _probability_columns(table: Table, numeric: Sequence[str]) -> list[str]:
    """Two or more columns that are probabilities together; none if there are no such columns."""
    inside = [name for name in _with_fractions(table, numeric) if _in_unit_interval(table[name])]
    certain = [name for name in numeric if name in inside or _is_indicator(table[name])]
    for names in (certain, inside):
        if len(names) > 1 and _are_probabilities(columns_as_array(table, names)):
            return names
    return []


def _with_fractions(table: Table, numeric: Sequence[str]) -> list[str]:
    return [name for name in numeric if table[name].kind != "integer"]


def _in_unit_interval(column: TableColumn) -> bool:
    assert column.numbers is not None
    return bool(((column.numbers >= 0) & (column.numbers <= 1)).all())


def _is_indicator(column: TableColumn) -> bool:
    return column.numbers is not None and bool(np.isin(column.numbers, (0.0, 1.0)).all())


def columns_as_array(table: Table, names: Sequence[str]) -> Numbers:
    """Columns of numbers beside each other, shape (n, K)."""
    found = [table[name].numbers for name in names]
    return np.stack([each for each in found if each is not None], axis=1)


# --- what the columns hold ---


def recognise_kind(values: NDArray[np.float64]) -> str:
    """What predictions are: one of `PREDICTION_KINDS`.

    Args:
        values: Predictions, shape (n, K); of a single column, scores of one of two classes.

    Raises:
        ValueError: If they lie between 0 and 1 without summing to one, which both scores and logits may do, or are a
            single column of one sign that holds no probabilities.

    Example:
        >>> probs = np.array([[0.2, 0.8], [0.5, 0.5]])
        >>> recognise_kind(probs), recognise_kind(np.log(probs)), recognise_kind(10 * probs)
        ('probabilities', 'log-probabilities', 'logits')
    """
    if values.shape[1] == 1:
        return _kind_of_score(values)
    if _are_probabilities(values):
        return "probabilities"
    if bool(((values >= 0) & (values <= 1)).all()):
        sums = values.sum(1)
        raise ValueError(
            "`input` must be stated, or `columns`: the predictions are between 0 and 1, but rows sum to "
            f"{_range(sums)}, so they may be probabilities or logits"
        )
    if bool((values <= 0).all()) and bool((np.exp(values).sum(1) <= 1 + SUM_TOLERANCE).all()):
        return "log-probabilities"
    return "logits"


def _kind_of_score(score: NDArray[np.float64]) -> str:
    low, high = float(score.min()), float(score.max())
    if low >= 0 and high <= 1:
        return "probabilities"
    if low < 0 < high:
        return "logits"
    may_be = "log-probabilities or logits" if high <= 0 else "logits, percentages or no predictions"
    raise ValueError(f"`input` must be stated: the single column has values of {_range(score)}, which may be {may_be}")


def _are_probabilities(values: NDArray[np.float64]) -> bool:
    return bool(((values >= 0) & (values <= 1)).all()) and bool((abs(values.sum(1) - 1) <= SUM_TOLERANCE).all())


def as_log_probs(
    values: NDArray[np.float64], columns: Sequence[str], kind: str | None = None, *, overwrite: bool = False
) -> tuple[NDArray[np.float64], str, str | None]:
    """Predictions as normalised log-probabilities.

    Args:
        values: Predictions, shape (n, K); a single column is the score of the second of two classes: its probability,
            log-probability or log odds.
        columns: Names of the columns, for errors.
        kind: What they are, one of `PREDICTION_KINDS`; recognised if not given.
        overwrite: Whether ``values`` may be replaced, so that memory is needed for some rows at a time.

    Returns:
        Log-probabilities, shape (n, K), of a single column (n, 2); what the predictions are; and a note if they had to
        be normalised.
    """
    for first in range(0, len(values), ROWS_AT_A_TIME):
        part = values[first : first + ROWS_AT_A_TIME]
        _require(~np.isnan(part), part, columns, "have a number in every row", first, remedy=REMEDY)
        _require(part < np.inf, part, columns, "be below infinity", first)
    if kind is not None and kind not in PREDICTION_KINDS:
        raise ValueError(
            f"`input` must be {', '.join(PREDICTION_KINDS[:-1])} or {PREDICTION_KINDS[-1]}, but got {kind!r}"
        )
    found = recognise_kind(values) if kind is None else kind
    count, width = values.shape
    log_probs = values if overwrite and width > 1 else np.empty((count, max(width, 2)))
    low, high = np.inf, -np.inf
    for first in range(0, len(values), ROWS_AT_A_TIME):
        rows = slice(first, first + ROWS_AT_A_TIME)
        log_probs[rows], sums = _normalised(values[rows], columns, found, first)
        low, high = min(low, float(sums.min())), max(high, float(sums.max()))
    if max(1 - low, high - 1) <= SUM_TOLERANCE:
        return log_probs, found, None
    text = (
        f"as probabilities, rows of {found} sum to {_range(np.array([low, high]))}, so they are normalised: other "
        "answers than these classes do not count"
    )
    return log_probs, found, text


def _normalised(
    values: NDArray[np.float64], columns: Sequence[str], kind: str, first: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-probabilities of some rows, and the sums of their probabilities before."""
    from scipy.special import log_softmax

    single = values.shape[1] == 1
    if kind == "probabilities":
        _require(values >= 0, values, columns, "hold probabilities, at least 0", first)
        if single:
            _require(values <= 1, values, columns, "hold probabilities, at most 1", first)
            values = np.hstack([1 - values, values])
        sums = values.sum(1)
        with np.errstate(divide="ignore"):
            values = np.log(values)
    elif kind == "log-probabilities":
        _require(values <= SUM_TOLERANCE, values, columns, "hold log-probabilities, at most 0", first)
        values = np.where(values <= NOT_SCORED, -np.inf, values)
        if single:
            with np.errstate(divide="ignore"):
                values = np.hstack([np.log(-np.expm1(np.minimum(values, 0))), values])
        sums = np.exp(values).sum(1)
    else:
        values = np.hstack([np.zeros_like(values), values]) if single else values
        sums = np.ones(len(values))
    empty = (values == -np.inf).all(1)
    if bool(empty.any()):
        raise ValueError(
            f"row {first + int(empty.argmax()) + 1} must give some class a positive probability, but gives none"
        )
    return np.asarray(log_softmax(values, axis=1)), sums


def _range(values: NDArray[np.float64]) -> str:
    low, high = (f"{each:.3g}" for each in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _require(
    good: NDArray[np.bool_],
    values: NDArray[np.float64],
    columns: Sequence[str],
    what: str,
    first: int,
    *,
    remedy: str = "",
) -> None:
    """Check values of some rows, before which there are ``first`` others."""
    if bool(good.all()):
        return
    row, column = (int(each) for each in np.argwhere(~good)[0])
    value = values[row, column]
    shown = "none" if np.isnan(value) else f"{value:g}"
    raise ValueError(f"the column {columns[column]!r} must {what}, but row {first + row + 1} has {shown}{remedy}")


NEGATIVE_LABELS: Final = ("0", "false", "no")
POSITIVE_LABELS: Final = ("1", "true", "yes")
"""Labels of the class that a single column scores, besides its name; also with capital letters."""


def parse_labels(column: TableColumn, classes: Sequence[str], positive: str | None = None) -> NDArray[np.int64]:
    """Labels as numbers of classes, -1 where there is none.

    Args:
        column: The column; an empty value is no label.
        classes: Names of the classes.
        positive: Of two classes, the one that 1, true and yes stand for too, and 0, false and no for the other.
    """
    texts = column.texts()
    place = {name: k for k, name in enumerate(classes)}
    if positive is not None:
        yes = 1 - place[positive] if positive.lower() in NEGATIVE_LABELS else place[positive]
        aliases = dict.fromkeys(POSITIVE_LABELS, yes) | dict.fromkeys(NEGATIVE_LABELS, 1 - yes)
        spellings = (str.lower, str.capitalize, str.upper)
        place = {spelt(text): k for text, k in aliases.items() for spelt in spellings} | place
    if column.numbers is not None:  # 1.0 is the class 1, where missing values have made whole numbers fractions
        texts = [
            None if np.isnan(number) else f"{number:.0f}" if text not in place and number.is_integer() else text
            for number, text in zip(column.numbers.tolist(), texts, strict=True)
        ]
    unknown = [text for text in texts if text is not None and text not in place]
    if unknown and positive is not None:
        raise ValueError(
            f"`labels` must be {listed(classes)}, 0, 1 or empty, but one is {unknown[0]!r}: name the two classes with "
            "`classes`"
        )
    if unknown:
        raise ValueError(
            f"`labels` must be classes or empty, but one is {unknown[0]!r}: {nearest(unknown[0], classes)}"
        )
    return np.array([UNLABELLED if text is None else place[text] for text in texts], dtype=np.int64)


def in_order(fractions: Mapping[str, float], classes: Sequence[str]) -> list[float]:
    """Class fractions in the order of the classes; one of two classes is enough, and the other has the rest.

    Example:
        >>> in_order({"spam": 0.25}, ["ham", "spam"])
        [0.75, 0.25]
    """
    if len(classes) == 2 and len(fractions) == 1 and set(fractions) < set(classes):
        (fraction,) = fractions.values()
        fractions = {**dict.fromkeys(classes, 1 - fraction), **fractions}
    if set(fractions) != set(classes):
        raise ValueError(
            f"`class_fractions` must name the classes {listed(classes)}, but names {listed(list(fractions))}"
        )
    return [fractions[name] for name in classes]
