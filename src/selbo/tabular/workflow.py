"""From a table to a model folder: encodes rows, trains and tests a `SummaryClassifier`, and writes the folder."""

import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from selbo._files import require_table
from selbo.estimator import Statement, SummaryClassifier, storage
from selbo.evaluation import calibrate, check_belief
from selbo.evaluation.check_belief import shortfall
from selbo.evaluation.predict import Prediction, at_temperature
from selbo.presets import METHODS, Method
from selbo.report import outcomes
from selbo.results import ClassificationTask, Comparison, Measurement, Outcome
from selbo.summary.likelihood import SummaryLikelihood
from selbo.tabular import saved_model
from selbo.tabular.group_results import TaskGroups, compare_groups, contradictions_in_words, groups_takeaway
from selbo.tabular.groups import GroupSource, known_labels, read_groups
from selbo.tabular.json_files import write_json
from selbo.tabular.metrics import RowCounts, TableMetrics, TrainingMetrics, ValidationMetrics
from selbo.tabular.preprocessing import Preprocessing, find_classes, fit_preprocessing, label_names
from selbo.tabular.splits import FEWEST_LABELS, split, split_groups
from selbo.tabular.table import Numbers, Table, read_table

TEST_CONDITION: Final = "test"
SHOWN: Final = ("nll", "accuracy", "ece", "brier", "auroc", "f1_macro", "aurc")
"""Metrics in the report; ``metrics.json`` holds all of them."""

MOST_EVALUATED_GROUPS: Final = 100
"""Maximum number of groups of an evaluation: more are rather numbers than names."""

MISSING_GROUP: Final = "(missing)"
"""Group of rows without a value."""


@dataclass(frozen=True)
class Job:
    """A training job; the same job on the same data gives the same result.

    Attributes:
        data: The table.
        target: The column with the labels; may be None with groups.
        classifier: Not fitted; its ``random_state`` is a seed, and every label is a class.
        unlabelled: A table of unlabelled rows that the belief is about, instead of those of ``data``; its labels are
            ignored.
        drop: Columns to leave out.
        test_fraction: Share of the rows for testing.
        val_fraction: Share of the rows for validation.
        groups: Where class fractions of groups of rows are stated, if they are; labels may then be missing.
    """

    data: Path
    target: str | None
    classifier: SummaryClassifier
    unlabelled: Path | None = None
    drop: Sequence[str] = ()
    test_fraction: float = 0.2
    val_fraction: float = 0.1
    groups: GroupSource | None = None

    @property
    def method(self) -> Method:
        """The training method."""
        return METHODS[self.classifier.method]

    @property
    def seed(self) -> int:
        """Seed for all randomness."""
        assert isinstance(self.classifier.random_state, int)
        return self.classifier.random_state

    def identity(self) -> dict[str, Any]:
        """Settings and checksums of the data. A folder with another identity is not resumed."""
        files = {"data_sha256": self.data, "unlabelled_sha256": self.unlabelled}
        stated = {}
        if self.groups is not None:
            files["group_fractions_sha256"] = self.groups.fractions
            stated = {"groups": self.groups.column, "group_concentration": self.groups.concentration}
        for file in filter(None, files.values()):
            require_table(file)
        settings = storage.settings_of(self.classifier)
        return {
            "target": self.target,
            "seed": settings.pop("random_state"),
            **settings,
            "drop": list(self.drop),
            "test_fraction": self.test_fraction,
            "val_fraction": self.val_fraction,
            **stated,
            **{name: saved_model.digest(file) for name, file in files.items() if file is not None},
        }


