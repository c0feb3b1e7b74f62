"""Doubts about groups before training: warnings if too little can be learned from them, each with a number."""

from typing import Final

import numpy as np
import torch
from torch import Tensor

from selbo._numerics import FloatArray
from selbo.estimator.group_intake import are_no_counts
from selbo.estimator.rows import GroupRows
from selbo.random import derive
from selbo.summary.contrast import NEVER, group_contrast

HARDLY_DIFFERENT: Final = 0.5
"""Fractions hardly differ if their standard deviation between groups is less than so many of their own. Those of random
groups whose members were counted have a ratio of one, which is enough to learn from."""

FEWEST_RELATED: Final = 20
"""Smallest number of groups for a test whether inputs are related to fractions."""

PERMUTATIONS: Final = 199
UNRELATED: Final = 0.3
"""Number of permutations of that test, and the p-value above which inputs count as unrelated."""


def doubt_groups(rows: GroupRows, *, alone: bool) -> list[str]:
    """Warnings about groups, one sentence each.

    Args:
        rows: All rows, with inputs.
        alone: Whether there are no labels.
    """
    fractions, strength = rows.fractions.numpy(), rows.concentration.numpy()
    found = [hardly_different(fractions, strength), too_precise(rows)]
    if alone and not found[0]:
        found += [unclear_directions(fractions, strength), unrelated_inputs(rows)]
    return [each for each in found if each]


def hardly_different(fractions: FloatArray, concentration: FloatArray) -> str:
    """Warning if fractions differ too little between groups to learn from them; otherwise an empty string.

    Args:
        fractions: Shape (G, K).
        concentration: Shape (G,).

    Example:
        >>> hardly_different(np.array([[0.5, 0.5], [0.51, 0.49]]), np.array([100.0, 100.0]))[:80]
        'the stated fractions hardly differ between groups, by a standard deviation of 0.'
        >>> hardly_different(np.array([[0.5, 0.5], [0.8, 0.2]]), np.array([100.0, 100.0]))
        ''
    """
    found = group_contrast(fractions, concentration)
    if found.ratios and found.ratios[0] >= HARDLY_DIFFERENT:
        return ""
    if found.between < NEVER:
        return (
            "the stated fractions are the same in all groups, so nothing can be learned from them about the class of "
            "individuals"
        )
    return (
        f"the stated fractions hardly differ between groups, by a standard deviation of {100 * found.between:.2g} "
        f"points at a stated precision of {100 * found.precision:.2g} points, so nothing can be learned "
        "from them about the class of individuals"
    )


def unclear_directions(fractions: FloatArray, concentration: FloatArray) -> str:
    """Warning if the fractions of more than two classes differ between groups in too few directions."""
    ratios = group_contrast(fractions, concentration).ratios
    clear = sum(each >= HARDLY_DIFFERENT for each in ratios)
    if clear == len(ratios):
        return ""
    return (
        f"the stated fractions of {len(ratios) + 1} classes differ between groups in {clear} of {len(ratios)} "
        f"directions (in the next by {ratios[clear]:.2g} of their stated precision), so some classes cannot be told "
        "apart by them"
    )


def too_precise(rows: GroupRows) -> str:
    """Warning if fractions are stated more precisely than they can be true of the rows of a group.

    If the rows are a sample of what the fractions describe, their own fractions vary as much as their number says. If
    the rows themselves were counted, any concentration is right, and fractions are whole numbers of rows.
    """
    sizes = rows.sizes
    if sizes is None:
        sizes = torch.bincount(rows.groups[rows.groups >= 0], minlength=len(rows.names)).double()
    wrong = are_no_counts(rows.fractions, sizes, or_unknown=True) & (rows.concentration > sizes)
    if rows.weights is not None or not bool(wrong.any()):
        return ""
    first = int(wrong.nonzero()[0, 0])
    of = f"{int(wrong.sum())} of {len(rows.names)} groups" if len(rows.names) > 1 else "a group"
    return (
        f"the fractions of {of} may be stated more precisely than their rows can be, such as {rows.names[first]!r}: "
        f"{100 * float(rows.fractions[first].max()):.4g} % of {int(sizes[first])} rows is no whole number, at a "
        f"concentration of {float(rows.concentration[first]):g}; if they describe more cases than these rows, which "
        "are then a sample, state a `group_concentration` of at most the number of rows, or 'auto' to estimate it"
    )


def unrelated_inputs(rows: GroupRows) -> str:
    """Warning if the mean inputs of groups are not related to their fractions beyond chance.

    A permutation test: the covariance between groups of mean inputs, and of mean squared inputs, with fractions,
    against the same with fractions of other groups.
    """
    here = torch.bincount(rows.groups[rows.groups >= 0], minlength=len(rows.names)) > 0
    if int(here.sum()) < FEWEST_RELATED:
        return ""
    features = _group_means(rows)[here].numpy()
    fractions = rows.fractions[here].numpy()
    features, fractions = features - features.mean(0), fractions - fractions.mean(0)
    std = features.std(0)
    features = features[:, std > 0] / std[std > 0]
    generator = np.random.default_rng(derive(0, "related inputs"))

    def related(order: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> float:
        return float(np.square(features.T @ fractions[order]).sum())

    same = np.arange(len(fractions))
    observed = related(same)
    by_chance = [related(generator.permutation(same)) for _ in range(PERMUTATIONS)]
    p_value = (1 + sum(each >= observed for each in by_chance)) / (1 + PERMUTATIONS)
    if p_value <= UNRELATED:
        return ""
    return (
        "the mean inputs of groups are not related to their stated fractions beyond chance "
        f"(p = {p_value:.2g}, {len(fractions)} groups), so little can be learned from them about "
        "the class of individuals"
    )


def _group_means(rows: GroupRows) -> Tensor:
    """Mean inputs and mean squared inputs of each group, shape (G, 2 features)."""
    known = rows.groups >= 0
    weights = torch.ones(len(rows.groups), dtype=torch.float64) if rows.weights is None else rows.weights
    inputs = rows.inputs[known].double()
    columns = torch.cat([inputs, inputs.square(), torch.ones(len(inputs), 1, dtype=torch.float64)], 1)
    sums = torch.zeros(len(rows.names), columns.shape[1], dtype=torch.float64)
    sums.index_add_(0, rows.groups[known], columns * weights[known, None])
    return sums[:, :-1] / sums[:, -1:].clamp(min=1e-300)
