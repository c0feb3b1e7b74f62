"""All metrics of predictions in one dictionary that can be written as JSON."""

import math
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from selbo import metrics
from selbo.metrics.classwise import Interval
from selbo.metrics.inputs import Array, as_class_labels, log_probs_table, probs_table, rows_by_group

INTERVAL_LEVEL: Final = 0.95
"""Probability of the intervals, as of `selbo.metrics.wilson_interval`."""

DEFAULT_BINS: Final = 10

ROWS_NAMED: Final = 5
"""Number of rows that a warning names."""


def evaluate(
    probs: Array | None,
    labels: Array,
    *,
    log_probs: Array | None = None,
    num_bins: int = DEFAULT_BINS,
    groups: Sequence[Hashable] | Array | None = None,
) -> dict[str, Any]:
    """Scores and calibration errors of class predictions.

    Rows must lie on the simplex: no probability below 0, and a sum that differs from 1 by no more than 1e-6 in
    float64, 1e-4 in float32, 0.02 in float16, 0.1 in bfloat16. They are used as they are, not normalised.

    The entries of the result:

    - ``nll``: mean negative log-probability of the labels, in nats. Nothing is clamped: a label of probability exactly
      0 makes it ``inf``, which Python writes as ``Infinity`` in JSON; a warning names such rows.
    - ``accuracy``: fraction of examples whose most probable class is the label.
    - ``ece``, ``adaptive_ece``: calibration error of the predicted class, in bins of equal width and of equal mass.
    - ``classwise_ece``: mean calibration error of the probabilities of all classes.
    - ``aurc``: area under the risk-coverage curve, the mean error rate when only the most confident examples are
      answered, over all shares of answers; smaller is better.
    - ``brier``: squared error summed over classes, mean over examples; from 0 to 2.
    - ``auroc``: of class 1 if K = 2, else one-versus-rest, mean over the classes in the labels; None if there is one.
    - ``f1_micro``, ``f1_macro``: the first is the accuracy; the second counts every class in the labels the same.
    - ``recall``: a list, one number per class; None for classes not in the labels.
    - ``num_examples``: B.

    With ``groups`` there are three more, and the last one has all entries but itself for each group:

    - ``overconfidence``: mean probability of the predicted classes minus accuracy.
    - ``intervals``: 95 % intervals of ``accuracy`` and ``overconfidence`` (Wilson), ``nll`` and ``brier`` (Student's
      t; None for a single example or an infinite value). Calibration errors have none: chance alone makes them larger
      in small groups.
    - ``groups``: a dictionary by group, in the order of their first examples. Of 20 groups that do not differ, one
      interval misses on average.

    Args:
        probs: Probabilities, shape (B, K), K >= 2; a binary score is column 1. None if ``log_probs`` is given.
        labels: Classes, shape (B,), whole numbers from 0 to K - 1.
        log_probs: Logarithms of probabilities, instead of ``probs``; not logits. Probabilities that would round to 0 or
            1 keep their logarithm and their order, so the NLL stays finite and exact.
        num_bins: Number of bins of the calibration errors.
        groups: Group of each example, such as a hospital, B of them.

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
        >>> north = evaluate(probs, torch.tensor([0, 2, 1]), groups=["N", "N", "S"])["groups"][
        ...     "N"
        ... ]
        >>> north["accuracy"], north["intervals"]["accuracy"]
        (1.0, (0.3424, 1.0))
    """
    every = _examples(probs, labels, log_probs)
    found = _evaluated(every, num_bins, groups)
    if text := _impossible_labels(every):
        warnings.warn(text, UserWarning, stacklevel=2)
    return found


def evaluate_log_probs(
    log_probs: Array, labels: Array, *, groups: Sequence[Hashable] | Array | None = None
) -> dict[str, Any]:
    """`evaluate` for records of results: without a warning about an infinite NLL."""
    return _evaluated(_examples(None, labels, log_probs), DEFAULT_BINS, groups)


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


