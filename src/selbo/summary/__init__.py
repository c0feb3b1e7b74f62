"""The contribution: what predictions should look like, as a likelihood on any tensor of log-probabilities."""

from selbo.summary import beliefs, elicitation, likelihood, partitions

__all__ = ["beliefs", "elicitation", "likelihood", "partitions"]
