"""The training loop: blocks of steps with validation, records and checkpoints in between."""

import math
import os
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from selbo.objectives.label_priority import LabelCheck, check_labels
from selbo.objectives.objective import TERMS
from selbo.posteriors import Posterior
from selbo.summary.moving_average import MovingAverage
from selbo.training import checkpoint as files
from selbo.training import distributed
from selbo.training.batches import TensorBatches, UnlabelledBatches
from selbo.training.callbacks import Callback, Start, StepRecord
from selbo.training.checkpoint import Checkpoint
from selbo.training.engines import Engine, Plan
from selbo.training.schedules import Schedule
from selbo.training.state import TrainingState
from selbo.training.stored import AnyBatches
from selbo.training.validation import Validator

CHECKED_EXAMPLES: Final = 2048
"""Number of labelled examples on which the trained network is compared with a constant classifier."""

CHECKED_FROM: Final = 50
"""Smallest number of steps for that comparison; fewer steps do not fit the labels, with or without a belief."""

LOOK_EVERY_S: Final = 0.5
"""Seconds between updates of the progress bar and checks whether a checkpoint is due."""


class Diverged(RuntimeError):  # noqa: N818  (reads as a sentence)
    """The loss, a weight or the validation NLL is not finite."""


@dataclass(frozen=True)
class FitResult:
    """Result of a training run.

    Attributes:
        steps: Number of steps taken; fewer than requested if a callback ended the run.
        selection: How the weights of the network were selected: ``"last"``, ``"best"`` or the name of a function.
        selected_step: Step of the selected weights.
        val_nll: Validation NLL of the selected weights, if there was validation.
        history: One record per ``log_every`` steps: means of the terms since the last record, learning rate,
            validation NLL.
        curve: Terms of every step, shape (steps, terms), float64: loss, log_likelihood, kl and log_summary, then
            each of several summaries and each further term.
        seconds: Training time, summed over all sessions of a resumed run.
        engine: How steps were run.
        resumed_from: Step from which the run was resumed; 0 for a new run.
        checkpoint: Checkpoint file, if there is one.
        terms: Names of the columns of ``curve``.
        earlier_seconds: Part of ``seconds`` spent in earlier sessions.
        label_check: Accuracy on labelled training examples compared with that of a constant classifier, if there is a
            summary, the run has at least 50 steps and there are labels.
        posterior: The trained posterior, for `selbo.predict` and the like. Predict with the network instead if the
            posterior is that of the network itself: made by `to_bayesian`, or deterministic.
    """

    steps: int
    selection: str
    selected_step: int
    val_nll: float | None
    history: list[StepRecord] = field(repr=False)
    curve: Tensor = field(repr=False)
    seconds: float
    engine: str
    resumed_from: int
    checkpoint: Path | None
    terms: tuple[str, ...] = TERMS
    earlier_seconds: float = 0.0
    label_check: LabelCheck | None = None
    posterior: Posterior | None = field(default=None, repr=False, compare=False)


