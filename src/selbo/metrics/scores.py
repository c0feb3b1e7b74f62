"""Scores of class predictions against labels: NLL, Brier score, accuracy, recall, F1 and AUROC.

All functions take a table with one row per example and one column per class, on any device, and return Python numbers
computed in double precision. Functions that depend only on the order of the values take ``scores``: probabilities,
their logarithms or logits. Functions that depend on the values take ``probs``. Values are not inspected to guess which
one was given. A class that is not in the labels has no recall, no F1 score and no AUROC: it is left out of the means,
not counted as 0.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from selbo._numerics import result_dtype
from selbo.metrics.inputs import Array, as_class_labels, log_probs_table, probs_table, scores_table


def nll(probs: Array, labels: Array, *, validate: bool = True) -> float:
    """Mean negative log-probability of the labels, in nats; smaller is better.

    Nothing is clamped: one label of probability exactly 0 makes it infinite. Probabilities that are too small for
    their type underflow to 0; their logarithms do not, see `nll_from_log_probs`.

    Args:
        probs: Probabilities, shape (B, K), rows on the simplex.
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        The NLL, at least 0, possibly infinite.

    Example:
        >>> nll(torch.tensor([[0.5, 0.5], [0.25, 0.75]]), torch.tensor([0, 0]))  # log 2 and log 4
        1.0397
    """
    rows = probs_table(probs, validate=validate)
    return _mean_negative_log(rows.double().log(), as_class_labels(labels, rows, validate=validate))


def nll_from_log_probs(log_probs: Array, labels: Array, *, validate: bool = True) -> float:
    """Mean negative log-probability of the labels, in nats, from log-probabilities; smaller is better.

    Args:
        log_probs: Logarithms of probabilities, shape (B, K), rows on the simplex; not logits.
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        The NLL, at least 0; infinite only if a label has log-probability -inf.

    Example:
        >>> # exp(-2000) would be 0
        >>> nll_from_log_probs(torch.tensor([[0.0, -2000.0]]), torch.tensor([1]))
        2000.0
    """
    rows = log_probs_table(log_probs, validate=validate)
    return _mean_negative_log(rows.double(), as_class_labels(labels, rows, validate=validate))


def brier(probs: Array, labels: Array, *, validate: bool = True) -> float:
    """Brier score: squared error summed over the classes, mean over the examples; smaller is better.

    With two classes it is twice the value of the definition that counts only the error of class 1.

    Args:
        probs: Probabilities, shape (B, K), rows on the simplex.
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        The score, between 0 and 2.

    Example:
        >>> brier(torch.tensor([[0.2, 0.8], [0.5, 0.5]]), torch.tensor([1, 0]))  # 0.08 and 0.5
        0.29
    """
    rows = probs_table(probs, validate=validate)
    truth = torch.nn.functional.one_hot(as_class_labels(labels, rows, validate=validate), rows.shape[1])
    return (rows.double() - truth).square().sum(-1).mean().item()


def accuracy(scores: Array, labels: Array, *, validate: bool = True) -> float:
    """Fraction of examples whose largest score is that of the label; of equal scores, the first counts as the largest.

    Args:
        scores: Probabilities, their logarithms or logits, shape (B, K).
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        The score, between 0 and 1.

    Example:
        >>> accuracy(torch.tensor([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]]), torch.tensor([1, 1, 0]))
        0.6667
    """
    rows = scores_table(scores, validate=validate)
    return (rows.argmax(-1) == as_class_labels(labels, rows, validate=validate)).double().mean().item()


def recall(scores: Array, labels: Array, *, validate: bool = True) -> list[float | None]:
    """Fraction of each class that is predicted as that class.

    Args:
        scores: Probabilities, their logarithms or logits, shape (B, K).
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        K numbers; None for a class that is not in the labels.

    Example:
        >>> recall(torch.eye(3)[[0, 0, 1]], torch.tensor([0, 1, 1]))
        [1.0, 0.5, None]
    """
    hits, _, named = _counts(scores, labels, validate)
    return [(hit / of).item() if of > 0 else None for hit, of in zip(hits, named, strict=True)]


def f1_per_class(scores: Array, labels: Array, *, validate: bool = True) -> list[float | None]:
    """F1 score of each class: the harmonic mean of its precision and its recall.

    Args:
        scores: Probabilities, their logarithms or logits, shape (B, K).
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        K numbers: 0 for a class that is never predicted, None for one that is not in the labels.

    Example:
        >>> f1_per_class(torch.eye(3)[[0, 0, 1]], torch.tensor([0, 1, 1]))
        [0.6667, 0.6667, None]
    """
    hits, predicted, named = _counts(scores, labels, validate)
    f1 = 2 * hits / (predicted + named).clamp(min=1)
    return [value.item() if of > 0 else None for value, of in zip(f1, named, strict=True)]


def f1_macro(scores: Array, labels: Array, *, validate: bool = True) -> float:
    """Mean of the F1 scores of the classes in the labels; all classes have the same weight.

    Args:
        scores: Probabilities, their logarithms or logits, shape (B, K).
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        The score, between 0 and 1.

    Example:
        >>> # 6/7 and 0; class 2 is left out
        >>> f1_macro(torch.eye(3)[[0, 0, 0, 0]], torch.tensor([0, 0, 0, 1]))
        0.4286
    """
    present = [value for value in f1_per_class(scores, labels, validate=validate) if value is not None]
    return sum(present) / len(present)


def f1_micro(scores: Array, labels: Array, *, validate: bool = True) -> float:
    """F1 score of all decisions together. With one label per example it equals the accuracy.

    Every wrong prediction is a false positive of one class and a false negative of another, so precision, recall and
    accuracy are equal. It is provided because it is often reported as "F1". Rare classes have little influence; use
    `f1_macro` for them.

    Args:
        scores: Probabilities, their logarithms or logits, shape (B, K).
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        The score, between 0 and 1.

    Example:
        >>> f1_micro(torch.eye(3)[[0, 0, 0, 0]], torch.tensor([0, 0, 0, 1]))
        0.75
    """
    return accuracy(scores, labels, validate=validate)


def auroc(scores: Array, labels: Array, *, validate: bool = True) -> float | None:
    """Area under the ROC curve: the probability that an example of a class has a higher score for it than another one.

    With two classes it is that of class 1. With more, each class in the labels is compared with all others by its
    column, and the areas are averaged with equal weights. Equal scores count one half.

    Args:
        scores: Probabilities or their logarithms, shape (B, K); only the order within a column matters.
        labels: Classes, shape (B,).
        validate: Also validate values, not only shapes and types.

    Returns:
        The AUROC, between 0 and 1; one half for guessing; None if all labels are the same.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
        >>> auroc(scores, torch.tensor([0, 0, 1, 1]))  # one of four pairs is in the wrong order
        0.75
    """
    rows = scores_table(scores, validate=validate)
    classes = as_class_labels(labels, rows, validate=validate)
    present = classes.unique().tolist()
    if len(present) < 2:
        return None
    if rows.shape[1] == 2:
        present = [1]
    columns = rows.to(result_dtype(rows)).T.contiguous().numpy()
    ordered = np.sort(columns, -1)  # five times faster than torch's sort
    areas = [_auroc_among(columns[k, (classes == k).numpy()], ordered[k]) for k in present]
    return sum(areas) / len(areas)


def binary_auroc(positives: Tensor, negatives: Tensor) -> float:
    """Fraction of pairs in which the positive has the larger score; equal scores count one half.

    Args:
        positives: Scores, shape (P,), at least one.
        negatives: Scores, shape (N,), at least one.

    Returns:
        The AUROC, between 0 and 1; exact except for the last division.

    Example:
        >>> # 3 pairs, and 1 + 1/2
        >>> binary_auroc(torch.tensor([3.0, 1.0]), torch.tensor([1.0, 0.0, 2.0]))
        0.75
    """
    ordered = positives.double().sort().values
    others = negatives.double()
    below = torch.searchsorted(ordered, others, right=False).sum()  # pairs whose positive is smaller
    up_to = torch.searchsorted(ordered, others, right=True).sum()  # smaller or equal
    pairs = len(ordered) * len(others)
    return (2 * pairs - int(below) - int(up_to)) / (2 * pairs)


def _auroc_among(positives: npt.NDArray[Any], ordered: npt.NDArray[Any]) -> float:
    """`binary_auroc` from the sorted scores of all examples, positives included; searches only for the positives.

    Twice the number of pairs that a positive wins, with ties counting once, is the number of scores below each positive
    plus the number of scores up to it, minus P² for the positives themselves.
    """
    queries = np.sort(positives)
    counted = sum(int(np.searchsorted(ordered, queries, side).sum()) for side in ("left", "right"))
    count = len(positives)
    return (counted - count**2) / (2 * count * (len(ordered) - count))


def _mean_negative_log(log_probs: Tensor, classes: Tensor) -> float:
    return 0.0 - log_probs.gather(1, classes[:, None]).mean().item()  # a difference, because -(0.0) prints as -0.0


def _counts(scores: Array, labels: Array, validate: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers of correct predictions, predictions and labels of each class: three times (K,), float64."""
    rows = scores_table(scores, validate=validate)
    classes = as_class_labels(labels, rows, validate=validate)
    guesses = rows.argmax(-1)
    of_each = (classes[guesses == classes], guesses, classes)
    hits, predicted, named = (torch.bincount(c, minlength=rows.shape[1]).double() for c in of_each)
    return hits, predicted, named
