"""Argument checks with uniform error messages, for partitions, beliefs and studies of one's own."""

from selbo._checks import fraction, non_negative, one_of, positive, simplex, whole

__all__ = ["fraction", "non_negative", "one_of", "positive", "simplex", "whole"]
