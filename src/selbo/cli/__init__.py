"""The command `selbo`: one file per command; and what commands of other packages share with them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selbo.cli.options import Debug, Device, device_of
    from selbo.cli.output import console, cores, note, progress_bar, waiting, writable_folder

__all__ = [
    "Debug",
    "Device",
    "console",
    "cores",
    "device_of",
    "note",
    "progress_bar",
    "waiting",
    "writable_folder",
]

_OPTIONS = ("Debug", "Device", "device_of")

if not TYPE_CHECKING:  # of which a name that does not exist would be of any type

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is asked for: `selbo.cli.main` says in a sentence if typer is missing."""
        if name in __all__:
            home = "selbo.cli.options" if name in _OPTIONS else "selbo.cli.output"
            return getattr(importlib.import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
