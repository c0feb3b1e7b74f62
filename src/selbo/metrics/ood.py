"""Out-of-distribution (OOD) detection: how well an uncertainty score separates OOD inputs from in-distribution ones.

All functions take two vectors of scores, of in-distribution inputs (in) and of OOD inputs (out). A larger score means
more uncertain: entropy, mutual information, or one minus the largest probability.
"""

import math
from typing import Final

import torch
from torch import Tensor

from selbo import _checks
from selbo.metrics.inputs import Array, vector
from selbo.metrics.scores import binary_auroc

SIDES: Final = ("in", "out")


def mean_difference(in_scores: Array, out_scores: Array) -> float:
    """Mean score of OOD inputs minus that of in-distribution ones; with entropies, the paper's entropy difference.

    It has the unit of the scores: doubling all entropies doubles it. The other metrics of this module depend only on
    the order of the scores.

    Args:
        in_scores: Uncertainty of in-distribution inputs, shape (B,).
        out_scores: Uncertainty of OOD inputs, shape (C,).

    Returns:
        The difference, positive if OOD inputs are more uncertain.

    Example:
        >>> mean_difference(torch.tensor([0.1, 0.3]), torch.tensor([0.5, 0.6, 1.0]))
        0.5
    """
    inside, outside = _both(in_scores, out_scores)
    return (outside.mean() - inside.mean()).item()


def ood_auroc(in_scores: Array, out_scores: Array) -> float:
    """Probability that an OOD input has a larger score than an in-distribution one; ties count one half.

    Args:
        in_scores: Uncertainty of in-distribution inputs, shape (B,).
        out_scores: Uncertainty of OOD inputs, shape (C,).

    Returns:
        The AUROC, between 0 and 1; one half for uninformative scores.

    Example:
        >>> # 4 pairs and 1/2 of 6
        >>> ood_auroc(torch.tensor([0.1, 0.3]), torch.tensor([0.2, 0.3, 1.0]))
        0.75
    """
    inside, outside = _both(in_scores, out_scores)
    return binary_auroc(outside, inside)


def aupr(in_scores: Array, out_scores: Array, *, positive: str) -> float:
    """Area under the precision-recall curve, computed as average precision, without interpolation.

    Unlike the AUROC, it depends on the number of inputs of each kind: uninformative scores reach the fraction of
    positives.

    Args:
        in_scores: Uncertainty of in-distribution inputs, shape (B,).
        out_scores: Uncertainty of OOD inputs, shape (C,).
        positive: Inputs to detect: ``"out"``, by large scores, or ``"in"``, by small ones.

    Returns:
        Average precision, between 0 and 1.

    Example:
        >>> # 1/2 + 1/2 * 2/3
        >>> aupr(torch.tensor([0.1, 0.3]), torch.tensor([0.2, 0.4]), positive="out")
        0.8333
    """
    inside, outside = _both(in_scores, out_scores)
    if _checks.one_of("positive", positive, SIDES) == "out":
        return _average_precision(outside, inside)
    return _average_precision(-inside, -outside)


def fpr_at_tpr(in_scores: Array, out_scores: Array, *, tpr: float = 0.95) -> float:
    """Fraction of OOD inputs accepted when 95 % of in-distribution inputs are (FPR95); smaller is better.

    Positives are the in-distribution inputs, as usual. An input is accepted if its score is at most the threshold,
    which is the smallest that accepts at least a fraction ``tpr`` of the positives.

    Args:
        in_scores: Uncertainty of in-distribution inputs, shape (B,).
        out_scores: Uncertainty of OOD inputs, shape (C,).
        tpr: True positive rate that the threshold must reach; strictly between 0 and 1.

    Returns:
        False positive rate, between 0 and 1.

    Example:
        >>> # up to 0.3
        >>> fpr_at_tpr(
        ...     torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.tensor([0.2, 0.4, 1.0]), tpr=0.75
        ... )
        0.3333
    """
    inside, outside = _both(in_scores, out_scores)
    rate = _checks.fraction("tpr", tpr, low=0.0, high=1.0)
    rank = math.ceil(round(rate * len(inside), 9))  # rounded, because 0.07 * 100 is 7.000000000000001
    threshold = inside.sort().values[max(rank, 1) - 1]
    return (outside <= threshold).double().mean().item()


def _both(in_scores: Array, out_scores: Array) -> tuple[Tensor, Tensor]:
    return vector("in_scores", in_scores), vector("out_scores", out_scores)


def _average_precision(positives: Tensor, negatives: Tensor) -> float:
    """Mean over the positives of the precision among all inputs that score at least as high."""
    highest = positives.sort().values
    found = len(positives) - torch.searchsorted(highest, positives, right=False)  # positives at least as high
    raised = len(negatives) - torch.searchsorted(negatives.sort().values, positives, right=False)
    return (found / (found + raised).double()).mean().item()
