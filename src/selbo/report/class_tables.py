"""How well each class is recognised, as HTML: recall and precision with their intervals, and the confusion matrix."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from selbo.metrics.classwise import wilson_interval
from selbo.report.templates import render_macro
from selbo.results import ClassResult, ClassResults

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_IN_MATRIX: Final = 20
"""Classes; of more of them a matrix cannot be read, and the most confused pairs are listed instead."""

MOST_ROWS: Final = 20
"""Classes or pairs that stand open; the others are folded."""

STRONGEST: Final = 48
FAINTEST: Final = 7
"""Per cent of its full colour that a cell has at most, so that text on it can be read, and at least, if it is not 0."""

LONG_NAME: Final = 4
UPRIGHT_FROM: Final = 7
"""Longer names of so many columns stand upright."""


def class_table(scores: Sequence[ClassResult]) -> "Markup":
    """Recall and precision of each class, with 95 % intervals and the number of rows; with many classes, worst first.

    Args:
        scores: One per class.
    """
    if len(scores) > MOST_ROWS:
        scores = sorted(scores, key=lambda each: (each.recall is None, each.recall or 0.0, -each.rows))
    return render_macro("class_tables.html", "class_table", scores[:MOST_ROWS], scores[MOST_ROWS:])


def confusion_table(found: ClassResults) -> "Markup":
    """Which class is predicted as which: a matrix, or with many classes the pairs that are confused most.

    Args:
        found: Of a test set.
    """
    scores, rows = found.per_class, {each.name: each.rows for each in found.per_class}
    if len(scores) > MOST_IN_MATRIX:
        wrong = [each for each in found.confusion if each.true != each.predicted]
        of = [(each, rows[each.true]) for each in wrong[:MOST_ROWS]]
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
