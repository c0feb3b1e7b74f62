"""`selbo data`: list data sets; download, import and verify their files."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selbo.cli import Debug, Device, choose_device, console, note

if TYPE_CHECKING:
    from rich.console import Console

    from selbo_lab.data.catalogue import DataSet
    from selbo_lab.data.download import DownloadProgress
    from selbo_lab.data.store import Source

NOT_RIGHT = 2
"""Exit code of `verify` if a file does not match its digest."""

DETAIL = 23
"""Number of characters shown of the digest of a valid file: the method and 16 digits."""

data = typer.Typer(
    name="data",
    help="List, download, import and verify the data sets of the paper.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a data set, see selbo data list.", show_default=False)
]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names of data sets, see selbo data list.", show_default=False)
]


@data.command("list")
def list_sets(debug: Debug = False) -> None:
    """List the data sets and their state in the store.

    The store is a folder: the environment variable SELBO_DATA, or the user's cache folder.

    Example: selbo data list
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from selbo_lab.data import store
    from selbo_lab.data.catalogue import SETS

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("name", "what", "state", "download"):
        table.add_column(title, no_wrap=title != "what", justify="right" if title == "download" else "left")
    for each in SETS.values():
        table.add_row(each.name, each.title, state(each), to_download(each))
    screen = console()
    screen.print(table)
    screen.print(f"Store: {store.root()}", soft_wrap=True)


@data.command()
def get(names: Names, debug: Debug = False) -> None:
    """Download the missing files of data sets.

    Verifies files by their digests. Run the same command again to resume an interrupted download. Corrupted sets are
    generated from their clean sets; get mnist-c or cifar10-c to download the published files.

    Example: selbo data get mnist35 fashion
    """
    from selbo_lab.data import acquire, store
    from selbo_lab.data.catalogue import find_sources

    wanted = {name: [each for each in find_sources(name) if not left_out(each, name)] for name in names}
    screen = console()
    for name, sources in wanted.items():
        for source in sources:
            if store.present(source):
                continue
            size = format_size(source)
            note(f"downloading {source.name}" + (f", {size}" if size else ""))
            with bars() as progress:
                acquire.download_missing(source, progress=progress)
        show_set(screen, name, sources)
        for source in find_sources(name):
            if source not in sources and not store.present(source):
                size = format_size(source)
                files = "the published files" + (f", {size}" if size else "")
                note(f"{name} is generated; 'selbo data get {source.name}' downloads {files}")


