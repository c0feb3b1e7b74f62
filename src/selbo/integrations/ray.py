"""Ray Data: predict tables larger than a machine in batches, and calibrate the predictions to a belief."""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from selbo import _checks
from selbo.evaluation import BeliefCalibration, Prediction, calibrate_in_parts

if TYPE_CHECKING:
    from ray.data import Dataset

RayBatch = Mapping[str, NDArray[Any]]
"""Columns of a batch, as Ray Data gives them with ``batch_format="numpy"``, its default."""

PREDICTED: Final = "log_probs"
ROWS_PER_PART: Final = 1 << 16
"""Number of rows whose sums are computed at a time."""


class BatchPredictor:
    """Predicts batches of a Ray data set: a class for ``Dataset.map_batches``, each actor of which loads a model once.

    Args:
        load: Called once per actor. Returns a function that takes a batch, a mapping of columns to arrays, and returns
            log-probabilities, shape (B, K), or a `Prediction`.
        keep: Columns that stay beside the predictions, such as an identifier.
        calibration: A correction of the predictions, such as `calibrate_dataset` returns.

    Example:
        >>> import torch
        >>> def load():  # of a file, once per actor
        ...     network = torch.nn.LogSoftmax(-1)
        ...     return lambda batch: network(torch.as_tensor(batch["features"]))
        >>> predictor = BatchPredictor(load, keep=["id"])
        >>> batch = {"id": np.arange(2), "features": np.ones((2, 3), np.float32)}
        >>> {name: column.shape for name, column in predictor(batch).items()}
        {'id': (2,), 'log_probs': (2, 3)}
    """

    def __init__(
        self,
        load: Callable[[], Callable[[RayBatch], Any]],
        *,
        keep: Sequence[str] = (),
        calibration: BeliefCalibration | None = None,
    ) -> None:
        self.predict = load()
        self.keep, self.calibration = tuple(keep), calibration

    def __call__(self, batch: RayBatch) -> dict[str, NDArray[Any]]:
        """The kept columns, and ``log_probs``, one row of float32 per row of the batch."""
        found = self.predict(batch)
        log_probs = found.log_probs if isinstance(found, Prediction) else found
        if self.calibration is not None:
            log_probs = self.calibration(log_probs)
        values = log_probs.detach().cpu().numpy() if isinstance(log_probs, Tensor) else np.asarray(log_probs)
        rows = len(next(iter(batch.values())))
        if values.ndim != 2 or len(values) != rows:
            raise ValueError(
                f"`load` must give a function that returns one row of log-probabilities per row of the batch, but it "
                f"returned shape {values.shape} for {rows} rows"
            )
        return {**{name: batch[name] for name in self.keep}, PREDICTED: values.astype(np.float32)}


def calibrate_dataset(
    dataset: "Dataset",
    *,
    accuracy: float | None = None,
    class_fractions: Sequence[float] | None = None,
    concentration: float | None = None,
    column: str = PREDICTED,
) -> BeliefCalibration:
    """`selbo.calibrate_to_belief` for predictions in a Ray data set. The rows stay where they are: only sums are sent.

    The column of predictions is computed once and kept in the object store of Ray, which spills to disk; then a dozen
    passes over it compute sums. What a node held that dies is computed again.

    Args:
        dataset: A `ray.data.Dataset`, such as ``map_batches(BatchPredictor, ...)`` returns.
        accuracy: Share of the answers that are right.
        class_fractions: Fraction of each class among the rows.
        concentration: Number of observations behind the stated numbers; 1000 if not given.
        column: Column with one row of log-probabilities or logits per row.

    Returns:
        The correction, to be passed to `BatchPredictor`, or called with log-probabilities.
    """
    if not hasattr(dataset, "map_batches"):
        raise ValueError(f"`dataset` must be a ray.data.Dataset, but got {type(dataset).__name__}")
    if accuracy is None and class_fractions is None:
        raise ValueError("`accuracy` or `class_fractions` must be given: nothing is stated")
    names = dataset.schema().names
    _checks.one_of("column", column, names)
    held = dataset.select_columns([column]).materialize()

    def map_parts(function: Callable[[Any], Any]) -> Iterator[Any]:
        results = held.map_batches(partial(_apply, function=function, column=column), batch_size=ROWS_PER_PART)
        for row in results.iter_rows():
            yield pickle.loads(row["result"])  # of our own function, in the same cluster

    return calibrate_in_parts(
        map_parts, accuracy=accuracy, class_fractions=class_fractions, concentration=concentration
    )


def _apply(batch: RayBatch, *, function: Callable[[Any], Any], column: str) -> dict[str, list[bytes]]:
    """The result of a function of one batch, as bytes in a table of one row."""
    values = np.array(batch[column])  # a copy that can be written to, as torch expects of arrays
    return {"result": [pickle.dumps(function(values))]}
