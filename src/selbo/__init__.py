"""Neural classifiers that know what their predictions should look like: the Summary ELBO for PyTorch."""

from typing import TYPE_CHECKING, Any

from selbo import metrics, models
from selbo.evaluation import calibrate, check_belief, evaluate, evaluate_ood
from selbo.evaluation.predict import Prediction, predict
from selbo.nn import forward_samples, kl_divergence, mean_network, to_bayesian
from selbo.objectives import (
    ELBO,
    CrossEntropy,
    Evidential,
    IndependentSummary,
    LabelSmoothing,
    SummaryELBO,
)
from selbo.summary.beliefs import Beta, Dirichlet, Empirical, Masses, Uniform
from selbo.summary.elicitation import expect
from selbo.summary.likelihood import SummaryLikelihood, dirichlet_process_log_prob
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, ScoreBins
from selbo.training import fit
from selbo.version import __version__ as __version__

if TYPE_CHECKING:
    from selbo.estimator import SummaryClassifier as SummaryClassifier

__all__ = [
    "ELBO",
    "Beta",
    "ClassRegions",
    "ConfidenceBins",
    "CornerShells",
    "CrossEntropy",
    "Dirichlet",
    "Empirical",
    "Evidential",
    "IndependentSummary",
    "LabelSmoothing",
    "Masses",
    "Prediction",
    "ScoreBins",
    "SummaryELBO",
    "SummaryLikelihood",
    "Uniform",
    "calibrate",
    "check_belief",
    "dirichlet_process_log_prob",
    "evaluate",
    "evaluate_ood",
    "expect",
    "fit",
    "forward_samples",
    "kl_divergence",
    "mean_network",
    "metrics",
    "models",
    "predict",
    "to_bayesian",
]


def __getattr__(name: str) -> Any:
    """`SummaryClassifier`, which needs scikit-learn, when it is asked for."""
    if name == "SummaryClassifier":
        from selbo.estimator import SummaryClassifier

        return SummaryClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
