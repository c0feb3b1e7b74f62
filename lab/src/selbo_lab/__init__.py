"""The laboratory of the Summary ELBO paper: data sets, studies and results, on the public API of `selbo`."""
