"""Reads a large table once for its classes, kinds and a sample, and once to store its training rows for the network.

Which columns are used, categories, scales and medians come from a random sample of the rows, classes from all of them.
Held-out rows are few enough to stay in memory. Everything is written to a folder beside the model, so that a killed run
resumes with it.
"""

import json
import os
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo.estimator import Statement, SummaryClassifier
from selbo.estimator.intake import FeatureScale
from selbo.estimator.rows import Rows
from selbo.estimator.settings import LABEL_STEPS, POOL_BASE
from selbo.evaluation.belief_calibration import UNLABELLED
from selbo.random import derive
from selbo.tabular.chunks import (
    Chunk,
    KindScan,
    LargeTable,
    ReadingReport,
    Reservoir,
    is_large,
    no_report,
    open_large,
    read_sample,
)
from selbo.tabular.columns import CategoryInput, EncodedColumn, NumberInput
from selbo.tabular.job import Job, describe_statement
from selbo.tabular.json_files import read_json, write_json
from selbo.tabular.preprocessing import (
    GroupColumn,
    Preprocessing,
    classes_by_count,
    fit_preprocessing,
    label_names,
)
from selbo.tabular.problems import Problems, ProblemsError
from selbo.tabular.splits import split
from selbo.tabular.streamed_classifier import StreamedClassifier
from selbo.tabular.table import Numbers, Table, TableColumn, read_table, stripped
from selbo.tabular.task import HeldOutRows, Task, notes_on_rows, read_labelled, use_of_unlabelled
from selbo.training.stored import RowStore, RowWriter, StoredBatches

SAMPLE_ROWS: Final = 100_000
"""Rows of a large table that decide which columns are used, and give categories, scales and medians."""

MOST_ROWS_HELD_OUT: Final = 100_000
"""Maximum number of rows for testing, and for validation: the standard error of an accuracy is then below 0.2 %."""

MOST_UNLABELLED: Final = 100_000
"""Maximum number of unlabelled rows that a belief is about."""

MOST_LABEL_TEXTS: Final = 100_000
"""Different values in the column of the labels at which it is certainly none."""

STORE_FORMAT: Final = "selbo-rows-1"
TASK_FILE: Final = "task.json"
TASK_ARRAYS: Final = "arrays.npz"

READING_STAGE: Final = "reading"
PREPROCESSING_STAGE: Final = "preprocessing"

FOR_TRAINING, FOR_VALIDATION, FOR_TEST, FOR_BELIEF = 1, 2, 3, 4
HELD: Final = {"val": FOR_VALIDATION, "test": FOR_TEST, "unlabelled": FOR_BELIEF}
"""What rows are used for; 0 for rows that are left out."""


class Speed(NamedTuple):
    """How many rows something was done to, and the seconds it took."""

    rows: int
    seconds: float


