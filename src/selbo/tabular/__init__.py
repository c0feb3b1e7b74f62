"""From a table to a model folder: the workflow of `selbo train`, `selbo evaluate` and `selbo predict`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selbo.tabular.splits import Parts, split

__all__ = [
    "Parts",
    "split",
]


if not TYPE_CHECKING:  # with it, a type checker would accept names that do not exist

    def __getattr__(name: str) -> Any:
        """A public name. Imported on first use: it needs torch, and help texts and mistakes in arguments do not."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from selbo.tabular import splits

        return getattr(splits, name)
