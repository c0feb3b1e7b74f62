"""A table to a model folder: what `selbo train`, `selbo evaluate` and `selbo predict` do."""

from selbo.tabular.splits import Parts, split

__all__ = [
    "Parts",
    "split",
]