class Timer:
    """Adds up the seconds of parts of a loop."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count the time of a block."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

    def each(self, name: str, items: Iterator[Chunk]) -> Iterator[Chunk]:
        """The items of an iterator; counts the time that it takes to get them."""
        while True:
            with self.of(name):
                item = next(items, None)
            if item is None:
                return
            yield item


@dataclass(frozen=True, kw_only=True)
class StreamedTask(Task):
    """A large table, ready to train on: its training rows are in a store, and ``train`` is a sample of them.

    Attributes:
        store: The training rows.
        scale: Scale of the features.
        speeds: Rows and seconds of reading and of preprocessing.
        classifier: The classifier that is fitted to stored rows, the rows, and the belief.
    """

    store: RowStore
    scale: FeatureScale
    speeds: Mapping[str, Speed] = field(default_factory=dict)
    classifier: tuple[StreamedClassifier, Rows, Statement]

    @property
    def num_train(self) -> int:
        """Number of training rows."""
        return self.store.num_rows

    @property
    def train_counts(self) -> Tensor:
        """Number of labelled training rows of each class."""
        return self.store.labels().bincount(minlength=self.num_classes)

    def speeds_in_words(self, classifier: SummaryClassifier) -> str:
        """Rows per second of reading, of preprocessing and of the training steps."""
        steps = Speed(classifier.n_iter_ * min(classifier.batch_size, self.num_train), classifier.seconds_)
        all_of_it = {**self.speeds, "training": steps}
        told = ", ".join(
            f"{name} {each.rows / max(each.seconds, 1e-9):.3g} ({each.rows} rows in {each.seconds:.3g} s)"
            for name, each in all_of_it.items()
        )
        return f"rows per second: {told}"

    def statement(self, classifier: SummaryClassifier) -> Statement:
        """The belief about the training rows."""
        return self.classifier[2]

    def fit(self, classifier: SummaryClassifier, *, checkpoint: Path, log: Path, progress: bool | None) -> None:
        """Train a classifier. A killed run resumes from its checkpoint."""
        streamed, rows, stated = self.classifier
        val = self.val if len(self.val[1]) else None
        streamed.fit_store(rows, stated, val, checkpoint=checkpoint, log=log, progress=progress)
        classifier.__dict__.update({name: value for name, value in vars(streamed).items() if name != "device"})


def prepare_streamed(
    job: Job, folder: Path, identity: Mapping[str, Any], report: ReadingReport = no_report
) -> StreamedTask:
    """Read, encode and store a large table, or use what an interrupted run has stored.

    Args:
        job: The job.
        folder: Folder for the stored rows; it is made, and replaced if it belongs to another job.
        identity: Identity of the job.
        report: Called with the progress.

    Raises:
        ValueError: If something in the table, the options or the belief is wrong.
    """
    _check_options(job)
    if not _is_of(folder, identity):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _convert(job, folder, identity, report)
    return _load(job, folder)


def _check_options(job: Job) -> None:
    problems = Problems()
    if job.groups is not None:
        problems.add("`groups` needs the whole table in memory, but it is streamed: pass --no-stream if it fits")
    if job.classifier.base == POOL_BASE:
        problems.add("`base` must be 'network' for a streamed table, but is 'pool': pass --no-stream if it fits")
    if isinstance(job.classifier.concentration, str):
        problems.add("`concentration` must be a number for a streamed table, but is 'auto'")
    problems.stop()


def _is_of(folder: Path, identity: Mapping[str, Any]) -> bool:
    """Whether a folder holds the rows of a job, complete."""
    try:
        found = read_json(folder / TASK_FILE, kind=STORE_FORMAT)
    except ValueError:
        return False
    return bool(found.get("identity") == json.loads(json.dumps(identity)))


# --- the first pass: classes, kinds and a sample ---


class _Scanned(NamedTuple):
    """What the first pass finds: the table with its kinds, a sample, its rows, and the class of each row, or -1."""

    table: LargeTable
    sample: Table
    sample_rows: NDArray[np.int64]
    labels: NDArray[np.int32]
    classes: GroupColumn
    counts: dict[str, int]


def _scan(job: Job, report: ReadingReport, timer: Timer) -> _Scanned:
    """Read all rows once."""
    large = open_large(job.data, no_header=job.no_header)
    assert job.target is not None
    empty = large.as_table(_no_rows(large))
    _ = empty[job.target]  # must be there
    empty.require_single(job.target)
    reservoir, kinds, labels = Reservoir(SAMPLE_ROWS, seed=derive(job.seed, "sample")), KindScan(large), LabelScan()
    for chunk in timer.each(READING_STAGE, large.chunks()):
        with timer.of(PREPROCESSING_STAGE):
            reservoir.add(chunk.first, chunk.frame)
            kinds.add(chunk.frame)
            labels.add(chunk.frame[job.target], large, job.target)
        report(f"reading {job.data.name}", chunk.share)
    frame, rows = reservoir.sample()
    large = replace(large, kinds=kinds.found())
    column, codes = labels.found(large, job.target)
    names = label_names(Table(large.path.name, {job.target: column}, len(column.texts())), job.target)
    counted = np.bincount(codes[codes >= 0], minlength=len(names))
    counts: dict[str, int] = {}
    for name, count in zip(names, counted.tolist(), strict=True):
        if name is not None:
            counts[name] = counts.get(name, 0) + count
    classes = classes_by_count(counts, column, job.target, num_rows=len(codes))
    place = {name: k for k, name in enumerate(classes)}
    numbers = np.array([UNLABELLED if name is None else place[name] for name in names] + [UNLABELLED], dtype=np.int32)
    known = GroupColumn(job.target, classes, column.numbers is not None)
    return _Scanned(large, large.as_table(frame), rows, numbers[codes], known, counts)


def _no_rows(large: LargeTable) -> Any:
    import polars

    return polars.DataFrame(schema=dict.fromkeys(large.names, polars.String))


class LabelScan:
    """The different values of the column of the labels, and which one each row has."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.codes: list[NDArray[np.int32]] = []
        self.parts: list[Any] = []

    def add(self, series: Any, large: LargeTable, target: str) -> None:
        """Add consecutive rows.

        Raises:
            ValueError: If there are too many different values.
        """
        import polars

        text = stripped(series) if large.is_csv else series
        new = text.drop_nulls().unique(maintain_order=True)
        keys = [str(each) for each in new.cast(polars.String).to_list()]
        fresh = [place for place, key in enumerate(keys) if key not in self.texts]
        for place in fresh:
            self.texts[keys[place]] = len(self.texts)
        if fresh:
            self.parts.append(new[fresh])
        if len(self.texts) > MOST_LABEL_TEXTS:
            raise ValueError(
                f"the target must be a column of classes, but {target!r} has more than {MOST_LABEL_TEXTS} different "
                "values"
            )
        numbers = [self.texts[key] for key in keys]
        codes = text.replace_strict(new, numbers, default=-1, return_dtype=polars.Int32)
        self.codes.append(codes.fill_null(-1).to_numpy().astype(np.int32))

    def found(self, large: LargeTable, target: str) -> tuple[TableColumn, NDArray[np.int32]]:
        """The different values as a column, and their number in each row, -1 if there is none."""
        import polars

        if not self.parts:
            nothing = polars.Series(target, [None], dtype=polars.String)
            return large.as_column(nothing), np.concatenate(self.codes)
        return large.as_column(polars.concat(self.parts).rename(target)), np.concatenate(self.codes)


