"""Figures of beliefs, summaries and predictions, and building blocks for other figures."""

from selbo.plots.figures import (
    FIGURES,
    SimplexPanel,
    belief_on_simplex,
    dirichlet_process_samples,
    summary_against_histogram,
)
from selbo.plots.histograms import (
    BELIEF,
    CHARACTER,
    POINTS_AN_INCH,
    compare_histograms,
    legend_entries,
    total_variation,
)
from selbo.plots.labels import duration, number, tick_label
from selbo.plots.methods import MethodStyle, method_styles
from selbo.plots.panels import (
    FOOT,
    GUIDE,
    LEGEND,
    Grid,
    build_axis,
    filled,
    plus_minus,
    shortened,
)
from selbo.plots.style import (
    INK,
    ONE_COLUMN,
    PALE,
    SMALL_SIZE,
    TEXT_SIZE,
    TWO_COLUMNS,
    figure_style,
    new_figure,
    save_figure,
    tidy,
)

__all__ = [
    "BELIEF",
    "CHARACTER",
    "FIGURES",
    "FOOT",
    "GUIDE",
    "INK",
    "LEGEND",
    "ONE_COLUMN",
    "PALE",
    "POINTS_AN_INCH",
    "SMALL_SIZE",
    "TEXT_SIZE",
    "TWO_COLUMNS",
    "Grid",
    "MethodStyle",
    "SimplexPanel",
    "belief_on_simplex",
    "build_axis",
    "compare_histograms",
    "dirichlet_process_samples",
    "duration",
    "figure_style",
    "filled",
    "legend_entries",
    "method_styles",
    "new_figure",
    "number",
    "plus_minus",
    "save_figure",
    "shortened",
    "summary_against_histogram",
    "tick_label",
    "tidy",
    "total_variation",
]
