"""Figures of a comparison: histograms against s0, reliability, risk by coverage, corruption curves, entropy.

Every figure gives a method the same colour and marker. Panels are placed by hand, in inches, so that they line up.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from selbo._numerics import FloatArray
from selbo.plots.histograms import (
    BELIEF,
    POINTS_AN_INCH,
    compare_histograms,
    label_width,
    legend_entries,
    stand_upright,
    total_variation,
)
from selbo.plots.labels import number, tick_label
from selbo.plots.methods import MethodStyle, method_styles
from selbo.plots.panels import FOOT, GUIDE, SIDE_BY_SIDE, Grid, LineEnd, build_axis, filled, names_at_ends, plus_minus
from selbo.plots.style import INK, PALE, SMALL_SIZE, TWO_COLUMNS, checked_width, figure_style, new_figure, tidy
from selbo.report.comparison import Row, Value, mean_and_error, metric_names, noise_levels, summarise, summarise_ood
from selbo.report.tables import is_percent, metric_label
from selbo.results import Comparison, EntropyHistogram, Outcome, ReliabilityBins, StatedBelief

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW_PREDICTIONS: Final = 30
"""Minimum number of predictions in a bin; with fewer, the standard error is up to .09 and the marker is hollow."""

CURVES: Final = ("accuracy", "ece", "nll")
"""Panels of the corruption curves. NLL, with the largest differences, is last, next to the names."""

TITLES: Final = {"nll": "NLL, nats"}
"""Titles of panels that differ from the labels in tables."""

NARROW: Final = 1.6
"""Inches; in a narrower panel the label of the last, narrow group stands a line lower than the others."""

FAR_HIGHER: Final = 2.0
"""A bar that is so many times as high as the second is cut, since it would flatten all others."""

NAME_WIDTH: Final = 1.3
"""Inches for the names at the ends of lines; longer names are shortened."""


PartT = TypeVar("PartT")


def _by_method(results: Comparison, name: str, part: Callable[[Outcome], PartT | None]) -> dict[str, list[PartT]]:
    """A part of the runs by method, without runs and methods that lack it."""
    found = {m: [each for run in results.of_method(m) if (each := part(run))] for m in results.methods}
    if not any(found.values()):
        raise ValueError(f"`results` must have `{name}` in at least one run for this figure, but has none")
    return {method: each for method, each in found.items() if each}


# --- histograms against s0 ---


def belief_histograms(results: Comparison, *, width: float = TWO_COLUMNS) -> "Figure":
    """The region masses of each method, mean over the seeds, against s0; one panel per method.

    Args:
        results: Of a comparison, with ``belief`` and the ``histogram`` of at least one run.
        width: Inches.

    Returns:
        A figure with one axes a method that has histograms. The number over a panel is the total variation distance
        to s0, mean over the seeds.
    """
    belief, methods, away = require_stated_belief(results), _histograms(results), distances(results)
    s0, looks = np.asarray(belief.s0, dtype=np.float64), method_styles(results.methods)
    axis, ends = build_axis(belief.regions, scale=belief.scale, shells=belief.shells or ())
    with figure_style():
        count, height = len(methods), 1.6 if len(methods) == 1 else 1.2
        grid = Grid(count, width=width, height=height, full=True, names=methods)
        if stand_upright(axis, width=grid.panel) or (ends and grid.panel < NARROW):
            foot = FOOT + (label_width(axis.labels) / POINTS_AN_INCH - 0.15 if not ends else 0.12)
            grid = Grid(count, width=width, height=height, full=True, foot=foot, names=methods)
        panels = [grid.place(i) for i in range(count)]
        for i, (axes, (method, histograms)) in enumerate(zip(panels, methods.items(), strict=True)):
            shown, colours = {"predictions": np.asarray(np.mean(histograms, axis=0))}, [looks[method].colour]
            compare_histograms(axes, s0, shown, colours=colours, axis=axis, width=grid.panel)
            for end in ends:
                axes.axvline(end, color=GUIDE, linewidth=0.6, linestyle=(0, (1, 2)), zorder=0.4)
            if ends:
                lower = "\n" if grid.panel < NARROW else ""
                axes.set_xticks(axis.positions, [*axis.labels[:-1], lower + axis.labels[-1]])
                axes.tick_params(axis="x", length=0)
            for text in axes.get_xticklabels():
                text.set_parse_math(False)
            grid.name(axes, method, f"distance {plus_minus(*away[method], digits=3)}")
            _outer_only(grid, i, axes)
        _same_height(panels, "mass")
        grid.legend({BELIEF: legend_entries(panels[0])[0][0], "predictions": filled()})
    return grid.figure


def distances(results: Comparison) -> dict[str, tuple[float, float | None]]:
    """Total variation distance of the histograms to s0 by method: mean over the seeds, and its standard error."""
    s0 = np.asarray(require_stated_belief(results).s0, dtype=np.float64)
    return {
        method: mean_and_error([total_variation(s0, np.asarray(each)) for each in found])
        for method, found in _histograms(results).items()
    }


def _histograms(results: Comparison) -> dict[str, list[tuple[float, ...]]]:
    return _by_method(results, "histogram", lambda run: run.histogram)


def require_stated_belief(results: Comparison) -> StatedBelief:
    """The belief of a comparison; raises an error if it has none."""
    if results.belief is None:
        raise ValueError("`results` must have `histogram` in at least one run for this figure, but has none")
    return results.belief


def _outer_only(grid: Grid, i: int, axes: "Axes") -> None:
    """Show numbers at the left and lower sides of the grid only, since all panels share their axes."""
    axes.tick_params(labelbottom=grid.lowest(i), labelleft=grid.first(i))
    if not grid.lowest(i):
        axes.set_xlabel("")


def _same_height(panels: "Sequence[Axes]", label: str) -> None:
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(0, top)
        if axes.yaxis.get_tick_params()["labelleft"]:
            axes.set_ylabel(label)


# --- reliability ---


def reliability_diagrams(results: Comparison, *, width: float = TWO_COLUMNS) -> "Figure":
    """Accuracy against confidence on the clean test set, with the number of predictions; one panel per method.

    The bins of all seeds are pooled. A line from each marker to the diagonal shows the gap; a marker is hollow where
    the bin has fewer than 30 predictions per run.

    Args:
        results: Of a comparison, with the ``reliability`` of at least one run.
        width: Inches.

    Returns:
        A figure with two axes a method: the diagram, and the counts below it.
    """
    ece = {row.method: row.values["ece"] for row in summarise(results, results.clean, ["ece"])}
    looks = method_styles(results.methods)
    found = _by_method(results, "reliability", lambda run: run.reliability)
    return reliability_panels({m: ReliabilityPanel(bins, ece[m], looks[m]) for m, bins in found.items()}, width=width)


class ReliabilityPanel(NamedTuple):
    """Content of the diagram of one method: the bins of each run, the ECE over the runs, colour and marker."""

    bins: Sequence[ReliabilityBins]
    ece: Value
    look: MethodStyle


def reliability_panels(panels: Mapping[str, ReliabilityPanel], *, width: float = TWO_COLUMNS) -> "Figure":
    """The diagrams of `reliability_diagrams`, by their titles."""
    pooled = {method: _pool(panel.bins) for method, panel in panels.items()}
    largest = max(float(counts.max()) for *_, counts in pooled.values())
    with figure_style():
        side = Grid(len(panels), width=width).panel
        grid = Grid(len(panels), width=width, height=1.36 * side, legend=False, names=panels)
        for i, (method, panel) in enumerate(panels.items()):
            colour, marker, _ = panel.look
            confidence, accuracy, counts = pooled[method]
            diagram, strip = grid.place(i, low=1 - 1 / 1.36), grid.place(i, high=0.2)
            diagram.plot([0, 1], [0, 1], color=GUIDE, linewidth=0.8)
            diagram.vlines(confidence, accuracy, confidence, color=colour, linewidth=1.6, alpha=0.4)
            for part, face in ((counts < FEW_PREDICTIONS, "none"), (counts >= FEW_PREDICTIONS, colour)):
                options: dict[str, Any] = {"markersize": 4, "markerfacecolor": face, "markeredgecolor": colour}
                diagram.plot(confidence[part], accuracy[part], marker, clip_on=False, **options)
            strip.bar(confidence, counts, width=0.6 / len(panel.bins[0].count), color=colour, linewidth=0)
            grid.name(diagram, method, _percent("ECE", panel.ece))
            _reliability_axes(grid, i, diagram, strip, largest=largest)
    return grid.figure


def _percent(name: str, value: Value) -> str:
    return "" if value.mean is None else f"{name} {plus_minus(value.mean, value.error, scale=100, digits=1)} %"


def _pool(bins: Sequence[ReliabilityBins]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Confidence, accuracy and predictions per run of the bins that are not empty, over all runs."""
    counts = np.array([each.count for each in bins], dtype=np.float64)
    total = counts.sum(0)
    used = total > 0

    def mean(found: Sequence[Sequence[float | None]]) -> FloatArray:
        values = np.array([[0.0 if v is None else v for v in each] for each in found])
        return np.asarray((values * counts).sum(0)[used] / total[used])

    shares = mean([each.confidence for each in bins]), mean([each.accuracy for each in bins])
    return *shares, np.asarray(total[used] / len(bins))


