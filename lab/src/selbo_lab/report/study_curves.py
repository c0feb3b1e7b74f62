"""Metrics of a study against the level or kind of corruption, or against a setting of the methods."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from selbo.plots import (
    CHARACTER,
    GUIDE,
    INK,
    LEGEND,
    PALE,
    POINTS_AN_INCH,
    TWO_COLUMNS,
    MethodStyle,
    figure_style,
    new_figure,
    number,
    tick_label,
    tidy,
)
from selbo.report import metric_label
from selbo_lab.report.method_styles import study_styles
from selbo_lab.report.study_data import (
    Corruptions,
    Point,
    Points,
    build_titles,
    find_scale,
    find_sweep,
    point,
    sort_corruptions,
)
from selbo_lab.run.records import CLEAN, MethodRuns, StudyComparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVE_METRICS: Final = ("nll", "ece", "accuracy")
"""Panels of the figures, side by side."""

ALL: Final = "all corruptions"

_LEFT: Final = 0.42
_RIGHT: Final = 0.1
_GAP: Final = 0.46
_TITLE: Final = 0.22
_FOOT: Final = 0.4
CURVE: Final = 1.7
"""Inches for margins, space between panels, the text above and below them, and their height."""

LEGEND_ROW: Final = 0.15
"""Inches per additional line of the legend."""

ROW_GAP: Final = 0.14
"""Inches between panels that share the names of their rows."""

SWEPT: Final = {"summary_elbo": "summary", "elbo": "elbo"}
"""Method whose style a line over many settings has, by its objective."""

WIDE_RANGE: Final = 30.0
"""The axis of NLL is logarithmic if its largest mean is at least so many times the smallest."""


# --- shared parts ---


class _Legend:
    """Lines of a legend above a figure, with as many columns as fit.

    Args:
        labels: Labels of the methods, in order.
        width: Width in inches.
    """

    def __init__(self, labels: Sequence[str], *, width: float) -> None:
        fit = (each for each in range(1, len(labels) + 1) if _inches(labels, each) <= width - 0.1)
        rows = math.ceil(len(labels) / max(fit, default=1))
        self.columns = math.ceil(len(labels) / rows)
        self.height = LEGEND_ROW * (rows - 1) + LEGEND + 0.06

    def draw(self, figure: "Figure", entries: Mapping[str, Any]) -> None:
        options: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.01, 1.0), "borderpad": 0}
        handles, labels = list(entries.values()), list(entries)
        for text in figure.legend(handles, labels, ncols=self.columns, **options).get_texts():
            text.set_parse_math(False)


def _inches(labels: Sequence[str], columns: int) -> float:
    """Approximate width of a legend with the given columns, which matplotlib fills one after the other."""
    lengths = np.array_split([len(label) for label in labels], columns)
    return float(sum(each.max() * CHARACTER + 26 for each in lengths)) / POINTS_AN_INCH


def _handles(labels: Mapping[str, str], *, line: bool) -> dict[str, Any]:
    """For a legend, by label; from labels by name."""
    from matplotlib.lines import Line2D

    return {
        labels[name]: Line2D(
            [],
            [],
            color=look.colour,
            marker=look.marker,
            markersize=4,
            linewidth=1.3,
            linestyle=look.line if line else "none",
        )
        for name, look in study_styles(labels).items()
    }


def _shown(comparison: StudyComparison) -> list[MethodRuns]:
    """Methods with a finished run; the others are named next to the figure."""
    return [method for method in comparison.methods if method.tested]


def _measured(comparison: StudyComparison, metrics: Sequence[str], conditions: Sequence[str]) -> list[str]:
    return [m for m in metrics if any(point(method, m, [c]).runs for method in _shown(comparison) for c in conditions)]


def _scaled(points: Sequence[Point], metric: str) -> tuple[Points, Points]:
    """Means and standard errors, as they are shown."""
    scale = find_scale(metric)
    return np.array([scale * each.mean for each in points]), np.array([scale * each.error for each in points])


def _curve_axes(axes: "Axes", metric: str) -> None:
    tidy(axes)
    axes.locator_params(axis="y", nbins=5)
    axes.grid(axis="y", color=PALE, linewidth=0.6)
    axes.set_title(metric_label(metric), fontweight="bold", color=INK)


# --- corruption ---


def has_corruption(comparison: StudyComparison) -> bool:
    """Whether a metric was measured under corruption."""
    return bool(_measured(comparison, CURVE_METRICS, _corrupted(sort_corruptions(comparison))))


def _corrupted(found: Corruptions) -> list[str]:
    levels = [name for name in found.levels.values() if name != CLEAN]
    return [*levels, *(name for names in found.kinds.values() for name in names)]


def corruption_figure(comparison: StudyComparison, *metrics: str) -> "Figure":
    """Metrics under corruption: against its level if there is one, else one row per kind of corruption.

    If kinds have several severities, a row shows the mean over them, and curves below show the mean over kinds. Means
    are over seeds, with one standard error to either side.

    Args:
        comparison: A comparison of a study, with corrupted conditions.
        metrics: One panel each; NLL, ECE and accuracy if none is named.

    Returns:
        A figure with one axes per metric, and a second one per metric if there are severities.
    """
    found = sort_corruptions(comparison)
    drawn = _measured(comparison, metrics or CURVE_METRICS, _corrupted(found))
    if not drawn:
        raise ValueError(
            f"`comparison` must have {list(metrics or CURVE_METRICS)} under corruption, but has none of them"
        )
    if found.levels:
        return _by_level(comparison, drawn, found)
    return _by_kind(comparison, drawn, found)


def _by_level(comparison: StudyComparison, metrics: Sequence[str], found: Corruptions) -> "Figure":
    labels = build_titles(comparison)
    with figure_style():
        legend = _Legend(list(labels.values()), width=TWO_COLUMNS)
        height = legend.height + _TITLE + CURVE + _FOOT
        figure = new_figure(width=TWO_COLUMNS, height=height, layout=False)
        for axes, metric in zip(_columns(figure, len(metrics), low=_FOOT, high=CURVE), metrics, strict=True):
            _lines(axes, comparison, metric, {level: [name] for level, name in found.levels.items()})
            axes.set_xticks(list(found.levels), [number(level) for level in found.levels])
            axes.set_xlabel("noise level")
            if 0 < (top := comparison.paper_noise) < (most := max(found.levels)):
                axes.axvspan(top, most, color=PALE, alpha=0.6, linewidth=0, zorder=0)
                axes.set_xlabel("noise level (grey: not in the paper)")
        legend.draw(figure, _drawn(comparison, labels, line=True))
    return figure


def _drawn(comparison: StudyComparison, labels: Mapping[str, str], *, line: bool) -> dict[str, Any]:
    """Legend handles of the drawn methods, with the colours that they have among all."""
    shown = {labels[method.name] for method in _shown(comparison)}
    return {label: handle for label, handle in _handles(labels, line=line).items() if label in shown}


def _columns(
    figure: "Figure", count: int, *, low: float, high: float, left: float = _LEFT, gap: float = _GAP
) -> "list[Axes]":
    """Axes side by side, between two heights in inches."""
    width, height = figure.get_size_inches()
    across = (width - left - _RIGHT - (count - 1) * gap) / count
    return [
        figure.add_axes(((left + i * (across + gap)) / width, low / height, across / width, high / height))
        for i in range(count)
    ]


def _lines(axes: "Axes", comparison: StudyComparison, metric: str, places: Mapping[float, Sequence[str]]) -> None:
    """One line per method over positions, each the mean over some conditions."""
    labels = build_titles(comparison)
    looks = study_styles(labels)
    for method in _shown(comparison):
        label = labels[method.name]
        found = _scaled([point(method, metric, names) for names in places.values()], metric)
        _line(axes, list(places), found, label, looks[method.name])
    _curve_axes(axes, metric)


def _line(axes: "Axes", places: Sequence[float], found: tuple[Points, Points], label: str, look: MethodStyle) -> None:
    """Means of a method with a band of their standard errors."""
    mean, error = found
    axes.fill_between(places, mean - error, mean + error, color=look.colour, alpha=0.18, linewidth=0)
    options: dict[str, Any] = {"markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.5, "label": label}
    axes.plot(places, mean, look.marker, linestyle=look.line, color=look.colour, linewidth=1.3, **options)


def _by_kind(comparison: StudyComparison, metrics: Sequence[str], found: Corruptions) -> "Figure":
    labels, shown = build_titles(comparison), _shown(comparison)
    rows = {CLEAN: [CLEAN], **({ALL: _corrupted(found)} if len(found.kinds) > 1 else {}), **found.kinds}
    names = [row.replace("_", " ") for row in rows]
    margin = (max(map(len, names)) * CHARACTER + 12) / POINTS_AN_INCH
    one = 0.13 + 0.018 * len(shown)
    body, severity = one * len(rows), (CURVE - 0.3 + _TITLE + _FOOT if found.severities else 0.0)
    with figure_style():
        legend = _Legend(list(labels.values()), width=TWO_COLUMNS)
        figure = new_figure(width=TWO_COLUMNS, height=legend.height + _TITLE + body + _FOOT + severity, layout=False)
        panels = _columns(figure, len(metrics), low=severity + _FOOT, high=body, left=margin, gap=ROW_GAP)
        for i, (axes, metric) in enumerate(zip(panels, metrics, strict=True)):
            _dots(axes, comparison, metric, list(rows.values()))
            axes.set_yticks(range(len(rows)), names if i == 0 else [])
        if found.severities:
            places = {0.0: [CLEAN], **{float(s): names for s, names in found.severities.items()}}
            curves = _columns(figure, len(metrics), low=_FOOT, high=CURVE - 0.3)
            for axes, metric in zip(curves, metrics, strict=True):
                _lines(axes, comparison, metric, places)
                axes.set_xticks(list(places), [f"{place:.0f}" for place in places])
                axes.set_xlabel("severity, 0 is clean")
        legend.draw(figure, _drawn(comparison, labels, line=bool(found.severities)))
    return figure


def _dots(axes: "Axes", comparison: StudyComparison, metric: str, rows: Sequence[Sequence[str]]) -> None:
    """One row per kind of corruption, with one marker per method, from top to bottom."""
    labels, shown = build_titles(comparison), _shown(comparison)
    looks = study_styles(labels)
    means = []
    for r in range(0, len(rows), 2):
        axes.axhspan(r - 0.5, r + 0.5, color=PALE, alpha=0.4, linewidth=0, zorder=0)
    for m, method in enumerate(shown):
        label, look = labels[method.name], looks[method.name]
        mean, error = _scaled([point(method, metric, names) for names in rows], metric)
        y = np.arange(len(rows)) + 0.8 * ((m + 0.5) / len(shown) - 0.5)
        axes.hlines(y, mean - error, mean + error, color=look.colour, linewidth=0.8)
        axes.plot(mean, y, look.marker, color=look.colour, markersize=3, linestyle="none", label=label)
        means.append(mean)
    tidy(axes)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    known = np.concatenate(means)
    known = known[np.isfinite(known)]
    if metric == "nll" and known.min() > 0 and known.max() > WIDE_RANGE * known.min():
        axes.set_xscale("log")
    else:
        axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(tick_label)
    axes.grid(axis="x", color=GUIDE, linewidth=0.4, alpha=0.5)
    axes.set_title(metric_label(metric), fontweight="bold", color=INK)


# --- classes ---


def has_recall(comparison: StudyComparison) -> bool:
    """Whether classes differ in frequency, and their recall was measured."""
    return bool(comparison.classes) and any(point(method, "recall", of_class=0).runs for method in _shown(comparison))


def recall_figure(comparison: StudyComparison) -> "Figure":
    """Recall of each class, from the most frequent to the rarest, clean and under corruption.

    Args:
        comparison: A comparison of a study with classes of known, different frequencies.

    Returns:
        A figure with an axes for the clean test set, and one for the mean over corrupted ones if there are any.
    """
    if not has_recall(comparison):
        raise ValueError("`comparison` must have rare classes and their recall, but has not")
    corrupted = _corrupted(sort_corruptions(comparison))
    places = {CLEAN: [CLEAN], **({"corrupted": corrupted} if corrupted else {})}
    labels, names = build_titles(comparison), list(comparison.classes)
    looks = study_styles(labels)
    foot = _FOOT + max(map(len, names)) * CHARACTER / POINTS_AN_INCH
    with figure_style():
        legend = _Legend(list(labels.values()), width=TWO_COLUMNS)
        figure = new_figure(width=TWO_COLUMNS, height=legend.height + _TITLE + CURVE + foot, layout=False)
        for axes, (place, conditions) in zip(
            _columns(figure, len(places), low=foot, high=CURVE), places.items(), strict=True
        ):
            for method in _shown(comparison):
                found = [point(method, "recall", conditions, k) for k in range(len(names))]
                _line(
                    axes,
                    list(range(len(names))),
                    _scaled(found, "recall"),
                    labels[method.name],
                    looks[method.name],
                )
            _curve_axes(axes, "recall")
            axes.set_title(f"recall, {place}, %", fontweight="bold", color=INK)
            axes.set_ylim(-3, 103)
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.set_xlabel("most frequent to rarest class")
        legend.draw(figure, _drawn(comparison, labels, line=True))
    return figure


# --- sweeps ---


def has_sweep(comparison: StudyComparison) -> bool:
    """Whether the methods differ in one setting, and any has a finished run."""
    return find_sweep(comparison) is not None and bool(_measured(comparison, CURVE_METRICS, [CLEAN]))


def sweep_figure(comparison: StudyComparison, *metrics: str) -> "Figure":
    """Metrics against the one setting in which the methods differ; methods without it are horizontal lines.

    Args:
        comparison: A comparison of a study such as ``sigma0`` or ``alpha``.
        metrics: One panel each; NLL, ECE and accuracy if none is named.
    """
    sweep = find_sweep(comparison)
    drawn = _measured(comparison, metrics or CURVE_METRICS, [CLEAN])
    if sweep is None or not drawn:
        raise ValueError("`comparison` must have methods that differ in one setting, with finished runs, but has none")
    values = [value for value, _ in sweep.methods]
    labels = build_titles(comparison)
    with figure_style():
        height = LEGEND + 0.06 + _TITLE + CURVE + _FOOT
        figure = new_figure(width=TWO_COLUMNS, height=height, layout=False)
        entries: dict[str, Any] = {}
        family = SWEPT.get(sweep.methods[0][1].recipe.objective, sweep.label)
        looks = study_styles([family, *(method.name for method in sweep.without)])
        for axes, metric in zip(_columns(figure, len(drawn), low=_FOOT, high=CURVE), drawn, strict=True):
            scale = find_scale(metric)
            for method in sweep.without:
                label, level = labels[method.name], point(method, metric)
                colour = looks[method.name].colour
                entries[label] = axes.axhline(scale * level.mean, color=colour, linewidth=1.1, linestyle=(0, (4, 2)))
                low, high = (scale * (level.mean + side * level.error) for side in (-1, 1))
                axes.axhspan(low, high, color=colour, alpha=0.15, linewidth=0)
            mean, error = _scaled([point(method, metric) for _, method in sweep.methods], metric)
            colour, marker, _ = looks[family]
            axes.vlines(values, mean - error, mean + error, color=colour, linewidth=1.0)
            (entries["mean over seeds, ± standard error"],) = axes.plot(
                values, mean, marker, linestyle="-", color=colour, linewidth=1.3, markersize=4
            )
            _curve_axes(axes, metric)
            _setting_axis(axes, values, sweep.label)
        options: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.01, 1.0), "borderpad": 0}
        for text in figure.legend(list(entries.values()), list(entries), ncols=3, **options).get_texts():
            text.set_parse_math(False)
    return figure


def _setting_axis(axes: "Axes", values: Sequence[float], label: str) -> None:
    """A logarithmic axis with one tick per value, without those that would overlap the previous one."""
    axes.set_xscale("log")
    across = axes.get_window_extent().width / axes.figure.dpi * POINTS_AN_INCH
    shown: list[float] = []
    for value in values:
        apart = math.inf if not shown else math.log(value / shown[-1]) / math.log(values[-1] / values[0]) * across * 0.9
        if apart > (1 + len(number(value, digits=4))) * CHARACTER:
            shown.append(value)
    axes.set_xticks(shown, [number(value, digits=4) for value in shown])
    axes.minorticks_off()
    axes.set_xlabel(label)
