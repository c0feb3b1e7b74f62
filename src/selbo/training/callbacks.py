"""Callbacks of a training run: progress bar, JSON lines, TensorBoard, early stopping."""

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
"""Shorter names of terms in the progress bar."""

StepRecord = dict[str, Any]


class Start(NamedTuple):
    """State of a run when it starts or resumes.

    Attributes:
        steps: Total number of steps.
        step: Number of steps already taken in an earlier session.
        history: Records of those steps.
    """

    steps: int
    step: int
    history: Sequence[StepRecord]


class Callback:
    """Base class of callbacks for `selbo.fit`; override the methods you need. Only the first process calls them.

    A function in ``callbacks`` is called with each record.

    Example:
        >>> class StopBelow(Callback):
        ...     def __init__(self, nll):
        ...         self.nll = nll
        ...
        ...     def on_validation(self, step, nll):
        ...         return nll < self.nll
    """

    def on_start(self, start: Start) -> None:
        """Called before the first step."""

    def on_progress(self, step: int, terms: StepRecord) -> None:
        """Called about every half second with the steps taken and the mean terms per example since the last call."""

    def on_validation(self, step: int, nll: float) -> bool | None:
        """Called after each validation. Return True to end the run."""
        return None

    def on_record(self, record: StepRecord) -> None:
        """Called every ``log_every`` steps and at the end, with the means of the terms since the last record."""

    def on_end(self) -> None:
        """Called after the last step or an error, if `on_start` was called."""

    def settings(self) -> Any:
        """Settings that affect the run, as JSON, or None. A checkpoint with other settings is an error."""
        return None

    def state(self) -> dict[str, Any]:
        """State to restore when the run resumes, as JSON; saved only if `settings` is not None."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a result of `state`."""


class OnRecord(Callback):
    """Calls a function with each record."""

    def __init__(self, function: Callable[[StepRecord], object]) -> None:
        self.function = function

    def on_record(self, record: StepRecord) -> None:
        """Call the function."""
        self.function(record)


class EarlyStopping(Callback):
    """End a run when the validation NLL no longer improves.

    The network keeps the weights of the last step unless ``validation=Validation(select="best")``.

    Args:
        patience: Number of consecutive validations without improvement after which the run ends; at least 1.
        min_delta: Smallest decrease below the lowest NLL that counts as an improvement.
    """

    def __init__(self, patience: int = 10, *, min_delta: float = 0.0) -> None:
        self.patience = _checks.whole("patience", patience, at_least=1)
        self.min_delta = _checks.non_negative("min_delta", min_delta)
        self.best, self.bad = math.inf, 0

    def on_start(self, start: Start) -> None:
        """Reset the state if the run is new."""
        if start.step == 0:
            self.best, self.bad = math.inf, 0

    def on_validation(self, step: int, nll: float) -> bool:
        """Count validations without improvement."""
        if nll < self.best - self.min_delta:
            self.best, self.bad = nll, 0
        else:
            self.bad += 1
        return self.bad >= self.patience

    def settings(self) -> dict[str, Any]:
        """Patience and threshold."""
        return {"early stopping": [self.patience, self.min_delta]}

    def state(self) -> dict[str, Any]:
        """Lowest NLL so far, and the number of validations since."""
        return {"best": None if math.isinf(self.best) else self.best, "bad": self.bad}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore both."""
        self.best, self.bad = math.inf if state["best"] is None else state["best"], state["bad"]


class Progress(Callback):
    """A progress bar that shows the terms; shows nothing if rich is not installed.

    Args:
        wanted: True for a bar, False for none, None for a bar if standard error is a terminal.
        label: Text in front of the bar.
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
            random.setstate(state)  # importing rich advances it
        console = Console(stderr=True)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[terms]}"),
            console=console,
            transient=console.is_terminal,  # without a terminal, a requested bar is shown once, at the end
        )
        self.bar.start()
        self.task = self.bar.add_task(self.label, total=start.steps, completed=start.step, terms="")

    def on_progress(self, step: int, terms: StepRecord) -> None:
        """Update the bar with the step and the terms per example."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step, terms=_terms(terms))

    def on_end(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _terms(record: StepRecord) -> str:
    """Nonzero terms as text; of several summaries, only their sum."""
    shown = {name: value for name, value in record.items() if value and name != "log_likelihood" and "/" not in name}
    return " ".join(f"{SHORT.get(name, name)} {value:.4g}" for name, value in shown.items())


class JsonLines(Callback):
    """A log with one JSON object per line.

    A resumed run first rewrites the lines of earlier sessions from its checkpoint. No line is missing or duplicated,
    whatever happened to the file.

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

    def on_record(self, record: StepRecord) -> None:
        """Add a line."""
        with naming(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


class TensorBoard(Callback):
    """Write the terms for TensorBoard.

    Args:
        folder: Log directory.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder
        self.writer: Any = None
        try:
            import torch.utils.tensorboard  # noqa: F401  (fail now, not when the run starts)
        except ImportError as error:
            raise ValueError("`TensorBoard` needs the package tensorboard: pip install tensorboard") from error

    def on_start(self, start: Start) -> None:
        """Open the folder."""
        from torch.utils.tensorboard import SummaryWriter

        # discard what a killed session wrote after its checkpoint; these steps are repeated
        self.writer = SummaryWriter(os.fspath(self.folder), purge_step=start.step + 1 if start.step else None)

    def on_record(self, record: StepRecord) -> None:
        """Add a point to each curve."""
        for name, value in record.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, record["step"])

    def on_end(self) -> None:
        """Flush to disk and close."""
        if self.writer is not None:
            self.writer.close()


Listener = Callback | Callable[[StepRecord], object]


def as_callbacks(given: Sequence[Listener] | None) -> list[Callback]:
    """Callbacks from the ``callbacks`` argument of `fit`; a progress bar if it is None."""
    if given is None:
        return [Progress()]
    for each in given:
        if not callable(each) and not isinstance(each, Callback):
            raise ValueError(
                f"`callbacks` must hold functions or selbo.training callbacks, but got {type(each).__name__}"
            )
    return [each if isinstance(each, Callback) else OnRecord(each) for each in given]
