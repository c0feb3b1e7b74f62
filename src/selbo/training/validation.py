"""Validation during training, and selection of weights."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from selbo import _checks
from selbo.nn.compiled import channels_last
from selbo.objectives.likelihoods import log_prob_of_labels
from selbo.objectives.predictive import predictive_log_probs
from selbo.random import derive
from selbo.training import distributed
from selbo.training.batches import Batch, checksum
from selbo.training.engines import Plan

SELECTIONS: Final = ("last", "best")

Selection = Callable[[Tensor, Any], float | Tensor]
"""Score of the weights from validation log-probabilities (B, K) and labels (B,), or None; larger is better."""


@dataclass(frozen=True)
class Validation:
    """How `selbo.fit` uses validation data.

    Attributes:
        every: Steps between validations; if not given, an epoch, or a fiftieth of the run if that is longer.
        num_samples: Weight samples per validation.
        select: Weights to keep: those of the ``"last"`` step, of the ``"best"`` validation NLL, or of the highest score
            of a function of the validation log-probabilities (B, K) and labels (B,). Without labels the function gets
            None, and the validation NLL is the negative score.
    """

    every: int | None = None
    num_samples: int = 8
    select: str | Selection = "last"

    def __post_init__(self) -> None:
        if self.every is not None:
            _checks.whole("every", self.every, at_least=1)
        _checks.whole("num_samples", self.num_samples, at_least=1)
        if not callable(self.select):
            _checks.one_of("select", self.select, SELECTIONS)

    @property
    def selection(self) -> str:
        """Name of the selection; for a function, its name."""
        if isinstance(self.select, str):
            return self.select
        return str(getattr(self.select, "__name__", type(self.select).__name__))


class Validator:
    """Validates a run, and stores the best weights if they are requested.

    Args:
        plan: Everything that a training step needs.
        data: Validation data on the device; None for a run without validation.
        how: Validation settings.
        every: Steps between validations.
    """

    def __init__(self, plan: Plan, data: Batch | None, how: Validation, *, every: int) -> None:
        self.plan, self.data, self.how, self.every = plan, data, how, every
        self.last_nll: float | None = None
        self.best_nll: float | None = None
        self.best_score: float | None = None  # smaller is better
        self.best_step = 0
        self.best: dict[str, Tensor] = {}

    def predict(self, inputs: Tensor, *purpose: object) -> Tensor:
        """Log-probabilities of the current network, shape (B, K); the noise is seeded by the purpose."""
        plan = self.plan
        with plan.autocast():
            return predictive_log_probs(
                plan.posterior,
                channels_last(inputs) if plan.device.type == "cuda" else inputs,
                num_samples=self.how.num_samples,
                objective=plan.objective,
                generator=torch.Generator(plan.device).manual_seed(derive(plan.seed, *purpose)),
            )

    def run(self, step: int) -> float:
        """Validation NLL of the network after a step; updates the best weights if it is finite."""
        assert self.data is not None
        plan, select = self.plan, self.how.select
        inputs, labels, weights, _ = self.data
        log_probs = self.predict(inputs, "validation", step)
        if labels is None:
            assert not isinstance(select, str)
            nll = -torch.as_tensor(select(log_probs, None), dtype=torch.float64, device=log_probs.device)
        else:
            by_row = log_prob_of_labels(log_probs.unsqueeze(0), labels)
            if weights is not None:
                by_row = by_row * (weights / weights.mean())
            nll = -by_row.mean().double()
        self.last_nll = score = distributed.average(
            nll, plan.world
        ).item()  # the same number in all processes, because decisions depend on it
        if not math.isfinite(score):
            return score
        if not isinstance(select, str) and labels is not None:
            found = torch.as_tensor(select(log_probs, labels), dtype=torch.float64, device=log_probs.device)
            score = -distributed.average(found, plan.world).item()
        if self.best_score is None or score < self.best_score:
            self.best_score, self.best_nll, self.best_step = score, self.last_nll, step
            if select != "last":
                self.best = {name: value.detach().clone() for name, value in plan.posterior.state_dict().items()}
        return self.last_nll

    def select(self, last_step: int) -> tuple[int, float | None]:
        """Load the selected weights into the network; returns their step and their validation NLL."""
        if self.how.select == "last":
            return last_step, self.last_nll
        self.plan.posterior.load_state_dict(self.best)
        return self.best_step, self.best_nll

    def settings(self) -> dict[str, Any]:
        """Settings that a checkpoint must match."""
        used = None if self.data is None else [self.every, self.how.num_samples]
        return {"select": self.how.selection, "validation": used}

    def checksum(self) -> str | None:
        """Checksum of the validation data."""
        return None if self.data is None else checksum(*self.data)

    def state(self) -> dict[str, Any]:
        """State for a checkpoint, as JSON; the best weights are stored separately."""
        return {name: getattr(self, name) for name in ("last_nll", "best_nll", "best_score", "best_step")}

    def load_state(self, state: dict[str, Any], best: dict[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""
        for name, value in state.items():
            setattr(self, name, value)
        self.best = best
