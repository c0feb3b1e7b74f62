"""Short labels for the regions of a partition on an axis."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from selbo.summary._labels import CONFIDENCE_TITLE, class_labels, number, score_title
from selbo.summary.description import is_by_class
from selbo.summary.partitions import Partition

__all__ = [
    "CONFIDENCE_TITLE",
    "SHORT_CONFIDENCE_TITLE",
    "RegionAxis",
    "class_axis",
    "class_labels",
    "duration",
    "number",
    "percent",
    "region_axis",
    "score_title",
    "tick_label",
]


class RegionAxis(NamedTuple):
    """An axis on which region r extends from r to r + 1.

    Attributes:
        positions: Positions of the ticks: at the edges of intervals, in the middle of other regions.
        labels: Labels of the ticks.
        title: Title of the axis.
        ordered: Whether a label can be left out, because its neighbours imply it.
    """

    positions: list[float]
    labels: list[str]
    title: str
    ordered: bool


def tick_label(value: float, _place: float | None = None) -> str:
    """The full value of a tick, without rounding errors; matplotlib also passes the position.

    Example:
        >>> tick_label(81.25), tick_label(0.1 + 0.2)
        ('81.25', '.3')
    """
    return number(value, digits=9)


def percent(mass: float) -> str:
    """A mass as a percentage; one decimal, two if it is small.

    Example:
        >>> percent(0.2004), percent(0.00032), percent(1e-7)
        ('20.0 %', '0.03 %', '< 0.01 %')
    """
    if 0 < mass < 5e-5:
        return "< 0.01 %"
    return f"{100 * mass:.2f} %" if 0 < mass < 1e-3 else f"{100 * mass:.1f} %"


SHORT_CONFIDENCE_TITLE: Final = "largest probability"


def region_axis(partition: Partition, class_names: Sequence[str] | None = None) -> RegionAxis:
    """Ticks for an axis with one position per region.

    Example:
        >>> from selbo.summary.partitions import ScoreBins
        >>> region_axis(ScoreBins([0.25, 0.5]))
        RegionAxis(positions=[0.0, 1.0, 2.0, 3.0], labels=['0', '.25', '.5', '1'],
                   title='probability of class 1', ordered=True)
    """
    regions = partition.num_regions
    names = class_labels(partition.num_classes, class_names)
    if scale := partition.scale(names):
        return RegionAxis([float(r) for r in range(regions + 1)], list(scale.ends), scale.title, ordered=True)
    if is_by_class(partition):
        return class_axis(partition.num_classes, class_names)
    labels = partition.region_labels(names)
    if shells := partition.shells():
        labels = [*(f"{name}\n{shell}" for shell in shells for name in names), labels[-1]]
    return RegionAxis([r + 0.5 for r in range(regions)], labels, "", ordered=False)


def class_axis(num_classes: int, class_names: Sequence[str] | None = None) -> RegionAxis:
    """Ticks for an axis with one position per class: its name or its number."""
    named = class_names is not None
    labels = class_labels(num_classes, class_names) if named else [str(k) for k in range(num_classes)]
    return RegionAxis([k + 0.5 for k in range(num_classes)], labels, "predicted class", ordered=not named)


def duration(seconds: float) -> str:
    """Format a duration.

    Example:
        >>> duration(0.42), duration(41.3), duration(761), duration(7400)
        ('0.4 s', '41 s', '12 min 41 s', '2 h 3 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
