"""Processes that work for this one: each ends when the one that started it is gone, however that ended."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess


def end_with_parent() -> None:
    """Have this process end as soon as the one that started it is gone; the initializer of every pool of processes.

    A pool tells its processes to end when it is closed. A program that is killed closes nothing: without this they
    would wait for work for ever, with their memory and that of the GPU. Ctrl-C, which a terminal sends to all of them,
    ends this process at once and in silence: as an exception it would end a task, and the next one would begin.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        threading.Thread(target=_wait_and_end, args=(parent,), daemon=True).start()


def _wait_and_end(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)  # at once: nobody waits for what this process does


def pool_of(count: int) -> ProcessPoolExecutor:
    """So many processes, which end with this one."""
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    return ProcessPoolExecutor(count, mp_context=context, initializer=end_with_parent)
