"""What a posterior is, and each way to get one: one handle that samples, gives the KL, saves, loads and predicts."""

from selbo.posteriors.handle import as_posterior, forward_samples, kl_divergence
from selbo.posteriors.mean_field import MeanField
from selbo.posteriors.natural_gradient import NaturalGradient
from selbo.posteriors.posterior import Deterministic, Posterior

__all__ = [
    "Deterministic",
    "MeanField",
    "NaturalGradient",
    "Posterior",
    "as_posterior",
    "forward_samples",
    "kl_divergence",
]
