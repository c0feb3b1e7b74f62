r"""Calibration: reliability in bins, and calibration errors.

All errors are of the $l_1$ kind: over the bins $m$ of a partition of the confidences,

$$\mathrm{ECE} = \sum_m \frac{n_m}{n} \, | \mathrm{accuracy}_m - \mathrm{confidence}_m | .$$

**Edges.** Bins are closed on the right: confidence $c$ is in bin $m$ of $M$ if $(m - 1)/M < c \le m/M$. A confidence of
exactly 1 is in the last bin and one of exactly 0 in the first. Edges are rounded to the precision of the probabilities,
so that 0.3 lies in the third of ten bins in float32 as in float64. torchmetrics 0.7, used for the paper, closes bins on
the right too; release 1.9 closes them on the left and puts a confidence of exactly 1 in a separate bin.

**Bias.** A calibrated classifier has an error of 0 only in the limit of many examples, because accuracies vary at
random around confidences. The expected error is up to $\sqrt{M v / n}$ in $M$ fixed bins, where $v$ is the mean of
$c (1 - c)$. Compare errors at the same number of examples.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from selbo import _checks
from selbo.metrics.inputs import Array, as_class_labels, probs_table


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy per bin: the numbers of a reliability diagram.

    Attributes:
        edges: Ends of the bins, increasing, M + 1 numbers; a bin includes its right end but not its left, except for
            the first, which includes both.
        counts: Number of examples in each bin.
        confidences: Mean confidence in each bin; None for an empty bin.
        accuracies: Fraction of correct predictions in each bin; None for an empty bin.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    confidences: tuple[float | None, ...]
    accuracies: tuple[float | None, ...]

    @property
    def gaps(self) -> tuple[float | None, ...]:
        """Accuracy minus confidence in each bin, negative if predictions are overconfident; None for an empty bin."""
        pairs = zip(self.accuracies, self.confidences, strict=True)
        return tuple(None if a is None or c is None else a - c for a, c in pairs)

    @property
    def ece(self) -> float:
        """Mean over the examples of the absolute gap of their bin."""
        weighted = (n * abs(gap) for n, gap in zip(self.counts, self.gaps, strict=True) if gap is not None)
        return sum(weighted) / sum(self.counts)


def reliability(probs: Array, labels: Array, *, num_bins: int = 10, validate: bool = True) -> Reliability:
    """Confidence and accuracy of the predicted class, in bins of equal width from 0 to 1.

    Args:
        probs: Probabilities, shape (B, K), rows on the simplex.
        labels: Classes, shape (B,).
        num_bins: Number of bins, M.
        validate: Also validate values, not only shapes and types.

    Returns:
        Edges, counts, mean confidences and accuracies.

    Example:
        >>> diagram = reliability(
        ...     torch.tensor([[0.1, 0.9], [0.3, 0.7], [0.2, 0.8]]),
        ...     torch.tensor([1, 0, 1]),
        ...     num_bins=4,
        ... )
        >>> diagram.counts, diagram.accuracies
        ((0, 0, 1, 2), (None, None, 0.0, 1.0))
    """
    confidences, hits, dtype = _top_label(probs, labels, validate)
    interior = _equal_edges(num_bins, dtype)
    counts, confidence_sums, hit_sums = _sums(confidences, hits, torch.bucketize(confidences, interior), num_bins)
    return Reliability(
        edges=(0.0, *interior.tolist(), 1.0),
        counts=tuple(int(n) for n in counts),
        confidences=_means(confidence_sums, counts),
        accuracies=_means(hit_sums, counts),
    )


def ece(probs: Array, labels: Array, *, num_bins: int = 10, validate: bool = True) -> float:
    """Expected calibration error of the predicted class, in bins of equal width; smaller is better.

    The default of ten bins is that of the paper.

    Args:
        probs: Probabilities, shape (B, K), rows on the simplex.
        labels: Classes, shape (B,).
        num_bins: Number of bins, M.
        validate: Also validate values, not only shapes and types.

    Returns:
        The error, between 0 and 1.

    Example:
        >>> # (.1 + .7 + .2) / 3
        >>> ece(torch.tensor([[0.1, 0.9], [0.3, 0.7], [0.2, 0.8]]), torch.tensor([1, 0, 1]))
        0.3333
    """
    confidences, hits, dtype = _top_label(probs, labels, validate)
    return _error(confidences, hits, torch.bucketize(confidences, _equal_edges(num_bins, dtype)), num_bins)


def adaptive_ece(probs: Array, labels: Array, *, num_bins: int = 10, validate: bool = True) -> float:
    """Expected calibration error of the predicted class, in bins with equal numbers of examples; smaller is better.

    Most confidences of a good classifier fall in the last bin of equal width; bins of equal mass resolve it. Bin m ends
    at the confidence of rank ceil(m n / M). Equal confidences share a bin, so the error does not depend on the order of
    the examples. There are fewer than M bins if confidences are equal or if there are fewer than M examples.

    Args:
        probs: Probabilities, shape (B, K), rows on the simplex.
        labels: Classes, shape (B,).
        num_bins: Number of bins, M, if confidences differ.
        validate: Also validate values, not only shapes and types.

    Returns:
        The error, between 0 and 1.

    Example:
        >>> probs = torch.tensor([[0.02, 0.98], [0.04, 0.96], [0.08, 0.92], [0.06, 0.94]])
        >>> adaptive_ece(probs, torch.tensor([1, 1, 0, 0]), num_bins=2)  # (.03 + .93) / 2
        0.48
        >>> ece(probs, torch.tensor([1, 1, 0, 0]), num_bins=10)  # one bin holds them all
        0.45
    """
    num_bins = _checks.whole("num_bins", num_bins, at_least=1)
    confidences, hits, _ = _top_label(probs, labels, validate)
    n = len(confidences)
    ranks = [(m * n + num_bins - 1) // num_bins for m in range(1, num_bins)]  # ceil(m n / M), at least 1
    interior = confidences.sort().values[torch.tensor(ranks, dtype=torch.long) - 1].unique()
    return _error(confidences, hits, torch.bucketize(confidences, interior), len(interior) + 1)


def classwise_ece(probs: Array, labels: Array, *, num_bins: int = 10, validate: bool = True) -> float:
    """Mean over all classes of the calibration error of "this example is of class k"; smaller is better.

    The probability of each class, not only of the predicted one, is compared with the frequency of the class, in bins
    of equal width. A class that is not in the labels also has an error: its mean probability, which should be 0.

    Most probabilities are small when there are many classes, and so is this mean.

    Args:
        probs: Probabilities, shape (B, K), rows on the simplex.
        labels: Classes, shape (B,).
        num_bins: Number of bins, M.
        validate: Also validate values, not only shapes and types.

    Returns:
        The error, between 0 and 1.

    Example:
        >>> # (.3 + .2 + .1) / 3
        >>> classwise_ece(torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([0]))
        0.2
    """
    rows = probs_table(probs, validate=validate)
    classes = as_class_labels(labels, rows, validate=validate)
    interior = _equal_edges(num_bins, rows.dtype)
    num_classes = rows.shape[1]
    values = rows.double().contiguous()  # torch warns of the columns of some classifiers of scikit-learn
    truth = torch.nn.functional.one_hot(classes, num_classes).double()
    bins = torch.bucketize(values, interior) + num_bins * torch.arange(num_classes)
    return _error(values.flatten(), truth.flatten(), bins.flatten(), num_bins * num_classes)


def _top_label(probs: Array, labels: Array, validate: bool) -> tuple[Tensor, Tensor, torch.dtype]:
    """Confidence and correctness of each predicted class, float64, and the type of the given probabilities."""
    rows = probs_table(probs, validate=validate)
    confidences, guesses = rows.max(-1)
    hits = guesses == as_class_labels(labels, rows, validate=validate)
    return confidences.double(), hits.double(), rows.dtype


def _equal_edges(num_bins: int, dtype: torch.dtype) -> Tensor:
    """Interior edges m/M, rounded to a type and stored in float64: shape (M - 1,)."""
    num_bins = _checks.whole("num_bins", num_bins, at_least=1)
    # a division, because the steps of linspace add up to 0.30000000000000004
    return (torch.arange(1, num_bins, dtype=torch.float64) / num_bins).to(dtype).double()


def _sums(confidences: Tensor, hits: Tensor, bins: Tensor, num_bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Number of examples, sum of confidences and number of correct predictions per bin: three times (M,), float64."""
    weights = (torch.ones_like(confidences), confidences, hits)
    counts, confidence_sums, hit_sums = (torch.bincount(bins, weights=w, minlength=num_bins) for w in weights)
    return counts, confidence_sums, hit_sums


def _error(confidences: Tensor, hits: Tensor, bins: Tensor, num_bins: int) -> float:
    """Sum over bins of |accuracy - confidence| n_m / n, in which n_m cancels."""
    _, confidence_sums, hit_sums = _sums(confidences, hits, bins, num_bins)
    return (hit_sums - confidence_sums).abs().sum().item() / len(confidences)


def _means(sums: Tensor, counts: Tensor) -> tuple[float | None, ...]:
    return tuple((total / n).item() if n > 0 else None for total, n in zip(sums, counts, strict=True))
