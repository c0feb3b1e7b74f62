"""Corrected class fractions: Bayes' rule by hand, mixtures whose fractions are known, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from selbo.evaluation import label_shift
from selbo.evaluation.calibrate import bias_corrected_temperature
from selbo.evaluation.label_shift import (
    LEAST_FRACTION,
    correct_prior,
    estimate_by_confusion,
    estimate_by_em,
    estimate_by_regularised_confusion,
    estimate_fractions,
)

MEANS = (-1.0, 0.5, 2.0)
BEFORE = (0.6, 0.3, 0.1)
AFTER = (0.2, 0.3, 0.5)


def densities(x):
    """Of three normal classes, (B, 3)."""
    return np.stack([stats.norm(mean, 0.7).pdf(x) for mean in MEANS], -1)


def posterior(x, fractions):
    """Bayes' rule."""
    joint = densities(x) * np.array(fractions)
    return torch.from_numpy(np.log(joint / joint.sum(-1, keepdims=True)))


def drawn(seed, count, fractions):
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, count, p=fractions)
    return rng.normal(np.array(MEANS)[labels], 0.7), torch.from_numpy(labels)


def test_the_correction_is_bayes_rule():
    x = np.linspace(-4, 4, 30)
    torch.testing.assert_close(correct_prior(posterior(x, BEFORE), BEFORE, AFTER), posterior(x, AFTER))


def test_the_correction_keeps_the_type_and_undoes_itself():
    found = posterior(np.linspace(-4, 4, 30), BEFORE).float()
    there = correct_prior(found, BEFORE, AFTER)
    assert there.dtype == torch.float32
    torch.testing.assert_close(correct_prior(there, AFTER, BEFORE), found)
    torch.testing.assert_close(correct_prior(found, AFTER, AFTER), found)


def test_em_is_the_maximum_of_the_likelihood(seed):
    """Of the mixture of known densities, whose only unknowns are the fractions; found by another optimiser."""
    x, _ = drawn(seed, 300, AFTER)
    found = estimate_by_em(posterior(x, BEFORE), BEFORE)

    def loss(logits):
        weights = np.exp([*logits, 0.0])
        return -np.log(densities(x) @ (weights / weights.sum())).mean()

    weights = np.exp([*optimize.minimize(loss, [0.0, 0.0], tol=1e-12).x, 0.0])
    assert found == pytest.approx(weights / weights.sum(), abs=1e-4)


def test_em_of_predictions_that_decide_counts_them():
    log_probs = torch.tensor([[0.0, -60.0], [0.0, -60.0], [0.0, -60.0], [-60.0, 0.0]])
    assert estimate_by_em(log_probs, [0.1, 0.9]) == pytest.approx([0.75, 0.25], abs=1e-6)


def test_confusion_by_hand():
    """Of class 0, 3 of 4 are predicted rightly, of class 1 all 2; a share 0.6 is predicted as class 0."""
    one, two = [0.0, -1.0], [-1.0, 0.0]
    held_out, labels = torch.tensor([one, one, one, two, two, two]), torch.tensor([0, 0, 0, 0, 1, 1])
    unlabelled = torch.tensor([one] * 6 + [two] * 4)
    assert estimate_by_confusion(unlabelled, held_out, labels) == pytest.approx([0.8, 0.2])  # 0.6 / 0.75


def test_confusion_needs_no_calibration(seed):
    """Predictions that are far too sure give the same, and the estimate is near the truth."""
    (x, labels), (there, _) = drawn(seed, 20000, BEFORE), drawn(seed + 1000, 20000, AFTER)
    held_out, unlabelled = posterior(x, BEFORE), posterior(there, BEFORE)
    found = estimate_by_confusion(unlabelled, held_out, labels)
    assert estimate_by_confusion(9 * unlabelled, 9 * held_out, labels) == found
    assert found == pytest.approx(AFTER, abs=0.05)
    assert sum(found) == pytest.approx(1)


def test_no_class_is_declared_impossible():
    sure = torch.tensor([[0.0, -60.0, -60.0]] * 5 + [[-60.0, 0.0, -60.0]] * 5)
    by_em = estimate_by_em(sure, [0.3, 0.3, 0.4])
    by_confusion = estimate_by_confusion(sure, sure, torch.tensor([0] * 5 + [1] * 5))
    for found in (by_em, by_confusion):
        assert found[2] == pytest.approx(LEAST_FRACTION, rel=1e-2)
        assert found[:2] == pytest.approx([0.5, 0.5], abs=1e-3)
        assert sum(found) == pytest.approx(1)
    # every held-out case of class 0 is predicted as 1, and no unlabelled one: nothing is left to divide
    wrong = torch.tensor([[-1.0, 0.0]] * 3)
    assert estimate_by_confusion(-wrong.flip(0), wrong, torch.tensor([0, 0, 0])) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: correct_prior(p, [0.5, 0.5], [0.5, 0.5]), r"`log_probs` must have shape \(B, 2\)"),
        (lambda p: correct_prior(p, [0.5, 0.4, 0.2], BEFORE), "`before` must sum to 1"),
        (lambda p: correct_prior(p, BEFORE, [0.5, 0.5, 0.0]), "`after` must be positive"),
        (lambda p: estimate_by_em(p[0], BEFORE), r"`log_probs` must have shape \(B, 3\)"),
        (lambda p: estimate_by_em(p.long(), BEFORE), "`log_probs` must be a floating-point tensor"),
        (lambda p: estimate_by_confusion(p, p, torch.zeros(2).long()), "one of `labels` for each"),
        (lambda p: estimate_by_confusion(p[:, :2], p, torch.zeros(5).long()), "shapes"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(5, 3).log_softmax(-1))


