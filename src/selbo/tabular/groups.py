"""Class fractions of groups as a table: one row per group, with its name and one column per class."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selbo.estimator.group_units import are_whole, find_unit, sums_off
from selbo.evaluation.belief_calibration import UNLABELLED
from selbo.tabular.group_columns import (
    PRECISION_COLUMNS,
    concentration_of_margins,
    find_group_classes,
    parse_columns,
)
from selbo.tabular.preprocessing import GroupColumn, number_name, sortable_labels
from selbo.tabular.spelling import is_missing, is_number
from selbo.tabular.table import Numbers, Table, TableColumn, listed, nearest, read_table

HINTED: Final = 3
"""Number of missing names for which another spelling is looked for."""


@dataclass(frozen=True)
class GroupSource:
    """Where the class fractions of groups are stated.

    Attributes:
        column: Column of the data with the group of each row.
        fractions: Table with one row per group.
        concentration: Concentration of all groups, if it is stated; "auto" to estimate it.
        classes: Columns of the table with the classes; found if not given.
    """

    column: str
    fractions: Path
    concentration: float | str | None = None
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class GroupTable(GroupColumn):
    """The content of a table of groups.

    Attributes:
        name: Name of the file.
        fractions: Fraction of each class, in their order, by group.
        concentration: Concentration of all groups, or by group; "auto" to estimate it, None for the default.
        notes: Notes for the user.
    """

    name: str
    fractions: dict[str, tuple[float, ...]]
    concentration: float | str | dict[str, float] | None
    notes: tuple[str, ...] = ()

    def arguments(self, groups: Sequence[str | None]) -> dict[str, Any]:
        """Arguments of `SummaryClassifier.fit` for rows of these groups."""
        present = set(groups)
        labels = sortable_labels(self.classes, numeric=self.numeric).tolist()
        kept = {group: dict(zip(labels, row, strict=True)) for group, row in self.fractions.items() if group in present}
        strength = self.concentration
        if isinstance(strength, Mapping):
            strength = {group: strength[group] for group in kept}
        return {"groups": list(groups), "group_fractions": kept, "group_concentration": strength}


def read_groups(source: GroupSource, data: Table, *, target: str | None = None) -> tuple[GroupTable, list[str | None]]:
    """Read the table of groups, and the group of each row of the data, None for none.

    Columns of numbers are classes by `find_group_classes`, unless `GroupSource.classes` names them.

    Args:
        source: Where the fractions are stated.
        data: The data.
        target: Column of the data with labels, if there are any.

    Raises:
        ValueError: If something is wrong; one sentence that names all problems.
    """
    table = _with_spelt_numbers(read_table(source.fractions), source.column)
    own, named = data[source.column], table[_name_column(table, source.column)]
    as_numbers = own.numbers is not None and named.numbers is not None
    of_rows, names = (_names(each, as_numbers=as_numbers) for each in (own, named))
    chosen = _class_columns(table, source, _label_counts(data, target))
    columns, ignored = chosen.columns, chosen.ignored
    problems = [*_name_problems(names), *_missing_groups(of_rows, names, data.name)]
    values, strength, wrong = _statement(table, source, columns, names)
    problems += wrong
    if len(columns) < 2:
        found = f"only {columns[0]!r} does" if columns else "none does"
        hint = f" ({listed(ignored)} hold none)" if ignored else ""
        problems.append(f"two or more columns must hold numbers, one per class, but {found}{hint}")
    if problems:
        raise ValueError(
            f"{table.name} must state the class fractions of each group, one row per group: {'; '.join(problems)}"
        )
    known, present = [str(name) for name in names], set(of_rows)
    notes = [f"{table.name}: {text}" for text in table.notes]
    if ignored:
        notes.append(f"columns of {table.name} that hold no numbers are ignored: {listed(ignored)}")
    if chosen.note:
        notes.append(chosen.note)
    if absent := [name for name in known if name not in present]:
        notes.append(f"{table.name} states groups that no row of {data.name} has: {listed(absent)}")
    classes, order, numeric = _classes(columns)
    by_group = {name: tuple(row.tolist()) for name, row in zip(known, values[:, order], strict=True)}
    sure = source.concentration if strength is None else dict(zip(known, strength.tolist(), strict=True))
    return GroupTable(source.column, classes, numeric, table.name, by_group, sure, tuple(notes)), of_rows


def _with_spelt_numbers(table: Table, column: str) -> Table:
    """The table with columns of text whose values are all numbers in another spelling, such as 30.1% or 0,3."""
    texts = {
        name: [text or "" for text in each.texts()]
        for name, each in table.columns.items()
        if each.numbers is None and name != column
    }
    spelt = {
        name: TableColumn("number", numbers, table[name].texts)
        for name, numbers in parse_columns(texts).items()
        if not np.isnan(numbers).any()
    }
    return replace(table, columns=table.columns | spelt)


def _statement(
    table: Table, source: GroupSource, columns: Sequence[str], names: Sequence[str | None]
) -> tuple[Numbers, Numbers | None, list[str]]:
    """Fractions and concentration of each group, and problems."""
    given, problems = [name for name in PRECISION_COLUMNS if name in table.columns], []
    if given and source.concentration is not None:
        problems.append(f"it has a column {given[0]!r}, and `group_concentration` is given too")
    if len(given) > 1:
        problems.append(f"only one of {listed(given)} can give the precision of the fractions")
    if len(columns) < 2:
        return np.empty((len(names), 0)), None, problems
    shares, unit, wrong = _shares(table, columns, names)
    strength, others = _precision(table, shares, unit, names)
    return shares, strength, [*problems, *wrong, *others]


def _name_column(table: Table, column: str) -> str:
    """Column with the names of the groups: that of the same name, or the only one of text."""
    if column in table.columns:
        return column
    texts = [name for name, each in table.columns.items() if each.numbers is None]
    if len(texts) == 1:
        return texts[0]
    raise ValueError(
        f"{table.name} must have the column {column!r}, with the names of the groups: {nearest(column, table.columns)}"
    )


def _names(column: TableColumn, *, as_numbers: bool) -> list[str | None]:
    if as_numbers and column.numbers is not None:
        return [None if np.isnan(each) else number_name(each) for each in column.numbers.tolist()]
    return list(column.texts())


class _ClassColumns(NamedTuple):
    columns: list[str]
    ignored: list[str]
    """Columns without numbers."""
    note: str = ""


def _class_columns(table: Table, source: GroupSource, labels: Mapping[str, int]) -> _ClassColumns:
    """Columns that are classes, and what to tell the user about them."""
    names = _name_column(table, source.column)
    rest = [name for name in table.columns if name != names and name not in PRECISION_COLUMNS]
    numeric = [name for name in rest if table[name].numbers is not None]
    ignored = [name for name in rest if name not in numeric]
    if source.classes is not None:
        for name in source.classes:
            if name not in numeric:
                raise ValueError(
                    f"`group_classes` must name columns of numbers in {table.name}, but {name!r} is none: "
                    f"{nearest(name, numeric)}"
                )
        return _ClassColumns(list(dict.fromkeys(source.classes)), ignored)
    values = {name: np.asarray(table[name].numbers) for name in numeric}
    found = find_group_classes(values, _labels_by_column(numeric, labels))
    remedy = "name the classes with `group_classes`"
    if others := found.left_out:
        note = f"{listed(others)} {'is' if len(others) == 1 else 'are'} left out; if a class is missing, {remedy}"
    elif found.doubtful:
        note = f"if one of them is no class, {remedy}"
    else:
        return _ClassColumns(found.columns, ignored)
    what = "counts" if found.counted else "fractions"
    return _ClassColumns(
        found.columns, ignored, f"{what} are read from {listed(found.columns)} of {table.name}; {note}"
    )


def _labels_by_column(columns: Sequence[str], labels: Mapping[str, int]) -> dict[str, int]:
    """Number of labels of each column; empty if there are labels of something else."""
    spelt = _spelt(columns)
    return dict(zip(columns, (labels.get(name, 0) for name in spelt), strict=True)) if set(labels) <= set(spelt) else {}


def _label_counts(data: Table, target: str | None) -> Counter[str]:
    """Number of labels of each class."""
    if target is None or target not in data.columns:
        return Counter()
    column = data[target]
    names = _names(column, as_numbers=column.numbers is not None)
    return Counter(name for name in names if name is not None and not is_missing(name))


def _name_problems(names: Sequence[str | None]) -> list[str]:
    found = []
    if empty := sum(name is None for name in names):
        found.append(f"{empty} {'row has' if empty == 1 else 'rows have'} no name of a group")
    seen, twice = set[str](), dict[str, None]()
    for name in names:
        if name in seen:
            twice[name] = None
        elif name is not None:
            seen.add(name)
    if twice:
        found.append(f"{listed(list(twice))} {'is' if len(twice) == 1 else 'are'} stated more than once")
    return found


def _missing_groups(of_rows: Sequence[str | None], stated: Sequence[str | None], data: str) -> list[str]:
    known = set(stated)
    missing = list(dict.fromkeys(name for name in of_rows if name is not None and name not in known))
    if all(name is None for name in of_rows):
        return [f"no row of {data} has a group"]
    if not missing:
        return []
    unmatched = [name for name in stated if name is not None and name not in set(of_rows)]
    hints = (f" ({hint})" for name in missing[:HINTED] if (hint := nearest(name, unmatched)).startswith("did"))
    return [f"it has no row for {listed(missing)}, which {data} has{next(hints, '')}"]


def _shares(table: Table, columns: Sequence[str], names: Sequence[str | None]) -> tuple[Numbers, float, list[str]]:
    """Fractions of each group, what 100 % is in the unit of the table, and problems."""
    values = np.stack([np.asarray(table[name].numbers) for name in columns], axis=1)
    problems = []
    checks = ((np.isnan(values), "is empty"), (np.isinf(values), "is infinite"), (values < 0, "is negative"))
    for wrong, what in checks:
        if wrong.any():
            row, column = (int(each) for each in np.argwhere(wrong)[0])
            more = f", and {int(wrong.sum()) - 1} more" if wrong.sum() > 1 else ""
            problems.append(f"{columns[column]!r} of {names[row]!r} {what}{more}")
    if problems:
        return values, 1.0, problems
    sums = values.sum(1)
    if (sums == 0).any():
        return values, 1.0, [f"all values of {listed([names[int(k)] for k in np.flatnonzero(sums == 0)])} are 0"]
    unit = find_unit(values)
    if unit == 0:
        if not are_whole(values):
            problems.append(
                f"rows of {listed(columns)} must be fractions, which sum to 1, percentages, or counts, but sum to "
                f"{sums.min():.4g} to {sums.max():.4g}"
            )
    elif (off := sums_off(sums, unit)).any():
        shown = [f"{sums[k]:.4g} for {names[int(k)]!r}" for k in np.flatnonzero(off)[:3]]
        more = f" and {int(off.sum()) - 3} more" if off.sum() > 3 else ""
        problems.append(f"fractions must sum to {unit:g} over {listed(columns)}, but sum to {', '.join(shown)}{more}")
    return values / sums[:, None], unit or 1.0, problems


def _precision(
    table: Table, shares: Numbers, unit: float, names: Sequence[str | None]
) -> tuple[Numbers | None, list[str]]:
    """Concentration of each group by a column of the table, and problems."""
    given = next((name for name in PRECISION_COLUMNS if name in table.columns), None)
    if given is None:
        return None, []
    values = table[given].numbers
    if values is None or not bool((np.isfinite(values) & (values > 0)).all()):
        return None, [f"{given!r} must be a number greater than 0 in every row"]
    if given != "margin":
        return values, []
    margins = values / unit
    try:
        return concentration_of_margins(margins, shares), []
    except ValueError:
        wide = [name for name, each in zip(names, margins, strict=True) if each > 0.5] or list(names)
        percent = " (fractions are stated as numbers up to 1, and so are their margins)" if unit == 1 else ""
        return None, [f"'margin' is too wide to be informative about {listed(wide)}{percent}"]


def _classes(columns: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.intp], bool]:
    """Names of the classes, sorted, where they stand among the columns, and whether they are numbers."""
    numeric = all(map(is_number, columns))
    sorted_labels, order = np.unique(sortable_labels(_spelt(columns), numeric=numeric), return_index=True)
    return tuple(map(str, sorted_labels.tolist())), order, numeric


def _spelt(columns: Sequence[str]) -> list[str]:
    """Names of columns as labels are spelt."""
    names = [number_name(float(name)) for name in columns] if all(map(is_number, columns)) else list(columns)
    if sorted(name.lower() for name in names) == ["false", "true"]:
        return [name.lower() for name in names]  # as the table reads them
    return names


def known_labels(table: Table, target: str | None, groups: GroupTable) -> NDArray[np.int64]:
    """Class index of each row, -1 where there is no label: an empty cell or a word for a missing value.

    Raises:
        ValueError: If a label is none of the classes.
    """
    if target is None:
        return np.full(table.num_rows, UNLABELLED)
    column = table[target]
    numbers = {name: k for k, name in enumerate(groups.classes)}
    names = _names(column, as_numbers=groups.numeric)
    names = [None if name is None or (name not in numbers and is_missing(name)) else name for name in names]
    if unknown := sorted({name for name in names if name is not None} - set(numbers)):
        raise ValueError(
            f"the labels in {target!r} must be the classes of {groups.name}, {listed(groups.classes)}, but some are "
            f"{listed(unknown)}"
        )
    return np.array([UNLABELLED if name is None else numbers[name] for name in names], dtype=np.int64)
