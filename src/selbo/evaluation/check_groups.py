"""Belief checks per group: tests whether labels or predictions contradict the stated class fractions of groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo import _checks
from selbo._numerics import FloatArray
from selbo.metrics.inputs import Array, class_numbers, log_probs_table, on_host
from selbo.summary.counts import COUNT_VARIANCE
from selbo.summary.grouped import GroupedSummary, per_group

GROUP_SIGNIFICANCE: Final = 0.01
"""Largest probability of contradicting any of the groups if all statements are correct."""

JEFFREYS_COUNT: Final = 0.5
"""Jeffreys' pseudo-observations per class: a stated fraction of zero is uncertain too."""

COVERAGE: Final = 0.95


@dataclass(frozen=True)
class GroupCheck:
    """Result of checking the stated class fractions of one group.

    Attributes:
        group: Name of the group, or its number if groups have no names.
        claimed: Stated fraction of each class.
        claimed_interval: 95 % interval of each, from the concentration of the group.
        observed: Fractions of the labels, or mean predicted probabilities.
        observed_interval: 95 % interval of each: for labels, of the probability that they are a sample of; for
            predictions, of the fraction among these examples if the predictions are calibrated.
        num_examples: Number of labels or predictions.
        p_value: Probability of a deviation at least as large in any of the groups if all statements are correct: Holm's
            correction for the number of groups, and Bonferroni's for that of the classes.
        by_labels: Whether labels were used; otherwise predictions.
        level: The statement is contradicted if the p-value is below this.
    """

    group: Any
    claimed: tuple[float, ...]
    claimed_interval: tuple[tuple[float, float], ...]
    observed: tuple[float, ...]
    observed_interval: tuple[tuple[float, float], ...]
    num_examples: int
    p_value: float
    by_labels: bool
    level: float = GROUP_SIGNIFICANCE

    @property
    def contradicted(self) -> bool:
        """Whether the p-value is below the level."""
        return self.p_value < self.level

    def __str__(self) -> str:
        found = "contradicted" if self.contradicted else "not contradicted"
        what, verb = ("labels", "found") if self.by_labels else ("predictions", "predicted")
        stated, observed = (" ".join(f"{each:.3f}" for each in values) for values in (self.claimed, self.observed))
        return (
            f"group {self.group!r}: {found} by {self.num_examples} {what} (stated {stated}, {verb} {observed}; "
            f"p = {self.p_value:.2g})"
        )


