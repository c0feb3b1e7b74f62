"""Variational layers: any PyTorch classifier with a Gaussian posterior over its weights."""

from selbo.nn.convert import describe, mean_network, to_bayesian
from selbo.nn.draws import forward_samples
from selbo.nn.gaussian import Relative, gaussians, kl_divergence, spreads_once
from selbo.nn.storage import load, save

__all__ = [
    "Relative",
    "describe",
    "forward_samples",
    "gaussians",
    "kl_divergence",
    "load",
    "mean_network",
    "save",
    "spreads_once",
    "to_bayesian",
]
