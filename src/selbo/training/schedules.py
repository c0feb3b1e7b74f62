"""Learning rates: constant, cosine, or halved when validation no longer improves."""

import math
from typing import Any, Final

from selbo import _checks

SCHEDULES: Final = ("constant", "cosine", "plateau")
PLATEAU_FACTOR: Final = 0.5
PLATEAU_PATIENCE: Final = 10
"""Consecutive validations without improvement before the rate is halved at the next, as in ReduceLROnPlateau."""


class Schedule:
    """The learning rate of each step.

    Args:
        kind: ``"constant"``, ``"cosine"`` (to zero at the end of the run) or ``"plateau"``.
        rate: Initial learning rate.
        steps: Total number of steps.
        warmup: Number of steps over which the rate grows linearly, from ``1 / warmup`` of it; 0 for none.
    """

    def __init__(self, kind: str, *, rate: float, steps: int, warmup: int = 0) -> None:
        self.kind = _checks.one_of("schedule", kind, SCHEDULES)
        self.warmup = _checks.whole("warmup_steps", warmup, at_least=0)
        self.rate, self.steps = _checks.positive("learning_rate", rate), steps
        self.state: dict[str, Any] = {"factor": 1.0, "best": None, "bad": 0}

    def rate_at(self, step: int) -> float:
        """Learning rate of a step."""
        factor = float(self.state["factor"])
        if self.kind == "cosine":
            factor = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        if step < self.warmup:
            factor *= (step + 1) / self.warmup
        return self.rate * factor

    def validated(self, nll: float) -> None:
        """Update the schedule with a validation loss."""
        if self.kind != "plateau":
            return
        best = self.state["best"]
        if best is None or nll < best:
            self.state |= {"best": nll, "bad": 0}
            return
        self.state["bad"] += 1
        if self.state["bad"] > PLATEAU_PATIENCE:
            self.state |= {"bad": 0, "factor": self.state["factor"] * PLATEAU_FACTOR}