@dataclass
class Trainer:
    """Runs the training loop.

    Attributes:
        plan: Everything that a training step needs.
        batches: Labelled batches.
        unlabelled: Unlabelled batches of the summaries.
        validator: Validates and selects weights.
        schedule: Learning rates.
        checkpoint: Where and how often to save the run; None for never.
        callbacks: Callbacks of the run.
        log_every: Steps between records.
        settings: Further settings that a checkpoint must match.
    """

    plan: Plan
    batches: AnyBatches
    unlabelled: UnlabelledBatches | None
    validator: Validator
    schedule: Schedule
    checkpoint: Checkpoint | None
    callbacks: list[Callback]
    log_every: int
    settings: StepRecord

    def __post_init__(self) -> None:
        plan = self.plan
        self.state = TrainingState(plan.steps, plan.objective.term_names)
        self.settings |= {
            "model": files.describe_model(plan.posterior),
            "objective": files.describe_objective(plan.objective),
            "steps": plan.steps,
            "seed": plan.seed,
            "batch_size": self.batches.batch_size,
            "num_samples": plan.num_samples,
            "schedule": [self.schedule.kind, self.schedule.rate],
            "augment": plan.augment,
            "precision": plan.precision,
            "processes": plan.world,
            "callbacks": [each.settings() for each in self._stateful()],
            **self.validator.settings(),
        }
        if isinstance(self.batches, TensorBatches) and self.batches.rows_per_group is not None:
            self.settings["rows_per_group"] = self.batches.rows_per_group
        if self.schedule.warmup:
            self.settings["warmup_steps"] = self.schedule.warmup

    # --- from the start, or from a checkpoint ---

    def resume(self) -> None:
        """Resume the run from the checkpoint, if there is one."""
        plan = self.plan
        for each in plan.objective.modules():
            if isinstance(each, MovingAverage):
                each.reset()  # an average from another run belongs to another network
        if self.checkpoint is not None:
            path = self.checkpoint.path
            self.settings["data"] = self.batches.checksum()
            self.settings["unlabelled data"] = None if self.unlabelled is None else self.unlabelled.describe()
            self.settings["validation data"] = self.validator.checksum()
            if path.exists():
                self._load(path)
            if not distributed.agree(self.state.step, plan.world, plan.device):
                raise ValueError(
                    f"`checkpoint` must be one file for all processes, but only some found {os.fspath(path)!r}"
                )
        distributed.copy_from_first(plan.posterior.state_dict(), plan.world)

    # --- remaining steps ---

    def run(self, choice: str) -> None:
        """Run the remaining steps with the chosen engine, and call the callbacks."""
        started = []
        try:
            for each in self.callbacks if self.plan.rank == 0 else ():
                started.append(each)
                each.on_start(Start(self.plan.steps, self.state.step, tuple(self.state.history)))
            self._run(choice, started)
        finally:
            for each in reversed(started):
                each.on_end()

    def _run(self, choice: str, listeners: list[Callback]) -> None:
        plan, state, validator = self.plan, self.state, self.validator
        begin = last_save = time.perf_counter()
        before, save_every = state.seconds, files.EVERY_S if self.checkpoint is None else self.checkpoint.every
        for each in listeners:
            each.on_progress(state.step, {})
        if state.has_ended:
            return
        stops = (self.log_every,) if validator.data is None else (self.log_every, validator.every)
        with distributed.global_histograms(plan.objective, plan.world):
            engine = Engine(plan, self.batches, self.unlabelled, start=state.step, choice=choice)
            while not state.has_ended:
                stop = min(plan.steps, *(state.step - state.step % n + n for n in stops))
                # all processes must stop at the same step, so the clock is not used
                seconds = LOOK_EVERY_S if plan.world == 1 else math.inf
                rows = engine.run(state.step, stop, self.schedule.rate_at, seconds)
                self._take(distributed.average(rows.to(plan.device), plan.world).cpu())
                # at fixed steps, so that a resumed run averages at the same steps as an uninterrupted one
                distributed.average_statistics(plan.posterior.network, plan.world)
                state.seconds, state.engine = before + time.perf_counter() - begin, engine.name
                if validator.data is not None and (state.step % validator.every == 0 or state.has_ended):
                    self._validate(listeners)
                if state.step % self.log_every == 0 or state.has_ended:
                    self._record(listeners)
                terms = self._for_one_example(state.mean_since(state.step - len(rows)))
                for each in listeners:
                    each.on_progress(state.step, terms)
                due = time.perf_counter() - last_save > save_every or state.has_ended
                if due or plan.world > 1:
                    self._check_weights()
                if due:
                    last_save = time.perf_counter()
                    self._save()

    def _take(self, rows: Tensor) -> None:
        """Store the terms of the last steps; raise an error if they are not finite."""
        bad = ~rows.isfinite().all(1)
        if bool(bad.any()):
            first = int(bad.nonzero()[0, 0])
            raise self._diverged("loss is", self.state.step + first, rows[first])
        self.state.add(rows)

    def _validate(self, listeners: list[Callback]) -> None:
        state = self.state
        nll = self.validator.run(state.step)
        if not math.isfinite(nll):
            raise self._diverged("validation NLL is", state.step - 1, state.curve[-1])
        self.schedule.validated(nll)
        wishes = [each.on_validation(state.step, nll) is True for each in listeners]
        state.stopped = distributed.holds_in_any(any(wishes), self.plan.world, self.plan.device)

    def _record(self, listeners: list[Callback]) -> None:
        state = self.state
        since = state.step - 1 - (state.step - 1) % self.log_every
        rate = self.schedule.rate_at(state.step - 1)
        record: StepRecord = {"step": state.step, **state.mean_since(since), "learning_rate": rate}
        if self.validator.last_nll is not None:
            record["val_nll"] = self.validator.last_nll
        state.history.append(record)
        for each in listeners:
            each.on_record(record)

    def _for_one_example(self, terms: StepRecord) -> StepRecord:
        """Terms per example, for a progress bar; all but the loss are sums over the data set."""
        count, nll = self.plan.objective.num_data, self.validator.last_nll
        scaled = {name: value / (1 if name == "loss" else count) for name, value in terms.items()}
        return scaled if nll is None else {**scaled, "val_nll": nll}

    # --- divergence ---

    def _check_weights(self) -> None:
        """Check weights before they are saved: a finite loss may have a gradient that is not finite."""
        if not all(bool(each.isfinite().all()) for each in self.plan.parameters):
            raise self._diverged("weights are", self.state.step - 1, self.state.curve[-1])

    def _diverged(self, what: str, step: int, row: Tensor) -> Diverged:
        terms = ", ".join(f"{name} {value:.6g}" for name, value in zip(self.state.terms, row.tolist(), strict=True))
        good = (
            f"the last good checkpoint is {os.fspath(self.checkpoint.path)!r}, of step {self.state.saved_step}"
            if self.checkpoint is not None and self.state.saved_step is not None
            else "no checkpoint was written before"
        )
        return Diverged(f"the {what} not finite at step {step} ({terms}); {good}; {self._remedy()}")

    def _remedy(self) -> str:
        """Advice for a loss that is not finite: correct the inputs if they are the cause, else change the training."""
        for name, data in (("training", self.batches), ("unlabelled", self.unlabelled)):
            if data is not None and (where := data.not_finite()):
                return f"the {name} inputs hold NaN or infinity in {where}: remove or impute them"
        return "a smaller learning rate, or a warm-up of the summary term, may help"

    # --- result ---

    def result(self) -> FitResult:
        """Select the weights and return the result."""
        state, kept = self.state, self.checkpoint
        chosen, nll = self.validator.select(state.step)
        check = self._check_labels()
        if check is not None and check.below_majority:
            warnings.warn(str(check), UserWarning, stacklevel=3)
        return FitResult(
            steps=state.step,
            selection=self.validator.how.selection,
            selected_step=chosen,
            val_nll=nll,
            history=state.history,
            curve=state.curve,
            seconds=state.seconds,
            engine=state.engine,
            resumed_from=state.resumed_from,
            checkpoint=kept.path if kept is not None and (kept.at_end or state.saved_step is not None) else None,
            terms=state.terms,
            earlier_seconds=state.earlier_seconds,
            label_check=check,
            posterior=self.plan.posterior,
        )

    def _check_labels(self) -> LabelCheck | None:
        """Check whether the network fits the labels, which a belief may have overruled; in the first process only."""
        if not self.plan.objective.has_summary or self.plan.rank > 0 or self.state.step < CHECKED_FROM:
            return None
        if self.batches.num_labels == 0:
            return None
        inputs, labels, weights, _ = self.batches.sample(CHECKED_EXAMPLES)
        if labels is None or len(labels) == 0:
            return None
        return check_labels(self.validator.predict(inputs, "label check"), labels, weights)

    # --- checkpoints ---

    def _stateful(self) -> list[Callback]:
        return [each for each in self.callbacks if each.settings() is not None]

    def _save(self) -> None:
        plan, state = self.plan, self.state
        if self.checkpoint is None or plan.rank > 0 or (state.has_ended and not self.checkpoint.at_end):
            return
        tensors = {
            **files.with_prefix("model", plan.posterior.state_dict()),
            **files.with_prefix("objective", plan.objective.state_dict()),
            **files.with_prefix("optimizer", files.optimizer_tensors(plan.optimizer)),
            **files.with_prefix("best", self.validator.best),
            "curve": state.curve,
        }
        description: dict[str, Any] = {
            "settings": self.settings,
            "schedule": self.schedule.state,
            "validator": self.validator.state(),
            "callbacks": [each.state() for each in self._stateful()],
            **state.describe(),
        }
        files.write_checkpoint(self.checkpoint.path, tensors, description, history=state.history)
        state.saved_step = state.step

    def _load(self, path: Path) -> None:
        plan = self.plan
        tensors, found, history = files.read_checkpoint(path)
        files.check_same_run(path, found["settings"], self.settings)
        plan.posterior.load_state_dict(files.without_prefix("model", tensors))
        plan.objective.load_state_dict(files.without_prefix("objective", tensors))
        if any(name.startswith("optimizer.") for name in tensors):
            files.load_optimizer(plan.optimizer, files.without_prefix("optimizer", tensors))
        self.validator.load_state(found["validator"], files.without_prefix("best", tensors))
        self.schedule.state = found["schedule"]
        for each, saved in zip(self._stateful(), found["callbacks"], strict=True):
            each.load_state(saved)
        self.state.restore(found, tensors["curve"], history)
