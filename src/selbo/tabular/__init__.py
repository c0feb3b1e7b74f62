"""From a table to a model folder: the workflow of `selbo train`, `selbo evaluate` and `selbo predict`."""

from selbo.tabular.splits import Parts, split

__all__ = [
    "Parts",
    "split",
]