@data.command("import")
def import_files(
    name: Name,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Folder, archive or file.", show_default=False)],
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="Encoder of the embeddings in an NPZ file that does not name it.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Import files that you already have.

    PATH is a folder that holds files with the original names, at any depth; an archive of them (tar, tar.gz, tar.xz,
    zip); or one such file. For sst it can also be an NPZ file with embeddings. Files are verified by content and
    copied; your own files stay unchanged.

    Example: selbo data import cifar10 cifar-10-binary.tar.gz
    """
    from selbo_lab.data import store
    from selbo_lab.data.catalogue import find_sources, import_set

    taken = import_set(name, path, encoder=encoder)
    screen = console()
    screen.print(f"Taken: {', '.join(taken)}", soft_wrap=True)
    sources = [each for each in find_sources(name) if store.missing(each) != tuple(raw.name for raw in each.files)]
    show_set(screen, name, sources)
    for source in sources:
        if lacking := store.missing(source):
            note(f"{source.name} still lacks {store.enumerated(lacking)}")


@data.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Names of data sets; all in the store if none is given."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Verify the digests and contents of files in the store.

    The exit code is 2 if a file is wrong. A missing file is listed but is not an error: parts of a set can be used
    alone.

    Example: selbo data verify cifar10
    """
    from selbo_lab.data import store
    from selbo_lab.data.catalogue import SOURCES, find_sources

    there = {name for name, source in SOURCES.items() if len(store.missing(source)) < len(source.files)}
    asked = {
        each.name: each for name in names or sorted(there) for each in find_sources(name) if not left_out(each, name)
    }
    screen = console()
    if not asked:
        screen.print("Nothing to verify.")
    wrong = 0
    for source in asked.values():
        if source.name not in there:
            raise store.MissingData(store.what_to_type(source))
        for result in store.verify_files(source):
            detail = result.detail if result.state == "wrong" else result.detail[:DETAIL]
            screen.print(f"{result.state:<8}{source.name}/{result.name}  {detail}".rstrip(), soft_wrap=True)
            wrong += result.state == "wrong"
    if wrong:
        note(f"{wrong} files are wrong: delete them, then get or import them again")
        raise typer.Exit(NOT_RIGHT)


@data.command()
def embed(
    name: Annotated[str, typer.Argument(metavar="sst", help="Data set; only sst has sentences.", show_default=False)],
    model: Annotated[
        str,
        typer.Option("--model", help="Folder or hub name of a sentence-transformers model.", show_default=False),
    ],
    batch_size: Annotated[int, typer.Option("--batch-size", help="Sentences per batch.", min=1)] = 64,
    zero_shot: Annotated[
        bool, typer.Option("--zero-shot", help="Scores of the classes instead, for the set sst-zero-shot.")
    ] = False,
    device: Device = "auto",
    debug: Debug = False,
) -> None:
    """Compute embeddings of the sentences of sst.

    Needs the package sentence-transformers. Existing embeddings are reused. Zero-shot scores compare sentences with
    descriptions of the classes.

    Example: selbo data embed sst --model sentence-transformers/all-mpnet-base-v2
    """
    from selbo_lab.data import embeddings, store
    from selbo_lab.data import zero_shot as scores
    from selbo_lab.data.catalogue import SOURCES

    if name != "sst":
        raise ValueError(f"only sst has sentences to embed, but got {name!r}")
    if not store.present(SOURCES["sst"]):
        raise store.MissingData(store.what_to_type(SOURCES["sst"]))
    with bars("sentences") as progress:
        told = 0

        def count(done: int, total: int) -> None:
            nonlocal told
            progress("embedding", done - told, total)
            told = done

        make = scores.score_sst if zero_shot else embeddings.embed_sst
        path = make(model, batch_size=batch_size, device=choose_device(device), progress=count)
    console().print(f"{'Zero-shot scores' if zero_shot else 'Embeddings'}: {path}", soft_wrap=True)


@data.command()
def card(
    name: Name,
    part: Annotated[
        str | None, typer.Option("--part", help="train, val or test; the first available if not given.")
    ] = None,
    corruption: Annotated[str | None, typer.Option("--corruption", help="Corruption, for a corrupted set.")] = None,
    severity: Annotated[int | None, typer.Option("--severity", help="Severity of the corruption, 1 to 5.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed for the split or the corruption.", min=0)] = None,
    embedding: Annotated[
        str | None, typer.Option("--embedding", help="Encoder of the sst embeddings, if there are several.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Show the sizes, class counts, source and licence of a part of a data set.

    Example: selbo data card mnist35 --part test
    """
    from selbo_lab.data.catalogue import SETS, find_sources, load_set

    find_sources(name)
    if name not in SETS:
        raise ValueError(f"{name} is a name of raw files: a card is of a data set, one of {list(SETS)}")
    given = {"corruption": corruption, "severity": severity, "seed": seed, "embedding": embedding}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    console().print(load_set(name, part or SETS[name].parts[0], **options).card(), soft_wrap=True)


# --- output ---


def left_out(source: "Source", name: str) -> bool:
    """Whether a source holds optional published files that are neither requested by name nor in the store."""
    from selbo_lab.data import store
    from selbo_lab.data.catalogue import SETS

    return name in SETS and source in SETS[name].optional and source.name != name and not store.present(source)


def state(each: "DataSet") -> str:
    """State of a data set: whether it can be loaded, and from which files."""
    from selbo_lab.data import embeddings, store, zero_shot
    from selbo_lab.data.sentences import SST

    if not each.sources:
        return "embedded"
    files = sum(len(source.files) for source in each.sources)
    lacking = [source for source in each.sources if not store.present(source)]
    absent = sum(len(store.missing(source)) for source in lacking)
    if each.sources == (SST,):
        made = zero_shot.zero_shot_files() if each.name == "sst-zero-shot" else embeddings.list_embeddings()
        if made or not lacking:
            return "in the store" if made else "not embedded"
    if each.optional:
        if lacking:
            return f"needs {lacking[0].name}"
        return "published files" if all(map(store.present, each.optional)) else "generated"
    if not lacking:
        return "in the store"
    return "not here" if absent == files else f"{files - absent} of {files} files"


def to_download(each: "DataSet") -> str:
    """Size of the downloads needed to load a data set."""
    from selbo_lab.data import store

    return ", ".join(format_size(source) or "?" for source in each.sources if not store.present(source)) or "-"


def format_size(source: "Source") -> str:
    """Download size of a source; empty if it is not known."""
    from selbo_lab.data import store
    from selbo_lab.data.digests import readable

    size = store.download_size(source)
    return readable(size) if size else ""


def show_set(screen: "Console", name: str, sources: "list[Source]") -> None:
    """Print the folders of a data set, and its card if that is quick."""
    from selbo_lab.data import store
    from selbo_lab.data.catalogue import SETS, load_set

    for source in sources:
        screen.print(f"{source.title}: {store.folder(source)}", soft_wrap=True)
    if not sources:
        screen.print(f"{name} comes with scikit-learn: there is nothing to get", soft_wrap=True)
    if name not in SETS or "corruption" in SETS[name].options:
        for source in sources:
            screen.print(fill(source.licence, 80, initial_indent="  licence   ", subsequent_indent=" " * 12))
        return
    try:
        screen.print(load_set(name, "test").card(), soft_wrap=True)
    except (store.MissingData, ValueError) as error:  # some files are missing, or there are several embeddings
        note(str(error))


@contextmanager
def bars(unit: str = "") -> "Iterator[DownloadProgress]":
    """Progress bars on the error stream if that is a terminal, one per label; counts bytes or another unit."""
    if not sys.stderr.isatty():
        yield lambda _label, _advance, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    amounts = (
        [TextColumn("{task.completed} of {task.total} " + unit)] if unit else [DownloadColumn(), TransferSpeedColumn()]
    )
    columns = (TextColumn("{task.description:<24.24}"), BarColumn(bar_width=16), *amounts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, Any] = {}

        def advance(label: str, amount: int, total: int | None) -> None:
            if label not in tasks:
                tasks[label] = progress.add_task(label, total=total)
            progress.update(tasks[label], advance=amount, total=total)

        yield advance
