"""The command `selbo`, one file per command, and the helpers that commands of other packages share."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selbo.cli.options import Debug, Device, choose_device
    from selbo.cli.output import console, cores, note, progress_bar, waiting, writable_folder

__all__ = [
    "Debug",
    "Device",
    "choose_device",
    "console",
    "cores",
    "note",
    "progress_bar",
    "waiting",
    "writable_folder",
]

_OPTIONS = ("Debug", "Device", "choose_device")

if not TYPE_CHECKING:  # type checkers would accept any name through `__getattr__`

    def __getattr__(name: str) -> Any:
        """Import a public name on first use, so that `selbo.cli.main` can report a missing typer in one sentence."""
        if name in __all__:
            home = "selbo.cli.options" if name in _OPTIONS else "selbo.cli.output"
            return getattr(importlib.import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
