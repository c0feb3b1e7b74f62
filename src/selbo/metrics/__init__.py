"""Metrics of predictions: scores, calibration, uncertainty and out-of-distribution detection, as plain functions."""

from selbo.metrics.calibration import Reliability, adaptive_ece, classwise_ece, ece, reliability
from selbo.metrics.classwise import ClassScores, confusion, per_class, wilson_interval
from selbo.metrics.ood import aupr, fpr_at_tpr, mean_difference, ood_auroc
from selbo.metrics.scores import (
    accuracy,
    auroc,
    brier,
    f1_macro,
    f1_micro,
    f1_per_class,
    nll,
    nll_from_log_probs,
    recall,
)
from selbo.metrics.selective import aurc, risk_coverage
from selbo.metrics.uncertainty import (
    dirichlet_expected_entropy,
    dirichlet_mutual_information,
    entropy,
    expected_entropy,
    mutual_information,
)

__all__ = [
    "ClassScores",
    "Reliability",
    "accuracy",
    "adaptive_ece",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "classwise_ece",
    "confusion",
    "dirichlet_expected_entropy",
    "dirichlet_mutual_information",
    "ece",
    "entropy",
    "expected_entropy",
    "f1_macro",
    "f1_micro",
    "f1_per_class",
    "fpr_at_tpr",
    "mean_difference",
    "mutual_information",
    "nll",
    "nll_from_log_probs",
    "ood_auroc",
    "per_class",
    "recall",
    "reliability",
    "risk_coverage",
    "wilson_interval",
]
