"""A pasted table of class fractions of groups: checked, shown, and written down for training."""

import csv
import io
import json
import shlex
from collections import Counter
from typing import Any, Final

import numpy as np

from selbo._numerics import FloatArray
from selbo.elicit.refused import RefusedError
from selbo.estimator.group_units import are_whole, find_unit, sums_off
from selbo.summary.contrast import group_contrast
from selbo.tabular.group_columns import (
    PRECISION_COLUMNS,
    GroupClasses,
    concentration_of_margins,
    find_group_classes,
    parse_columns,
)

MOST_GROUPS: Final = 2000
MOST_GROUP_CLASSES: Final = 100

ASSUMED: Final = 100.0
"""Concentration that the numbers of the page are about; the default of training for groups of so many rows."""

NAMED_COLUMNS: Final = 6
"""Number of columns that a note names."""

LONGEST_CODE: Final = 60
"""Number of groups that the code for scikit-learn lists; it reads more from the table."""


def read_group_shares(text: str) -> dict[str, Any]:
    r"""Groups and their class fractions from a pasted table, and texts to train with them.

    Args:
        text: A table with a heading, separated by commas, semicolons or tabs: the name of the group, then one column
            per class with fractions, percentages or counts. Other columns are left out as `selbo train` does.

    Example:
        >>> read_group_shares("town,no,yes\na,30,10\nb,20,20")["fractions"]
        [[0.75, 0.25], [0.5, 0.5]]
    """
    heading, rows = _read_cells(text)
    names = [row[0] for row in rows]
    cells = {name: [row[k] for row in rows] for k, name in enumerate(heading) if k}
    numbers = parse_columns(cells)
    sure = {name: name.lower() for name in cells if name.lower() in PRECISION_COLUMNS}
    found = find_group_classes({k: v for k, v in numbers.items() if k not in sure and not np.isnan(v).all()})
    classes = found.columns
    _check_classes(classes, len(rows))
    for name in classes + list(sure):
        _check_numbers(name, numbers[name], cells[name], names)
    unit, fractions = _fractions(np.stack([numbers[name] for name in classes], axis=1), names)
    stated = {written: name for name, written in sure.items()}
    kind = next((each for each in PRECISION_COLUMNS if each in stated), "")
    strength = _concentration(kind, numbers[stated[kind]], unit, fractions) if kind else None
    ratios = group_contrast(fractions, np.full(len(names), ASSUMED) if strength is None else strength).ratios
    precision = [numbers[name] / (unit if written == "margin" else 1) for name, written in sure.items()]
    table = [[heading[0], *classes, *sure.values()]]
    for name, row in zip(names, np.column_stack([fractions, *precision]).tolist(), strict=True):
        table.append([name, *(f"{each:.6g}" for each in row)])
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(table)
    return {
        "column": heading[0],
        "classes": classes,
        "groups": names,
        "fractions": fractions.tolist(),
        "said": _said(names, ratios, assumed=strength is None),
        "note": _columns_note(found, [name for name in cells if name not in classes and name not in sure]),
        "texts": {
            "results": written.getvalue(),
            "groupcode": _code(heading[0], classes, names, fractions, kind=kind, strength=strength),
            "groupcommand": f"selbo train people.csv --groups {shlex.quote(heading[0])} --group-fractions results.csv "
            "--out model",
        },
    }


