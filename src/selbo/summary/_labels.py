"""Short labels for classes and edges, used wherever regions are named."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

CONFIDENCE_TITLE: Final = "largest predicted probability"


def number(value: float, *, digits: int = 3) -> str:
    """A few significant digits, without a leading zero.

    Example:
        >>> number(0.95), number(1.0), number(2.345), number(1e-5)
        ('.95', '1', '2.35', '1e-05')
    """
    text = f"{value:.{digits}g}"
    return text[1:] if text.startswith("0.") else text


def class_labels(num_classes: int, class_names: Sequence[str] | None = None) -> list[str]:
    """Names of the classes: those given, or ``class 0``, ``class 1``, ..."""
    if class_names is None:
        return [f"class {k}" for k in range(num_classes)]
    if isinstance(class_names, str) or len(class_names) != num_classes:
        raise ValueError(f"`class_names` must hold {num_classes} names, one per class, but got {class_names!r}")
    return [str(name) for name in class_names]


def edge_labels(edges: Sequence[float]) -> list[str]:
    """Edges between 0 and 1 with three digits, or more if needed to keep them distinct from each other, 0 and 1.

    Example:
        >>> edge_labels([1 / 7, 0.5]), edge_labels([0.99, 0.9999])
        (['.143', '.5'], ['.99', '.9999'])
    """
    for digits in range(3, 17):
        labels = [number(edge, digits=digits) for edge in edges]
        if len({"0", *labels, "1"}) == len(labels) + 2:
            return labels
    return [repr(edge) for edge in edges]


def percent_labels(edges: Sequence[float]) -> list[str]:
    """The same edges in percent, without the sign.

    Example:
        >>> percent_labels([1 / 7, 0.5]), percent_labels([0.99, 0.9999])
        (['14.3', '50'], ['99', '99.99'])
    """
    return [f"{100 * float(label):.12g}" for label in edge_labels(edges)]


def interval_labels(ends: Sequence[str]) -> list[str]:
    """Labels of the intervals between consecutive ends.

    Example:
        >>> interval_labels(["0", ".5", "1"])
        ['0–.5', '.5–1']
    """
    return [f"{low}–{high}" for low, high in pairwise(ends)]


def score_title(second_class: str = "class 1") -> str:
    """Title of the score of a binary classifier.

    Example:
        >>> score_title("yes"), score_title()
        ('probability of class yes', 'probability of class 1')
    """
    return f"probability of class {second_class.removeprefix('class ')}"
