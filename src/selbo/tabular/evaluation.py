"""Metrics of a model on a labelled table, and the results that the report of an evaluation shows."""

import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo.evaluation import calibrate
from selbo.evaluation.predict import Prediction, at_temperature
from selbo.report import outcomes
from selbo.results import ClassificationTask, Comparison, Measurement, Outcome
from selbo.tabular import saved_model
from selbo.tabular.chunks import ReadingReport, is_large, no_report
from selbo.tabular.job import model_title
from selbo.tabular.metrics import TableMetrics
from selbo.tabular.preprocessing import Preprocessing
from selbo.tabular.problems import Problems
from selbo.tabular.streamed_predictions import ChunkedPredictions, KeptPredictions, select
from selbo.tabular.streaming import naming_rows
from selbo.tabular.table import Table, read_table
from selbo.tabular.task import read_labelled

TEST_CONDITION: Final = "test"

SHOWN: Final = ("nll", "accuracy", "ece", "brier", "auroc", "f1_macro", "aurc")
"""Metrics in the report; ``metrics.json`` holds all of them."""

MOST_EVALUATED_GROUPS: Final = 100
"""Maximum number of groups of an evaluation: more are rather numbers than names."""

MISSING_GROUP: Final = "(missing)"
"""Group of rows without a value."""


def fitted_temperature(prediction: Prediction, labels: Tensor) -> float:
    """Fit the temperature on the validation rows."""
    return calibrate.temperature(prediction.log_probs, labels)


def compute_evaluation(
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
        metrics=outcomes.compute_metrics(prediction, labels),
        temperature=temperature,
        calibrated=None if scaled is None else outcomes.compute_metrics(scaled, labels),
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
    stream: bool | None = False,
    no_header: bool = False,
    report: ReadingReport = no_report,
) -> Evaluated:
    """Evaluate a model on a labelled table.

    Args:
        model: The model.
        data: The table.
        num_samples: Number of weight samples.
        seed: Seed for the weight samples; the training seed if not given.
        target: Column with the labels; that of training if not given.
        by: Column whose values are groups, which are evaluated on their own too.
        stream: Whether the table is read in parts, in bounded memory; None to decide by the size of the file.
        no_header: Whether the first line of a CSV file is a row.
        report: Called with the progress of a table that is read in parts.
    """
    begin = time.perf_counter()
    labelled = model.preprocessing if target is None else dataclasses.replace(model.preprocessing, target=target)
    if not labelled.target:
        raise ValueError("`target` must name the column with the classes, as the model was trained without labels")
    read = _read_large if is_large(data, stream=stream) else _read_whole
    prediction, labels, groups, notes = read(
        model, labelled, data, by, num_samples=num_samples, seed=seed, no_header=no_header, report=report
    )
    if saved_model.digest(data) == model.manifest.data.sha256:
        notes.append("evaluated on the training file; metrics are optimistic")
    found = compute_evaluation(prediction, labels, model.manifest.temperature, model.preprocessing.classes, groups)
    results = _results_of_file(
        model,
        data.name,
        prediction,
        labels,
        found,
        target=labelled.target,
        by=by,
        seconds=time.perf_counter() - begin,
    )
    return Evaluated(found, notes, results)


class _Read(NamedTuple):
    """Predictions of the labelled rows of a table, their classes and groups, and notes."""

    prediction: Prediction
    labels: Tensor
    groups: list[str] | None
    notes: list[str]


def _read_whole(
    model: saved_model.Trained,
    labelled: Preprocessing,
    data: Path,
    by: str | None,
    *,
    num_samples: int,
    seed: int | None,
    no_header: bool,
    report: ReadingReport,
) -> _Read:
    wanted = (*labelled.columns, labelled.target, *([] if by is None else [by]))
    table = read_table(data, columns=wanted, no_header=no_header)
    problems = Problems()
    groups = None if by is None else problems.attempt(group_names, table, by)
    read = problems.attempt(read_labelled, labelled, table)
    problems.stop()
    assert read is not None
    (inputs, labels), (numbers, _), notes = read
    groups = None if groups is None else [groups[number - 1] for number in numbers]
    return _Read(model.predict(inputs, num_samples=num_samples, seed=seed), labels, groups, notes)


def _read_large(
    model: saved_model.Trained,
    labelled: Preprocessing,
    data: Path,
    by: str | None,
    *,
    num_samples: int,
    seed: int | None,
    no_header: bool,
    report: ReadingReport,
) -> _Read:
    """The same, chunk by chunk; only the predictions, classes and groups of the rows are kept."""
    chunks = ChunkedPredictions(
        data,
        labelled,
        lambda inputs: model.predict(inputs, num_samples=num_samples, seed=seed),
        more=(labelled.target, *([] if by is None else [by])),
        no_header=no_header,
        report=report,
    )
    kept, labels, groups, names = KeptPredictions(), list[NDArray[np.int64]](), list[str](), dict[str, str]()
    for chunk, prediction in chunks:
        with naming_rows(chunk):
            classes = labelled.labels(chunk.table)
        rows = classes >= 0
        labels.append(classes)
        kept.add(prediction if rows.all() else select(prediction, rows))
        if by is not None:
            here = group_names(chunk.table, by)
            groups += [names.setdefault(each, each) for each, is_known in zip(here, rows, strict=True) if is_known]
            _check_groups(names, by)
    found = np.concatenate(labels)
    known = found[found >= 0]
    if len(known) == 0:
        raise ValueError(
            f"some rows of {data.name} must have a label, but {labelled.target!r} has none in {len(found)}"
        )
    notes = list(chunks.notes)
    if count := len(found) - len(known):
        notes.append(
            f"{count} {'row' if count == 1 else 'rows'} without label {'is' if count == 1 else 'are'} left out"
        )
    return _Read(kept.whole(), torch.from_numpy(known), None if by is None else groups, notes)


def group_names(table: Table, by: str) -> list[str]:
    """Group of each row: the values of a column as text.

    Raises:
        ValueError: If there is no such column, or it has too many values to be groups.
    """
    names = [MISSING_GROUP if text is None or not text.strip() else text for text in table[by].texts()]
    _check_groups(set(names), by)
    return names


def _check_groups(names: Collection[str], by: str) -> None:
    if len(names) > MOST_EVALUATED_GROUPS:
        raise ValueError(
            f"`by` must be a column with at most {MOST_EVALUATED_GROUPS} different values, but {by!r} has {len(names)}"
        )


def _results_of_file(
    model: saved_model.Trained,
    name: str,
    prediction: Prediction,
    labels: Tensor,
    found: TableMetrics,
    *,
    target: str,
    by: str | None,
    seconds: float,
) -> Comparison:
    """The results that the report of an evaluation shows: one method, one seed, no belief."""
    classes, method, seed = (
        found.classes,
        model_title(model.classifier, model.classifier.base_),
        model.classifier.random_state,
    )
    assert isinstance(seed, int)
    counts = labels.bincount(minlength=len(classes))
    return Comparison(
        title=f"{target} in {name}",
        description=f"A model trained on {model.manifest.data.name} predicts {target} of {name}.",
        takeaway=outcomes.summarise_metrics(
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
                reliability=outcomes.compute_reliability(prediction, labels),
                risk_curve=outcomes.compute_risk_curve(prediction, labels),
                seconds=seconds,
            ),
        ),
        clean=TEST_CONDITION,
        made_by=outcomes.made_by(seconds),
    )


def _measurement(metrics: Mapping[str, Any]) -> Measurement:
    return Measurement(level=None, metrics={name: metrics[name] for name in SHOWN})