# --- the second pass: the rows ---


class Encoder:
    """Encodes chunks of a large table, and counts values that are missing or cannot be read.

    Args:
        preprocessing: Encodes rows as features.
    """

    def __init__(self, preprocessing: Preprocessing) -> None:
        self.preprocessing = preprocessing
        self.counts: dict[str, EncodedColumn] = {}
        self.rows = 0

    def __call__(self, chunk: Chunk) -> Numbers:
        """Features of the rows of a chunk.

        Raises:
            ProblemsError: If columns are missing or have another type.
        """
        encoded = self.preprocessing.encode(chunk.table, partial=True)
        self.rows += chunk.num_rows
        for name, each in encoded.items():
            before = self.counts.get(name)
            unread = Counter({} if before is None else before.unread) + Counter(each.unread)
            missing = each.missing + (0 if before is None else before.missing)
            self.counts[name] = EncodedColumn(each.block[:0], missing, dict(unread))
        return self.preprocessing.joined(encoded)

    def finish(self, name: str) -> list[str]:
        """Notes on values, after all chunks.

        Args:
            name: Name of the file.

        Raises:
            ProblemsError: If most values of a column cannot be read as those of training were.
        """
        problems = Problems()
        for each in self.preprocessing.inputs:
            with problems.collecting():
                self.preprocessing.check_unread(each, self.counts[each.name], self.rows, name)
        problems.stop()
        return self.preprocessing.notes_on_values(self.counts)


def kinds_like_training(preprocessing: Preprocessing) -> dict[str, str]:
    """How to read columns of another CSV file chunk by chunk, where a chunk alone could mislead.

    Numbers with a decimal comma are text, and so are categories, of which some may look like numbers.
    """
    found = {}
    for each in preprocessing.inputs:
        if isinstance(each, CategoryInput):
            found[each.name] = "boolean" if {*each.values} & {"true", "false"} else "text"
        elif not isinstance(each, NumberInput) or each.decimal != ".":
            found[each.name] = "text"
    if preprocessing.target and not preprocessing.numeric_target:
        found[preprocessing.target] = "boolean" if {*preprocessing.classes} & {"true", "false"} else "text"
    return found


def plain_numbers(preprocessing: Preprocessing, kinds: Mapping[str, str]) -> set[str]:
    """Columns of a CSV file of which only the numbers are needed, with a decimal point; ``kinds`` as far as known."""
    return {
        each.name
        for each in preprocessing.inputs
        if isinstance(each, NumberInput) and each.decimal == "." and kinds.get(each.name, "number") == "number"
    }


@contextmanager
def naming_rows(chunk: Chunk) -> Iterator[None]:
    """Name the rows of a chunk in an error about its content."""
    try:
        yield
    except ValueError as error:
        where = f"rows {chunk.first + 1} to {chunk.first + chunk.num_rows}"
        if isinstance(error, ProblemsError):
            raise ProblemsError([f"{where}: {each}" for each in error.problems]) from error
        raise ValueError(f"{where}: {error}") from error


