"""What a summary claims before training: against scipy, against simulations, and in words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import selbo
from selbo.summary.description import Claims, accuracy_range, class_ranges, is_by_class, tells_class, tells_confidence
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, ScoreBins


def describe(partition, belief, concentration=200.0, **options) -> Claims:
    return selbo.SummaryLikelihood(partition, belief, concentration).describe(**options)


def test_stated_numbers_come_back():
    claims = describe(selbo.ScoreBins.equal(10), selbo.expect(accuracy=0.88, class_fractions=[0.7, 0.3]))
    assert claims.accuracy == pytest.approx((0.88, 0.88), abs=1e-7)
    assert claims.fractions == (pytest.approx((0.7, 0.7), abs=1e-7), pytest.approx((0.3, 0.3), abs=1e-7))
    belief = selbo.expect(accuracy=0.6, class_fractions=[0.5, 0.3, 0.2])
    for partition in (selbo.CornerShells(3), selbo.ConfidenceBins([0.5, 0.9], 3)):
        assert describe(partition, belief).accuracy == pytest.approx((0.6, 0.6), abs=1e-7)
    (first, second, third) = describe(selbo.CornerShells(3), belief).fractions
    assert (first[0], second[1], third[0]) == pytest.approx((0.5, 0.3, 0.2), abs=1e-7)


def test_regions_claim_only_what_they_look_at():
    """Class regions say nothing of confidence, and confidence bins nothing of classes, whatever the belief knows."""
    belief = selbo.expect(accuracy=0.6, class_fractions=[0.5, 0.3, 0.2])
    assert describe(selbo.ClassRegions(3), belief).accuracy is None
    assert describe(selbo.ClassRegions(3), belief).confidence == ()
    assert describe(selbo.ConfidenceBins([0.5, 0.9], 3), belief).fractions is None


def test_bands_of_confidence_are_those_of_the_distribution():
    """Bins at either end are one band; shells of all corners too."""
    beta = stats.beta(0.4, 0.9)
    bands = describe(selbo.ScoreBins([0.1, 0.3, 0.7, 0.9]), selbo.Beta(0.4, 0.9)).confidence
    assert [band[:2] for band in bands] == [pytest.approx(each) for each in ((0.9, 1), (0.7, 0.9), (0.5, 0.7))]
    expected = [
        beta.cdf(0.1) + beta.sf(0.9),
        beta.cdf(0.3) - beta.cdf(0.1) + beta.cdf(0.9) - beta.cdf(0.7),
        beta.cdf(0.7) - beta.cdf(0.3),
    ]
    assert [band[2] for band in bands] == pytest.approx(expected, rel=1e-9)
    values = [0.1, 0.05, 0.15, 0.08, 0.12, 0.2, 0.3]
    bands = describe(selbo.CornerShells(3, [0.6, 0.8]), selbo.Masses(values)).confidence
    assert bands == (
        pytest.approx((0.8, 1.0, 0.3)),
        pytest.approx((0.6, 0.8, 0.4)),
        pytest.approx((1 / 3, 0.6, 0.3)),
    )


def test_bounds_where_masses_leave_it_open():
    claims = describe(selbo.CornerShells(3, [0.6, 0.8]), selbo.Masses([0.1, 0.05, 0.15, 0.08, 0.12, 0.2, 0.3]))
    assert claims.accuracy == pytest.approx((0.3 * 0.8 + 0.4 * 0.6 + 0.3 / 3, 0.3 + 0.4 * 0.8 + 0.3 * 0.6))
    assert claims.fractions[2] == pytest.approx((0.35, 0.65))
    uneven = describe(selbo.ScoreBins([0.3, 0.6]), selbo.Masses([0.2, 0.5, 0.3]))
    assert uneven.fractions == (pytest.approx((0.2, 0.7)), pytest.approx((0.3, 0.8)))
    assert uneven.accuracy == pytest.approx((0.2 * 0.7 + 0.5 * 0.5 + 0.3 * 0.6, 0.2 + 0.5 * 0.7 + 0.3))
    halved = describe(selbo.ScoreBins([0.5, 0.6]), selbo.Masses([0.2, 0.5, 0.3]))
    assert halved.fractions == (pytest.approx((0.2, 0.2)), pytest.approx((0.8, 0.8)))


@pytest.mark.parametrize("num_inputs", [None, 1, 64, 3000])
def test_ranges_are_those_of_scipy(num_inputs):
    masses, alpha = (0.2, 0.5, 0.3), 40.0
    claims = describe(selbo.ScoreBins([0.3, 0.6]), selbo.Masses(masses), alpha, num_inputs=num_inputs, level=0.9)
    for mass, low, high in zip(masses, claims.low, claims.high, strict=True):
        if num_inputs is None:
            expected = stats.beta(alpha * mass, alpha * (1 - mass)).ppf([0.05, 0.95])
        else:
            expected = stats.betabinom(num_inputs, alpha * mass, alpha * (1 - mass)).ppf([0.05, 0.95]) / num_inputs
        assert (low, high) == pytest.approx(tuple(expected), rel=1e-8)
    assert claims.num_inputs == num_inputs
    assert claims.level == 0.9


@pytest.mark.parametrize("num_inputs", [None, 256])
def test_the_distance_is_that_of_simulated_histograms(num_inputs, seed):
    """A normal approximation: right to about a hundredth at these numbers, beside five standard errors."""
    masses, alpha = np.array([0.2, 0.5, 0.3]), 400.0
    generator = np.random.default_rng(seed)
    drawn = generator.dirichlet(alpha * masses, 20000)
    if num_inputs is not None:
        drawn = generator.multinomial(num_inputs, drawn) / num_inputs
    distances = np.abs(drawn - masses).sum(1) / 2
    error = 5 * distances.std() / math.sqrt(len(distances))
    belief = selbo.Masses(masses.tolist())
    claims = describe(selbo.ScoreBins([0.3, 0.6]), belief, alpha, num_inputs=num_inputs)
    assert abs(claims.distance / distances.mean() - 1) < 0.01 + error / distances.mean()


def test_the_likelihood_is_that_of_a_dirichlet_around_the_belief():
    """What the ranges rest on: as a function of h, Dir(s0 | alpha h) has the spread of Dir(h | alpha s0)."""
    alpha, s0 = 4000.0, 0.3
    summary = selbo.SummaryLikelihood(selbo.ClassRegions(2), selbo.Masses([1 - s0, s0]), alpha)
    grid = torch.linspace(0.25, 0.35, 2001, dtype=torch.float64)
    values = summary(torch.stack([1 - grid, grid], -1).log()[:, None])
    weights = (values - values.max()).exp()
    weights /= weights.sum()
    mean = (weights * grid).sum()
    spread = ((weights * (grid - mean) ** 2).sum()).sqrt().item()
    claims = summary.describe()
    assert (claims.high[1] - claims.low[1]) / (2 * stats.norm.ppf(0.975)) == pytest.approx(spread, rel=0.01)


def test_concentration_is_by_the_number_of_labels():
    belief, partition = selbo.Beta(0.4, 0.9), selbo.ScoreBins([0.3, 0.6])
    summary = selbo.SummaryLikelihood.for_data(
        partition, belief, 40, concentration_per_label=2.5, name="here", ema_decay=0.9
    )
    assert summary.concentration.item() == 100.0
    assert (summary.name, summary.average.decay) == ("here", 0.9)
    assert torch.equal(summary.s0, belief.masses(partition))
    assert selbo.SummaryLikelihood.for_data(partition, belief, 40).concentration.item() == pytest.approx(12.0)
    for settings, message in (
        ({"num_data": 0}, "`num_data` must be a whole"),
        ({"concentration_per_label": 0.0}, "`concentration_per_label` must be a fin"),
    ):
        with pytest.raises(ValueError, match=message):
            selbo.SummaryLikelihood.for_data(partition, belief, **{"num_data": 40, **settings})


def test_in_words():
    text = str(describe(selbo.ScoreBins.equal(10), selbo.expect(accuracy=0.88), 300.0, num_inputs=256))
    for part in (
        "with the weight of 300 observations",
        "class 0 50 %, class 1 50 %",
        "right, if calibrated: 88 % of the time",
        "confidence from 0.9 to 1: ",
        "of 256 predictions, ",
        "(95 % range)",
    ):
        assert part in text
    assert "of very many predictions" in str(describe(selbo.ClassRegions(2), selbo.Uniform()))
    assert "20 % to 70 %" in str(describe(selbo.ScoreBins([0.3, 0.6]), selbo.Masses([0.2, 0.5, 0.3])))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="`num_inputs` must be a whole number of at least 1, but got 0"):
        describe(selbo.ClassRegions(2), selbo.Uniform(), num_inputs=0)
    with pytest.raises(ValueError, match="`level` must lie strictly between 0 and 1, but got 1"):
        describe(selbo.ClassRegions(2), selbo.Uniform(), level=1)


def test_an_accuracy_below_a_constant_answer_is_pointed_out():
    said = "- too low: a constant prediction of the most frequent class would be right 90 % of the time"
    assert said in str(describe(selbo.ScoreBins.equal(10), selbo.expect(0.6, [0.9, 0.1])))
    assert "too low" not in str(describe(selbo.ScoreBins.equal(10), selbo.expect(0.95, [0.9, 0.1])))


def test_mean_probabilities_are_said_where_they_are_not_the_shares():
    rare = describe(selbo.ScoreBins.equal(10), selbo.Beta(1, 9))
    assert rare.label_fractions == (pytest.approx((0.9, 0.9)), pytest.approx((0.1, 0.1)))
    assert "- mean probabilities: class 0 90 %, class 1 10 %" in str(rare)
    assert "mean probabilities" not in str(describe(selbo.ScoreBins.equal(10), selbo.Beta(2, 2)))
    assert describe(selbo.ScoreBins.equal(10), selbo.expect(0.8, [0.9, 0.1])).label_fractions == (
        (0.9, 0.9),
        (0.1, 0.1),
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("num_inputs", [None, 50])
@pytest.mark.parametrize("small", [1e-12, 1e-17, 1e-40])
def test_a_mass_that_rounds_to_one(num_inputs, small):
    """Almost always all predictions are in the first region; a rare one elsewhere counts for both regions."""
    summary = selbo.SummaryLikelihood(selbo.ScoreBins([0.5]), selbo.Masses([1.0, small]), concentration=10.0)
    found = summary.describe(num_inputs=num_inputs)
    assert found.low == found.high == pytest.approx((1.0, 0.0))
    assert found.distance == pytest.approx(2 * small, rel=1e-4)
    assert "nan" not in str(found)


def test_the_distance_stays_below_one():
    assert describe(selbo.ScoreBins.equal(10), selbo.Uniform(), num_inputs=1).distance == pytest.approx(0.9)


# --- what the regions tell ---


@pytest.mark.parametrize(
    "partition",
    [ScoreBins([0.1, 0.45, 0.7]), CornerShells(4, [0.6, 0.9]), ClassRegions(3), ConfidenceBins([0.4, 0.8], 5)],
    ids=lambda partition: type(partition).__name__,
)
def test_what_a_histogram_allows_holds_for_predictions(partition: object, seed: int) -> None:
    """Accuracy and classes of random predictions lie in the ranges of their own histogram."""
    draws = np.random.default_rng(seed)
    probs = torch.from_numpy(draws.dirichlet(np.full(partition.num_classes, 0.5), 500))
    regions = partition.assign(probs.log()).numpy()
    top = probs.max(-1).values.numpy()
    ranges = partition.confidence_bounds()
    assert (ranges[regions, 0] <= top + 1e-12).all()
    assert (top <= ranges[regions, 1] + 1e-12).all()
    s0 = np.bincount(regions, minlength=partition.num_regions) / 500
    low, high = accuracy_range(partition, s0)
    assert low <= top.mean() <= high
    predicted = np.bincount(probs.argmax(-1).numpy(), minlength=partition.num_classes) / 500
    allowed = class_ranges(partition, s0)
    assert (allowed[:, 0] <= predicted + 1e-12).all()
    assert (predicted <= allowed[:, 1] + 1e-12).all()


def test_an_edge_at_one_half_is_one_whatever_its_last_digit() -> None:
    assert ScoreBins([0.1, 1 - 0.4999999999999999]).predicted_class() == [0, 0, 1]
    assert ScoreBins([0.1, 0.6]).predicted_class() == [0, None, 1]


@pytest.mark.parametrize(
    ("partition", "confidence", "classes", "by_class"),
    [
        (ScoreBins([0.1, 0.6]), True, True, False),
        (ScoreBins([0.5]), False, True, True),
        (CornerShells(3), True, True, False),
        (ClassRegions(4), False, True, True),
        (ConfidenceBins([0.4, 0.8], 5), True, False, False),
    ],
    ids=lambda case: type(case).__name__,
)
def test_what_regions_tell(partition: object, confidence: bool, classes: bool, by_class: bool) -> None:
    assert (tells_confidence(partition), tells_class(partition), is_by_class(partition)) == (
        confidence,
        classes,
        by_class,
    )
