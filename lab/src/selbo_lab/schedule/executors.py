"""Executors of runs: this process, several processes, or a Ray cluster; the results are the same.

An executor takes runs from a list until it is empty and all runs have ended. A run that ends may add others to it.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from selbo.training import start_pool
from selbo_lab.run.execute import execute_run
from selbo_lab.run.result_store import Store
from selbo_lab.studies.run_spec import RunSpec

EXECUTORS: Final = ("processes", "here", "ray")

_in_the_code = attrgetter(
    "objective",
    "batch_size",
    "draws",
    "precision",
    "bayesian",
    "kl_reduction",
    "epsilon",
    "annealing_steps",
    "annealing_every",
    "activation",
    "partition",
    "form",
    "pool_draws",
    "ema_decay",
    "summary_inputs",
    "summary_warmup",
    "unlabelled_inputs",
    "unlabelled_weight",
    "label_shift",
    "fraction_uncertainty",
)
"""Settings that compiled code depends on; others, such as weight decay or concentration, are passed to it."""


class Work(NamedTuple):
    """A run, its results folder, device, and number of CPU threads."""

    spec: RunSpec
    folder: str
    device: str
    threads: int = 1


class Done(NamedTuple):
    """How a run ended: ``finished``, ``diverged``, or ``failed`` with an error."""

    run_id: str
    status: str
    error: str | None
    seconds: float


OnStart = Callable[[RunSpec], object]
OnDone = Callable[[RunSpec, Done], object]


def do(work: Work) -> Done:
    """Execute a run and write its result. Errors other than divergence are returned, and nothing is written.

    An interrupted or killed run leaves its checkpoint and resumes from it.
    """
    store = Store(Path(work.folder))
    try:
        with threads(work.threads):
            result = execute_run(work.spec, device=work.device, unfinished=store.unfinished(work.spec, work.device))
        store.write(result)
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        store.forget_unfinished(work.spec)
        return Done(work.spec.id, "failed", f"{type(error).__name__}: {error}", 0.0)
    store.forget_unfinished(work.spec)
    return Done(work.spec.id, result.status, result.error, result.seconds.all)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of threads of a run.

    On a CPU it is always one, so that results do not depend on the number of parallel runs.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def here(works: list[Work], _jobs: int, on_start: OnStart, on_done: OnDone) -> None:
    """One run after another, in this process."""
    while works:
        work = works.pop(0)
        on_start(work.spec)
        on_done(work.spec, do(work))


def processes(works: list[Work], jobs: int, on_start: OnStart, on_done: OnDone) -> None:
    """Execute runs in parallel processes.

    A free process takes a run similar to its last one, to reuse its trained networks or compiled code. A process whose
    run failed is not used again: a broken state, such as that of a GPU context, would break all later runs.
    """
    with ExitStack() as stack:

        def new() -> ProcessPoolExecutor:
            return stack.enter_context(start_pool(1))

        free: list[ProcessPoolExecutor] = []
        last: dict[ProcessPoolExecutor, RunSpec] = {}
        running: dict[Any, tuple[ProcessPoolExecutor, Work]] = {}
        while works or running:
            while works and len(running) < jobs:
                process = free.pop(0) if free else new()
                work = works.pop(next_for(last.pop(process, None), works, last.values()))
                last[process] = work.spec
                on_start(work.spec)
                running[process.submit(do, work)] = process, work
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                process, work = running.pop(future)
                try:
                    done = future.result()
                except BrokenProcessPool as error:
                    raise RuntimeError(
                        "a process was killed, perhaps out of memory: finished runs are kept; run the same command "
                        "again with fewer --jobs"
                    ) from error
                if done.status == "failed":
                    last.pop(process)
                    process.shutdown(wait=False)
                else:
                    free.append(process)
                on_done(work.spec, done)


def next_for(own: RunSpec | None, waiting: Sequence[Work], others: Iterable[RunSpec]) -> int:
    """Index of the next run for a process, given its last run and those of the other processes.

    Prefers, in this order, a run with the same networks, one whose networks no other process is training, one with the
    same compiled code, one whose code no other process has, and the first.
    """
    own_code = None if own is None else compiled_settings(own)
    busy = list(others)
    trainings, codes = {spec.training for spec in busy}, {compiled_settings(spec) for spec in busy}

    def rank(place: int) -> tuple[bool, ...]:
        spec = waiting[place].spec
        code, training = compiled_settings(spec), spec.training
        return own is None or training != own.training, training in trainings, code != own_code, code in codes

    return min(range(len(waiting)), key=rank)


def compiled_settings(spec: RunSpec) -> Hashable:
    """Settings that a compiled step depends on: runs that agree in them share the code."""
    return spec.data, spec.model, _in_the_code(spec.recipe)


def package_of_ray() -> Any:
    """Import ray; raises an error with the install command if it is missing."""
    try:
        import ray as cluster
    except ModuleNotFoundError as error:
        raise ValueError("the executor 'ray' needs the package ray: pip install 'selbo-lab[sweep]'") from error
    return cluster


def ray(works: list[Work], _jobs: int, on_start: OnStart, on_done: OnDone) -> None:
    """Execute runs on a Ray cluster: a running one, or one on this machine.

    All machines need access to the results folder.
    """
    cluster = package_of_ray()
    cluster.init(ignore_reinit_error=True, log_to_driver=False)
    try:
        remote = cluster.remote(do)
        running: dict[Any, Work] = {}
        while works or running:
            while works:
                work = works.pop(0)
                gpus = 1 if work.device.startswith("cuda") else 0
                running[remote.options(num_cpus=1, num_gpus=gpus).remote(work)] = work
                on_start(work.spec)
            ended, _ = cluster.wait(list(running), num_returns=1)
            work = running.pop(ended[0])
            on_done(work.spec, cluster.get(ended[0]))
    finally:
        cluster.shutdown()


BY_NAME: Final[dict[str, Callable[[list[Work], int, OnStart, OnDone], None]]] = {
    "here": here,
    "processes": processes,
    "ray": ray,
}
