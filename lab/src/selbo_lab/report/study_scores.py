"""Effect of a belief on the scores of two classes, histogram and decision surface: the paper's Figures 1 and 3."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from selbo.plots import (
    GUIDE,
    INK,
    LEGEND,
    POINTS_AN_INCH,
    SMALL_SIZE,
    TEXT_SIZE,
    TWO_COLUMNS,
    figure_style,
    filled,
    new_figure,
    number,
    shortened,
    tidy,
)
from selbo_lab.report.method_styles import study_styles
from selbo_lab.report.study_data import Points, build_titles
from selbo_lab.run.build import score_edges
from selbo_lab.run.records import CLEAN, MethodRuns, Run, ScoreMap, StudyComparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

EFFECT: Final = ("none", "beta-0.1", "beta-1", "beta-5")
AGAINST: Final = ("independent-5", "beta-5")
"""Methods of the study ``scores`` in the paper's Figure 1 and in its Figure 3."""

SURFACE: Final = "RdBu_r"
"""Blue at 0, white at .5, red at 1; safe for colour-blind readers."""

STRENGTH: Final = 0.65
"""Share of that colour; the rest is white."""

CLASS_MARKERS: Final = (("o", "#ffffff", INK), ("^", INK, INK))
"""Marker, face and rim of the examples of class 0 and of class 1: apart by shape and by lightness on any colour."""

CELLS: Final = 120
"""Cells of a decision surface per side."""

NEIGHBOURS: Final = 15
"""Number of nearest examples whose scores are averaged at a point of the surface."""

_LEFT: Final = 0.46
_RIGHT: Final = 0.62
_GAP: Final = 0.3
_TITLE: Final = 0.38
BARS: Final = 1.1
_BETWEEN: Final = 0.5
_FOOT: Final = 0.14
WIDEST: Final = 1.9
"""Inches: margins, space between panels, text over them, the histograms, the space below them, the widest panel."""


def scores_figure(comparison: StudyComparison) -> "Figure":
    """Scores under no belief and under three: histograms with s0 on top, decision surfaces below.

    Args:
        comparison: A comparison of the study ``scores``.

    Returns:
        A figure with two axes per method that has a finished run, and a colour bar.
    """
    return _scores(comparison, EFFECT)


def independent_figure(comparison: StudyComparison) -> "Figure":
    """The same for a belief about every single score, and for the Dirichlet process with the same belief."""
    return _scores(comparison, AGAINST)


def has_scores(comparison: StudyComparison, names: Sequence[str]) -> bool:
    """Whether the methods exist and one of them has scores."""
    return set(names) <= set(comparison.titles) and any(_first(comparison.method(name)) for name in names)


def _first(method: MethodRuns) -> Run | None:
    """The first run with a map; a single run is shown instead of a mean of surfaces."""
    return next((run for run in method.tested if run.map and run.score_histogram), None)


def _scores(comparison: StudyComparison, names: Sequence[str]) -> "Figure":
    if not has_scores(comparison, names):
        raise ValueError(f"`comparison` must have scores of the methods {list(names)}, but has none")
    labels = build_titles(comparison)
    runs = {name: run for name in names if (run := _first(comparison.method(name))) is not None}
    side = min(WIDEST, (TWO_COLUMNS - _LEFT - _RIGHT - (len(names) - 1) * _GAP) / len(names))
    width = _LEFT + len(runs) * (side + _GAP) - _GAP + _RIGHT
    height = LEGEND + _TITLE + BARS + _BETWEEN + side + _FOOT
    looks = study_styles(labels)
    with figure_style():
        figure = new_figure(width=width, height=height, layout=False)
        figure.set_dpi(200)  # of what is an image inside a drawing
        image: Any = None
        for i, (name, run) in enumerate(runs.items()):
            left, share = (_LEFT + i * (side + _GAP)) / width, side / width
            bars = figure.add_axes((left, (_FOOT + side + _BETWEEN) / height, share, BARS / height))
            plane = figure.add_axes((left, _FOOT / height, share, side / height))
            _histogram(bars, run, looks[name].colour, label=i == 0)
            image = _surface(plane, run.map)
            text = shortened(labels[name], points=(side + _GAP - 0.05) * POINTS_AN_INCH / 1.3)
            for shown, above, size, weight in (
                (text, 13.5, TEXT_SIZE, "bold"),
                (_note(run), 4.0, SMALL_SIZE, "normal"),
            ):
                bars.annotate(
                    shown,
                    xy=(0, 1),
                    xytext=(0, above),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    fontsize=size,
                    fontweight=weight,
                    color=INK,
                    parse_math=False,
                )
        edge = (_LEFT + len(runs) * (side + _GAP) - _GAP + 0.1) / width
        scale = figure.add_axes((edge, _FOOT / height, 0.09 / width, side / height))
        bar = figure.colorbar(image, cax=scale, ticks=[0, 0.5, 1], format=lambda value, _: number(value))
        bar.set_label("score", fontsize=TEXT_SIZE, labelpad=2)
        bar.outline.set_linewidth(0.6)
        scale.tick_params(labelsize=SMALL_SIZE, length=2.5, width=0.6, color=INK, labelcolor=INK)
        _legend(figure, side=_LEFT / width)
    return figure


