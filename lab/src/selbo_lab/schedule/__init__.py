"""Which runs of a study are missing, and which process runs them."""
