"""The page of a calibration: what predictions claim before and after, and what to doubt."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from selbo.plots.methods import METHOD_COLOURS
from selbo.plots.style import INK, TWO_COLUMNS, figure_style, new_figure, tidy
from selbo.report.page import draw_for_screens, write_html
from selbo.report.templates import load_templates
from selbo.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIDENCE_BINS: Final = 20


@dataclass(frozen=True)
class CalibrationResults:
    """What the page of a calibration shows.

    Attributes:
        title: Title of the page.
        doubt: What to doubt, one sentence.
        facts: Values and their names.
        rows: Name of a claim, then its value before, after and as stated, and the offset; each as text.
        confidence_before: Largest probability of each prediction before.
        confidence_after: Largest probability of each prediction after.
        command: The command that made it.
    """

    title: str
    doubt: str
    facts: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    confidence_before: NDArray[np.float64]
    confidence_after: NDArray[np.float64]
    command: str


def write_calibration_page(results: CalibrationResults, path: str | os.PathLike[str]) -> Path:
    """Write the page of a calibration as a single HTML file, atomically."""
    return write_html(lambda: render_calibration(results), path)


def render_calibration(results: CalibrationResults) -> str:
    """The HTML of the page."""
    before, after = (float(each.mean()) for each in (results.confidence_before, results.confidence_after))
    spoken = f"Histogram of the largest probability; its mean is {before:.3f} before and {after:.3f} after."
    return (
        load_templates()
        .get_template("calibration.html")
        .render(
            version=__version__,
            title=results.title,
            results=results,
            figure=draw_for_screens(partial(confidence_histograms, results), name="confidence", label=spoken),
            means=(f"{100 * before:.1f}", f"{100 * after:.1f}"),
        )
    )


def confidence_histograms(results: CalibrationResults, *, width: float = TWO_COLUMNS) -> "Figure":
    """Share of predictions by their largest probability, before and after.

    Args:
        results: Of a calibration.
        width: Inches.
    """
    edges = np.linspace(0, 1, CONFIDENCE_BINS + 1)
    with figure_style():
        figure = new_figure(width=width, height=2.2)
        axes = figure.add_subplot()
        looks = (("before", results.confidence_before, INK, False), ("after", results.confidence_after, None, True))
        for name, values, line, fill in looks:
            shares = np.histogram(np.clip(values, 0, 1), edges)[0] / len(values)
            order = 2 if fill else 3  # the line in front
            axes.stairs(
                shares, edges, fill=fill, color=line or METHOD_COLOURS[0], linewidth=1.0, label=name, zorder=order
            )
        tidy(axes)
        axes.set_xlim(0, 1)
        axes.set_xlabel("largest probability")
        axes.set_ylabel("share of predictions")
        axes.legend(frameon=False, loc="upper left")
    return figure