@dataclass(frozen=True)
class Task:
    """A table, ready to train on.

    Attributes:
        name: Name of the file.
        preprocessing: Encodes rows as features.
        train: Features and class indices for training.
        val: Features and class indices for validation.
        test: Features and class indices for testing.
        summaries: The belief; the summary of confidence comes first.
        words: Description of the belief.
        notes: Notes for the user.
        unlabelled: Features of the unlabelled rows that the belief is about, if any.
        place: Name of the file of the unlabelled rows.
        groups: The groups of the rows, if class fractions of groups are stated. Training rows may then have no label,
            which is -1, and there may be no validation and test rows.
    """

    name: str
    preprocessing: Preprocessing
    train: tuple[Numbers, Tensor]
    val: tuple[Numbers, Tensor]
    test: tuple[Numbers, Tensor]
    summaries: list[SummaryLikelihood]
    words: str
    notes: tuple[str, ...] = field(default=())
    unlabelled: Numbers | None = None
    place: str | None = None
    groups: TaskGroups | None = None

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.preprocessing.classes)

    @property
    def is_tested(self) -> bool:
        """Whether there are labelled rows to validate and to test on."""
        return len(self.val[1]) > 0 and len(self.test[1]) > 0

    def arguments(self) -> dict[str, Any]:
        """Arguments of `SummaryClassifier.fit` about the training rows."""
        return fit_arguments(self.train, self.preprocessing, self.groups)


def fit_arguments(
    train: tuple[Numbers, Tensor], preprocessing: Preprocessing, groups: TaskGroups | None
) -> dict[str, Any]:
    """Arguments of `SummaryClassifier.fit` about the training rows: inputs, labels, and groups if there are any."""
    inputs, labels = train
    names = preprocessing.class_labels
    if groups is None:
        return {"X": inputs, "y": names[labels]}
    known = [None if label < 0 else names[label] for label in labels.tolist()]
    return {"X": inputs, "y": np.array([*known, None], dtype=object)[:-1], **groups.table.arguments(groups.train)}


def prepare(job: Job) -> Task:
    """Read and encode a table. All errors in the data or the belief are raised here, before training."""
    table = read_table(job.data)
    encoded = _encode(job, table) if job.groups is None else _encode_groups(job, table, job.groups)
    preprocessing, groups, notes, more = encoded.preprocessing, encoded.groups, encoded.notes, []
    train, val, test = encoded.parts
    unlabelled = None
    if job.unlabelled is not None:
        unlabelled, told = preprocessing.transform(read_table(job.unlabelled, columns=preprocessing.columns))
        more += [f"{job.unlabelled.name}: {text}" for text in told]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        stated = job.classifier.statement(**fit_arguments(train, preprocessing, groups), X_unlabelled=unlabelled)
    notes += [str(each.message) for each in said]
    if groups is None and job.classifier.accuracy is None and job.classifier.class_fractions is None:
        notes.append("no prior knowledge given: pass `accuracy` or `class_fractions` to state some")
    elif not job.method.believes:
        notes.append(f"the method {job.classifier.method} does not use the belief: it is only shown in the report")
    return Task(
        name=job.data.name,
        preprocessing=preprocessing,
        train=train,
        val=val,
        test=test,
        summaries=stated.summaries,
        words=describe_statement(job, stated, preprocessing.classes),
        notes=(*notes, *more),
        unlabelled=unlabelled,
        place=None if job.unlabelled is None else job.unlabelled.name,
        groups=groups,
    )


class _Encoded(NamedTuple):
    preprocessing: Preprocessing
    parts: list[tuple[Numbers, Tensor]]
    notes: list[str]
    groups: TaskGroups | None = None


def _encode(job: Job, table: Table) -> _Encoded:
    """Encode a table with labels in all rows, and split it."""
    if job.target is None:
        raise ValueError("`target` must name the column with the classes, unless fractions of groups are stated")
    find_classes(table, job.target)
    rows = split(
        label_names(table, job.target),
        test_fraction=job.test_fraction,
        val_fraction=job.val_fraction,
        seed=job.seed,
    )
    preprocessing, notes = fit_preprocessing(table, target=job.target, rows=rows.train, drop=job.drop)
    inputs, more = preprocessing.transform(table)
    labels = torch.from_numpy(preprocessing.labels(table))
    return _Encoded(
        preprocessing, [(inputs[part], labels[part]) for part in (rows.train, rows.val, rows.test)], [*notes, *more]
    )


