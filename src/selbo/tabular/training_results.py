"""Results of a trained model: belief checks, metrics of the held-out rows, and what the report of training shows."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from selbo.estimator import SummaryClassifier
from selbo.estimator.pool import Pool
from selbo.evaluation import calibrate, check_belief
from selbo.evaluation.check_belief import shortfall
from selbo.evaluation.predict import Prediction
from selbo.presets import METHODS
from selbo.report import outcomes
from selbo.results import ClassificationTask, Comparison, Measurement, MethodResult, Outcome
from selbo.tabular import saved_model
from selbo.tabular.baselines import baseline_log_probs, compare_methods
from selbo.tabular.evaluation import SHOWN, TEST_CONDITION, compute_evaluation, fitted_temperature
from selbo.tabular.group_results import contradictions_in_words, groups_takeaway
from selbo.tabular.job import Job
from selbo.tabular.metrics import RowCounts, TableMetrics, TrainingMetrics, ValidationMetrics
from selbo.tabular.task import Task


class Predicted(NamedTuple):
    """Predictions for the parts of a task; None for a part without rows."""

    val: Prediction | None
    test: Prediction | None
    unlabelled: Prediction | None = None


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
    held_out = [(predicted.val, task.val[1]), (predicted.test, task.test[1])]
    if task.elsewhere:
        held_out = held_out[:1]  # these rows may be of another domain
    parts = [(seen, labels) for seen, labels in held_out if seen is not None]
    if not parts:
        return BeliefChecks()
    labels = torch.cat([labels for _, labels in parts])
    log_probs = torch.cat([seen.log_probs for seen, _ in parts])
    results = check_belief(task.summaries[0], labels, log_probs=log_probs, seed=job.seed)
    missed = [shortfall(each, labels) for each in results]
    return BeliefChecks(
        tuple(str(each) for each, text in zip(results, missed, strict=True) if each.contradicted and text is None),
        next((text for text in missed if text is not None), None),
    )


def row_counts(task: Task) -> RowCounts:
    """Number of rows in each part of the data."""
    train, val, test = task.num_train, len(task.val[1]), len(task.test[1])
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
    if predicted.test is None:
        return TableMetrics(
            metrics={}, temperature=None, calibrated=None, per_class=(), confusion=(), classes=tuple(classes)
        )
    temperature = None if predicted.val is None else fitted_temperature(predicted.val, task.val[1])
    return compute_evaluation(predicted.test, task.test[1], temperature, classes)


def evaluate_baselines(task: Task, job: Job, prediction: Prediction | None) -> tuple[MethodResult, ...]:
    """The test rows by the trained model and by simple baselines."""
    if prediction is None:
        return ()
    classifier, labelled = job.classifier, task.train[1] >= 0
    if not bool(labelled.any()):
        return ()
    # stated fractions are those of the test rows, unless they are about other rows than these
    fits = classifier.label_shift_ is None or task.elsewhere
    stated = fits and classifier.class_fractions is not None and task.groups is None
    others = baseline_log_probs(
        (classifier.scale_(task.train[0][labelled.numpy()]), task.train[1][labelled]),
        classifier.scale_(task.test[0]),
        num_classes=task.num_classes,
        class_fractions=_stated_fractions(task, job) if stated else None,
        seed=job.seed,
    )
    return compare_methods({job.title: prediction.log_probs, **others}, task.test[1])


def _stated_fractions(task: Task, job: Job) -> list[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # issued before training
        return task.statement(job.classifier).class_fractions


def prediction_columns(task: Task, prediction: Prediction | None) -> dict[str, Sequence[Any]]:
    """The test rows as columns: their number or identifier, their class, and predictions. Empty without test rows."""
    classes, (numbers, ids) = task.preprocessing.classes, task.test_rows
    found: dict[str, Sequence[Any]] = {"row": numbers}
    if ids is not None:
        found[task.preprocessing.id_column] = ids
    found["true_class"] = [classes[k] for k in task.test[1].tolist()]
    if prediction is not None:
        found |= saved_model.as_columns(prediction, classes)
    return found


def validation_metrics(task: Task, prediction: Prediction) -> ValidationMetrics:
    """Metrics of the validation rows."""
    labels, counts = task.val[1], task.train_counts.clamp(min=1).double()
    return ValidationMetrics(
        nll=F.nll_loss(prediction.log_probs.double(), labels).item(),
        constant_nll=-(counts / counts.sum()).log()[labels].mean().item(),
        accuracy=(prediction.classes == labels).double().mean().item(),
        best_temperature=calibrate.temperature(prediction.log_probs, labels, prior_strength=0),
    )


def build_results(
    task: Task, job: Job, predicted: Predicted, metrics: TrainingMetrics, *, seconds: float
) -> Comparison:
    """The results that the report shows: one method, one seed."""
    classes, counts = task.preprocessing.classes, task.train_counts
    summary, prediction = task.summaries[0] if task.summaries else None, predicted.test
    believed = prediction if predicted.unlabelled is None else predicted.unlabelled
    rows, what = metrics.rows, job.target or "the class"
    shown = {name: metrics.metrics[name] for name in SHOWN if name in metrics.metrics}
    if metrics.stated_groups is not None:
        shown["group_error"] = metrics.stated_groups.error
    but = ""
    if task.unlabelled is not None:
        but = f"; the belief, however, is about the {len(task.unlabelled)} rows of {task.place}, and compared with them"
    description = (
        f"{_learner(job.classifier)} learned to predict {what} from {len(task.preprocessing.inputs)} columns. "
        f"Everything below is about the test rows, which it did not see{but}."
    )
    takeaway = ""
    if task.groups is not None and metrics.stated_groups is not None:
        found = groups_takeaway(metrics.stated_groups, trained=task.groups.num_trained, labels=int(counts.sum()))
        takeaway = f"{found} "
    if prediction is not None:
        takeaway += outcomes.summarise_metrics(
            metrics.per_class,
            most_frequent=classes[int(counts.argmax())],
            confidence=prediction.probs.amax(-1).double().mean().item(),
        )
    return Comparison(
        title=f"{job.target or 'Classes'} from {task.name}",
        description=description if summary is not None else f"{description}\n\nBelief: {task.words}",
        takeaway=takeaway,
        conclusion=in_words(metrics),
        notes=metrics.notes or None,
        task=ClassificationTask(
            num_train=rows.train,
            num_test=max(rows.test, 1),
            num_classes=len(classes),
            class_names=tuple(classes),
            class_counts=tuple(counts.tolist()),
        ),
        belief=None if summary is None else outcomes.describe_belief(summary, task.words, classes),
        methods=(job.title,),
        seeds=(job.seed,),
        runs=(
            Outcome(
                method=job.title,
                seed=job.seed,
                conditions={TEST_CONDITION: Measurement(level=None, metrics=shown)},
                histogram=None
                if believed is None or summary is None
                else outcomes.region_masses(believed, summary.partition),
                per_class=None if prediction is None else metrics.per_class,
                confusion=None if prediction is None else metrics.confusion,
                reliability=None if prediction is None else outcomes.compute_reliability(prediction, task.test[1]),
                risk_curve=None if prediction is None else outcomes.compute_risk_curve(prediction, task.test[1]),
                entropy=None if prediction is None else outcomes.entropies(prediction, None),
                stated_groups=metrics.stated_groups,
                baselines=metrics.baselines or None,
                seconds=seconds,
            ),
        ),
        clean=TEST_CONDITION,
        made_by=outcomes.made_by(seconds),
    )


def _learner(classifier: SummaryClassifier) -> str:
    """What was trained, as the subject of a sentence."""
    if isinstance(classifier.network_, Pool):
        weights = zip(classifier.network_.members, classifier.network_.weights.tolist(), strict=True)
        shares = ", ".join(f"{name.replace('_', ' ')} {100 * weight:.0f} %" for name, weight in weights)
        return f"A pool of classifiers ({shares}, weighted by held-out rows)"
    hidden = classifier.hidden
    layers = "hidden layers" if len(hidden) > 1 else "one hidden layer"
    title = METHODS[classifier.method].title
    return f"A network with {layers} of {' and '.join(map(str, hidden))} units, trained by the method {title},"


def in_words(found: TrainingMetrics) -> str:
    """Warnings if held-out rows contradict the belief, and the effect of temperature scaling."""
    said = "".join(f"Warning: {text}. " for text in found.warnings)
    if against := "; ".join(found.contradictions):
        said += f"Warning: the held-out rows contradict the stated belief, if it was about such rows: {against}. "
    if found.shortfall is not None:
        said += f"Warning: {found.shortfall}. "
    if found.stated_groups is not None and (text := contradictions_in_words(found.stated_groups)):
        said += f"Warning: {text}. "
    if not found.metrics:
        return f"{said}There are no labels to test on: how many predictions are right is not known."
    if found.validation is None:
        return f"{said}No rows were held out to validate: no temperature was fitted."
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