@dataclass(frozen=True)
class _Examples:
    """Checked predictions and labels: scores as they were given, probabilities, and classes."""

    scores: Tensor
    probs: Tensor
    classes: Tensor
    are_logs: bool

    def __getitem__(self, rows: Tensor) -> "_Examples":
        return _Examples(self.scores[rows], self.probs[rows], self.classes[rows], self.are_logs)


def _examples(probs: Array | None, labels: Array, log_probs: Array | None) -> _Examples:
    if (probs is None) == (log_probs is None):
        came = "neither" if probs is None else "both"
        raise ValueError(f"one of `probs` and `log_probs` must be given, but got {came}")
    if log_probs is not None:
        scores = log_probs_table(log_probs)
        rows = scores.double().exp()
    else:
        assert probs is not None
        scores = rows = probs_table(probs)
    return _Examples(scores, rows, as_class_labels(labels, rows), are_logs=log_probs is not None)


def _evaluated(every: _Examples, num_bins: int, groups: Sequence[Hashable] | Array | None) -> dict[str, Any]:
    if groups is None:
        return _all_metrics(every, num_bins)
    each = {name: _in_detail(every[some], num_bins) for name, some in rows_by_group(groups, len(every.probs)).items()}
    return {**_in_detail(every, num_bins), "groups": each}


def _impossible_labels(examples: _Examples) -> str:
    """A sentence on rows whose label has probability 0, which make the NLL infinite; empty if there are none."""
    of_label = examples.scores.gather(1, examples.classes[:, None])[:, 0]
    found = (of_label == (-torch.inf if examples.are_logs else 0.0)).nonzero()[:, 0].tolist()
    if not found:
        return ""
    shown = ", ".join(map(str, found[:ROWS_NAMED])) + (", ..." if len(found) > ROWS_NAMED else "")
    verb, row = ("gives its", "row") if len(found) == 1 else ("give their", "rows")
    return (
        f"{len(found)} of {len(of_label)} rows {verb} label a probability of 0, so the NLL is infinite ({row} "
        f"{shown}): pass `log_probs` if they have rounded to 0, or raise zeros, as `selbo.calibrate_to_belief` does"
    )


def _all_metrics(examples: _Examples, num_bins: int) -> dict[str, Any]:
    log_loss = metrics.nll_from_log_probs if examples.are_logs else metrics.nll
    return {
        "nll": log_loss(examples.scores, examples.classes, validate=False),
        **_of_order(examples.scores, examples.classes),
        **_of_values(examples.probs, examples.classes, num_bins),
        "num_examples": len(examples.classes),
    }


def _in_detail(examples: _Examples, num_bins: int) -> dict[str, Any]:
    """All metrics with the overconfidence and intervals."""
    found, probs = _all_metrics(examples, num_bins), examples.probs.double()
    confidence = float(probs.amax(-1).mean())
    num_correct = int((examples.scores.argmax(-1) == examples.classes).sum())
    low, high = metrics.wilson_interval(num_correct, len(probs))
    of_label = examples.scores.double().gather(1, examples.classes[:, None])[:, 0]
    losses = -of_label if examples.are_logs else -of_label.log()
    squares = (probs - torch.nn.functional.one_hot(examples.classes, probs.shape[1])).square().sum(-1)
    intervals = {
        "accuracy": (low, high),
        "overconfidence": (confidence - high, confidence - low),
        "nll": _mean_interval(losses),
        "brier": _mean_interval(squares),
    }
    return {**found, "overconfidence": confidence - found["accuracy"], "intervals": intervals}


def _mean_interval(values: Tensor) -> Interval | None:
    """Interval of a mean by Student's t."""
    from scipy.special import stdtrit

    count = len(values)
    if count < 2 or not bool(values.isfinite().all()):
        return None
    half = float(stdtrit(count - 1, (1 + INTERVAL_LEVEL) / 2)) * float(values.std()) / math.sqrt(count)
    mean = float(values.mean())
    return mean - half, mean + half


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
        "aurc": metrics.aurc(probs, classes, validate=False),
    }
