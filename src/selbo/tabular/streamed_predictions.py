"""Predicts the rows of a large table chunk by chunk."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from selbo.evaluation.predict import Prediction
from selbo.tabular.chunks import Chunk, LargeTable, ReadingReport, no_report, open_large
from selbo.tabular.preprocessing import Preprocessing
from selbo.tabular.streaming import Encoder, kinds_like_training, naming_rows, plain_numbers
from selbo.tabular.table import Numbers

EXACT_CELLS: Final = 2**25
"""Numbers of predictions that are kept in double precision; more are kept in single precision."""

Predict = Callable[[Numbers], Prediction]


class PredictedChunk(NamedTuple):
    """Rows of a large table, and their predictions."""

    chunk: Chunk
    prediction: Prediction


class ChunkedPredictions:
    """The rows of a large table and their predictions, chunk by chunk.

    Args:
        path: The table.
        preprocessing: Encodes rows as features.
        predict: Predicts features.
        more: Columns that are read besides the inputs.
        no_header: Whether the first line of a CSV file is a row.
        report: Called with the progress.
    """

    def __init__(
        self,
        path: Path,
        preprocessing: Preprocessing,
        predict: Predict,
        *,
        more: tuple[str, ...] = (),
        no_header: bool = False,
        report: ReadingReport = no_report,
    ) -> None:
        kinds = kinds_like_training(preprocessing)
        numeric = plain_numbers(preprocessing, kinds) - set(more)
        opened = open_large(path, no_header=no_header)
        self.table: LargeTable = opened.only((*preprocessing.columns, *more), kinds, numeric)
        self.encoder, self.predict, self.report = Encoder(preprocessing), predict, report
        self.notes: list[str] = []
        self.rows = 0

    def __iter__(self) -> Iterator[PredictedChunk]:
        for chunk in self.table.chunks():
            if chunk.first == 0:
                self.notes += self.encoder.preprocessing.notes_on_columns(chunk.table)
            with naming_rows(chunk):
                inputs = self.encoder(chunk)
                prediction = self.predict(inputs)
            self.rows += len(inputs)
            yield PredictedChunk(chunk, prediction)
            self.report(f"predicting {self.table.path.name}", chunk.share)
        self.notes += self.encoder.finish(self.table.path.name)


class KeptPredictions:
    """Predictions of all rows, in single precision if there are many."""

    def __init__(self) -> None:
        self.parts: list[list[Tensor]] = [[] for _ in fields(Prediction)]
        self.cells, self.dtype = 0, torch.float64

    def add(self, prediction: Prediction) -> None:
        """Add predictions of further rows."""
        tensors = [getattr(prediction, each.name) for each in fields(Prediction)]
        self.cells += sum(each.numel() for each in tensors)
        if self.cells > EXACT_CELLS and self.dtype is torch.float64:
            self.dtype = torch.float32
            self.parts = [[each.float() for each in part] for part in self.parts]
        for part, tensor in zip(self.parts, tensors, strict=True):
            part.append(tensor.to(self.dtype))

    def whole(self) -> Prediction:
        """All predictions; none are kept here afterwards."""
        found = []
        for part in self.parts:
            found.append(torch.cat(part))
            part.clear()
        return Prediction(*found)


def select(prediction: Prediction, rows: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Prediction:
    """The predictions of some rows."""
    chosen = torch.from_numpy(rows)
    return Prediction(*(getattr(prediction, each.name)[chosen] for each in fields(Prediction)))
