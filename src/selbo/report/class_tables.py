"""Results per class, per group and per baseline as HTML: shares with their intervals, and the confusion matrix."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from selbo.metrics.classwise import wilson_interval
from selbo.report.templates import render_macro
from selbo.results import ClassResult, ClassResults, GroupResult, MethodResult

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_IN_MATRIX: Final = 20
"""Maximum number of classes of a readable matrix; with more, the most confused pairs are listed instead."""

MOST_SHOWN_ROWS: Final = 20
"""Number of classes or pairs shown; the others are folded."""

STRONGEST: Final = 48
FAINTEST: Final = 7
"""Colour strength of a cell in per cent: the maximum, so that text stays readable, and the minimum if it is not 0."""

LONG_NAME: Final = 4
UPRIGHT_FROM: Final = 7
"""Longer names are upright in a table with at least so many columns."""


def class_table(scores: Sequence[ClassResult]) -> "Markup":
    """Recall and precision of each class, with 95 % intervals and the number of rows; with many classes, worst first.

    Args:
        scores: One result per class.
    """
    if len(scores) > MOST_SHOWN_ROWS:
        scores = sorted(scores, key=lambda each: (each.recall is None, each.recall or 0.0, -each.rows))
    return render_macro("class_tables.html", "class_table", scores[:MOST_SHOWN_ROWS], scores[MOST_SHOWN_ROWS:])


def group_table(groups: Sequence[GroupResult], by: str) -> "Markup":
    """Accuracy, overconfidence and NLL of each group, with 95 % intervals; with many, least accurate first.

    Args:
        groups: One result per group.
        by: What they are groups by.
    """
    if len(groups) > MOST_SHOWN_ROWS:
        groups = sorted(groups, key=lambda each: each.metrics["accuracy"] or 0.0)
    return render_macro("class_tables.html", "group_table", groups[:MOST_SHOWN_ROWS], groups[MOST_SHOWN_ROWS:], by)


def baseline_table(methods: Sequence[MethodResult]) -> "Markup":
    """NLL, its difference to that of the first method, and accuracy of several methods, with 95 % intervals.

    Args:
        methods: One result per method.
    """
    return render_macro("class_tables.html", "baseline_table", methods)


def confusion_table(found: ClassResults) -> "Markup":
    """Which class is predicted as which: a matrix, or with many classes the pairs that are confused most.

    Args:
        found: Results on a test set.
    """
    scores, rows = found.per_class, {each.name: each.rows for each in found.per_class}
    if len(scores) > MOST_IN_MATRIX:
        wrong = [each for each in found.confusion if each.true != each.predicted]
        of = [(each, rows[each.true]) for each in wrong[:MOST_SHOWN_ROWS]]
        return render_macro(
            "class_tables.html",
            "pairs",
            [(each, each.rows / n, wilson_interval(each.rows, n)) for each, n in of],
            wrong,
        )
    counts = {(each.true, each.predicted): each.rows for each in found.confusion}
    strengths = {pair: max(FAINTEST, STRONGEST * math.sqrt(count / rows[pair[0]])) for pair, count in counts.items()}
    upright = len(rows) >= UPRIGHT_FROM and max(map(len, rows)) > LONG_NAME
    return render_macro("class_tables.html", "matrix", scores, counts, strengths, upright)
