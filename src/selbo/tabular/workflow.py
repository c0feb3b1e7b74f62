"""From a table to a model folder: trains and tests a `SummaryClassifier`, and writes the folder."""

import shutil
import time
import warnings
from pathlib import Path
from typing import Any

from selbo.tabular import saved_model
from selbo.tabular.group_results import compare_groups
from selbo.tabular.job import Job
from selbo.tabular.json_files import write_json
from selbo.tabular.metrics import TrainingMetrics
from selbo.tabular.task import Task
from selbo.tabular.training_results import (
    Predicted,
    belief_checks,
    build_results,
    evaluate_baselines,
    prediction_columns,
    row_counts,
    test_metrics,
    validation_metrics,
)


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
    classifier = job.classifier
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message=".* held-out rows are classified")  # checked below, on more rows
        task.fit(
            classifier, checkpoint=folder / saved_model.CHECKPOINT, log=folder / saved_model.LOG, progress=progress
        )
    task, begin = task.after(classifier), time.perf_counter()
    predicted = Predicted(  # labelled rows of the table are evaluated in the source domain, without correction
        val=classifier.posterior_predictive(task.val[0], target_domain=False) if len(task.val[1]) else None,
        test=classifier.posterior_predictive(task.test[0], target_domain=task.elsewhere) if task.is_tested else None,
        unlabelled=None if task.unlabelled is None else classifier.posterior_predictive(task.unlabelled),
    )
    unlabelled = None
    if task.unlabelled is not None:
        name, checksum = task.place or "", identity.get("unlabelled_sha256", identity["data_sha256"])
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
        notes=task.notes,
        baselines=evaluate_baselines(task, job, predicted.test),
    )

    def report(path: Path) -> None:
        from selbo.report.page import write_page

        seconds = classifier.seconds_ + time.perf_counter() - begin
        write_page(build_results(task, job, predicted, metrics, seconds=seconds), path)

    saved_model.write_model(
        folder,
        classifier=classifier,
        preprocessing=task.preprocessing,
        metrics=metrics,
        write_report=report,
        predictions=prediction_columns(task, predicted.test),
        data=saved_model.TableFile(name=task.name, sha256=identity["data_sha256"]),
        unlabelled=unlabelled,
    )
    shutil.rmtree(folder / saved_model.STORED_ROWS, ignore_errors=True)
    return metrics