def _convert(job: Job, folder: Path, identity: Mapping[str, Any], report: ReadingReport) -> None:
    """Read all rows twice, and write the store."""
    timer = Timer()
    found = _scan(job, lambda label, share: report(label, share / 2), timer)
    part, notes = _allot(job, found)
    in_training = np.flatnonzero(part[found.sample_rows] == FOR_TRAINING)
    preprocessing, more = fit_preprocessing(
        found.sample,
        target=job.target,
        rows=in_training if len(in_training) else np.arange(found.sample.num_rows),
        drop=job.drop,
        groups=found.classes,  # the classes are known, as if they were stated
        keep=job.keep,
        id_column=job.id_column,
    )
    notes = [*found.table.notes, *notes, *more, *notes_on_rows(job, found.counts)]
    sample = preprocessing.transform(found.sample)[0]
    in_scale = np.isin(part[found.sample_rows], (FOR_TRAINING, FOR_BELIEF))
    scale = FeatureScale.of(sample[in_scale], None, preprocessing.features)
    arrays: dict[str, NDArray[Any]] = {
        "sample_x": sample[in_training],
        "sample_y": found.labels[found.sample_rows[in_training]],
        "mean": scale.mean,
        "std": scale.std,
        "medians": np.asarray(scale.medians),
    }
    columns = (*preprocessing.columns, *([job.id_column] if job.id_column else []))
    encoder, ids = Encoder(preprocessing), list[str | None]()
    kept: dict[str, list[Numbers]] = {name: [] for name in HELD}
    with RowWriter(folder, find_flags(preprocessing, scale)) as writer:
        large = found.table.only(columns, numeric=plain_numbers(preprocessing, found.table.kinds))
        for chunk in timer.each(READING_STAGE, large.chunks()):
            rows = slice(chunk.first, chunk.first + chunk.num_rows)
            here, labels = part[rows], found.labels[rows]
            with timer.of(PREPROCESSING_STAGE), naming_rows(chunk):
                inputs = encoder(chunk)
                writer.write(scale(inputs[here == FOR_TRAINING]).numpy(), labels[here == FOR_TRAINING])
            for name, number in HELD.items():
                kept[name].append(inputs[here == number])
            if job.id_column:
                texts = chunk.table[job.id_column].texts()
                ids += [texts[row] for row in np.flatnonzero(here == FOR_TEST).tolist()]
            report(f"preprocessing {job.data.name}", chunk.share / 2)
    encoder.finish(job.data.name)
    for name, number in HELD.items():
        arrays[f"{name}_x"] = np.concatenate(kept[name])
        arrays[f"{name}_rows"] = np.flatnonzero(part == number)
        arrays[f"{name}_y"] = found.labels[part == number]
    np.savez(folder / TASK_ARRAYS, **arrays)  # type: ignore[arg-type]
    content = {
        "format": STORE_FORMAT,
        "identity": dict(identity),
        "preprocessing": preprocessing.to_json(),
        "indicators": list(scale.indicators),
        "ids": ids if job.id_column else None,
        "notes": notes,
        "seconds": timer.seconds,
        "rows": len(found.labels),
    }
    write_json(folder / TASK_FILE, content)


def _allot(job: Job, found: _Scanned) -> tuple[NDArray[np.uint8], list[str]]:
    """What each row is used for, and notes: as in memory, but no more rows are held out than fit there."""
    known, free = np.flatnonzero(found.labels >= 0), np.flatnonzero(found.labels < 0)
    notes = [f"the table is large, so it is read in parts, and a network is trained on them; it has {len(known)} rows"]
    notes[0] += " with a label" if len(free) else ""
    if len(found.labels) > found.sample.num_rows:
        notes.append(
            f"a random sample of {found.sample.num_rows} rows decides which columns are used, categories and scales"
        )
    (test_fraction, val_fraction), told = _capped(job, len(known))
    rank = np.argsort(np.argsort(np.array(found.classes.classes)))  # classes are split in the order of their names
    parts = split(rank[found.labels[known]], test_fraction=test_fraction, val_fraction=val_fraction, seed=job.seed)
    part = np.zeros(len(found.labels), dtype=np.uint8)
    for number, rows in ((FOR_TRAINING, parts.train), (FOR_VALIDATION, parts.val), (FOR_TEST, parts.test)):
        part[known[rows]] = number
    use, text = use_of_unlabelled(job, len(free))
    notes += [*told, *([text] if text else [])]
    if use:
        draw = np.random.default_rng(derive(job.seed, "unlabelled"))
        part[free if len(free) <= MOST_UNLABELLED else draw.choice(free, MOST_UNLABELLED, replace=False)] = FOR_BELIEF
        if len(free) > MOST_UNLABELLED:
            notes.append(f"{MOST_UNLABELLED} of them are used, chosen at random")
    return part, notes


