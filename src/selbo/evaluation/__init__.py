"""Predictions of a trained network, and their evaluation."""

from selbo.evaluation import calibrate, decide, label_shift
from selbo.evaluation.belief_calibration import (
    BeliefCalibration,
    GroupedCalibration,
    calibrate_groups,
    calibrate_in_parts,
    calibrate_to_belief,
)
from selbo.evaluation.calibrate import bias_corrected_temperature
from selbo.evaluation.check_belief import CheckResult, check_belief
from selbo.evaluation.check_groups import GroupCheck, check_groups
from selbo.evaluation.choose import BeliefChoice, choose_by_belief, choose_scale
from selbo.evaluation.evaluate import evaluate, evaluate_ood
from selbo.evaluation.label_shift import (
    correct_prior,
    estimate_by_confusion,
    estimate_by_em,
    estimate_by_regularised_confusion,
    estimate_fractions,
)
from selbo.evaluation.monitor import BeliefMonitor, MonitorState
from selbo.evaluation.predict import Prediction, at_temperature, mixture, predict

__all__ = [
    "BeliefCalibration",
    "BeliefChoice",
    "BeliefMonitor",
    "CheckResult",
    "GroupCheck",
    "GroupedCalibration",
    "MonitorState",
    "Prediction",
    "at_temperature",
    "bias_corrected_temperature",
    "calibrate",
    "calibrate_groups",
    "calibrate_in_parts",
    "calibrate_to_belief",
    "check_belief",
    "check_groups",
    "choose_by_belief",
    "choose_scale",
    "correct_prior",
    "decide",
    "estimate_by_confusion",
    "estimate_by_em",
    "estimate_by_regularised_confusion",
    "estimate_fractions",
    "evaluate",
    "evaluate_ood",
    "label_shift",
    "mixture",
    "predict",
]
