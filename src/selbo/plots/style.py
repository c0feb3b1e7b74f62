"""The style of all figures: sizes, colours, and how a figure is written to disk.

Figures are plain `matplotlib.figure.Figure` objects, without pyplot or windows. They neither change nor depend on the
matplotlib settings of the session.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from selbo import _checks
from selbo._files import naming
from selbo.plots.labels import tick_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE_COLUMN: Final = 3.3
TWO_COLUMNS: Final = 6.8
"""Widths of one and of two columns of a paper, in inches. Figures are drawn at their printed size."""

SMALLEST_WIDTH: Final = 2.0

TEXT_SIZE: Final = 8.0
SMALL_SIZE: Final = 7.0
"""Font sizes in points: titles and axis labels; ticks, legends and notes. Only indices are smaller."""

INK: Final = "#1a1a1a"
PALE: Final = "#e2e2e2"
PALETTE: Final = ("#004488", "#DDAA33", "#BB5566", "#6699CC", "#EECC66", "#EE99AA")
"""Paul Tol's high-contrast colours, then their light variants: distinguishable for colour-blind readers and in
greyscale, where the first three are dark, light and between (https://personal.sron.nl/~pault/)."""

COLOUR_MAP: Final = "viridis"
"""Perceptually uniform, colour-blind safe, and its lightness grows with the value."""

PIXELS_AN_INCH: Final = 200

FORMATS: Final = ("png", "pdf", "svg")

UNDATED: Final[dict[str, dict[str, Any]]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None, "Creator": None},
}
"""Omits time and version from files, so that the same figure gives the same bytes."""

STYLE_SETTINGS: Final[dict[str, Any]] = {
    "svg.hashsalt": "selbo",  # reproducible ids
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a figure looks the same everywhere
    "font.size": SMALL_SIZE,
    "axes.titlesize": TEXT_SIZE,
    "axes.labelsize": TEXT_SIZE,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "legend.fontsize": SMALL_SIZE,
    "legend.frameon": False,
    "legend.handlelength": 1.4,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.4,
    "legend.borderaxespad": 0.2,
    "hatch.linewidth": 0.6,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100.0,
    "pdf.fonttype": 42,  # TrueType: publishers refuse the Type 3 fonts of the default
}


def require_matplotlib() -> None:
    """Raise an error that names the package to install, if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "figures need matplotlib, which is not installed: pip install 'selbo[plot]'", name="matplotlib"
        ) from None


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply the style of all figures inside the block; restores the settings of the session on exit."""
    require_matplotlib()
    from matplotlib.style import context

    with context(["default", STYLE_SETTINGS]):
        yield


@contextmanager
def saving_style() -> Iterator[None]:
    """`figure_style` for saving: a figure without a layout engine gets none afterwards, whatever the style says."""
    with figure_style():
        from matplotlib import rc_context

        with rc_context({"figure.constrained_layout.use": False}):
            yield


def checked_width(width: float) -> float:
    """Validate a width in inches: it must leave room for the text."""
    if not _checks.positive("width", width) >= SMALLEST_WIDTH:
        raise ValueError(
            f"`width` must be at least {SMALLEST_WIDTH:g} inches, or the text has no room, but got {width!r}"
        )
    return float(width)


def new_figure(*, width: float, height: float, layout: bool = True) -> "Figure":
    """An empty figure of the given size in inches; call it inside `figure_style`.

    Args:
        width: Width.
        height: Height.
        layout: Arrange the axes automatically. Axes that are placed by hand need no layout, and without one a figure is
            drawn once when it is saved instead of twice.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({} if layout else {"figure.constrained_layout.use": False}):
        return Figure(figsize=(checked_width(width), height))


def tidy(axes: "Axes") -> None:
    """Set two spines and small ticks explicitly, since ticks may be created after `figure_style` has ended."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL_SIZE, length=2.5, width=0.6, pad=2.0, color=INK, labelcolor=INK)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(tick_label)


def save_figure(
    figure: "Figure", folder: str | os.PathLike[str], name: str, *, formats: Sequence[str] = ("png", "pdf")
) -> list[Path]:
    """Write a figure, in all formats or in none.

    The files are renamed to their final names when all of them are complete: a failure leaves existing files unchanged.

    Args:
        figure: Any matplotlib figure; its size is kept.
        folder: Output folder; created if needed.
        name: Name of the files, without folder and ending.
        formats: Any of ``"png"``, ``"pdf"`` and ``"svg"``.

    Returns:
        The paths written, in the order of ``formats``.
    """
    if name in {"", ".."} or Path(name).name != name:
        raise ValueError(f"`name` must be the name of a file, without a folder, but got {name!r}")
    if isinstance(formats, str) or not formats:
        raise ValueError(f"`formats` must be a list of formats such as {list(FORMATS)}, but got {formats!r}")
    wanted = [_checks.one_of("formats", each, FORMATS) for each in formats]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=f".{name}-") as unfinished:
        files = [Path(unfinished) / f"{name}.{each}" for each in wanted]
        with saving_style():
            for file, each in zip(files, wanted, strict=True):
                with naming(target / file.name, written_as=file):
                    figure.savefig(file, format=each, dpi=PIXELS_AN_INCH, metadata=UNDATED[each])
        return [file.replace(target / file.name) for file in files]
