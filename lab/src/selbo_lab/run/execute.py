"""Executes one run: trains, tests, and returns a record of the results."""

import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from selbo import fit
from selbo.checks import one_of
from selbo.evaluation import at_temperature
from selbo.posteriors import SWAG, Deterministic, MeanField
from selbo.random import derive, generator_for
from selbo.training import Checkpoint, Diverged, FitResult, Optimizer, Validation
from selbo_lab.data.dataset import LabelledData
from selbo_lab.published import PAPER_SELECTIONS
from selbo_lab.run import adaptation, baselines, build, posthoc
from selbo_lab.run.evaluate import Evaluation, Member, SeenSet, fit_temperature, require_unlabelled
from selbo_lab.run.group_runs import execute_group_run
from selbo_lab.run.provenance import describe_run
from selbo_lab.run.records import DIVERGED, FINISHED, Run, RunTimes
from selbo_lab.run.table_runs import execute_table_run
from selbo_lab.run.tasks import RunTask, build_task
from selbo_lab.studies.run_spec import EvaluationSpec, RunSpec

SMALL_RUNS_ON_A_GPU: Final = 14
"""Parallel runs of other networks on one GPU, if there are enough cores (lab/docs/reference/performance-lab.md)."""

LARGE_RUNS_ON_A_GPU: Final = 3
"""Parallel runs of large networks on one GPU (lab/docs/reference/performance-lab.md)."""

CHECKPOINT_EVERY_S: Final = 120.0
"""Seconds between checkpoints: the most that an interrupted run loses. Short runs write none."""

EARLIER: Final = "earlier"
"""Name of the network that an empirical belief comes from."""


@dataclass
class _Checkpoints:
    """Checkpoints of a run, one per trained network, and the training done before it was resumed.

    Attributes:
        folder: Folder of the checkpoints; None for no checkpoints.
        resumed_from: Steps that the networks were resumed from.
        seconds: Training time before that.
    """

    folder: Path | None
    resumed_from: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name

    def note(self, name: str, done: FitResult) -> None:
        if done.resumed_from:
            self.resumed_from[name] = done.resumed_from
            self.seconds += done.earlier_seconds


def execute_run(spec: RunSpec, *, device: str = "cpu", unfinished: Path | None = None) -> Run:
    """Train and test. A run that diverges also gives a result, with that status.

    Args:
        spec: Settings of the run.
        device: Device to train on.
        unfinished: Folder for checkpoints, from which an interrupted run resumes; no checkpoints if not given.
    """
    if spec.data.groups:
        return execute_group_run(spec, device=device)
    if spec.data.table:
        return execute_table_run(spec)
    begin = time.perf_counter()
    task = build_task(spec.data, spec.evaluation, seed=spec.seed)
    parts = {part: getattr(task, part) for part in ("train", "val", "test", "use", "unlabelled")}
    made = partial(
        Run,
        id=spec.id,
        spec=spec,
        data={part: data.checksum for part, data in parts.items() if data is not None},
        sizes={part: len(data) for part, data in parts.items() if data is not None},
        made_by=describe_run(device),
    )
    saved = _Checkpoints(unfinished)
    try:
        earlier = _earlier(spec, task, saved, device=device) if spec.recipe.belief == "empirical" else None
        members = _members(spec, task, saved, device=device, earlier=earlier)
        trained = time.perf_counter()
        found = Evaluation(spec, task, members, device, earlier, seen=_MEMORY.seen_in(spec)).everything()
    except Diverged as error:
        what = str(error).partition(";")[0]  # without the advice about the checkpoint, which is removed with the result
        return made(status=DIVERGED, error=what, seconds=RunTimes(all=round(time.perf_counter() - begin, 3)))
    now = time.perf_counter()
    seconds = RunTimes(
        all=round(now - begin, 3),
        training=round(trained - begin, 3),
        evaluation=round(now - trained, 3),
        earlier=saved.seconds if saved.resumed_from else None,
    )
    return made(status=FINISHED, resumed_from=saved.resumed_from or None, seconds=seconds, **vars(found))


