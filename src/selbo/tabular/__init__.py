"""A table to a model folder: what `selbo train`, `selbo evaluate` and `selbo predict` do."""