def _encode_groups(job: Job, table: Table, source: GroupSource) -> _Encoded:
    """Encode a table with groups, in which labels may be missing, and split it."""
    stated, of_rows = read_groups(source, table)
    known = known_labels(table, job.target, stated)
    rows = split_groups(of_rows, known, test_fraction=job.test_fraction, val_fraction=job.val_fraction, seed=job.seed)
    preprocessing, notes = fit_preprocessing(table, target=job.target, rows=rows.train, drop=job.drop, groups=stated)
    inputs, more = preprocessing.transform(table)
    if 0 < (count := int((known >= 0).sum())) < FEWEST_LABELS:
        more.append(f"all {count} labels are used for training: with {FEWEST_LABELS} or more, some would be held out")
    tested = rows.test[known[rows.test] >= 0]
    parts = [(inputs[part], torch.from_numpy(known[part])) for part in (rows.train, rows.val, tested)]
    groups = TaskGroups.of(stated, of_rows, inputs, rows)
    return _Encoded(preprocessing, parts, [*notes, *stated.notes, *more], groups)


def describe_statement(job: Job, stated: Statement, classes: Sequence[str]) -> str:
    """Describe the belief in words."""
    classifier, about = job.classifier, "all cases" if job.unlabelled is None else f"the cases in {job.unlabelled.name}"
    if job.groups is not None:
        return _groups_in_words(job, stated, classes)
    source = "as in the training rows" if classifier.class_fractions is None else "as stated"
    if stated.fraction_uncertainty and classifier.accuracy is None:
        source += f", give or take {100 * stated.fraction_uncertainty:g}"
    fractions = f"{_fractions_in_words(classes, stated.class_fractions)} ({source})"
    if classifier.accuracy is None:
        return f"Of {about}, {fractions}."
    return f"About {100 * classifier.accuracy:g} % of {about} can be decided rightly; {fractions}."


def _groups_in_words(job: Job, stated: Statement, classes: Sequence[str]) -> str:
    assert job.groups is not None
    assert stated.groups is not None
    classifier, strength = job.classifier, stated.groups.concentration
    low, high = float(strength.min()), float(strength.max())
    worth = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    said = (
        f"The class fractions of {stated.groups.num_groups} groups ({job.groups.column}) are as stated in "
        f"{job.groups.fractions.name}, with a concentration of {worth}."
    )
    if classifier.class_fractions is not None:
        said += f" Of all cases, {_fractions_in_words(classes, stated.class_fractions)} (as stated)."
    if classifier.accuracy is not None:
        said += f" About {100 * classifier.accuracy:g} % of all cases can be decided rightly."
    return said


def _fractions_in_words(names: Sequence[str], fractions: Sequence[float]) -> str:
    classes = [f"class {name}" if name[-1:].isdigit() else name for name in names]  # not two numbers in a row
    shown = [f"{name} makes up {100 * share:.3g} %" for name, share in zip(classes, fractions, strict=True)]
    if len(shown) <= 4:
        return f"{', '.join(shown[:-1])} and {shown[-1].replace('makes up ', '')}"
    order = sorted(range(len(classes)), key=lambda k: fractions[k])
    return (
        f"the most frequent class, {classes[order[-1]]}, makes up {100 * fractions[order[-1]]:.3g} % and the rarest, "
        f"{classes[order[0]]}, {100 * fractions[order[0]]:.3g} %"
    )


# --- training ---


class Predicted(NamedTuple):
    """Predictions for the parts of a task; None for a part without rows."""

    val: Prediction | None
    test: Prediction | None
    unlabelled: Prediction | None = None


