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
from selbo.summary.contrast import group_contrast

MOST_GROUPS: Final = 2000
MOST_GROUP_CLASSES: Final = 100

ASSUMED: Final = 100.0
"""Concentration that the numbers of the page are about; the default of training for groups of so many rows."""

HOW_SURE: Final = ("margin", "count", "concentration")
"""Columns that `selbo train` takes for how sure the fractions are."""

WHOLE_SUM: Final = 0.02
"""Difference from 1, or from 100 %, that rounding may give a sum."""

LONGEST_CODE: Final = 60
"""Number of groups that the code for scikit-learn lists; it reads more from the table."""


def read_group_shares(text: str) -> dict[str, Any]:
    r"""Groups and their class fractions from a pasted table, and texts to train with them.

    Args:
        text: A table with a heading, separated by commas, semicolons or tabs: the name of the group, then one column
            per class with fractions, percentages or counts.

    Example:
        >>> read_group_shares("town,no,yes\na,30,10\nb,20,20")["fractions"]
        [[0.75, 0.25], [0.5, 0.5]]
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 3:
        raise RefusedError(
            "Paste a table with a heading and at least two groups, such as “town,no,yes” and “Ash,0.3,0.7”.", "groups"
        )
    separator = max(",;\t", key=lambda mark: min(line.count(mark) for line in lines[:2]))  # a name may hold a comma
    heading, *rows = ([cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator))
    kept = [k for k, name in enumerate(heading) if k and name.lower() not in HOW_SURE]
    classes = [heading[k] for k in kept]
    _check_heading(heading, classes, len(rows))
    names, values = [], []
    for row in rows:
        if len(row) != len(heading) or not row[0]:
            raise RefusedError(
                f"Every line must have {len(heading)} entries, the first the name of a group, but one is "
                f"“{_cut(separator.join(row))}”.",
                "groups",
            )
        names.append(row[0])
        values.append([_number(row[k], row[0]) for k in kept])
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise RefusedError(f"Every group must be stated once, but “{_cut(repeated[0])}” is there twice.", "groups")
    fractions = _fractions(np.array(values), names)
    ratios = group_contrast(fractions, np.full(len(names), ASSUMED)).ratios
    sure = [k for k, name in enumerate(heading) if k and k not in kept]
    table = [[heading[0], *classes, *(heading[k].lower() for k in sure)]]
    for row, name, shares in zip(rows, names, fractions.tolist(), strict=True):
        table.append([name, *(f"{each:.6g}" for each in shares), *(row[k] for k in sure)])
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(table)
    return {
        "column": heading[0],
        "classes": classes,
        "groups": names,
        "fractions": fractions.tolist(),
        "said": _said(names, ratios),
        "texts": {
            "results": written.getvalue(),
            "groupcode": _code(heading[0], classes, names, fractions),
            "groupcommand": f"selbo train people.csv --groups {shlex.quote(heading[0])} --group-fractions results.csv "
            "--out model",
        },
    }


def _check_heading(heading: list[str], classes: list[str], groups: int) -> None:
    if len(classes) < 2 or not all(heading) or len(set(heading)) < len(heading):
        raise RefusedError(
            "The heading must name the groups and at least two classes, each once, such as “town,no,yes”, but is "
            f"“{_cut(','.join(heading))}”.",
            "groups",
        )
    if len(classes) > MOST_GROUP_CLASSES or groups > MOST_GROUPS:
        raise RefusedError(
            f"This page takes up to {MOST_GROUPS} groups and {MOST_GROUP_CLASSES} classes, but there are {groups} and "
            f"{len(classes)}: selbo train takes more.",
            "groups",
        )


def _number(text: str, name: str) -> float:
    try:
        value = float(text.removesuffix("%").strip())
    except ValueError:
        value = np.nan
    if not 0 <= value < np.inf:
        raise RefusedError(
            f"Every share must be a number of at least 0, but “{_cut(name)}” has “{_cut(text)}”.", "groups"
        )
    return value


def _fractions(values: FloatArray, names: list[str]) -> FloatArray:
    sums = values.sum(1)
    counted = bool((values == np.floor(values)).all())
    if (sums == 0).any():
        raise RefusedError(
            f"Some class of “{_cut(names[int(sums.argmin())])}” must have a share, but none has.", "groups"
        )
    for unit in (1.0, 100.0):
        off = abs(sums / unit - 1) > WHOLE_SUM
        if not off.any() or (not counted and off.mean() <= 0.5):
            if off.any():
                first = int(off.argmax())
                raise RefusedError(
                    f"The shares of a group must sum to {unit:g}, but those of “{_cut(names[first])}” sum to "
                    f"{sums[first]:.4g}.",
                    "groups",
                )
            return np.asarray(values / sums[:, None])
    if not counted:
        raise RefusedError(
            "The shares of a group must be fractions that sum to 1, percentages, or counts, but sums are from "
            f"{sums.min():.4g} to {sums.max():.4g}.",
            "groups",
        )
    return np.asarray(values / sums[:, None])


def _said(names: list[str], ratios: tuple[float, ...]) -> str:
    """How much can be learned from the groups, in a sentence."""
    weakest = min(ratios, default=0.0)
    about = (
        f"Between the {len(names)} groups, shares differ by {weakest:.2g} times their precision, if each is right to "
        "about 10 points."
    )
    if weakest < 0.5:
        return f"The groups are too alike to teach which individuals belong to which class. {about}"
    return f"The groups differ enough to learn from, if the inputs of individuals differ with them. {about}"


def _code(column: str, classes: list[str], names: list[str], fractions: FloatArray) -> str:
    """Python code that trains a classifier of individuals."""
    if len(names) > LONGEST_CODE:
        return (
            "import csv\n\nimport selbo\n\n"
            "with open('results.csv', newline='') as file:\n"
            f"    rows = {{row[{column!r}]: row for row in csv.DictReader(file)}}\n"
            f"shares = {{name: {{k: float(row[k]) for k in {classes!r}}} for name, row in rows.items()}}\n{_FIT}"
        )
    lines = [
        f"    {name!r}: {{{', '.join(f'{k!r}: {each:.6g}' for k, each in zip(classes, row, strict=True))}}},"
        for name, row in zip(names, fractions.tolist(), strict=True)
    ]
    return "\n".join(["import selbo", "", "shares = {", *lines, "}", _FIT])


_FIT: Final = (
    "classifier = selbo.SummaryClassifier(random_state=0)\n"
    "# X: inputs of people, group_of_rows: the group of each; no labels are needed\n"
    "classifier.fit(X, groups=group_of_rows, group_fractions=shares)\n"
)


def _cut(text: str) -> str:
    shown = json.dumps(text[:40], ensure_ascii=False)[1:-1]
    return shown if len(text) <= 40 else f"{shown}…"
