"""A figure of all cases of a study: where each method is better, worse, or not clearly different."""

from functools import cache
from typing import TYPE_CHECKING, Final

from selbo.plots import INK, PALE, SMALL_SIZE, TWO_COLUMNS, figure_style, new_figure
from selbo.report import Difference, direction, metric_label, signed
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.overview import differences, find_cases
from selbo_lab.run.records import USE, StudyResults

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

ROW: Final = 0.19
TEXT_LINE: Final = 0.14
LETTER: Final = 0.064
HEADS: Final = 0.36
"""Inches for the height of a row and of a line of text, the width of a bold letter, and the title and heads."""

GREY: Final = "#8a8a8a"
STRONG_FROM: Final = 0.75
"""Share of the clear differences that are smaller than those with the strongest colour."""

WHITE_FROM: Final = 0.6
"""Share of the strongest colour from which text on it is white."""

BLACK: Final = "#111111"
WHITE: Final = "#fefefe"
"""Text colours on a coloured cell, the same in light and dark mode; `INK` and pure white change with the mode."""

OF_A_DIVERGED_RUN: Final = 1000.0
"""Difference from which a power of ten says enough."""

MEANINGS: Final = ((0.75, "better"), (-0.75, "worse"), (0.0, "level: 95 % interval holds 0"))
"""Legend: shares of the strongest colour, and their meaning."""


def cases_figure(results: StudyResults, track: str) -> "Figure":
    """Difference of each method from the reference: one row per method, one column per case.

    A cell is blue if the method is better and red if it is worse, provided that the 95 % interval of the paired
    difference excludes 0, and white otherwise. The colour is strongest for the largest quarter of these differences.

    Args:
        results: Results of a study, from `selbo_lab.schedule.runner.gather`.
        track: ``published`` or ``selbo``; it must have an `selbo_lab.report.overview.overview`.
    """
    cases, column = find_cases(results, track)
    if not cases:
        raise ValueError(f"`track` must have several cases with results, but {track!r} of {results.study!r} has not")
    reference = cases[0].method(cases[0].reference)
    methods = [method for method in cases[0].methods if method is not reference]
    rows = [differences(cases, method.name, reference.name, column) for method in methods]
    strongest = _strongest(rows)
    with figure_style():
        from matplotlib.collections import PolyCollection

        low, high = TEXT_LINE * (len(cases) + 0.5), ROW * len(rows)
        width, height = TWO_COLUMNS, HEADS + high + low
        names = LETTER * max(len(method.title) for method in methods)
        figure = new_figure(width=width, height=height, layout=False)
        axes = figure.add_axes((names / width, low / height, 1 - names / width, high / height))
        looks = [[_look(found, column, strongest) for found in row] for row in rows]
        squares = [
            [(j, i), (j + 1, i), (j + 1, i + 1), (j, i + 1)] for i, row in enumerate(rows) for j in range(len(row))
        ]
        faces = [colour for row in looks for colour, _ in row]
        axes.add_collection(PolyCollection(squares, facecolors=faces, edgecolors=PALE, linewidths=0.6), autolim=False)
        for i, row in enumerate(rows):
            for j, found in enumerate(row):
                ink = looks[i][j][1]
                axes.text(j + 0.5, i + 0.5, _text(found, column), ha="center", va="center", color=ink, size=SMALL_SIZE)
        axes.set_xlim(0, len(cases))
        axes.set_ylim(len(rows), 0)
        axes.set_yticks([i + 0.5 for i in range(len(rows))], [method.title for method in methods], size=SMALL_SIZE)
        axes.xaxis.tick_top()
        axes.set_xticks([j + 0.5 for j in range(len(cases))], [str(j + 1) for j in range(len(cases))], size=SMALL_SIZE)
        for label, method in zip(axes.get_yticklabels(), methods, strict=True):
            label.set_fontweight("bold" if method.name == cases[0].focus else "normal")
        axes.tick_params(length=0, pad=3, colors=INK)
        axes.spines[:].set_visible(False)
        where = " in the target domain" if column.place == USE else ""
        title = f"{metric_label(column.metric)}{where}, less that of {reference.title}"
        figure.text(0.0, 1.0, title, ha="left", va="top")
        _legend(figure)
        for j, text in enumerate(_short([case.title for case in cases])):
            line = 1 - (HEADS + high + TEXT_LINE * (j + 0.9)) / height
            figure.text(0.03, line, f"{j + 1}", ha="right", size=SMALL_SIZE)
            figure.text(0.045, line, text, ha="left", size=SMALL_SIZE)
    return figure


def _strongest(rows: list[list[Difference]]) -> float:
    """The difference with the strongest colour; a few huge differences must not make all others pale."""
    clear = sorted(abs(each.mean or 0.0) for row in rows for each in row if each.clear)
    return clear[int(STRONG_FROM * (len(clear) - 1))] if clear else 1.0


def _look(found: Difference, column: MetricColumn, strongest: float) -> tuple[str, str]:
    """Colours of a cell and of its text."""
    if not found.clear or found.mean is None:
        return "#ffffff", GREY
    share = max(-1.0, min(1.0, direction(column.metric) * found.mean / strongest))
    return _colour(share), WHITE if abs(share) > WHITE_FROM else BLACK


def _colour(share: float) -> str:
    """Blue for a gain, red for a loss; the strength is a share from -1 to 1."""
    from matplotlib.colors import to_hex

    return to_hex(_palette()(0.5 + 0.5 * share))


@cache
def _palette() -> "Colormap":
    """Computed once: matplotlib gives a new copy each time."""
    from matplotlib import colormaps

    return colormaps["RdBu"]


def _legend(figure: "Figure") -> None:
    """Draw the legend of the colours at the upper right."""
    from matplotlib.patches import Patch

    faces = [_colour(share) if share else "#ffffff" for share, _ in MEANINGS]
    handles = [Patch(facecolor=face, edgecolor=PALE, linewidth=0.6) for face in faces]
    figure.legend(
        handles,
        [meaning for _, meaning in MEANINGS],
        loc="upper right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=len(MEANINGS),
        borderpad=0,
        borderaxespad=0,
        handlelength=1.2,
        handleheight=0.9,
    )


def _text(found: Difference, column: MetricColumn) -> str:
    """What a cell says.

    Example:
        >>> column = MetricColumn.parse("clean.nll")
        >>> [
        ...     _text(Difference(mean, None, None, None, 1, 1), column)
        ...     for mean in (-0.25, 1.5, -4255748082.5, None)
        ... ]
        ['−.250', '+1.500', '−4e+09', '–']
    """
    if found.mean is None:
        return "–"
    if abs(found.mean) >= OF_A_DIVERGED_RUN:
        return f"{found.mean:+.0e}".replace("-", "−", 1)
    text = signed(column.metric, found.mean)
    return text.replace("0.", ".", 1) if text[1:3] == "0." else text


def _short(titles: list[str]) -> list[str]:
    """Titles without the part before the colon, if it is the same in all.

    Example:
        >>> _short(["SST-2, MLP: 20 labels", "SST-2, MLP: 50 labels"])
        ['20 labels', '50 labels']
    """
    parts = [title.partition(": ") for title in titles]
    alike = len({head for head, _, _ in parts}) == 1 and all(tail for _, _, tail in parts)
    return [tail for _, _, tail in parts] if alike else titles
