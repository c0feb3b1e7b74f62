"""How a column of a table becomes inputs of a classifier: numbers, dates, or categories; or why it is left out.

An input is plain data. Missing values are NaN in numbers, which the classifier imputes, and a category of their own.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selbo._numerics import mean_and_std
from selbo.estimator.categories import OneHot
from selbo.tabular.dates import DATE_PARTS, dates_as_numbers, day_comes_first, parse_date
from selbo.tabular.spelling import (
    MOSTLY,
    decimal_mark,
    is_missing,
    is_number,
    parse_number,
    why_not_numbers,
    without_gaps,
)
from selbo.tabular.table import Numbers, TableColumn, Texts

FEWEST_IDENTIFIERS: Final = 10
"""A column with at most ten distinct values is never an identifier or free text."""

IDENTIFIER_SHARE: Final = 0.5
"""Share of the rows whose values must be different in a column that is an identifier by its name."""

CHANCE_OF_NUMBERS: Final = 1e-6
LEAST_DENSITY: Final = 0.01
"""Whole numbers number the rows, such as cases, if they are all different though random ones from their range would
almost surely repeat, and at least this share of the range occurs: a sample of cases has gaps."""

YEARS: Final = (1500, 2100)
"""Range of whole numbers that may be years: those differ too in a table with one row per year."""

POOLED_SHARE: Final = 0.5
"""A column is free text if more than half of its rows have rare values."""

PRESENCE: Final = 0.05
"""Of free text, whether it is there is used if it is missing in at least so many rows, and there in as many."""

IDENTIFIER_NAMES: Final = frozenset(
    {"", "id", "ids", "uuid", "guid", "index", "idx", "rowname", "rownames", "row", "key"}
)
"""Last words of the name of a column that numbers rows."""


class EncodedColumn(NamedTuple):
    """A column as numbers.

    Attributes:
        block: Numbers, shape (rows, inputs).
        missing: Number of rows without a value.
        unread: Values that could not be read, which count as missing, or categories that training did not have.
    """

    block: Numbers
    missing: int
    unread: dict[str, int]


@dataclass(frozen=True)
class NumberInput:
    """A column of numbers.

    Attributes:
        name: The column.
        decimal: Decimal mark of numbers that are spelt in text.
        missing: Whether values were missing in training.
    """

    kind: ClassVar[str] = "number"
    name: str
    decimal: str = "."
    missing: bool = False

    @property
    def width(self) -> int:
        """Number of inputs."""
        return 1

    def encode(self, column: TableColumn) -> EncodedColumn:
        """Encode a column; values that are no numbers, or infinite, are missing."""
        unread: dict[str, int] = {}
        values = column.numbers
        if values is None:
            values = self._parsed(column.texts(), unread)
        values = np.where(np.isfinite(values), values, np.nan)
        return EncodedColumn(values[:, None], int(np.isnan(values).sum()) - sum(unread.values()), unread)

    def _parsed(self, texts: Texts, unread: dict[str, int]) -> Numbers:
        known: dict[str | None, float | None] = {None: None}
        for text in set(texts):
            if text is not None and not is_missing(text):
                known[text] = (
                    float(text) if is_number(text) and self.decimal == "." else parse_number(text, self.decimal)
                )
        found = [known.get(text) for text in texts]
        for text, value in zip(texts, found, strict=True):
            if value is None and text in known and text is not None:
                unread[text] = unread.get(text, 0) + 1
        return np.array([np.nan if value is None else value for value in found])


@dataclass(frozen=True)
class DateInput:
    """A column of dates.

    Attributes:
        name: The column.
        parts: Numbers of a date that are used, see `selbo.tabular.dates.DATE_PARTS`.
        day_first: Whether days come before months.
        missing: Whether values were missing in training.
    """

    kind: ClassVar[str] = "date"
    name: str
    parts: tuple[str, ...]
    day_first: bool = False
    missing: bool = False

    @property
    def width(self) -> int:
        """Number of inputs."""
        return len(self.parts)

    def encode(self, column: TableColumn) -> EncodedColumn:
        """Encode a column; values that are no dates are missing."""
        texts = column.texts()
        there = {text for text in texts if text is not None and not is_missing(text)}
        known = {text: parse_date(text, day_first=self.day_first) for text in there}
        unread = Counter(text for text in texts if text is not None and text in known and known[text] is None)
        dates = [None if text is None else known.get(text) for text in texts]
        missing = sum(date is None for date in dates) - unread.total()
        return EncodedColumn(dates_as_numbers(dates, self.parts), missing, dict(unread))


@dataclass(frozen=True)
class CategoryInput:
    """A column of text, one input per category; see `selbo.estimator.categories.OneHot`.

    Attributes:
        name: The column.
        values: Categories with an input of their own. None of them: only whether there is a value is used.
        other: Whether rare categories share an input.
        missing: Whether missing values have an input.
    """

    kind: ClassVar[str] = "category"
    name: str
    values: tuple[str, ...]
    other: bool = False
    missing: bool = False

    @property
    def width(self) -> int:
        """Number of inputs."""
        return self.one_hot.width

    @property
    def one_hot(self) -> OneHot:
        """The encoding."""
        return OneHot(self.values, self.other, self.missing)

    def encode(self, column: TableColumn) -> EncodedColumn:
        """Encode a column."""
        known, texts = set(self.values), column.texts()
        texts = [text if text in known else gap for text, gap in zip(texts, without_gaps(texts), strict=True)]
        counts = Counter(texts)
        unseen = {text: count for text, count in counts.items() if text is not None and known and text not in known}
        return EncodedColumn(self.one_hot(texts), counts[None], unseen)


Input = NumberInput | DateInput | CategoryInput
INPUTS: Final = {kind.kind: kind for kind in (NumberInput, DateInput, CategoryInput)}


class Choice(NamedTuple):
    """How a column is used.

    Attributes:
        input: What becomes of it; None if it is left out.
        why: Why it is left out, or what a user should know: a key of `selbo.tabular.preprocessing.REASONS`; or empty.
        words: More about it, in words; or empty.
        missing: Number of training rows without a value.
    """

    input: Input | None
    why: str = ""
    words: str = ""
    missing: int = 0


def choose_input(name: str, column: TableColumn, rows: NDArray[np.int64], *, keep: bool = False) -> Choice:
    """Choose how to use a column.

    Args:
        name: Name of the column.
        column: Its values, of all rows.
        rows: Indices of the training rows.
        keep: Whether to use it even if it looks like an identifier or free text.
    """
    if column.numbers is not None:
        return _choose_number(NumberInput(name), column, rows, keep=keep)
    if column.kind not in {"text", "date"}:
        return Choice(None, "type", column.kind)
    texts = without_gaps(column.texts())
    there = [text for text in texts if text is not None]
    if not there:
        return Choice(None, "constant")
    if (found := _choose_date(name, column, there, rows)) is not None:
        return found
    mark, share = decimal_mark(there)
    different = set(there)
    if share == 1 or (share >= MOSTLY and len(different) > FEWEST_IDENTIFIERS):
        return _choose_number(NumberInput(name, mark), column, rows, keep=True)
    return _choose_categories(name, texts, there, rows, keep=keep)


def _choose_number(each: NumberInput, column: TableColumn, rows: NDArray[np.int64], *, keep: bool) -> Choice:
    encoded = each.encode(column)
    values = encoded.block[:, 0]
    train = values[rows]
    there = train[~np.isnan(train)]
    missing = len(train) - len(there)
    if len(there) == 0 or (not missing and mean_and_std(there) is None):
        return Choice(None, "constant")
    if not keep and column.kind == "integer" and _is_identifier(each.name, values):
        return Choice(None, "identifier")
    words, why = "", ""
    if column.numbers is None:
        texts = column.texts()
        why = "spelling"
        odd = next(
            (
                text
                for text, value in zip(texts, values, strict=True)
                if text and np.isfinite(value) and not is_number(text)
            ),
            None,
        )
        if odd is not None:
            words = f"{odd!r} as {parse_number(odd, each.decimal):.10g}"
        if encoded.unread:
            words += f"{'; ' if words else ''}{unread_in_words(encoded.unread)} as missing"
    elif (
        len(values) > FEWEST_IDENTIFIERS
        and column.kind == "integer"
        and bool((np.diff(values) == 1).all())
        and not keep
    ):
        why, words = "counter", quote(each.name)
    return Choice(NumberInput(each.name, each.decimal, missing > 0), why, words, missing)


def unread_in_words(unread: dict[str, int]) -> str:
    """The most frequent of some values, and the number of rows: "'n. d.' in 3 rows", "'x' and 4 others in 9 rows"."""
    first = max(unread, key=lambda text: unread[text])
    others = len(unread) - 1
    more = "" if not others else f" and {others} other{'' if others == 1 else 's'}"
    count = sum(unread.values())
    return f"{first[:40]!r}{more} in {count} {'row' if count == 1 else 'rows'}"


def _is_identifier(name: str, values: Numbers) -> bool:
    """Whether whole numbers number the rows, in any order: by the name of the column, or since all are different."""
    there = values[~np.isnan(values)]
    different = np.unique(there)
    if len(there) < len(values) or len(different) <= FEWEST_IDENTIFIERS:
        return False
    if named_identifier(name) and len(different) > IDENTIFIER_SHARE * len(there):
        return True
    count, low, high = len(there), float(different[0]), float(different[-1])
    if len(different) < count:
        return False
    span = high - low + 1
    if low in {0, 1} and span == count:
        return True
    among_years = low >= YEARS[0] and high <= YEARS[1]
    none_twice = -count * (count - 1) / (2 * span)  # log-probability for random numbers
    return not among_years and none_twice < math.log(CHANCE_OF_NUMBERS) and count >= LEAST_DENSITY * span


def named_identifier(name: str) -> bool:
    """Whether the name of a column says that it identifies rows.

    Example:
        >>> [
        ...     named_identifier(each)
        ...     for each in ("PassengerId", "patient_id", "ID", "Unnamed: 0", "paid", "width")
        ... ]
        [True, True, True, True, False, False]
    """
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    last = words[-1].lower() if words else ""
    return last in IDENTIFIER_NAMES or name.lower().startswith("unnamed")


def _choose_date(name: str, column: TableColumn, there: Sequence[str], rows: NDArray[np.int64]) -> Choice | None:
    """A column of dates; None if it holds something else."""
    different = list(dict.fromkeys(there))
    some = different[:100]
    if column.kind != "date" and not any(parse_date(text) or parse_date(text, day_first=True) for text in some):
        return None
    each = DateInput(name, tuple(DATE_PARTS), day_comes_first(different))
    encoded = each.encode(column)
    if sum(encoded.unread.values()) > (1 - MOSTLY) * len(there):
        return Choice(None, "unreadable") if column.kind == "date" else None
    train = encoded.block[rows]
    missing = int(np.isnan(train[:, 0]).sum())
    parts = tuple(part for part, values in zip(DATE_PARTS, train.T, strict=True) if _varies(values))
    if not parts and not missing:
        return Choice(None, "constant")
    order = ""
    if any(re.fullmatch(r"\d{1,2}[-/.]\d{1,2}[-/.].*", text) for text in some):
        order = "day first" if each.day_first else "month first"
    return Choice(DateInput(name, parts or ("day",), each.day_first, missing > 0), "date", order, missing)


def _varies(values: Numbers) -> bool:
    there = values[~np.isnan(values)]
    return len(there) > 0 and mean_and_std(there) is not None


def _choose_categories(name: str, texts: Texts, there: Sequence[str], rows: NDArray[np.int64], *, keep: bool) -> Choice:
    train = [texts[row] for row in rows.tolist()]
    found = OneHot.of(train)
    different = len(set(there))
    counts = Counter(text for text in train if text is not None)
    if not counts or (found.width < 2 and len(counts) == 1):
        return Choice(None, "constant")
    pooled = counts.total() - sum(counts[value] for value in found.values)
    free = different > FEWEST_IDENTIFIERS and pooled > POOLED_SHARE * counts.total() and not keep
    if free or not found.values:
        share = counts.total() / len(train)
        if PRESENCE <= share <= 1 - PRESENCE:
            return Choice(CategoryInput(name, (), other=True, missing=True), "presence")
        return Choice(None, "identifier" if different == len(there) else "text")
    each, missing = CategoryInput(name, found.values, found.other, found.missing), len(train) - counts.total()
    if reason := why_not_numbers(found.values):
        return Choice(each, "words", reason, missing)
    rare = len(counts) - len(found.values)
    return Choice(each, "rare" if rare else "", f"{rare} of {len(counts)}" if rare else "", missing)
