"""Encodes the columns of a table for `SummaryClassifier`: a matrix of numbers, one-hot categories, and labels.

Categories are those of the training rows; the classifier standardises. A `Preprocessing` is plain data and is stored as
JSON.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from selbo._numerics import mean_and_std
from selbo.tabular.spelling import first_odd, has_comma, is_missing, why_not_numbers
from selbo.tabular.table import Numbers, Table, TableColumn, listed, nearest

PREPROCESSING_FORMAT: Final = "selbo-preprocessing-2"

FEWEST_ROWS: Final = 3
"""Minimum number of rows per class: one each for training, validation and testing."""

IDENTIFIER_SHARE: Final = 0.5
FEWEST_IDENTIFIERS: Final = 10
"""A text column with more than ten distinct values, and more than one per two rows, is an identifier."""

MOST_CATEGORIES: Final = 1000
"""Maximum number of categories per column; each becomes a network input."""

MOST_FRACTIONS: Final = 10
MOST_WHOLE: Final = 50
"""Maximum number of classes of a numeric target, with and without fractional values; a quantity has more."""

WHOLE: Final = re.compile(r"-?\d{1,18}")
"""An integer that fits into 64 bits."""

WHOLE_SHARE: Final = 0.1
"""An integer target with more than fifty values is a quantity if it has more than one value per ten rows."""


@dataclass(frozen=True)
class NumberInput:
    """A numeric column, used unchanged."""

    name: str


@dataclass(frozen=True)
class CategoryInput:
    """A text column, one-hot encoded with one input per value; an unknown value is all zeros."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Preprocessing:
    """Encodes rows as features and labels as classes.

    Attributes:
        target: Name of the column with the labels; empty if there was none, but class fractions of groups.
        classes: Names of the classes, in the order of their indices.
        numeric_target: Whether the labels are numbers, so that 1 and 1.0 are the same class.
        inputs: The columns that are used.
        left_out: Columns of the training table that are not used.
    """

    target: str
    classes: tuple[str, ...]
    numeric_target: bool
    inputs: tuple[NumberInput | CategoryInput, ...]
    left_out: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns used as inputs."""
        return tuple(each.name for each in self.inputs)

    @property
    def features(self) -> tuple[str, ...]:
        """Name of each feature: that of its column in the table."""
        return tuple(
            each.name for each in self.inputs for _ in (each.values if isinstance(each, CategoryInput) else "1")
        )

    @property
    def class_labels(self) -> NDArray[Any]:
        """The class labels in the form passed to `SummaryClassifier`."""
        return sortable_labels(self.classes, numeric=self.numeric_target)

    def transform(self, table: Table) -> tuple[Numbers, list[str]]:
        """Encode a table: features, shape (rows, features), and notes for the user.

        Raises:
            ValueError: If a column is missing, has another type, or has missing values.
        """
        names = self.columns
        there = [*table.columns, *table.other_columns]
        if missing := [name for name in names if name not in table.columns]:
            used = set(names)
            hint = nearest(missing[0], [each for each in there if each not in used], there=there)
            raise ValueError(
                f"{table.name} must have the columns of the training data, but has no {listed(missing)}: {hint}"
            )
        check_usable(table, names, trained=True)
        notes = []
        known = {*names, *self.left_out, self.target}
        if extra := [name for name in there if name not in known]:
            notes.append(f"columns unknown to the model are ignored: {listed(extra)}")
        blocks = []
        for each in self.inputs:
            column = table[each.name]
            if isinstance(each, NumberInput):
                blocks.append(_numbers(each, column, table.name))
            else:
                block, unseen = _one_hot(each, column)
                blocks.append(block)
                if unseen:
                    count = sum(unseen.values())
                    notes.append(
                        f"column {each.name!r} has values not seen in training, {listed(list(unseen))}, in {count} "
                        f"{'row' if count == 1 else 'rows'}: encoded as none of the known ones"
                    )
        return np.concatenate(blocks, axis=1), notes

    def labels(self, table: Table) -> NDArray[np.int64]:
        """Class indices of all rows.

        Raises:
            ValueError: If the target column or a label is missing, or a label was not seen in training.
        """
        if not self.target:
            raise ValueError(f"the model was trained without labels, so name the column of {table.name} that has them")
        numbers = {name: k for k, name in enumerate(self.classes)}
        names = label_names(table, self.target, as_numbers=self.numeric_target, known=self.classes)
        if unseen := sorted(set(names) - set(numbers)):
            count = sum(name not in numbers for name in names)
            raise ValueError(
                f"column {self.target!r} has labels not seen in training, {listed(unseen)}, in {count} "
                f"{'row' if count == 1 else 'rows'}; the classes are {listed(self.classes)}"
            )
        return np.array([numbers[name] for name in names], dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"format": PREPROCESSING_FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Preprocessing":
        """Restore from plain data.

        Raises:
            ValueError: If an entry is missing or invalid.
        """
        if not isinstance(data, dict) or data.get("format") != PREPROCESSING_FORMAT:
            raise ValueError(f"preprocessing must have the format {PREPROCESSING_FORMAT!r}, but has another")
        target, inputs = data.get("target"), data.get("inputs")
        if not isinstance(target, str):
            raise ValueError("`target` must be the name of a column")
        if not isinstance(data.get("numeric_target"), bool):
            raise ValueError("`numeric_target` must be true or false")
        if not isinstance(inputs, list) or not inputs:
            raise ValueError("`inputs` must be a list of columns")
        columns = tuple(_input_from_json(f"inputs[{i}]", each) for i, each in enumerate(inputs))
        if len({target, *(each.name for each in columns)}) <= len(columns):
            raise ValueError("`inputs` must be columns with different names, none of them the target")
        classes = _names("classes", data.get("classes"), at_least=2)
        left_out = _names("left_out", data.get("left_out"), at_least=0)
        return cls(target, classes, data["numeric_target"], columns, left_out)


def _input_from_json(name: str, data: Any) -> NumberInput | CategoryInput:
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise ValueError(f"`{name}` must be a column with a name")
    if "values" in data:
        return CategoryInput(data["name"], _names(f"{name}.values", data["values"], at_least=1))
    return NumberInput(data["name"])


def _names(name: str, data: Any, *, at_least: int) -> tuple[str, ...]:
    """Validate a list of distinct strings."""
    good = isinstance(data, list) and all(isinstance(each, str) for each in data)
    if not good or len(set(data)) != len(data) or len(data) < at_least:
        raise ValueError(f"`{name}` must be a list of at least {at_least} different texts")
    return tuple(data)


# --- labels ---


def label_names(table: Table, target: str, *, as_numbers: bool | None = None, known: Sequence[str] = ()) -> list[str]:
    """Labels of all rows as text, with numbers in one format.

    Args:
        table: The table.
        target: The column.
        as_numbers: Whether the labels were numbers in training; inferred from the column if not given.
        known: Names that are classes even if they are words for a missing value.
    """
    column = table[target]
    if column.kind == "date" or (column.numbers is None and column.kind != "text"):
        what = "dates" if column.kind == "date" else f"values of type {column.kind}"
        raise ValueError(f"the target must be a column of classes, but {target!r} holds {what}")
    if column.numbers is not None and as_numbers is not False:
        missing = int(np.isnan(column.numbers).sum())
        names: list[str | None] = [number_name(each) for each in column.numbers.tolist()]
    else:
        names = column.texts()
        missing = sum(name is None for name in names)
    if missing:
        raise ValueError(
            f"the target must be known in every row, but {target!r} has none in {missing} of {table.num_rows}: "
            "leave those rows out"
        )
    found = [name for name in names if name is not None]
    sure = {*known, "none", "None", "NONE"}  # as in none, mild and severe
    if "+" in found:
        sure.add("-")  # plus and minus are two classes
    words = [name for name in found if name not in sure and is_missing(name)]
    if words:
        raise ValueError(
            f"the target must be known in every row, but {target!r} is {words[0]!r} in {found.count(words[0])} of "
            f"{table.num_rows}, a word for a missing value: leave those rows out, or, if it is a class, give it "
            "another name"
        )
    return found


def number_name(value: float) -> str:
    """A number as the name of a class or group: 1 and 1.0 are the same."""
    return str(int(value)) if value.is_integer() else repr(value)


def find_classes(table: Table, target: str) -> tuple[str, ...]:
    """Names of the classes in a table, sorted; integers by value.

    Raises:
        ValueError: If the target is a quantity, has only one class, or has a class with too few rows.
    """
    column = table[target]
    names = label_names(table, target)
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    many = len(counts) > MOST_WHOLE and len(counts) > WHOLE_SHARE * table.num_rows
    if column.numbers is not None and (many or (column.kind == "number" and len(counts) > MOST_FRACTIONS)):
        raise ValueError(
            f"the target must be a column of classes, but {target!r} has {len(counts)} different numbers in "
            f"{table.num_rows} rows, as in regression: selbo trains classifiers"
        )
    if len(counts) < 2:
        raise ValueError(f"the target must have at least 2 classes, but all of {target!r} is {names[0]!r}")
    rare = [name for name, count in counts.items() if count < FEWEST_ROWS]
    if rare:
        raise ValueError(
            f"every class must have at least {FEWEST_ROWS} rows, to train, validate and test on, but {len(rare)} of "
            f"{target!r} have fewer: {listed(rare)}"
        )
    return tuple(map(str, np.unique(sortable_labels(list(counts), numeric=column.numbers is not None)).tolist()))


def sortable_labels(names: Sequence[str], *, numeric: bool) -> NDArray[Any]:
    """Labels that sort as the classes do: integers by value, everything else as text."""
    if numeric and all(WHOLE.fullmatch(name) for name in names):
        return np.array([int(name) for name in names])
    return np.array(names, dtype=object)


# --- inputs ---


def check_usable(table: Table, names: Sequence[str], *, trained: bool = False) -> None:
    """Reject dates, types other than numbers and text, and missing or infinite values.

    Args:
        table: The table.
        names: The columns to use.
        trained: Whether a trained model needs these columns, so that none can be left out.
    """
    faults = []
    for name in names:
        column = table[name]
        if column.kind == "date":
            raise ValueError(
                f"column {name!r} of {table.name} holds dates, but did not in training"
                if trained
                else f"column {name!r} holds dates, which cannot be used as they are: turn them into numbers, such as "
                f"days since a day, or leave the column out with --drop {quote(name)}"
            )
        if column.numbers is None and column.kind != "text":
            raise ValueError(
                f"column {name!r} of {table.name} is of type {column.kind}, but was of numbers or text in training"
                if trained
                else f"column {name!r} is of type {column.kind}, neither numbers nor text: leave it out with "
                f"--drop {quote(name)}"
            )
        if column.numbers is not None:
            missing, infinite = int(np.isnan(column.numbers).sum()), int(np.isinf(column.numbers).sum())
        else:
            missing, infinite = sum(text is None for text in column.texts()), 0
        faults += [f"{name!r} has {missing} missing"] if missing else []
        faults += [f"{name!r} has {infinite} infinite"] if infinite else []
    if faults:
        shown = ", ".join(faults[:5]) + (f" and {len(faults) - 5} more columns have some" if len(faults) > 5 else "")
        raise ValueError(
            f"every value must be there and finite, but of {table.num_rows} in {table.name} {shown}: fill them in, or "
            f"leave out the rows{'' if trained else ', or the columns with --drop'}"
        )


@dataclass(frozen=True)
class GroupColumn:
    """The column with the groups, and the classes whose fractions are stated: their names, sorted, and their kind."""

    column: str
    classes: tuple[str, ...]
    numeric: bool


def fit_preprocessing(
    table: Table,
    *,
    target: str | None,
    rows: NDArray[np.int64],
    drop: Sequence[str] = (),
    groups: "GroupColumn | None" = None,
) -> tuple[Preprocessing, list[str]]:
    """Fit the preprocessing on the training rows; also returns notes for the user.

    Args:
        table: The table with all rows.
        target: Column with the labels; may be None with groups.
        rows: Indices of the training rows.
        drop: Columns to leave out.
        groups: The column with the groups, which is no input, and their classes; if not given, the classes are those
            of the labels.
    """
    if groups is None:
        assert target is not None
        classes, numeric = find_classes(table, target), table[target].numbers is not None
    else:
        classes, numeric = groups.classes, groups.numeric
    _check_dropped(table, drop, target)
    apart = {target, *drop, *(() if groups is None else (groups.column,))}
    names = [name for name in table.columns if name not in apart]
    check_usable(table, names)
    notes: list[str] = []
    inputs: list[NumberInput | CategoryInput] = []
    constant = []
    for name in names:
        column = table[name]
        found: NumberInput | CategoryInput | None
        if column.numbers is None:
            found = _categories(name, column, rows)
        else:
            found = None if mean_and_std(column.numbers[rows]) is None else NumberInput(name)
        if found is None:
            constant.append(name)
        else:
            inputs.append(found)
        if isinstance(found, CategoryInput) and (reason := why_not_numbers(found.values)):
            notes.append(f"column {name!r} is taken as text, with one input per value: {reason}")
        if column.kind == "integer" and column.numbers is not None and _counts_rows(column.numbers):
            notes.append(f"column {name!r} seems to number the rows: if so, leave it out with --drop {quote(name)}")
    if not inputs:
        what = "the classes" if target is None else repr(target)
        raise ValueError(f"there is no column to predict {what} from: all others are constant or left out")
    if constant:
        notes.append(f"columns with only one value are left out: {listed(constant)}")
    left_out = tuple(name for name in table.columns if name in constant or (name in apart and name != target))
    return Preprocessing(target or "", classes, numeric, tuple(inputs), left_out), notes


def _check_dropped(table: Table, drop: Sequence[str], target: str | None) -> None:
    for name in drop:
        if name == target:
            raise ValueError(f"the target {target!r} cannot be left out with --drop")
        _ = table[name]


def _categories(name: str, column: TableColumn, rows: NDArray[np.int64]) -> CategoryInput | None:
    texts = [text for text in column.texts() if text is not None]
    different = set(texts)
    if len(different) > FEWEST_IDENTIFIERS and (reason := why_not_numbers(texts)):
        todo = (
            "write them with a decimal point, and nothing between thousands"
            if any(map(has_comma, different))
            else "write a number there, or leave out the rows, or, if the numbers are codes, put a letter before each"
        )
        raise ValueError(
            f"column {name!r} must hold numbers alone, or text: {reason}: {todo}; or leave the column out with "
            f"--drop {quote(name)}"
        )
    if len(different) > max(FEWEST_IDENTIFIERS, IDENTIFIER_SHARE * len(texts)) or len(different) > MOST_CATEGORIES:
        stored = "" if first_odd(different) else "store its numbers as numbers, or "
        raise ValueError(
            f"column {name!r} is text with {len(different)} different values in {len(texts)} rows, as an identifier "
            f"has: {stored}leave it out with --drop {quote(name)}"
        )
    values = tuple(sorted({texts[row] for row in rows.tolist()}))
    return None if len(values) == 1 else CategoryInput(name, values)


def _counts_rows(values: Numbers) -> bool:
    return len(values) > FEWEST_IDENTIFIERS and bool((np.diff(values) == 1).all())


def _numbers(each: NumberInput, column: TableColumn, file: str) -> Numbers:
    if column.numbers is None:
        odd = first_odd(text for text in column.texts() if text is not None)
        what = "text" if odd is None else repr(odd)
        raise ValueError(f"column {each.name!r} must hold numbers as in training, but {file} has {what} in it")
    return column.numbers[:, None]


def _one_hot(each: CategoryInput, column: TableColumn) -> tuple[Numbers, dict[str, int]]:
    """One-hot inputs, shape (rows, values), and the count of each unknown value."""
    place = {value: i for i, value in enumerate(each.values)}
    texts = column.texts()
    block = np.zeros((len(texts), len(place)))
    unseen: dict[str, int] = {}
    for row, text in enumerate(texts):
        if text in place:
            block[row, place[text]] = 1
        else:
            unseen[str(text)] = unseen.get(str(text), 0) + 1
    return block, unseen
