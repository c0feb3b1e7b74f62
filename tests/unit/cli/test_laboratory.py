"""Commands of other packages are found by their entry points; without selbo-lab its commands say how to get it."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from selbo.cli import laboratory

SCREEN = {"COLUMNS": "80", "TERM": "dumb"}


def greet(name: str) -> None:
    """Greet somebody."""
    typer.echo(f"hello {name}")


group = typer.Typer(help="Greetings.")
group.command("greet")(greet)


@group.command()
def leave() -> None:
    """Leave."""


def commands(monkeypatch: pytest.MonkeyPatch, **installed: str) -> typer.Typer:
    """A command with these entry points beside its own, `train`."""

    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == "selbo.commands"
        return [EntryPoint(name, f"{__name__}:{value}", group) for name, value in installed.items()]

    monkeypatch.setattr(laboratory, "entry_points", entry_points)
    monkeypatch.setattr(EntryPoint, "load", lambda entry: globals()[entry.attr])
    app = typer.Typer()
    app.command("train")(lambda: typer.echo("own"))
    laboratory.add_commands(app, taken=frozenset({"train"}))
    return app


def test_without_the_laboratory_its_commands_have_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = CliRunner().invoke(commands(monkeypatch), ["--help"], env=SCREEN).output.splitlines()
    for name in ("reproduce", "list", "report", "figure", "data"):
        (line,) = (line for line in lines if line.strip(" │").startswith(f"{name} "))
        assert line.rstrip(" │").endswith("(pip install selbo-lab).")


@pytest.mark.parametrize("arguments", [[], ["get", "mnist"], ["--seeds", "2"], ["--help"]])
@pytest.mark.parametrize("name", laboratory.COMMANDS)
def test_without_the_laboratory_its_commands_say_how_to_get_it(
    name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = CliRunner().invoke(commands(monkeypatch), [name, *arguments]).exception
    assert isinstance(found, ValueError)  # a sentence, and exit code 2
    assert str(found) == f"'selbo {name}' is a command of the laboratory: pip install selbo-lab"


def test_a_function_is_a_command_and_a_typer_is_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    app = commands(monkeypatch, figure="greet", data="group", other="greet")
    assert CliRunner().invoke(app, ["figure", "Ada"]).output == "hello Ada\n"
    assert CliRunner().invoke(app, ["data", "greet", "Bo"]).output == "hello Bo\n"
    assert CliRunner().invoke(app, ["other", "Cy"]).output == "hello Cy\n"
    assert "Greet somebody." in CliRunner().invoke(app, ["--help"], env=SCREEN).output


def test_no_package_replaces_a_command_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliRunner().invoke(commands(monkeypatch, train="greet"), ["train"]).output == "own\n"