def check_groups(
    summary: GroupedSummary,
    groups: Array,
    *,
    labels: Array | None = None,
    log_probs: Array | None = None,
    sizes: Sequence[float] | Tensor | None = None,
    level: float = GROUP_SIGNIFICANCE,
) -> tuple[GroupCheck, ...]:
    r"""Check which groups contradict their stated class fractions, by labels or by predictions.

    A stated fraction $f$ with concentration $\alpha$ is uncertain, with a variance of about $f (1 - f) / (\alpha + 1)$,
    and only a deviation beyond that counts. The probability that *any* group is contradicted if all statements are
    correct is at most ``level``.

    - **Labels** of a random sample of each group: the number of labels of a class has a beta-binomial distribution with
      the parameters $\alpha f + 1/2$ and $\alpha (1 - f) + 1/2$. The p-value is twice the smaller tail, and exact.
    - **Predictions**: the number of members of a class is a sum of labels sampled from the predictions, as in
      ``GroupedSummary(form="counts")``, and the p-value is that of a Gaussian deviation. A contradiction means that
      the fractions are wrong *or that the network does not explain the group*: people with the same inputs may differ
      from group to group. Use predictions for examples that were not used in training. The uncertainty of the network
      about its weights does not count.

    Args:
        summary: The stated fractions; its partition must be `ClassRegions`.
        groups: Group of each example, shape (B,); -1 for none.
        labels: Classes of the examples, shape (B,); -1 for unlabelled examples, which are left out.
        log_probs: Log-probabilities of the examples, shape (B, K), instead of labels.
        sizes: Number of members of each group, shape (G,), if the examples are a part of them; for predictions.
        level: Largest probability of contradicting any correct statement.

    Returns:
        One result per group that has examples, in the order of the groups.

    Example:
        >>> import torch, selbo
        >>> towns = selbo.GroupedSummary(
        ...     selbo.ClassRegions(2), {"a": [0.5, 0.5], "b": [0.9, 0.1]}, 200.0
        ... )
        >>> town = towns.index(["a"] * 100 + ["b"] * 100)
        >>> for result in check_groups(towns, town, labels=torch.arange(200) % 2):
        ...     print(result)
        group 'a': not contradicted by 100 labels (stated 0.500 0.500, found 0.500 0.500; p = 1)
        group 'b': contradicted by 100 labels (stated 0.900 0.100, found 0.500 0.500; p = 1.3e-13)
    """
    if not isinstance(summary, GroupedSummary):
        raise ValueError(f"`summary` must be a selbo.GroupedSummary, but got {type(summary).__name__}")
    classes = summary.partition.num_classes
    if summary.partition.num_regions != classes:
        raise ValueError(
            f"`summary` must state class fractions, with selbo.ClassRegions, but has {summary.partition.num_regions} "
            f"regions for {classes} classes"
        )
    if (labels is None) == (log_probs is None):
        raise ValueError("`labels` or `log_probs` must be given, and not both")
    _checks.fraction("level", level, low=0.0, high=1.0)
    index = _whole_numbers(summary, groups)
    by_labels = labels is not None
    if labels is not None:
        numbers, unlabelled = _known_labels(labels, classes)
        rows = np.eye(classes)[numbers]
    else:
        assert log_probs is not None
        rows = log_probs_table(log_probs).double().exp().numpy()
        unlabelled = np.zeros(len(rows), dtype=bool)
    if rows.shape != (len(index), classes):
        raise ValueError(f"`groups` must hold one group per example, {len(rows)}, but holds {len(index)}")
    if index.max(initial=-1) >= summary.num_groups or index.min(initial=0) < -1:
        raise ValueError(f"`groups` must be from 0 to {summary.num_groups - 1}, or -1 for none, but others are given")
    known = (index >= 0) & ~unlabelled
    counts = np.bincount(index[known], minlength=summary.num_groups)
    here = np.flatnonzero(counts)
    sums, squares = (_sums(index[known], each[known], summary.num_groups)[here] for each in (rows, rows * rows))
    size = counts[here].astype(np.float64)[:, None]
    members = None if sizes is None else per_group("sizes", sizes, summary.group_names, summary.num_groups, zero=True)
    total = size if members is None else np.maximum(members.numpy()[here, None], size)
    stated = summary.s0.double().cpu().numpy()[here]
    strength = summary.concentration.double().cpu().numpy()[here, None]
    examined = _Examined(sums, size, total, stated, strength)
    found, intervals = _by_labels(examined) if by_labels else _by_predictions(examined, squares)
    p_values = _holm(np.minimum(1.0, found * (1 if classes == 2 else classes)))  # of two classes, one is free
    own = _beta_interval(strength * stated, strength * (1 - stated))
    names = range(summary.num_groups) if summary.group_names is None else summary.group_names
    return tuple(
        GroupCheck(
            group=names[group],
            claimed=tuple(stated[k].tolist()),
            claimed_interval=_pairs(own[:, k]),
            observed=tuple((sums[k] / size[k]).tolist()),
            observed_interval=_pairs(intervals[:, k]),
            num_examples=int(counts[group]),
            p_value=float(p_values[k]),
            by_labels=by_labels,
            level=level,
        )
        for k, group in enumerate(here.tolist())
    )


def _whole_numbers(summary: GroupedSummary, groups: Array) -> NDArray[np.int64]:
    """Group of each example, shape (B,)."""
    given = groups if isinstance(groups, Tensor) else None
    if given is None and np.asarray(groups).dtype.kind not in "OSTU" and hasattr(groups, "__array__"):
        given = on_host("groups", groups)
    if given is None or given.dtype == torch.bool or given.is_floating_point() or given.ndim != 1:
        dtype = getattr(groups, "dtype", type(groups).__name__)
        came = dtype if given is None or given.ndim == 1 else f"shape {tuple(given.shape)}"
        raise ValueError(
            f"`groups` must hold groups as whole numbers, shape (B,), but got {came}{summary.index_hint(groups)}"
        )
    return given.detach().cpu().long().numpy()


