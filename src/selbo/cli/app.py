"""The typer application with all commands."""

from typing import Annotated

import typer

from selbo.cli.calibrate import calibrate
from selbo.cli.demo import demo
from selbo.cli.elicit import elicit
from selbo.cli.evaluate import evaluate
from selbo.cli.laboratory import add_commands
from selbo.cli.monitor import monitor
from selbo.cli.predict import predict
from selbo.cli.train import train
from selbo.version import __version__

app = typer.Typer(
    name="selbo",
    help="Train classifiers that know what their predictions should look like.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
OWN = (demo, elicit, train, predict, evaluate, calibrate, monitor)
for command in OWN:
    app.command()(command)
add_commands(app, taken=frozenset(command.__name__ for command in OWN))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"selbo {__version__}")
        raise typer.Exit


@app.callback()
def selbo(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Train classifiers that know what their predictions should look like."""
