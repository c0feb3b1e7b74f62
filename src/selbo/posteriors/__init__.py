"""Posteriors over the weights of a network: one interface to sample, predict, compute the KL, save and load."""

from selbo.posteriors.bayesian_ensemble import MeanFieldEnsemble, NaturalGradientEnsemble
from selbo.posteriors.dropout import MCDropout
from selbo.posteriors.ensemble import Ensemble
from selbo.posteriors.handle import as_posterior, forward_samples, kl_divergence
from selbo.posteriors.laplace import LastLayerLaplace
from selbo.posteriors.mean_field import MeanField
from selbo.posteriors.natural_gradient import NaturalGradient
from selbo.posteriors.natural_gradient_posterior import NaturalGradientPosterior
from selbo.posteriors.posterior import Deterministic, Posterior, WeightSample
from selbo.posteriors.samplers import SGHMC, SGLD, HMCSamples, SampleSet, hmc, network_log_posterior
from selbo.posteriors.swag import SWAG

__all__ = [
    "SGHMC",
    "SGLD",
    "SWAG",
    "Deterministic",
    "Ensemble",
    "HMCSamples",
    "LastLayerLaplace",
    "MCDropout",
    "MeanField",
    "MeanFieldEnsemble",
    "NaturalGradient",
    "NaturalGradientEnsemble",
    "NaturalGradientPosterior",
    "Posterior",
    "SampleSet",
    "WeightSample",
    "as_posterior",
    "forward_samples",
    "hmc",
    "kl_divergence",
    "network_log_posterior",
]
