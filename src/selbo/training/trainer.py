"""The state of a run, what a checkpoint holds of it, and how it goes on; it depends on the seed and the step alone."""

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.nn.compiled import channels_last
from selbo.objectives.label_priority import LabelCheck, check_labels
from selbo.objectives.likelihoods import log_prob_of_labels
from selbo.objectives.objective import TERMS
from selbo.objectives.predictive import predictive_log_probs
from selbo.random import derive
from selbo.summary.likelihood import SummaryLikelihood
from selbo.training import checkpoint as files
from selbo.training import distributed
from selbo.training.batches import Batch, LoaderBatches, TensorBatches, UnlabelledBatches, WeightedBatch, checksum
from selbo.training.callbacks import Progress
from selbo.training.engines import Engine, Plan
from selbo.training.schedules import Schedule

CHECKED_EXAMPLES: Final = 2048
"""Labelled examples that the trained network is compared with a constant answer on."""

CHECKED_FROM: Final = 50
"""Steps from which on it is: in fewer, labels are not fitted, whatever is believed."""

LOOK_EVERY_S: Final = 0.5
"""How often the loop looks up from its steps, to move the progress bar and to see whether a checkpoint is due."""

Record = dict[str, Any]
Callback = Callable[[Record], object]
SELECTIONS: Final = ("last", "best")

Selection = Callable[[Tensor, Tensor], float | Tensor]
"""How good weights are, from validation log-probabilities (B, K) and labels (B,); larger is better."""


class Diverged(RuntimeError):  # noqa: N818  (reads as a sentence)
    """The loss is no longer a number."""


@dataclass(frozen=True)
class FitResult:
    """What a run came to.

    Attributes:
        steps: Number of steps taken.
        selection: ``"last"``, ``"best"`` or the name of a function: which weights the network now has.
        selected_step: The step they are from.
        val_nll: Their validation NLL, if there was validation.
        history: One record every so many steps: means of the terms since the last, learning rate, validation NLL.
        curve: Terms of every step, shape (steps, terms), float64: loss, log_likelihood, kl and log_summary, then
            each of several summaries and each further term.
        seconds: Time spent, all sessions of a resumed run together.
        engine: How steps were run.
        resumed_from: Step that an earlier session had reached; 0 for a fresh run.
        checkpoint: The file that holds the run, if there is one.
        terms: Names of the columns of ``curve``.
        earlier_seconds: How much of ``seconds`` was spent in earlier sessions.
        label_check: Accuracy on labelled training examples beside that of a constant answer, if there is a summary
            and steps enough to fit labels (50).
    """

    steps: int
    selection: str
    selected_step: int
    val_nll: float | None
    history: list[Record] = field(repr=False)
    curve: Tensor = field(repr=False)
    seconds: float
    engine: str
    resumed_from: int
    checkpoint: Path | None
    terms: tuple[str, ...] = TERMS
    earlier_seconds: float = 0.0
    label_check: LabelCheck | None = None


