"""What is kept of a run: counts and shares by hand, and nothing that JSON or a report would refuse."""

from __future__ import annotations

import json
import math

import pytest
import torch

from selbo.evaluation.predict import Prediction
from selbo.metrics import wilson_interval
from selbo.report import outcomes
from selbo.results import ClassResult, ClassResults, GroupResult, Measurement, RiskCurve
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
    assert outcomes.region_masses(prediction(ROWS), partition) == (0.25, 0.25, 0.5)


def test_entropies_of_both_kinds_share_their_bins() -> None:
    sure, unsure = prediction([[1.0, 0.0, 0.0]] * 3), prediction([[1 / 3, 1 / 3, 1 / 3]] * 2)
    found = outcomes.entropies(sure, unsure)
    assert found.edges[0] == 0
    assert found.edges[-1] == pytest.approx(math.log(3))
    assert found.inside[0] == 3
    assert found.outside[-1] == 2, "the largest entropy lies in the last bin, not beyond it"
    assert sum(found.inside) == 3
    assert outcomes.entropies(sure, None).outside is None


def test_a_condition_is_finite_and_survives_json() -> None:
    labels = torch.tensor([0, 1, 2, 1])
    found = outcomes.condition(prediction([*ROWS[:3], [1.0, 0.0, 0.0]]), labels, level=0.5)
    assert found.metrics["nll"] is None, "a label of probability zero costs infinitely much"
    assert found.metrics["accuracy"] == 0.5
    assert found.recall == (1.0, 0.0, 1.0)
    assert Measurement.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found


def test_reliability_counts_every_prediction_once() -> None:
    found = outcomes.compute_reliability(prediction(ROWS), torch.tensor([0, 1, 2, 1]))
    assert sum(found.count) == 4
    assert found.confidence[8] == pytest.approx(0.9)
    assert found.accuracy[9] == 0.0


def test_a_belief_has_a_label_a_region() -> None:
    summary = SummaryLikelihood(ConfidenceBins([0.5, 0.9], num_classes=3), Uniform(), concentration=70.0)
    belief = outcomes.describe_belief(summary, "as good as nothing")
    assert len(belief.regions) == len(belief.s0) == 3
    assert belief.concentration == 70.0
    assert sum(belief.s0) == pytest.approx(1)


LABELS = torch.tensor([0, 1, 2, 0])


def test_scores_by_class_hold_counts_shares_and_intervals() -> None:
    found = json.loads(json.dumps(outcomes.by_class(prediction(ROWS), LABELS, ["a", "b", "c"]).to_dict()))
    a, b, c = found["per_class"]
    assert {key: a[key] for key in ("class", "rows", "predicted", "correct", "recall")} == {
        "class": "a",
        "rows": 2,
        "predicted": 3,
        "correct": 2,
        "recall": 1.0,
    }
    assert a["precision"] == pytest.approx(2 / 3)
    assert (b["recall"], b["precision"], b["precision_interval"]) == (0.0, None, None)
    assert c["recall_interval"] == pytest.approx([0.2065, 1.0], abs=1e-4)
    assert found["confusion"] == [
        {"true": "a", "predicted": "a", "rows": 2},
        {"true": "b", "predicted": "a", "rows": 1},
        {"true": "c", "predicted": "c", "rows": 1},
    ]


def by_class(*counts: tuple[str, int, int]) -> ClassResults:
    """Class, rows and those that are right; the others are not predicted as any class."""
    scores = [
        ClassResult(
            name=name,
            rows=rows,
            predicted=right,
            correct=right,
            recall=right / rows if rows else None,
            recall_interval=(0.0, 1.0) if rows else None,
            precision=None,
            precision_interval=None,
        )
        for name, rows, right in counts
    ]
    return ClassResults(per_class=tuple(scores), confusion=())


@pytest.mark.parametrize(
    ("right", "confidence", "said"),
    [
        ((95, 85), 0.9, ["Right on 90.0 % of the 200 test rows (95 % interval 85.1 to 93.4 %), better than", "agrees"]),
        (
            (60, 40),
            0.9,
            ["Right on 50.0 %", "no clear difference from always answering “no”, which is right on 50.0 %"],
        ),
        ((60, 40), 0.9, ["Its mean confidence, 90.0 %, is too high: it is overconfident."]),
        ((5, 5), 0.9, ["Right on 5.0 %", "worse than always answering “no”"]),
        ((95, 85), 0.7, ["too low: it is underconfident", "The class recognised least is “yes”: 85 of 100 rows."]),
    ],
)
def test_the_takeaway_says_how_good_it_is_whichever_way(
    right: tuple[int, int], confidence: float, said: list[str]
) -> None:
    found = by_class(("no", 100, right[0]), ("yes", 100, right[1]), ("never", 0, 0))
    text = outcomes.summarise_metrics(found.per_class, most_frequent="no", confidence=confidence)
    for part in said:
        assert part in text


def test_groups_are_in_order_and_survive_json() -> None:
    labels = torch.tensor([0, 2, 2, 0])
    found = outcomes.by_group(prediction(ROWS), labels, ["10", "9", "b", "9"])
    assert [(each.name, each.rows) for each in found] == [("9", 2), ("10", 1), ("b", 1)]
    assert found[0].metrics["accuracy"] == 0.5
    assert found[0].metrics["nll"] == pytest.approx(-(math.log(0.2) + math.log(0.97)) / 2)
    assert found[1].intervals["nll"] is None
    for each in found:
        assert GroupResult.from_dict(json.loads(json.dumps(each.to_dict()))) == each


def test_the_worst_group_is_named() -> None:
    def group(name: str, rows: int, correct: int, confidence: float) -> GroupResult:
        low, high = wilson_interval(correct, rows)
        return GroupResult(
            name=name,
            rows=rows,
            metrics={"accuracy": correct / rows, "overconfidence": confidence - correct / rows},
            intervals={"accuracy": (low, high), "overconfidence": (confidence - high, confidence - low)},
        )

    said = outcomes.group_takeaway([group("A", 60, 54, 0.9), group("B", 20, 8, 0.9)])
    assert "lowest in “B”: 40.0 % of 20 rows (95 % interval 21.9 to 61.3 %), against 77.5 % of all rows" in said
    assert said.endswith("Clearly overconfident: “B”.")
    modest = outcomes.group_takeaway([group("A", 60, 54, 0.6), group("B", 20, 8, 0.9), group("C", 60, 54, 0.9)])
    assert modest.endswith("Clearly overconfident: “B”. Clearly underconfident: “A”.")
    assert outcomes.group_takeaway([group("A", 60, 54, 0.9)]).endswith("No group is clearly over- or underconfident.")
    with pytest.raises(ValueError, match=r"`intervals.accuracy` must be two increasing numbers"):
        GroupResult(name="A", rows=1, metrics={}, intervals={"accuracy": (1.0, 0.0)})


def test_the_risk_curve_holds_the_errors_of_the_most_confident() -> None:
    found = outcomes.compute_risk_curve(prediction(ROWS), torch.tensor([0, 1, 2, 1]))
    # by confidence: .97 wrong, .9 right, .6 right, .5 wrong
    assert len(found.risk) == outcomes.RISK_STEPS
    assert [found.risk[k] for k in (0, 24, 25, 49, 74, 99)] == pytest.approx([1, 1, 1 / 2, 1 / 2, 1 / 3, 1 / 2])
    assert found.area == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert RiskCurve.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        RiskCurve(risk=(1.2,), area=0.1)