def _reliability_axes(grid: Grid, i: int, diagram: "Axes", strip: "Axes", *, largest: float) -> None:
    for axes in (diagram, strip):
        tidy(axes)
        axes.set_xlim(0, 1.02)
        axes.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
        _outer_only(grid, i, axes)
    diagram.tick_params(labelbottom=False)
    diagram.set_ylim(0, 1.02)
    diagram.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
    top = 10 ** math.floor(math.log10(max(largest, 10.0)))
    strip.set_yscale("log")
    strip.set_ylim(0.7, 1.5 * max(largest, 10.0))
    strip.set_yticks([1, top], ["1", f"{top}"])
    strip.minorticks_off()
    if grid.first(i):
        for axes, label in ((diagram, "accuracy"), (strip, "count")):
            axes.set_ylabel(label)
            axes.yaxis.set_label_coords(-0.34 / grid.panel, 0.5)
    if grid.lowest(i):
        strip.set_xlabel("confidence")
    if i == 0:
        for text, place, side in (("underconfident", (0.04, 0.94), "left"), ("overconfident", (1.0, 0.06), "right")):
            diagram.text(*place, text, ha=side, va="center", color=INK, fontsize=SMALL_SIZE, style="italic")


# --- risk by coverage ---


def risk_coverage_curves(results: Comparison, *, width: float = TWO_COLUMNS) -> "Figure":
    """Error rate among the most confident predictions against the share of answers; one panel per method.

    Args:
        results: Of a comparison, with the ``risk_curve`` of at least one run.
        width: Inches.

    Returns:
        A figure with one axes per method: the mean over the seeds, and in grey the curve of a ranking in which every
        error is less confident than every right answer. The number over a panel is the area under the curve.
    """
    from matplotlib.lines import Line2D

    looks = method_styles(results.methods)
    found = _by_method(results, "risk_curve", lambda run: run.risk_curve)
    top = max(max(each.risk) for runs in found.values() for each in runs)
    with figure_style():
        grid = Grid(len(found), width=width, height=1.5 if len(found) > 1 else 2.0, names=found)
        for i, (method, runs) in enumerate(found.items()):
            axes, risk = grid.place(i), 100 * np.mean([each.risk for each in runs], axis=0)
            coverage = np.arange(1, len(risk) + 1) / len(risk)
            perfect = np.maximum(0.0, 1 - (1 - risk[-1] / 100) / coverage)
            axes.plot(100 * coverage, 100 * perfect, color=GUIDE, linewidth=1.0, linestyle=(0, (3, 2)))
            axes.plot(100 * coverage, risk, color=looks[method].colour, linewidth=1.5, clip_on=False)
            tidy(axes)
            axes.locator_params(axis="y", nbins=4)
            axes.set_xlim(0, 100)
            axes.set_xticks([0, 50, 100])
            area = mean_and_error([each.area for each in runs])
            grid.name(axes, method, f"AURC {plus_minus(*area, scale=100, digits=1)} %")
            axes.set_xlabel("answered, %")
            _outer_only(grid, i, axes)
            axes.set_ylim(0, 105 * max(top, 0.01))
            if grid.first(i):
                axes.set_ylabel("wrong, %")
        line = Line2D([], [], color=GUIDE, linewidth=1.5)
        best = Line2D([], [], color=GUIDE, linewidth=1.0, linestyle=(0, (3, 2)))
        grid.legend({"predictions": line, "perfect ranking": best})
    return grid.figure


