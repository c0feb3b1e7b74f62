r"""Decisions from predictions: when not to answer, sets of classes that hold the right one, and the cheapest action.

Guarantees come in two kinds. With labels they hold for any classifier, as long as labelled and new cases are
exchangeable. Without labels they hold if the probabilities are calibrated, as `selbo.calibrate_to_belief` makes them
where what was stated is true.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo import _checks
from selbo.metrics.inputs import Array, as_class_labels, on_host, probs_table
from selbo.metrics.selective import rank_by_confidence


@dataclass(frozen=True)
class Abstention:
    """A rule for answering: answer where the largest probability is at least the threshold. Call it with probabilities.

    Attributes:
        threshold: Smallest confidence that is answered; infinite if no case may be answered.
        coverage: Share of the cases that it was fitted on that are answered.
        risk: Error among those answers: counted with labels, expected by the probabilities without. NaN if there are
            none.
        max_risk: The requested risk.
        confidence: Probability that the risk is kept, over labelled samples; None without labels, where it is kept if
            the probabilities are calibrated.
    """

    threshold: float
    coverage: float
    risk: float
    max_risk: float
    confidence: float | None

    def __call__(self, probs: Array) -> Tensor:
        """Which cases to answer: (B, K) -> (B,), booleans."""
        return probs_table(probs).double().amax(-1) >= self.threshold


def abstain(probs: Array, *, max_risk: float, labels: Array | None = None, delta: float = 0.05) -> Abstention:
    r"""Find out when to answer, so that at most a share of the answers is wrong.

    With labels the risk is kept with probability $1 - \delta$ over samples of labelled cases: thresholds are tested
    from the highest down, each by the exact binomial test of $\text{risk} > r$ at the level $\delta$, up to the first
    that is not rejected (Angelopoulos et al., *Learn then test*, 2021; Geifman and El-Yaniv, 2017). That assumes that
    less confident answers are not more often right. Without labels the expected risk by the probabilities themselves
    is kept, and as many cases as possible are answered.

    Args:
        probs: Probabilities, shape (B, K), of cases that the classifier was not trained on.
        max_risk: r, largest share of wrong answers.
        labels: Classes, shape (B,), if they are known.
        delta: Probability that the risk is not kept, over labelled samples.

    Example:
        >>> probs = torch.tensor([[0.99, 0.01], [0.1, 0.9], [0.7, 0.3], [0.55, 0.45]])
        >>> rule = abstain(probs, max_risk=0.1)
        >>> round(rule.threshold, 2), rule.coverage, round(rule.risk, 3)
        (0.9, 0.5, 0.055)
        >>> rule(probs)
        tensor([ True,  True, False, False])
    """
    rows = probs_table(probs).double()
    limit = _checks.fraction("max_risk", max_risk, low=0.0, high=1.0)
    level = _checks.fraction("delta", delta, low=0.0, high=1.0)
    confidence, order, last = rank_by_confidence(rows)
    counts = torch.arange(1, len(rows) + 1, dtype=torch.float64)
    if labels is None:
        risks = (1 - confidence).cumsum(0) / counts
        allowed = (risks <= limit) & last
        most = int(allowed.nonzero().max()) if bool(allowed.any()) else -1
    else:
        wrong = (rows.argmax(-1) != as_class_labels(labels, rows)).double()[order].cumsum(0)
        risks = wrong / counts
        most = _last_rejected(wrong.numpy(), counts.numpy(), last.numpy(), limit, level)
    found = most >= 0
    return Abstention(
        threshold=float(confidence[most]) if found else math.inf,
        coverage=(most + 1) / len(rows),
        risk=float(risks[most]) if found else math.nan,
        max_risk=limit,
        confidence=None if labels is None else 1 - level,
    )


def _last_rejected(
    wrong: NDArray[np.float64], counts: NDArray[np.float64], last: NDArray[np.bool_], limit: float, level: float
) -> int:
    """Index of the lowest threshold whose risk is shown to be kept, by tests in a fixed order; -1 if none is.

    The first test is where enough cases are answered that no error among them would show it.
    """
    from scipy.stats import binom

    fewest = math.log(level) / math.log1p(-limit)
    tested = np.flatnonzero(last & (counts >= fewest))
    kept = binom.cdf(wrong[tested], counts[tested], limit) <= level
    failed = np.flatnonzero(~kept)
    passed = tested if len(failed) == 0 else tested[: failed[0]]
    return int(passed[-1]) if len(passed) else -1


@dataclass(frozen=True)
class PredictionSets:
    """A rule for sets of classes: a class is in the set if its probability is at least its threshold.

    Call it with probabilities.

    Attributes:
        thresholds: Smallest probability of each class that is taken in; they differ only under label shift.
        coverage: Share of new cases whose set holds the right class, at least.
    """

    thresholds: tuple[float, ...]
    coverage: float

    def __call__(self, probs: Array) -> Tensor:
        """Which classes are in the set of each case: (B, K) -> (B, K), booleans."""
        rows = probs_table(probs).double()
        if rows.shape[1] != len(self.thresholds):
            raise ValueError(f"`probs` must have {len(self.thresholds)} classes, but got {rows.shape[1]}")
        return rows >= torch.tensor(self.thresholds, dtype=torch.float64)


def conformal_sets(
    probs: Array, labels: Array, *, alpha: float = 0.1, class_fractions: Sequence[float] | None = None
) -> PredictionSets:
    r"""Sets of classes that hold the right one for a share $1 - \alpha$ of new cases: split-conformal prediction.

    The score of a class is one minus its probability. Its threshold is the $\lceil (n+1)(1-\alpha) \rceil$-th smallest
    score of a label among $n$ labelled cases. This holds for new cases from the same distribution, for any
    classifier.

    Under **label shift** new cases have other, known class fractions $\pi'$. Then a labelled case of class $y$ has the
    weight $w_y = \pi'_y / \pi_y$, and the threshold of a class $k$ is the quantile of the weighted scores together with
    a score of infinity of weight $w_k$ (Podkopaev and Ramdas, 2021). $\pi$ is estimated by the labels, which is exact
    in the limit of many of them.

    Args:
        probs: Probabilities, shape (B, K), of labelled cases that the classifier was not trained on.
        labels: Their classes, shape (B,).
        alpha: Share of new cases whose set may miss the right class.
        class_fractions: Class fractions of the new cases, if they differ; every class that occurs there must have
            labels.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.8, 0.2], [0.6, 0.4]]).repeat(5, 1)
        >>> sets = conformal_sets(probs, torch.tensor([0, 1, 0, 1]).repeat(5), alpha=0.2)
        >>> sets(torch.tensor([[0.95, 0.05], [0.5, 0.5]]))
        tensor([[ True, False],
                [ True,  True]])
    """
    rows = probs_table(probs).double()
    classes = as_class_labels(labels, rows)
    count = rows.shape[1]
    share = 1 - _checks.fraction("alpha", alpha, low=0.0, high=1.0)
    weights = torch.ones(count, dtype=torch.float64)
    if class_fractions is not None:
        after = _checks.simplex("class_fractions", class_fractions)
        if len(after) != count:
            raise ValueError(f"`class_fractions` must hold {count} numbers, one per class, but got {len(after)}")
        before = torch.bincount(classes, minlength=count).double() / len(classes)
        if bool((before == 0).any()):
            missing = int((before == 0).nonzero()[0, 0])
            raise ValueError(
                f"`labels` must have cases of every class for label shift, but has none of class {missing}"
            )
        weights = torch.tensor(after, dtype=torch.float64) / before
    scores, order = (1 - rows.gather(1, classes[:, None])[:, 0]).sort()
    total = weights[classes[order]].cumsum(0)
    found = []
    for weight in weights:
        # relative slack for sums of weights that are whole numbers in theory
        place = int(torch.searchsorted(total, share * (total[-1] + weight) * (1 - 1e-12)))
        found.append(1 - float(scores[place]) if place < len(scores) else -math.inf)
    # rounding of 1 - (1 - p) must not exclude p itself
    return PredictionSets(tuple(each - 1e-12 for each in found), share)


def best_actions(probs: Array, costs: Array) -> Tensor:
    """The action of least expected cost for each case, given calibrated probabilities.

    Args:
        probs: Probabilities, shape (B, K).
        costs: Cost of each action for each true class, shape (K, A). A column of equal numbers is the cost of not
            answering.

    Returns:
        Actions, shape (B,).

    Example:
        >>> probs = torch.tensor([[0.95, 0.05], [0.8, 0.2], [0.3, 0.7]])
        >>> costs = torch.tensor(
        ...     [[0.0, 1.0, 0.2], [10.0, 0.0, 0.2]]
        ... )  # healthy or ill: send home, treat, test
        >>> best_actions(probs, costs)
        tensor([2, 2, 2])
    """
    rows, table = probs_table(probs).double(), on_host("costs", costs).double()
    if table.ndim != 2 or table.shape[0] != rows.shape[1] or table.shape[1] < 1:
        raise ValueError(f"`costs` must have shape ({rows.shape[1]}, actions), but got {tuple(table.shape)}")
    if not bool(table.isfinite().all()):
        raise ValueError("`costs` must be finite, but some are not")
    return (rows @ table).argmin(-1)
