"""Output of commands: writable folders, atomically written files, notes, tables and progress bars."""

import io
import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Final

from selbo._files import columns_as_csv, replacing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from selbo.results import GroupResult, MethodResult

METRIC_TITLES: Final = {
    "nll": ("NLL, nats", 1),
    "accuracy": ("accuracy, %", 100),
    "ece": ("ECE, %", 100),
    "adaptive_ece": ("adaptive ECE, %", 100),
    "classwise_ece": ("class-wise ECE, %", 100),
    "brier": ("Brier score", 1),
    "aurc": ("AURC, %", 100),
    "auroc": ("AUROC, %", 100),
    "f1_macro": ("F1, macro, %", 100),
}
"""Metrics in a table, with their labels and the factors that convert to the shown unit."""

TABLE_FILES: Final = (".csv", ".parquet")

CONTROL_CATEGORIES: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that control a terminal or reorder text instead of being shown."""

JOINERS: Final = "\u200c\u200d"
"""Hidden characters that are harmless: they only shape their neighbours, in several scripts and in emoji."""

LONGEST_LINE: Final = 2000
"""Maximum length of a note or an error, since a name in it may have millions of characters."""

FORMULA_STARTS: Final = "=+-@\t\r"
"""First characters that a spreadsheet interprets as a formula."""


def visible(text: str, *, keep: str = "") -> str:
    r"""Escape control characters, so that names from a file cannot control the terminal.

    Args:
        text: Text to show.
        keep: Control characters to leave as they are.

    Example:
        >>> print(visible("a\x1b[2Jb\n"))
        a\x1b[2Jb\n
    """
    return "".join(
        ascii(each)[1:-1] if unicodedata.category(each) in CONTROL_CATEGORIES and each not in JOINERS + keep else each
        for each in text
    )


def one_line(text: str) -> str:
    """Text for one line of a terminal: escapes control characters and truncates very long text."""
    shown = visible(text[: LONGEST_LINE + 1])
    return shown if len(shown) <= LONGEST_LINE else f"{shown[: LONGEST_LINE - 3]}..."


def writable_folder(path: Path) -> Path:
    """Create a folder, or raise a one-sentence error if it cannot be written to, before any work is done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"the folder {os.fspath(path)!r} cannot be made: {(error.strerror or '').lower()}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(f"the folder {os.fspath(path)!r} cannot be written to")
    return path


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def console(*, stderr: bool = False) -> "Console":
    """A console on the output or the error stream, without markup or colour and with control characters escaped."""
    from rich.console import Console

    class Plain(Console):
        def render_str(self, text: str, **how: Any) -> "Text":
            return super().render_str(visible(text, keep="\n"), **how)

    return Plain(highlight=False, markup=False, emoji=False, stderr=stderr)


def metrics_table(
    metrics: Mapping[str, Any], calibrated: Mapping[str, Any] | None, temperature: float | None
) -> "Table":
    """A table of metrics without and, if there is a temperature, with temperature scaling."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"{metrics['num_examples']} rows")
    table.add_column("as predicted", justify="right")
    if calibrated is not None:
        table.add_column(f"with temperature {temperature:.3g}", justify="right")
    for key, (label, factor) in METRIC_TITLES.items():
        values = [found[key] for found in (metrics, calibrated) if found is not None]
        table.add_row(label, *(_shown(value, factor) for value in values))
    return table


def groups_table(groups: "Sequence[GroupResult]", by: str) -> "Table":
    """A table of accuracy and overconfidence of each group, with 95 % intervals, and of their NLL."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(visible(by), overflow="fold", min_width=8, max_width=20)
    for title in ("rows", "accuracy, % [95 %]", "overconfidence [95 %]", "NLL"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in groups:
        shown = []
        for key in ("accuracy", "overconfidence"):
            low, high = each.intervals[key] or (0.0, 0.0)
            shown.append(f"{_shown(each.metrics[key], 100)} [{100 * low:.1f}, {100 * high:.1f}]")
        table.add_row(visible(each.name), str(each.rows), *shown, _shown(each.metrics["nll"], 1))
    return table


def _shown(value: float | None, factor: int) -> str:
    return "-" if value is None else f"{factor * value:.{3 if factor == 1 else 1}f}"


def baselines_table(methods: "Sequence[MethodResult]") -> "Table":
    """A table of a model and simple baselines: NLL, its difference to that of the model, and accuracy."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold", min_width=12)
    for title in ("NLL [95 %]", "difference [95 %]", "accuracy, %"):
        table.add_column(title, justify="right", no_wrap=True)
    for each in methods:
        table.add_row(
            each.name,
            _with_interval(each.metrics["nll"], each.intervals["nll"], 1, digits=2),
            _with_interval(each.nll_difference, each.nll_difference_interval, 1, digits=3, sign="+"),
            _with_interval(each.metrics["accuracy"], each.intervals["accuracy"], 100, digits=0),
        )
    return table


def _with_interval(
    value: float | None, ends: Sequence[float] | None, factor: int, *, digits: int, sign: str = ""
) -> str:
    """A number and its interval, both short: ``.312 [.29, .34]``, ``85.4 [79, 90]``."""
    if value is None:
        return ""
    first_digits = 1 if factor == 100 else 3
    shown = [f"{factor * value:{sign}.{first_digits}f}", *(f"{factor * each:.{digits}f}" for each in ends or ())]
    first, *others = (re.sub(r"^([+-]?)0\.", r"\1.", each) for each in shown)
    return f"{first} [{', '.join(others)}]" if others else first


def note(text: str) -> None:
    """Print one line on the error stream, where it does not mix with results."""
    print_message("note", text)


def print_message(kind: str, text: str) -> None:
    """Print a note or an error on the error stream: one line, or on a terminal several of its width.

    Args:
        kind: What it is.
        text: A sentence.
    """
    begin = f"selbo: {kind}: "
    if not sys.stderr.isatty():
        sys.stderr.write(f"{begin}{one_line(text)}\n")
        return
    width = max(40, shutil.get_terminal_size().columns)
    lines = textwrap.wrap(one_line(text), width, initial_indent=begin, subsequent_indent="  ", break_on_hyphens=False)
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def table_target(name: str, *, source: Path, endings: Sequence[str] = TABLE_FILES) -> Path | None:
    """Validate the output path of a table before any work is done; None means the output stream.

    Args:
        name: Value of the option.
        source: The input table, which is never overwritten.
        endings: How its name may end.
    """
    return None if name == "-" else file_target(name, "--out", endings, {"the input table": source}, stream=True)


def file_target(
    name: str, option: str, endings: Sequence[str], others: Mapping[str, Path], *, stream: bool = False
) -> Path:
    """Validate the path of an output file before any work is done.

    Args:
        name: Value of the option.
        option: The option.
        endings: How the name of the file may end.
        others: Files that it must not be, by what they are.
        stream: Whether the option also takes a dash, for the output stream.
    """
    path = Path(name)
    if path.suffix.lower() not in endings:
        what = f"{'- or ' if stream else ''}a file that ends in {' or '.join(endings)}"
        raise ValueError(f"`{option}` must be {what}, but got {name!r}")
    if path.is_dir():
        raise ValueError(f"`{option}` must be a file, but {name!r} is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"`{option}` must be in a folder that exists, but {os.fspath(path.parent)!r} does not")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"the folder {os.fspath(path.parent)!r} cannot be written to")
    for what, other in others.items():
        if path.resolve() == other.resolve() or (path.exists() and other.exists() and path.samefile(other)):
            raise ValueError(f"`{option}` must be a different file from {what}, but both are {name!r}")
    return path


def write_table(columns: dict[str, Sequence[Any]], path: Path | None) -> None:
    """Write columns atomically as CSV or Parquet; without a path, as CSV to the output stream."""
    if path is not None and path.suffix.lower() == ".parquet":
        import polars

        content = io.BytesIO()
        polars.DataFrame(dict(columns)).write_parquet(content)
        with replacing(path) as unfinished:
            unfinished.write_bytes(content.getbuffer())
        return
    text = columns_as_csv(columns)
    if path is None:
        # names are escaped for a terminal, and unchanged for a pipe
        sys.stdout.write(visible(text, keep="\n") if sys.stdout.isatty() else text)
        sys.stdout.flush()
    else:
        with replacing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")


@contextmanager
def table_writer(path: Path | None) -> Iterator[Callable[[dict[str, Sequence[Any]]], None]]:
    """Write a table in parts, atomically, as `write_table` does; yields a function that appends rows."""
    if path is None:
        yield _appending(sys.stdout, on_screen=sys.stdout.isatty())
        sys.stdout.flush()
    elif path.suffix.lower() == ".parquet":
        import polars

        with replacing(path) as unfinished, TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
            parts: list[Path] = []

            def append(columns: dict[str, Sequence[Any]]) -> None:
                parts.append(Path(folder) / f"{len(parts):06}.parquet")
                frame = polars.DataFrame(columns)
                frame.with_columns(polars.col(polars.Null).cast(polars.String)).write_parquet(parts[-1])

            yield append
            polars.scan_parquet(parts, glob=False).sink_parquet(unfinished)
    else:
        with replacing(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as stream:
            yield _appending(stream)


def _appending(stream: IO[str], *, on_screen: bool = False) -> Callable[[dict[str, Sequence[Any]]], None]:
    """A function that appends rows to a CSV file; the first time after the names of the columns."""
    begun = False

    def append(columns: dict[str, Sequence[Any]]) -> None:
        nonlocal begun
        text = columns_as_csv(columns, header=not begun)
        stream.write(visible(text, keep="\n") if on_screen else text)
        begun = True

    return append


def write_records(records: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write JSON lines atomically, one object per line."""
    with replacing(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="\n") as lines:
        for record in records:
            line = json.dumps(record, ensure_ascii=False)
            # half of a surrogate pair is possible in JSON, not in UTF-8
            lines.write(f"{line if line.isascii() or _encodable(line) else json.dumps(record)}\n")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def formula_like(names: Iterable[str]) -> list[str]:
    """Names that a spreadsheet would interpret as formulas: they start like one and are neither a number nor a sign.

    Example:
        >>> formula_like(["=1+1", "@home", "-1", "-", "no"])
        ['=1+1', '@home']
    """
    return [name for name in names if name.startswith(tuple(FORMULA_STARTS)) and len(name) > 1 and not _number(name)]


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show what is being done, on the error stream if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(what))):
        yield


@contextmanager
def progress_bar(total: float) -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar on the error stream if that is a terminal; yields a function of a label and an advance."""
    if not sys.stderr.isatty():
        yield lambda _label, _advance: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<30}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=total)
        yield lambda label, advance: progress.update(task, description=label, advance=advance)
