"""The commands of the laboratory, as `selbo` finds them."""

from __future__ import annotations

import sys

import pytest

from selbo.cli import main as entry
from selbo_lab.cli import reproduce


@pytest.mark.parametrize(
    ("where", "arguments", "goes_on"),
    [
        ("reproduce.device_of", ["reproduce", "sst"], True),
        ("data.left_out", ["data", "get", "mnist"], True),
        ("data.state", ["data", "list"], False),
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

    monkeypatch.setattr(f"selbo_lab.cli.{where}", stop)
    monkeypatch.setattr(sys, "argv", ["selbo", *arguments])
    with pytest.raises(SystemExit) as left:
        entry.main()
    assert left.value.code == 130
    more = "; the same command, given again, goes on where it stopped" if goes_on else ""
    assert capsys.readouterr().err == f"selbo: error: interrupted{more}\n"


@pytest.mark.parametrize(
    ("device", "models", "cores", "expected"),
    [
        ("cpu", ["vgg11"], 5, 5),
        ("cuda", ["mlp", "lenet"], 40, 14),
        ("cuda", ["lenet"], 6, 6),
        ("cuda:1", ["lenet", "vgg11"], 40, 3),
        ("cuda", ["vgg11"], 2, 2),
    ],
)
def test_runs_at_a_time(
    device: str, models: list[str], cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "cores", lambda: cores)
    assert reproduce.at_a_time(device, models) == expected
