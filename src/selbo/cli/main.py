"""The entry point of the command line: runs the command and turns errors into one sentence and an exit code."""

import os
import sys
from typing import Any, Final

from selbo.cli.output import print_message

BAD_INPUT: Final = 2
FAILED: Final = 1
INTERRUPTED: Final = 130
"""Exit code of a command interrupted from the keyboard, as in shells."""

RESUMABLE: Final = (["train"], ["reproduce"], ["data", "get"])
"""Commands that resume when they are run again after an interruption."""


def main() -> None:
    """Run the command line. Exit code 0 means success, 2 bad input, 1 any other failure."""
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
        if hasattr(error, "format_message"):  # errors of click, which typer vendors under its own name
            sys.exit(explain_usage(error))
        if debug:
            raise
        sys.exit(explain(error))
    if code == INTERRUPTED:
        print_error("interrupted" + ("; run the same command again to resume" if resumes(sys.argv[1:]) else ""))
    sys.exit(code if isinstance(code, int) else 0)


def resumes(arguments: list[str]) -> bool:
    """Whether a command resumes when it is run again after an interruption."""
    return any(arguments[: len(words)] == words for words in RESUMABLE)


def explain_usage(error: Any) -> int:
    """Print an error in the arguments as one sentence; return the exit code."""
    context = getattr(error, "ctx", None)
    command = "selbo" if context is None else context.command_path
    if type(error).__name__ == "NoArgsIsHelpError":  # the help was shown
        error.show()
    else:
        text = " ".join(str(error.format_message()).split()).rstrip(".")
        print_error(f"{text[:1].lower()}{text[1:]} ('{command} --help' shows what there is)")
    return BAD_INPUT


def explain(error: Exception) -> int:
    """Print an error as one sentence, or several problems as one sentence each; return the exit code."""
    if problems := getattr(error, "problems", None):
        for each in problems:
            print_error(each)
        return BAD_INPUT
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
    """Print an error on the error stream."""
    print_message("error", text)
