"""The scikit-learn interface: `SummaryClassifier` and `BeliefCalibrator`. The only extra dependency is scikit-learn."""

from selbo.estimator.belief_calibrator import BeliefCalibrator
from selbo.estimator.classifier import Statement, SummaryClassifier, Uncertainty

__all__ = ["BeliefCalibrator", "Statement", "SummaryClassifier", "Uncertainty"]
