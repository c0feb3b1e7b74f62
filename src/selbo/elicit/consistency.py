"""Where what was stated does not agree with itself, or rules something out: warnings in whole sentences."""

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from selbo.elicit.pictures import parameters_of
from selbo.elicit.state import SMALLEST_DRAWN, State, labels_of
from selbo.summary.beliefs import Belief
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

Array = NDArray[np.float64]

ALMOST_NO_MASS: Final = 1e-3
"""A region with less is worth a warning: to the network it is nearly forbidden."""

NOTICEABLE: Final = 0.05
"""Difference of two shares that ought to be the same, from which on a user is told."""

ROUNDING: Final = 0.005
"""Difference that nobody means: half a percentage point."""

MOST_NAMED: Final = 3


def warnings_of(state: State, partition: Partition, belief: Belief, s0: Array) -> list[str]:
    """Everything that a user should think about once more."""
    found = [_below_guessing(state)]
    parameters = parameters_of(belief)
    if parameters is not None:
        found.append(_mean_against_fraction(state, parameters))
    else:
        found += [_accuracy_against_histogram(state, partition, s0), *_classes_against_histogram(state, partition, s0)]
    if state.source == "scores":
        found.append(_claimed_against_stated(state))
    if state.source == "draw" and state.heights and min(state.heights) < SMALLEST_DRAWN * max(state.heights):
        found.append(
            f"A bar drawn at zero counts as {100 * SMALLEST_DRAWN:g} % of the highest one: no region is impossible, "
            "and a network that puts a single prediction there would otherwise be ruled out."
        )
    found.append(_little_mass(state, partition, s0))
    return [text for text in found if text]


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


def accuracy_range(partition: Partition, s0: Array) -> tuple[float, float]:
    """Between which accuracies a calibrated classifier with this histogram must lie."""
    low, high = s0 @ confidence_ranges(partition)
    return float(low), float(high)


def predicted_class(partition: Partition) -> list[int | None]:
    """Class that is predicted in each region, or None where it may be several."""
    if isinstance(partition, ScoreBins):
        edges = [0.0, *partition.edges.values, 1.0]
        return [0 if high <= 0.5 else 1 if low >= 0.5 else None for low, high in pairwise(edges)]
    if isinstance(partition, CornerShells):
        return [*list(range(partition.num_classes)) * len(partition.edges.values), None]
    if isinstance(partition, ClassRegions):
        return list(range(partition.num_classes))
    return [None] * partition.num_regions


def class_ranges(partition: Partition, s0: Array) -> Array:
    """Smallest and largest share of predictions of each class that the histogram allows, shape (K, 2)."""
    owner = predicted_class(partition)
    least = np.array([sum(m for m, k in zip(s0, owner, strict=True) if k == c) for c in range(partition.num_classes)])
    open_mass = sum(mass for mass, k in zip(s0, owner, strict=True) if k is None)
    return np.stack([least, least + open_mass], -1)


def _below_guessing(state: State) -> str:
    likeliest = int(np.argmax(state.shares))
    share = state.shares[likeliest]
    if state.accuracy > share:
        return ""
    return (
        f"Always saying “{state.labels[likeliest]}” would be right in {100 * share:.3g} % of cases, which is no "
        f"less than the expected accuracy of {100 * state.accuracy:.3g} %: one of the two numbers cannot be meant."
    )


def _mean_against_fraction(state: State, parameters: Array) -> str:
    means = parameters / parameters.sum()
    gaps = np.abs(means - np.array(state.shares))
    worst = int(np.argmax(gaps))
    if gaps[worst] < NOTICEABLE:
        return ""
    name = state.labels[worst]
    return (
        f"“{name}” is predicted in {100 * state.shares[worst]:.3g} % of cases, as you said, but its mean "
        f"probability is {100 * means[worst]:.3g} %, which is how often an honest classifier would meet it: at this "
        "accuracy the shares of the predictions cannot be those of the classes."
    )


def _accuracy_against_histogram(state: State, partition: Partition, s0: Array) -> str:
    low, high = accuracy_range(partition, s0)
    if low - ROUNDING <= state.accuracy <= high + ROUNDING:
        return ""
    return (
        f"If its probabilities mean what they say, a classifier with this histogram is right in {100 * low:.3g} to "
        f"{100 * high:.3g} % of cases, but the expected accuracy is {100 * state.accuracy:.3g} %."
    )


def _classes_against_histogram(state: State, partition: Partition, s0: Array) -> list[str]:
    found = []
    for name, share, (low, high) in zip(state.labels, state.shares, class_ranges(partition, s0), strict=True):
        if share < low - NOTICEABLE or share > high + NOTICEABLE:
            between = f"{100 * low:.3g} %" if high - low < ROUNDING else f"{100 * low:.3g} to {100 * high:.3g} %"
            found.append(
                f"This histogram predicts “{name}” in {between} of cases, but its share is {100 * share:.3g} %."
            )
    if state.classes == 2:
        return found[1:]  # the other one says the same
    if len(found) > MOST_NAMED:
        found[MOST_NAMED - 1 :] = [f"The same holds for {len(found) - MOST_NAMED + 1} more classes."]
    return found


def _claimed_against_stated(state: State) -> str:
    if not state.claimed or abs(state.claimed - state.accuracy) < NOTICEABLE:
        return ""
    claimed, stated = f"{100 * state.claimed:.3g} %", f"{100 * state.accuracy:.3g} %"
    if state.claimed > state.accuracy:
        return (
            f"The earlier model claims to be right in {claimed} of cases, more than the {stated} that you expect: if "
            "it was over-confident, its scores teach the new model the same."
        )
    return f"The earlier model claims to be right in {claimed} of cases only, less than the {stated} that you expect."


def _little_mass(state: State, partition: Partition, s0: Array) -> str:
    empty = np.flatnonzero(s0 < ALMOST_NO_MASS)
    if not len(empty):
        return ""
    labels = labels_of(state, partition)
    order = empty[np.argsort(np.round(s0[empty], 12), kind="stable")]
    named = ", ".join(f"“{labels[r]}”" for r in order[:MOST_NAMED])
    more = f" and {len(empty) - MOST_NAMED} more" if len(empty) > MOST_NAMED else ""
    return (
        f"Almost no mass lies on {named}{more} (below {100 * ALMOST_NO_MASS:g} % each): this says that nearly no "
        "prediction may fall there. If you did not mean that, choose fewer or wider regions."
    )
