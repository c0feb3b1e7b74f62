"""Detection scores against scikit-learn, loops over pairs and thresholds, and hand-computed cases."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from selbo.metrics import aupr, fpr_at_tpr, mean_difference, ood_auroc

ALL = [mean_difference, ood_auroc, fpr_at_tpr, lambda i, o: aupr(i, o, positive="out")]


@pytest.fixture(params=[None, 1], ids=["continuous", "ties"])
def scores(request, seed):
    """Lopsided: 37 inside, 14 outside, overlapping; rounded, for ties."""
    rng = np.random.default_rng(seed)
    inside, outside = rng.gamma(2.0, 0.3, size=37), 0.4 + rng.gamma(2.0, 0.4, size=14)
    if request.param is not None:
        inside, outside = inside.round(request.param), outside.round(request.param)
    return inside, outside


def with_labels(inside, outside):
    """Scores of all, and whether they come from outside."""
    return np.concatenate([inside, outside]), np.concatenate([np.zeros(len(inside)), np.ones(len(outside))])


def test_auroc_is_that_of_all_pairs_and_sklearns(scores):
    inside, outside = scores
    values, is_out = with_labels(*scores)
    pairs = [1.0 if o > i else 0.5 if o == i else 0.0 for o in outside for i in inside]
    assert ood_auroc(inside, outside) == pytest.approx(sum(pairs) / len(pairs), rel=1e-12)
    assert ood_auroc(inside, outside) == pytest.approx(sk.roc_auc_score(is_out, values), rel=1e-12)
    assert ood_auroc(inside, outside) + ood_auroc(outside, inside) == pytest.approx(1, rel=1e-12)


def test_aupr_is_sklearns_average_precision(scores):
    values, is_out = with_labels(*scores)
    assert aupr(*scores, positive="out") == pytest.approx(sk.average_precision_score(is_out, values), rel=1e-12)
    assert aupr(*scores, positive="in") == pytest.approx(sk.average_precision_score(1 - is_out, -values), rel=1e-12)


def test_aupr_is_the_area_of_a_staircase(scores):
    inside, outside = scores
    area, before = 0.0, 0.0
    for threshold in sorted({*inside, *outside}, reverse=True):
        found, raised = (outside >= threshold).sum(), (inside >= threshold).sum()
        area += (found / len(outside) - before) * found / (found + raised)
        before = found / len(outside)
    assert aupr(inside, outside, positive="out") == pytest.approx(area, rel=1e-12)


@pytest.mark.parametrize("tpr", [0.95, 0.5, 0.07, 0.999])
def test_fpr_is_that_of_the_first_threshold_that_passes_enough(scores, tpr):
    inside, outside = scores
    for threshold in sorted({*inside, *outside}):
        if (inside <= threshold).mean() >= tpr:
            break
    assert fpr_at_tpr(inside, outside, tpr=tpr) == pytest.approx((outside <= threshold).mean(), rel=1e-12)


def test_fpr95_is_that_of_sklearns_roc_curve_with_inside_as_positive(scores):
    values, is_out = with_labels(*scores)
    fpr, tpr, _ = sk.roc_curve(1 - is_out, -values, drop_intermediate=False)
    assert fpr_at_tpr(*scores) == pytest.approx(fpr[np.argmax(tpr >= 0.95)], rel=1e-12)


def test_the_mean_difference_is_out_less_in(scores):
    inside, outside = scores
    assert mean_difference(inside, outside) == pytest.approx(outside.mean() - inside.mean(), rel=1e-12)
    assert mean_difference(torch.tensor([0.5]), torch.tensor([1.25, 1.75])) == 1.0


def test_perfect_reversed_and_blind_scores():
    low, high = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.8, 0.9])
    assert ood_auroc(low, high) == aupr(low, high, positive="out") == aupr(low, high, positive="in") == 1.0
    assert fpr_at_tpr(low, high) == 0.0
    assert ood_auroc(high, low) == 0.0
    assert fpr_at_tpr(high, low) == 1.0
    same = torch.full((3,), 0.4), torch.full((2,), 0.4)
    assert ood_auroc(*same) == 0.5
    assert aupr(*same, positive="out") == pytest.approx(2 / 5)  # the fraction of positives
    assert aupr(*same, positive="in") == pytest.approx(3 / 5)
    assert fpr_at_tpr(*same) == 1.0


def test_fpr95_by_hand():
    """Of twenty, nineteen must pass: the threshold is 19. Swapping the positives would give 1/20."""
    inside = torch.arange(1.0, 21.0)
    outside = torch.tensor([18.5, 19.0, 19.5, 30.0, 40.0])
    assert fpr_at_tpr(inside, outside) == 0.4
    hundred = torch.arange(1.0, 101.0)
    assert fpr_at_tpr(hundred, torch.tensor([7.0, 8.0]), tpr=0.07) == 0.5  # .07 * 100 is 7.000000000000001
    assert fpr_at_tpr(hundred, torch.tensor([1.0, 2.0]), tpr=1e-12) == 0.5


def test_only_the_mean_difference_knows_the_unit(scores):
    inside, outside = scores
    assert mean_difference(8 * inside, 8 * outside) == pytest.approx(8 * mean_difference(inside, outside), rel=1e-12)
    for metric in ALL[1:]:
        assert metric(8 * inside, 8 * outside) == metric(inside, outside)


@pytest.mark.parametrize("metric", ALL)
def test_bad_scores_are_refused(metric):
    good = torch.tensor([0.1, 0.2])
    for bad, message in [
        (torch.zeros(0), r"must be a vector of at least one number, but got shape \(0,\)"),
        (torch.zeros(2, 2), r"must be a vector of at least one number, but got shape \(2, 2\)"),
        (torch.tensor(1.0), r"must be a vector of at least one number, but got shape \(\)"),
        (torch.tensor([math.nan, 1.0]), r"must hold numbers, but got 1 NaN"),
        (torch.tensor([math.inf, 1.0]), r"must be finite, but got 1 infinite numbers"),
        (torch.tensor([1, 2]), r"must be a floating-point tensor, but got dtype torch.int64"),
        ([0.1, 0.2], r"must be a tensor or a numpy array, but got list"),
    ]:
        with pytest.raises(ValueError, match=f"`in_scores` {message}"):
            metric(bad, good)
        with pytest.raises(ValueError, match=f"`out_scores` {message}"):
            metric(good, bad)


def test_bad_options_are_refused():
    good = torch.tensor([0.1, 0.2])
    with pytest.raises(ValueError, match=r"`positive` must be one of \['in', 'out'\], but got 'ood'"):
        aupr(good, good, positive="ood")
    for tpr in (0.0, 1.0, -1, math.nan):
        with pytest.raises(ValueError, match="`tpr` must"):
            fpr_at_tpr(good, good, tpr=tpr)
