"""Shared parts of the figures of a comparison: equal panels, names at line ends, the axis of regions."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from selbo.plots.histograms import CHARACTER, POINTS_AN_INCH
from selbo.plots.labels import RegionAxis
from selbo.plots.style import INK, SMALL_SIZE, TEXT_SIZE, checked_width, new_figure
from selbo.results import RegionScale
from selbo.summary.partitions import Scale

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

GUIDE: Final = "#8a8a8a"
"""Colour of lines that are not data."""

SIDE_BY_SIDE: Final = 5.0
"""Inches; narrower figures have fewer panels side by side."""

LEFT: Final = 0.46
RIGHT: Final = 0.14
GAP: Final = 0.2
"""Inches for the ticks and label of a vertical axis, the right margin, and the space between panels."""

TITLE: Final = 0.37
FOOT: Final = 0.4
BETWEEN: Final = 0.14
LEGEND: Final = 0.18
"""Inches for the two lines above a panel, ticks and label below the lowest, the row spacing, and the legend."""

MOST_LINES: Final = 3
TITLE_LINE: Final = 0.14
"""Lines that the name of a method may have, and inches for each of them after the first."""

BOLD: Final = 1.3
"""Ratio of the widths of a bold panel title and the same text in a label."""

LARGER: Final = {1: 1.4, 2: 1.2, 3: 1.0}
"""Width of a panel, relative to one of three, by the number of panels side by side."""


class Grid:
    """Equal panels in rows and columns, one per method, with its name and a note above each; all sizes in inches.

    Args:
        count: Number of panels.
        width: Maximum width of the figure; with few panels it becomes narrower.
        height: Height of a panel; square if not given.
        foot: Space below the lowest panel.
        legend: Whether there is a legend line at the top.
        full: Whether a single panel takes the whole width.
        names: Names of the methods, to make room for as many lines as the longest needs.
        gap: Space between panels side by side.
    """

    def __init__(
        self,
        count: int,
        *,
        width: float,
        height: float | None = None,
        foot: float = FOOT,
        legend: bool = True,
        full: bool = False,
        names: Iterable[str] = (),
        gap: float = GAP,
    ) -> None:
        most = 3 if checked_width(width) >= SIDE_BY_SIDE else 2
        self.count, self.gap = count, gap
        self.columns = min(count, 2 if count == 4 else most)
        self.rows = -(-count // self.columns)
        self.panel = (width - LEFT - RIGHT - (most - 1) * gap) / most * LARGER[3 - most + self.columns]
        if count == 1 and (full or most == 2):
            self.panel = width - LEFT - RIGHT
        self.width = LEFT + self.columns * (self.panel + gap) - gap + RIGHT
        self.plot = self.panel if height is None else height
        self.lines = max((len(self.wrapped(name)) for name in names), default=1)
        self.foot, self.step = foot, TITLE + (self.lines - 1) * TITLE_LINE + self.plot + BETWEEN
        self.height = LEGEND * legend + self.rows * self.step - BETWEEN + foot
        self.figure = new_figure(width=self.width, height=self.height, layout=False)

    def place(self, i: int, *, low: float = 0.0, high: float = 1.0) -> "Axes":
        """Panel i, or the part of its height between two fractions."""
        row, column = divmod(i, self.columns)
        x = LEFT + column * (self.panel + self.gap)
        y = self.foot + (self.rows - 1 - row) * self.step + low * self.plot
        size = (self.panel / self.width, (high - low) * self.plot / self.height)
        return self.figure.add_axes((x / self.width, y / self.height, *size))

    def first(self, i: int) -> bool:
        """Whether panel i is the first of its row, which has the vertical axis."""
        return i % self.columns == 0

    def lowest(self, i: int) -> bool:
        """Whether no panel is below panel i, which then has the horizontal axis."""
        return i + self.columns >= self.count

    def name(self, axes: "Axes", method: str, note: str) -> None:
        """Write the lines above a panel: the method, and its number."""
        shown = "\n".join(self.wrapped(method)[: self.lines])
        for text, above, size, weight in ((shown, 13.5, TEXT_SIZE, "bold"), (note, 4.0, SMALL_SIZE, "normal")):
            axes.annotate(
                text,
                xy=(0, 1),
                xytext=(0, above),
                xycoords="axes fraction",
                textcoords="offset points",
                color=INK,
                fontsize=size,
                fontweight=weight,
                parse_math=False,  # a name may have dollar signs
            )

    def wrapped(self, method: str) -> list[str]:
        """The lines of a name above a panel; one that is too long ends with an ellipsis."""
        points = self.panel * POINTS_AN_INCH / BOLD
        lines = textwrap.wrap(method, int(points / CHARACTER), break_long_words=False) or [""]
        lines = [*lines[: MOST_LINES - 1], " ".join(lines[MOST_LINES - 1 :])] if len(lines) > MOST_LINES else lines
        return [shortened(line, points=points) for line in lines]

    def legend(self, entries: "Mapping[str, Artist]") -> None:
        """Draw the legend as a line above the first panel."""
        place = (LEFT / self.width, 1.0)
        options: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": place, "borderpad": 0, "ncols": len(entries)}
        for text in self.figure.legend(list(entries.values()), list(entries), **options).get_texts():
            text.set_parse_math(False)


def filled() -> "Artist":
    """Legend handle for areas filled with the colour of each method."""
    from matplotlib.patches import Patch

    return Patch(facecolor=GUIDE, linewidth=0)


def shortened(text: str, *, points: float) -> str:
    """Shorten a text with an ellipsis if it does not fit into the width.

    Example:
        >>> shortened("label smoothing", points=100), shortened("label smoothing", points=40)
        ('label smoothing', 'label smo…')
    """
    room = int(points / CHARACTER)
    return text if len(text) <= room else f"{text[: room - 1]}…"


def plus_minus(mean: float, error: float | None, *, digits: int, scale: float = 1.0) -> str:
    """Format a mean and its standard error; with one more digit if the error would be written as 0.

    Example:
        >>> (
        ...     plus_minus(0.0312, 0.0021, scale=100, digits=1),
        ...     plus_minus(0.5, 0.02, digits=1),
        ...     plus_minus(2, None, digits=1),
        ... )
        ('3.1 ± 0.2', '0.50 ± 0.02', '2.0')
    """
    if error is None:
        return f"{scale * mean:.{digits}f}"
    digits += scale * error < 0.5 * 10**-digits
    return f"{scale * mean:.{digits}f} ± {scale * error:.{digits}f}"


def spread(positions: Sequence[float], *, gap: float) -> list[float]:
    """Move positions as little as possible, in least squares, until neighbours are a gap apart; keeps the order.

    Example:
        >>> spread([0.0, 0.1, 5.0], gap=1.0)
        [-0.45, 0.55, 5.0]
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    blocks: list[tuple[float, int]] = []  # mean and size of runs that touch: isotonic regression of position - i gap
    for i, index in enumerate(order):
        mean, size = positions[index] - i * gap, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        blocks.append((mean, size))
    moved = [mean for mean, size in blocks for _ in range(size)]
    placed = {index: value + i * gap for i, (index, value) in enumerate(zip(order, moved, strict=True))}
    return [placed[i] for i in range(len(positions))]


