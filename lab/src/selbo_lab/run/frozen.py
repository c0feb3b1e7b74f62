"""Corrections of a frozen classifier in the target domain: by what is stated about it, or by labels."""

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from selbo import LabelShift, Prediction, calibrate_to_belief
from selbo.evaluation import (
    BeliefCalibration,
    bias_corrected_temperature,
    calibrate,
    correct_prior,
    estimate_by_regularised_confusion,
)
from selbo.random import generator_for
from selbo_lab.data.dataset import LabelledData
from selbo_lab.run.baselines import Correction
from selbo_lab.run.lascal import lascal_temperature
from selbo_lab.studies.run_spec import Recipe

LEAST_ERROR: Final = 0.001
"""Stated accuracies are at least so far from 0 and 1."""

CorrectedLogProbs = Callable[[Tensor], Tensor]


def frozen_correction(
    recipe: Recipe,
    *,
    fractions: tuple[float, ...],
    train: LabelledData,
    val: Prediction,
    val_labels: Tensor,
    pool: Prediction,
    pool_labels: Tensor,
    seed: int,
) -> CorrectedLogProbs:
    """Fit a correction; it maps log-probabilities of the classifier to corrected ones.

    Args:
        recipe: Which correction, what is stated, how many labels of the target domain are used.
        fractions: Stated class fractions of the target domain.
        train: What the classifier was trained on.
        val: Predictions for held-out cases of the source domain.
        val_labels: Their labels.
        pool: Predictions for the inputs of the target domain.
        pool_labels: Their labels, of which ``target_labels`` are used, and the accuracy that is stated: the share of
            right answers among all of them, plus ``accuracy_off``.
        seed: Seed of the choice of labels that are used.
    """
    rows = pool.log_probs
    if recipe.correction in {"belief", "batch"}:
        return _stated(recipe, rows, pool_labels, fractions)
    if recipe.correction in {"source-temperature", "lascal"}:
        if recipe.correction == "source-temperature":
            found = calibrate.temperature(val.log_probs, val_labels)
        else:
            how = Correction(
                "em-bcts", train=train, known=fractions, unlabelled=lambda: pool, val=val, val_labels=val_labels
            )
            found = lascal_temperature(rows, val.log_probs, val_labels, how(pool, lambda each: each).fractions)
        return lambda each: calibrate.scale(each, found)
    if recipe.correction == "rlls":
        before = LabelShift.from_labels(train.labels, fractions).before
        after = estimate_by_regularised_confusion(rows, val.log_probs, val_labels)
        scale = bias_corrected_temperature(val.log_probs, val_labels).scale
        return lambda each: correct_prior(scale(each), before, after)
    some = torch.randperm(len(rows), generator=generator_for(seed, "target labels"))[: recipe.target_labels]
    labelled = rows[some], pool_labels[some]
    if recipe.correction == "bcts":
        return bias_corrected_temperature(*labelled).scale
    if recipe.correction == "isotonic":
        return _isotonic(*labelled)
    temperature = calibrate.temperature(*labelled)
    return lambda each: calibrate.scale(each, temperature)


def _stated(recipe: Recipe, rows: Tensor, labels: Tensor, fractions: tuple[float, ...]) -> CorrectedLogProbs:
    """Calibrate to what is stated; labels are read for nothing but the accuracy that is stated."""
    count = rows.shape[-1]
    if recipe.correction == "batch":
        return calibrate_as_stated(rows, class_fractions=[1 / count] * count)
    accuracy = None
    if recipe.states_accuracy:
        right = (rows.argmax(-1) == labels).double().mean().item() + recipe.accuracy_off
        accuracy = min(max(right, 1 / count + LEAST_ERROR), 1 - LEAST_ERROR)
    try:
        return calibrate_as_stated(
            rows, accuracy=accuracy, class_fractions=fractions if recipe.states_fractions else None
        )
    except ValueError:  # the statements contradict each other and are refused: nothing is corrected
        return lambda each: each


def calibrate_as_stated(log_probs: Any, **statements: Any) -> BeliefCalibration:
    """`selbo.calibrate_to_belief` without its warnings: wrong statements are what some studies are about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return calibrate_to_belief(log_probs, **statements)


def _isotonic(log_probs: Tensor, labels: Tensor) -> CorrectedLogProbs:
    """One isotonic regression per class, normalised; half a case of the class is added at both ends."""
    from sklearn.isotonic import IsotonicRegression

    probs, hot = log_probs.double().exp().numpy(), np.eye(log_probs.shape[-1])[labels.numpy()]
    share, ends = hot.mean(0), np.array([0.0, 1.0])
    fitted = [
        IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(
            np.concatenate([probs[:, k], ends]),
            np.concatenate([hot[:, k], np.full(2, share[k])]),
            sample_weight=np.concatenate([np.ones(len(probs)), np.full(2, 0.5)]),
        )
        for k in range(probs.shape[1])
    ]

    def correct(each: Tensor) -> Tensor:
        found = np.stack([one.predict(p) for one, p in zip(fitted, each.double().exp().numpy().T, strict=True)], -1)
        found = found.clip(1e-3)
        return torch.from_numpy(np.log(found / found.sum(-1, keepdims=True))).to(each)

    return correct
