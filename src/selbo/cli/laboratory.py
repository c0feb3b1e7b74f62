"""Commands of other packages, from the entry-point group `selbo.commands`; those of selbo-lab are always listed."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import typer

GROUP: Final = "selbo.commands"
"""An entry point is a function, which becomes a command, or a `typer.Typer`, which becomes a group of commands."""

COMMANDS: Final = {
    "reproduce": "Run studies of the paper",
    "list": "List the studies of the paper",
    "report": "Write the report of a study",
    "figure": "Draw a figure of the paper",
    "data": "Get the data sets of the paper",
}
"""Commands of selbo-lab, with their help texts."""

INSTALL: Final = "pip install selbo-lab"


def add_commands(app: typer.Typer, *, taken: frozenset[str]) -> None:
    """Add the commands of selbo-lab and of any other package that declares some.

    Args:
        app: The command `selbo`.
        taken: Names of its own commands, which no other package may use.
    """
    found = {each.name: each for each in entry_points(group=GROUP) if each.name not in taken}
    for name in dict.fromkeys([*COMMANDS, *sorted(found)]):
        if name in found:
            _add(app, found[name])
        else:
            settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
            text = f"{COMMANDS[name]} ({INSTALL})."
            app.command(name, help=text, context_settings=settings)(_not_installed(name))


def _add(app: typer.Typer, entry: EntryPoint) -> None:
    command = entry.load()
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=entry.name)
    else:
        app.command(entry.name)(command)


def _not_installed(name: str) -> Callable[[], None]:
    def command() -> None:
        raise ValueError(f"'selbo {name}' is a command of the laboratory: {INSTALL}")

    return command