def train_model(
    task: Task,
    job: Job,
    folder: Path,
    *,
    identity: dict[str, Any],
    replace: bool = False,
    progress: bool | None = None,
) -> TrainingMetrics:
    """Train, test, and write the folder. A killed run resumes from its checkpoint.

    Args:
        task: The data and the belief.
        job: The settings; its classifier is fitted.
        folder: Output folder; it must exist and be writable.
        identity: Identity of the job.
        replace: Whether to remove another model from the folder first.
        progress: Show a progress bar; None for one on a terminal only.

    Returns:
        The content of ``metrics.json``.
    """
    if replace:
        saved_model.clear(folder)
    saved_model.remove_unfinished(folder)
    write_json(folder / saved_model.SETTINGS, {"format": saved_model.SETTINGS_FORMAT, "settings": identity})
    classifier, names = job.classifier, task.preprocessing.class_labels
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message=".* held-out rows are classified")  # checked below, on more rows
        validation = {"X_val": task.val[0], "y_val": names[task.val[1]]} if len(task.val[1]) else {}
        classifier.fit(
            **task.arguments(),
            **validation,
            X_unlabelled=task.unlabelled,
            checkpoint=folder / saved_model.CHECKPOINT,
            log=folder / saved_model.LOG,
            progress=progress,
        )
    begin = time.perf_counter()
    predicted = Predicted(  # labelled rows are evaluated in the source domain, without correction
        val=classifier.posterior_predictive(task.val[0], target_domain=False) if task.is_tested else None,
        test=classifier.posterior_predictive(task.test[0], target_domain=False) if task.is_tested else None,
        unlabelled=None if task.unlabelled is None else classifier.posterior_predictive(task.unlabelled),
    )
    unlabelled = None
    if task.unlabelled is not None:
        name, checksum = task.place or "", identity["unlabelled_sha256"]
        unlabelled = saved_model.TableFile(name=name, sha256=checksum, rows=len(task.unlabelled))
    checks = belief_checks(task, job, predicted)
    groups = None if task.groups is None else compare_groups(task.groups, classifier)
    metrics = TrainingMetrics(
        **vars(test_metrics(task, predicted)),
        rows=row_counts(task),
        features=len(task.preprocessing.features),
        method=classifier.method,
        belief=task.words,
        warnings=tuple(text for each in said if (text := str(each.message)) not in task.notes),
        contradictions=checks.contradictions,
        shortfall=checks.shortfall,
        validation=None if predicted.val is None else validation_metrics(task, predicted.val),
        stated_groups=groups,
    )

    def report(path: Path) -> None:
        from selbo.report.page import write_page

        seconds = classifier.seconds_ + time.perf_counter() - begin
        write_page(results_of(task, job, predicted, metrics, seconds=seconds), path)

    saved_model.write_model(
        folder,
        classifier=classifier,
        preprocessing=task.preprocessing,
        metrics=metrics,
        write_report=report,
        data=saved_model.TableFile(name=task.name, sha256=identity["data_sha256"]),
        unlabelled=unlabelled,
    )
    return metrics


# --- results ---


class BeliefChecks(NamedTuple):
    """Result of `belief_checks`; see `TrainingMetrics`."""

    contradictions: tuple[str, ...] = ()
    shortfall: str | None = None


def belief_checks(task: Task, job: Job, predicted: Predicted) -> BeliefChecks:
    """Check the belief against the validation and test rows, which were not used for training.

    A belief about unlabelled rows is not checked.
    """
    if not job.method.believes or task.unlabelled is not None or not task.summaries:
        return BeliefChecks()
    if predicted.val is None or predicted.test is None:
        return BeliefChecks()
    labels = torch.cat([task.val[1], task.test[1]])
    log_probs = torch.cat([predicted.val.log_probs, predicted.test.log_probs])
    results = check_belief(task.summaries[0], labels, log_probs=log_probs, seed=job.seed)
    missed = [shortfall(each, labels) for each in results]
    return BeliefChecks(
        tuple(str(each) for each, text in zip(results, missed, strict=True) if each.contradicted and text is None),
        next((text for text in missed if text is not None), None),
    )


