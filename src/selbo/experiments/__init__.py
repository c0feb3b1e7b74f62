"""Comparisons of methods on data: which runs there are, how they are made, and what is kept of them."""
