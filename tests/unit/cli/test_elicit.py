"""`selbo elicit`: what it prints and opens, and how it ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import rich.style  # noqa: F401  (takes a random number when it is imported)
from typer.testing import CliRunner

from selbo.cli import elicit as command
from selbo.cli.app import app
from selbo.elicit import server as module


class NoWorkers:
    started = closed = 0

    def start(self) -> None:
        NoWorkers.started += 1

    def close(self) -> None:
        NoWorkers.closed += 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a browser was sent to; the server is interrupted as soon as it serves."""
    found: list[str] = []

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "Workers", lambda _: NoWorkers())
    monkeypatch.setattr(module.Server, "serve_forever", interrupted)
    monkeypatch.setattr(command.webbrowser, "open", found.append)
    NoWorkers.started = NoWorkers.closed = 0
    return found


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(app, ["elicit", "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert result.exit_code == 0
    assert "Example: selbo elicit " in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_it_opens_a_browser_and_stops_cleanly(opened: list[str]) -> None:
    result = CliRunner().invoke(app, ["elicit", "--port", "0"])
    assert result.exit_code == 0
    (address,) = opened
    assert address.startswith("http://127.0.0.1:")
    assert f"The elicitation page is at {address}\n" in result.output
    assert result.output.endswith("Stopped.\n")
    assert (NoWorkers.started, NoWorkers.closed) == (1, 1)


def test_it_can_leave_the_browser_alone(opened: list[str]) -> None:
    assert CliRunner().invoke(app, ["elicit", "--no-browser", "--port", "0"]).exit_code == 0
    assert opened == []


def test_an_address_that_others_can_reach_is_pointed_out(opened: list[str]) -> None:
    result = CliRunner().invoke(app, ["elicit", "--no-browser", "--port", "0", "--host", "0.0.0.0"])
    assert "note: 0.0.0.0 can be reached from other machines" in result.stderr
    assert "note" not in CliRunner().invoke(app, ["elicit", "--no-browser", "--port", "0"]).stderr


def test_an_address_that_is_not_this_machines_is_refused_in_a_sentence() -> None:
    result = CliRunner().invoke(app, ["elicit", "--no-browser", "--port", "0", "--host", "203.0.113.7"])
    assert isinstance(result.exception, ValueError)
    assert "`--port` 0 of 203.0.113.7 cannot be used: " in str(result.exception)
    result = CliRunner().invoke(app, ["elicit", "--no-browser", "--host", "203.0.113.7"])
    assert "`--host` 203.0.113.7 cannot be used: " in str(result.exception)


@pytest.mark.parametrize(
    ("link", "fragment"),
    [
        ("", ""),
        ("http://127.0.0.1:8421/#k=3&accuracy=0.8&shares=0.5,0.3,0.2", "#k=3&accuracy=0.8&shares=0.5,0.3,0.2"),
        ("#k=2&name=a%20b&name=c+d", "#k=2&name=a%20b&name=c+d"),
        ("http://evil.example/page?x=1#k=2", "#k=2"),
        ('#name="><script>', "#name=%22%3E%3Cscript%3E"),
    ],
)
def test_of_a_link_only_the_state_is_taken(link: str, fragment: str) -> None:
    assert command.extract_fragment(link) == fragment


def test_what_a_link_may_say_is_what_the_page_reads() -> None:
    page = (Path(module.__file__).parent / "page" / "page.js").read_text(encoding="utf-8")
    (body,) = re.findall(r"^function read\(hash\) {$(.*?)^}$", page, re.DOTALL | re.MULTILINE)
    assert set(re.findall(r'(?:number|list|given\.\w+)\("(\w+)"', body)) == command.STATED


@pytest.mark.parametrize("link", ["garbage-link", "http://127.0.0.1:8421/", "#", "#garbage", "#this=that", "k=3"])
def test_a_link_that_says_nothing_is_refused(opened: list[str], link: str) -> None:
    result = CliRunner().invoke(app, ["elicit", "--no-browser", "--port", "0", link])
    assert isinstance(result.exception, ValueError)
    assert f"the link must be one copied from the page, such as http://.../#k=2&accuracy=0.9, but got {link!r}" in str(
        result.exception
    )
    assert NoWorkers.started == 0
