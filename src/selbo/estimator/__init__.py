"""The scikit-learn interface: `SummaryClassifier`. The only extra dependency is scikit-learn."""

from selbo.estimator.classifier import Statement, SummaryClassifier, Uncertainty

__all__ = ["Statement", "SummaryClassifier", "Uncertainty"]
