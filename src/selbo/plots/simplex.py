r"""The simplex of three classes as a triangle: a belief as a heat map, the regions of a partition, their masses.

A prediction $(p_0, p_1, p_2)$ is drawn at $\sum_k p_k c_k$, with $c_k$ the corner of class k of an equilateral triangle
of side one: class 0 at the lower left, class 1 at the lower right, class 2 at the top.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from selbo._numerics import FloatArray
from selbo.plots.labels import class_labels, percent
from selbo.plots.style import COLOUR_MAP, INK, SMALL_SIZE
from selbo.summary.beliefs import Belief, Uniform
from selbo.summary.description import is_by_class
from selbo.summary.partitions import Partition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

HEIGHT: Final = math.sqrt(3) / 2
CORNERS: Final[FloatArray] = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, HEIGHT]])

DENSITY_LIMITS: Final = (0.03, 30.0)
"""Where the colours end, in multiples of the uniform density: a density may be infinite on the border, or zero."""

PIXELS: Final = 400
"""Pixels of the heat map along a side; a triangle two inches wide is printed at 200 an inch."""

TRACED_CELLS: Final = 120
TRACED_SCORES: Final = 2000
HALVINGS: Final = 40
"""Where regions do not say where they meet: cells along a side of the triangle, cells of the score, and how often a
crossing is halved."""

LINE_SPACING: Final = 1.25

BRIGHT: Final = 0.26
"""Luminance above which a text is black rather than white; the middle grey of the eye is near it."""


def to_plane(probs: ArrayLike) -> FloatArray:
    """Predictions as points of the triangle: (..., 3) -> (..., 2).

    Example:
        >>> to_plane([0.5, 0.5, 0.0])
        array([0.5, 0. ])
    """
    return np.asarray(np.asarray(probs, dtype=np.float64) @ CORNERS)


def from_plane(points: ArrayLike) -> FloatArray:
    """Points of the plane as predictions, the inverse of `to_plane`: (..., 2) -> (..., 3); negative outside."""
    x, y = np.moveaxis(np.asarray(points, dtype=np.float64), -1, 0)
    top = y / HEIGHT
    return np.stack([1 - x - top / 2, x - top / 2, top], axis=-1)


def boundaries(partition: Partition) -> FloatArray:
    """Where the regions of a partition of two or three classes meet: as it says, or else as `assign` shows.

    Args:
        partition: Any, with two or three classes.

    Returns:
        Points for two classes, shape (n, 1, 2), and the two ends of lines for three, shape (n, 2, 3), as predictions.

    Example:
        >>> from selbo.summary.partitions import CornerShells
        >>> boundaries(CornerShells(3, [0.8]))[2]
        array([[0.2, 0. , 0.8],
               [0. , 0.2, 0.8]])
    """
    if partition.num_classes != 2:
        three_classes("partition", partition.num_classes)
    known = partition.boundaries()
    if known is not None:
        return known
    return _traced_points(partition) if partition.num_classes == 2 else _traced_lines(partition)


def _traced_points(partition: Partition) -> FloatArray:
    """Where the region changes on the way from score 0 to score 1."""
    scores = np.linspace(0, 1, TRACED_SCORES + 1)
    probs = np.stack([1 - scores, scores], -1)
    return _crossings(partition, probs[:-1], probs[1:])[:, None]


def _traced_lines(partition: Partition) -> FloatArray:
    """Lines between the regions through the cells of a triangular grid."""
    i, j = np.indices((TRACED_CELLS + 1, TRACED_CELLS + 1)).reshape(2, -1)
    first, second = np.array([[1, 0], [0, 1]]), np.array([[0, 1], [-1, 1]])  # cells that point up, and down
    corners = np.stack([i, j], -1)
    cells = np.concatenate([np.stack([corners, corners + a, corners + b], 1) for a, b in (first, second)])
    inside = ((cells >= 0).all((1, 2))) & (cells.sum(-1) <= TRACED_CELLS).all(1)
    steps = cells[inside] / TRACED_CELLS
    probs = np.concatenate([steps, 1 - steps.sum(-1, keepdims=True)], -1).clip(0, 1)  # (n, 3 corners, 3)
    regions = _regions(partition, probs)
    mixed = (regions != regions[:, :1]).any(1)
    probs, regions = probs[mixed], regions[mixed]
    lines = []
    for corner in range(3):  # between the two sides at a corner, where it alone is in its region
        one, two = (corner + 1) % 3, (corner + 2) % 3
        alone = (regions[:, corner] != regions[:, one]) & (regions[:, one] == regions[:, two])
        ends = [_crossings(partition, probs[alone, corner], probs[alone, other]) for other in (one, two)]
        lines.append(np.stack(ends, 1))
        # three regions in a cell: from each side to the middle
        three = (regions[:, corner] != regions[:, one]) & (regions[:, one] != regions[:, two])
        three &= regions[:, two] != regions[:, corner]
        sides = _crossings(partition, probs[three, corner], probs[three, one])
        lines.append(np.stack([sides, probs[three].mean(1)], 1))
    return np.concatenate(lines)


def _crossings(partition: Partition, start: FloatArray, end: FloatArray) -> FloatArray:
    """Points between pairs of predictions where the region changes, (n, K) each; pairs in one region are left out."""
    before = _regions(partition, start)
    changes = before != _regions(partition, end)
    start, end, before = start[changes], end[changes], before[changes]
    for _ in range(HALVINGS):
        middle = (start + end) / 2
        same = (_regions(partition, middle) == before)[:, None]
        start, end = np.where(same, middle, start), np.where(same, end, middle)
    return np.asarray((start + end) / 2)


def _regions(partition: Partition, probs: FloatArray) -> FloatArray:
    logs = np.log(np.clip(probs, np.finfo(np.float64).tiny, None))
    return np.asarray(partition.assign(torch.from_numpy(logs)).numpy())


def three_classes(name: str, num_classes: int) -> None:
    """Raise an error unless there are three classes."""
    if num_classes != 3:
        raise ValueError(f"`{name}` must be about 3 classes to be drawn in a triangle, but got {num_classes}")


def log_density(belief: Belief, probs: ArrayLike, partition: Partition | None = None) -> FloatArray:
    """Log of the density of a belief, relative to the uniform one, inside the simplex: (..., 3) -> (...).

    Args:
        belief: A belief about three classes.
        probs: Predictions, all positive.
        partition: For a belief without a density, which is then constant in each region.

    Example:
        >>> from selbo.summary.beliefs import Dirichlet
        >>> log_density(Dirichlet([1, 1, 1]), [0.2, 0.3, 0.5])
        array(0.)
    """
    from scipy.special import gammaln, xlogy

    three_classes("belief", belief.num_classes or 3)
    points = np.asarray(probs, dtype=np.float64)
    concentration = belief.dirichlet(3)
    if concentration is not None:
        constant = gammaln(concentration.sum()) - gammaln(concentration).sum() - gammaln(3.0)
        return np.asarray(constant + xlogy(concentration - 1, points).sum(-1))
    if partition is None:
        raise ValueError(f"`belief` must have a density on the simplex, as selbo.Dirichlet has, but got {belief!r}")
    return np.asarray(np.log(relative_density(partition, belief.masses(partition).numpy(), points)))


def relative_density(partition: Partition, masses: FloatArray, probs: ArrayLike) -> FloatArray:
    """Density of a histogram at predictions: the mass of their region over its mass under the uniform belief.

    Args:
        partition: The regions.
        masses: Masses of the regions, shape (R,).
        probs: Predictions, shape (..., K).

    Returns:
        Shape (...).
    """
    ratio = masses / Uniform().masses(partition).numpy()
    points = np.asarray(probs, dtype=np.float64)
    return np.asarray(ratio[partition.assign(torch.from_numpy(points).log()).numpy()])


def heat_map(
    axes: "Axes",
    belief: Belief,
    partition: Partition | None = None,
    *,
    limits: tuple[float, float] = DENSITY_LIMITS,
) -> "AxesImage":
    """Draw the density of a belief into a triangle, on a logarithmic colour scale.

    Args:
        axes: Axes to draw into.
        belief: A belief about three classes.
        partition: For a belief without a density, see `log_density`.
        limits: Limits of the colour scale, as multiples of the uniform density; values beyond are clipped.

    Returns:
        The image, for a colour bar.
    """
    if len(limits) != 2 or not 0 < limits[0] < limits[1] < math.inf:
        raise ValueError(f"`limits` must be two positive numbers, the smaller first, but got {limits!r}")
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Polygon

    x = (np.arange(PIXELS) + 0.5) / PIXELS
    y = (np.arange(round(PIXELS * HEIGHT)) + 0.5) / round(PIXELS * HEIGHT) * HEIGHT
    probs = from_plane(np.stack(np.meshgrid(x, y), axis=-1))
    inside = np.clip(probs, 0.5 / PIXELS, None)  # border pixels get the colour half a pixel inside
    values = log_density(belief, inside / inside.sum(-1, keepdims=True), partition)
    low, high = np.log(limits)
    image = axes.imshow(
        np.exp(np.clip(values, low - 1, high + 1)),  # avoids 0 and inf, which have no logarithm
        extent=(0.0, 1.0, 0.0, HEIGHT),
        origin="lower",
        cmap=COLOUR_MAP,
        norm=LogNorm(*limits),
        interpolation="bilinear",
    )
    outline = Polygon(CORNERS, closed=True, fill=False, edgecolor=INK, linewidth=0.8, joinstyle="miter", clip_on=False)
    axes.add_patch(outline)
    image.set_clip_path(outline)
    return image


def draw_boundaries(axes: "Axes", partition: Partition) -> None:
    """Draw the lines between the regions, white with a dark outline, to be visible on any colour."""
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import Normal, Stroke

    lines = LineCollection(list(to_plane(boundaries(partition))), colors="white", linewidths=0.7, capstyle="butt")
    lines.set_path_effects([Stroke(linewidth=1.7, foreground=INK), Normal()])
    axes.add_collection(lines)


def draw_belief(
    axes: "Axes",
    belief: Belief,
    partition: Partition,
    *,
    class_names: Sequence[str] | None = None,
    limits: tuple[float, float] = DENSITY_LIMITS,
) -> "AxesImage":
    """Draw one panel: the density of a belief about three classes, the regions of a partition, and their masses.

    Args:
        axes: Axes to draw into; their axis lines are switched off.
        belief: Any belief; without a density, the colour is constant in each region.
        partition: Any partition of three classes.
        class_names: One name per class, for the corners.
        limits: Limits of the colour scale, as multiples of the uniform density.

    Returns:
        The heat map, for a colour bar.
    """
    three_classes("partition", partition.num_classes)
    masses = belief.masses(partition).tolist()
    names = class_labels(3, class_names)
    image = heat_map(axes, belief, partition, limits=limits)
    draw_boundaries(axes, partition)
    notes, inside, listed = region_notes(partition, masses, names)
    for probs, text in inside:
        _inside(axes, image, probs, text)
    if listed:
        _note(axes, (0.5, 0.0), "\n".join(listed), offset=(0, -3), ha="center", va="top")
    for k in range(3):
        _corner(axes, k, names[k], notes[k])
    axes.set(xlim=(0, 1), ylim=(0, HEIGHT), aspect="equal")
    axes.set_axis_off()
    return image


class RegionNotes(NamedTuple):
    """Masses of regions, as texts around and inside a triangle.

    Attributes:
        corners: Lines next to each corner.
        inside: Position and text of each note inside.
        listed: Lines below, with a heading, for regions that belong to no corner.
    """

    corners: list[list[str]]
    inside: list[tuple[FloatArray, str]]
    listed: list[str]


def region_notes(partition: Partition, masses: Sequence[float] | FloatArray, names: Sequence[str]) -> RegionNotes:
    """Texts and positions of the masses of the regions of a partition of three classes."""
    if shells := partition.shells():
        corners = [[f"{shell}: {percent(masses[3 * s + k])}" for s, shell in enumerate(shells)] for k in range(3)]
        return RegionNotes(corners, [(np.full(3, 1 / 3), percent(masses[-1]))], [])
    if is_by_class(partition):
        within = [np.where(np.arange(3) == k, 0.6, 0.2) for k in range(3)]
        return RegionNotes([[], [], []], [(within[k], percent(masses[k])) for k in range(3)], [])
    labels, scale = partition.region_labels(names), partition.scale(names)
    rows = [f"{label}: {percent(mass)}" for label, mass in zip(labels, masses, strict=True)]
    return RegionNotes([[], [], []], [], ["mass of" if scale is None else scale.symbol, *reversed(rows)])


def num_notes(partition: Partition) -> int:
    """Number of lines below the triangle without the class names: one per shell or per listed region."""
    if shells := partition.shells():
        return len(shells)
    return 0 if is_by_class(partition) else partition.num_regions


def _corner(axes: "Axes", k: int, name: str, notes: list[str]) -> None:
    """Write the name of a class and the masses of its shells at its corner."""
    if k < 2:
        _note(axes, (k, 0), "\n".join([name, *notes]), offset=(0, -3), ha=("left", "right")[k], va="top")
        return
    _note(axes, (0.5, HEIGHT), name, offset=(0, 3), ha="center", va="bottom")
    depth = len(notes) * LINE_SPACING * SMALL_SIZE
    beside = 4 + depth / math.sqrt(3)  # clear of the side
    _note(axes, (0.5, HEIGHT), "\n".join(notes), offset=(beside, 2), ha="left", va="top")


def _note(
    axes: "Axes", point: tuple[float, float], text: str, *, offset: tuple[float, float], ha: str, va: str
) -> None:
    axes.annotate(
        text,
        point,
        xytext=offset,
        textcoords="offset points",
        ha=ha,
        va=va,
        fontsize=SMALL_SIZE,
        linespacing=LINE_SPACING,
        annotation_clip=False,
    )


def _inside(axes: "Axes", image: "AxesImage", probs: ArrayLike, text: str) -> None:
    x, y = to_plane(probs)
    pixels = np.asarray(image.get_array())
    value = pixels[int(y / HEIGHT * pixels.shape[0]), int(x * pixels.shape[1])]
    red, green, blue, _ = image.to_rgba(np.array([value]))[0] ** 2.2  # from sRGB to light
    bright = 0.2126 * red + 0.7152 * green + 0.0722 * blue > BRIGHT
    axes.text(x, y, text, color="black" if bright else "white", fontsize=SMALL_SIZE, ha="center", va="center")
