"""The parts of the command line: exit codes, sentences, options, files that are whole or absent."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from selbo.cli import main as entry
from selbo.cli import output
from selbo.cli.app import app
from selbo.cli.options import choose_device, widths
from selbo.version import __version__

COMMANDS = ("demo", "train", "predict", "evaluate")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Exit code of the command."""
    monkeypatch.setattr(sys, "argv", ["selbo", *arguments])
    with pytest.raises(SystemExit) as left:
        entry.main()
    return left.value.code


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert result.exit_code == 0
    assert f"Example: selbo {command} " in result.output
    for option in ("--seed", "--device", "--debug"):
        assert option in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"selbo {__version__}\n")


def test_no_command_shows_the_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch) == 2
    shown = capsys.readouterr()
    assert all(command in shown.out + shown.err for command in COMMANDS)
    assert "error" not in shown.err


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("selbo", ["nonsense"], "no such command 'nonsense'"),
        ("selbo train", ["train", "a.csv", "--out", "m"], "missing option '--target'"),
        ("selbo train", ["train", "a.csv", "--colour", "red"], "no such option: --colour"),
        ("selbo predict", ["predict"], "missing argument 'DIR'"),
        ("selbo evaluate", ["evaluate", "m", "a.csv", "--num-samples", "0"], "invalid value for '--num-samples'"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    arguments: list[str],
    message: str,
) -> None:
    assert run(monkeypatch, *arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"selbo: error: {message}")  # the rest is typer's, and changes with its version
    assert shown.err.endswith(f" ('{command} --help' shows what there is)\n")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("`x` must\n  be one"), 2, "`x` must be one"),
        (FileNotFoundError(2, "No such file or directory", "a.csv"), 2, "a.csv: no such file or directory"),
        (RuntimeError("the loss is not finite"), 1, "the loss is not finite"),
        (ModuleNotFoundError("needs polars"), 1, "needs polars"),
        (OSError("disk full"), 1, "disk full"),
        (OSError(28, "No space left on device"), 1, "[Errno 28] No space left on device"),
        (OSError(28, "No space left on device", "m/model.json"), 1, "m/model.json: no space left on device"),
        (ZeroDivisionError("oops"), 1, "ZeroDivisionError: oops (--debug shows where)"),
        (KeyError(), 1, "KeyError: KeyError (--debug shows where)"),
    ],
)
def test_errors_are_one_sentence_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("selbo.cli.evaluate.require_model", fail)
    assert run(monkeypatch, "evaluate", "m", "a.csv") == code
    assert capsys.readouterr().err == f"selbo: error: {message}\n"
    monkeypatch.setattr(sys, "argv", ["selbo", "evaluate", "m", "a.csv", "--debug"])
    with pytest.raises(type(error)):
        entry.main()


@pytest.mark.parametrize(
    ("where", "arguments", "goes_on"),
    [
        ("train.require_table", ["train", "a.csv", "--target", "a", "--out", "m"], True),
        ("evaluate.require_model", ["evaluate", "m", "a.csv"], False),
        ("predict.require_model", ["predict", "m", "a.csv"], False),
        ("demo.choose_device", ["demo", "--out", "d"], False),
    ],
)
def test_an_interruption_says_whether_the_command_goes_on(
    where: str,
    arguments: list[str],
    goes_on: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"selbo.cli.{where}", stop)
    assert run(monkeypatch, *arguments) == 130
    more = "; run the same command again to resume" if goes_on else ""
    assert capsys.readouterr().err == f"selbo: error: interrupted{more}\n"


@pytest.mark.parametrize(("text", "expected"), [("128", (128,)), ("64, 32,8", (64, 32, 8))])
def test_widths(text: str, expected: tuple[int, ...]) -> None:
    assert widths(text) == expected


@pytest.mark.parametrize("text", ["", "0", "64,", "-3", "3.5", "wide"])
def test_widths_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`--hidden` must be whole numbers above 0"):
        widths(text)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_devices() -> None:
    assert choose_device("auto") == choose_device("cpu") == "cpu"
    with pytest.raises(ValueError, match="there is no CUDA device: use cpu or auto"):
        choose_device("cuda:0")
    with pytest.raises(ValueError, match="`--device` must be cpu"):
        choose_device("abacus")


# --- output ---


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe, 犬, 90 % – “no”", None),
        ("👩\u200d🔬 می\u200cخواهم", None),
        (r"C:\data\new", None),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b2J\x07\x08\x7f", r"\x9b2J\x07\x08\x7f"),
        ("a\r\n\tb", r"a\r\n\tb"),
        ("\u202egnp.exe\u2066\u2028\ufeff", r"\u202egnp.exe\u2066\u2028\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_steers_a_terminal_is_spelt_out(text: str, shown: str | None) -> None:
    assert output.visible(text) == (text if shown is None else shown)


def test_notes_and_errors_are_one_line_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    output.note("column \x1b]0;title\x07 is\nignored")
    entry.explain(ValueError("no \x1b[2J"))
    entry.print_error("x" * 10**6)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == r"selbo: note: column \x1b]0;title\x07 is\nignored"
    assert second == r"selbo: error: no \x1b[2J"
    assert third == f"selbo: error: {'x' * (output.LONGEST_LINE - 3)}..."


def test_the_console_spells_out_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    table = Table("\x1b[31mhead")
    table.add_row("\x1b[32mcell")
    screen = output.console()
    screen.print(table)
    screen.print("two\nlines \x1b[33m")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    for text in (r"\x1b[31mhead", r"\x1b[32mcell", "two\nlines \\x1b[33m\n"):
        assert text in shown


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_is_spelt_out_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    output.write_table({"predicted_class": ["\x1b[31mred", "no"]}, None)
    red = r"\x1b[31mred" if terminal else "\x1b[31mred"
    assert capsys.readouterr().out == f"predicted_class\n{red}\nno\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("table.txt", r"must be - or a file that ends in .csv or .parquet"),
        ("nowhere/table.csv", "'nowhere' does not"),
        ("folder.csv", "is a folder"),
    ],
)
def test_places_for_tables_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.csv").mkdir()
    with pytest.raises(ValueError, match=message):
        output.table_target(name, source=Path("data.csv"))


def test_folders_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot be made: not a directory"):
        output.writable_folder(tmp_path / "file" / "folder")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="cannot be written to"):
        output.writable_folder(tmp_path)
    with pytest.raises(ValueError, match="cannot be written to"):
        output.table_target(str(tmp_path / "a.csv"), source=tmp_path / "data.csv")


def test_tables_are_written_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"predicted_class": ["a, b", "c"], "p_c": [0.25, 1e-12]}
    expected = 'predicted_class,p_c\n"a, b",0.25\nc,1e-12\n'
    output.write_table(columns, None)
    assert capsys.readouterr().out == expected
    output.write_table(columns, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == expected
    output.write_table(columns, tmp_path / "a.parquet")
    assert pl.read_parquet(tmp_path / "a.parquet").to_dict(as_series=False) == columns
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.csv", "a.parquet"]


def test_metrics_without_a_temperature_have_one_column() -> None:
    metrics = {**dict.fromkeys(output.METRIC_TITLES, 0.12345), "auroc": None, "num_examples": 7}
    console = Console(width=80, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    with console.file:
        console.print(output.metrics_table(metrics, None, None))
    shown = console.export_text()
    assert "with temperature" not in shown
    assert "0.123" in shown
    assert "12.3" in shown
    assert "AUROC, %" in shown
