"""The command `selbo` in the process of a test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from selbo.cli import main as entry


class Shown(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Shown]


def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *first: str) -> Run:
    """A function that runs the command with the first arguments and more, and returns what it shows."""

    def run(*arguments: object) -> Shown:
        monkeypatch.setattr(sys, "argv", ["selbo", *first, *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            entry.main()
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return Shown(int(left.value.code or 0), shown.out, shown.err)

    return run
