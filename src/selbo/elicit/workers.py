"""Processes that compute under a time limit, so that one hard question neither hangs nor blocks the others."""

import contextlib
import logging
import multiprocessing
import queue
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

from selbo.elicit.state import RefusedError

NUM_WORKERS: Final = 2
LIMIT_SECONDS: Final = 10.0
"""What a question may take; 100 classes take a few seconds."""

START_SECONDS: Final = 120.0
"""What the start of a process may take: it imports torch, perhaps from a cold disk."""

log = logging.getLogger(__name__)

Target = Callable[..., dict[str, Any]]


class UnavailableError(RuntimeError):
    """No answer now, through no fault of the input."""


class Workers:
    """A few processes that call one function; each is replaced when it takes too long or dies.

    Args:
        target: A function of a module, which can be imported by its name.
        count: How many processes.
        limit: Seconds a call.
    """

    def __init__(self, target: Target, *, count: int = NUM_WORKERS, limit: float = LIMIT_SECONDS) -> None:
        self.limit = limit
        self.free: queue.Queue[_Worker] = queue.Queue()
        for worker in (_Worker(target) for _ in range(count)):
            self.free.put(worker)
        self.all = list(self.free.queue)

    def start(self) -> None:
        """Start all processes in the background, so that the first question need not wait for it."""

        def ask() -> None:
            with contextlib.suppress(UnavailableError):
                self._borrowed(lambda worker: worker.ensure_started())

        for _ in self.all:
            threading.Thread(target=ask, daemon=True).start()

    def call(self, *arguments: Any) -> dict[str, Any]:
        """The function's answer.

        Raises:
            RefusedError: What the function refused.
            UnavailableError: If it took too long, failed, or all processes stay busy.
        """

        def ask(worker: "_Worker") -> dict[str, Any]:
            return worker.call(arguments, self.limit)

        found: dict[str, Any] = self._borrowed(ask)
        return found

    def _borrowed(self, use: Callable[["_Worker"], Any]) -> Any:
        try:
            worker = self.free.get(timeout=self.limit)
        except queue.Empty:
            raise UnavailableError("Others are computing: try again in a few seconds.") from None
        try:
            return use(worker)
        finally:
            self.free.put(worker)

    def close(self) -> None:
        """End all processes."""
        for worker in self.all:
            worker.stop()


class _Worker:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.process: BaseProcess | None = None
        self.pipe: Connection | None = None

    def ensure_started(self) -> Connection:
        if self.pipe is not None and self.process is not None and self.process.is_alive():
            return self.pipe
        self.stop()
        context = multiprocessing.get_context("spawn")  # a fork would copy the locks of other threads as they are
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(self.target, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self._receive(START_SECONDS, "The computation does not start: restart selbo elicit.")
        return self.pipe

    def call(self, arguments: tuple[Any, ...], limit: float) -> dict[str, Any]:
        pipe = self.ensure_started()
        began = time.monotonic()
        try:
            pipe.send(arguments)
        except OSError as error:
            self.stop()
            raise UnavailableError("The computation has ended unexpectedly: try again.") from error
        kind, *content = self._receive(
            limit - (time.monotonic() - began),
            f"This takes more than {limit:g} seconds and was stopped: take fewer classes, other regions, or compute it "
            "in Python, where nothing waits.",
        )
        if kind == "refused":
            raise RefusedError(*content)
        if kind == "failed":
            raise UnavailableError(
                f"The computation has failed ({content[0]}): the terminal of selbo elicit says where."
            )
        found: dict[str, Any] = content[0]
        return found

    def _receive(self, seconds: float, too_late: str) -> tuple[Any, ...]:
        assert self.pipe is not None
        try:
            if not self.pipe.poll(max(seconds, 0.0)):
                self.stop()
                raise UnavailableError(too_late)
            received: tuple[Any, ...] = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.stop()
            raise UnavailableError("The computation has ended unexpectedly: try again.") from error
        return received

    def stop(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
        if self.process is not None:
            self.process.terminate()
            self.process.join(1.0)
            if self.process.is_alive():
                self.process.kill()
                self.process.join()
            self.process.close()
        self.pipe = self.process = None


def _work(target: Target, pipe: Connection) -> None:
    """The life of a process: answer until the other end is closed."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends this process
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        pipe.send(("ready",))
        while True:
            pipe.send(_outcome(target, pipe.recv()))


def _outcome(target: Target, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return "found", target(*arguments)
    except RefusedError as error:
        return "refused", str(error), error.field
    except ValueError as error:
        return "refused", f"{error}.".replace("`", "")
    except Exception as error:
        log.exception("an answer failed")
        return "failed", type(error).__name__
