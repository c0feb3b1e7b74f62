"""The commands, put together."""

from typing import Annotated

import typer

from selbo.cli.data import data
from selbo.cli.demo import demo
from selbo.cli.elicit import elicit
from selbo.cli.evaluate import evaluate
from selbo.cli.figure import figure
from selbo.cli.predict import predict
from selbo.cli.reproduce import list_studies, report, reproduce
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
app.command()(demo)
app.command()(elicit)
app.command()(train)
app.command()(predict)
app.command()(evaluate)
app.command()(reproduce)
app.command("list")(list_studies)
app.command()(report)
app.command()(figure)
app.add_typer(data)


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
