"""Python programs in processes of their own, forked from one that has imported what takes seconds to import."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest.mock import patch

SETTINGS = {"PYTHONWARNINGS": "error", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment of the process that is forked; it must not have threads."""

PRELOADED = ("torch", "torch._dynamo", "sklearn.utils.validation", "matplotlib.figure")
"""No part of selbo. A program that leaves out one of these imports fails all the same: its namespace is its own."""

OPTIONS = {"capture_output", "text", "check", "timeout"}
"""Arguments of `subprocess.run` with which a module is forked; with others it is started as usual."""

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([*PRELOADED])

_said: list[Path] = []
"""Where the output and the errors of this process go, if it is a program that was forked."""


class _Worker(_forks.Process):
    """A process with the environment and the streams of the one that starts it, as if it had been spawned."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.environment, self.said = dict(os.environ), _said

    def run(self) -> None:
        os.environ.clear()
        os.environ.update(self.environment)
        _redirect(self.said)
        super().run()


class _Warm(type(_forks)):
    Process = _Worker


def warm_pool(count: int) -> ProcessPoolExecutor:
    """Like `start_pool`, with processes that are forked from the one that has imported what takes seconds to import."""
    from selbo.training.processes import end_with_parent  # here: not in every program that is forked

    with patch.dict(os.environ, SETTINGS):
        forkserver.ensure_running()
    return ProcessPoolExecutor(count, _Warm(), end_with_parent)


def run_forked(
    program: Path | str, *arguments: str, folder: Path | None = None, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script, or a module with that name, like `python -W error`. Killed if it takes longer than `timeout`."""
    return Forked(_forks, program, arguments, folder=folder, environment=environment).wait(timeout)


def start_forked(program: Path | str, *arguments: str, terminal: Path | None = None, **environment: str) -> Forked:
    """Start a script or a module like `python`, with its warnings as they are; its errors go to a terminal if given."""
    return Forked(_forks, program, arguments, environment=environment, strict=False, terminal=terminal)


class Forked:
    """A program that was started, and what it has said once it has ended."""

    def __init__(
        self,
        context: Any,
        program: Path | str,
        arguments: tuple[str, ...],
        *,
        folder: Path | None = None,
        environment: dict[str, str],
        strict: bool = True,
        terminal: Path | None = None,
    ) -> None:
        self.command = [str(program), *arguments]
        self.kept = tempfile.TemporaryDirectory()
        self.said = [Path(self.kept.name, stream) for stream in ("stdout", "stderr")]
        with patch.dict(os.environ, SETTINGS):  # the first call starts the process that is forked
            said = [self.said[0], terminal or self.said[1]]
            given = {"folder": folder or Path.cwd(), "said": said, "environment": environment, "strict": strict}
            self.process = context.Process(target=_run, args=(program, arguments), kwargs=given)
            self.process.start()

    def wait(self, timeout: float | None) -> subprocess.CompletedProcess[str]:
        """Killed if it takes longer."""
        with self.kept:
            self.process.join(timeout)
            if self.process.is_alive():
                self.process.kill()
                self.process.join()
            assert self.process.exitcode is not None
            said = (each.read_text(encoding="utf-8") if each.exists() else "" for each in self.said)
            return subprocess.CompletedProcess(self.command, self.process.exitcode, *said)


def _run(
    program: Path | str,
    arguments: tuple[str, ...],
    *,
    folder: Path,
    said: list[Path],
    environment: dict[str, str],
    strict: bool,
) -> None:
    _redirect(said)
    _said[:] = said
    forkserver._forkserver.ensure_running = lambda: None  # the one that forked this program forks its pools too
    start = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: _Warm() if method == "spawn" else start(method)
    os.environ.pop("PYTHONWARNINGS")  # for this program, not for those that it starts
    if not strict:
        warnings.resetwarnings()
        sys.warnoptions.clear()  # these would be options of processes that it starts
    subprocess.run = _fork_modules(subprocess.run)
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [str(program), *arguments]
    if isinstance(program, Path):
        sys.path.insert(0, str(program.parent))
        runpy.run_path(str(program), run_name="__main__")
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def _redirect(said: list[Path]) -> None:
    for stream, file in enumerate(said, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY), stream)


def _fork_modules(start: Callable[..., Any]) -> Callable[..., Any]:
    """`subprocess.run` that forks this process for `python -m module`, instead of importing everything once more."""

    def run(command: Any, **options: Any) -> Any:
        captured = options.get("capture_output") and options.get("text") and options.keys() <= OPTIONS
        if not captured or list(command[:2]) != [sys.executable, "-m"]:
            return start(command, **options)
        _, _, module, *arguments = command
        context = multiprocessing.get_context("fork")
        found = Forked(context, module, tuple(arguments), environment={}).wait(options.get("timeout"))
        if options.get("check"):
            found.check_returncode()
        return found

    return run
