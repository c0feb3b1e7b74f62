"""Posteriors over the weights of a network: one interface to sample, predict, compute the KL, save and load."""

from selbo.posteriors.ensemble import Ensemble
from selbo.posteriors.handle import as_posterior, forward_samples, kl_divergence
from selbo.posteriors.mean_field import MeanField
from selbo.posteriors.natural_gradient import NaturalGradient
from selbo.posteriors.natural_gradient_posterior import NaturalGradientPosterior
from selbo.posteriors.posterior import Deterministic, Posterior, WeightSample

__all__ = [
    "Deterministic",
    "Ensemble",
    "MeanField",
    "NaturalGradient",
    "NaturalGradientPosterior",
    "Posterior",
    "WeightSample",
    "as_posterior",
    "forward_samples",
    "kl_divergence",
]
