"""Confusion counts, and recall and precision of each class with their intervals."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from selbo.metrics.inputs import Array, as_class_labels, scores_table

NORMAL_QUANTILE: Final = 1.959963984540054
"""Half width of a 95 % interval of the normal distribution, in standard deviations."""

Interval = tuple[float, float]


class ClassScores(NamedTuple):
    """How well one class is recognised.

    Attributes:
        rows: Examples of the class.
        predicted: Examples that are predicted as the class.
        correct: Examples of the class that are predicted as the class.
        recall: ``correct / rows``; None without rows.
        recall_interval: Its 95 % interval, by Wilson's method.
        precision: ``correct / predicted``; None if the class is never predicted.
        precision_interval: Its 95 % interval, by Wilson's method.
    """

    rows: int
    predicted: int
    correct: int
    recall: float | None
    recall_interval: Interval | None
    precision: float | None
    precision_interval: Interval | None


def wilson_interval(correct: int, of: int) -> Interval:
    """The 95 % interval of a proportion, by Wilson's method; it stays within 0 and 1 and is never empty.

    Args:
        correct: Number of successes.
        of: Number of trials, at least 1.

    Example:
        >>> wilson_interval(9, 10), wilson_interval(10, 10)
        ((0.5958, 0.9821), (0.7225, 1.0))
    """
    if not 0 <= correct <= of or of < 1:
        raise ValueError(f"`correct` must lie between 0 and `of`, which must be at least 1, but got {correct} of {of}")
    share, square = correct / of, NORMAL_QUANTILE**2
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = NORMAL_QUANTILE / (1 + square / of) * math.sqrt(share * (1 - share) / of + square / (4 * of**2))
    return max(0.0, middle - half) if correct else 0.0, min(1.0, middle + half) if correct < of else 1.0


def confusion(scores: Array, labels: Array, *, validate: bool = True) -> dict[tuple[int, int], int]:
    """Count how often each class is predicted as itself or as another.

    Args:
        scores: Probabilities, their logarithms or logits, shape (B, K).
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        Counts by label and predicted class, the most frequent pair first; pairs that do not occur are left out.

    Example:
        >>> import torch
        >>> confusion(torch.eye(3)[[0, 0, 0, 1]], torch.tensor([0, 0, 1, 1]))
        {(0, 0): 2, (1, 0): 1, (1, 1): 1}
    """
    rows = scores_table(scores, validate=validate)
    classes = as_class_labels(labels, rows, validate=validate)
    width = rows.shape[-1]
    pairs, counts = (classes * width + rows.argmax(-1)).unique(return_counts=True)
    found = sorted(zip(pairs.tolist(), counts.tolist(), strict=True), key=lambda each: (-each[1], each[0]))
    return {divmod(pair, width): count for pair, count in found}


def per_class(counts: Mapping[tuple[int, int], int], *, num_classes: int) -> list[ClassScores]:
    """Recall and precision of each class with their intervals, from `confusion`.

    Example:
        >>> no, yes = per_class({(0, 0): 8, (0, 1): 2}, num_classes=2)
        >>> no.recall, no.recall_interval, no.precision, yes.recall, yes.precision
        (0.8, (0.4902, 0.9433), 1.0, None, 0.0)
    """
    rows, predicted = [0] * num_classes, [0] * num_classes
    for (label, guess), count in counts.items():
        rows[label] += count
        predicted[guess] += count
    hits = [counts.get((k, k), 0) for k in range(num_classes)]
    return [
        ClassScores(rows[k], predicted[k], hits[k], *_share(hits[k], rows[k]), *_share(hits[k], predicted[k]))
        for k in range(num_classes)
    ]


def _share(hits: int, of: int) -> tuple[float, Interval] | tuple[None, None]:
    return (hits / of, wilson_interval(hits, of)) if of else (None, None)
