"""Encodes categories as zeros and ones: those of a column of a file, and of a data frame with columns of text."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

import numpy as np

from selbo._numerics import FloatArray
from selbo.estimator.group_intake import is_absent

RARE_SHARE: Final = 0.01
FEWEST_TOGETHER: Final = 2
MOST_TOGETHER: Final = 10
"""A category is rare if it has fewer rows than 1 % of them, but at least in one row and at most in nine."""

MOST_CATEGORIES: Final = 200
"""Maximum number of categories per column, the most frequent ones; each becomes a network input."""


def rows_of_a_category(rows: int) -> int:
    """Number of rows from which on a category has an input of its own.

    Example:
        >>> rows_of_a_category(30), rows_of_a_category(450), rows_of_a_category(8000)
        (2, 5, 10)
    """
    return min(max(math.ceil(RARE_SHARE * rows), FEWEST_TOGETHER), MOST_TOGETHER)


@dataclass(frozen=True)
class OneHot:
    """Categories of a column, one input each; then one for all others together, and one for missing values.

    Attributes:
        values: Categories with an input of their own.
        other: Whether rare categories share an input. Values that training did not have are encoded by it, or by
            zeros alone if there is none.
        missing: Whether values were missing in training, so that there is an input that says so.
    """

    values: tuple[Any, ...]
    other: bool = False
    missing: bool = False

    @classmethod
    def of(cls, column: Sequence[Any]) -> "OneHot":
        """The categories of a column; rare ones are pooled, and so are the least frequent ones of very many.

        Example:
            >>> OneHot.of(["a", "b", None, "b", "c", "a"])
            OneHot(values=('a', 'b'), other=True, missing=True)
        """
        counts = Counter(column)
        for each in [each for each in counts if is_absent(each)]:
            del counts[each]
        fewest = rows_of_a_category(counts.total())
        frequent = [value for value, count in counts.most_common(MOST_CATEGORIES) if count >= fewest]
        missing = counts.total() < len(column)
        return cls(tuple(sorted(frequent, key=_order)), len(frequent) < len(counts), missing)

    @property
    def width(self) -> int:
        """Number of inputs."""
        return len(self.values) + self.other + self.missing

    def names(self, column: str) -> list[str]:
        """Names of the inputs."""
        more = (("(other)", self.other), ("(missing)", self.missing))
        return [f"{column}={each}" for each in (*self.values, *(name for name, there in more if there))]

    def __call__(self, column: Iterable[Any]) -> FloatArray:
        """Encode a column, shape (rows, inputs). An unknown value that has no input is all zeros."""
        values = list(column)
        place = {value: i for i, value in enumerate(self.values)}
        other = len(place) if self.other else None
        missing = len(place) + self.other if self.missing else None
        places = {each: missing if is_absent(each) else place.get(each, other) for each in set(values)}
        block = np.zeros((len(values), self.width + 1))
        found = [places[each] for each in values]
        block[np.arange(len(values)), [self.width if each is None else each for each in found]] = 1.0
        return block[:, : self.width]


def _order(value: Any) -> tuple[str, Any]:
    """Numbers by size, everything else by its text."""
    return ("", value) if isinstance(value, Real) else (type(value).__name__, str(value))


@dataclass(frozen=True)
class FrameEncoder:
    """Turns a data frame with columns of text or categories into numbers.

    Attributes:
        columns: For each column its categories; None for a column of numbers.
        names: Names of the columns.
    """

    columns: tuple[OneHot | None, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, frame: Any) -> "FrameEncoder | None":
        """The encoder of a pandas or polars data frame; None for anything else, and if all columns are numbers."""
        if not hasattr(frame, "columns") or not hasattr(frame, "dtypes"):
            return None
        names = tuple(str(name) for name in frame.columns)
        kinds = []
        for i, name in enumerate(names):
            column = _column(frame, i)
            kinds.append(None if _is_numeric(column) else OneHot.of(_categories(name, column)))
        return cls(tuple(kinds), names) if any(kinds) else None

    @property
    def features(self) -> list[str]:
        """Names of the numbers."""
        parts = zip(self.names, self.columns, strict=True)
        return [each for name, kind in parts for each in ([name] if kind is None else kind.names(name))]

    def __call__(self, X: Any) -> FloatArray:
        """Encode a data frame, or an array with the same columns, shape (rows, numbers); NaN where one is missing.

        Raises:
            ValueError: If there are other columns than in training, or one of numbers holds something else.
        """
        given = X if hasattr(X, "columns") else np.asarray(X, dtype=object)
        if len(given.shape) != 2 or given.shape[1] != len(self.columns):
            raise ValueError(f"`X` must have {len(self.columns)} columns, as in training, but has shape {given.shape}")
        blocks = []
        for i, (name, kind) in enumerate(zip(self.names, self.columns, strict=True)):
            column = _column(given, i)
            if kind is None:
                blocks.append(_as_numbers(name, column)[:, None])
            else:
                blocks.append(kind(_categories(name, column)))
        return np.concatenate(blocks, axis=1)


def _column(frame: Any, index: int) -> Any:
    """A column by its position, since names may repeat."""
    if isinstance(frame, np.ndarray):
        return frame[:, index]
    return frame.iloc[:, index] if hasattr(frame, "iloc") else frame.to_series(index)


def _is_numeric(column: Any) -> bool:
    """Whether a column holds numbers; categories that happen to be numbers are none."""
    if str(column.dtype) == "category":
        return False
    if np.asarray(column).dtype.kind in "biuf":
        return True
    return all(is_absent(each) or isinstance(each, Real) for each in column)


def _as_numbers(name: str, column: Any) -> FloatArray:
    try:
        return np.array([np.nan if is_absent(each) else float(each) for each in column])
    except (TypeError, ValueError):
        raise ValueError(
            f"column {name!r} of `X` must hold numbers, as in training, but holds something else"
        ) from None


def _categories(name: str, column: Any) -> list[Any]:
    found = list(column)
    for each in found:
        if not isinstance(each, (str, Real, bytes)) and not is_absent(each):
            raise ValueError(
                f"column {name!r} of `X` must hold numbers or categories, but holds {type(each).__name__}: turn it "
                "into numbers, or leave it out"
            )
    return found
