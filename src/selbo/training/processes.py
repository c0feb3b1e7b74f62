"""Worker processes that end when their parent process ends, however it ended."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess


def end_with_parent() -> None:
    """End this process as soon as its parent has ended; the initializer of every process pool.

    A pool ends its workers when it is closed. A killed program does not close its pool: without this, its workers would
    wait for work forever and keep their CPU and GPU memory. Ctrl-C, which a terminal sends to all processes, ends a
    worker at once and silently: as an exception it would only end the current task, and the next one would begin.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        threading.Thread(target=_wait_and_end, args=(parent,), daemon=True).start()


def _wait_and_end(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)  # at once: no process waits for the results


def start_pool(count: int) -> ProcessPoolExecutor:
    """A pool of ``count`` processes that end with this one."""
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    return ProcessPoolExecutor(count, mp_context=context, initializer=end_with_parent)
