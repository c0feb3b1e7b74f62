"""From a table to a model folder: encodes rows, trains and tests a `SummaryClassifier`, and writes the folder."""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from selbo.estimator import Statement, SummaryClassifier, storage
from selbo.evaluation import calibrate, check_belief
from selbo.evaluation.check_belief import shortfall
from selbo.evaluation.predict import Prediction, at_temperature
from selbo.presets import METHODS, Method
from selbo.report import outcomes
from selbo.results import ClassificationTask, Comparison, Measurement, Outcome
from selbo.summary.likelihood import SummaryLikelihood
from selbo.tabular import saved_model
from selbo.tabular.metrics import RowCounts, TableMetrics, TrainingMetrics, ValidationMetrics
from selbo.tabular.preprocessing import Preprocessing, find_classes, fit_preprocessing, label_names
from selbo.tabular.splits import split
from selbo.tabular.table import Numbers, Table, read_table

TEST_CONDITION: Final = "test"
SHOWN: Final = ("nll", "accuracy", "ece", "brier", "auroc", "f1_macro", "aurc")
"""Metrics in the report; ``metrics.json`` holds all of them."""

MOST_GROUPS: Final = 100
"""Maximum number of groups of an evaluation: more are rather numbers than names."""

MISSING_GROUP: Final = "(missing)"
"""Group of rows without a value."""


@dataclass(frozen=True)
class Job:
    """A training job; the same job on the same data gives the same result.

    Attributes:
        data: The table.
        target: The column with the labels.
        classifier: Not fitted; its ``random_state`` is a seed, and every label is a class.
        unlabelled: A table of unlabelled rows that the belief is about, instead of those of ``data``; its labels are
            ignored.
        drop: Columns to leave out.
        test_fraction: Share of the rows for testing.
        val_fraction: Share of the rows for validation.
    """

    data: Path
    target: str
    classifier: SummaryClassifier
    unlabelled: Path | None = None
    drop: Sequence[str] = ()
    test_fraction: float = 0.2
    val_fraction: float = 0.1

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
        for file in filter(None, files.values()):
            if not file.is_file():
                read_table(file)  # raises the error
        settings = storage.settings_of(self.classifier)
        return {
            "target": self.target,
            "seed": settings.pop("random_state"),
            **settings,
            "drop": list(self.drop),
            "test_fraction": self.test_fraction,
            "val_fraction": self.val_fraction,
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

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.preprocessing.classes)


def prepare(job: Job) -> Task:
    """Read and encode a table. All errors in the data or the belief are raised here, before training."""
    table = read_table(job.data)
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
    train, val, test = ((inputs[part], labels[part]) for part in (rows.train, rows.val, rows.test))
    unlabelled = None
    if job.unlabelled is not None:
        unlabelled, told = preprocessing.transform(read_table(job.unlabelled, columns=preprocessing.columns))
        more += [f"{job.unlabelled.name}: {text}" for text in told]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        stated = job.classifier.statement(train[0], preprocessing.class_labels[train[1]], X_unlabelled=unlabelled)
    notes += [str(each.message) for each in said]
    if job.classifier.accuracy is None and job.classifier.class_fractions is None:
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
    )


def describe_statement(job: Job, stated: Statement, classes: Sequence[str]) -> str:
    """Describe the belief in words."""
    classifier, about = job.classifier, "all cases" if job.unlabelled is None else f"the cases in {job.unlabelled.name}"
    source = "as in the training rows" if classifier.class_fractions is None else "as stated"
    if stated.fraction_uncertainty and classifier.accuracy is None:
        source += f", give or take {100 * stated.fraction_uncertainty:g}"
    fractions = f"{_fractions_in_words(classes, stated.class_fractions)} ({source})"
    if classifier.accuracy is None:
        return f"Of {about}, {fractions}."
    return f"About {100 * classifier.accuracy:g} % of {about} can be decided rightly; {fractions}."


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
    """Predictions for the parts of a task."""

    val: Prediction
    test: Prediction
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
    saved_model.write_json(folder / saved_model.SETTINGS, {"format": saved_model.SETTINGS_FORMAT, "settings": identity})
    classifier, names = job.classifier, task.preprocessing.class_labels
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message=".* held-out rows are classified")  # checked below, on more rows
        classifier.fit(
            task.train[0],
            names[task.train[1]],
            X_unlabelled=task.unlabelled,
            X_val=task.val[0],
            y_val=names[task.val[1]],
            checkpoint=folder / saved_model.CHECKPOINT,
            log=folder / saved_model.LOG,
            progress=progress,
        )
    begin = time.perf_counter()
    predicted = Predicted(  # labelled rows are evaluated in the source domain, without correction
        val=classifier.posterior_predictive(task.val[0], target_domain=False),
        test=classifier.posterior_predictive(task.test[0], target_domain=False),
        unlabelled=None if task.unlabelled is None else classifier.posterior_predictive(task.unlabelled),
    )
    unlabelled = None
    if task.unlabelled is not None:
        name, checksum = task.place or "", identity["unlabelled_sha256"]
        unlabelled = saved_model.TableFile(name=name, sha256=checksum, rows=len(task.unlabelled))
    checks = belief_checks(task, job, predicted)
    temperature = fitted_temperature(predicted.val, task.val[1])
    metrics = TrainingMetrics(
        **vars(evaluation_of(predicted.test, task.test[1], temperature, task.preprocessing.classes)),
        rows=RowCounts(
            train=len(task.train[1]),
            val=len(task.val[1]),
            test=len(task.test[1]),
            unlabelled=None if unlabelled is None else unlabelled.rows,
        ),
        features=len(task.preprocessing.features),
        method=classifier.method,
        belief=task.words,
        warnings=tuple(text for each in said if (text := str(each.message)) not in task.notes),
        contradictions=checks.contradictions,
        shortfall=checks.shortfall,
        validation=validation_metrics(task, predicted.val),
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
    if not job.method.believes or task.unlabelled is not None:
        return BeliefChecks()
    labels = torch.cat([task.val[1], task.test[1]])
    log_probs = torch.cat([predicted.val.log_probs, predicted.test.log_probs])
    results = check_belief(task.summaries[0], labels, log_probs=log_probs, seed=job.seed)
    missed = [shortfall(each, labels) for each in results]
    return BeliefChecks(
        tuple(str(each) for each, text in zip(results, missed, strict=True) if each.contradicted and text is None),
        next((text for text in missed if text is not None), None),
    )


def validation_metrics(task: Task, prediction: Prediction) -> ValidationMetrics:
    """Metrics of the validation rows."""
    labels, counts = task.val[1], torch.bincount(task.train[1], minlength=task.num_classes).clamp(min=1).double()
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
    model: saved_model.Trained, data: Path, *, num_samples: int, seed: int | None, by: str | None = None
) -> Evaluated:
    """Evaluate a model on a labelled table.

    Args:
        model: The model.
        data: The table.
        num_samples: Number of weight samples.
        seed: Seed for the weight samples; the training seed if not given.
        by: Column whose values are groups, which are evaluated on their own too.
    """
    begin = time.perf_counter()
    wanted = (*model.preprocessing.columns, model.preprocessing.target, *([] if by is None else [by]))
    table = read_table(data, columns=wanted)
    groups = None if by is None else group_names(table, by)
    labels = torch.from_numpy(model.preprocessing.labels(table))
    inputs, notes = model.preprocessing.transform(table)
    if saved_model.digest(data) == model.manifest.data.sha256:
        notes.append("evaluated on the training file; metrics are optimistic")
    prediction = model.predict(inputs, num_samples=num_samples, seed=seed)
    found = evaluation_of(prediction, labels, model.manifest.temperature, model.preprocessing.classes, groups)
    results = _results_of_file(model, table, prediction, labels, found, by=by, seconds=time.perf_counter() - begin)
    return Evaluated(found, notes, results)


