"""Histograms of predictions in front of the belief s0, which is drawn as pale bars, for any partition."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo import _checks
from selbo._numerics import FloatArray
from selbo.plots.labels import CONFIDENCE_TITLE, SHORT_CONFIDENCE_TITLE, RegionAxis
from selbo.plots.style import INK, PALE, PALETTE, SMALL_SIZE, TEXT_SIZE, tidy

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.patches import StepPatch
    from matplotlib.patheffects import AbstractPathEffect

Histogram = Tensor | NDArray[np.floating] | Sequence[float]

BELIEF: Final = "belief s₀"

POINTS_AN_INCH: Final = 72
CHARACTER: Final = 0.56 * SMALL_SIZE
"""Average width of a character of axis labels, in points."""

SMALLEST_BAR: Final = 2.0
"""Minimum bar width in points. Thinner bars merge on paper, so steps are drawn instead."""

BELIEF_SHARE: Final = 0.92
BARS_SHARE: Final = 0.72
"""Share of the width of a region for the pale bar of s0, and for the bars in front of it."""


def masses(name: str, values: Histogram, *, num_regions: int) -> FloatArray:
    """Region masses as float64, shape (R,), from torch, numpy or a list; raises an error if not on the simplex."""
    copied = np.array([] if isinstance(values, Tensor) else values)
    if copied.dtype.kind not in "fiu":
        raise ValueError(f"`{name}` must hold {num_regions} masses, one per region, but got {values!r}")
    given = values.detach().cpu() if isinstance(values, Tensor) else torch.from_numpy(copied)
    if tuple(given.shape) != (num_regions,):
        raise ValueError(f"`{name}` must hold {num_regions} masses, one per region, but got shape {tuple(given.shape)}")
    floating = given if given.is_floating_point() else given.double()
    _checks.on_simplex(name, floating)
    return np.asarray(floating.double().numpy())


def named_histograms(histogram: Histogram | Mapping[str, Histogram], *, num_regions: int) -> dict[str, FloatArray]:
    """Histograms by name; a single one without a name is called ``network``."""
    named = histogram if isinstance(histogram, Mapping) else {"network": histogram}
    if not 1 <= len(named) <= len(PALETTE):
        raise ValueError(f"`histogram` must be 1 to {len(PALETTE)} histograms, but got {len(named)}")
    single = not isinstance(histogram, Mapping)
    return {
        name: masses("histogram" if single else f"histogram[{name!r}]", values, num_regions=num_regions)
        for name, values in named.items()
    }


def total_variation(first: FloatArray, second: FloatArray) -> float:
    """Largest difference in probability of any set of regions: half the sum of the absolute differences.

    Example:
        >>> total_variation(np.array([0.5, 0.5, 0.0]), np.array([0.2, 0.5, 0.3]))
        0.3
    """
    return float(np.abs(first - second).sum() / 2)


def with_distance(s0: FloatArray, histograms: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """The same histograms, with the total variation distance to s0 in their names."""
    return {f"{name}, distance {total_variation(s0, h):.3f}".replace(" 0.", " ."): h for name, h in histograms.items()}


def compare_histograms(
    axes: "Axes",
    s0: FloatArray,
    histograms: Mapping[str, FloatArray],
    *,
    colours: Sequence[str],
    axis: RegionAxis,
    width: float,
) -> None:
    """Draw one panel: s0 as a pale, capped bar per region, histograms in front; steps if bars would be too thin.

    Args:
        axes: Axes to draw into.
        s0: Masses of the belief, shape (R,).
        histograms: Masses of the predictions by name, shape (R,) each, at most six.
        colours: One colour per histogram.
        axis: Ticks, from `region_axis`.
        width: Width of the panel in inches, to choose labels that fit.
    """
    place = width * POINTS_AN_INCH / len(s0)
    if place * BARS_SHARE / len(histograms) >= SMALLEST_BAR:
        _bars(axes, s0, histograms, colours)
    else:
        _steps(axes, s0, histograms, colours)
    tidy(axes)
    axes.set_xlim(0, len(s0))
    axes.set_ylim(0, 1.08 * max(values.max() for values in (s0, *histograms.values())))
    axes.locator_params(axis="y", nbins=5)
    _ticks(axes, axis, width=width)
    axes.set_xlabel(fitted_title(axis.title, width=width), parse_math=False)  # a class may have dollar signs


def fitted_title(title: str, *, width: float) -> str:
    """Shorten the title of an axis to fit its width in inches.

    Example:
        >>> (
        ...     fitted_title(CONFIDENCE_TITLE, width=1.3),
        ...     fitted_title("probability of class hornbeam", width=1.3),
        ... )
        ('largest probability', 'probability of clas…')
    """
    room = int(width * POINTS_AN_INCH / (CHARACTER * TEXT_SIZE / SMALL_SIZE))
    if title == CONFIDENCE_TITLE and len(title) > room:
        title = SHORT_CONFIDENCE_TITLE
    return title if len(title) <= room + 1 else f"{title[: room - 1]}…"


def _bars(axes: "Axes", s0: FloatArray, histograms: Mapping[str, FloatArray], colours: Sequence[str]) -> None:
    centres = np.arange(len(s0)) + 0.5
    each = BARS_SHARE / len(histograms)
    for i, (name, values) in enumerate(histograms.items()):
        left = centres + (i + 0.5) * each - BARS_SHARE / 2
        axes.bar(left, values, width=each, color=colours[i], linewidth=0, label=name)
    axes.bar(centres, s0, width=BELIEF_SHARE, color=PALE, linewidth=0, zorder=0.5, label=BELIEF)
    half = BELIEF_SHARE / 2
    caps = axes.hlines(s0, centres - half, centres + half, color=INK, linewidth=1.0)
    caps.set_path_effects(_casing())


def _steps(axes: "Axes", s0: FloatArray, histograms: Mapping[str, FloatArray], colours: Sequence[str]) -> None:
    alone = len(histograms) == 1
    for i, (name, values) in enumerate(histograms.items()):
        _stairs(axes, values, color=colours[i], fill=alone, label=name)
    _stairs(axes, s0, color=INK, fill=False, label=BELIEF).set_path_effects(_casing())


def _stairs(axes: "Axes", values: FloatArray, *, color: str, fill: bool, label: str) -> "StepPatch":
    if fill:
        return axes.stairs(values, color=color, fill=True, linewidth=0, label=label)
    return axes.stairs(values, color=color, baseline=None, linewidth=0.9, label=label)  # no vertical lines at the ends


def legend_entries(axes: "Axes") -> "tuple[list[Artist], list[str]]":
    """Handles and labels of a panel for a legend, the belief first."""
    from matplotlib.container import BarContainer
    from matplotlib.patches import Patch

    handles, labels = axes.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    belief = entries.pop(BELIEF)
    capped = Patch(facecolor=PALE, edgecolor=INK, linewidth=0.9) if isinstance(belief, BarContainer) else belief
    return [capped, *entries.values()], [BELIEF, *entries]


def _casing() -> "list[AbstractPathEffect]":
    """A white outline, so that a black line is visible on a dark bar."""
    from matplotlib.patheffects import Normal, Stroke

    return [Stroke(linewidth=1.7, foreground="white"), Normal()]


def _ticks(axes: "Axes", axis: RegionAxis, *, width: float) -> None:
    """Place labels side by side if they fit, else upright, else only every second, fifth, tenth, ... label."""
    place = width * POINTS_AN_INCH / len(axis.labels)
    upright = stand_upright(axis, width=width)
    step = every((1.2 * SMALL_SIZE if upright else label_width(axis.labels)) / place)
    axes.set_xticks(axis.positions[::step], axis.labels[::step], rotation=90 if upright else 0)


def stand_upright(axis: RegionAxis, *, width: float) -> bool:
    """Whether the labels do not fit side by side into the width in inches, and none can be left out."""
    return not axis.ordered and label_width(axis.labels) * len(axis.labels) > width * POINTS_AN_INCH


def label_width(labels: Sequence[str]) -> float:
    """Width of the longest line in points, including the space after it."""
    return (1 + max(len(line) for label in labels for line in label.split("\n"))) * CHARACTER


def every(crowding: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, ... that is at least a number.

    Example:
        >>> every(0.3), every(1.7), every(12)
        (1, 2, 20)
    """
    decade = int(10 ** math.floor(math.log10(max(crowding, 1))))
    return next(m * decade for m in (1, 2, 5, 10) if m * decade >= crowding)