@dataclass
class Run:
    """The state of a run: what a checkpoint holds, and how it goes on."""

    plan: Plan
    batches: TensorBatches | LoaderBatches
    unlabelled: UnlabelledBatches | None
    validation: Batch | WeightedBatch | None
    schedule: Schedule
    steps: int
    select: str | Selection
    eval_every: int
    val_samples: int
    checkpoint: Path | None
    checkpoint_every: float
    checkpoint_end: bool = True
    step: int = 0
    resumed_from: int = 0
    history: list[Record] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    best_step: int = 0
    best_nll: float | None = None
    best_score: float | None = None
    last_nll: float | None = None
    seconds: float = 0.0
    earlier_seconds: float = 0.0
    engine: str = ""
    saved_step: int | None = None
    settings: Record = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = self.plan
        self.terms = plan.objective.term_names
        self.curve = torch.full((self.steps, len(self.terms)), math.nan, dtype=torch.float64)
        self.settings |= {
            "model": files.describe_model(plan.model),
            "objective": files.describe_objective(plan.objective),
            "steps": self.steps,
            "seed": plan.seed,
            "batch_size": self.batches.batch_size,
            "num_samples": plan.num_samples,
            "schedule": [self.schedule.kind, self.schedule.rate],
            "augment": plan.augment,
            "precision": plan.precision,
            "select": selection_name(self.select),
            "validation": None if self.validation is None else [self.eval_every, self.val_samples],
            "processes": plan.world,
        }

    # --- going on ---

    def resume(self) -> None:
        """Take up the run where the checkpoint left it, if there is one."""
        plan = self.plan
        _forget(plan.objective)
        if self.checkpoint is not None:
            self.settings["data"] = self.batches.checksum()
            self.settings["unlabelled data"] = None if self.unlabelled is None else self.unlabelled.describe()
            self.settings["validation data"] = None if self.validation is None else checksum(*self.validation)
            if self.checkpoint.exists():
                self._load(self.checkpoint)
            if not distributed.agree(self.step, plan.world, plan.device):
                where = os.fspath(self.checkpoint)
                raise ValueError(f"`checkpoint` must be one file for all processes, but only some found {where!r}")
        distributed.copy_from_first(plan.model, plan.world)

    def until_done(self, choice: str, log_every: int, bar: Progress, listeners: Sequence[Callback]) -> None:
        """All steps that are left."""
        plan, begin = self.plan, time.perf_counter()
        before, last_save = self.seconds, begin
        bar.show(self.step, {})
        if self.step >= self.steps:
            return
        stops = (log_every,) if self.validation is None else (log_every, self.eval_every)
        with distributed.global_histograms(plan.objective, plan.world):
            engine = Engine(plan, self.batches, self.unlabelled, start=self.step, choice=choice)
            while self.step < self.steps:
                stop = min(self.steps, *(self.step - self.step % n + n for n in stops))
                # processes must agree on where to stop, so they do not look at the clock
                rows = engine.run(self.step, stop, self.schedule.rate_at, LOOK_EVERY_S if plan.world == 1 else math.inf)
                self._take(distributed.average(rows.to(plan.device), plan.world).cpu())
                # always here, between the same steps, so that a resumed run averages when an undisturbed one does
                distributed.average_statistics(plan.model, plan.world)
                self.seconds, self.engine = before + time.perf_counter() - begin, engine.name
                if self.validation is not None and (self.step % self.eval_every == 0 or self.step == self.steps):
                    self._validate()
                if self.step % log_every == 0 or self.step == self.steps:
                    self._record(log_every, listeners)
                bar.show(self.step, self._terms_since(self.step - len(rows)))
                ended = self.step == self.steps
                due = time.perf_counter() - last_save > self.checkpoint_every or ended
                if due or plan.world > 1:
                    self._check_weights()
                if due:
                    last_save = time.perf_counter()
                    if self.checkpoint is not None and plan.rank == 0 and (self.checkpoint_end or not ended):
                        self._save(self.checkpoint)

    def result(self) -> FitResult:
        """The end: weights selected, everything that was seen."""
        chosen, nll = self.steps, self.last_nll
        if self.select != "last":
            self.plan.model.load_state_dict(self.best)
            chosen, nll = self.best_step, self.best_nll
        check = self._check_labels()
        if check is not None and check.below_majority:
            warnings.warn(str(check), UserWarning, stacklevel=3)
        return FitResult(
            steps=self.step,
            selection=selection_name(self.select),
            selected_step=chosen,
            val_nll=nll,
            history=self.history,
            curve=self.curve,
            seconds=self.seconds,
            engine=self.engine,
            resumed_from=self.resumed_from,
            checkpoint=self.checkpoint if self.checkpoint_end or self.saved_step is not None else None,
            terms=self.terms,
            earlier_seconds=self.earlier_seconds,
            label_check=check,
        )

    def _check_labels(self) -> LabelCheck | None:
        """Whether the network does what labels say, where a belief might have had it otherwise; in one process."""
        plan = self.plan
        if not plan.objective.has_summary or plan.rank > 0 or self.steps < CHECKED_FROM:
            return None
        inputs, labels, *weights = self.batches.sample(CHECKED_EXAMPLES)
        return check_labels(self._predict(inputs, "label check"), labels, *weights)

    def _predict(self, inputs: Tensor, *purpose: object) -> Tensor:
        """Log-probabilities of the network as it is now, shape (B, K); their noise is derived from the purpose."""
        plan = self.plan
        with plan.autocast():
            return predictive_log_probs(
                plan.model,
                channels_last(inputs) if plan.device.type == "cuda" else inputs,
                num_samples=self.val_samples,
                objective=plan.objective,
                generator=torch.Generator(plan.device).manual_seed(derive(plan.seed, *purpose)),
            )

    # --- one stretch of steps ---

    def _take(self, rows: Tensor) -> None:
        """Write down the terms of the last steps, or stop if they are not numbers."""
        bad = ~rows.isfinite().all(1)
        if bool(bad.any()):
            first = int(bad.nonzero()[0, 0])
            raise self._diverged("loss is", self.step + first, rows[first])
        self.curve[self.step : self.step + len(rows)] = rows
        self.step += len(rows)

    def _check_weights(self) -> None:
        """Before they are kept: a finite loss may have had a gradient that was not."""
        if not all(bool(each.isfinite().all()) for each in self.plan.parameters):
            raise self._diverged("weights are", self.step - 1, self.curve[self.step - 1])

    def _diverged(self, what: str, step: int, row: Tensor) -> Diverged:
        terms = ", ".join(f"{name} {value:.6g}" for name, value in zip(self.terms, row.tolist(), strict=True))
        good = (
            f"the last good checkpoint is {os.fspath(self.checkpoint)!r}, of step {self.saved_step}"
            if self.checkpoint is not None and self.saved_step is not None
            else "no checkpoint was written before"
        )
        return Diverged(f"the {what} not finite at step {step} ({terms}); {good}; {self._remedy()}")

    def _remedy(self) -> str:
        """What to do about a loss that is not finite: mend the inputs if they are to blame, else train more gently."""
        for name, data in (("training", self.batches), ("unlabelled", self.unlabelled)):
            if data is not None and (where := data.not_finite()):
                return f"the {name} inputs hold NaN or infinity in {where}: remove or impute them"
        return "a smaller learning rate, or a warm-up of the summary term, may help"

    def _terms_since(self, step: int) -> Record:
        """Mean terms of the last steps, for one example."""
        mean = self.curve[step : self.step].mean(0).tolist()
        count = self.plan.objective.num_data
        scaled = {name: value / (1 if name == "loss" else count) for name, value in zip(self.terms, mean, strict=True)}
        return {**scaled, **({"val_nll": self.last_nll} if self.last_nll is not None else {})}

    def _record(self, log_every: int, listeners: Sequence[Callback]) -> None:
        since = self.step - 1 - (self.step - 1) % log_every
        means = dict(zip(self.terms, self.curve[since : self.step].mean(0).tolist(), strict=True))
        record: Record = {"step": self.step, **means, "learning_rate": self.schedule.rate_at(self.step - 1)}
        if self.last_nll is not None:
            record["val_nll"] = self.last_nll
        self.history.append(record)
        if self.plan.rank == 0:
            for listener in listeners:
                listener(record)

    def _validate(self) -> None:
        plan = self.plan
        assert self.validation is not None
        inputs, labels, *weights = self.validation
        log_probs = self._predict(inputs, "validation", self.step)
        by_row = log_prob_of_labels(log_probs.unsqueeze(0), labels)
        if weights:
            by_row = by_row * (weights[0] / weights[0].mean())
        nll = -by_row.mean().double()
        self.last_nll = distributed.average(nll, plan.world).item()  # one number for all, as decisions hang on it
        if not math.isfinite(self.last_nll):
            raise self._diverged("validation NLL is", self.step - 1, self.curve[self.step - 1])
        self.schedule.validated(self.last_nll)
        score = self.last_nll
        if not isinstance(self.select, str):
            found = torch.as_tensor(self.select(log_probs, labels), dtype=torch.float64, device=log_probs.device)
            score = -distributed.average(found, plan.world).item()
        if self.best_score is None or score < self.best_score:
            self.best_score, self.best_nll, self.best_step = score, self.last_nll, self.step
            if self.select != "last":
                self.best = {name: value.detach().clone() for name, value in plan.model.state_dict().items()}

    # --- on disk ---

    def _save(self, path: Path) -> None:
        plan = self.plan
        tensors = {
            **files.with_prefix("model", plan.model.state_dict()),
            **files.with_prefix("objective", plan.objective.state_dict()),
            **files.with_prefix("optimizer", files.optimizer_tensors(plan.optimizer)),
            **files.with_prefix("best", self.best),
            "curve": self.curve[: self.step],
        }
        description = {
            "settings": self.settings,
            "step": self.step,
            "schedule": self.schedule.state,
            "best": [self.best_step, self.best_nll, self.best_score],
            "last_nll": self.last_nll,
            "seconds": self.seconds,
            "engine": self.engine,
        }
        files.write(path, tensors, description, history=self.history)
        self.saved_step = self.step

    def _load(self, path: Path) -> None:
        plan = self.plan
        tensors, found, self.history = files.read(path)
        files.check_same_run(path, found["settings"], self.settings)
        plan.model.load_state_dict(files.without_prefix("model", tensors))
        plan.objective.load_state_dict(files.without_prefix("objective", tensors))
        if any(name.startswith("optimizer.") for name in tensors):
            files.load_optimizer(plan.optimizer, files.without_prefix("optimizer", tensors))
        self.best = files.without_prefix("best", tensors)
        self.step = self.resumed_from = self.saved_step = found["step"]
        self.curve[: self.step] = tensors["curve"]
        self.schedule.state = found["schedule"]
        (self.best_step, self.best_nll, self.best_score), self.last_nll = found["best"], found["last_nll"]
        self.seconds = self.earlier_seconds = found["seconds"]
        self.engine = found["engine"]


def selection_name(select: str | Selection) -> str:
    """What a selection is called: a function by its name; anything but a function or a known word is refused."""
    if callable(select):
        return str(getattr(select, "__name__", type(select).__name__))
    return _checks.one_of("select", select, SELECTIONS)


def _forget(objective: nn.Module) -> None:
    """Start moving averages anew: those of another run speak of another network."""
    for each in objective.modules():
        if isinstance(each, SummaryLikelihood) and each.ema_decay is not None:
            each.average.zero_()
            each.average_weight.zero_()
