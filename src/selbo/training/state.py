"""How far a run has come: its steps, their terms, and what it has told."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from selbo.training.callbacks import Record


@dataclass
class State:
    """What a checkpoint knows of the steps taken so far, beside the weights.

    Attributes:
        steps: Number of steps in all.
        terms: Names of the terms.
        step: Number of steps taken.
        stopped: Whether a callback has ended the run.
        history: One record every so many steps.
        seconds: Time spent, in all sessions.
        engine: How steps were run.
        resumed_from: Steps that earlier sessions had taken.
        earlier_seconds: Time spent in earlier sessions.
        saved_step: The step of the last checkpoint.
    """

    steps: int
    terms: tuple[str, ...]
    step: int = 0
    stopped: bool = False
    history: list[Record] = field(default_factory=list)
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
        """Take note of the terms of the next steps, (steps, terms)."""
        self._curve[self.step : self.step + len(rows)] = rows
        self.step += len(rows)

    def mean_since(self, step: int) -> Record:
        """Mean of each term over the steps from one on."""
        return dict(zip(self.terms, self.curve[step:].mean(0).tolist(), strict=True))

    def describe(self) -> dict[str, Any]:
        """For a checkpoint, as JSON; curve and history are kept beside it."""
        return {name: getattr(self, name) for name in ("step", "stopped", "seconds", "engine")}

    def restore(self, found: dict[str, Any], curve: Tensor, history: list[Record]) -> None:
        """Continue where a checkpoint was written."""
        self.stopped, self.engine, self.history = found["stopped"], found["engine"], history
        self.add(curve)
        self.resumed_from = self.saved_step = self.step
        self.seconds = self.earlier_seconds = found["seconds"]
