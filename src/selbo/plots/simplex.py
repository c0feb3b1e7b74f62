r"""The simplex of three classes as a triangle: a belief as a heat map, the regions of a partition, their masses.

A prediction $(p_0, p_1, p_2)$ is drawn at $\sum_k p_k c_k$, with $c_k$ the corner of class k of an equilateral triangle
of side one: class 0 at the lower left, class 1 at the lower right, class 2 at the top.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selbo.plots.labels import class_labels, percent, region_labels, shell_labels
from selbo.plots.style import COLOUR_MAP, INK, SMALL_SIZE
from selbo.summary.beliefs import Belief, Dirichlet, Uniform
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

Array = NDArray[np.float64]

HEIGHT: Final = math.sqrt(3) / 2
CORNERS: Final[Array] = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, HEIGHT]])

DENSITY_LIMITS: Final = (0.03, 30.0)
"""Where the colours end, in multiples of the uniform density: a density may be infinite on the border, or zero."""

PIXELS: Final = 400
"""Pixels of the heat map along a side; a triangle two inches wide is printed at 200 an inch."""

LINE_SPACING: Final = 1.25

BRIGHT: Final = 0.26
"""Luminance above which a text is black rather than white; the middle grey of the eye is near it."""


def to_plane(probs: ArrayLike) -> Array:
    """Predictions as points of the triangle: (..., 3) -> (..., 2).

    Example:
        >>> to_plane([0.5, 0.5, 0.0])
        array([0.5, 0. ])
    """
    return np.asarray(np.asarray(probs, dtype=np.float64) @ CORNERS)


def from_plane(points: ArrayLike) -> Array:
    """Points of the plane as predictions, the inverse of `to_plane`: (..., 2) -> (..., 3); negative outside."""
    x, y = np.moveaxis(np.asarray(points, dtype=np.float64), -1, 0)
    top = y / HEIGHT
    return np.stack([1 - x - top / 2, x - top / 2, top], axis=-1)


def boundaries(partition: Partition) -> Array:
    """Line segments that separate the regions of a partition of three classes.

    Args:
        partition: `CornerShells`, `ClassRegions` or `ConfidenceBins`, with three classes.

    Returns:
        The two ends of each segment as predictions, shape (n, 2, 3).

    Example:
        >>> boundaries(CornerShells(3, [0.8]))[2]
        array([[0.2, 0. , 0.8],
               [0. , 0.2, 0.8]])
    """
    three_classes("partition", partition.num_classes)
    if isinstance(partition, ClassRegions):  # from the centre to the middle of the opposite side
        centre = np.full((3, 3), 1 / 3)
        return np.stack([centre, (1 - np.eye(3)) / 2], axis=1)
    if isinstance(partition, CornerShells | ConfidenceBins):
        return np.array([_line(k, level) for level in partition.edges.values for k in range(3)])
    raise ValueError(
        f"`partition` must be CornerShells, ClassRegions or ConfidenceBins, but got {type(partition).__name__}"
    )


def _line(k: int, level: float) -> Array:
    """Where the largest entry is entry k and equal to a level: its two ends."""
    other = min(level, 1 - level)  # below one half the line ends where another class becomes the largest
    first, second = (j for j in range(3) if j != k)
    ends = np.full((2, 3), 1 - level - other)
    ends[:, k] = level
    ends[0, first] = ends[1, second] = other
    return ends


def three_classes(name: str, num_classes: int) -> None:
    """A triangle has three corners."""
    if num_classes != 3:
        raise ValueError(f"`{name}` must be about 3 classes to be drawn in a triangle, but got {num_classes}")


def log_density(belief: Belief, probs: ArrayLike) -> Array:
    """Log of the density of a belief, relative to the uniform one, inside the simplex: (..., 3) -> (...).

    Example:
        >>> log_density(Dirichlet([1, 1, 1]), [0.2, 0.3, 0.5])
        array(0.)
    """
    from scipy.special import gammaln, xlogy

    if isinstance(belief, Uniform):
        concentration = np.ones(3)
    elif isinstance(belief, Dirichlet):
        three_classes("belief", len(belief.concentration))
        concentration = np.array(belief.concentration)
    else:
        raise ValueError(f"`belief` must have a density on the simplex, as selbo.Dirichlet has, but got {belief!r}")
    constant = gammaln(concentration.sum()) - gammaln(concentration).sum() - gammaln(3.0)
    return np.asarray(constant + xlogy(concentration - 1, np.asarray(probs, dtype=np.float64)).sum(-1))


def heat_map(axes: "Axes", belief: Belief, *, limits: tuple[float, float] = DENSITY_LIMITS) -> "AxesImage":
    """Draw the density of a belief into a triangle, on a logarithmic colour scale.

    Args:
        axes: Where to.
        belief: One with a density on the simplex of three classes.
        limits: Ends of the colours, as multiples of the uniform density; what lies beyond is clipped to them.

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
    inside = np.clip(probs, 0.5 / PIXELS, None)  # a pixel on the border is coloured as half a pixel inside
    values = log_density(belief, inside / inside.sum(-1, keepdims=True))
    low, high = np.log(limits)
    image = axes.imshow(
        np.exp(np.clip(values, low - 1, high + 1)),  # exp of anything may be 0 or inf, which have no logarithm
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
    """Draw the lines between the regions: white on a dark ground, so that they show on any colour."""
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
    """One panel: the density of a belief about three classes, the regions of a partition, and the mass of each.

    Args:
        axes: Where to; its axis lines are switched off.
        belief: `Dirichlet` or `Uniform`.
        partition: `CornerShells`, `ClassRegions` or `ConfidenceBins`, with three classes.
        class_names: One name a class, for the corners.
        limits: Ends of the colours, as multiples of the uniform density.

    Returns:
        The heat map, for a colour bar.
    """
    three_classes("partition", partition.num_classes)
    masses = belief.masses(partition).tolist()
    names = class_labels(3, class_names)
    image = heat_map(axes, belief, limits=limits)
    draw_boundaries(axes, partition)
    notes: list[list[str]] = [[], [], []]
    if isinstance(partition, CornerShells):
        shells = shell_labels(partition)
        notes = [[f"{shell}: {percent(masses[3 * s + k])}" for s, shell in enumerate(shells)] for k in range(3)]
        _inside(axes, image, [1 / 3, 1 / 3, 1 / 3], percent(masses[-1]))
    elif isinstance(partition, ClassRegions):
        for k in range(3):
            _inside(axes, image, np.where(np.arange(3) == k, 0.6, 0.2), percent(masses[k]))
    else:
        rows = [f"{label}: {percent(mass)}" for label, mass in zip(region_labels(partition), masses, strict=True)]
        _note(axes, (0.5, 0.0), "\n".join(["largest p", *reversed(rows)]), offset=(0, -3), ha="center", va="top")
    for k in range(3):
        _corner(axes, k, names[k], notes[k])
    axes.set(xlim=(0, 1), ylim=(0, HEIGHT), aspect="equal")
    axes.set_axis_off()
    return image


def num_notes(partition: Partition) -> int:
    """Lines below the triangle, but for the names of the classes: one a shell, or one a bin of confidence."""
    if isinstance(partition, CornerShells):
        return len(partition.edges.values)
    return partition.num_regions if isinstance(partition, ConfidenceBins) else 0


def _corner(axes: "Axes", k: int, name: str, notes: list[str]) -> None:
    """Name of a class and masses of its shells: below the lower corners; above and to the right of the upper one."""
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
