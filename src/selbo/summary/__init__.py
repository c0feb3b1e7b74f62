"""The contribution: what predictions should look like, as a likelihood on any tensor of log-probabilities."""