def _note(run: Run) -> str:
    nll = run.conditions[CLEAN].value("nll")
    return "" if nll is None else f"NLL {nll:.3f}"


def _histogram(axes: "Axes", run: Run, colour: str, *, label: bool) -> None:
    """Shares of the scores in equal bins, and the masses of s0 in the same bins."""
    counts = np.asarray(run.score_histogram, dtype=np.float64)
    edges = np.linspace(0, 1, len(counts) + 1)
    shares = counts / max(counts.sum(), 1.0)
    axes.stairs(shares, edges, fill=True, color=colour, alpha=0.75, linewidth=0, label="scores")
    top = shares.max()
    regions = score_edges(run.spec.recipe)
    if run.belief is not None and regions:
        expected = np.asarray(run.belief.s0) / np.diff(regions) / len(counts)
        axes.stairs(expected, regions, baseline=None, color=INK, linewidth=0.9, label="belief s₀")
        top = max(top, expected.max())
    tidy(axes)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.08 * top)
    axes.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    axes.locator_params(axis="y", nbins=4)
    axes.set_xlabel("score", labelpad=1)
    if label:
        axes.set_ylabel("share of test set")


def _surface(axes: "Axes", drawn: ScoreMap | None) -> Any:
    """Scores over the plane as a smooth background, with the examples on top."""
    assert drawn is not None
    places = np.asarray(drawn.places, dtype=np.float64)
    scores, classes = np.asarray(drawn.scores, dtype=np.float64), np.asarray(drawn.labels)
    low, high = places.min(0), places.max(0)
    rim = 0.04 * np.maximum(high - low, 1e-9)
    low, high = low - rim, high + rim
    extent = (low[0], high[0], low[1], high[1])
    grid = smooth(places, scores, low=low, high=high)
    image = axes.imshow(grid, extent=extent, origin="lower", cmap=_pale(), vmin=0, vmax=1, aspect="auto")
    size = float(np.clip(3000 / len(places), 1.6, 14.0))
    for k, (marker, face, edge) in enumerate(CLASS_MARKERS):
        x, y = places[classes == k].T
        axes.scatter(x, y, s=size, marker=marker, c=face, edgecolors=edge, linewidths=0.25, rasterized=True)
    axes.set(xlim=extent[:2], ylim=extent[2:], xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color(GUIDE)
    return image


def _pale() -> "Colormap":
    """The colours of the surface mixed with white, independent of the background, to keep examples visible."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(STRENGTH * colormaps[SURFACE](np.linspace(0, 1, 256)) + 1 - STRENGTH)


def smooth(places: Points, scores: Points, *, low: Points, high: Points, cells: int = CELLS) -> Points:
    """Scores on a grid: the mean of the nearest examples, with Gaussian weights as wide as their distance.

    Args:
        places: Positions of the examples, shape (B, 2).
        scores: Scores, shape (B,).
        low: Lower left corner of the grid, shape (2,).
        high: Upper right corner, shape (2,).
        cells: Cells per side.

    Returns:
        Shape (cells, cells), from low to high along both axes, the second coordinate first.
    """
    from scipy.spatial import cKDTree

    ticks = [np.linspace(low[d], high[d], 2 * cells + 1)[1::2] for d in (0, 1)]
    x, y = np.meshgrid(*ticks)
    count = min(NEIGHBOURS, len(places))
    found = cKDTree(places).query(np.stack([x, y], axis=-1), k=list(range(1, count + 1)))
    away, nearest = np.asarray(found[0]), np.asarray(found[1])
    wide = np.maximum(away.mean(-1, keepdims=True), 1e-12)
    weights = np.exp(-0.5 * ((away - away[..., :1]) / wide) ** 2 * 4)
    return np.asarray((weights * scores[nearest]).sum(-1) / weights.sum(-1))


def _legend(figure: "Figure", *, side: float) -> None:
    from matplotlib.lines import Line2D

    dot: dict[str, Any] = {"linestyle": "none", "markersize": 3.6, "markeredgewidth": 0.6}
    classes = {
        name: Line2D([], [], marker=marker, markerfacecolor=face, markeredgecolor=INK, **dot)
        for name, (marker, face, _) in zip(("example of class 0", "of class 1"), CLASS_MARKERS, strict=True)
    }
    entries = {"scores": filled(), "belief s₀": Line2D([], [], color=INK, linewidth=0.9), **classes}
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (side, 1.0), "borderpad": 0, "ncols": len(entries)}
    figure.legend(list(entries.values()), list(entries), **place)