def row_counts(task: Task) -> RowCounts:
    """Number of rows in each part of the data."""
    train, val, test = (len(part[1]) for part in (task.train, task.val, task.test))
    if task.groups is None:
        return RowCounts(
            train=train, val=val, test=test, unlabelled=None if task.unlabelled is None else len(task.unlabelled)
        )
    held_out = len(task.groups.held_out[1])
    unlabelled = int((task.train[1] < 0).sum()) + held_out - test
    return RowCounts(train=train, val=val, test=held_out, unlabelled=unlabelled)


def test_metrics(task: Task, predicted: Predicted) -> TableMetrics:
    """Results on the test rows; empty without labels."""
    classes = task.preprocessing.classes
    if predicted.val is None or predicted.test is None:
        return TableMetrics(
            metrics={}, temperature=None, calibrated=None, per_class=(), confusion=(), classes=tuple(classes)
        )
    return evaluation_of(predicted.test, task.test[1], fitted_temperature(predicted.val, task.val[1]), classes)


def validation_metrics(task: Task, prediction: Prediction) -> ValidationMetrics:
    """Metrics of the validation rows."""
    labels, known = task.val[1], task.train[1][task.train[1] >= 0]
    counts = torch.bincount(known, minlength=task.num_classes).clamp(min=1).double()
    return ValidationMetrics(
        nll=F.nll_loss(prediction.log_probs.double(), labels).item(),
        constant_nll=-(counts / counts.sum()).log()[labels].mean().item(),
        accuracy=(prediction.classes == labels).double().mean().item(),
        best_temperature=calibrate.temperature(prediction.log_probs, labels, prior_strength=0),
    )


def fitted_temperature(prediction: Prediction, labels: Tensor) -> float:
    """Fit the temperature on the validation rows."""
    return calibrate.temperature(prediction.log_probs, labels)


def evaluation_of(
    prediction: Prediction,
    labels: Tensor,
    temperature: float | None,
    classes: Sequence[str],
    groups: Sequence[str] | None = None,
) -> TableMetrics:
    """Results before and, if the temperature is known, after temperature scaling; those of groups before."""
    found = outcomes.by_class(prediction, labels, classes)
    scaled = None if temperature is None else at_temperature(prediction, temperature)
    return TableMetrics(
        metrics=outcomes.metrics_of(prediction, labels),
        temperature=temperature,
        calibrated=None if scaled is None else outcomes.metrics_of(scaled, labels),
        per_class=found.per_class,
        confusion=found.confusion,
        classes=tuple(classes),
        groups=None if groups is None else outcomes.by_group(prediction, labels, groups),
    )


class Evaluated(NamedTuple):
    """An evaluation of a model on a labelled table.

    Attributes:
        metrics: The results.
        notes: Notes for the user.
        results: What a report shows.
    """

    metrics: TableMetrics
    notes: list[str]
    results: Comparison


def evaluate_file(
    model: saved_model.Trained,
    data: Path,
    *,
    num_samples: int,
    seed: int | None,
    target: str | None = None,
    by: str | None = None,
) -> Evaluated:
    """Evaluate a model on a labelled table.

    Args:
        model: The model.
        data: The table.
        num_samples: Number of weight samples.
        seed: Seed for the weight samples; the training seed if not given.
        target: Column with the labels; that of training if not given.
        by: Column whose values are groups, which are evaluated on their own too.
    """
    begin = time.perf_counter()
    labelled = model.preprocessing if target is None else dataclasses.replace(model.preprocessing, target=target)
    if not labelled.target:
        raise ValueError("`target` must name the column with the classes, as the model was trained without labels")
    wanted = (*model.preprocessing.columns, labelled.target, *([] if by is None else [by]))
    table = read_table(data, columns=wanted)
    groups = None if by is None else group_names(table, by)
    labels = torch.from_numpy(labelled.labels(table))
    inputs, notes = labelled.transform(table)
    if saved_model.digest(data) == model.manifest.data.sha256:
        notes.append("evaluated on the training file; metrics are optimistic")
    prediction = model.predict(inputs, num_samples=num_samples, seed=seed)
    found = evaluation_of(prediction, labels, model.manifest.temperature, model.preprocessing.classes, groups)
    results = _results_of_file(
        model,
        table,
        prediction,
        labels,
        found,
        target=labelled.target,
        by=by,
        seconds=time.perf_counter() - begin,
    )
    return Evaluated(found, notes, results)


