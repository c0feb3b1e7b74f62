"""Worker processes with a time limit, so that a slow request neither hangs nor blocks others.

Why not a package: the pool of pebble 5.2.3 ends for good once an idle process is killed, as by a system that is short
of memory. Here it is replaced.
"""

import contextlib
import logging
import multiprocessing
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

from selbo.elicit.refused import RefusedError

NUM_WORKERS: Final = 2
LIMIT_SECONDS: Final = 10.0
"""Time limit of a request; 100 classes take a few seconds."""

START_SECONDS: Final = 120.0
"""Time limit of the start of a process, which imports torch, perhaps from a cold disk."""

CHECK_SECONDS: Final = 0.5
"""Interval between checks of idle processes; a killed one is replaced."""

_log = logging.getLogger(__name__)

Target = Callable[..., dict[str, Any]]


class UnavailableError(RuntimeError):
    """No answer is available at the moment; the input is not the cause."""


class Workers:
    """A few processes that call one function; each is replaced at once when it takes too long or dies, idle or not.

    Args:
        target: A function of a module, which can be imported by its name.
        count: How many processes.
        limit: Seconds a call.
    """

    def __init__(self, target: Target, *, count: int = NUM_WORKERS, limit: float = LIMIT_SECONDS) -> None:
        self.limit = limit
        self.closing = threading.Event()
        self.all = [_Worker(target) for _ in range(count)]
        self.free: queue.Queue[_Worker] = queue.Queue()
        for worker in self.all:
            self.free.put(worker)
        self.starters: list[threading.Thread] = []
        self.guard = threading.Thread(target=self._replace_killed, daemon=True)

    def start(self) -> None:
        """Start all processes in the background, so that the first request does not wait, and monitor them."""
        for _ in self.all:
            self._start(self.free.get())
        self.guard.start()

    def _start(self, worker: "_Worker") -> None:
        """Start a borrowed worker in the background, and give it back."""

        def start_one() -> None:
            try:
                if not self.closing.is_set():
                    worker.ensure_started()
            except UnavailableError:
                _log.debug("a process did not start", exc_info=True)
            finally:
                self.free.put(worker)

        starter = threading.Thread(target=start_one, daemon=True)
        self.starters = [*(each for each in self.starters if each.is_alive()), starter]
        starter.start()

    def _replace_killed(self) -> None:
        """Monitor idle processes until the end; one that fails to start is retried at the next request."""
        while not self.closing.wait(CHECK_SECONDS):
            for _ in self.all:
                try:
                    worker = self.free.get_nowait()
                except queue.Empty:
                    break
                if worker.was_killed:
                    self._start(worker)
                else:
                    self.free.put(worker)

    def call(self, *arguments: Any) -> dict[str, Any]:
        """The function's answer.

        Raises:
            RefusedError: What the function refused.
            UnavailableError: If it took too long, failed, or all processes stay busy.
        """
        starting = any(each.is_alive() for each in self.starters)
        try:
            worker = self.free.get(timeout=START_SECONDS if starting else self.limit)
        except queue.Empty:
            raise UnavailableError("All workers are busy: try again in a few seconds.") from None
        try:
            if self.closing.is_set():
                raise UnavailableError("The server is stopping.")
            return worker.call(arguments, self.limit)
        finally:
            if worker.process is None:  # it was stopped, or has died
                self._start(worker)
            else:
                self.free.put(worker)

    def close(self) -> None:
        """End all processes; a call that waits for one is told that it has ended, and tidies up after it."""
        self.closing.set()
        if self.guard.is_alive():
            self.guard.join()
        for worker in self.all:
            worker.kill()
        for starter in self.starters:
            starter.join(START_SECONDS)
        with contextlib.suppress(queue.Empty):
            while True:
                self.free.get_nowait().stop()


class _Worker:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.process: BaseProcess | None = None
        self.pipe: Connection | None = None

    @property
    def was_killed(self) -> bool:
        """Whether the process was started and has ended; only for the thread that has borrowed the worker."""
        return self.process is not None and not self.process.is_alive()

    def ensure_started(self) -> Connection:
        if self.pipe is not None and self.process is not None and self.process.is_alive():
            return self.pipe
        self.stop()
        context = multiprocessing.get_context("spawn")  # a fork would copy the locks of other threads as they are
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(self.target, theirs), daemon=True)
        with _deaf_to_interrupts():
            self.process.start()
        theirs.close()
        self._receive(START_SECONDS, "The worker does not start: restart selbo elicit.")
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

    def kill(self) -> None:
        """End the process from any thread; whoever has borrowed the worker sees that its pipe is closed."""
        process = self.process
        if process is not None:
            with contextlib.suppress(ValueError, AttributeError):  # not started yet, or tidied up just now
                process.kill()

    def stop(self) -> None:
        """End the process and tidy up; only for the thread that has borrowed the worker."""
        if self.pipe is not None:
            self.pipe.close()
        if self.process is not None:
            with contextlib.suppress(ValueError, AttributeError):  # it was never started
                self.process.kill()
                self.process.join()
            self.process.close()
        self.pipe = self.process = None


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started here ignore Ctrl-C; the server handles it and ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # or it would be started, and hear everything again, in between
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(target: Target, pipe: Connection) -> None:
    """Main function of a process: answer until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "torch" in sys.modules:  # what the function needs was imported with it
        sys.modules["torch"].set_num_threads(1)
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
        _log.exception("an answer failed")
        return "failed", type(error).__name__
