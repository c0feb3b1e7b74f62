"""Do foreign inputs look different: how well a score of uncertainty tells them from those the network was made for.

Two vectors of scores come in, of inputs from the distribution of the training data (in) and from elsewhere (out). A
larger score means more uncertain: entropy, mutual information, or one minus the largest probability.
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
    """Mean score of the foreign inputs less that of the others; with entropies, the paper's entropy difference.

    It has the unit of the scores: a network that doubles all its entropies doubles it. The other numbers of this
    module look only at the order.

    Args:
        in_scores: Uncertainty of inputs from the training distribution, shape (B,).
        out_scores: Uncertainty of foreign inputs, shape (C,).

    Returns:
        Positive if foreign inputs are less certain.

    Example:
        >>> mean_difference(torch.tensor([0.1, 0.3]), torch.tensor([0.5, 0.6, 1.0]))
        0.5
    """
    inside, outside = _both(in_scores, out_scores)
    return (outside.mean() - inside.mean()).item()


def ood_auroc(in_scores: Array, out_scores: Array) -> float:
    """Chance that a foreign input is less certain than one from the training distribution; ties count one half.

    Args:
        in_scores: Uncertainty of inputs from the training distribution, shape (B,).
        out_scores: Uncertainty of foreign inputs, shape (C,).

    Returns:
        Between 0 and 1, one half for scores that say nothing.

    Example:
        >>> # 4 pairs and 1/2 of 6
        >>> ood_auroc(torch.tensor([0.1, 0.3]), torch.tensor([0.2, 0.3, 1.0]))
        0.75
    """
    inside, outside = _both(in_scores, out_scores)
    return binary_auroc(outside, inside)


def aupr(in_scores: Array, out_scores: Array, *, positive: str) -> float:
    """Area under the precision-recall curve, as average precision: the curve is a staircase, not interpolated.

    Unlike the AUROC it depends on how many inputs of each kind there are: scores that say nothing reach the fraction
    of positives.

    Args:
        in_scores: Uncertainty of inputs from the training distribution, shape (B,).
        out_scores: Uncertainty of foreign inputs, shape (C,).
        positive: Which inputs are to be found: ``"out"``, by large scores, or ``"in"``, by small ones.

    Returns:
        Between 0 and 1.

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
    """Fraction of foreign inputs that pass when 95 % of the others do (FPR95); smaller is better.

    Positives are the inputs from the training distribution, as is usual. An input passes if its score is at most a
    threshold: the smallest at which at least the fraction ``tpr`` of them does. Equal scores pass together.

    Args:
        in_scores: Uncertainty of inputs from the training distribution, shape (B,).
        out_scores: Uncertainty of foreign inputs, shape (C,).
        tpr: True positive rate that the threshold must reach; strictly between 0 and 1.

    Returns:
        Between 0 and 1.

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
    """Mean over the positives of the precision at their score: how many of those that score as high are positive."""
    highest = positives.sort().values
    found = len(positives) - torch.searchsorted(highest, positives, right=False)  # positives at least as high
    raised = len(negatives) - torch.searchsorted(negatives.sort().values, positives, right=False)
    return (found / (found + raised).double()).mean().item()