def _known_labels(labels: Array, classes: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Class of each example, shape (B,), and which are unlabelled; these have a class of 0."""
    given = on_host("labels", labels)
    unlabelled = given == -1
    if bool(unlabelled.all()) and given.numel():
        raise ValueError(f"`labels` must hold the class of some example, but all {given.numel()} are -1")
    return class_numbers(torch.where(unlabelled, 0, given), classes), unlabelled.numpy()


class _Examined(NamedTuple):
    """Groups with examples: sums of labels or probabilities, (G, K), stated fractions, (G, K), and sizes, (G, 1)."""

    sums: FloatArray
    size: FloatArray
    total: FloatArray
    stated: FloatArray
    strength: FloatArray


def _by_labels(examined: _Examined) -> tuple[FloatArray, FloatArray]:
    """Smallest p-value of a class for each group, (G,), and intervals of all fractions, (2, G, K)."""
    counts, size, _, stated, strength = examined
    yes, no = strength * stated + JEFFREYS_COUNT, strength * (1 - stated) + JEFFREYS_COUNT
    tested = 1 if counts.shape[1] == 2 else counts.shape[1]  # for two classes, one test suffices
    p_values = [
        min(_beta_binomial_p_value(counts[k, j], size[k, 0], yes[k, j], no[k, j]) for j in range(tested))
        for k in range(len(size))
    ]
    return np.array(p_values), _beta_interval(counts, size - counts)


def _beta_binomial_p_value(count: float, size: float, yes: float, no: float) -> float:
    """Twice the smaller tail of ``count`` of ``size``."""
    from scipy.special import betaln, gammaln

    each = np.arange(round(size) + 1.0)
    ways = gammaln(size + 1) - gammaln(each + 1) - gammaln(size - each + 1)
    probs = np.exp(ways + betaln(each + yes, size - each + no) - betaln(yes, no))
    at = round(count)
    return float(min(1.0, 2 * min(probs[: at + 1].sum(), probs[at:].sum())))


def _by_predictions(examined: _Examined, squares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same from sums of probabilities and of their squares: Gaussian deviations of counts."""
    from scipy.special import ndtr, ndtri

    sums, size, total, stated, strength = examined
    among_these = np.maximum(sums - squares, 0.0)
    # Which members these are counts like sampling labels: their spread as these few show it would be too small.
    of_fractions = size**2 / (strength + 1) + size * (total - size) / np.maximum(total - 1, 1.0)
    std = np.sqrt(among_these + stated * (1 - stated) * of_fractions + COUNT_VARIANCE)
    p_values = 2 * ndtr(-abs(size * stated - sums) / std)
    half = ndtri((1 + COVERAGE) / 2) * np.sqrt(among_these)
    return p_values.min(1), np.clip([(sums - half) / size, (sums + half) / size], 0.0, 1.0)


def _beta_interval(yes: FloatArray, no: FloatArray) -> FloatArray:
    """Equal-tailed Jeffreys interval of a fraction, (2, ...), from numbers of cases for and against."""
    from scipy.special import betaincinv

    ends = (1 - COVERAGE) / 2, (1 + COVERAGE) / 2
    low, high = (betaincinv(yes + JEFFREYS_COUNT, no + JEFFREYS_COUNT, end) for end in ends)
    return np.stack([np.where(yes > 0, low, 0.0), np.where(no > 0, high, 1.0)])


def _holm(p_values: FloatArray) -> FloatArray:
    """P-values corrected for their number by Holm's method."""
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(factors * p_values[order]))
    return corrected


def _sums(index: NDArray[np.int64], rows: FloatArray, count: int) -> FloatArray:
    """Sums of rows by group: (B,), (B, K) -> (G, K)."""
    return np.stack([np.bincount(index, column, minlength=count) for column in rows.T], 1)


def _pairs(ends: FloatArray) -> tuple[tuple[float, float], ...]:
    return tuple((float(low), float(high)) for low, high in ends.T)
