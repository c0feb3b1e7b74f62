"""All metrics of predictions in one dictionary that can be written as JSON."""

from typing import Any

from torch import Tensor

from selbo import metrics
from selbo.metrics.inputs import Array, labels_of, log_probs_table, probs_table


def evaluate(
    probs: Array | None, labels: Array, *, log_probs: Array | None = None, num_bins: int = 10
) -> dict[str, Any]:
    """Scores and calibration errors of class predictions.

    Rows must lie on the simplex: no probability below 0, and a sum that differs from 1 by no more than 1e-6 in
    float64, 1e-4 in float32, 0.02 in float16, 0.1 in bfloat16. They are used as they are, not normalised.

    The entries of the result:

    - ``nll``: mean negative log-probability of the labels, in nats. Nothing is clamped: a label of probability exactly
      0 makes it ``inf``, which Python writes as ``Infinity`` in JSON.
    - ``accuracy``: fraction of examples whose most probable class is the label.
    - ``ece``, ``adaptive_ece``: calibration error of the predicted class, in bins of equal width and of equal mass.
    - ``classwise_ece``: mean calibration error of the probabilities of all classes.
    - ``brier``: squared error summed over classes, mean over examples; from 0 to 2.
    - ``auroc``: of class 1 if K = 2, else one-versus-rest, mean over the classes in the labels; None if there is one.
    - ``f1_micro``, ``f1_macro``: the first is the accuracy; the second counts every class in the labels the same.
    - ``recall``: a list, one number per class; None for classes not in the labels.
    - ``num_examples``: B.

    Args:
        probs: Probabilities, shape (B, K), K >= 2; a binary score is column 1. None if ``log_probs`` is given.
        labels: Classes, shape (B,), whole numbers from 0 to K - 1.
        log_probs: Logarithms of probabilities, instead of ``probs``; not logits. Probabilities that would round to 0 or
            1 keep their logarithm and their order, so the NLL stays finite and exact.
        num_bins: Number of bins of the calibration errors.

    Returns:
        Python numbers by name, ready for JSON.

    Raises:
        ValueError: If something is empty, NaN, off the simplex, out of range or of the wrong shape.

    Example:
        >>> import torch
        >>> probs = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.5, 0.4, 0.1]])
        >>> result = evaluate(probs, torch.tensor([0, 2, 1]))
        >>> result["accuracy"], result["nll"], result["recall"]
        (0.6667, 0.5946, [1.0, 0.0, 1.0])
    """
    if (probs is None) == (log_probs is None):
        came = "neither" if probs is None else "both"
        raise ValueError(f"one of `probs` and `log_probs` must be given, but got {came}")
    if log_probs is not None:
        scores = log_probs_table(log_probs)
        rows = scores.double().exp()
    else:
        assert probs is not None
        scores = rows = probs_table(probs)
    classes = labels_of(labels, rows)
    log_loss = metrics.nll if log_probs is None else metrics.nll_from_log_probs
    return {
        "nll": log_loss(scores, classes, validate=False),
        **_of_order(scores, classes),
        **_of_values(rows, classes, num_bins),
        "num_examples": len(rows),
    }


def evaluate_ood(in_scores: Array, out_scores: Array) -> dict[str, float]:
    """How well an uncertainty score separates out-of-distribution (OOD) inputs from in-distribution ones.

    The entries of the result:

    - ``entropy_difference``: mean of ``out_scores`` minus mean of ``in_scores``, in nats if they are entropies.
    - ``auroc``: probability that an OOD input has a larger score than an in-distribution one; ties count one half.
    - ``aupr_out``, ``aupr_in``: average precision of detecting OOD inputs, and of detecting in-distribution inputs.
    - ``fpr95``: fraction of OOD inputs accepted at a threshold that accepts at least 95 % of in-distribution inputs.

    Args:
        in_scores: Uncertainty of in-distribution inputs, shape (B,); larger is more uncertain. The paper uses the
            entropy of the prediction.
        out_scores: Uncertainty of OOD inputs by the same score, shape (C,).

    Returns:
        Python numbers by name, ready for JSON.

    Raises:
        ValueError: If a vector is empty, of the wrong shape or not finite.

    Example:
        >>> import torch
        >>> result = evaluate_ood(torch.tensor([0.1, 0.3]), torch.tensor([0.2, 0.3, 1.0]))
        >>> result["entropy_difference"], result["auroc"]
        (0.3, 0.75)
    """
    return {
        "entropy_difference": metrics.mean_difference(in_scores, out_scores),
        "auroc": metrics.ood_auroc(in_scores, out_scores),
        "aupr_out": metrics.aupr(in_scores, out_scores, positive="out"),
        "aupr_in": metrics.aupr(in_scores, out_scores, positive="in"),
        "fpr95": metrics.fpr_at_tpr(in_scores, out_scores, tpr=0.95),
    }


def _of_order(scores: Tensor, classes: Tensor) -> dict[str, Any]:
    return {
        "accuracy": metrics.accuracy(scores, classes, validate=False),
        "auroc": metrics.auroc(scores, classes, validate=False),
        "f1_micro": metrics.f1_micro(scores, classes, validate=False),
        "f1_macro": metrics.f1_macro(scores, classes, validate=False),
        "recall": metrics.recall(scores, classes, validate=False),
    }


def _of_values(probs: Tensor, classes: Tensor, num_bins: int) -> dict[str, float]:
    return {
        "brier": metrics.brier(probs, classes, validate=False),
        "ece": metrics.ece(probs, classes, num_bins=num_bins, validate=False),
        "adaptive_ece": metrics.adaptive_ece(probs, classes, num_bins=num_bins, validate=False),
        "classwise_ece": metrics.classwise_ece(probs, classes, num_bins=num_bins, validate=False),
    }
