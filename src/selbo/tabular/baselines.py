"""Simple baselines on the test rows of a table, so that a user sees whether the model was worth it."""

import math
import warnings
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from selbo.evaluation import evaluate
from selbo.metrics.classwise import wilson_interval
from selbo.objectives import LabelShift
from selbo.random import derive
from selbo.results import MethodResult

FREQUENCIES: Final = "class frequencies"
LOGISTIC: Final = "logistic regression"
CORRECTED: Final = "logistic, prior correction"

MOST_LOGISTIC_ROWS: Final = 20_000
"""Maximum number of training rows of the logistic regression, a random part if there are more."""

LOGISTIC_ITERATIONS: Final = 300

SHOWN_METRICS: Final = ("nll", "accuracy", "ece", "brier", "auroc")

ERRORS_OF_95: Final = 1.959964
"""Half width of a 95 % interval, in standard errors."""


def compare_methods(log_probs: Mapping[str, Tensor], labels: Tensor) -> tuple[MethodResult, ...]:
    """Results of several methods on the same rows, with 95 % intervals; differences are to the first method.

    Args:
        log_probs: Log-probabilities of each method, shape (rows, K).
        labels: Classes, shape (rows,).
    """
    found, first = [], None
    for name, each in log_probs.items():
        losses = -each.double().gather(1, labels[:, None]).squeeze(1)
        first = losses if first is None else first
        right = int((each.argmax(1) == labels).sum())
        metrics = evaluate(None, labels, log_probs=each)
        nll = _interval(losses)
        difference = None if losses is first else losses - first
        found.append(
            MethodResult(
                name=name,
                metrics={key: _finite_or_none(metrics[key]) for key in SHOWN_METRICS},
                intervals={"nll": nll, "accuracy": wilson_interval(right, len(labels))},
                nll_difference=None if difference is None else difference.mean().item(),
                nll_difference_interval=None if difference is None else _interval(difference),
            )
        )
    return tuple(found)


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _interval(values: Tensor) -> tuple[float, float] | None:
    """Normal 95 % interval of a mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, error = values.mean().item(), values.std().item() / math.sqrt(len(values))
    return mean - ERRORS_OF_95 * error, mean + ERRORS_OF_95 * error


def baseline_log_probs(
    train: tuple[Tensor, Tensor], test: Tensor, *, num_classes: int, class_fractions: Any, seed: int
) -> dict[str, Tensor]:
    """Log-probabilities of the baselines for test rows.

    Args:
        train: Inputs and classes of the labelled training rows.
        test: Inputs of the test rows.
        num_classes: K.
        class_fractions: Stated class fractions of the test rows, shape (K,), for the prior correction; or None.
        seed: Seed for the choice of training rows.
    """
    inputs, labels = train
    counts = torch.bincount(labels, minlength=num_classes).double()
    shares = (counts + 1 / num_classes) / (counts.sum() + 1)  # no class is impossible
    found = {}
    if len(labels.unique()) > 1:
        found[LOGISTIC] = _logistic(inputs, labels, test, shares=shares, seed=seed)
        if class_fractions is not None and min(class_fractions) > 0:
            shift = LabelShift(shares.tolist(), list(class_fractions))
            found[CORRECTED] = shift.to_target(found[LOGISTIC])
    found[FREQUENCIES] = shares.log().expand(len(test), -1)
    return found


def _logistic(inputs: Tensor, labels: Tensor, test: Tensor, *, shares: Tensor, seed: int) -> Tensor:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(labels) > MOST_LOGISTIC_ROWS:
        generator = torch.Generator().manual_seed(derive(seed, "baselines"))
        chosen = torch.randperm(len(labels), generator=generator)[:MOST_LOGISTIC_ROWS]
        inputs, labels = inputs[chosen], labels[chosen]
    model = LogisticRegression(max_iter=LOGISTIC_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(inputs.numpy(), labels.numpy())
    log_probs = shares.log().expand(len(test), -1).clone()  # of classes without a chosen row
    with np.errstate(divide="ignore"):
        known = torch.from_numpy(model.predict_log_proba(test.numpy()))
    log_probs[:, torch.from_numpy(model.classes_)] = known
    return log_probs.log_softmax(1)
