"""Encodes the columns of a table for `SummaryClassifier`: a matrix of numbers, one-hot categories, and labels.

Categories are those of the training rows. Missing numbers stay NaN: the classifier imputes and standardises. A
`Preprocessing` is plain data and is stored as JSON.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from selbo.evaluation.belief_calibration import UNLABELLED
from selbo.tabular.columns import (
    INPUTS,
    CategoryInput,
    Choice,
    DateInput,
    EncodedColumn,
    Input,
    NumberInput,
    choose_input,
    unread_in_words,
)
from selbo.tabular.dates import DATE_PARTS
from selbo.tabular.problems import Problems
from selbo.tabular.spelling import BODIES, is_missing
from selbo.tabular.splits import FEWEST_ROWS
from selbo.tabular.table import NAMES_SHOWN, Numbers, Table, TableColumn, listed, nearest

PREPROCESSING_FORMAT: Final = "selbo-preprocessing-3"

MOST_FRACTIONS: Final = 10
MOST_WHOLE: Final = 50
"""Maximum number of classes of a numeric target, with and without fractional values; a quantity has more."""

WHOLE: Final = re.compile(r"-?\d{1,18}")
"""An integer that fits into 64 bits."""

WHOLE_SHARE: Final = 0.1
"""An integer target with more than fifty values is a quantity if it has more than one value per ten rows."""

UNREADABLE_SHARE: Final = 0.5
"""A column of another table is refused if more than half of its values cannot be read as in training."""

REASONS: Final = {
    "identifier": "columns that identify rows are left out: {}",
    "text": "columns of text with too many different values are left out: {}",
    "presence": "of text with too many different values, only whether it is there is used: {}",
    "constant": "columns with only one value are left out: {}",
    "type": "columns that are neither numbers nor text are left out: {}",
    "unreadable": "dates that cannot be read are left out: {}",
    "date": "dates are used as numbers (day, month, weekday, hour): {}",
    "rare": "rare categories are pooled into one: {}",
}
"""What is said about columns, together for all of a kind."""

OWN_NOTES: Final = {
    "spelling": "column {name!r} is read as numbers: {words}",
    "words": "column {name!r} is taken as text, with one input per value: {words}",
    "counter": "column {name!r} seems to number the rows: if so, leave it out with --drop {words}",
}
"""What is said about single columns."""


@dataclass(frozen=True)
class Preprocessing:
    """Encodes rows as features and labels as classes.

    Attributes:
        target: Name of the column with the labels; empty if there was none, but class fractions of groups.
        classes: Names of the classes, in the order of their indices.
        numeric_target: Whether the labels are numbers, so that 1 and 1.0 are the same class.
        inputs: The columns that are used.
        left_out: Columns of the training table that are not used.
        id_column: Column that identifies rows, which predictions keep; empty if there is none.
    """

    target: str
    classes: tuple[str, ...]
    numeric_target: bool
    inputs: tuple[Input, ...]
    left_out: tuple[str, ...] = ()
    id_column: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns used as inputs."""
        return tuple(each.name for each in self.inputs)

    @property
    def features(self) -> tuple[str, ...]:
        """Name of each feature: that of its column in the table."""
        return tuple(each.name for each in self.inputs for _ in range(each.width))

    @property
    def class_labels(self) -> NDArray[Any]:
        """The class labels in the form passed to `SummaryClassifier`."""
        return sortable_labels(self.classes, numeric=self.numeric_target)

    def transform(self, table: Table) -> tuple[Numbers, list[str]]:
        """Encode a table: features, shape (rows, features), NaN if missing, and notes for the user.

        Raises:
            ProblemsError: If columns are missing or have another type; names all of them.
        """
        encoded = self.encode(table)
        return self.joined(encoded), [*self.notes_on_columns(table), *self.notes_on_values(encoded)]

    def encode(self, table: Table, *, partial: bool = False) -> dict[str, EncodedColumn]:
        """Encode the columns of a table, by name.

        Args:
            table: The table.
            partial: Whether it is a part of a table, which may hold any number of values that cannot be read.

        Raises:
            ProblemsError: If columns are missing or have another type; names all of them.
        """
        names, problems = self.columns, Problems()
        there = [*table.columns, *table.other_columns]
        if missing := [name for name in names if name not in table.columns]:
            used = set(names)
            hint = nearest(missing[0], [each for each in there if each not in used], there=there)
            problems.add(
                f"{table.name} must have the columns of the training data, but has no {listed(missing)}: {hint}"
                f"{table.hint}"
            )
        encoded: dict[str, EncodedColumn] = {}
        for each in self.inputs:
            if each.name in table.columns:
                with problems.collecting():
                    encoded[each.name] = _encode_like_training(each, table)
                    if not partial:
                        self.check_unread(each, encoded[each.name], table.num_rows, table.name)
        problems.stop()
        return encoded

    def check_unread(self, each: Input, found: EncodedColumn, rows: int, name: str) -> None:
        """Check that most values of a column could be read as those of training were.

        Args:
            each: The column.
            found: Its values that are missing, and those that could not be read.
            rows: Number of its values.
            name: Name of the file.

        Raises:
            ValueError: If most of them could not.
        """
        unread, there = sum(found.unread.values()), rows - found.missing
        if not isinstance(each, CategoryInput) and unread > UNREADABLE_SHARE * there:
            kind = {"number": "numbers", "date": "dates"}[each.kind]
            odd = max(found.unread, key=lambda text: found.unread[text])
            raise ValueError(f"column {each.name!r} must hold {kind} as in training, but {name} has {odd[:40]!r} in it")

    def joined(self, encoded: Mapping[str, EncodedColumn]) -> Numbers:
        """Encoded columns side by side, shape (rows, features)."""
        return np.concatenate([encoded[name].block for name in self.columns], axis=1)

    def notes_on_columns(self, table: Table) -> list[str]:
        """Notes for the user on a table and its columns."""
        known = {*self.columns, *self.left_out, self.target, self.id_column}
        extra = [name for name in [*table.columns, *table.other_columns] if name not in known]
        return [*table.notes, *([f"columns unknown to the model are ignored: {listed(extra)}"] if extra else [])]

    def notes_on_values(self, encoded: Mapping[str, EncodedColumn]) -> list[str]:
        """Notes for the user on values that are missing or could not be read; only the counts are used."""
        notes, gaps, unread = [], dict[str, object](), dict[str, object]()
        for each in self.inputs:
            found = encoded[each.name]
            if found.missing and not each.missing:
                gaps[each.name] = found.missing
            if not found.unread:
                continue
            if isinstance(each, CategoryInput):
                count = sum(found.unread.values())
                notes.append(
                    f"column {each.name!r} has values {'rare or ' if each.other else ''}not seen in training, "
                    f"{listed(list(found.unread))}, in {count} {'row' if count == 1 else 'rows'}: they count as other "
                    "values"
                )
            else:
                unread[each.name] = unread_in_words(found.unread)
        if unread:
            notes.append(f"values that cannot be read as in training count as missing: {_described(unread)}")
        if gaps:
            notes.append(f"missing values in columns that had none in training are imputed: {_described(gaps)}")
        return notes

    def labels(self, table: Table) -> NDArray[np.int64]:
        """Class indices of all rows, -1 where there is no label.

        Raises:
            ValueError: If the target column is missing, or a label was not seen in training.
        """
        if not self.target:
            raise ValueError(f"the model was trained without labels, so name the column of {table.name} that has them")
        numbers: dict[str | None, int] = {name: k for k, name in enumerate(self.classes)}
        names = label_names(table, self.target, as_numbers=self.numeric_target, known=self.classes)
        if unseen := sorted({name for name in names if name is not None and name not in numbers}):
            count = sum(name is not None and name not in numbers for name in names)
            raise ValueError(
                f"column {self.target!r} has labels not seen in training, {listed(unseen)}, in {count} "
                f"{'row' if count == 1 else 'rows'}; the classes are {listed(self.classes)}"
            )
        return np.array([numbers.get(name, UNLABELLED) for name in names], dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        inputs = [{"kind": each.kind, **asdict(each)} for each in self.inputs]
        return {"format": PREPROCESSING_FORMAT, **asdict(self), "inputs": inputs}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Preprocessing":
        """Restore from plain data.

        Raises:
            ValueError: If an entry is missing or invalid.
        """
        if not isinstance(data, dict) or data.get("format") != PREPROCESSING_FORMAT:
            raise ValueError(f"preprocessing must have the format {PREPROCESSING_FORMAT!r}, but has another")
        target, inputs = data.get("target"), data.get("inputs")
        for name in ("target", "id_column"):
            if not isinstance(data.get(name), str):
                raise ValueError(f"`{name}` must be the name of a column")
        if not isinstance(data.get("numeric_target"), bool):
            raise ValueError("`numeric_target` must be true or false")
        if not isinstance(inputs, list) or not inputs:
            raise ValueError("`inputs` must be a list of columns")
        columns = tuple(_input_from_json(f"inputs[{i}]", each) for i, each in enumerate(inputs))
        if len({target, *(each.name for each in columns)}) <= len(columns):
            raise ValueError("`inputs` must be columns with different names, none of them the target")
        classes = _names("classes", data.get("classes"), at_least=2)
        left_out = _names("left_out", data.get("left_out"), at_least=0)
        assert isinstance(target, str)
        return cls(target, classes, data["numeric_target"], columns, left_out, data["id_column"])


def _input_from_json(name: str, data: Any) -> Input:
    kind = data.get("kind") if isinstance(data, dict) and isinstance(data.get("name"), str) else None
    if kind not in list(INPUTS):
        raise ValueError(f"`{name}` must be a column with a name and a kind")
    for key in ("missing", *{"category": ("other",), "date": ("day_first",)}.get(kind, ())):
        if not isinstance(data.get(key), bool):
            raise ValueError(f"`{name}.{key}` must be true or false")
    if kind == CategoryInput.kind:
        values = _names(f"{name}.values", data.get("values"), at_least=0)
        found = CategoryInput(data["name"], values, data["other"], data["missing"])
        if found.width == 0:
            raise ValueError(f"`{name}.values` must be a list of at least 1 different texts")
        return found
    if kind == DateInput.kind:
        parts = _names(f"{name}.parts", data.get("parts"), at_least=1)
        if not set(parts) <= set(DATE_PARTS):
            raise ValueError(f"`{name}.parts` must be some of {listed(list(DATE_PARTS))}")
        return DateInput(data["name"], parts, data["day_first"], data["missing"])
    if data.get("decimal") not in list(BODIES):
        raise ValueError(f"`{name}.decimal` must be a point or a comma")
    return NumberInput(data["name"], data["decimal"], data["missing"])


def _names(name: str, data: Any, *, at_least: int) -> tuple[str, ...]:
    """Validate a list of distinct strings."""
    good = isinstance(data, list) and all(isinstance(each, str) for each in data)
    if not good or len(set(data)) != len(data) or len(data) < at_least:
        raise ValueError(f"`{name}` must be a list of at least {at_least} different texts")
    return tuple(data)


def _encode_like_training(each: Input, table: Table) -> EncodedColumn:
    """Encode a column of another table.

    Raises:
        ValueError: If it holds neither numbers nor text.
    """
    column = table[each.name]
    if column.numbers is None and column.kind not in {"text", "date"}:
        raise ValueError(
            f"column {each.name!r} of {table.name} is of type {column.kind}, but was of numbers or text in training"
        )
    return each.encode(column)


# --- labels ---


def label_names(
    table: Table, target: str, *, as_numbers: bool | None = None, known: Sequence[str] = ()
) -> list[str | None]:
    """Labels of all rows as text, with numbers in one format; None where there is no label.

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
        return [None if np.isnan(each) else number_name(each) for each in column.numbers.tolist()]
    found = column.texts()
    sure = {*known, "none", "None", "NONE"}  # as in none, mild and severe
    if "+" in found:
        sure.add("-")  # plus and minus are two classes
    return [None if text is None or (text not in sure and is_missing(text)) else text for text in found]


def number_name(value: float) -> str:
    """A number as the name of a class or group: 1 and 1.0 are the same."""
    return str(int(value)) if value.is_integer() else repr(value)


def find_classes(table: Table, target: str) -> tuple[str, ...]:
    """Names of the classes in a table, sorted; integers by value.

    Raises:
        ValueError: If there is no label, the target is a quantity or an identifier, or has only one class.
    """
    counts: dict[str, int] = {}
    for name in label_names(table, target):
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    return classes_by_count(counts, table[target], target, num_rows=table.num_rows)


def classes_by_count(counts: Mapping[str, int], column: TableColumn, target: str, *, num_rows: int) -> tuple[str, ...]:
    """Names of the classes, sorted; integers by value.

    Args:
        counts: Number of rows of each class.
        column: The column of the labels, or its different values.
        target: Name of the column.
        num_rows: Number of rows of the table.

    Raises:
        ValueError: If there is no label, the target is a quantity or an identifier, or has only one class.
    """
    rows = sum(counts.values())
    if not counts:
        raise ValueError(f"the target must be known in some rows, but {target!r} has no value in {num_rows}")
    many = len(counts) > MOST_WHOLE and len(counts) > WHOLE_SHARE * rows
    if column.numbers is not None and (many or (column.kind == "number" and len(counts) > MOST_FRACTIONS)):
        raise ValueError(
            f"the target must be a column of classes, but {target!r} has {len(counts)} different numbers in "
            f"{rows} rows, as in regression: selbo trains classifiers"
        )
    if len(counts) < 2:
        gaps = num_rows - rows
        but = f", and {gaps} of {num_rows} rows have no label" if gaps else ""
        raise ValueError(
            f"the target must have at least 2 classes, but all of {target!r} is {next(iter(counts))!r}{but}"
        )
    rare = [name for name, count in counts.items() if count < FEWEST_ROWS]
    if len(rare) > len(counts) / 2 or len(counts) - len(rare) < 2:
        raise ValueError(
            f"most classes must have at least {FEWEST_ROWS} rows, and two of them must, but {len(rare)} of "
            f"{len(counts)} in {target!r} have fewer: {listed(rare)}"
        )
    return tuple(map(str, np.unique(sortable_labels(list(counts), numeric=column.numbers is not None)).tolist()))


def sortable_labels(names: Sequence[str], *, numeric: bool) -> NDArray[Any]:
    """Labels that sort as the classes do: integers by value, everything else as text."""
    if numeric and all(WHOLE.fullmatch(name) for name in names):
        return np.array([int(name) for name in names])
    return np.array(names, dtype=object)


# --- inputs ---


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
    keep: Sequence[str] = (),
    id_column: str = "",
) -> tuple[Preprocessing, list[str]]:
    """Fit the preprocessing on the training rows; also returns notes for the user.

    Args:
        table: The table with all rows.
        target: Column with the labels; may be None with groups.
        rows: Indices of the training rows.
        drop: Columns to leave out.
        groups: The column with the groups, which is no input, and their classes; if not given, the classes are those
            of the labels.
        keep: Columns to use even if they look like identifiers or free text.
        id_column: Column that identifies rows, which is no input.

    Raises:
        ProblemsError: If a column that is named is not there, the target is unsuitable, or no input is left.
    """
    problems, classes, numeric = Problems(), tuple[str, ...](), False
    with problems.collecting():
        if groups is None:
            assert target is not None
            classes, numeric = find_classes(table, target), table[target].numbers is not None
        else:
            classes, numeric = groups.classes, groups.numeric
    problems.add(*_named_problems(table, drop, keep, id_column, target))
    apart = {target, *drop, *([id_column] if id_column else []), *(() if groups is None else (groups.column,))}
    names = [name for name in table.columns if name not in apart]
    choices = {name: choose_input(name, table[name], rows, keep=name in keep) for name in names}
    inputs = tuple(each.input for each in choices.values() if each.input is not None)
    if not inputs:
        what = "the classes" if target is None else repr(target)
        told = "; ".join(_notes_about(choices))
        problems.add(
            f"there is no column to predict {what} from: all others are left out{f' ({told})' if told else ''}"
        )
    problems.stop()
    notes = [*_notes_about(choices), *_gaps(choices)]
    unused = {name for name, each in choices.items() if each.input is None}
    left_out = tuple(
        name for name in table.columns if name in unused or (name in apart and name not in {target, id_column})
    )
    return Preprocessing(target or "", classes, numeric, inputs, left_out, id_column), notes


def _named_problems(
    table: Table, drop: Sequence[str], keep: Sequence[str], id_column: str, target: str | None
) -> list[str]:
    """Problems of the columns that options name."""
    found = []
    for option, names in (("drop", drop), ("keep", keep), ("id", [id_column] if id_column else [])):
        for name in names:
            if name == target:
                what = "left out with --drop" if option == "drop" else f"named by --{option} too"
                found.append(f"the target {target!r} cannot be {what}")
            elif name not in table.columns:
                found.append(f"there is no column {name!r} in {table.name}: {nearest(name, table.columns)}{table.hint}")
            elif option == "keep" and name in {*drop, id_column}:
                found.append(f"column {name!r} cannot be both kept and left out")
    return found


def _notes_about(choices: dict[str, Choice]) -> list[str]:
    """What a user should know about columns: one note for all of a kind, or one each."""
    together: dict[str, dict[str, object]] = {why: {} for why in REASONS}
    own = []
    for name, each in choices.items():
        if each.why in together:
            together[each.why][name] = each.words
        elif each.why and each.words:
            own.append(OWN_NOTES[each.why].format(name=name, words=each.words))
    hint = " (--keep uses one all the same)"
    return [
        REASONS[why].format(_described(found)) + (hint if why in {"identifier", "text"} else "")
        for why, found in together.items()
        if found
    ] + own


def _gaps(choices: dict[str, Choice]) -> list[str]:
    """A note about missing values of the training rows."""
    counts = {name: each.missing for name, each in choices.items() if each.input is not None and each.missing}
    if not counts:
        return []
    ordered = sorted(counts, key=lambda name: -counts[name])
    return [
        f"missing values are imputed, and an indicator is added: {_described({name: counts[name] for name in ordered})}"
    ]


def _described(found: Mapping[str, object]) -> str:
    """The first names in quotes, each with a word about it, and the number of the others.

    Example:
        >>> _described({"age": 3, "site": ""})
        "'age' (3), 'site'"
    """
    shown = [f"{name!r} ({words})" if words != "" else repr(name) for name, words in list(found.items())[:NAMES_SHOWN]]
    more = f" and {len(found) - NAMES_SHOWN} more" if len(found) > NAMES_SHOWN else ""
    return ", ".join(shown) + more