def group_names(table: Table, by: str) -> list[str]:
    """Group of each row: the values of a column as text.

    Raises:
        ValueError: If there is no such column, or it has too many values to be groups.
    """
    names = [MISSING_GROUP if text is None or not text.strip() else text for text in table[by].texts()]
    if len(set(names)) > MOST_GROUPS:
        raise ValueError(
            f"`by` must be a column with at most {MOST_GROUPS} different values, but {by!r} has {len(set(names))}"
        )
    return names


def _results_of_file(
    model: saved_model.Trained,
    table: Table,
    prediction: Prediction,
    labels: Tensor,
    found: TableMetrics,
    *,
    by: str | None,
    seconds: float,
) -> Comparison:
    """The results that the report of an evaluation shows: one method, one seed, no belief."""
    classes, method, seed = found.classes, METHODS[model.classifier.method].title, model.classifier.random_state
    assert isinstance(seed, int)
    counts = labels.bincount(minlength=len(classes))
    return Comparison(
        title=f"{model.manifest.target} in {table.name}",
        description=f"A model trained on {model.manifest.data.name} predicts {model.manifest.target} of {table.name}.",
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
    classes, counts = task.preprocessing.classes, task.train[1].bincount(minlength=task.num_classes)
    summary, prediction, hidden = task.summaries[0], predicted.test, job.classifier.hidden
    believed = prediction if predicted.unlabelled is None else predicted.unlabelled
    but = ""
    if task.unlabelled is not None:
        but = f"; the belief, however, is about the {len(task.unlabelled)} rows of {task.place}, and compared with them"
    return Comparison(
        title=f"{job.target} from {task.name}",
        description=(
            f"A network with {'hidden layers' if len(hidden) > 1 else 'one hidden layer'} of "
            f"{' and '.join(map(str, hidden))} units learned to predict {job.target} from "
            f"{len(task.preprocessing.inputs)} columns, by the method {job.method.title}. Everything below is about "
            f"the test rows, which it did not see{but}."
        ),
        takeaway=outcomes.takeaway_of(
            metrics.per_class,
            most_frequent=classes[int(counts.argmax())],
            confidence=prediction.probs.amax(-1).double().mean().item(),
        ),
        conclusion=in_words(metrics),
        task=ClassificationTask(
            num_train=len(task.train[1]),
            num_test=len(task.test[1]),
            num_classes=len(classes),
            class_names=tuple(classes),
            class_counts=tuple(counts.tolist()),
        ),
        belief=outcomes.describe_belief(summary, task.words, classes),
        methods=(job.method.title,),
        seeds=(job.seed,),
        runs=(
            Outcome(
                method=job.method.title,
                seed=job.seed,
                conditions={TEST_CONDITION: _measurement(metrics.metrics)},
                histogram=outcomes.region_masses(believed, summary.partition),
                per_class=metrics.per_class,
                confusion=metrics.confusion,
                reliability=outcomes.reliability_of(prediction, task.test[1]),
                risk_curve=outcomes.risk_curve_of(prediction, task.test[1]),
                entropy=outcomes.entropies(prediction, None),
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
    return said + _scaling_in_words(found)


def _scaling_in_words(found: TrainingMetrics) -> str:
    """Problems in the predictions of the validation rows, and the effect of temperature scaling."""
    rows, before, after, val = found.rows.val, found.metrics, found.calibrated or {}, found.validation
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
