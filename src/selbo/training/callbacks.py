"""What a run says while it runs: a progress bar, a log of JSON lines, TensorBoard."""

import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from selbo._files import naming, replacing

SHORT: Final = {"log_summary": "summary", "val_nll": "val nll"}
"""Shorter names of terms on the progress bar."""


class Progress:
    """A progress bar with the terms, on a terminal; silent elsewhere unless asked for, and without rich.

    Args:
        total: Number of steps.
        wanted: True or False, or None for a bar if the error stream is a terminal.
        label: What is being done.
    """

    def __init__(self, total: int, *, wanted: bool | None, label: str) -> None:
        self.total, self.label = total, label
        self.bar: Any = None
        if wanted is False or (wanted is None and not sys.stderr.isatty()):
            return
        state = random.getstate()
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
        except ImportError:
            return
        finally:
            random.setstate(state)  # importing rich draws a number
        console = Console(stderr=True)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[terms]}"),
            console=console,
            transient=console.is_terminal,  # elsewhere a bar that was asked for is shown once, at the end
        )

    def __enter__(self) -> "Progress":
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task(self.label, total=self.total, terms="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, step: int, record: dict[str, Any]) -> None:
        """Move the bar to a step, with the terms for one example."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step, terms=_terms(record))


def _terms(record: dict[str, Any]) -> str:
    """Terms that are not zero; of several summaries their sum alone."""
    shown = {name: value for name, value in record.items() if value and name != "log_likelihood" and "/" not in name}
    return " ".join(f"{SHORT.get(name, name)} {value:.4g}" for name, value in shown.items())


class JsonLines:
    """A log with one JSON object a line.

    The lines that a run has already earned are written anew, from what its checkpoint knows: none is missing, none is
    there twice, whatever happened to the file.

    Args:
        path: The file, or None for no log.
        records: Of the steps already taken.
    """

    def __init__(self, path: Path | None, *, records: Sequence[dict[str, Any]]) -> None:
        self.path = path
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished:
            unfinished.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")

    def write(self, record: dict[str, Any]) -> None:
        """Add a line."""
        if self.path is not None:
            with naming(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


class TensorBoard:
    """Terms for TensorBoard, if asked for.

    Args:
        folder: Where it looks, or None.
        start: Number of steps already taken.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, *, start: int) -> None:
        self.writer: Any = None
        if folder is None:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError("`tensorboard` needs the package tensorboard: pip install tensorboard") from error
        # what a killed session wrote after its checkpoint is written again
        self.writer = SummaryWriter(os.fspath(folder), purge_step=start + 1 if start else None)

    def write(self, record: dict[str, Any]) -> None:
        """Add a point to each curve."""
        if self.writer is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self.writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        """Flush to the disk."""
        if self.writer is not None:
            self.writer.close()
