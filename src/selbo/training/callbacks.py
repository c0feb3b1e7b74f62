"""What a run tells while it runs, and who listens: a progress bar, a log of JSON lines, TensorBoard, early stopping."""

import json
import math
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from selbo import _checks
from selbo._files import naming, replacing

SHORT: Final = {"log_summary": "summary", "val_nll": "val nll"}
"""Shorter names of terms on the progress bar."""

Record = dict[str, Any]


class Start(NamedTuple):
    """Where a run starts.

    Attributes:
        steps: Number of steps in all.
        step: Number of steps already taken, in an earlier session.
        history: The records of those steps.
    """

    steps: int
    step: int
    history: Sequence[Record]


class Callback:
    """Listens to a run of `selbo.fit`; override what you need. With several processes only the first one calls it.

    A plain function in ``callbacks`` is called with each record.

    Example:
        >>> class StopBelow(Callback):
        ...     def __init__(self, nll):
        ...         self.nll = nll
        ...
        ...     def on_validation(self, step, nll):
        ...         return nll < self.nll
    """

    def on_start(self, start: Start) -> None:
        """Before the first step."""

    def on_progress(self, step: int, terms: Record) -> None:
        """Every half second or so: the number of steps taken, and mean terms of the last steps for one example."""

    def on_validation(self, step: int, nll: float) -> bool | None:
        """After each validation; True ends the run here."""
        return None

    def on_record(self, record: Record) -> None:
        """Every ``log_every`` steps and at the end: the means of the terms since the last record."""

    def on_end(self) -> None:
        """After the last step, or after an error; only if `on_start` was called."""

    def settings(self) -> Any:
        """What changes the course of a run, as JSON: a checkpoint with other settings is refused. None if nothing."""
        return None

    def state(self) -> dict[str, Any]:
        """What it must remember when the run is resumed, as JSON; kept only if it has `settings`."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Put back what `state` gave."""


class OnRecord(Callback):
    """A function that is called with each record."""

    def __init__(self, function: Callable[[Record], object]) -> None:
        self.function = function

    def on_record(self, record: Record) -> None:
        """Call it."""
        self.function(record)


class EarlyStopping(Callback):
    """End a run when the validation NLL no longer improves.

    The network keeps the weights of the last step unless ``validation=Validation(select="best")``.

    Args:
        patience: Number of validations in a row without improvement after which the run ends, at least 1.
        min_delta: By how much the NLL has to fall below the lowest one to count as an improvement.
    """

    def __init__(self, patience: int = 10, *, min_delta: float = 0.0) -> None:
        self.patience = _checks.whole("patience", patience, at_least=1)
        self.min_delta = _checks.non_negative("min_delta", min_delta)
        self.best, self.bad = math.inf, 0

    def on_start(self, start: Start) -> None:
        """Forget an earlier run."""
        if start.step == 0:
            self.best, self.bad = math.inf, 0

    def on_validation(self, step: int, nll: float) -> bool:
        """Count."""
        if nll < self.best - self.min_delta:
            self.best, self.bad = nll, 0
        else:
            self.bad += 1
        return self.bad >= self.patience

    def settings(self) -> dict[str, Any]:
        """Patience and threshold."""
        return {"early stopping": [self.patience, self.min_delta]}

    def state(self) -> dict[str, Any]:
        """Lowest NLL so far, and the validations since."""
        return {"best": None if math.isinf(self.best) else self.best, "bad": self.bad}

    def load_state(self, state: dict[str, Any]) -> None:
        """Put them back."""
        self.best, self.bad = math.inf if state["best"] is None else state["best"], state["bad"]


class Progress(Callback):
    """A progress bar with the terms; silent without rich.

    Args:
        wanted: True for a bar, False for none, None for a bar if the error stream is a terminal.
        label: What is being done.
    """

    def __init__(self, wanted: bool | None = None, *, label: str = "training") -> None:
        self.wanted, self.label = wanted, label
        self.bar: Any = None

    def on_start(self, start: Start) -> None:
        """Show the bar."""
        if self.wanted is False or (self.wanted is None and not sys.stderr.isatty()):
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
        self.bar.start()
        self.task = self.bar.add_task(self.label, total=start.steps, completed=start.step, terms="")

    def on_progress(self, step: int, terms: Record) -> None:
        """Move the bar to a step, with the terms for one example."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step, terms=_terms(terms))

    def on_end(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _terms(record: Record) -> str:
    """Terms that are not zero; of several summaries their sum alone."""
    shown = {name: value for name, value in record.items() if value and name != "log_likelihood" and "/" not in name}
    return " ".join(f"{SHORT.get(name, name)} {value:.4g}" for name, value in shown.items())


class JsonLines(Callback):
    """A log with one JSON object per line.

    The lines that a run has already earned are written anew, from what its checkpoint knows: none is missing, none is
    there twice, whatever happened to the file.

    Args:
        path: The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def on_start(self, start: Start) -> None:
        """Write the lines of the steps already taken."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as unfinished:
            unfinished.write_text("".join(json.dumps(record) + "\n" for record in start.history), encoding="utf-8")

    def on_record(self, record: Record) -> None:
        """Add a line."""
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


class TensorBoard(Callback):
    """Terms for TensorBoard.

    Args:
        folder: Where it looks.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder
        self.writer: Any = None
        try:
            import torch.utils.tensorboard  # noqa: F401  (said at once, not when the run starts)
        except ImportError as error:
            raise ValueError("`TensorBoard` needs the package tensorboard: pip install tensorboard") from error

    def on_start(self, start: Start) -> None:
        """Open the folder."""
        from torch.utils.tensorboard import SummaryWriter

        # what a killed session wrote after its checkpoint is written again
        self.writer = SummaryWriter(os.fspath(self.folder), purge_step=start.step + 1 if start.step else None)

    def on_record(self, record: Record) -> None:
        """Add a point to each curve."""
        for name, value in record.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, record["step"])

    def on_end(self) -> None:
        """Flush to the disk."""
        if self.writer is not None:
            self.writer.close()


Listener = Callback | Callable[[Record], object]


def as_callbacks(given: Sequence[Listener] | None) -> list[Callback]:
    """What a user passes as ``callbacks``: a bar on a terminal if nothing."""
    if given is None:
        return [Progress()]
    for each in given:
        if not callable(each) and not isinstance(each, Callback):
            raise ValueError(
                f"`callbacks` must hold functions or selbo.training callbacks, but got {type(each).__name__}"
            )
    return [each if isinstance(each, Callback) else OnRecord(each) for each in given]
