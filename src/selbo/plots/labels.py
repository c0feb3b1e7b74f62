"""Words and numbers for the regions of a partition, short enough for an axis."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from selbo.summary.beliefs import Belief, Beta, Dirichlet, Uniform
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins


class RegionAxis(NamedTuple):
    """An axis on which region r takes the place from r to r + 1.

    Attributes:
        positions: Where the ticks are: at the edges of intervals, in the middle of other regions.
        labels: What they say.
        title: What the axis shows.
        ordered: Whether a label can be left out, because its neighbours tell it.
    """

    positions: list[float]
    labels: list[str]
    title: str
    ordered: bool


def number(value: float, *, digits: int = 3) -> str:
    """A few significant digits, without a leading zero.

    Example:
        >>> number(0.95), number(1.0), number(2.345), number(1e-5)
        ('.95', '1', '2.35', '1e-05')
    """
    text = f"{value:.{digits}g}"
    return text[1:] if text.startswith("0.") else text


def tick_label(value: float, _place: float | None = None) -> str:
    """The value of a tick, all of it, free of rounding errors; for matplotlib, which gives the place, too.

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


def belief_label(belief: Belief) -> str:
    """A belief with its parameters, three digits each.

    Example:
        >>> belief_label(Dirichlet([0.0898504, 1, 2.5]))
        'Dirichlet(.0899, 1, 2.5)'
    """
    if isinstance(belief, Dirichlet):
        return f"Dirichlet({', '.join(number(a) for a in belief.concentration)})"
    if isinstance(belief, Beta):
        return f"Beta({number(belief.a)}, {number(belief.b)})"
    return "uniform" if isinstance(belief, Uniform) else repr(belief)


def class_labels(num_classes: int, class_names: Sequence[str] | None = None) -> list[str]:
    """Names of the classes: those given, or ``class 0``, ``class 1``, ..."""
    if class_names is None:
        return [f"class {k}" for k in range(num_classes)]
    if isinstance(class_names, str) or len(class_names) != num_classes:
        raise ValueError(f"`class_names` must hold {num_classes} names, one a class, but got {class_names!r}")
    return [str(name) for name in class_names]


def edge_labels(edges: Sequence[float]) -> list[str]:
    """Edges between 0 and 1 with three digits, or as many as it takes to tell them from each other and from the ends.

    Example:
        >>> edge_labels([1 / 7, 0.5]), edge_labels([0.99, 0.9999])
        (['.143', '.5'], ['.99', '.9999'])
    """
    for digits in range(3, 17):
        labels = [number(edge, digits=digits) for edge in edges]
        if len({"0", *labels, "1"}) == len(labels) + 2:
            return labels
    return [repr(edge) for edge in edges]


def shell_labels(partition: CornerShells) -> list[str]:
    """The shells of a corner, from the corner inwards.

    Example:
        >>> shell_labels(CornerShells(3))
        ['> .95', '.85–.95']
    """
    levels = edge_labels(partition.edges.values)
    return [f"> {levels[-1]}", *(f"{low}–{high}" for low, high in reversed(list(pairwise(levels))))]


def region_labels(partition: Partition, class_names: Sequence[str] | None = None, *, separator: str = " ") -> list[str]:
    """One label a region, in the order of the regions.

    Args:
        partition: Any partition; the regions of one that is not selbo's are numbered.
        class_names: One name a class, instead of ``class 0``, ...
        separator: Between a class and its shell; a line break on a narrow axis.

    Returns:
        R labels.

    Example:
        >>> region_labels(CornerShells(2), ["cat", "dog"])
        ['cat > .95', 'dog > .95', 'cat .85–.95', 'dog .85–.95', 'centre']
        >>> region_labels(ConfidenceBins([0.5, 0.9], num_classes=10))
        ['≤ .5', '.5–.9', '> .9']
    """
    names = class_labels(partition.num_classes, class_names)
    if isinstance(partition, CornerShells):
        return [*(f"{name}{separator}{shell}" for shell in shell_labels(partition) for name in names), "centre"]
    if isinstance(partition, ClassRegions):
        return names
    if isinstance(partition, ScoreBins):
        return [f"{low}–{high}" for low, high in pairwise(["0", *edge_labels(partition.edges.values), "1"])]
    if isinstance(partition, ConfidenceBins):
        edges = edge_labels(partition.edges.values)
        return [f"≤ {edges[0]}", *(f"{low}–{high}" for low, high in pairwise(edges)), f"> {edges[-1]}"]
    return [f"region {r}" for r in range(partition.num_regions)]


CONFIDENCE_TITLE: Final = "largest predicted probability"
SHORT_CONFIDENCE_TITLE: Final = "largest probability"


def score_title(second_class: str = "class 1") -> str:
    """What the score of two classes is the probability of.

    Example:
        >>> score_title("yes"), score_title()
        ('probability of class yes', 'probability of class 1')
    """
    return f"probability of class {second_class.removeprefix('class ')}"


def region_axis(partition: Partition, class_names: Sequence[str] | None = None) -> RegionAxis:
    """Ticks for an axis with one place a region.

    Example:
        >>> region_axis(ScoreBins([0.25, 0.5]))
        RegionAxis(positions=[0.0, 1.0, 2.0, 3.0], labels=['0', '.25', '.5', '1'],
                   title='probability of class 1', ordered=True)
    """
    regions = partition.num_regions
    names = class_labels(partition.num_classes, class_names)
    if isinstance(partition, ScoreBins | ConfidenceBins):
        score = isinstance(partition, ScoreBins)
        lowest = "0" if score else f"1/{partition.num_classes}"  # no largest probability is below 1/K
        labels = [lowest, *edge_labels(partition.edges.values), "1"]
        title = score_title(names[1]) if score else CONFIDENCE_TITLE
        return RegionAxis([float(r) for r in range(regions + 1)], labels, title, ordered=True)
    if isinstance(partition, ClassRegions):
        return class_axis(partition.num_classes, class_names)
    labels = region_labels(partition, class_names, separator="\n")
    return RegionAxis([r + 0.5 for r in range(regions)], labels, "", ordered=False)


def class_axis(num_classes: int, class_names: Sequence[str] | None = None) -> RegionAxis:
    """Ticks for an axis with one place a class: its name, or else its number."""
    named = class_names is not None
    labels = class_labels(num_classes, class_names) if named else [str(k) for k in range(num_classes)]
    return RegionAxis([k + 0.5 for k in range(num_classes)], labels, "predicted class", ordered=not named)


def duration(seconds: float) -> str:
    """A time in words.

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
