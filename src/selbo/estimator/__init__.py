"""The scikit-learn face: `SummaryClassifier`, with scikit-learn as its one extra package."""

from selbo.estimator.classifier import Statement, SummaryClassifier, Uncertainty

__all__ = ["Statement", "SummaryClassifier", "Uncertainty"]
