"""Neural classifiers that know what their predictions should look like: the Summary ELBO for PyTorch."""

from importlib.metadata import PackageNotFoundError, version

from selbo.nn import forward_samples, kl_divergence, mean_network, to_bayesian
from selbo.summary.beliefs import Beta, Dirichlet, Empirical, Masses, Uniform
from selbo.summary.elicitation import expect
from selbo.summary.likelihood import SummaryLikelihood, dirichlet_process_log_prob
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, ScoreBins

try:
    __version__ = version("selbo")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "Beta",
    "ClassRegions",
    "ConfidenceBins",
    "CornerShells",
    "Dirichlet",
    "Empirical",
    "Masses",
    "ScoreBins",
    "SummaryLikelihood",
    "Uniform",
    "dirichlet_process_log_prob",
    "expect",
    "forward_samples",
    "kl_divergence",
    "mean_network",
    "to_bayesian",
]
