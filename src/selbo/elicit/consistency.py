"""Warnings about statements that are inconsistent or rule something out, in whole sentences."""

from typing import Final

import numpy as np

from selbo._numerics import FloatArray
from selbo.elicit.captions import amount
from selbo.elicit.state import SMALLEST_DRAWN, State, read_aloud
from selbo.presets import below_guessing
from selbo.summary.beliefs import Belief
from selbo.summary.description import accuracy_range, class_ranges
from selbo.summary.partitions import Partition

ALMOST_NO_MASS: Final = 1e-3
"""A region with less mass causes a warning: predictions there are almost excluded."""

NOTICEABLE: Final = 0.05
"""Minimum difference between two shares that should agree for a warning."""

STATED_ROUNDING: Final = 0.005
"""Differences below half a percentage point are taken as rounding."""

MOST_NAMED: Final = 3


def find_warnings(state: State, partition: Partition, belief: Belief, s0: FloatArray) -> list[str]:
    """All warnings about a state."""
    found = [below_guessing(state.accuracy, state.shares, state.labels)]
    parameters = belief.dirichlet(state.classes)
    if parameters is not None:
        found.append(_mean_against_fraction(state, parameters))
    else:
        found += [_accuracy_against_histogram(state, partition, s0), *_classes_against_histogram(state, partition, s0)]
    if state.basis == "scores":
        found.append(_claimed_against_stated(state))
    if state.basis == "draw" and min(state.heights) < SMALLEST_DRAWN * max(state.heights):
        found.append(
            f"A bar drawn at zero counts as {100 * SMALLEST_DRAWN:g} % of the highest one: no region is impossible, "
            "and a network that puts a single prediction there would otherwise be ruled out."
        )
    found += [_little_mass(state, partition, s0), _strength_against_labels(state)]
    return [text for text in found if text]


def _mean_against_fraction(state: State, parameters: FloatArray) -> str:
    means = parameters / parameters.sum()
    gaps = np.abs(means - np.array(state.shares))
    # of two classes the gaps are equal but for rounding: the rarer one, where the gap is larger beside its share
    worst = min(range(len(gaps)), key=lambda k: (-round(float(gaps[k]), 9), state.shares[k]))
    if gaps[worst] < NOTICEABLE:
        return ""
    name = state.labels[worst]
    return (
        f"“{name}” is predicted in {100 * state.shares[worst]:.3g} % of cases, as you said, but would occur in "
        f"{100 * means[worst]:.3g} % (its mean probability): at this accuracy, a rare class is predicted less often "
        "than it occurs, and a frequent one more often."
    )


def _accuracy_against_histogram(state: State, partition: Partition, s0: FloatArray) -> str:
    if state.basis == "scores" and state.claimed:
        return ""  # known exactly
    low, high = accuracy_range(partition, s0)
    if low - STATED_ROUNDING <= state.accuracy <= high + STATED_ROUNDING:
        return ""
    return (
        f"If the probabilities can be trusted, a classifier with this histogram is right in {100 * low:.3g} to "
        f"{100 * high:.3g} % of cases, but the expected accuracy is {100 * state.accuracy:.3g} %."
    )


def _classes_against_histogram(state: State, partition: Partition, s0: FloatArray) -> list[str]:
    found = []
    exact = state.basis == "scores" and state.predicted
    ranges = np.stack([state.predicted] * 2, -1) if exact else class_ranges(partition, s0)
    for name, share, (low, high) in zip(state.labels, state.shares, ranges, strict=True):
        if share < low - NOTICEABLE or share > high + NOTICEABLE:
            between = f"{100 * low:.3g} %" if high - low < STATED_ROUNDING else f"{100 * low:.3g} to {100 * high:.3g} %"
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
            "it was overconfident, the new model learns to be so too."
        )
    return f"The earlier model claims to be right in {claimed} of cases only, less than the {stated} that you expect."


def _strength_against_labels(state: State) -> str:
    if not state.overrules_labels:
        return ""
    return (
        f"You are as sure as after {amount(state.strength)} cases, but have {amount(state.num_labels or 0)} labelled "
        "examples: your numbers would overrule the labels, and may swap classes."
    )


def _little_mass(state: State, partition: Partition, s0: FloatArray) -> str:
    empty = np.flatnonzero(s0 < ALMOST_NO_MASS)
    if not len(empty):
        return ""
    labels = read_aloud(state, partition)
    order = empty[np.argsort(np.round(s0[empty], 12), kind="stable")]
    named = ", ".join(f"“{labels[r]}”" for r in order[:MOST_NAMED])
    more = f" and {len(empty) - MOST_NAMED} more" if len(empty) > MOST_NAMED else ""
    return (
        f"Almost no prediction may fall on {named}{more} (below {100 * ALMOST_NO_MASS:g} % each). If you did not mean "
        "that, choose fewer or wider ranges under Advanced."
    )
