"""Pictures of the stories of the demo, to be understood at a glance: arrows, bars and dots."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from selbo.plots.methods import METHOD_COLOURS
from selbo.plots.panels import GUIDE, SIDE_BY_SIDE
from selbo.plots.style import INK, PALE, SMALL_SIZE, TWO_COLUMNS, figure_style, new_figure, tidy
from selbo.report.comparison import Value
from selbo.report.differences import t_quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS: Final = METHOD_COLOURS[0]
ROW_HEIGHT: Final = 0.25
"""Inches per row."""


def claim_arrows(claims: Mapping[str, tuple[float, float, float]], *, width: float = TWO_COLUMNS) -> "Figure":
    """One row per model: an arrow from its confidence before to that after, and a line at its accuracy.

    Args:
        claims: Confidence before, confidence after and accuracy, by model.
        width: Inches.
    """
    from matplotlib.lines import Line2D

    with figure_style():
        figure = new_figure(width=width, height=0.85 + ROW_HEIGHT * 1.2 * len(claims))
        axes = figure.add_subplot()
        for row, (before, after, right) in enumerate(claims.values()):
            axes.plot([100 * right] * 2, [row - 0.36, row + 0.36], color=INK, linewidth=2.2, zorder=2)
            arrow = {"arrowstyle": "-|>", "color": OURS, "linewidth": 1.4, "shrinkA": 4, "shrinkB": 1}
            axes.annotate("", (100 * after, row), (100 * before, row), arrowprops=arrow, zorder=4)
            axes.plot(100 * before, row, "o", markerfacecolor="#ffffff", markeredgecolor=GUIDE, markersize=5, zorder=5)
        _rows(axes, list(claims))
        axes.set_xlabel("mean confidence, and right answers, %")
        entries = {
            "how sure it says it is": Line2D([], [], color=GUIDE, marker="o", markerfacecolor="#ffffff", linewidth=0),
            "after one stated accuracy": Line2D([], [], color=OURS, marker=">", markersize=4, linewidth=1.4),
            "how often it is right": Line2D(
                [], [], color=INK, marker="|", markersize=9, markeredgewidth=2.2, linewidth=0
            ),
        }
        columns = 3 if width >= SIDE_BY_SIDE else 1
        figure.legend(entries.values(), entries.keys(), loc="outside upper left", ncols=columns)
    return figure


def accuracy_bars(bars: Mapping[str, Mapping[str, Value]], *, focus: str, width: float = TWO_COLUMNS) -> "Figure":
    """Accuracy of each method as a bar, with its 95 % interval and its number; one panel per condition.

    Args:
        bars: Accuracy by condition and method.
        focus: Our method.
        width: Inches.
    """
    with figure_style():
        figure, panels = _panels(list(bars), len(next(iter(bars.values()))), width=width)
        for axes, (condition, found) in zip(panels, bars.items(), strict=True):
            for row, (name, value) in enumerate(found.items()):
                mean, half = 100 * (value.mean or 0.0), 100 * _half(value)
                ends = [max(0.0, mean - half), min(100.0, mean + half)]
                axes.barh(row, mean, height=0.66, color=OURS if name == focus else PALE, zorder=1)
                axes.plot(ends, [row, row], color=INK if name == focus else GUIDE, linewidth=1.0, zorder=3)
                weight = "bold" if name == focus else "normal"
                place = axes.get_yaxis_transform()
                axes.text(
                    1.02, row, f"{mean:.0f} %", va="center", fontsize=SMALL_SIZE, fontweight=weight, transform=place
                )
            _rows(axes, list(found), bold=focus)
            axes.set_xlim(0, 100)
            axes.set_title(condition)
            axes.set_xlabel("right answers, %")
        _shared_names(panels, width=width)
    return figure


def nll_dots(dots: Mapping[str, Mapping[str, Value]], *, focus: str, width: float = TWO_COLUMNS) -> "Figure":
    """NLL of each method as a dot with its 95 % interval, and a line through ours; one panel per condition.

    Args:
        dots: NLL by condition and method.
        focus: Our method.
        width: Inches.
    """
    with figure_style():
        figure, panels = _panels(list(dots), len(next(iter(dots.values()))), width=width)
        for axes, (condition, found) in zip(panels, dots.items(), strict=True):
            for row, (name, value) in enumerate(found.items()):
                mean, half = value.mean or 0.0, _half(value)
                colour = OURS if name == focus else INK
                axes.plot([max(0.0, mean - half), mean + half], [row, row], color=colour, linewidth=1.2, zorder=3)
                axes.plot(mean, row, "o", color=colour, markersize=4.5, zorder=4)
            axes.axvline(found[focus].mean or 0.0, color=OURS, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
            _rows(axes, list(found), bold=focus)
            axes.set_xlim(left=0.0)
            axes.set_title(condition)
            axes.set_xlabel("NLL (further left is better)")
        _shared_names(panels, width=width)
    return figure


def _half(value: Value) -> float:
    """Half of the 95 % interval over the seeds; 0 for a single seed."""
    return 0.0 if value.error is None else t_quantile(value.runs - 1) * value.error


def _panels(names: Sequence[str], rows: int, *, width: float) -> "tuple[Figure, list[Axes]]":
    beside = width >= SIDE_BY_SIDE
    height = 0.65 + ROW_HEIGHT * rows
    figure = new_figure(width=width, height=height if beside else height * len(names))
    shape = (1, len(names)) if beside else (len(names), 1)
    return figure, list(figure.subplots(*shape, squeeze=False).ravel())


def _rows(axes: "Axes", names: Sequence[str], *, bold: str | None = None) -> None:
    """Name the rows, from top to bottom."""
    tidy(axes)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.grid(visible=True, color=PALE, linewidth=0.6)
    for text, name in zip(axes.get_yticklabels(), names, strict=True):
        text.set_fontweight("bold" if name == bold else "normal")


def _shared_names(panels: "Sequence[Axes]", *, width: float) -> None:
    """Panels side by side share the names of their rows."""
    if width >= SIDE_BY_SIDE:
        for axes in panels[1:]:
            axes.set_yticklabels([])