def _read_cells(text: str) -> tuple[list[str], list[list[str]]]:
    """The heading and the rows of a table, the name of a group first."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 3:
        raise RefusedError(
            "Paste a table with a heading and at least two groups, such as “town,no,yes” and “Ash,0.3,0.7”.", "groups"
        )
    separator = max(",;\t", key=lambda mark: min(line.count(mark) for line in lines[:2]))  # a name may hold a comma
    heading, *rows = ([cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator))
    if not all(heading) or len(set(heading)) < len(heading):
        raise RefusedError(
            "The heading must name the groups and the classes, each once, such as “town,no,yes”, but is "
            f"“{_cut(','.join(heading))}”.",
            "groups",
        )
    if odd := next((row for row in rows if len(row) != len(heading) or not row[0]), None):
        raise RefusedError(
            f"Every line must have {len(heading)} entries, the first the name of a group, but one is "
            f"“{_cut(separator.join(odd))}”.",
            "groups",
        )
    if repeated := [name for name, count in Counter(row[0] for row in rows).items() if count > 1]:
        raise RefusedError(f"Every group must be stated once, but “{_cut(repeated[0])}” is there twice.", "groups")
    return heading, rows


def _check_classes(classes: list[str], groups: int) -> None:
    if len(classes) < 2:
        found = f"only “{_cut(classes[0])}” does" if classes else "none does"
        raise RefusedError(
            f"After the names of the groups, two or more columns must hold numbers, one per class, but {found}.",
            "groups",
        )
    if len(classes) > MOST_GROUP_CLASSES or groups > MOST_GROUPS:
        raise RefusedError(
            f"This page takes up to {MOST_GROUPS} groups and {MOST_GROUP_CLASSES} classes, but there are {groups} and "
            f"{len(classes)}: selbo train takes more.",
            "groups",
        )


def _check_numbers(column: str, numbers: FloatArray, cells: list[str], names: list[str]) -> None:
    wrong = ~((numbers >= 0) & (numbers < np.inf))
    if wrong.any():
        first = int(wrong.argmax())
        raise RefusedError(
            f"“{_cut(column)}” must be a number of at least 0 in every line, but “{_cut(names[first])}” has "
            f"“{_cut(cells[first])}”.",
            "groups",
        )


def _fractions(values: FloatArray, names: list[str]) -> tuple[float, FloatArray]:
    """What 100 % is in the table, 1 if it holds counts, and the fractions."""
    sums = values.sum(1)
    if (sums == 0).any():
        raise RefusedError(
            f"Some class of “{_cut(names[int(sums.argmin())])}” must have a share, but none has.", "groups"
        )
    unit = find_unit(values)
    if unit == 0 and not are_whole(values):
        remedy = ": delete columns that are no class" if values.shape[1] > 2 else ""
        raise RefusedError(
            "The shares of a group must be fractions that sum to 1, percentages, or counts, but sums are from "
            f"{sums.min():.4g} to {sums.max():.4g}{remedy}.",
            "groups",
        )
    if unit and (off := sums_off(sums, unit)).any():
        first = int(off.argmax())
        raise RefusedError(
            f"The shares of a group must sum to {unit:g}, but those of “{_cut(names[first])}” sum to "
            f"{sums[first]:.4g}.",
            "groups",
        )
    return unit or 1.0, np.asarray(values / sums[:, None])


def _columns_note(found: GroupClasses, left_out: list[str]) -> str:
    """Which columns are classes, if others are not or may not be, and how to correct that; empty if all clearly are."""
    if left_out:
        verb, one = ("is", "it is") if len(left_out) == 1 else ("are", "one of them is")
        return (
            f"The classes are {_quoted(found.columns)}; {_quoted(left_out)} {verb} left out. If {one} a class, delete "
            "the columns that are none."
        )
    if found.doubtful:
        return f"The classes are {_quoted(found.columns)}. If one of them is no class, delete its column."
    return ""


def _quoted(names: list[str]) -> str:
    shown = ", ".join(f"“{_cut(name)}”" for name in names[:NAMED_COLUMNS])
    return shown if len(names) <= NAMED_COLUMNS else f"{shown} and {len(names) - NAMED_COLUMNS} more"


def _concentration(kind: str, values: FloatArray, unit: float, fractions: FloatArray) -> FloatArray:
    """Concentration of each group by a column that says how sure its shares are."""
    if not (values > 0).all():
        raise RefusedError(f"“{kind}” must be greater than 0 in every line.", "groups")
    if kind != "margin":
        return values
    try:
        return concentration_of_margins(values / unit, fractions)
    except ValueError:
        raise RefusedError("“margin” is too wide to be informative in some line.", "groups") from None


def _said(names: list[str], ratios: tuple[float, ...], *, assumed: bool) -> str:
    """How much can be learned from the groups, in a sentence."""
    weakest = min(ratios, default=0.0)
    condition = ", if each is right to about 10 points" if assumed else ""
    about = f"Between the {len(names)} groups, shares differ by {weakest:.2g} times their precision{condition}."
    if weakest < 0.5:
        return f"The groups are too alike to teach which individuals belong to which class. {about}"
    return f"The groups differ enough to learn from, if the inputs of individuals differ with them. {about}"


def _code(
    column: str,
    classes: list[str],
    names: list[str],
    fractions: FloatArray,
    *,
    kind: str,
    strength: FloatArray | None,
) -> str:
    """Python code that trains a classifier of individuals."""
    beside = "" if strength is None else ", group_concentration=sure"
    fit = _FIT.replace("=shares", f"=shares{beside}")
    if len(names) > LONGEST_CODE:
        one = f"float(row[{kind!r}])"
        if kind == "margin":
            about = "min(shares[name].values(), key=lambda share: abs(share - 0.5))"
            one = f"selbo.elicit_concentration({one}, fraction={about})"
        sure = "" if strength is None else f"sure = {{name: {one} for name, row in rows.items()}}\n"
        return (
            "import csv\n\nimport selbo\n\n"
            "with open('results.csv', newline='') as file:\n"
            f"    rows = {{row[{column!r}]: row for row in csv.DictReader(file)}}\n"
            f"shares = {{name: {{k: float(row[k]) for k in {classes!r}}} for name, row in rows.items()}}\n{sure}{fit}"
        )
    lines = [
        f"    {name!r}: {{{', '.join(f'{k!r}: {each:.6g}' for k, each in zip(classes, row, strict=True))}}},"
        for name, row in zip(names, fractions.tolist(), strict=True)
    ]
    code = ["import selbo", "", "shares = {", *lines, "}"]
    if strength is not None:
        of_each = [f"    {name!r}: {each:.4g}," for name, each in zip(names, strength.tolist(), strict=True)]
        code += ["sure = {  # the number of people that each group counts for", *of_each, "}"]
    return "\n".join([*code, fit])


_FIT: Final = (
    "classifier = selbo.SummaryClassifier(random_state=0)\n"
    "# X: inputs of people, group_of_rows: the group of each; no labels are needed\n"
    "classifier.fit(X, groups=group_of_rows, group_fractions=shares)\n"
)


def _cut(text: str) -> str:
    shown = json.dumps(text[:40], ensure_ascii=False)[1:-1]
    return shown if len(text) <= 40 else f"{shown}…"