# --- corruption ---


def corruption_curves(results: Comparison, *, metrics: Sequence[str] = CURVES, width: float = TWO_COLUMNS) -> "Figure":
    """Metrics against the level of corruption, one line per method, with a band of one standard error to either side.

    Args:
        results: Of a comparison, with ``corruption`` and conditions that state a ``level``.
        metrics: One panel each; those that no run has are left out.
        width: Inches; the panels of a narrow figure stand one above the other.

    Returns:
        A figure with one axes per metric. Names are at the ends of the lines: beside the last panel, or beside each if
        they stand one above the other.
    """
    levels = noise_levels(results)
    if not levels:
        raise ValueError("`results` must have `corruption` and conditions at several levels, but has none")
    metrics = [metric for metric in metrics if any(metric in metric_names(results, name) for name, _ in levels)]
    if not metrics:
        raise ValueError("`metrics` must name at least one metric that the runs have, but names none")
    wide = checked_width(width) >= SIDE_BY_SIDE
    rows = [summarise(results, name, metrics) for name, _ in levels]
    high, margin, title, foot = (1.9 if wide else 1.5), 0.4, 0.24, 0.42
    names = min(NAME_WIDTH, 0.26 + label_width(results.methods) / POINTS_AN_INCH)
    columns = len(metrics) if wide else 1
    across = (width - names - columns * margin - (columns - 1) * 0.12) / columns
    height = (title + high + foot) * (1 if wide else len(metrics))
    with figure_style():
        figure = new_figure(width=width, height=height, layout=False)
        for i, metric in enumerate(metrics):
            left = margin + (i * (across + margin + 0.12) if wide else 0.0)
            low = height - title - high - (0.0 if wide else i * (title + high + foot))
            axes = figure.add_axes((left / width, low / height, across / width, high / height))
            ends = _curves(axes, metric, [level for _, level in levels], rows, method_styles(results.methods))
            axes.set_title(TITLES.get(metric, metric_label(metric)), fontweight="bold", color=INK)
            axes.set_xlabel(results.corruption or "", parse_math=False)
            if not wide or i + 1 == len(metrics):
                names_at_ends(axes, ends, size=(across, high), room=names)
    return figure


