"""Calibration errors against loops over bins and examples, hand-computed edges, and a simulation of calibration."""

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from selbo.metrics import Reliability, adaptive_ece, classwise_ece, ece, reliability

ERRORS = [ece, adaptive_ece, classwise_ece]


def calibrated(seed, batch, concentrations):
    """Probabilities from a Dirichlet distribution, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(concentrations, size=batch)
    labels = (rng.random(batch)[:, None] > probs.cumsum(-1)[:, :-1]).sum(-1)
    return torch.from_numpy(probs), torch.from_numpy(labels)


def top(confidences, hits, num_classes=2, dtype=torch.float64):
    """Predictions of the given confidence, that are right or wrong; class 0 is the predicted one."""
    confidences = torch.tensor(confidences, dtype=torch.float64)
    rest = ((1 - confidences) / (num_classes - 1))[:, None].expand(-1, num_classes - 1)
    probs = torch.cat([confidences[:, None], rest], 1)
    return probs.to(dtype), torch.tensor([0 if hit else 1 for hit in hits])


# --- references: one example, one bin at a time ---


def loop_error(confidences, hits, bins):
    total = 0.0
    for m in set(bins):
        members = [i for i, b in enumerate(bins) if b == m]
        mean = sum(confidences[i] for i in members) / len(members)
        right = sum(hits[i] for i in members) / len(members)
        total += len(members) / len(confidences) * abs(right - mean)
    return total


def right_closed_bin(value, num_bins):
    """In fractions: the bin m with m/M < value <= (m+1)/M."""
    return max(math.ceil(Fraction(value) * num_bins) - 1, 0)


def loop_ece(probs, labels, num_bins):
    confidences = [max(row) for row in probs.tolist()]
    hits = [row.index(max(row)) == y for row, y in zip(probs.tolist(), labels.tolist(), strict=True)]
    return loop_error(confidences, hits, [right_closed_bin(c, num_bins) for c in confidences])


def loop_classwise(probs, labels, num_bins):
    errors = []
    for k in range(probs.shape[1]):
        column = probs[:, k].tolist()
        errors.append(loop_error(column, (labels == k).tolist(), [right_closed_bin(p, num_bins) for p in column]))
    return sum(errors) / len(errors)


def sorted_split(probs, labels, num_bins):
    """Equal-mass bins without ties: sort, and cut the list at ceil(m n / M)."""
    confidences, guesses = probs.max(-1)
    order = confidences.argsort().tolist()
    hits = (guesses == labels).tolist()
    cuts = [math.ceil(Fraction(m * len(order), num_bins)) for m in range(num_bins + 1)]
    bins = [0] * len(order)
    for m in range(num_bins):
        for i in order[cuts[m] : cuts[m + 1]]:
            bins[i] = m
    return loop_error(confidences.tolist(), hits, bins)


@pytest.mark.parametrize("num_bins", [1, 2, 7, 10, 15])
@pytest.mark.parametrize("concentrations", [[0.5, 0.2], [2.0, 1.0, 0.5, 0.25]], ids=["binary", "four"])
def test_errors_are_those_of_loops(seed, concentrations, num_bins):
    probs, labels = calibrated(seed, 83, concentrations)
    labels[::3] = 1
    expected = {ece: loop_ece, classwise_ece: loop_classwise, adaptive_ece: sorted_split}
    for error, loop in expected.items():
        assert error(probs, labels, num_bins=num_bins) == pytest.approx(loop(probs, labels, num_bins), rel=1e-10)


@pytest.mark.parametrize("num_bins", [1, 4, 10])
def test_reliability_holds_the_numbers_of_the_error(seed, num_bins):
    probs, labels = calibrated(seed, 60, [1.0, 0.5, 0.3])
    diagram = reliability(probs, labels, num_bins=num_bins)
    confidences, guesses = probs.max(-1)
    assert diagram.edges == tuple(m / num_bins for m in range(num_bins + 1))
    assert sum(diagram.counts) == 60
    for m in range(num_bins):
        inside = (confidences > diagram.edges[m]) & (confidences <= diagram.edges[m + 1])
        assert diagram.counts[m] == inside.sum()
        if inside.any():
            assert diagram.confidences[m] == pytest.approx(confidences[inside].mean().item(), rel=1e-12)
            assert diagram.accuracies[m] == pytest.approx((guesses == labels)[inside].double().mean().item(), rel=1e-12)
        else:
            assert diagram.confidences[m] is diagram.accuracies[m] is diagram.gaps[m] is None
    assert diagram.ece == pytest.approx(ece(probs, labels, num_bins=num_bins), rel=1e-12)


# --- edges ---


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_confidence_on_an_edge_belongs_to_the_bin_that_ends_there(dtype):
    for m in range(5, 11):
        diagram = reliability(*top([m / 10], [True], dtype=dtype))
        assert diagram.counts.index(1) == m - 1, m
    for m in range(3, 11):  # below one half, with more classes
        diagram = reliability(*top([m / 10], [True], num_classes=9, dtype=dtype))
        assert diagram.counts.index(1) == m - 1, m


def test_just_above_an_edge_is_the_next_bin():
    above = math.nextafter(0.7, 1)
    assert reliability(*top([above], [True])).counts.index(1) == 7
    assert reliability(*top([0.7], [True])).counts.index(1) == 6


def test_a_probability_of_one_is_in_the_last_bin_and_one_of_zero_in_the_first():
    probs, labels = torch.tensor([[1.0, 0.0], [0.96, 0.04]]), torch.tensor([1, 0])
    diagram = reliability(probs, labels)
    assert diagram.counts == (0,) * 9 + (2,)
    assert diagram.ece == pytest.approx(0.48)  # |1/2 - .98|; a bin of its own for confidence 1 would give (1 + .04)/2
    # class 1: 0 and 0.04 share the first bin, where one of two occurs: |1/2 - .02|
    assert classwise_ece(probs, labels) == pytest.approx(0.48)


def test_on_an_edge_right_closed_and_left_closed_differ():
    probs, labels = top([0.8, 0.75, 0.85], [False, True, True])
    right = (abs(1 - 1.55) + abs(1 - 0.85)) / 3
    left = (abs(1 - 0.75) + abs(1 - 1.65)) / 3
    assert ece(probs, labels) == pytest.approx(right)
    assert right != pytest.approx(left)
    assert classwise_ece(probs.flip(1), 1 - labels) == pytest.approx(classwise_ece(probs, labels))
    # class 0 in (.7, .8]: .8 (no), .75 (yes); class 1 in (.1, .2]: .2 (yes), .15 (no), and in (.2, .3]: .25 (no)
    assert classwise_ece(probs, labels) == pytest.approx((right + (abs(1 - 0.35) + 0.25) / 3) / 2)


# --- known answers ---


def test_a_hand_computed_case():
    """Bin .9-1: .95, .91 (one right); bin .6-.7: .62, .68, .65 (two right)."""
    probs, labels = top([0.95, 0.62, 0.91, 0.68, 0.65], [True, True, False, True, False], num_classes=3)
    assert ece(probs, labels) == pytest.approx((abs(1 - 1.86) + abs(2 - 1.95)) / 5)
    # mass: {.62, .65, .68}, {.91, .95}
    assert adaptive_ece(probs, labels, num_bins=2) == pytest.approx((abs(2 - 1.95) + abs(1 - 1.86)) / 5)
    # mass: {.62, .65}, {.68, .91}, {.95}
    assert adaptive_ece(probs, labels, num_bins=3) == pytest.approx((abs(1 - 1.27) + abs(1 - 1.59) + 0.05) / 5)


def test_certain_and_right_is_zero_certain_and_wrong_is_one():
    probs = torch.eye(3)
    for error in ERRORS:
        assert error(probs, torch.tensor([0, 1, 2])) == 0.0
    assert ece(probs, torch.tensor([1, 2, 0])) == adaptive_ece(probs, torch.tensor([1, 2, 0])) == 1.0
    assert classwise_ece(probs, torch.tensor([1, 2, 0])) == pytest.approx(2 / 3)


def test_over_and_under_confidence_cancel_within_a_bin_only():
    together = top([0.8, 0.8], [True, False])
    assert ece(*together) == pytest.approx(0.3)
    apart = top([0.55, 0.95], [True, False])
    assert ece(*apart) == pytest.approx((0.45 + 0.95) / 2)


def test_gaps_are_negative_where_predictions_are_over_confident():
    diagram = reliability(*top([0.9, 0.6], [False, True]))
    assert diagram.gaps[8] == pytest.approx(-0.9)
    assert diagram.gaps[5] == pytest.approx(0.4)


def test_equal_mass_bins_keep_equal_confidences_together():
    probs, labels = top([0.7] * 6 + [0.9], [True, True, True, False, False, False, True])
    expected = (abs(3 - 4.2) + 0.1) / 7
    assert adaptive_ece(probs, labels, num_bins=5) == pytest.approx(expected)
    assert adaptive_ece(probs.flip(0), labels.flip(0), num_bins=5) == pytest.approx(expected)


def test_equal_mass_bins_with_fewer_examples_than_bins():
    probs, labels = top([0.7, 0.9], [True, False])
    assert adaptive_ece(probs, labels, num_bins=10) == pytest.approx((0.3 + 0.9) / 2)
    assert adaptive_ece(*top([0.7], [True])) == pytest.approx(0.3)


def test_a_class_without_labels_counts_with_its_mean_probability():
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.1, 0.2]], dtype=torch.float64)
    assert classwise_ece(probs, torch.tensor([0, 0]), num_bins=1) == pytest.approx((0.3 + 0.15 + 0.15) / 3)


def test_with_two_classes_and_one_bin_the_class_wise_error_is_that_of_the_class_fraction(seed):
    probs, labels = calibrated(seed, 50, [0.7, 0.3])
    expected = abs(probs[:, 1].mean() - labels.double().mean()).item()
    assert classwise_ece(probs, labels, num_bins=1) == pytest.approx(expected, rel=1e-9)


# --- simulation ---


@pytest.mark.parametrize("batch", [2_000, 200_000])
def test_the_error_of_calibrated_predictions_is_chance_and_falls_as_one_over_root_n(seed, batch):
    """Given the probabilities, n_m gap_m is a sum of independent errors with variance V_m: half-normal, |.|."""
    probs, labels = calibrated(seed, batch, [2.0, 1.0, 0.5])
    confidences = probs.max(-1).values
    bins = (confidences * 10).ceil().long()
    variances = torch.zeros(11, dtype=torch.float64).scatter_add_(0, bins, confidences * (1 - confidences))
    mean = (2 / math.pi * variances).sqrt().sum() / batch
    std = ((1 - 2 / math.pi) * variances).sum().sqrt() / batch
    value = ece(probs, labels)
    assert abs(value - mean) / std < 5
    v = (confidences * (1 - confidences)).mean()
    assert mean < (10 * v / batch).sqrt()  # the bound of the module's docstring
    assert ece((2 * probs.log()).softmax(-1), labels) > mean + 5 * std  # a wrong temperature is no chance


def test_finer_bins_of_equal_width_do_not_lower_the_error(seed):
    """One bin is |accuracy - mean confidence|; finer bins can only add: the triangle inequality."""
    probs, labels = calibrated(seed, 300, [0.5, 0.4, 0.3])
    for error in ERRORS:
        one, four, eight = (error(probs, labels, num_bins=m) for m in (1, 4, 8))
        assert one <= four + 1e-12
        assert four <= eight + 1e-12


# --- what may come in and what comes out ---


def test_reliability_is_frozen_and_json():
    diagram = reliability(torch.tensor([[0.1, 0.9]]), torch.tensor([1]), num_bins=2)
    assert diagram == Reliability((0.0, 0.5, 1.0), (0, 1), (None, pytest.approx(0.9)), (None, 1.0))
    assert json.loads(json.dumps(dataclasses.asdict(diagram)))["counts"] == [0, 1]
    with pytest.raises(dataclasses.FrozenInstanceError):
        diagram.counts = ()


@pytest.mark.parametrize("error", [*ERRORS, reliability])
@pytest.mark.parametrize("num_bins", [0, -1, 2.0, True, None])
def test_bad_numbers_of_bins_are_refused(error, num_bins):
    with pytest.raises(ValueError, match="`num_bins` must be a whole number of at least 1, but got"):
        error(torch.tensor([[0.1, 0.9]]), torch.tensor([1]), num_bins=num_bins)


@pytest.mark.parametrize("error", [*ERRORS, reliability])
def test_logits_and_bad_labels_are_refused(error):
    with pytest.raises(ValueError, match="`probs` must"):
        error(torch.tensor([[0.3, 0.2]]), torch.tensor([1]))  # logits inside [0, 1]: no guess, an error
    with pytest.raises(ValueError, match="`labels` must lie between 0 and 1"):
        error(torch.tensor([[0.1, 0.9]]), torch.tensor([2]))
    with pytest.raises(ValueError, match="at least one example"):
        error(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))
    assert type(ece(np.array([[0.1, 0.9]]), np.array([1]))) is float


@pytest.mark.parametrize("error", ERRORS)
def test_columns_in_memory_are_as_good_as_rows(error):
    """As HistGradientBoostingClassifier returns them. Warnings are errors here, but torch warns once per process."""
    probs, labels = calibrated(3, 40, [1.0, 2.0, 0.5])
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        found = error(probs.T.contiguous().T, labels)
    finally:
        torch.set_warn_always(before)
    assert found == error(probs, labels)