def group_names(table: Table, by: str) -> list[str]:
    """Group of each row: the values of a column as text.

    Raises:
        ValueError: If there is no such column, or it has too many values to be groups.
    """
    names = [MISSING_GROUP if text is None or not text.strip() else text for text in table[by].texts()]
    if len(set(names)) > MOST_EVALUATED_GROUPS:
        raise ValueError(
            f"`by` must be a column with at most {MOST_EVALUATED_GROUPS} different values, but {by!r} has "
            f"{len(set(names))}"
        )
    return names


def _results_of_file(
    model: saved_model.Trained,
    table: Table,
    prediction: Prediction,
    labels: Tensor,
    found: TableMetrics,
    *,
    target: str,
    by: str | None,
    seconds: float,
) -> Comparison:
    """The results that the report of an evaluation shows: one method, one seed, no belief."""
    classes, method, seed = found.classes, METHODS[model.classifier.method].title, model.classifier.random_state
    assert isinstance(seed, int)
    counts = labels.bincount(minlength=len(classes))
    return Comparison(
        title=f"{target} in {table.name}",
        description=f"A model trained on {model.manifest.data.name} predicts {target} of {table.name}.",
        takeaway=outcomes.takeaway_of(
            found.per_class,
            most_frequent=classes[int(counts.argmax())],
            confidence=prediction.probs.amax(-1).double().mean().item(),
        ),
        task=ClassificationTask(
            num_test=len(labels),
            num_classes=len(classes),
            class_names=classes,
            class_counts=tuple(counts.tolist()),
        ),
        methods=(method,),
        seeds=(seed,),
        runs=(
            Outcome(
                method=method,
                seed=seed,
                conditions={TEST_CONDITION: _measurement(found.metrics)},
                per_class=found.per_class,
                confusion=found.confusion,
                groups=found.groups,
                grouped_by=by,
                reliability=outcomes.reliability_of(prediction, labels),
                risk_curve=outcomes.risk_curve_of(prediction, labels),
                seconds=seconds,
            ),
        ),
        clean=TEST_CONDITION,
        made_by=outcomes.made_by(seconds),
    )


def _measurement(metrics: Mapping[str, Any]) -> Measurement:
    return Measurement(level=None, metrics={name: metrics[name] for name in SHOWN})


