"""What commands write: folders that can be written to, files that are whole or absent, a progress bar."""

import csv
import io
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from selbo._files import replacing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

SHOWN: Final = {
    "nll": "NLL, nats",
    "accuracy": "accuracy, %",
    "ece": "ECE, %",
    "adaptive_ece": "adaptive ECE, %",
    "classwise_ece": "class-wise ECE, %",
    "brier": "Brier score",
    "auroc": "AUROC, %",
    "f1_macro": "F1, macro, %",
}
"""Metrics in a table, and how they are called there."""

TABLE_FILES: Final = (".csv", ".parquet")

HIDDEN: Final = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of characters that a terminal obeys, or that change the order of others, instead of showing them."""

JOINERS: Final = "\u200c\u200d"
"""Hidden too, but they only shape their neighbours, in several scripts and in emoji."""

LONGEST_LINE: Final = 2000
"""Characters of a note or an error: a name in it may have millions."""

FORMULA_STARTS: Final = "=+-@\t\r"
"""What a spreadsheet takes for the beginning of a formula."""


def visible(text: str, *, keep: str = "") -> str:
    r"""Text with control characters spelt out, so that names from a file cannot steer the terminal.

    Args:
        text: What is to be shown.
        keep: Control characters to leave as they are.

    Example:
        >>> print(visible("a\x1b[2Jb\n"))
        a\x1b[2Jb\n
    """
    return "".join(
        ascii(each)[1:-1] if unicodedata.category(each) in HIDDEN and each not in JOINERS + keep else each
        for each in text
    )


def one_line(text: str) -> str:
    """Text for one line of a terminal: control characters spelt out, and cut if it is very long."""
    shown = visible(text[: LONGEST_LINE + 1])
    return shown if len(shown) <= LONGEST_LINE else f"{shown[: LONGEST_LINE - 3]}..."


def writable_folder(path: Path) -> Path:
    """Make a folder, or say in one sentence why results cannot be written there, before any work is done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"the folder {os.fspath(path)!r} cannot be made: {(error.strerror or '').lower()}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(f"the folder {os.fspath(path)!r} cannot be written to")
    return path


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def console() -> "Console":
    """The output stream; plain words, in which nothing is taken for markup or coloured, or steers the terminal."""
    from rich.console import Console

    class Plain(Console):
        def render_str(self, text: str, **how: Any) -> "Text":
            return super().render_str(visible(text, keep="\n"), **how)

    return Plain(highlight=False, markup=False, emoji=False)


def metrics_table(metrics: dict[str, Any], calibrated: dict[str, Any] | None, temperature: float | None) -> "Table":
    """Metrics as predicted and, where there is one, with a temperature."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"{metrics['num_examples']} rows")
    table.add_column("as predicted", justify="right")
    if calibrated is not None:
        table.add_column(f"with temperature {temperature:.3g}", justify="right")
    for key, label in SHOWN.items():
        values = [found[key] for found in (metrics, calibrated) if found is not None]
        table.add_row(label, *(_shown(value, percent=label.endswith("%")) for value in values))
    return table


def _shown(value: float | None, *, percent: bool) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f}" if percent else f"{value:.3f}"


def note(text: str) -> None:
    """One line on the error stream, where it does not mix with results."""
    sys.stderr.write(f"selbo: note: {one_line(text)}\n")


def table_target(name: str, *, source: Path) -> Path | None:
    """Where a table goes: a file, or None for the output stream; refused before any work is done.

    Args:
        name: What the user said.
        source: The table that is read, which is never replaced.
    """
    if name == "-":
        return None
    path = Path(name)
    if path.suffix.lower() not in TABLE_FILES:
        raise ValueError(f"`--out` must be - or a file that ends in {' or '.join(TABLE_FILES)}, but got {name!r}")
    if path.is_dir():
        raise ValueError(f"`--out` must be a file, but {name!r} is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"`--out` must be in a folder that exists, but {os.fspath(path.parent)!r} does not")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"the folder {os.fspath(path.parent)!r} cannot be written to")
    if path.exists() and source.exists() and path.samefile(source):
        raise ValueError(f"`--out` must be another file than the table that is read, but both are {name!r}")
    return path


def write_table(columns: dict[str, Sequence[Any]], path: Path | None) -> None:
    """Write columns as CSV or Parquet, whole or not at all; as CSV to the output stream if there is no path."""
    if path is not None and path.suffix.lower() == ".parquet":
        import polars

        content = io.BytesIO()
        polars.DataFrame(dict(columns)).write_parquet(content)
        with replacing(path) as unfinished:
            unfinished.write_bytes(content.getbuffer())
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([f"{each:.8g}" if isinstance(each, float) else each for each in row])
    if path is None:
        # a pipe gets the names as they are, a terminal what can be shown
        shown = visible(text.getvalue(), keep="\n") if sys.stdout.isatty() else text.getvalue()
        sys.stdout.write(shown)
        sys.stdout.flush()
    else:
        with replacing(path) as unfinished:
            unfinished.write_text(text.getvalue(), encoding="utf-8")


def formula_like(names: Iterable[str]) -> list[str]:
    """Names that a spreadsheet would take for formulas: those that begin like one, and are no number or sign.

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
    """Say what is being done, on the error stream if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(what))):
        yield


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[str, int], None]]:
    """A bar on the error stream if that is a terminal; yields a function to call with a label and an advance."""
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
