"""Reads and encodes the tables of a job, and splits the rows: a task, ready to train on."""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo.estimator import Statement, SummaryClassifier
from selbo.summary.likelihood import SummaryLikelihood
from selbo.tabular.group_results import TaskGroups
from selbo.tabular.groups import known_labels, read_groups
from selbo.tabular.job import Job, describe_statement
from selbo.tabular.preprocessing import Preprocessing, find_classes, fit_preprocessing, label_names
from selbo.tabular.problems import Problems
from selbo.tabular.splits import (
    FEWEST_LABELS,
    FEWEST_ROWS,
    FEWEST_TO_VALIDATE,
    split,
    split_groups,
)
from selbo.tabular.table import Numbers, Table, listed, read_table

FEWEST_UNLABELLED: Final = 50
"""Rows of a table without label that a belief can be about; fewer are left out."""


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

    @property
    def num_train(self) -> int:
        """Number of training rows."""
        return len(self.train[1])

    @property
    def train_counts(self) -> Tensor:
        """Number of labelled training rows of each class."""
        return self.train[1][self.train[1] >= 0].bincount(minlength=self.num_classes)

    def statement(self, classifier: SummaryClassifier) -> Statement:
        """The belief about the training rows."""
        return classifier.statement(**self.arguments(), X_unlabelled=self.unlabelled)

    def fit(self, classifier: SummaryClassifier, *, checkpoint: Path, log: Path, progress: bool | None) -> None:
        """Train a classifier. A killed run resumes from its checkpoint."""
        names = self.preprocessing.class_labels
        validation = {"X_val": self.val[0], "y_val": names[self.val[1]]} if len(self.val[1]) else {}
        classifier.fit(
            **self.arguments(),
            **validation,
            X_unlabelled=self.unlabelled,
            checkpoint=checkpoint,
            log=log,
            progress=progress,
        )

    def arguments(self) -> dict[str, Any]:
        """Arguments of `SummaryClassifier.fit` about the training rows."""
        return fit_arguments(self.train, self.preprocessing, self.groups)

    def after(self, fitted: SummaryClassifier) -> "Task":
        """The task with what a fit has decided: concentration of groups, weight of the KL, temperature."""
        groups, words = self.groups, self.words
        if groups is None:
            return self
        if isinstance(groups.table.concentration, str):
            assert fitted.group_summary_ is not None
            found = float(fitted.group_summary_.concentration[0])
            groups = replace(groups, table=replace(groups.table, concentration=found))
            words += f" The estimated concentration is {found:.4g}."
        if fitted.kl_scores_ is not None:
            words += f" Held-out groups chose the weight {fitted.kl_weight_:g} of the KL divergence."
        if fitted.calibration_ is not None:
            words += f" After training, a temperature of {fitted.calibration_.temperature:.2g} met the accuracy."
        return replace(self, groups=groups, words=words)


def fit_arguments(
    train: tuple[Numbers, Tensor], preprocessing: Preprocessing, groups: TaskGroups | None
) -> dict[str, Any]:
    """Arguments of `SummaryClassifier.fit` about the training rows: inputs, labels, and groups if there are any."""
    inputs, labels = train
    names = preprocessing.class_labels
    if groups is None:
        return {"X": inputs, "y": names[labels]}
    known = [None if label < 0 else names[label] for label in labels.tolist()]
    return {"X": inputs, "y": np.array([*known, None], dtype=object)[:-1], **groups.arguments(groups.train)}


def prepare(job: Job) -> Task:
    """Read and encode a table. All errors in the data or the belief are raised here, together, before training."""
    problems = Problems()
    table, unlabelled_table, test_table = (
        None if file is None else problems.attempt(read_table, file, no_header=job.no_header)
        for file in (job.data, job.unlabelled, job.test)
    )
    encoded = None
    if table is not None:
        problems.attempt(table.require_single, job.target)
        encoded = problems.attempt(_encode if job.groups is None else _encode_groups, job, table)
    if table is not None and encoded is None:
        _check_statement(job, table, problems)
    if encoded is None:
        problems.stop()
    assert encoded is not None
    preprocessing, groups, notes, more = encoded.preprocessing, encoded.groups, encoded.notes, []
    notes = [*(() if table is None else table.notes), *notes]
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
    notes += notes_on_rows(job, Counter(name for name in names if name is not None))
    use, text = use_of_unlabelled(job, len(free))
    notes += [text] if text else []
    return _Encoded(
        preprocessing,
        [(inputs[part], labels[part]) for part in (train, val, test)],
        notes,
        inputs[free] if use else None,
        HeldOutRows((test + 1).tolist(), _identifiers(preprocessing, table, test)),
    )


def notes_on_rows(job: Job, counts: Mapping[str, int]) -> list[str]:
    """Notes on rows that are not held out, by the number of rows of each class."""
    labels = sum(counts.values())
    found, (test, val) = [], job.shares(labels)
    if job.val_fraction is None and val == 0:
        found.append(
            f"with fewer than {FEWEST_TO_VALIDATE} labelled rows ({labels}), none are held out to validate, and no "
            "temperature is fitted: `val_fraction` holds some out"
        )
    rare = [name for name, count in counts.items() if count < FEWEST_ROWS]
    if rare and test + val > 0:
        found.append(f"classes with fewer than {FEWEST_ROWS} rows are used for training only: {listed(rare)}")
    return found


def use_of_unlabelled(job: Job, count: int) -> tuple[bool, str]:
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
    stated, of_rows = read_groups(job.groups, table, target=job.target)
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