@dataclass
class _Memory:
    """The networks of the last run whose networks others share, and what they predicted if others share that too."""

    training: Hashable = None
    members: list[Member] = field(default_factory=list)
    evaluation: EvaluationSpec | None = None
    seen: dict[str, SeenSet] = field(default_factory=dict)

    def seen_in(self, spec: RunSpec) -> dict[str, SeenSet] | None:
        """Predictions for the sets of this evaluation, to read and to fill; None if there are none to share."""
        if not spec.shares_predictions:
            return None
        if spec.evaluation != self.evaluation:
            self.evaluation, self.seen = spec.evaluation, {}
        return self.seen


_MEMORY: Final = _Memory()


def _members(spec: RunSpec, task: RunTask, saved: _Checkpoints, *, device: str, earlier: Tensor | None) -> list[Member]:
    """The trained networks of a run, adapted if the recipe says so.

    The networks of the previous run are reused if only the correction differs.
    """
    training = (spec.training, device)
    if spec.shares_networks and training == _MEMORY.training:
        return _MEMORY.members
    _MEMORY.training, _MEMORY.members = None, []  # free memory before the next training
    _MEMORY.evaluation, _MEMORY.seen = None, {}
    members = [
        _trained(spec, task, saved, device=device, member=i, earlier=earlier) for i in range(spec.recipe.members)
    ]
    if spec.recipe.adaptation:
        inputs = _pool(spec, task).to(device).network_inputs()
        for i, (network, objective) in enumerate(members):
            assert isinstance(network, nn.Module)  # adaptation is for deterministic networks
            order = generator_for(spec.seed, "adaptation", i)
            adaptation.adapt(network, inputs, spec.recipe, objective=objective, generator=order)
    if spec.shares_networks:
        _MEMORY.training, _MEMORY.members = training, members
    return members


def _pool(spec: RunSpec, task: RunTask) -> LabelledData:
    """The unlabelled inputs that a recipe uses."""
    there = require_unlabelled(task)
    return there.rows(range(min(spec.recipe.unlabelled_inputs or len(there), len(there))))


def _earlier(spec: RunSpec, task: RunTask, saved: _Checkpoints, *, device: str) -> Tensor:
    """Predictions of a deterministic network of the same seed for the validation inputs, at its fitted temperature."""
    plain = replace(
        spec.recipe,
        objective="cross_entropy",
        bayesian=False,
        partition="",
        belief="",
        summary_inputs="train",
        posterior="",
        posthoc="",
        swag_steps=0,
        posterior_scale=1.0,
        scale_belief="",
    )
    before = replace(spec, recipe=plain)
    network = _trained(before, task, saved, device=device, member=0, name=EARLIER)
    on_val = Evaluation(before, task, [network], device).predict(task.val, draws=1)
    temperature = fit_temperature(on_val, task.val.labels)
    return on_val.log_probs if temperature is None else at_temperature(on_val, temperature).log_probs


def _trained(
    spec: RunSpec,
    task: RunTask,
    saved: _Checkpoints | None = None,
    *,
    device: str,
    member: int,
    earlier: Tensor | None = None,
    name: str = "member",
) -> Member:
    recipe = spec.recipe
    if recipe.objective in (*baselines.SCIKIT_LEARN, baselines.ZERO_SHOT):
        objective = build.build_objective(
            recipe, num_data=len(task.train), num_classes=task.train.num_classes, data=spec.data
        )
        if recipe.objective == baselines.ZERO_SHOT:
            return Member(nn.Identity(), objective)
        return Member(baselines.scikit_learn(recipe, task.train, require_unlabelled(task), seed=spec.seed), objective)
    train = task.train.to(device).tensors()
    fitted = partial(_fitted, spec, task, saved or _Checkpoints(None), device=device, member=member, earlier=earlier)
    found = fitted(train, name=f"{name}-{member}")
    for number in range(recipe.rounds):
        inputs = require_unlabelled(task).to(device).network_inputs()
        seen = Evaluation(spec, task, [found], device).predict_inputs(inputs, spec.evaluation.draws)
        more = baselines.with_pseudo_labels(train, inputs, seen.log_probs, recipe.threshold)
        found = fitted(more, name=f"{name}-{member}-round-{number}")
    return found


