"""Reads the predictions of a large file chunk by chunk; only the columns of the classes are kept."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selbo.evaluation.belief_calibration import UNLABELLED
from selbo.random import derive
from selbo.tabular.chunks import Chunk, LargeTable, ReadingReport, no_report, open_large
from selbo.tabular.predictions import (
    ClassColumns,
    PredictionFile,
    columns_as_array,
    find_class_columns,
    parse_labels,
)

MOST_FITTED: Final = 2**22
"""Predictions (rows times classes) that a correction is fitted to: of more rows, a random part is used, which gives
the means of all to three digits."""

FEW_LABELS: Final = 0.1
"""Share of the fitted rows up to which labels outside of a random part are added to it."""


class LargePredictions(NamedTuple):
    """The predictions of a large file.

    Attributes:
        table: The file.
        chosen: The columns of the classes.
        values: Predictions as they are in the file, shape (n, K), or (n, 1) of a single score.
        labels: Numbers of the classes, -1 where there is none; None without labels.
    """

    table: LargeTable
    chosen: ClassColumns
    values: NDArray[np.float64]
    labels: NDArray[np.int64] | None


def read_large_predictions(
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    labels: str | None = None,
    names: Sequence[str] | None = None,
    no_header: bool = False,
    report: ReadingReport = no_report,
) -> LargePredictions:
    """Read the predictions of a CSV or Parquet file; arguments as in `find_class_columns` and `open_large`.

    Raises:
        ValueError: If there are no such columns, or a value is no number.
    """
    large = open_large(path, no_header=no_header)
    first = next(large.chunks())
    chosen = find_class_columns(first.table, columns=columns, classes=classes, labels=labels, names=names)
    if labels is not None:
        _ = first.table[labels]
    only = large.only([*chosen.columns, *([] if labels is None else [labels])])
    values, known = list[NDArray[np.float64]](), list[NDArray[np.int64]]()
    for chunk in only.chunks():
        _check_numbers(chunk, chosen.columns)
        values.append(columns_as_array(chunk.table, chosen.columns))
        if labels is not None:
            known.append(parse_labels(chunk.table[labels], chosen.classes, chosen.positive))
        report(f"reading {path.name}", chunk.share)
    return LargePredictions(large, chosen, np.concatenate(values), np.concatenate(known) if known else None)


def _check_numbers(chunk: Chunk, columns: Sequence[str]) -> None:
    """Name the first value that is no number."""
    for name in columns:
        if chunk.table[name].numbers is not None:
            continue
        for place, text in enumerate(chunk.table[name].texts()):
            if text is not None and not _is_number(text):
                raise ValueError(
                    f"the column {name!r} must hold numbers, but row {chunk.first + place + 1} has {text[:40]!r}"
                )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def rows_to_fit(values: NDArray[Any], labels: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Rows that a correction is fitted to: all, or a random part of them, with the labels if these are few."""
    count, most = len(values), max(1, MOST_FITTED // values.shape[1])
    if count <= most:
        return np.arange(count)
    rows = np.random.default_rng(derive(0, "rows to fit")).choice(count, most, replace=False)
    if labels is not None:
        known = np.flatnonzero(labels != UNLABELLED)
        if len(known) <= FEW_LABELS * most:
            rows = np.union1d(rows, known)
    return np.sort(rows)


def prediction_chunks(large: LargeTable) -> Iterator[tuple[Chunk, PredictionFile]]:
    """The file as it is, chunk by chunk."""
    for chunk in large.chunks():
        values = {each.name: each.to_list() if large.is_csv else each for each in chunk.frame}
        yield chunk, PredictionFile(large.path, chunk.table, values, None)
