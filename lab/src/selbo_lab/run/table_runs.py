"""Executes a run on a table: a classifier at its defaults, and what is stated about its predictions."""

import time
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from selbo import Prediction
from selbo.metrics import entropy
from selbo.report import outcomes
from selbo_lab.run.provenance import describe_run
from selbo_lab.run.records import CLEAN, FINISHED, USE, Run, RunMeasurement, RunTimes
from selbo_lab.run.table_cases import TableCase, table_case
from selbo_lab.run.table_methods import (
    LogProbs,
    correct_by_held_out,
    correct_for_statement,
    fit_table_method,
    fractions_as_stated,
    stated_accuracy,
)
from selbo_lab.studies.run_spec import RunSpec


@dataclass
class _LastClassifier:
    """The classifier of the last run that was told nothing, its settings, and CPU seconds of its training."""

    training: Hashable = None
    found: LogProbs | None = None
    cpu: float = 0.0


_LAST: Final = _LastClassifier()


def execute_table_run(spec: RunSpec) -> Run:
    """Train and test a classifier; runs that differ only in what is corrected afterwards share it."""
    begin = time.perf_counter()
    case = table_case(spec.data, spec.seed)
    log_probs, cpu = _predictions(spec, case)
    total = entropy(log_probs=log_probs)
    prediction = Prediction(log_probs.exp(), log_probs, total, total, torch.zeros_like(total))
    found = outcomes.condition(prediction, case.test.labels, level=0.0)
    parts = {"train": case.train, "use" if spec.data.labels else "test": case.test}
    if case.unlabelled is not None:
        parts["unlabelled"] = case.unlabelled
    return Run(
        id=spec.id,
        spec=spec,
        data={part: rows.checksum for part, rows in parts.items()},
        sizes={part: len(rows) for part, rows in parts.items()},
        made_by=describe_run("cpu"),
        status=FINISHED,
        conditions={
            USE if spec.data.labels else CLEAN: RunMeasurement(level=0.0, metrics=found.metrics, recall=found.recall)
        },
        reliability=outcomes.compute_reliability(prediction, case.test.labels),
        seconds=RunTimes(all=round(time.perf_counter() - begin, 3), training=round(cpu, 3), cpu=round(cpu, 3)),
    )


def _predictions(spec: RunSpec, case: TableCase) -> tuple[Tensor, float]:
    """Log-probabilities of the test rows, and CPU seconds of the training."""
    recipe, rows = spec.recipe, case.test.inputs
    stated = fractions_as_stated(case.stated, recipe.fractions_off)
    if recipe.objective == "constant" and spec.data.labels:  # always the stated fractions
        return torch.tensor(stated, dtype=torch.float64).log().expand(len(rows), -1), 0.0
    if recipe.objective == "summary_network" and spec.data.labels:
        return _told(spec, case, {"class_fractions": list(stated)})
    found, cpu = _untold(spec, case)
    if not (recipe.states_accuracy or recipe.states_fractions or recipe.states_label_fractions):
        return correct_for_statement(recipe, found, case, stated, rows), cpu
    statements: dict[str, Any] = {}
    if recipe.states_accuracy:
        statements["accuracy"] = stated_accuracy(found(rows), case.test.labels)
    if recipe.states_fractions:
        statements["class_fractions"] = stated
    if recipe.states_label_fractions:
        statements["class_fractions"] = fractions_as_stated(case.label_fractions)
    return correct_by_held_out(found, case, rows, statements), cpu


def _told(spec: RunSpec, case: TableCase, statements: dict[str, Any]) -> tuple[Tensor, float]:
    begin = time.process_time()
    found = fit_table_method(spec.recipe, case, seed=spec.seed, statements=statements)
    cpu = time.process_time() - begin
    return found(case.test.inputs), cpu


def _untold(spec: RunSpec, case: TableCase) -> tuple[LogProbs, float]:
    """The classifier that was told nothing; that of the last run if it is the same."""
    if _LAST.found is None or spec.training != _LAST.training:
        begin = time.process_time()
        _LAST.found = fit_table_method(spec.recipe, case, seed=spec.seed)
        _LAST.training, _LAST.cpu = spec.training, time.process_time() - begin
    return _LAST.found, _LAST.cpu
