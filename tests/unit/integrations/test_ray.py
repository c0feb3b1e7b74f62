"""The adapter for Ray Data, without Ray: what it makes of a batch. `end_to_end/test_ray.py` has a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import selbo
from selbo.evaluation import Prediction
from selbo.integrations.ray import BatchPredictor, calibrate_dataset


class Rows:
    """As much of a `ray.data.Dataset` as is used; batches of three rows."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns, self.materialized = columns, 0

    def schema(self) -> Any:
        return type("Schema", (), {"names": list(self.columns)})

    def select_columns(self, names: list[str]) -> Rows:
        return Rows({name: self.columns[name] for name in names})

    def materialize(self) -> Rows:
        return self

    def map_batches(self, function: Callable[..., Any], *, batch_size: int) -> Rows:
        rows = len(next(iter(self.columns.values())))
        made = [
            function({name: values[first : first + 3] for name, values in self.columns.items()})
            for first in range(0, rows, 3)
        ]
        return Rows({name: [value for each in made for value in each[name]] for name in made[0]})

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))


def log_probs(seed: int) -> torch.Tensor:
    return (2 * torch.randn(40, 3, generator=torch.Generator().manual_seed(seed))).log_softmax(-1)


def as_prediction(values: torch.Tensor) -> Prediction:
    zero = torch.zeros(len(values))
    return Prediction(values.exp(), values, zero, zero, zero)


def test_a_model_is_loaded_once_and_predictions_may_have_three_forms(seed):
    expected, loads = log_probs(seed), []
    for form in (lambda x: x, lambda x: x.numpy(), as_prediction):

        def load(form: Callable[[torch.Tensor], Any] = form) -> Callable[[Any], Any]:
            loads.append(1)
            return lambda batch: form(expected[batch["id"]])

        predictor = BatchPredictor(load, keep=["id"])
        for ids in (np.arange(7), np.arange(7, 40)):
            found = predictor({"id": ids, "x": ids})
            assert list(found) == ["id", "log_probs"]
            assert found["log_probs"].dtype == np.float32
            np.testing.assert_allclose(found["log_probs"], expected[ids], rtol=1e-6)
    assert len(loads) == 3


def test_calibration_is_that_of_all_rows_and_corrects_predictions(seed):
    values = log_probs(seed)
    stated = {"class_fractions": [0.3, 0.3, 0.4], "concentration": 50.0}
    found = calibrate_dataset(Rows({"id": np.arange(40), "log_probs": values.numpy()}), **stated)
    alone = selbo.calibrate_to_belief(values, **stated)
    assert found.offsets == pytest.approx(alone.offsets, rel=1e-8)
    predictor = BatchPredictor(lambda: lambda batch: values, calibration=found)
    np.testing.assert_allclose(predictor({"id": np.arange(40)})["log_probs"], alone(values), rtol=1e-5, atol=1e-6)


def test_what_is_wrong_is_one_sentence():
    with pytest.raises(ValueError, match=r"one row of log-probabilities per row .* returned shape \(2,\) for 3 rows"):
        BatchPredictor(lambda: lambda batch: np.zeros(2))({"id": np.arange(3)})
    with pytest.raises(ValueError, match=r"`dataset` must be a ray.data.Dataset, but got list"):
        calibrate_dataset([], accuracy=0.7)
    rows = Rows({"log_probs": np.zeros((3, 2))})
    with pytest.raises(ValueError, match="nothing is stated"):
        calibrate_dataset(rows)
    with pytest.raises(ValueError, match=r"`column` must be one of \['log_probs'\], but got 'logits'"):
        calibrate_dataset(rows, accuracy=0.7, column="logits")
