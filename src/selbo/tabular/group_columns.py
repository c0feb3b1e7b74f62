"""Which numbers in a table of groups are the shares of classes, and whether they are fractions or counts."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from selbo.estimator.group_units import sums_off
from selbo.summary.elicitation import elicit_concentration
from selbo.summary.grouped import FRACTION_SUM_TOLERANCE
from selbo.tabular.spelling import decimal_mark, parse_number
from selbo.tabular.table import Numbers

PRECISION_COLUMNS: Final = ("concentration", "margin", "count")
"""Columns that say how sure the fractions of a group are."""

MOST_LEFT_OUT: Final = 2
"""Number of columns with values like fractions that may be left out to find those that sum to 1."""

MANY_COLUMNS: Final = 50
"""Number of columns from which on one alone may be left out, as there are too many pairs."""

ROUNDED_SUM: Final = 0.0015
"""Largest relative error of a sum of fractions that are given to three digits, as most are; where columns sum to 1 so
well, others are left out even if the sum with them is within the tolerance."""

LABELS_SAY_NO: Final = 1e-3
"""A column of counts is no class if labels without this class have at most this probability."""


class GroupClasses(NamedTuple):
    """The columns of a table of groups that are classes.

    Attributes:
        columns: Their names.
        left_out: Other columns of numbers.
        counted: Whether they hold counts, as they do not sum to 1 or 100.
        doubtful: Whether one of them may be no class, which counts do not show.
    """

    columns: list[str]
    left_out: list[str]
    counted: bool
    doubtful: bool


def find_group_classes(values: Mapping[str, Numbers], labels: Mapping[str, int] | None = None) -> GroupClasses:
    """Find the columns that are classes.

    Columns are left out without which the others sum to 1 or 100, the sum of all others, and counts of what no label
    has though many should.

    Args:
        values: Columns of numbers by name, NaN for none.
        labels: Number of labels of each column, if there are any and each is of one of the columns.

    Example:
        >>> towns = {
        ...     "no": np.array([0.3, 0.6]),
        ...     "yes": np.array([0.7, 0.4]),
        ...     "people": np.array([900.0, 70.0]),
        ... }
        >>> find_group_classes(towns).columns
        ['no', 'yes']
    """
    together = _fractions_together(values)
    columns = _counted(values, labels or {}) if together is None else together
    left_out = [name for name in values if name not in columns]
    whole = together is None and all(bool((values[name] % 1 == 0).all()) for name in columns)
    return GroupClasses(columns, left_out, together is None, whole and not left_out and len(columns) > 2)


def _fractions_together(values: Mapping[str, Numbers]) -> list[str] | None:
    """Columns that sum to 1 or 100 in most rows: all, or all but a few in one way alone; None if there are none."""
    for unit in (1.0, 100.0):
        inside = [
            name
            for name, each in values.items()
            if not np.isnan(each).all() and bool((np.isnan(each) | ((each >= 0) & (each <= unit * 1.01))).all())
        ]
        for tolerance in (ROUNDED_SUM, FRACTION_SUM_TOLERANCE):
            most = MOST_LEFT_OUT if len(inside) <= MANY_COLUMNS else 1
            for left_out in range(min(most, len(inside) - 2) + 1):
                found = [
                    list(names)
                    for names in combinations(inside, len(inside) - left_out)
                    if sums_off(np.sum([values[name] for name in names], 0), unit, tolerance).mean() <= 0.5
                ]
                if len(found) == 1:
                    return found[0]
    return None


def _counted(columns: Mapping[str, Numbers], labels: Mapping[str, int]) -> list[str]:
    """Columns of counts that are classes: not the sum of all others, and none that labels would have to have."""
    names = list(columns)
    if len(names) < 3:
        return names
    values = np.stack(list(columns.values()), axis=1)
    if not bool(np.isfinite(values).all()) or bool((values < 0).any()):
        return names
    whole = values.sum(1)
    sums = [name for k, name in enumerate(names) if bool((2 * values[:, k] == whole).all())]
    if len(sums) == 1:
        return [name for name in names if name not in sums]
    shares = values.sum(0) / max(whole.sum(), 1.0)
    total = sum(labels.values())
    kept = [
        name
        for name, share in zip(names, shares.tolist(), strict=True)
        if labels.get(name) or (1 - share) ** total > LABELS_SAY_NO
    ]
    return kept if len(kept) > 1 else names


def concentration_of_margins(margins: Numbers, shares: Numbers) -> Numbers:
    """Concentration of each group by its margin of error, about the share that is closest to one half.

    Args:
        margins: Shape (groups,), with 1 for 100 %.
        shares: Shape (groups, classes).

    Raises:
        ValueError: If a margin is too wide to be informative.
    """
    about = np.take_along_axis(shares, abs(shares - 0.5).argmin(1)[:, None], 1)[:, 0].clip(1e-3, 1 - 1e-3)
    return elicit_concentration(margins, fraction=about)


def parse_columns(texts: Mapping[str, Sequence[str]]) -> dict[str, Numbers]:
    """Columns as numbers in the spelling of most of them, such as 30.1% or 0,3; NaN where a text is none.

    Example:
        >>> parse_columns({"no": ["0,25", "0,3"], "people": ["1.250", "n. d."]})
        {'no': array([0.25, 0.3 ]), 'people': array([1250.,   nan])}
    """
    mark, _ = decimal_mark(text for each in texts.values() for text in each)
    return {
        name: np.array([np.nan if (value := parse_number(text, mark)) is None else value for text in each])
        for name, each in texts.items()
    }
