"""The page of a monitor: evidence against a belief over time, and the accuracy of each batch."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from selbo.metrics.classwise import wilson_interval
from selbo.plots.methods import METHOD_COLOURS
from selbo.plots.panels import GUIDE
from selbo.plots.style import INK, ONE_COLUMN, SMALL_SIZE, TWO_COLUMNS, figure_style, new_figure, tidy
from selbo.report.page import draw_for_screens, write_html
from selbo.report.templates import load_templates
from selbo.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_EVIDENCE: Final = 1e-2
MOST_EVIDENCE: Final = 1e8
"""Range of the evidence that is drawn; beyond it, more does not matter."""

TICKS: Final = {TWO_COLUMNS: 6, ONE_COLUMN: 3}
"""Number of batches that are named, by width."""

LONGEST_TICK: Final = 14


@dataclass(frozen=True)
class MonitorResults:
    """What the page of a monitor shows.

    Attributes:
        title: Title of the page.
        conclusion: Whether the belief is contradicted.
        contradicted: The same as a flag.
        facts: Values and their names.
        rows: Claim, stated value, found value and evidence, as text.
        names: Names of the batches.
        evidence: Evidence against each claim after each batch.
        total: Evidence against all claims after each batch.
        limit: Evidence that contradicts.
        correct: Right answers and labels of each batch.
        accuracy: Accuracy that is stated; None if none is.
        command: The command that made it.
    """

    title: str
    conclusion: str
    contradicted: bool
    facts: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    names: Sequence[str]
    evidence: Mapping[str, Sequence[float]]
    total: Sequence[float]
    limit: float
    correct: Sequence[tuple[int, int]]
    accuracy: float | None
    command: str


def write_monitor_page(results: MonitorResults, path: str | os.PathLike[str]) -> Path:
    """Write the page of a monitor as a single HTML file, atomically."""
    return write_html(lambda: render_monitor(results), path)


def render_monitor(results: MonitorResults) -> str:
    """The HTML of the page."""
    spoken = f"Evidence against the belief after each of {len(results.names)} batches. {results.conclusion}"
    return (
        load_templates()
        .get_template("monitor.html")
        .render(
            version=__version__,
            title=results.title,
            results=results,
            figure=draw_for_screens(partial(evidence_over_time, results), name="evidence", label=spoken),
            limit=f"{results.limit:.4g}",
            with_accuracy=_has_accuracy(results),
        )
    )


def evidence_over_time(results: MonitorResults, *, width: float = TWO_COLUMNS) -> "Figure":
    """Evidence against the belief after each batch and, where labels check an accuracy, the accuracy of each batch.

    Args:
        results: Of a monitor.
        width: Inches.
    """
    two = _has_accuracy(results)
    with figure_style():
        figure = new_figure(width=width, height=3.6 if two else 2.2)
        panels = figure.subplots(2 if two else 1, 1, sharex=True, squeeze=False)[:, 0]
        _draw_evidence(panels[0], results)
        if two:
            _draw_accuracy(panels[1], results)
        count = len(results.names)
        last = panels[-1]
        shown = np.unique(np.linspace(1, count, min(count, TICKS.get(width, 4))).round().astype(int))
        last.set_xticks(shown, [_short(results.names[k - 1]) for k in shown])
        for label, text in zip(shown, last.get_xticklabels(), strict=True):
            text.set_parse_math(False)
            text.set_horizontalalignment("left" if label == 1 < count else "right" if label == count > 1 else "center")
        last.set_xlim(0.5, count + 0.5)
        last.set_xlabel("batch")
    return figure


def _has_accuracy(results: MonitorResults) -> bool:
    return results.accuracy is not None and any(checked for _, checked in results.correct)


def _draw_evidence(axes: "Axes", results: MonitorResults) -> None:
    places = np.arange(1, len(results.names) + 1)
    several = len(results.evidence) > 1
    for i, (name, values) in enumerate(results.evidence.items()):
        drawn = np.clip(values, LEAST_EVIDENCE, MOST_EVIDENCE)
        marker = "o" if len(places) < 3 else None
        axes.plot(places, drawn, color=METHOD_COLOURS[i], linewidth=1.2, label=name, marker=marker, markersize=3)
    if several:
        total = np.clip(results.total, LEAST_EVIDENCE, MOST_EVIDENCE)
        axes.plot(places, total, color=INK, linewidth=1.6, label="together")
    axes.axhline(results.limit, color=GUIDE, linewidth=0.9, linestyle=(0, (3, 2)))
    axes.annotate(
        "contradicted",
        (0, results.limit),
        xytext=(3, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        color=INK,
        fontsize=SMALL_SIZE,
    )
    tidy(axes)
    axes.set_yscale("log")
    every = np.concatenate([*map(np.asarray, results.evidence.values()), [0.1, results.limit]])
    axes.set_ylim(max(LEAST_EVIDENCE, float(every.min()) / 2), min(MOST_EVIDENCE, 8 * float(every.max())))
    axes.minorticks_off()
    axes.set_ylabel("evidence")
    if several:
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, borderaxespad=0)


def _draw_accuracy(axes: "Axes", results: MonitorResults) -> None:
    checked = [(i, *pair) for i, pair in enumerate(results.correct, 1) if pair[1]]
    places = np.array([place for place, _, _ in checked])
    shares = np.array([correct / of for _, correct, of in checked])
    ends = np.array([wilson_interval(correct, of) for _, correct, of in checked])
    axes.vlines(places, 100 * ends[:, 0], 100 * ends[:, 1], color=METHOD_COLOURS[0], linewidth=1.0, alpha=0.5)
    axes.plot(places, 100 * shares, "o", color=METHOD_COLOURS[0], markersize=2.8)
    axes.axhline(100 * (results.accuracy or 0.0), color=GUIDE, linewidth=0.9, linestyle=(0, (3, 2)))
    tidy(axes)
    axes.set_ylim(max(0.0, 100 * ends.min() - 5), 102)
    axes.set_ylabel("right, %")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_TICK else f"…{name[1 - LONGEST_TICK :]}"
