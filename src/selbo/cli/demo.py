"""`selbo demo`: four stories on data that come with scikit-learn, in a table and a report."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from selbo._files import replacing
from selbo.cli.options import Debug, Device, Out, Seed, choose_device
from selbo.cli.output import console, cores, note, progress_bar, writable_folder


def demo(
    out: Out = Path("demo"),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="Example to run: frozen, shift, groups or training; can be repeated.", show_default="all"
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Number of seeds.", min=1)] = 4,
    steps: Annotated[int, typer.Option("--steps", help="Training steps per network.", min=1)] = 600,
    jobs: Annotated[int, typer.Option("--jobs", help="Number of processes; 0 for one per core.", min=0)] = 0,
    seed: Seed = 0,
    device: Device = "cpu",
    debug: Debug = False,
) -> None:
    """Show what stating a belief changes, in four stories.

    frozen: five scikit-learn models before and after one stated accuracy. shift: 50 labels and a target domain with
    other class fractions. groups: no labels, only the class fractions of groups. training: six ways to train a network,
    tested on clean, noisier and out-of-distribution inputs. Each is compared with baselines. Prints a table and writes
    report.html and results.json, in about a minute on two cores.

    Example: selbo demo --out demo
    """
    from selbo import _checks
    from selbo.demo.stories import PLANS, RESULTS, plan_jobs, tell_stories
    from selbo.report.stories import stories_table, write_stories

    where = choose_device(device)
    chosen = [_checks.one_of("--only", each, list(PLANS)) for each in only or PLANS]
    refuse_other(out)
    folder = writable_folder(out)
    work = plan_jobs(dict.fromkeys(chosen), seeds=range(seed, seed + seeds), steps=steps, device=where)
    begin, ended = time.monotonic(), list[str]()

    def tell(name: str) -> None:
        ended.append(name)
        if not sys.stderr.isatty():  # else there is a progress bar
            seconds = time.monotonic() - begin
            note(f"story {name!r} has ended after {seconds:.0f} s, {len(ended)} of {len(set(chosen))}")

    with progress_bar(total=sum(job.cost for job in work)) as advance:
        found = tell_stories(work, jobs=jobs or cores(), report=advance, ended=tell)
    with replacing(folder / RESULTS) as unfinished:
        unfinished.write_text(json.dumps(found.to_dict(), indent=1), encoding="utf-8")
    page = write_stories(found, folder / "report.html")
    screen = console()
    screen.print(stories_table(found))
    screen.print(
        "NLL without and with what is stated: mean ± standard error, lower is better.\n"
        "Ahead, level, behind: number of comparisons with other methods, by the 95 %\n"
        "interval of the paired difference over the seeds."
    )
    screen.print(f"\nReport: {page}", soft_wrap=True)


def refuse_other(folder: Path) -> None:
    """Raise an error if a folder holds files that the demo did not write."""
    from selbo.demo.stories import made_here
    from selbo.tabular.table import listed

    if not folder.is_dir():
        return
    entries = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    if entries and not made_here(folder):
        raise ValueError(
            f"`--out` must be a new folder, an empty one, or one of selbo demo, but {os.fspath(folder)!r} holds "
            f"{listed(entries)}"
        )
