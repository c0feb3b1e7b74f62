"""Sentences that describe a stated belief."""

from typing import Final

import numpy as np

from selbo._numerics import FloatArray
from selbo.elicit.charts import confidence_masses
from selbo.elicit.state import State, read_aloud
from selbo.summary._dirichlet import largest_entry
from selbo.summary.beliefs import Belief
from selbo.summary.description import accuracy_range, class_ranges, tells_class, tells_confidence
from selbo.summary.partitions import Partition

SURE: Final = 0.95
OPEN: Final = 0.6
"""Confidence above which a case is called clear, and below which it is called open."""

MOST_LISTED: Final = 4
"""Maximum number of classes whose shares are all listed."""


def claim_sentences(
    state: State, partition: Partition, belief: Belief, s0: FloatArray, interval: tuple[FloatArray, FloatArray]
) -> list[str]:
    """Sentences on confidence, classes, accuracy, regions and prior strength, the most telling one first."""
    parameters = belief.dirichlet(state.classes)
    said = _of_density(state, parameters) if parameters is not None else _of_histogram(state, partition, s0)
    if tells_class(partition) and not tells_confidence(partition):
        said.append("Only the predicted class counts: how sure a prediction is will not matter.")
    elif tells_confidence(partition) and not tells_class(partition):
        said.append("Only confidence counts: which class is predicted will not matter.")
    labels = read_aloud(state, partition)
    most, least = int(np.argmax(s0)), int(np.argmin(s0))
    if s0[most] - s0[least] > 1e-9:
        said.append(
            f"The largest share of the predictions, {share(s0[most])}, falls on “{labels[most]}”, and the smallest, "
            f"{share(s0[least])}, on “{labels[least]}”."
        )
    low, high = interval
    said.append(
        f"{_of_strength(state)}, “{labels[most]}” has between {share(low[most])} and {share(high[most])} of the "
        "predictions, nine times in ten."
    )
    return said


def _of_strength(state: State) -> str:
    strength = amount(state.strength)
    if state.concentration is None and state.num_labels is None:
        return (
            f"Your numbers count as much as your labelled examples, and at most as {strength} of them. With {strength}"
        )
    return f"If you are as sure as after {strength} cases"


def amount(value: float) -> str:
    r"""A number, with spaces that do not break between its thousands.

    Example:
        >>> amount(300), amount(0.5), amount(1234567)
        ('300', '0.5', '1\xa0234\xa0567')
    """
    return (f"{value:,.0f}" if value == round(value) else f"{value:,.6g}").replace(",", "\N{NO-BREAK SPACE}")


def share(value: float) -> str:
    """A share in whole percent, with more digits where they matter.

    Example:
        >>> share(0.6234), share(0.0834), share(0.0001), share(0.9993)
        ('62 %', '8.3 %', 'less than 0.1 %', '99.9 %')
    """
    percent = 100 * value
    if percent < 0.1:
        return "less than 0.1 %" if percent > 0 else "0 %"
    if percent > 99.95:
        return "more than 99.9 %" if percent < 100 else "100 %"
    return f"{percent:.1f} %" if percent < 9.95 or percent > 99 else f"{percent:.0f} %"


def _of_density(state: State, parameters: FloatArray) -> list[str]:
    open_share, _, sure = confidence_masses(parameters, (OPEN, SURE))
    entry = largest_entry(parameters)
    return [
        f"About {share(sure)} of cases are predicted with more than {100 * SURE:g} % confidence, and "
        f"{share(open_share)} are left open, with no class above {100 * OPEN:g} %.",
        _of_classes(state, np.stack([entry.probabilities] * 2, -1)),
        f"If the probabilities can be trusted, such a classifier is right in {share(entry.expected)} of cases.",
    ]


def _of_histogram(state: State, partition: Partition, s0: FloatArray) -> list[str]:
    said = []
    ranges = partition.confidence_bounds()
    top = ranges[:, 0].max()
    if top > 1 / state.classes:
        sure = float(s0[ranges[:, 0] == top].sum())
        said.append(f"About {share(sure)} of cases are predicted with more than {100 * top:.4g} % confidence.")
    counted = state.basis == "scores"
    if counted and state.predicted:
        said.append(_of_classes(state, np.stack([state.predicted] * 2, -1)))
    elif tells_class(partition):
        said.append(_of_classes(state, class_ranges(partition, s0)))
    if counted and state.claimed:
        said.append(
            f"If the probabilities can be trusted, the earlier model is right in {share(state.claimed)} of cases."
        )
    elif tells_confidence(partition):
        low, high = accuracy_range(partition, s0)
        said.append(
            f"If the probabilities can be trusted, such a classifier is right in {share(low)} to {share(high)} "
            "of cases."
        )
    if counted:
        said.append(f"This is what {amount(state.rows)} predictions of the earlier model look like.")
    return said


def _of_classes(state: State, ranges: FloatArray) -> str:
    """How often each class is predicted; ``ranges`` has the least and the largest share, shape (K, 2)."""
    shown = [
        share(low) if high - low < 5e-4 else f"{share(low).removesuffix(' %')} to {share(high)}" for low, high in ranges
    ]
    if state.classes <= MOST_LISTED:
        parts = [f"“{name}” in {text}" for name, text in zip(state.labels, shown, strict=True)]
        return f"It predicts {', '.join(parts[:-1])} and {parts[-1]} of cases."
    order = np.argsort(ranges[:, 0], kind="stable")
    if ranges[order[-1], 0] - ranges[order[0], 0] < 5e-4:
        return f"It predicts each of the {state.classes} classes in {shown[0]} of cases."
    most, least = int(order[-1]), int(order[0])
    return (
        f"It predicts “{state.labels[most]}” most often, in {shown[most]} of cases, and “{state.labels[least]}” least "
        f"often, in {shown[least]}."
    )
