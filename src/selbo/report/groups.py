"""Stated against predicted class fractions of groups: a picture of all groups, and a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from selbo._numerics import FloatArray
from selbo.plots.methods import METHOD_COLOURS
from selbo.plots.panels import SIDE_BY_SIDE
from selbo.plots.style import INK, PALE, SMALL_SIZE, TWO_COLUMNS, checked_width, figure_style, new_figure, tidy
from selbo.report.templates import render_macro
from selbo.results import StatedGroup, StatedGroups

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NAMED_GROUPS: Final = 70
"""Maximum number of groups that are listed by name; more are drawn by rank, and only contradicted ones named."""

MOST_GROUP_PANELS: Final = 3
"""Maximum number of classes in the picture: those whose stated fractions differ most between groups."""

LINE_INCHES: Final = 0.135
"""Height of the line of a group that is listed by name."""

LONGEST_GROUP_NAME: Final = 24
NAMED_POINTS: Final = 6
"""Length of a name in the picture, and number of contradicted groups that are named in one without names."""

AGREES, CONTRADICTS = METHOD_COLOURS[0], METHOD_COLOURS[1]


def shown_classes(results: StatedGroups) -> list[int]:
    """Classes in the picture: the second of two, else the ones whose fractions differ most between groups."""
    stated = np.array([each.stated for each in results.groups])
    if stated.shape[1] == 2:
        return [1]
    return sorted(np.argsort(-stated.std(0), kind="stable")[:MOST_GROUP_PANELS].tolist())


def group_fractions(results: StatedGroups, class_names: Sequence[str], *, width: float = TWO_COLUMNS) -> "Figure":
    """Stated and predicted fractions of each group with 95 % intervals, sorted by the stated fraction.

    Up to 70 groups are listed by name; more are drawn by rank.

    Args:
        results: Of a training with groups.
        class_names: Names of the classes.
        width: Inches.
    """
    classes = shown_classes(results) if checked_width(width) >= SIDE_BY_SIDE else shown_classes(results)[:1]
    order = sorted(results.groups, key=lambda each: each.stated[classes[0]])
    named = len(order) <= MOST_NAMED_GROUPS
    with figure_style():
        height = max(1.2, LINE_INCHES * len(order)) + 0.75 if named else 2.6
        figure = new_figure(width=width, height=height)
        rows, columns = (1, len(classes)) if named else (len(classes), 1)
        if not named:
            figure.set_size_inches(width, 0.4 + (height - 0.4) * len(classes))
        panels = figure.subplots(rows, columns, squeeze=False, sharex=not named, sharey=named)
        for axes, k in zip(panels.ravel(), classes, strict=True):
            if named:
                _list_groups(axes, order, k)
                axes.set_xlabel(f"share of {class_names[k]}")
            else:
                _rank_groups(axes, order, k, last=k == classes[-1])
                axes.set_ylabel(f"share of {class_names[k]}")
            tidy(axes)
        if named:
            panels[0, 0].set_yticks(range(len(order)), [_short(each.name) for each in order])
            for axes in panels.ravel():
                axes.tick_params(axis="y", length=0)
            for text, each in zip(panels[0, 0].get_yticklabels(), order, strict=True):
                text.set_parse_math(False)
                text.set_color(CONTRADICTS if each.contradicted else INK)
                text.set_fontweight("bold" if each.contradicted else "normal")
        _legend(figure, any(each.contradicted for each in order))
    return figure


def _legend(figure: "Figure", contradicts: bool) -> None:
    from matplotlib.lines import Line2D

    entries = {
        "stated, 95 %": Line2D([], [], color=PALE, linewidth=5, marker="|", markeredgecolor=INK, markersize=6),
        "predicted, 95 %": Line2D([], [], color=AGREES, linewidth=1, marker="o", markersize=3),
    }
    if contradicts:
        entries["contradicts"] = Line2D([], [], color=CONTRADICTS, linewidth=1, marker="s", markersize=3)
    how = {"ncols": 3, "frameon": False, "columnspacing": 1.2, "handletextpad": 0.5}
    figure.legend(entries.values(), entries.keys(), loc="outside upper left", **how)


def _list_groups(axes: "Axes", order: Sequence[StatedGroup], k: int) -> None:
    """One line per group, with its name."""
    places = np.arange(len(order))
    stated, ends = _values(order, k, "stated")
    axes.hlines(places, *ends, color=PALE, linewidth=5, zorder=1)
    axes.plot(stated, places, "|", color=INK, markersize=6, markeredgewidth=1, zorder=3)
    predicted, ends = _values(order, k, "predicted")
    for against, colour, marker in ((False, AGREES, "o"), (True, CONTRADICTS, "s")):
        chosen = np.array([each.contradicted == against for each in order])
        if chosen.any():
            axes.hlines(places[chosen], *ends[:, chosen], color=colour, linewidth=1, zorder=2)
            axes.plot(predicted[chosen], places[chosen], marker, color=colour, markersize=3.2, zorder=4)
    axes.set_ylim(-0.7, len(order) - 0.3)


def _rank_groups(axes: "Axes", order: Sequence[StatedGroup], k: int, *, last: bool) -> None:
    """Groups from left to right, by the stated fraction, without names."""
    places = np.arange(1, len(order) + 1)
    stated, ends = _values(order, k, "stated")
    axes.vlines(places, *ends, color=PALE, linewidth=max(0.5, 300 / len(order)), zorder=1)
    axes.plot(places, stated, ".", color=INK, markersize=1.2, zorder=3)
    predicted, ends = _values(order, k, "predicted")
    against = np.array([each.contradicted for each in order])
    axes.vlines(places[~against], *ends[:, ~against], color=AGREES, linewidth=0.4, alpha=0.35, zorder=2)
    axes.plot(places[~against], predicted[~against], "o", color=AGREES, markersize=1.4, zorder=4)
    if against.any():
        axes.vlines(places[against], *ends[:, against], color=CONTRADICTS, linewidth=0.8, zorder=5)
        axes.plot(places[against], predicted[against], "s", color=CONTRADICTS, markersize=3, zorder=6)
    worst = sorted(np.flatnonzero(against).tolist(), key=lambda place: order[place].p_value)[:NAMED_POINTS]
    free: list[int] = []
    for place in worst:
        near = [
            abs(place - other) < 0.25 * len(order) and abs(predicted[place] - predicted[other]) < 0.08 for other in free
        ]
        if any(near):  # names would overlap
            continue
        free.append(place)
        left = place > 0.8 * len(order)
        axes.annotate(
            _short(order[place].name),
            (places[place], predicted[place]),
            xytext=(-4 if left else 4, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=SMALL_SIZE,
            color=CONTRADICTS,
            parse_math=False,
            zorder=7,
        )
    axes.set_xlim(0, len(order) + 1)
    if last:
        axes.set_xlabel("groups, by stated share")


def _values(order: Sequence[StatedGroup], k: int, what: str) -> tuple[FloatArray, FloatArray]:
    """Fractions of a class, (G,), and the ends of their intervals, (2, G)."""
    values = np.array([getattr(each, what)[k] for each in order])
    return values, np.array([getattr(each, f"{what}_interval")[k] for each in order]).T


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_GROUP_NAME else f"{name[: LONGEST_GROUP_NAME - 1]}…"


def stated_group_table(groups: Sequence[StatedGroup], class_names: Sequence[str]) -> "Markup":
    """Stated and predicted fractions of groups with 95 % intervals.

    Args:
        groups: The groups, in the order of the table.
        class_names: Names of the classes.
    """
    classes = [1] if len(class_names) == 2 else range(len(class_names))
    return render_macro("groups.html", "stated_group_table", groups, [(k, class_names[k]) for k in classes])


def describe_groups(results: StatedGroups, class_names: Sequence[str]) -> str:
    """The picture in words, for screen readers."""
    against = [each.name for each in results.contradicted]
    names = ", ".join(against[:10]) + (f" and {len(against) - 10} more" if len(against) > 10 else "")
    shown = ", ".join(class_names[k] for k in shown_classes(results))
    return f"Stated and predicted shares of {shown} in {len(results.groups)} groups, with 95 % intervals. " + (
        f"Contradicted: {names}." if against else "No group is contradicted."
    )
