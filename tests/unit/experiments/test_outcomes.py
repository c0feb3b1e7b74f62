"""What is kept of a run: counts and shares by hand, and nothing that JSON or a report would refuse."""

from __future__ import annotations

import json
import math

import pytest
import torch

from selbo.evaluation.predict import Prediction
from selbo.experiments import outcomes
from selbo.summary.beliefs import Uniform
from selbo.summary.likelihood import SummaryLikelihood
from selbo.summary.partitions import ConfidenceBins


def prediction(rows: list[list[float]]) -> Prediction:
    probs = torch.tensor(rows, dtype=torch.float64)
    entropy = -(probs * probs.clamp(min=1e-300).log()).sum(-1)
    return Prediction(probs, probs.log(), entropy, entropy, torch.zeros_like(entropy))


ROWS = [[0.9, 0.05, 0.05], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.97, 0.02, 0.01]]


def test_region_masses_are_shares_of_the_predictions() -> None:
    partition = ConfidenceBins([0.55, 0.8], num_classes=3)
    assert outcomes.region_masses(prediction(ROWS), partition) == [0.25, 0.25, 0.5]


def test_entropies_of_both_kinds_share_their_bins() -> None:
    sure, unsure = prediction([[1.0, 0.0, 0.0]] * 3), prediction([[1 / 3, 1 / 3, 1 / 3]] * 2)
    found = outcomes.entropies(sure, unsure)
    assert found["edges"][0] == 0
    assert found["edges"][-1] == pytest.approx(math.log(3))
    assert found["in"][0] == 3
    assert found["out"][-1] == 2, "the largest entropy lies in the last bin, not beyond it"
    assert sum(found["in"]) == 3
    assert outcomes.entropies(sure, None)["out"] is None


def test_a_condition_is_finite_and_survives_json() -> None:
    labels = torch.tensor([0, 1, 2, 1])
    found = outcomes.condition(prediction([*ROWS[:3], [1.0, 0.0, 0.0]]), labels, level=0.5)
    assert found["metrics"]["nll"] is None, "a label of probability zero costs infinitely much"
    assert found["metrics"]["accuracy"] == 0.5
    assert found["recall"] == [1.0, 0.0, 1.0]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_reliability_counts_every_prediction_once() -> None:
    found = outcomes.reliability_of(prediction(ROWS), torch.tensor([0, 1, 2, 1]))
    assert sum(found["count"]) == 4
    assert found["confidence"][8] == pytest.approx(0.9)
    assert found["accuracy"][9] == 0.0


def test_a_belief_has_a_label_a_region() -> None:
    summary = SummaryLikelihood(ConfidenceBins([0.5, 0.9], num_classes=3), Uniform(), concentration=70.0)
    belief = outcomes.belief_of(summary, "as good as nothing")
    assert len(belief["regions"]) == len(belief["s0"]) == 3
    assert belief["concentration"] == 70.0
    assert sum(belief["s0"]) == pytest.approx(1)
