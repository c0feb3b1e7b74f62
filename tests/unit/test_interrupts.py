"""Ctrl-C while torch is imported: the command ends in silence, a program with the library gets its exception."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from selbo import interrupts

SLOW = "import time; print('importing', flush=True); time.sleep(60)"
SOURCE = Path(__file__).parents[2] / "src"


def interrupted(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and errors of a Python program that is interrupted while it imports torch."""
    (folder / "torch.py").write_text(SLOW)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(SOURCE)])}
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    return process.returncode, err


def test_the_command_ends_without_a_traceback(tmp_path: Path) -> None:
    said = "selbo: error: interrupted\n"
    assert interrupted(tmp_path, "-m", "selbo", "--version") == (130, said)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "selbo"
    script.write_text("from selbo.cli.main import main\nmain()\n")
    assert interrupted(tmp_path, str(script), "list") == (130, said)


@pytest.mark.parametrize("arguments", [("-c", "import selbo"), ("-m", "program"), ("program.py", "-m", "selbo")])
def test_a_program_gets_the_exception(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import selbo\n")
    code, err = interrupted(tmp_path, *arguments)
    assert code == -signal.SIGINT
    assert err.endswith("KeyboardInterrupt\n")


@pytest.mark.parametrize(("name", "said"), [("MainProcess", "selbo: error: interrupted\n"), ("SpawnProcess-1", "")])
def test_only_the_main_process_says_it(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(multiprocessing.current_process(), "name", name)
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/selbo", "demo"])
    before = signal.getsignal(signal.SIGINT)
    with interrupts.quiet_imports():
        signal.raise_signal(signal.SIGINT)
    assert codes == [130]
    assert capsys.readouterr().err == said
    assert signal.getsignal(signal.SIGINT) is before
