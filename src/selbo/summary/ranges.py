"""What the regions of a partition tell of confidence and of the predicted class: bounds, where they leave it open."""

from itertools import pairwise
from typing import Final

import numpy as np

from selbo.summary._dirichlet import Array
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

SAME_EDGE: Final = 1e-9
"""Edges that differ by less are one: 1 - 0.9 is not 0.1 to the last digit."""


def confidence_ranges(partition: Partition) -> Array:
    """Smallest and largest value of the largest probability in each region, shape (R, 2)."""
    if isinstance(partition, ScoreBins):
        edges = np.array([0.0, *partition.edges.values, 1.0])
        left, right = edges[:-1], edges[1:]
        nearest = np.clip(0.5, left, right)
        return np.stack([np.maximum(nearest, 1 - nearest), np.maximum(1 - left, right)], -1)
    chance = 1 / partition.num_classes
    if isinstance(partition, ConfidenceBins):
        edges = np.array([chance, *partition.edges.values, 1.0])
        return np.stack([edges[:-1], edges[1:]], -1)
    if isinstance(partition, CornerShells):
        edges = np.array([*partition.edges.values, 1.0])
        shells = np.stack([edges[:-1], edges[1:]], -1)[::-1].repeat(partition.num_classes, axis=0)
        return np.vstack([shells, [[chance, edges[0]]]])
    return np.tile([chance, 1.0], (partition.num_regions, 1))


def accuracy_range(partition: Partition, masses: Array) -> tuple[float, float]:
    """Between which accuracies a calibrated classifier with this histogram must lie."""
    low, high = masses @ confidence_ranges(partition)
    return float(low), float(high)


def mean_ranges(partition: Partition, masses: Array) -> Array | None:
    """Between which values the mean probability of each class must lie, shape (K, 2); None if that is not asked."""
    if isinstance(partition, ClassRegions):
        return np.stack([masses, masses], -1)
    if isinstance(partition, ScoreBins):
        edges = np.array([0.0, *partition.edges.values, 1.0])
        low, high = float(masses @ edges[:-1]), float(masses @ edges[1:])
        return np.array([[1 - high, 1 - low], [low, high]])
    return None


def predicted_class(partition: Partition) -> list[int | None]:
    """Class that is predicted in each region, or None where it may be several."""
    if isinstance(partition, ScoreBins):
        ends = pairwise([0.0, *partition.edges.values, 1.0])
        return [0 if high <= 0.5 + SAME_EDGE else 1 if low >= 0.5 - SAME_EDGE else None for low, high in ends]
    if isinstance(partition, CornerShells):
        return [*list(range(partition.num_classes)) * len(partition.edges.values), None]
    if isinstance(partition, ClassRegions):
        return list(range(partition.num_classes))
    return [None] * partition.num_regions


def class_ranges(partition: Partition, masses: Array) -> Array:
    """Smallest and largest share of predictions of each class that the histogram allows, shape (K, 2)."""
    owners = list(zip(masses.tolist(), predicted_class(partition), strict=True))
    least = np.array([sum(mass for mass, k in owners if k == each) for each in range(partition.num_classes)])
    undecided = sum(mass for mass, k in owners if k is None)
    return np.stack([least, least + undecided], -1)