class LineEnd(NamedTuple):
    """End of a line in data coordinates, and its colour."""

    x: float
    y: float
    colour: str


def names_at_ends(axes: "Axes", ends: Mapping[str, LineEnd], *, size: tuple[float, float], room: float) -> None:
    """Write names right of the lines, moved apart if they would touch, each with a thin line to its end.

    Args:
        axes: Axes to draw into; their limits are kept.
        ends: Ends of the lines, by name.
        size: Width and height of the axes in inches.
        room: Inches right of the axes for the names; longer ones are shortened.
    """
    across, high = (POINTS_AN_INCH * side for side in size)
    (left, right), (low, top) = axes.get_xlim(), axes.get_ylim()
    axes.set(xlim=(left, right), ylim=(low, top))
    heights = [high * (end.y - low) / (top - low) for end in ends.values()]
    apart = spread(heights, gap=1.3 * SMALL_SIZE)
    lift = max(0.0, -min(apart, default=0.0)) or min(0.0, high - max(apart, default=0.0))
    for (name, end), before, after in zip(ends.items(), heights, apart, strict=True):
        axes.annotate(
            shortened(name, points=POINTS_AN_INCH * room - 14),
            xy=(across * (end.x - left) / (right - left), before),
            xytext=(across + 12, after + lift),
            xycoords="axes points",
            textcoords="axes points",
            annotation_clip=False,
            parse_math=False,
            va="center",
            color=INK,
            fontsize=SMALL_SIZE,
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "linewidth": 0.6,
                "relpos": (0, 0.5),
                "shrinkA": 0,
                "shrinkB": 3,
            },
        )


def build_axis(
    regions: Sequence[str], *, scale: Scale | RegionScale | None = None, shells: Sequence[str] = ()
) -> tuple[RegionAxis, list[float]]:
    """Ticks of the axis of regions, and the ends of groups of regions.

    Args:
        regions: One label per region.
        scale: The quantity whose intervals are the regions, if there is one; ticks are then at their ends.
        shells: Labels of the shells, if the regions are K per shell followed by a centre; each shell gets one tick.

    Example:
        >>> build_axis(["a > .9", "b > .9", "centre"], shells=["> .9"])
        (RegionAxis(positions=[1.0, 2.5], labels=['> .9', 'centre'], title='class probability',
                    ordered=True), [2.0])
    """
    count = len(regions)
    if scale is not None:
        return RegionAxis([float(r) for r in range(count + 1)], list(scale.ends), scale.title, ordered=True), []
    if shells:
        classes = (count - 1) // len(shells)
        middles = [classes * (s + 0.5) for s in range(len(shells))]
        axis = RegionAxis([*middles, count - 0.5], [*shells, regions[-1]], "class probability", ordered=True)
        return axis, [float(classes * (s + 1)) for s in range(len(shells))]
    return RegionAxis([r + 0.5 for r in range(count)], list(regions), "", ordered=False), []