def _curves(
    axes: "Axes",
    metric: str,
    levels: Sequence[float],
    rows: Sequence[Sequence[Row]],
    looks: Mapping[str, MethodStyle],
) -> dict[str, LineEnd]:
    scale = 100 if is_percent(metric) else 1
    ends: dict[str, LineEnd] = {}
    for m, (method, (colour, marker, line)) in enumerate(looks.items()):
        cells = [row[m].values[metric] for row in rows]
        mean = scale * np.array([math.nan if cell.mean is None else cell.mean for cell in cells])
        error = scale * np.array([cell.error or 0.0 for cell in cells])
        axes.fill_between(levels, mean - error, mean + error, color=colour, alpha=0.18, linewidth=0)
        options: dict[str, Any] = {"markersize": 4.2, "markeredgecolor": "white", "markeredgewidth": 0.5}
        axes.plot(levels, mean, marker, linestyle=line, color=colour, linewidth=1.3, label=method, **options)
        if not math.isnan(mean[-1]):
            ends[method] = LineEnd(levels[-1], float(mean[-1]), colour)
    tidy(axes)
    axes.locator_params(axis="y", nbins=5)
    axes.set_xticks(list(levels), [number(level) for level in levels])
    axes.grid(axis="y", color=PALE, linewidth=0.6)
    return ends


# --- entropy ---


def entropy_histograms(results: Comparison, *, width: float = TWO_COLUMNS) -> "Figure":
    """Entropy of the predictions for the test set and for out-of-distribution inputs; one panel per method.

    Args:
        results: Of a comparison, with the ``entropy`` of at least one run that has counts ``out``.
        width: Inches.

    Returns:
        A figure with one axes per method; the bins of all seeds are pooled, the number over a panel is the area under
        the ROC curve that tells the two by their entropy.
    """
    found = _by_method(results, "entropy", lambda run: run.entropy)
    there = {method: kept for method, each in found.items() if (kept := [e for e in each if e.outside is not None])}
    if not there:
        raise ValueError("`results` must have `entropy.out` in at least one run for this figure, but has none")
    looks = method_styles(results.methods)
    auroc = {row.method: row.values["auroc"] for row in summarise_ood(results, ["auroc"])}
    return entropy_panels(
        {method: EntropyPanel(each, auroc[method], looks[method]) for method, each in there.items()},
        ood_name=results.ood_name,
        width=width,
    )


