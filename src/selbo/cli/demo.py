"""`selbo demo`: compare six methods on noisy digits, in a table and a report."""

import os
from pathlib import Path
from typing import Annotated

import typer

from selbo._files import replacing
from selbo.cli.options import Debug, Device, Out, Seed, device_of
from selbo.cli.output import console, cores, progress_bar, writable_folder


def demo(
    out: Out = Path("demo"),
    seeds: Annotated[int, typer.Option("--seeds", help="Number of seeds.", min=1)] = 3,
    steps: Annotated[int, typer.Option("--steps", help="Training steps per run.", min=1)] = 1000,
    jobs: Annotated[int, typer.Option("--jobs", help="Number of processes; 0 for one per core.", min=0)] = 0,
    seed: Seed = 0,
    device: Device = "cpu",
    debug: Debug = False,
) -> None:
    """Compare six ways to train a classifier, on noisy digits.

    Trains a deterministic network with and without temperature scaling, label smoothing, evidential learning, ELBO and
    Summary ELBO on scikit-learn's digits with noise and rare classes. Tests them on clean, noisier and
    out-of-distribution inputs. Prints a table and writes report.html and results.json, in about a minute on two cores.

    Example: selbo demo --out demo
    """
    from selbo.demo.comparison import DEMO_METHODS, RESULTS, compare
    from selbo.report import console_table, write_page

    where = device_of(device)
    refuse_other(out)
    folder = writable_folder(out)
    with progress_bar(total=seeds * len(DEMO_METHODS) * steps) as advance:
        results = compare(seeds=seeds, steps=steps, seed=seed, device=where, jobs=jobs or cores(), report=advance)
    with replacing(folder / RESULTS) as unfinished:
        unfinished.write_text(results.to_json(), encoding="utf-8")
    page = write_page(results, folder / "report.html")
    screen = console()
    screen.print(console_table(results))
    screen.print(f"\n{results.takeaway}")
    screen.print(f"\nReport: {page}", soft_wrap=True)


def refuse_other(folder: Path) -> None:
    """Raise an error if a folder holds files that the demo did not write."""
    from selbo.demo.comparison import made_here
    from selbo.tabular.table import listed

    if not folder.is_dir():
        return
    entries = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    if entries and not made_here(folder):
        raise ValueError(
            f"`--out` must be a new folder, an empty one, or one of selbo demo, but {os.fspath(folder)!r} holds "
            f"{listed(entries)}"
        )
