"""`selbo reproduce`, `selbo list`, `selbo report`: run the studies of the paper and write their reports."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selbo.cli import Debug, Device, choose_device, console, cores, note, progress_bar, waiting, writable_folder

if TYPE_CHECKING:
    from selbo_lab.run.records import StudyResults
    from selbo_lab.schedule.runner import StudyProgress
    from selbo_lab.studies.study import Study

EVERYTHING = "all"
"""Stands for all studies, instead of a name."""

WRITING = "{}: tables, figures and the report"

Results = Annotated[Path, typer.Option("--out", help="Output folder, with one subfolder per study.")]


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Names of studies, see selbo list; or all.", show_default=False),
    ],
    track: Annotated[
        str, typer.Option("--track", help="published (settings of the paper), selbo (tuned settings), or both.")
    ] = "both",
    seeds: Annotated[
        int, typer.Option("--seeds", help="Number of seeds; that of the study if 0.", min=0, show_default=False)
    ] = 0,
    methods: Annotated[
        str, typer.Option("--methods", help="Methods to run, such as elbo,summary; all if empty.", show_default=False)
    ] = "",
    variants: Annotated[
        str, typer.Option("--variants", help="Variants to run, such as vgg11; all if empty.", show_default=False)
    ] = "",
    smoke: Annotated[bool, typer.Option("--smoke", help="Quick trial on tiny generated data.")] = False,
    executor: Annotated[
        str, typer.Option("--executor", help="Executor: processes, here (one run after another), or ray.")
    ] = "processes",
    jobs: Annotated[
        int, typer.Option("--jobs", help="Number of parallel runs; automatic if 0.", min=0, show_default=False)
    ] = 0,
    out: Results = Path("results"),
    device: Device = "auto",
    debug: Debug = False,
) -> None:
    """Run studies of the paper: all missing runs, then tables, figures and a report.

    Chooses settings on validation data, with the same budget for every method of the selbo track, then runs every
    method with all seeds. Finished runs are kept: interrupt it at any time and run the same command again to resume.

    Example: selbo reproduce sst --track selbo
    """
    from selbo_lab.schedule import runner
    from selbo_lab.schedule.executors import EXECUTORS, package_of_ray
    from selbo_lab.studies import plan, reader
    from selbo_lab.studies.study import TRACKS

    chosen = reader.names() if names == [EVERYTHING] else names
    for name in chosen:
        if name not in reader.names():
            raise ValueError(f"NAME must be one of {', '.join(reader.names())} or {EVERYTHING}, but got {name!r}")
    if track not in (*TRACKS, "both"):
        raise ValueError(f"`--track` must be published, selbo or both, but got {track!r}")
    if executor not in EXECUTORS:
        raise ValueError(f"`--executor` must be one of {', '.join(EXECUTORS)}, but got {executor!r}")
    if executor == "ray":
        package_of_ray()
    part = plan.StudyPart(_named(methods), _named(variants))
    where = choose_device(device)
    studies: list[tuple[Study, Path, list[str]]] = []
    for name in chosen:
        study = runner.load_known_study(name, trial=smoke)
        known = [each.name for each in study.tracks]
        wanted = known if track == "both" else [each for each in known if each == track]
        if not wanted:
            note(f"{name} has no track {track}")
            continue
        folder = out / (f"{name}-smoke" if smoke else name)
        runner.require_data(study, folder, tracks=wanted, seeds=seeds or None, part=part, executor=executor)
        studies.append((study, folder, wanted))
    for study, folder, wanted in studies:  # write nothing before the data of all studies are found
        writable_folder(folder)
        with live(study.name) as listener:
            results = runner.run_study(
                study,
                folder,
                tracks=wanted,
                seeds=seeds or None,
                part=part,
                executor=executor,
                jobs=jobs or at_a_time(where, [each.model.name for each in study.variants]),
                device=where,
                helpers=cores() if executor == "processes" else 0,
                listener=listener,
            )
        with waiting(WRITING.format(folder.name)):
            parts = written(results, folder)
        print_parts(parts)


def _named(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def at_a_time(device: str, models: list[str]) -> int:
    """Number of parallel runs: one per core on a CPU; on a GPU the fastest of lab/docs/reference/performance-lab.md."""
    from selbo_lab.run.evaluate import COMPILED_MODELS
    from selbo_lab.run.execute import LARGE_RUNS_ON_A_GPU, SMALL_RUNS_ON_A_GPU

    if not device.startswith("cuda"):
        return cores()
    at_most = LARGE_RUNS_ON_A_GPU if any(model in COMPILED_MODELS for model in models) else SMALL_RUNS_ON_A_GPU
    return min(cores(), at_most)


def list_studies(debug: Debug = False) -> None:
    """List the studies, and the tables and figures of the paper that they reproduce.

    Example: selbo list
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from selbo_lab.studies import plan, reader

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("name", "what", "of the paper", "runs"):
        table.add_column(title, no_wrap=title == "name", justify="right" if title == "runs" else "left")
    for name in reader.names():
        study = reader.load_study(name)
        tracks = [each.name for each in study.tracks]
        tuning = len(list(plan.tuning_jobs(study, tracks)))
        final = len(list(plan.final_jobs(study, tracks, study.seed_range(study.seeds), {})))
        table.add_row(name, study.title, study.paper, str(tuning + final))
    console().print(table)


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of one study or of several.", show_default=False)
    ],
    pack: Annotated[
        bool, typer.Option("--pack", help="Pack the runs of each study into one file instead of writing a report.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Write tables, figures and the report again from stored results. Nothing is trained.

    Several studies are written in parallel, one per core. With --pack, the runs of results/sst are packed into
    results/sst.jsonl.xz, which every command reads like the folder.

    Example: selbo report results/sst
    """
    from selbo.training import start_pool
    from selbo_lab.run.result_store import STUDY_FILE, Store, studies_in

    found = studies_in(folder)
    if not found:
        raise ValueError(f"DIR must be a folder of selbo reproduce, but '{folder}' holds no {STUDY_FILE}")
    if pack:
        with progress_bar(len(found)) as told:
            for store in map(Store, found):
                told(store.folder.name, 0)
                console().print(f"{store.packed}: {store.pack()} runs", soft_wrap=True)
                told(store.folder.name, 1)
        return
    parts: list[Any] = []
    if len(found) == 1:
        with waiting(WRITING.format(found[0].name)):
            parts = written_again(found[0])
    else:
        with progress_bar(len(found)) as told, start_pool(min(cores(), len(found))) as pool:
            told(f"{len(found)} studies", 0)
            for each in pool.map(written_again, found):
                parts += each
                told(f"{len(found)} studies", 1)
    print_parts(parts)


def print_parts(parts: Iterable[Any]) -> None:
    """Print tables and lines; lines are not wrapped, so that paths can be copied."""
    screen = console()
    for part in parts:
        screen.print(part, soft_wrap=isinstance(part, str))


def written_again(folder: Path) -> list[Any]:
    """Like `written`, from a folder of results."""
    from selbo_lab.schedule import runner

    return written(runner.gather(folder), folder)


def written(results: "StudyResults", folder: Path) -> list[Any]:
    """Write tables, figures and report; returns what to print: the main tables and the path of the report."""
    from selbo_lab.report import study_page, study_tables, table_files

    table_files.write_tables(results, folder / "tables")
    page = study_page.write_study_page(results, folder / "report.html", figures=folder / "figures")
    shown: list[Any] = []
    for comparison in results.comparisons:
        if comparison.there:
            shown.append(study_tables.terminal_table(comparison, results))
        else:
            shown.append(f"{comparison.title}, {comparison.track}: no runs yet")
    return [*shown, f"Report: {page}"]


@contextmanager
def live(name: str) -> Iterator[Callable[["StudyProgress"], None]]:
    """Progress bar on the error stream if that is a terminal: runs done, running and failed, and time left."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None, counts="")

        def told(progress: "StudyProgress") -> None:
            what = name if progress.of == "runs" else f"{name}, {progress.of}"
            counts = f"{progress.done}/{progress.total} done, {progress.running} running"
            if progress.failed:
                counts += f", {progress.failed} failed"
            bar.update(task, description=what, completed=progress.done, total=progress.total, counts=counts)

        yield told
