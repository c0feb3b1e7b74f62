"""Ctrl-C while the command `selbo` still imports what it needs: it ends at once, and shows no traceback."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

INTERRUPTED: Final = 130
"""Exit code: what shells say of a command that was stopped from the keyboard."""


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Imports of the command, or of a process that works for it; nothing is changed for programs with the library."""
    in_main = threading.current_thread() is threading.main_thread()
    if not (in_main and is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_command() -> bool:
    """Whether this program is `selbo` or `python -m selbo`, or a process that one of them started."""
    started = Path(sys.argv[0] if sys.argv else "")
    if started.name == "-m":  # Python is still looking for what to run
        return any(pair == ("-m", "selbo") for pair in zip(sys.orig_argv, sys.orig_argv[1:], strict=False))
    return started.stem in ("selbo", "selbo-script") or started.parts[-2:] == ("selbo", "__main__.py")


def _end(*_: Any) -> None:
    if multiprocessing.current_process().name == "MainProcess":  # else that one says it
        sys.stderr.write("selbo: error: interrupted\n")
        sys.stderr.flush()
    os._exit(INTERRUPTED)  # an exception could be caught by the module that is being imported
