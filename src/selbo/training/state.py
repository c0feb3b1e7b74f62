"""Progress of a run: steps taken, their terms, and records."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from selbo.training.callbacks import StepRecord


@dataclass
class TrainingState:
    """Progress that a checkpoint stores in addition to the weights.

    Attributes:
        steps: Total number of steps.
        terms: Names of the terms.
        step: Number of steps taken.
        stopped: Whether a callback has ended the run.
        history: One record per ``log_every`` steps.
        seconds: Training time of all sessions.
        engine: How steps were run.
        resumed_from: Number of steps taken in earlier sessions.
        earlier_seconds: Training time of earlier sessions.
        saved_step: Step of the last checkpoint.
    """

    steps: int
    terms: tuple[str, ...]
    step: int = 0
    stopped: bool = False
    history: list[StepRecord] = field(default_factory=list)
    seconds: float = 0.0
    engine: str = ""
    resumed_from: int = 0
    earlier_seconds: float = 0.0
    saved_step: int | None = None

    def __post_init__(self) -> None:
        self._curve = torch.full((self.steps, len(self.terms)), math.nan, dtype=torch.float64)

    @property
    def curve(self) -> Tensor:
        """The terms of every step taken, (steps, terms), float64."""
        return self._curve[: self.step]

    @property
    def has_ended(self) -> bool:
        """Whether no step is left."""
        return self.stopped or self.step >= self.steps

    def add(self, rows: Tensor) -> None:
        """Add the terms of the next steps, (steps, terms)."""
        self._curve[self.step : self.step + len(rows)] = rows
        self.step += len(rows)

    def mean_since(self, step: int) -> StepRecord:
        """Mean of each term from ``step`` on."""
        return dict(zip(self.terms, self.curve[step:].mean(0).tolist(), strict=True))

    def describe(self) -> dict[str, Any]:
        """Description for a checkpoint, as JSON; curve and history are stored separately."""
        return {name: getattr(self, name) for name in ("step", "stopped", "seconds", "engine")}

    def restore(self, found: dict[str, Any], curve: Tensor, history: list[StepRecord]) -> None:
        """Restore the progress of a checkpoint."""
        self.stopped, self.engine, self.history = found["stopped"], found["engine"], history
        self.add(curve)
        self.resumed_from = self.saved_step = self.step
        self.seconds = self.earlier_seconds = found["seconds"]