def _fitted(
    spec: RunSpec,
    task: RunTask,
    saved: _Checkpoints,
    train: tuple[Tensor, Tensor],
    *,
    device: str,
    member: int,
    earlier: Tensor | None,
    name: str,
) -> Member:
    """Train a network on these examples; first without its summary, if the recipe says so."""
    recipe = spec.recipe
    seed = spec.seed if member == 0 else derive(spec.seed, "member", member) % (1 << 31)
    num_classes = task.train.num_classes
    inputs, labels = train
    network = build.build_network(spec.model, recipe, input_size=inputs[0].numel(), num_classes=num_classes, seed=seed)
    if recipe.adaptation:  # raise errors before training
        adaptation.batchnorm_layers(network)
        require_unlabelled(task)
    build_objective = partial(
        build.build_objective,
        num_data=len(labels),
        num_classes=num_classes,
        data=spec.data,
        counts=task.train.class_counts,
        earlier=earlier,
        shift=build.build_label_shift(recipe, labels, num_classes=num_classes, data=spec.data),
    )
    objective = build_objective(recipe)
    posterior = build.build_posterior(network, recipe, num_data=len(labels))
    selects = recipe.select != "last" or recipe.schedule == "plateau"
    there = None
    if recipe.summary_inputs == "val":
        there = task.val
    elif recipe.summary_inputs == "use" or recipe.objective in baselines.ON_UNLABELLED:
        there = _pool(spec, task)
    stages = [(objective, recipe.steps - recipe.swag_steps, there)]
    if recipe.pretraining:
        without = replace(
            recipe, objective="elbo" if recipe.bayesian else "cross_entropy", partition="", belief="", pretraining=0
        )
        before = build.build_objective(without, num_data=len(labels), num_classes=num_classes, data=spec.data)
        stages.insert(0, (before, recipe.pretraining, None))
    settings: dict[str, Any] = {
        "batch_size": recipe.batch_size,
        "num_samples": recipe.draws if recipe.bayesian else 1,
        "augment": recipe.augment or None,
        "precision": recipe.precision,
        "engine": build.choose_engine(spec.model, device),
        "seed": seed,
        "device": device,
    }
    if not recipe.posterior:
        settings["optimizer"] = Optimizer(recipe.optimizer, recipe.momentum, recipe.weight_decay)
    afterwards = posthoc.prepare_posthoc(network, recipe, inputs)
    # if more is trained afterwards, the final state is checkpointed too
    more = (
        recipe.members > 1 or recipe.rounds > 0 or len(stages) > 1 or recipe.swag_steps > 0 or name.startswith(EARLIER)
    )
    for number, (maximised, steps, unlabelled) in enumerate(stages):
        stage = f"{name}-stage-{number}"
        path = saved.path(stage)
        done = fit(
            posterior,
            maximised,
            (inputs, labels),
            task.val.tensors() if selects else None,
            unlabelled=None if unlabelled is None else unlabelled.to(device).network_inputs(),
            steps=steps,
            learning_rate=recipe.learning_rate,
            schedule=recipe.schedule,
            warmup_steps=recipe.rate_warmup,
            validation=Validation(
                every=recipe.eval_every or None,
                select=PAPER_SELECTIONS[one_of("select", recipe.select, PAPER_SELECTIONS)],
            ),
            checkpoint=None if path is None else Checkpoint(path, every=CHECKPOINT_EVERY_S, at_end=more),
            callbacks=(),
            **settings,
        )
        saved.note(stage, done)
    if isinstance(afterwards, SWAG):  # without a checkpoint, which would not hold what was collected
        fit(
            posterior,
            build_objective(replace(recipe, summary_warmup=0)),
            (inputs, labels),
            unlabelled=None if there is None else there.to(device).network_inputs(),
            steps=recipe.swag_steps,
            learning_rate=recipe.swag_rate,
            callbacks=[afterwards.collect],
            log_every=recipe.swag_every or max(1, len(labels) // recipe.batch_size),
            **{**settings, "seed": derive(seed, "swag") % (1 << 31)},
        )
    if afterwards is not None:
        posthoc.complete_posthoc(afterwards, recipe, inputs)
        posterior = afterwards
    posthoc.set_scale(
        posterior,
        recipe,
        task.val.to(device).network_inputs(),
        num_data=len(labels),
        num_classes=num_classes,
        data=spec.data,
    )
    as_network = isinstance(posterior, Deterministic) or (isinstance(posterior, MeanField) and posterior.scale == 1)
    return Member(network if as_network else posterior, objective)
