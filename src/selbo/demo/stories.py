"""All stories of the demo: their parts are run in parallel processes, and told in order."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from selbo.demo import comparison, frozen, groups, shift
from selbo.report import outcomes
from selbo.report.stories import Story, StoryResults
from selbo.results import Outcome, Provenance
from selbo.training.processes import start_pool

DEMO_TITLE: Final = "State what you know: four stories"
RESULTS: Final = "results.json"

EARLIER_TITLES: Final = (comparison.PAGE_TITLE,)
"""Titles of results that earlier versions of the demo wrote."""

Report = Callable[[str, int], object]


class StoryPlan(NamedTuple):
    """How a story is run and told.

    Attributes:
        parts: Parts that run independently of one another, with their share of the time.
        run: Runs a part with a seed.
        tell: Tells the story of all runs.
    """

    parts: dict[str, int]
    run: Callable[..., list[Outcome]]
    tell: Callable[[Sequence[Outcome], Sequence[int], Provenance], Story]


PLANS: Final = {
    "frozen": StoryPlan({"all models": 2}, frozen.run_frozen, frozen.tell_frozen),
    "shift": StoryPlan({"breast cancer": 3, "digits": 3}, shift.run_shift, shift.tell_shift),
    "groups": StoryPlan({"digits": 3}, groups.run_groups, groups.tell_groups),
    "training": StoryPlan(
        dict(zip((names[0] for names in comparison.GROUPS), (2, 2, 3, 3, 5), strict=True)),
        comparison.run_training,
        comparison.tell_training,
    ),
}


class StoryJob(NamedTuple):
    """One part of one story with one seed."""

    story: str
    part: str
    seed: int
    steps: int
    device: str

    @property
    def cost(self) -> int:
        """Its share of the time."""
        return PLANS[self.story].parts[self.part]


def plan_jobs(names: Iterable[str], *, seeds: Sequence[int], steps: int, device: str) -> list[StoryJob]:
    """The jobs of the stories with these names."""
    return [StoryJob(name, part, seed, steps, device) for name in names for seed in seeds for part in PLANS[name].parts]


def run_job(job: StoryJob) -> list[Outcome]:
    """Run a job in one thread, since such small models gain nothing from more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return PLANS[job.story].run(job.part, job.seed, steps=job.steps, device=job.device)
    finally:
        torch.set_num_threads(threads)


def tell_stories(
    work: Sequence[StoryJob],
    *,
    jobs: int = 1,
    report: Report = lambda _label, _cost: None,
    ended: Callable[[str], object] = lambda _name: None,
) -> StoryResults:
    """Run jobs and tell their stories.

    Args:
        work: The jobs.
        jobs: Number of processes; it does not affect the results, since each job has one thread.
        report: Called with a label and the cost of the job that has ended.
        ended: Called with the name of a story when its last job has ended.
    """
    left = Counter(job.story for job in work)

    def done(job: StoryJob) -> None:
        report(_label(job), job.cost)
        left[job.story] -= 1
        if not left[job.story]:
            ended(job.story)

    begin = time.perf_counter()
    found = _share_out(work, jobs, done) if jobs > 1 else _one_by_one(work, done)
    made_by = outcomes.made_by(time.perf_counter() - begin)
    seeds = sorted({job.seed for job in work})
    names = [name for name in PLANS if any(job.story == name for job in work)]
    told = (
        PLANS[name].tell([run for job in work if job.story == name for run in found[job]], seeds, made_by)
        for name in names
    )
    stories = tuple(told)
    return StoryResults(
        title=DEMO_TITLE, stories=stories, made_by=replace(made_by, seconds=time.perf_counter() - begin)
    )


def _one_by_one(work: Sequence[StoryJob], done: Callable[[StoryJob], None]) -> dict[StoryJob, list[Outcome]]:
    found = {}
    for job in work:
        found[job] = run_job(job)
        done(job)
    return found


def _share_out(work: Sequence[StoryJob], jobs: int, done: Callable[[StoryJob], None]) -> dict[StoryJob, list[Outcome]]:
    """Run jobs in parallel processes, the longest first."""
    with _one_thread_each(), start_pool(min(jobs, len(work))) as pool:
        running = {pool.submit(run_job, job): job for job in sorted(work, key=lambda job: -job.cost)}
        try:
            for one in as_completed(running):
                one.result()
                done(running[one])
            return {job: one.result() for one, job in running.items()}
        except BaseException:  # such as a keyboard interrupt: do not wait for jobs that have not started
            pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Give processes that start inside the block one thread: every core has a process already."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def _label(job: StoryJob) -> str:
    return f"{job.story}: {job.part}, seed {job.seed}"[:30]


def made_here(folder: Path) -> bool:
    """Whether a folder holds results of the demo; only then are they replaced."""
    try:
        found: Any = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("title") in (DEMO_TITLE, *EARLIER_TITLES)