def results_of(task: Task, job: Job, predicted: Predicted, metrics: TrainingMetrics, *, seconds: float) -> Comparison:
    """The results that the report shows: one method, one seed."""
    classes, known = task.preprocessing.classes, task.train[1][task.train[1] >= 0]
    counts = known.bincount(minlength=task.num_classes)
    summary, prediction = task.summaries[0] if task.summaries else None, predicted.test
    believed = prediction if predicted.unlabelled is None else predicted.unlabelled
    rows, what = metrics.rows, job.target or "the class"
    shown = {name: metrics.metrics[name] for name in SHOWN if name in metrics.metrics}
    if metrics.stated_groups is not None:
        shown["group_error"] = metrics.stated_groups.error
    but = ""
    if task.unlabelled is not None:
        but = f"; the belief, however, is about the {len(task.unlabelled)} rows of {task.place}, and compared with them"
    hidden = job.classifier.hidden
    description = (
        f"A network with {'hidden layers' if len(hidden) > 1 else 'one hidden layer'} of "
        f"{' and '.join(map(str, hidden))} units learned to predict {what} from "
        f"{len(task.preprocessing.inputs)} columns, by the method {job.method.title}. Everything below is about "
        f"the test rows, which it did not see{but}."
    )
    takeaway = "" if metrics.stated_groups is None else f"{groups_takeaway(metrics.stated_groups, len(known))} "
    if prediction is not None:
        takeaway += outcomes.takeaway_of(
            metrics.per_class,
            most_frequent=classes[int(counts.argmax())],
            confidence=prediction.probs.amax(-1).double().mean().item(),
        )
    return Comparison(
        title=f"{job.target or 'Classes'} from {task.name}",
        description=description if summary is not None else f"{description}\n\nBelief: {task.words}",
        takeaway=takeaway,
        conclusion=in_words(metrics),
        task=ClassificationTask(
            num_train=rows.train,
            num_test=max(rows.test, 1),
            num_classes=len(classes),
            class_names=tuple(classes),
            class_counts=tuple(counts.tolist()),
        ),
        belief=None if summary is None else outcomes.describe_belief(summary, task.words, classes),
        methods=(job.method.title,),
        seeds=(job.seed,),
        runs=(
            Outcome(
                method=job.method.title,
                seed=job.seed,
                conditions={TEST_CONDITION: Measurement(level=None, metrics=shown)},
                histogram=None
                if believed is None or summary is None
                else outcomes.region_masses(believed, summary.partition),
                per_class=None if prediction is None else metrics.per_class,
                confusion=None if prediction is None else metrics.confusion,
                reliability=None if prediction is None else outcomes.reliability_of(prediction, task.test[1]),
                risk_curve=None if prediction is None else outcomes.risk_curve_of(prediction, task.test[1]),
                entropy=None if prediction is None else outcomes.entropies(prediction, None),
                stated_groups=metrics.stated_groups,
                seconds=seconds,
            ),
        ),
        clean=TEST_CONDITION,
        made_by=outcomes.made_by(seconds),
    )


def in_words(found: TrainingMetrics) -> str:
    """Warnings if held-out rows contradict the belief, and the effect of temperature scaling."""
    said = "".join(f"Warning: {text}. " for text in found.warnings)
    if against := "; ".join(found.contradictions):
        said += f"Warning: the held-out rows contradict the stated belief, if it was about such rows: {against}. "
    if found.shortfall is not None:
        said += f"Warning: {found.shortfall}. "
    if found.stated_groups is not None and (text := contradictions_in_words(found.stated_groups)):
        said += f"Warning: {text}. "
    if found.validation is None:
        return f"{said}There are no labels to test on: how many predictions are right is not known."
    return said + _scaling_in_words(found, found.validation)


def _scaling_in_words(found: TrainingMetrics, val: ValidationMetrics) -> str:
    """Problems in the predictions of the validation rows, and the effect of temperature scaling."""
    rows, before, after = found.rows.val, found.metrics, found.calibrated or {}
    said, hottest = "", calibrate.TEMPERATURE_BOUNDS[1]
    if val.nll > val.constant_nll:
        said = (
            f"On the {rows} validation rows the predictions are worse than a constant prediction: their NLL is "
            f"{val.nll:.3f}, that of the class frequencies of the training rows {val.constant_nll:.3f}. "
        )
        if val.best_temperature >= hottest:
            said += f"No temperature corrects that: the best one is its upper bound, {hottest:g}. "
    elif val.accuracy == 1:
        said = (
            f"All {rows} validation rows are classified correctly: they do not show how much confidence is too much, "
            "and only its prior bounds the temperature from below. "
        )
    return said + (
        f"Temperature scaling on the {rows} validation rows (T = {found.temperature:.3g}) would change the NLL "
        f"from {before['nll']:.3f} to {after['nll']:.3f} and the ECE from {100 * before['ece']:.1f} % to "
        f"{100 * after['ece']:.1f} %; it is not applied unless asked for."
    )
