"""From a table to a model folder: encodes rows, trains and tests a `SummaryClassifier`, and writes the folder."""

import dataclasses
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from selbo._files import require_table
from selbo.estimator import Statement, SummaryClassifier, storage
from selbo.estimator.pool import Pool
from selbo.estimator.settings import POOL_BASE, base_of
from selbo.evaluation import calibrate, check_belief
from selbo.evaluation.check_belief import shortfall
from selbo.evaluation.predict import Prediction, at_temperature
from selbo.presets import METHODS, Method
from selbo.report import outcomes
from selbo.results import ClassificationTask, Comparison, Measurement, MethodResult, Outcome
from selbo.summary.likelihood import SummaryLikelihood
from selbo.tabular import saved_model
from selbo.tabular.baselines import baseline_log_probs, compare_methods
from selbo.tabular.group_results import TaskGroups, compare_groups, contradictions_in_words, groups_takeaway
from selbo.tabular.groups import GroupSource, known_labels, read_groups
from selbo.tabular.json_files import write_json
from selbo.tabular.metrics import RowCounts, TableMetrics, TrainingMetrics, ValidationMetrics
from selbo.tabular.preprocessing import FEWEST_ROWS, Preprocessing, find_classes, fit_preprocessing, label_names
from selbo.tabular.problems import Problems
from selbo.tabular.splits import (
    FEWEST_LABELS,
    FEWEST_TO_VALIDATE,
    TEST_FRACTION,
    VAL_FRACTION,
    split,
    split_groups,
)
from selbo.tabular.table import Numbers, Table, listed, read_table

TEST_CONDITION: Final = "test"
SHOWN: Final = ("nll", "accuracy", "ece", "brier", "auroc", "f1_macro", "aurc")
"""Metrics in the report; ``metrics.json`` holds all of them."""

MOST_EVALUATED_GROUPS: Final = 100
"""Maximum number of groups of an evaluation: more are rather numbers than names."""

FEWEST_UNLABELLED: Final = 50
"""Rows of a table without label that a belief can be about; fewer are left out."""

MISSING_GROUP: Final = "(missing)"
"""Group of rows without a value."""


