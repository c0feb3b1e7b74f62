"""The command line: finds the command, and turns errors into one sentence and an exit code."""

import os
import sys
from typing import Any, Final

from selbo.cli.output import one_line

BAD_INPUT: Final = 2
FAILED: Final = 1
INTERRUPTED: Final = 130
"""What shells say of a command that was stopped from the keyboard."""

RESUMABLE: Final = (["train"], ["reproduce"], ["data", "get"])
"""Commands that, run again after an interruption, resume."""


def main() -> None:
    """Run the command line; exit code 0 if all went well, 2 for bad input, 1 for anything else that failed."""
    try:
        from selbo.cli.app import app
    except ModuleNotFoundError as error:
        print_error(f"the command needs the package {error.name!r}: pip install 'selbo[train]'")
        sys.exit(FAILED)
    debug = "--debug" in sys.argv[1:]
    try:
        code = app(prog_name="selbo", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        if hasattr(error, "format_message"):  # of click, which typer brings along under its own name
            sys.exit(explain_usage(error))
        if debug:
            raise
        sys.exit(explain(error))
    if code == INTERRUPTED:
        print_error("interrupted" + ("; run the same command again to resume" if resumes(sys.argv[1:]) else ""))
    sys.exit(code if isinstance(code, int) else 0)


def resumes(arguments: list[str]) -> bool:
    """Whether a command, run again after an interruption, resumes."""
    return any(arguments[: len(words)] == words for words in RESUMABLE)


def explain_usage(error: Any) -> int:
    """Print what is wrong with the arguments as one sentence; return the exit code."""
    context = getattr(error, "ctx", None)
    command = "selbo" if context is None else context.command_path
    if type(error).__name__ == "NoArgsIsHelpError":  # the help was shown
        error.show()
    else:
        text = " ".join(str(error.format_message()).split()).rstrip(".")
        print_error(f"{text[:1].lower()}{text[1:]} ('{command} --help' shows what there is)")
    return BAD_INPUT


def explain(error: Exception) -> int:
    """Print an error as one sentence; return the exit code."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{os.fsdecode(error.filename)}: {error.strerror.lower()}"
    if isinstance(error, (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)):
        print_error(text)
        return BAD_INPUT
    known = isinstance(error, (RuntimeError, OSError, ModuleNotFoundError))
    print_error(text if known else f"{type(error).__name__}: {text} (--debug shows where)")
    return FAILED


def print_error(text: str) -> None:
    """One line on the error stream."""
    sys.stderr.write(f"selbo: error: {one_line(text)}\n")