def _capped(job: Job, labels: int) -> tuple[tuple[float, float], list[str]]:
    """Shares of the labelled rows for testing and validation, limited to rows that fit into memory, and a note."""
    found, notes = [], []
    for share, what in zip(job.shares(labels), ("test on", "validate"), strict=True):
        found.append(min(share, MOST_ROWS_HELD_OUT / max(labels, 1)))
        if share * labels > MOST_ROWS_HELD_OUT:
            notes.append(f"{MOST_ROWS_HELD_OUT} rows are held out to {what}, and no more, as they stay in memory")
    return (found[0], found[1]), notes


def find_flags(preprocessing: Preprocessing, scale: FeatureScale) -> list[bool]:
    """Which inputs of a network are zeros and ones: categories, and indicators of missing values."""
    categories = [isinstance(each, CategoryInput) for each in preprocessing.inputs for _ in range(each.width)]
    return [*categories, *[True] * len(scale.indicators)]


# --- back from the store ---


def _load(job: Job, folder: Path) -> StreamedTask:
    """The task of a complete store."""
    found = read_json(folder / TASK_FILE, kind=STORE_FORMAT)
    preprocessing = Preprocessing.from_json(found["preprocessing"])
    with np.load(folder / TASK_ARRAYS, allow_pickle=False) as arrays:
        kept = dict(arrays)
    scale = FeatureScale(kept["mean"], kept["std"], preprocessing.features, kept["medians"], tuple(found["indicators"]))
    streamed = StreamedClassifier(**job.classifier.get_params())
    store = RowStore(folder, find_flags(preprocessing, scale), dtype=streamed.dtype)
    notes, problems = list(found["notes"]), Problems()
    unlabelled = kept["unlabelled_x"] if len(kept["unlabelled_x"]) else None
    place: str | None = None if unlabelled is None else job.data.name
    test, where, elsewhere = (kept["test_x"], _classes(kept["test_y"])), None, False
    if job.unlabelled is not None:
        with problems.collecting():
            table = _table(job, job.unlabelled, preprocessing.columns, notes)
            unlabelled, told = preprocessing.transform(table)
            place = job.unlabelled.name
            notes += [f"{place}: {text}" for text in told]
    if job.test is not None:
        with problems.collecting():
            table = _table(job, job.test, (*preprocessing.columns, preprocessing.target), notes)
            test, where, told = read_labelled(preprocessing, table)
            elsewhere = True
            notes += [f"{job.test.name}: {text}" for text in told]
    if job.one_pass:
        batches = StoredBatches(store, batch_size=job.classifier.batch_size, seed=0, device=torch.device("cpu"))
        steps = max(job.classifier.steps or LABEL_STEPS, batches.per_epoch)
        job.classifier.set_params(steps=steps)
        streamed.set_params(steps=steps)
        passes = steps / batches.per_epoch
        notes.append(f"{steps} steps are {passes:.3g} passes over the training rows: `steps` changes it")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        stated = problems.attempt(streamed.state_beliefs, store, preprocessing.class_labels, scale, unlabelled)
    problems.stop()
    assert stated is not None
    notes += [str(each.message) for each in said]
    if not job.states_something:
        notes.append("no prior knowledge given: pass `accuracy` or `class_fractions` to state some")
    elif not job.method.believes:
        notes.append(f"the method {job.classifier.method} does not use the belief: it is only shown in the report")
    rows = HeldOutRows((kept["test_rows"] + 1).tolist(), found["ids"])
    return StreamedTask(
        name=job.data.name,
        preprocessing=preprocessing,
        train=(kept["sample_x"], _classes(kept["sample_y"])),
        val=(kept["val_x"], _classes(kept["val_y"])),
        test=test,
        summaries=stated[1].summaries,
        words=describe_statement(job, stated[1], preprocessing.classes, about_unlabelled=unlabelled is not None),
        notes=tuple(notes),
        unlabelled=unlabelled,
        place=place,
        test_rows=rows if where is None else where,
        elsewhere=elsewhere,
        store=store,
        scale=scale,
        speeds={name: Speed(found["rows"], seconds) for name, seconds in found["seconds"].items()},
        classifier=(streamed, *stated),
    )


def _classes(labels: NDArray[Any]) -> Tensor:
    return torch.from_numpy(labels.astype(np.int64))


def _table(job: Job, path: Path, columns: tuple[str, ...], notes: list[str]) -> Table:
    """Another table of a job: as a whole, or a sample if it is large."""
    if not is_large(path):
        return read_table(path, columns=columns, no_header=job.no_header)
    table, rows = read_sample(
        path,
        no_header=job.no_header,
        most=MOST_ROWS_HELD_OUT,
        seed=derive(job.seed, os.fspath(path.name)),
        columns=columns,
    )
    if table.num_rows < rows:
        notes.append(f"{path.name}: {table.num_rows} of {rows} rows are used, chosen at random")
    return table
