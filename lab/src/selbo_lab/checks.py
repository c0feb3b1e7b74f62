"""Argument checks of the library: all errors name the argument, the expected and the given value."""

from selbo.checks import fraction, non_negative, one_of, positive, simplex, whole

__all__ = ["fraction", "non_negative", "one_of", "positive", "simplex", "whole"]