class EntropyPanel(NamedTuple):
    """Content of the panel of one method: a histogram per run, the AUROC over the runs, and its colour."""

    histograms: Sequence[EntropyHistogram]
    auroc: Value
    look: MethodStyle


def entropy_panels(
    panels: Mapping[str, EntropyPanel], *, ood_name: str | None = None, width: float = TWO_COLUMNS
) -> "Figure":
    """The panels of `entropy_histograms`, by their titles; all have counts ``outside``."""
    from matplotlib.lines import Line2D

    with figure_style():
        grid = Grid(len(panels), width=width, height=1.2, names=panels)
        places = [grid.place(i) for i in range(len(panels))]
        shares: list[tuple[FloatArray, FloatArray]] = []
        edges = np.asarray(next(iter(panels.values())).histograms[0].edges, dtype=np.float64)
        for i, (axes, (method, panel)) in enumerate(zip(places, panels.items(), strict=True)):
            inside = _shares(np.array([each.inside for each in panel.histograms]))
            outside = _shares(np.array([each.outside for each in panel.histograms]))
            axes.stairs(inside, edges, fill=True, color=panel.look.colour, alpha=0.6, linewidth=0)
            axes.stairs(outside, edges, color=INK, linewidth=1.1, baseline=None)
            tidy(axes)
            axes.locator_params(axis="both", nbins=4)
            axes.xaxis.set_major_formatter(tick_label)
            axes.set_xlim(edges[0], edges[-1])
            axes.set_xlabel("entropy, nats")
            grid.name(axes, method, _percent("AUROC", panel.auroc))
            _outer_only(grid, i, axes)
            shares.append((inside, outside))
        _cut(places, shares, bins=edges)
        _same_height(places, "share of inputs")
        line = Line2D([], [], color=INK, linewidth=1.1)
        grid.legend({"test set": filled(), ood_name or "OOD inputs": line})
    return grid.figure


def _cut(panels: "Sequence[Axes]", shares: Sequence[tuple[FloatArray, FloatArray]], *, bins: FloatArray) -> None:
    """Heights that show all bars but the highest; if it is far higher than the rest, its share is written."""
    highest = max(float(np.concatenate(pair).max()) for pair in shares)
    rest = max(float(np.sort(np.concatenate(pair))[-2]) for pair in shares)
    top = 1.25 * rest if highest > FAR_HIGHER * rest else 1.08 * highest
    for axes, pair in zip(panels, shares, strict=True):
        axes.set_ylim(0, top)
        for values in pair:
            for b in np.flatnonzero(values > top):
                place = (bins[b + 1], 0.93 * top)
                axes.annotate(
                    f"↑ {number(values[b], digits=2)}",
                    place,
                    xytext=(2, 0),
                    textcoords="offset points",
                    va="center",
                    color=INK,
                    fontsize=SMALL_SIZE,
                )


def _shares(counts: FloatArray) -> FloatArray:
    pooled = counts.sum(0)
    return np.asarray(pooled / pooled.sum())


COMPARISON_FIGURES: Final[dict[str, Callable[..., "Figure"]]] = {
    "belief_histograms": belief_histograms,
    "reliability_diagrams": reliability_diagrams,
    "risk_coverage_curves": risk_coverage_curves,
    "corruption_curves": corruption_curves,
    "entropy_histograms": entropy_histograms,
}
"""Figures of a comparison by name, in the order of the page; each takes the results and a ``width``."""


def available_figures(results: Comparison) -> list[str]:
    """Names of the figures for which the results have data."""
    found = {
        "belief_histograms": any(run.histogram for run in results.runs),
        "reliability_diagrams": any(run.reliability for run in results.runs),
        "risk_coverage_curves": any(run.risk_curve for run in results.runs),
        "corruption_curves": any(set(CURVES) & set(metric_names(results, name)) for name, _ in noise_levels(results)),
        "entropy_histograms": any(run.entropy and run.entropy.outside for run in results.runs),
    }
    return [name for name in COMPARISON_FIGURES if found[name]]
