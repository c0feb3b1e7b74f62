"""What a posterior over weights is, and the ways to get one."""

from selbo.posteriors.natural_gradient import NaturalGradient

__all__ = ["NaturalGradient"]
