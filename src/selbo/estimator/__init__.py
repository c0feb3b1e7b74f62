"""The scikit-learn interface: `SummaryClassifier` and `BeliefCalibrator`. The only extra dependency is scikit-learn."""

try:
    import sklearn as _  # noqa: F401  (only whether it is there)
except ImportError:
    raise ModuleNotFoundError(
        "SummaryClassifier and BeliefCalibrator need the package scikit-learn: pip install 'selbo[sklearn]'"
    ) from None

from selbo.estimator.belief_calibrator import BeliefCalibrator
from selbo.estimator.classifier import Statement, SummaryClassifier, Uncertainty
from selbo.estimator.selection import GroupScorer, GroupSplit

__all__ = ["BeliefCalibrator", "GroupScorer", "GroupSplit", "Statement", "SummaryClassifier", "Uncertainty"]
