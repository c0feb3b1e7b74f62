"""Variational layers: any PyTorch classifier with a Gaussian posterior over its weights."""

from selbo.nn.convert import describe, mean_network, to_bayesian
from selbo.nn.gaussian import Relative, gaussians
from selbo.nn.storage import load, save

__all__ = [
    "Relative",
    "describe",
    "gaussians",
    "load",
    "mean_network",
    "save",
    "to_bayesian",
]