def test_estimates_of_very_many_classes_sum_to_one() -> None:
    classes = 1500
    flat = torch.full((50, classes), -np.log(classes), dtype=torch.float64)
    found = estimate_by_em(flat, [1 / classes] * classes)
    assert sum(found) == pytest.approx(1.0, abs=1e-12)
    correct_prior(flat, [1 / classes] * classes, found)


# --- regularised estimates ---


@pytest.mark.parametrize("penalty", [0.01, 0.05, 0.12, 0.2, 0.6])
def test_the_regularised_deviation_is_a_minimum(penalty: float, seed: int) -> None:
    """Of a convex function: another optimiser finds nothing lower, for penalties that are too small to matter too."""
    rng = np.random.default_rng(seed)
    matrix = rng.dirichlet([1.0] * 9).reshape(3, 3)
    goal = rng.normal(0, 0.1, 3)

    def loss(theta: np.ndarray) -> float:
        return float(np.linalg.norm(matrix @ theta - goal) + penalty * np.linalg.norm(theta))

    found = label_shift._least_deviation(torch.from_numpy(matrix), torch.from_numpy(goal), penalty).numpy()
    starts = [found + rng.normal(0, 0.1, 3), np.linalg.solve(matrix, goal), np.full(3, 1e-3)]
    for start in starts:
        options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000, "maxfev": 5000}
        best = optimize.minimize(loss, start, method="Nelder-Mead", options=options)
        assert loss(found) <= best.fun + 1e-9


def test_without_regularisation_it_is_the_confusion_and_with_much_there_is_no_shift(seed):
    (x, labels), (there, _) = drawn(seed, 200, BEFORE), drawn(seed + 1000, 400, AFTER)
    held_out, unlabelled = posterior(x, BEFORE), posterior(there, BEFORE)
    free = estimate_by_regularised_confusion(unlabelled, held_out, labels, regularisation=0)
    assert free == pytest.approx(estimate_by_confusion(unlabelled, held_out, labels))
    bound = estimate_by_regularised_confusion(unlabelled, held_out, labels, regularisation=1e3)
    assert bound == pytest.approx((torch.bincount(labels, minlength=3) / len(labels)).tolist())
    between = estimate_by_regularised_confusion(unlabelled, held_out, labels, regularisation=1.0)
    far, near, all_the_way = (abs(np.array(each) - bound).sum() for each in (free, between, bound))
    assert far > near > all_the_way


# --- estimates with intervals ---


def test_predictions_are_calibrated_first(seed):
    """Too certain and biased predictions: EM alone is far off, and after the calibration it is not."""
    (x, labels), (there, _) = drawn(seed, 20_000, BEFORE), drawn(seed + 1000, 20_000, AFTER)
    offsets = torch.tensor([1.0, -0.5, -0.5])
    held_out, unlabelled = (3 * posterior(each, BEFORE) + offsets for each in (x, there))
    found = estimate_fractions(unlabelled, held_out, labels, num_samples=2)
    alone = estimate_by_em(unlabelled.log_softmax(-1), BEFORE)
    assert abs(np.array(found.class_fractions) - AFTER).max() < 0.05 < abs(np.array(alone) - AFTER).max()
    correction = bias_corrected_temperature(held_out, labels, prior_strength=1.0)
    before = correction.scale(held_out).exp().mean(0)
    by_hand = estimate_by_em(correction.scale(unlabelled), (before / before.sum()).tolist())
    assert found.class_fractions == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize("method", ["em", "confusion", "regularised"])
@pytest.mark.slow
def test_intervals_shrink_as_cases_get_more(method, seed):
    widths, concentrations = [], []
    for count in (600, 9600):  # with fewer, fractions that are cut off at zero make intervals short
        (x, labels), (there, _) = drawn(seed, count, BEFORE), drawn(seed + 1000, count, AFTER)
        found = estimate_fractions(
            posterior(there, BEFORE), posterior(x, BEFORE), labels, method=method, num_samples=40
        )
        widths.append(np.mean([high - low for low, high in found.fraction_intervals]))
        concentrations.append(found.concentration)
    assert widths[1] < 0.5 * widths[0]  # a quarter, but for chance
    assert concentrations[1] > 4 * concentrations[0]  # sixteen times


def test_a_seed_repeats_and_impossible_classes_are_no_obstacle():
    x, labels = drawn(0, 200, BEFORE)
    held_out = posterior(x, BEFORE)
    held_out[::7, 2] = -torch.inf  # as a forest says
    kept = held_out.clone()
    one, two, other = (estimate_fractions(held_out, held_out, labels, num_samples=4, seed=each) for each in (0, 0, 1))
    assert one == two != other
    assert one.class_fractions == other.class_fractions
    assert torch.equal(held_out, kept)


def test_estimates_refuse_what_does_not_fit():
    log_probs, labels = torch.zeros(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    with pytest.raises(ValueError, match="`unlabelled` must have 3 classes"):
        estimate_fractions(torch.zeros(4, 2), log_probs, labels)
    with pytest.raises(ValueError, match="has none of class 2"):
        estimate_fractions(log_probs, log_probs, labels.clamp(max=1))
    with pytest.raises(ValueError, match="`method` must be one of"):
        estimate_fractions(log_probs, log_probs, labels, method="guess")
    with pytest.raises(ValueError, match="`num_samples` must be a whole number"):
        estimate_fractions(log_probs, log_probs, labels, num_samples=1)
