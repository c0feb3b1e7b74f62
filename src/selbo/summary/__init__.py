"""Summary likelihoods: prior knowledge about predictions, as a likelihood of any tensor of log-probabilities."""

from selbo._numerics import PreciseModule
from selbo.summary import beliefs, elicitation, estimation, likelihood, partitions
from selbo.summary.beliefs import Belief
from selbo.summary.likelihood import log_dirichlet
from selbo.summary.partitions import Partition

__all__ = [
    "Belief",
    "Partition",
    "PreciseModule",
    "beliefs",
    "elicitation",
    "estimation",
    "likelihood",
    "log_dirichlet",
    "partitions",
]