def _title(classifier: SummaryClassifier, base: str) -> str:
    return "pool of classifiers" if base == POOL_BASE else METHODS[classifier.method].title


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
        test_fraction: Share of the labelled rows for testing; if not given, .2, or 0 if there is a table to test on.
        val_fraction: Share of the labelled rows for validation; if not given, .1, or 0 if there are fewer than 200.
        groups: Where class fractions of groups of rows are stated, if they are; labels may then be missing.
        test: A table of labelled rows to test on.
        keep: Columns to use even if they look like identifiers or free text.
        id_column: Column that identifies rows: no input, but kept in predictions.
    """

    data: Path
    target: str | None
    classifier: SummaryClassifier
    unlabelled: Path | None = None
    drop: Sequence[str] = ()
    test_fraction: float | None = None
    val_fraction: float | None = None
    groups: GroupSource | None = None
    test: Path | None = None
    keep: Sequence[str] = ()
    id_column: str = ""

    def __post_init__(self) -> None:
        if self.test is not None and self.test_fraction:
            raise ValueError("`test` and `test_fraction` cannot both be given: choose one")

    @property
    def states_something(self) -> bool:
        """Whether a user states something about all cases."""
        return self.classifier.accuracy is not None or self.classifier.class_fractions is not None

    def shares(self, labels: int) -> tuple[float, float]:
        """Shares of the labelled rows for testing and for validation."""
        test, val = self.test_fraction, self.val_fraction
        if test is None:
            test = TEST_FRACTION if self.test is None else 0.0
        return test, (VAL_FRACTION if labels >= FEWEST_TO_VALIDATE else 0.0) if val is None else val

    @property
    def method(self) -> Method:
        """The training method."""
        return METHODS[self.classifier.method]

    @property
    def title(self) -> str:
        """What is trained, in words."""
        return _title(self.classifier, base_of(self.classifier, groups=self.groups is not None))

    @property
    def seed(self) -> int:
        """Seed for all randomness."""
        assert isinstance(self.classifier.random_state, int)
        return self.classifier.random_state

    def identity(self) -> dict[str, Any]:
        """Settings and checksums of the data. A folder with another identity is not resumed."""
        files = {"data_sha256": self.data, "unlabelled_sha256": self.unlabelled, "test_sha256": self.test}
        stated = {}
        if self.groups is not None:
            files["group_fractions_sha256"] = self.groups.fractions
            stated = {"groups": self.groups.column, "group_concentration": self.groups.concentration}
        problems = Problems()
        for file in filter(None, files.values()):
            problems.attempt(require_table, file)
        problems.stop()
        settings = storage.settings_of(self.classifier)
        return {
            "target": self.target,
            "seed": settings.pop("random_state"),
            **settings,
            "drop": list(self.drop),
            "keep": list(self.keep),
            "id": self.id_column,
            "test_fraction": self.test_fraction,
            "val_fraction": self.val_fraction,
            **stated,
            **{name: saved_model.digest(file) for name, file in files.items() if file is not None},
        }


class HeldOutRows(NamedTuple):
    """Which rows of a file the test rows are: their numbers, from 1, and their identifiers, if there are any."""

    numbers: Sequence[int] = ()
    ids: Sequence[str | None] | None = None


NO_ROWS: Final = HeldOutRows()


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
        test_rows: Number of each test row in its file, from 1, and its identifier if there is a column of them.
        elsewhere: Whether the test rows are from a table of their own.
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
    test_rows: HeldOutRows = NO_ROWS
    elsewhere: bool = False
    groups: TaskGroups | None = None

    @property
    def num_classes(self) -> int:
        """Number of classes K."""
        return len(self.preprocessing.classes)

    @property
    def is_tested(self) -> bool:
        """Whether there are labelled rows to test on."""
        return len(self.test[1]) > 0

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
    """Read and encode a table. All errors in the data or the belief are raised here, together, before training."""
    problems = Problems()
    table, unlabelled_table, test_table = (
        None if file is None else problems.attempt(read_table, file) for file in (job.data, job.unlabelled, job.test)
    )
    encoded = None
    if table is not None:
        encoded = problems.attempt(_encode if job.groups is None else _encode_groups, job, table)
    if table is not None and encoded is None:
        _check_statement(job, table, problems)
    if encoded is None:
        problems.stop()
    assert encoded is not None
    preprocessing, groups, notes, more = encoded.preprocessing, encoded.groups, encoded.notes, []
    train, val, test = encoded.parts
    unlabelled, place, test_rows = encoded.unlabelled, job.data.name, encoded.test_rows
    if unlabelled_table is not None:
        with problems.collecting():
            unlabelled, told = preprocessing.transform(unlabelled_table)
            place = unlabelled_table.name
            more += [f"{place}: {text}" for text in told]
    if test_table is not None:
        with problems.collecting():
            test, test_rows, told = read_labelled(preprocessing, test_table)
            more += [f"{test_table.name}: {text}" for text in told]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        arguments = fit_arguments(train, preprocessing, groups)
        stated = problems.attempt(job.classifier.statement, **arguments, X_unlabelled=unlabelled)
    problems.stop()
    assert stated is not None
    notes += [str(each.message) for each in said]
    if groups is None and not job.states_something:
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
        words=describe_statement(job, stated, preprocessing.classes, about_unlabelled=unlabelled is not None),
        notes=(*notes, *more),
        unlabelled=unlabelled,
        place=None if unlabelled is None else place,
        test_rows=test_rows,
        elsewhere=test_table is not None,
        groups=groups,
    )


def _check_statement(job: Job, table: Table, problems: Problems) -> None:
    """Look for problems of the statement although the inputs have some: with the classes alone."""
    if job.groups is not None or job.target not in table.columns:
        return
    try:
        find_classes(table, job.target)
    except ValueError:  # is reported already
        return
    names = [name for name in label_names(table, job.target) if name is not None]
    with problems.collecting(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job.classifier.statement(np.zeros((len(names), 1)), np.array(names, dtype=object))


class _Encoded(NamedTuple):
    preprocessing: Preprocessing
    parts: list[tuple[Numbers, Tensor]]
    notes: list[str]
    unlabelled: Numbers | None = None
    test_rows: HeldOutRows = NO_ROWS
    groups: TaskGroups | None = None


def _encode(job: Job, table: Table) -> _Encoded:
    """Encode a table, and split its labelled rows. A belief is about the others, if there are enough of them."""
    if job.target is None:
        raise ValueError("`target` must name the column with the classes, unless fractions of groups are stated")
    problems = Problems()
    names = problems.attempt(label_names, table, job.target) or [""] * table.num_rows
    known = np.flatnonzero([name is not None for name in names])
    free = np.flatnonzero([name is None for name in names])
    train, val, test = known, known[:0], known[:0]
    with problems.collecting():
        test_fraction, val_fraction = job.shares(len(known))
        parts = split(
            [names[row] for row in known.tolist()],
            test_fraction=test_fraction,
            val_fraction=val_fraction,
            seed=job.seed,
        )
        train, val, test = known[parts.train], known[parts.val], known[parts.test]
    fitted = problems.attempt(
        fit_preprocessing,
        table,
        target=job.target,
        rows=train if len(train) else np.arange(table.num_rows),
        drop=job.drop,
        keep=job.keep,
        id_column=job.id_column,
    )
    problems.stop()
    assert fitted is not None
    preprocessing, notes = fitted
    inputs, _ = preprocessing.transform(table)
    labels = torch.from_numpy(preprocessing.labels(table))
    notes += _notes_on_rows(job, table, [name for name in names if name is not None])
    use, text = _use_of_unlabelled(job, len(free))
    notes += [text] if text else []
    return _Encoded(
        preprocessing,
        [(inputs[part], labels[part]) for part in (train, val, test)],
        notes,
        inputs[free] if use else None,
        HeldOutRows((test + 1).tolist(), _identifiers(preprocessing, table, test)),
    )


def _notes_on_rows(job: Job, table: Table, names: Sequence[str]) -> list[str]:
    """Notes on rows that are not held out, or not used."""
    found, (test, val) = [], job.shares(len(names))
    if job.val_fraction is None and val == 0:
        found.append(
            f"with fewer than {FEWEST_TO_VALIDATE} labelled rows ({len(names)}), none are held out to validate, and no "
            "temperature is fitted: `val_fraction` holds some out"
        )
    counts = Counter(names)
    rare = [name for name, count in counts.items() if count < FEWEST_ROWS]
    if rare and test + val > 0:
        found.append(f"classes with fewer than {FEWEST_ROWS} rows are used for training only: {listed(rare)}")
    return found


def _use_of_unlabelled(job: Job, count: int) -> tuple[bool, str]:
    """Whether rows without label are those that the belief is about, and a note on them."""
    if count == 0:
        return False, ""
    rows = f"{count} {'row' if count == 1 else 'rows'} of {job.data.name} without label"
    if job.unlabelled is not None:
        return False, f"{rows} {'is' if count == 1 else 'are'} left out, as `unlabelled` names others"
    if not job.method.believes or not job.states_something:
        return False, f"{rows} {'is' if count == 1 else 'are'} left out, as nothing is stated about them"
    if count < FEWEST_UNLABELLED:
        return False, f"{rows} {'is' if count == 1 else 'are'} left out: a belief about them needs {FEWEST_UNLABELLED}"
    return True, f"{rows} are used: what is stated is about them"


def _identifiers(preprocessing: Preprocessing, table: Table, rows: NDArray[np.int64]) -> list[str | None] | None:
    if not preprocessing.id_column or preprocessing.id_column not in table.columns:
        return None
    texts = table[preprocessing.id_column].texts()
    return [texts[row] for row in rows.tolist()]


def read_labelled(preprocessing: Preprocessing, table: Table) -> tuple[tuple[Numbers, Tensor], HeldOutRows, list[str]]:
    """Features and classes of the labelled rows of a table, which rows these are, and notes.

    Raises:
        ProblemsError: If columns are missing or have another type, or no row has a label.
    """
    problems, labels = Problems(), np.empty(0, dtype=np.int64)
    inputs, notes = np.empty((0, 0)), list[str]()
    with problems.collecting():
        labels = preprocessing.labels(table)
    with problems.collecting():
        inputs, notes = preprocessing.transform(table)
    problems.stop()
    rows = np.flatnonzero(labels >= 0)
    if len(rows) == 0:
        raise ValueError(
            f"some rows of {table.name} must have a label, but {preprocessing.target!r} has none in {len(labels)}"
        )
    if count := len(labels) - len(rows):
        notes.append(
            f"{count} {'row' if count == 1 else 'rows'} without label {'is' if count == 1 else 'are'} left out"
        )
    where = HeldOutRows((rows + 1).tolist(), _identifiers(preprocessing, table, rows))
    return (inputs[rows], torch.from_numpy(labels[rows])), where, notes


def _encode_groups(job: Job, table: Table) -> _Encoded:
    """Encode a table with groups, in which labels may be missing, and split it."""
    assert job.groups is not None
    stated, of_rows = read_groups(job.groups, table)
    known = known_labels(table, job.target, stated)
    count = int((known >= 0).sum())
    test_fraction, val_fraction = job.shares(count)
    rows = split_groups(of_rows, known, test_fraction=test_fraction, val_fraction=val_fraction, seed=job.seed)
    preprocessing, notes = fit_preprocessing(
        table,
        target=job.target,
        rows=rows.train,
        drop=job.drop,
        groups=stated,
        keep=job.keep,
        id_column=job.id_column,
    )
    inputs, _ = preprocessing.transform(table)
    more = []
    if 0 < count < FEWEST_LABELS:
        more.append(f"all {count} labels are used for training: with {FEWEST_LABELS} or more, some would be held out")
    tested = rows.test[known[rows.test] >= 0]
    parts = [(inputs[part], torch.from_numpy(known[part])) for part in (rows.train, rows.val, tested)]
    groups = TaskGroups.of(stated, of_rows, inputs, rows)
    where = HeldOutRows((tested + 1).tolist(), _identifiers(preprocessing, table, tested))
    return _Encoded(preprocessing, parts, [*notes, *stated.notes, *more], None, where, groups)


def describe_statement(
    job: Job, stated: Statement, classes: Sequence[str], *, about_unlabelled: bool | None = None
) -> str:
    """Describe the belief in words; ``about_unlabelled`` says that it is about rows of the table without label."""
    classifier, about = job.classifier, "all cases" if job.unlabelled is None else f"the cases in {job.unlabelled.name}"
    if about_unlabelled and job.unlabelled is None:
        about = "the cases without label"
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
        baselines=baselines_of(task, job, predicted.test),
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
        predictions=prediction_columns(task, predicted.test),
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
    if predicted.test is None:
        return TableMetrics(
            metrics={}, temperature=None, calibrated=None, per_class=(), confusion=(), classes=tuple(classes)
        )
    temperature = None if predicted.val is None else fitted_temperature(predicted.val, task.val[1])
    return evaluation_of(predicted.test, task.test[1], temperature, classes)


def baselines_of(task: Task, job: Job, prediction: Prediction | None) -> tuple[MethodResult, ...]:
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
        return job.classifier.statement(**task.arguments(), X_unlabelled=task.unlabelled).class_fractions


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
    problems = Problems()
    groups = None if by is None else problems.attempt(group_names, table, by)
    read = problems.attempt(read_labelled, labelled, table)
    problems.stop()
    assert read is not None
    (inputs, labels), (numbers, _), notes = read
    groups = None if groups is None else [groups[number - 1] for number in numbers]
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
    classes, method, seed = (
        found.classes,
        _title(model.classifier, model.classifier.base_),
        model.classifier.random_state,
    )
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
    description = (
        f"{_learner(job.classifier)} learned to predict {what} from {len(task.preprocessing.inputs)} columns. "
        f"Everything below is about the test rows, which it did not see{but}."
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
                reliability=None if prediction is None else outcomes.reliability_of(prediction, task.test[1]),
                risk_curve=None if prediction is None else outcomes.risk_curve_of(prediction, task.test[1]),
                entropy=None if prediction is None else outcomes.entropies(prediction, None),
                stated_groups=metrics.stated_groups,
                baselines=metrics.baselines or None,
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
