"""Named figures: the paper's figures of a belief and of the Dirichlet process, and s0 against a histogram."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch

from selbo import _checks
from selbo._numerics import FloatArray
from selbo.plots.dirichlet import dirichlet_samples
from selbo.plots.histograms import (
    POINTS_AN_INCH,
    Histogram,
    compare_histograms,
    label_width,
    legend_entries,
    masses,
    named_histograms,
    stand_upright,
    with_distance,
)
from selbo.plots.labels import RegionAxis, class_axis, number, region_axis, tick_label
from selbo.plots.methods import method_styles
from selbo.plots.panels import SIDE_BY_SIDE
from selbo.plots.simplex import DENSITY_LIMITS, HEIGHT, LINE_SPACING, draw_belief, num_notes
from selbo.plots.style import (
    INK,
    PALETTE,
    SMALL_SIZE,
    SMALLEST_WIDTH,
    TEXT_SIZE,
    TWO_COLUMNS,
    checked_width,
    figure_style,
    new_figure,
    tidy,
)
from selbo.summary.beliefs import Belief, Beta, require_belief
from selbo.summary.elicitation import expect
from selbo.summary.partitions import ClassRegions, CornerShells, Partition, ScoreBins, require_partition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

MARGIN: Final = 0.55
"""Inches next to a panel for its ticks and axis label."""

PANEL_HEIGHT: Final = 2.0
"""Height in inches of a row of panels, with its legend."""

COLOUR_BAR: Final = 0.72
PANEL_GAP: Final = 0.2
LINE: Final = LINE_SPACING * TEXT_SIZE / POINTS_AN_INCH
"""Inches for the colour bar with its label, the space between triangles, and a line of text."""


class SimplexPanel(NamedTuple):
    """One panel of `belief_on_simplex`.

    Attributes:
        title: Description of the belief.
        belief: A belief about three classes.
        partition: The regions to draw.
    """

    title: str
    belief: Belief
    partition: Partition


def paper_panels() -> list[SimplexPanel]:
    """The three cases of Figure 2 of the paper, stated as expected accuracy and class fractions."""
    shells, classes = CornerShells(3), ClassRegions(3)
    return [
        SimplexPanel("(a) Easy\naccuracy .9, equal classes", expect(0.9, num_classes=3), shells),
        SimplexPanel("(b) Difficult\naccuracy .55, equal classes", expect(0.55, num_classes=3), shells),
        SimplexPanel("(c) Imbalanced\naccuracy .65, classes .6, .3, .1", expect(0.65, [0.6, 0.3, 0.1]), classes),
    ]


def belief_on_simplex(
    panels: Sequence[SimplexPanel] | None = None,
    *,
    class_names: Sequence[str] | None = None,
    limits: tuple[float, float] = DENSITY_LIMITS,
    width: float = TWO_COLUMNS,
) -> "Figure":
    """Beliefs about three classes as heat maps on the simplex, with the regions and their masses: Figure 2.

    Args:
        panels: Panels to draw; the three cases of the paper if not given.
        class_names: One name per class, for the corners.
        limits: Limits of the colour scale, as multiples of the uniform density; values beyond are clipped.
        width: Width in inches; the panels of a figure one column wide are stacked.

    Returns:
        A figure with one axes per panel, and a colour bar for all.
    """
    shown = paper_panels() if panels is None else list(panels)
    if not shown:
        raise ValueError("`panels` must hold at least one panel, but got none")
    titles = [f"{panel.title}\n{panel.belief.label()}" for panel in shown]
    columns = min(len(shown), int(checked_width(width) // SMALLEST_WIDTH))
    rows = -(-len(shown) // columns)
    with figure_style():
        # explicit positions: the automatic layout loses the notes around axes with a fixed aspect ratio
        across = (width - COLOUR_BAR) / columns
        side = across - PANEL_GAP
        below = LINE * (1 + max(num_notes(panel.partition) for panel in shown)) + 0.08
        above = LINE * (1 + max(title.count("\n") + 1 for title in titles)) + 0.15
        down = above + side * HEIGHT + below
        figure = new_figure(width=width, height=rows * down, layout=False)

        def place(left: float, bottom: float, wide: float, high: float) -> "Axes":
            return figure.add_axes((left / width, bottom / (rows * down), wide / width, high / (rows * down)))

        images = []
        for i, (panel, title) in enumerate(zip(shown, titles, strict=True)):
            row, column = divmod(i, columns)
            axes = place(column * across + PANEL_GAP / 2, (rows - 1 - row) * down + below, side, side * HEIGHT)
            image = draw_belief(axes, panel.belief, panel.partition, class_names=class_names, limits=limits)
            axes.set_title(title, loc="center", pad=LINE * POINTS_AN_INCH + 6, linespacing=1.3)
            images.append(image)
        bar_axes = place(columns * across + 0.1, (rows - 1) * down + below, 0.08, side * HEIGHT)
        _colour_bar(figure, images[0], bar_axes, limits=limits)
    return figure


def _colour_bar(figure: "Figure", image: "AxesImage", axes: "Axes", *, limits: tuple[float, float]) -> None:
    bar = figure.colorbar(image, cax=axes, extend="both")
    low, high = map(number, limits)
    bar.set_label(f"density / uniform density\n(log scale, clipped at {low} and {high})")
    bar.outline.set_linewidth(0.6)
    axes.minorticks_off()
    axes.tick_params(labelsize=SMALL_SIZE, length=2.5, width=0.6)
    axes.yaxis.set_major_formatter(tick_label)


def dirichlet_process_samples(
    *,
    generator: torch.Generator,
    base: Belief | None = None,
    concentrations: Sequence[float] = (1.0, 100.0),
    num_samples: int = 4,
    num_bins: int = 40,
    width: float = TWO_COLUMNS,
) -> "Figure":
    """Histograms sampled from a Dirichlet process, one row per concentration: the figure of appendix A.

    Args:
        generator: Source of the random numbers.
        base: The base measure, with a density; Beta(5, 5), as in the paper, if not given.
        concentrations: Values of alpha.
        num_samples: Histograms per row.
        num_bins: Number of equal bins of the scores.
        width: Width in inches.

    Returns:
        A figure with one axes per sample; bars are masses of bins, the line is the base density times the bin width.
    """
    measure = Beta(5, 5) if base is None else require_belief(base, name="base")
    if measure.dirichlet(2) is None:
        raise ValueError(f"`base` must be a belief such as selbo.Beta, whose density can be drawn, but got {base!r}")
    alphas = [_checks.positive("concentrations", alpha) for alpha in concentrations]
    if not alphas:
        raise ValueError("`concentrations` must hold at least one number, but got none")
    _checks.whole("num_samples", num_samples, at_least=1)
    base_masses = measure.masses(ScoreBins.equal(num_bins)).numpy()
    samples = [dirichlet_samples(alpha * base_masses, num_samples, generator=generator) for alpha in alphas]
    with figure_style():
        figure = new_figure(width=width, height=0.2 + 1.25 * len(alphas))
        grid = figure.subplots(len(alphas), num_samples, sharex=True, sharey="row", squeeze=False)
        for row, alpha, drawn in zip(grid, alphas, samples, strict=True):
            for axes, values in zip(row, drawn, strict=True):
                _draw_of_process(axes, values, measure, base_masses)
            row[0].set_title(f"concentration α = {number(alpha)}")
            row[0].set_ylabel("mass of a bin")
            row[0].set_ylim(0, 1.08 * max(drawn.max(), base_masses.max()))
        for axes in grid[-1]:
            axes.set_xlabel("score")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", ncols=2, borderpad=0.2)  # in line with the first title
    return figure


def _draw_of_process(axes: "Axes", values: FloatArray, base: Belief, base_masses: FloatArray) -> None:
    bins = len(values)
    centres = (np.arange(bins) + 0.5) / bins
    axes.bar(centres, values, width=1 / bins, color=PALETTE[3], linewidth=0, label="a sample")
    scores = np.linspace(0, 1, 401)[1:-1]
    axes.plot(scores, _beta_density(base, scores) / bins, color=INK, linewidth=1.0, label=f"base, {base.label()}")
    tidy(axes)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    axes.locator_params(axis="y", nbins=4)


def _beta_density(belief: Belief, scores: FloatArray) -> FloatArray:
    from scipy.special import betaln

    parameters = belief.dirichlet(2)
    assert parameters is not None
    b, a = parameters
    return np.asarray(np.exp((a - 1) * np.log(scores) + (b - 1) * np.log1p(-scores) - betaln(a, b)))


def summary_against_histogram(
    partition: Partition,
    s0: Histogram,
    histogram: Histogram | Mapping[str, Histogram],
    *,
    class_names: Sequence[str] | None = None,
    width: float = TWO_COLUMNS,
) -> "Figure":
    """The summary against the histogram of a network, or of several, for any partition.

    Pale bars with a cap show s0, the bars in front of them the histograms; the legend states their total variation
    distance to s0. If `CornerShells` has too many regions for one axis, the first panel shows the shells, summed over
    the classes, and one more panel per shell shows its classes.

    Args:
        partition: The regions.
        s0: Masses of the belief, shape (R,): ``summary.s0`` or ``belief.masses(partition)``.
        histogram: Masses of the predictions, shape (R,), or up to six of them by name; a method such as ``"ELBO"`` has
            the colour that it has in every figure.
        class_names: One name per class.
        width: Width in inches.

    Returns:
        A figure with one axes; for `CornerShells` with many classes, one more per threshold.

    Example:
        >>> bins = ScoreBins.equal(4)
        >>> figure = summary_against_histogram(
        ...     bins, Beta(2, 2).masses(bins), [0.4, 0.1, 0.1, 0.4]
        ... )
        >>> [text.get_text() for text in figure.legends[0].get_texts()]
        ['belief s₀', 'network, distance .488']
    """
    require_partition(partition)
    belief = masses("s0", s0, num_regions=partition.num_regions)
    histograms = named_histograms(histogram, num_regions=partition.num_regions)
    named = with_distance(belief, histograms)
    looks = method_styles(histograms)
    colours = [look.colour for look in looks.values()] if isinstance(histogram, Mapping) else PALETTE[:1]
    axis = region_axis(partition, class_names)
    with figure_style():
        upright = stand_upright(axis, width=width - MARGIN)
        if upright and partition.shells():
            figure = _shell_by_shell(partition, belief, named, colours, class_names=class_names, width=width)
        else:
            figure = new_figure(width=width, height=PANEL_HEIGHT + upright * _height(axis))
            axes = figure.subplots()
            compare_histograms(axes, belief, named, colours=colours, axis=axis, width=width - MARGIN)
            axes.set_ylabel("mass")
        _legend(figure, width=width)
    return figure


def _shell_by_shell(
    partition: Partition,
    s0: FloatArray,
    histograms: Mapping[str, FloatArray],
    colours: Sequence[str],
    *,
    class_names: Sequence[str] | None,
    width: float,
) -> "Figure":
    shells, classes = partition.shells(), partition.num_classes
    count = len(shells) + 1
    wide = width >= SIDE_BY_SIDE and count <= 3
    panel_width = (width / count if wide else width) - MARGIN
    axis = class_axis(classes, class_names)
    height = PANEL_HEIGHT if wide else 0.5 + 1.3 * count
    figure = new_figure(width=width, height=height + stand_upright(axis, width=panel_width) * _height(axis))
    panels = figure.subplots(*((1, count) if wide else (count, 1)))

    totals = RegionAxis([s + 0.5 for s in range(count)], [*shells, "centre"], "shell", ordered=False)
    summed = {name: _by_shell(values, classes) for name, values in histograms.items()}
    compare_histograms(panels[0], _by_shell(s0, classes), summed, colours=colours, axis=totals, width=panel_width)
    panels[0].set(title="all classes", ylabel="mass")
    for s, (axes, shell) in enumerate(zip(panels[1:], shells, strict=True)):
        part = slice(s * classes, (s + 1) * classes)
        inside = {name: values[part] for name, values in histograms.items()}
        compare_histograms(axes, s0[part], inside, colours=colours, axis=axis, width=panel_width)
        axes.set(title=f"shell {shell}", ylabel="" if wide else "mass")
        if not wide and s + 1 < len(shells):  # the lowest panel names the classes for all
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)
    return figure


def _height(axis: RegionAxis) -> float:
    """Height in inches of upright labels."""
    return label_width(axis.labels) / POINTS_AN_INCH


def _by_shell(values: FloatArray, num_classes: int) -> FloatArray:
    """Masses summed over the classes, from the corners inwards, last the centre: (T K + 1,) -> (T + 1,)."""
    return np.append(values[:-1].reshape(-1, num_classes).sum(-1), values[-1])


def _legend(figure: "Figure", *, width: float) -> None:
    handles, labels = legend_entries(figure.axes[0])
    entry = (label_width(labels) + 22) / POINTS_AN_INCH  # with its handle and the space after it
    columns = min(len(labels), max(1, int(width / entry)))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns)


FIGURES: Final[dict[str, Callable[[torch.Generator], "Figure"]]] = {
    "belief_on_simplex": lambda generator: belief_on_simplex(),
    "dirichlet_process_samples": lambda generator: dirichlet_process_samples(generator=generator),
}
"""Figures that need no results, by name; each takes a random generator."""
