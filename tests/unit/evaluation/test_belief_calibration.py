"""Calibration of frozen predictions to a belief, against means, derivatives and corrections computed another way."""

import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from torch import Tensor

from selbo import (
    ClassRegions,
    ConfidenceBins,
    GroupedSummary,
    Masses,
    SummaryLikelihood,
    belief_from_labels,
    calibrate_groups,
    calibrate_to_belief,
    expect,
)
from selbo.evaluation import BeliefCalibration, calibrate_in_parts, correct_prior
from selbo.evaluation.belief_calibration import _Statement

pytestmark = pytest.mark.filterwarnings("error")

EVERYTHING = torch.ones(4, dtype=torch.bool)


def sharpened(seed: int, *, rows: int = 2000, classes: int = 4, factor: float = 2.5) -> tuple[Tensor, Tensor, Tensor]:
    """Over-confident log-probabilities, labels, and the calibrated log-probabilities."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    return (factor * logits).log_softmax(-1), labels, logits.log_softmax(-1)


def answered(log_probs: Tensor, corrected: Tensor) -> float:
    return corrected.exp().gather(1, log_probs.argmax(-1, keepdim=True)).mean().item()


def nll(log_probs: Tensor, labels: Tensor) -> float:
    return -log_probs.gather(1, labels[:, None]).mean().item()


# --- what is stated is met ---


def test_an_accuracy_is_met_by_the_temperature_that_a_root_search_finds() -> None:
    log_probs, *_ = sharpened(0)

    def excess(log_temperature: float) -> float:
        return answered(log_probs, (log_probs / math.exp(log_temperature)).log_softmax(-1)) - 0.7

    found = calibrate_to_belief(log_probs, accuracy=0.7, prior_strength=0)
    assert found.temperature == pytest.approx(math.exp(brentq(excess, -3, 3, xtol=1e-12)), rel=1e-6)
    assert found.accuracy == pytest.approx(0.7, abs=1e-7) == answered(log_probs, found(log_probs))
    assert found.accuracy_before == pytest.approx(answered(log_probs, log_probs))
    assert found.offsets == (0, 0, 0, 0)
    assert torch.equal(found(log_probs).argmax(-1), log_probs.argmax(-1))


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_class_fractions_are_met_by_offsets(classes: int) -> None:
    log_probs, *_ = sharpened(1, classes=classes)
    stated = torch.arange(1.0, classes + 1).double()
    stated /= stated.sum()
    found = calibrate_to_belief(log_probs, class_fractions=stated.tolist())
    assert found.temperature == 1
    assert sum(found.offsets) == pytest.approx(0, abs=1e-9)
    torch.testing.assert_close(found(log_probs).exp().mean(0), stated, rtol=0, atol=1e-6)
    assert found.class_fractions == pytest.approx(stated.tolist(), abs=1e-6)


def test_both_are_met_together() -> None:
    log_probs, *_ = sharpened(2)
    stated = [0.2, 0.2, 0.25, 0.35]
    found = calibrate_to_belief(log_probs, accuracy=0.75, class_fractions=stated, prior_strength=0)
    assert answered(log_probs, found(log_probs)) == pytest.approx(0.75, abs=1e-6)
    assert found.class_fractions == pytest.approx(stated, abs=1e-6)


def test_a_belief_states_both() -> None:
    log_probs, *_ = sharpened(3)
    fractions = [0.2, 0.3, 0.25, 0.25]
    by_belief = calibrate_to_belief(log_probs, expect(0.7, fractions))
    by_hand = calibrate_to_belief(log_probs, accuracy=0.7, class_fractions=fractions)
    assert by_belief.temperature == pytest.approx(by_hand.temperature, rel=1e-6)
    assert by_belief.offsets == pytest.approx(by_hand.offsets, abs=1e-6)


def test_true_statements_recover_the_truth(seed: int) -> None:
    log_probs, labels, truth = sharpened(seed, rows=20_000)
    right = (log_probs.argmax(-1) == labels).double().mean().item()
    fractions = (torch.bincount(labels, minlength=4).double() / len(labels)).tolist()
    for stated in ({"accuracy": right}, {"accuracy": right, "class_fractions": fractions}):
        found = calibrate_to_belief(log_probs, **stated)
        assert found.temperature == pytest.approx(2.5, rel=0.05)
        assert nll(found(log_probs), labels) < nll(truth, labels) + 0.002
        assert nll(found(log_probs), labels) < nll(log_probs, labels) - 0.05


# --- special cases ---


def test_known_fractions_give_the_prior_correction_of_calibrated_predictions() -> None:
    """A whole population, in which inputs of a class have the same distribution in both domains."""
    of_class = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]]).double()  # P(input | class)
    before, after = torch.tensor([0.6, 0.3, 0.1]).double(), torch.tensor([0.2, 0.3, 0.5]).double()
    posterior = (of_class * before[:, None] / (before @ of_class)).T.log()  # of each of the three inputs
    counts = ((after @ of_class) * 10_000).round().long()
    log_probs = posterior.repeat_interleave(counts, 0)
    found = calibrate_to_belief(log_probs, class_fractions=after.tolist())
    expected = correct_prior(posterior, before.tolist(), after.tolist())
    torch.testing.assert_close(found(posterior), expected, rtol=0, atol=1e-5)


def test_uniform_fractions_are_where_batch_calibration_ends_when_repeated() -> None:
    log_probs, *_ = sharpened(4, classes=3)
    biased = (log_probs + torch.tensor([1.0, 0.0, -1.0])).log_softmax(-1)
    repeated = biased
    for _ in range(500):
        repeated = (repeated - repeated.exp().mean(0).log()).log_softmax(-1)
    found = calibrate_to_belief(biased, class_fractions=[1 / 3] * 3)
    torch.testing.assert_close(found(biased), repeated, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_any_summary_can_be_maximised_by_the_temperature() -> None:
    log_probs, *_ = sharpened(5, rows=500)
    summary = SummaryLikelihood(ConfidenceBins((0.5, 0.8), num_classes=4), Masses((0.4, 0.4, 0.2)), concentration=200)
    found = calibrate_to_belief(log_probs, summary, prior_strength=0)
    values = [summary((log_probs / t).log_softmax(-1)).item() for t in np.linspace(0.5, 8, 200)]
    assert summary(found(log_probs)).item() >= max(values) - 1e-6
    assert found.offsets == (0, 0, 0, 0)
    both = calibrate_to_belief(log_probs, summary, offsets=True)
    assert summary(both(log_probs)).item() > summary(found(log_probs)).item() - 1e-3
    assert both.offsets != (0, 0, 0, 0)


# --- counts of groups ---


def counted(labels: Tensor, size: int, classes: int = 4) -> tuple[GroupedSummary, Tensor]:
    """Class counts of random groups as a belief without an error, and the group of each row."""
    groups = torch.arange(len(labels)) // size
    counts = torch.zeros(int(groups.max()) + 1, classes, dtype=torch.float64)
    counts.index_put_((groups, labels), torch.ones(len(labels), dtype=torch.float64), accumulate=True)
    sizes = counts.sum(1)
    return GroupedSummary(ClassRegions(classes), counts / sizes[:, None], 100 * sizes, form="counts"), groups


@pytest.mark.parametrize("size", [8, 50])
def test_counts_of_groups_find_the_temperature_and_the_offsets(size: int, seed: int) -> None:
    log_probs, labels, calibrated = sharpened(seed, rows=4000)
    true = torch.tensor([1.0, -1.0, 0.5, -0.5], dtype=torch.float64)
    biased = (log_probs - 2.5 * true).log_softmax(-1)
    belief, groups = counted(labels, size)
    found = calibrate_to_belief(biased, belief, groups=groups)
    assert abs(math.log(found.temperature / 2.5)) < 4 * found.log_temperature_error < 0.6
    off = (torch.tensor(found.offsets) - true).abs() / torch.tensor(found.offset_errors)
    assert off.max() < 4.5
    assert nll(found(biased), labels) < nll(calibrated, labels) + 0.02
    assert nll(biased, labels) > nll(calibrated, labels) + 0.4


@pytest.mark.parametrize(("accuracy", "offsets"), [(None, False), (0.6, False), (None, True)])
def test_counts_of_groups_are_maximised(accuracy: float | None, offsets: bool) -> None:
    log_probs, labels, _ = sharpened(1, rows=600)
    log_probs = (log_probs + torch.tensor([0.0, 2.0, 0.0, -2.0])).log_softmax(-1)
    belief, groups = counted(labels, 6)

    def loss(point: np.ndarray) -> float:
        bias = torch.tensor([*point[1:], -point[1:].sum()]) if offsets else torch.zeros(4, dtype=torch.float64)
        corrected = (log_probs / math.exp(point[0]) + bias).log_softmax(-1)
        value = -belief(corrected, groups).item() + math.exp(-point[0]) - 1 + point[0]
        value += float((bias**2 / 0.5**2).log1p().sum())
        if accuracy is not None:
            right, alpha = answered(log_probs, corrected), 1000 * 600 / 1600
            value += alpha * accuracy * math.log(accuracy / right)
            value += alpha * (1 - accuracy) * math.log((1 - accuracy) / (1 - right))
        return value

    start = [0.5, 0.0, 0.0, 0.0] if offsets else [0.5]
    tight = {"xatol": 1e-8, "fatol": 1e-9, "maxiter": 4000}
    expected = minimize(loss, start, method="Nelder-Mead", options=tight).x
    found = calibrate_to_belief(log_probs, belief, groups=groups, accuracy=accuracy, offsets=offsets)
    assert math.log(found.temperature) == pytest.approx(expected[0], abs=1e-5)
    assert found.offsets[:3] == pytest.approx(expected[1:] if offsets else (0, 0, 0), abs=1e-5)
    assert found.offsets[3] == pytest.approx(-sum(found.offsets[:3]))


def test_counts_of_few_rows_do_not_decide_about_many_classes() -> None:
    """Two groups of 64 and ten offsets: those of maximum likelihood make good predictions worse."""
    scores = []
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        log_probs = (4 * torch.randn(2000, 10, generator=generator, dtype=torch.float64)).log_softmax(-1)
        labels = torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]
        belief, groups = counted(labels[:128], 64, 10)
        found = [calibrate_to_belief(log_probs[:128], belief, groups=groups, prior_strength=c) for c in (0.0, 1.0)]
        scores.append([nll(each(log_probs)[128:], labels[128:]) for each in (lambda rows: rows, *found)])
    before, by_likelihood, after = np.mean(scores, 0)
    assert by_likelihood > before + 0.08
    assert before < after < before + 0.05


def test_counts_of_groups_calibrate_predictions_that_are_far_too_confident() -> None:
    """Newton's method alone ends in another maximum, and derivatives of probabilities near zero overflow."""
    log_probs, labels, calibrated = sharpened(2, rows=2000, factor=60.0)
    for size in (16, 64, 200):
        belief, groups = counted(labels, size)
        found = calibrate_to_belief(log_probs, belief, groups=groups)
        assert nll(found(log_probs), labels) < nll(calibrated, labels) + 0.02


def test_counts_of_rows_that_are_not_passed_mislead() -> None:
    """Without an error the temperature is too high, and with a low concentration too low (docs/how-to)."""
    log_probs, labels, _ = sharpened(6, rows=4800)
    twice, groups = counted(labels, 32)
    passed = torch.arange(4800) % 32 < 16
    missing = calibrate_to_belief(log_probs[passed], twice, groups=groups[passed])
    assert missing.temperature > 1.3 * calibrate_to_belief(log_probs, twice, groups=groups).temperature
    exact, groups = counted(labels, 16)
    low = GroupedSummary(ClassRegions(4), exact.s0, 16.0, form="counts")
    assert calibrate_to_belief(log_probs, low, groups=groups).temperature < 0.7 * 2.5


def test_counts_of_rare_and_of_impossible_classes() -> None:
    """Class means underflow at some of the temperatures that are tried first."""
    generator = torch.Generator().manual_seed(4)
    logits = 2 * torch.randn(800, 10, generator=generator, dtype=torch.float64)
    logits[:, 0] += 8.0
    labels = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    belief, groups = counted(labels, 8, 10)
    found = [calibrate_to_belief((t * logits).log_softmax(-1), belief, groups=groups).temperature for t in (3, 50)]
    assert found[0] == pytest.approx(3, rel=0.5)
    assert found[1] / 50 == pytest.approx(found[0] / 3, rel=0.02)
    never = logits.clone()
    never[:, 9] = -torch.inf
    assert calibrate_to_belief(never.log_softmax(-1), belief, groups=groups).temperature > 0


def test_a_shift_of_the_class_fractions_does_not_flatten_predictions() -> None:
    """Flat predictions reach the fractions of the groups with smaller offsets, which the prior prefers."""
    found = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        logits = 3 * torch.randn(3000, 4, generator=generator, dtype=torch.float64)
        true = (logits + torch.linspace(-2, 2, 4)).log_softmax(-1)
        labels = torch.multinomial(true.exp(), 1, generator=generator)[:, 0]
        log_probs = (1.5 * logits).log_softmax(-1)
        belief, groups = counted(labels[:2000], 50)
        each = calibrate_to_belief(log_probs[:2000], belief, groups=groups)
        found.append((math.log(each.temperature), nll(each(log_probs), labels) - nll(true, labels)))
    log_temperature, loss = np.mean(found, 0)
    assert math.exp(log_temperature) == pytest.approx(1.5, rel=0.15)
    assert loss < 0.01


def test_groups_of_other_rows_are_doubted() -> None:
    log_probs, labels, _ = sharpened(7, rows=800)
    belief, groups = counted(labels, 8)
    assert calibrate_to_belief(log_probs, belief, groups=groups).accuracy > 0.5
    with pytest.warns(UserWarning, match="to agree with the groups, the predictions say hardly more than the class"):
        calibrate_to_belief(
            log_probs[torch.randperm(800, generator=torch.Generator().manual_seed(0))], belief, groups=groups
        )


def test_rows_without_a_group_and_regions_other_than_classes() -> None:
    log_probs, labels, _ = sharpened(3, rows=800)
    belief, groups = counted(labels, 8)
    some = torch.where(torch.arange(800) < 600, groups, -1)
    found = calibrate_to_belief(log_probs, belief, groups=some, prior_strength=0)
    alone = calibrate_to_belief(log_probs[:600], belief, groups=groups[:600], prior_strength=0)
    assert found.temperature == pytest.approx(alone.temperature, rel=1e-6)
    assert found.offsets == pytest.approx(alone.offsets, abs=1e-6)
    bins = GroupedSummary(ConfidenceBins((0.5, 0.8), num_classes=4), torch.full((2, 3), 1 / 3), 300.0)
    halves = torch.arange(800) % 2
    both = calibrate_to_belief(log_probs, bins, groups=halves, prior_strength=0)
    assert bins(both(log_probs), halves) > bins(log_probs, halves) + 10


def test_groups_and_a_belief_about_them_are_given_together() -> None:
    log_probs, labels, _ = sharpened(0, rows=40)
    belief, groups = counted(labels, 8)
    together = "`groups` and a `GroupedSummary` as `belief` must be given together"
    with pytest.raises(ValueError, match=together):
        calibrate_to_belief(log_probs, belief)
    with pytest.raises(ValueError, match=together):
        calibrate_to_belief(log_probs, expect(0.9), groups=groups)
    with pytest.raises(ValueError, match=together):
        calibrate_to_belief(log_probs, accuracy=0.9, groups=groups)
    with pytest.raises(ValueError, match="either `belief` or `accuracy` and `class_fractions`"):
        calibrate_to_belief(log_probs, belief, groups=groups, class_fractions=[0.25] * 4)
    with pytest.raises(ValueError, match="`groups` must hold a group in some row, but none does"):
        calibrate_to_belief(log_probs, belief, groups=torch.full((40,), -1))
    with pytest.raises(ValueError, match=r"`groups` must have shape \(40,\)"):
        calibrate_to_belief(log_probs, belief, groups=groups[:5])


# --- labels, uncertainty ---


def test_labels_enter_as_likelihood() -> None:
    log_probs, labels, _ = sharpened(6, rows=400)
    some = labels.clone()
    some[100:] = -1

    def loss(log_temperature: float) -> float:
        corrected = (log_probs / math.exp(log_temperature)).log_softmax(-1)
        right, alpha = answered(log_probs, corrected), 1000 * 400 / 1400
        kl = 0.9 * math.log(0.9 / right) + 0.1 * math.log(0.1 / (1 - right))
        return 100 * nll(corrected[:100], labels[:100]) + alpha * kl + math.exp(-log_temperature) - 1 + log_temperature

    expected = minimize(lambda point: loss(point[0]), [0.5], method="Nelder-Mead", options={"xatol": 1e-9}).x[0]
    with pytest.warns(UserWarning, match="72.0 % of 100 labelled answers are right, which contradicts the stated 90 %"):
        found = calibrate_to_belief(log_probs, accuracy=0.9, labels=some)
    assert math.log(found.temperature) == pytest.approx(expected, abs=1e-5)
    alone = calibrate_to_belief(log_probs, accuracy=0.9)
    assert abs(found.temperature - 2.5) < abs(alone.temperature - 2.5)  # the statement is wrong, the labels are not
    nothing = calibrate_to_belief(log_probs, accuracy=0.9, labels=torch.full((400,), -1))
    assert nothing == alone


@pytest.mark.parametrize("accuracy", [0.7, None])
@pytest.mark.parametrize("fractions", [[0.3, 0.3, 0.4], None])
@pytest.mark.parametrize("labelled", [0, 50])
def test_the_gradient_is_that_of_the_loss(accuracy: float | None, fractions: list[float] | None, labelled: int) -> None:
    log_probs, labels, _ = sharpened(7, rows=200, classes=3)
    labels[labelled:] = -1
    statement = _Statement(accuracy, fractions, 300.0, None, 1.0, EVERYTHING)

    def loss(point: Tensor) -> float:
        return statement.loss(point, log_probs, labels if labelled else None).value

    at = torch.tensor([-0.4, 0.2, 0.1, -0.3]).double()
    numeric = [(loss(at + step) - loss(at - step)) / 2e-5 for step in 1e-5 * torch.eye(4).double()]
    found = statement.loss(at, log_probs, labels if labelled else None).gradient
    torch.testing.assert_close(found, torch.tensor(numeric).double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stated", [{"accuracy": 0.7}, {"class_fractions": [0.3, 0.3, 0.4]}])
def test_the_curvature_is_exact_where_a_statement_is_met(stated: dict[str, Any]) -> None:
    log_probs, *_ = sharpened(7, rows=200, classes=3)
    met = calibrate_to_belief(log_probs, **stated, prior_strength=0)
    at = torch.tensor([-math.log(met.temperature), *met.offsets]).double()
    statement = _Statement(stated.get("accuracy"), stated.get("class_fractions"), 300.0, None, 0.0, EVERYTHING)

    def gradient(point: Tensor) -> Tensor:
        return statement.loss(point, log_probs, None).gradient

    numeric = [(gradient(at + step) - gradient(at - step)) / 2e-5 for step in 1e-5 * torch.eye(4).double()]
    found = statement.loss(at, log_probs, None).hessian
    torch.testing.assert_close(found, torch.stack(numeric), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_standard_errors_are_those_of_statements_that_vary(seed: int) -> None:
    """Statements drawn around the truth move the temperature by as much as its standard error says."""
    log_probs, *_ = sharpened(seed, rows=1000)
    alpha = 400 * 1000 / 1400
    generator = np.random.default_rng(seed)
    drawn = generator.beta(0.7 * alpha, 0.3 * alpha, size=200)
    found = [math.log(calibrate_to_belief(log_probs, accuracy=each, concentration=400).temperature) for each in drawn]
    stated = calibrate_to_belief(log_probs, accuracy=0.7, concentration=400)
    assert stated.log_temperature_error == pytest.approx(np.std(found), rel=0.25)
    assert stated.offset_errors == (0, 0, 0, 0)
    wider = calibrate_to_belief(log_probs, accuracy=0.7, concentration=100)
    assert wider.log_temperature_error > 1.5 * stated.log_temperature_error


# --- zeros, groups, files ---


def test_zeros_are_raised_and_hard_answers_get_the_stated_accuracy() -> None:
    answers = torch.eye(3)[torch.tensor([0, 1, 2, 0, 1, 2])].log()
    found = calibrate_to_belief(answers, accuracy=0.8, prior_strength=0)
    torch.testing.assert_close(found(answers).exp().amax(-1), torch.full((6,), 0.8))
    forest = torch.tensor([[0.75, 0.25, 0.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]).log()
    assert bool(calibrate_to_belief(forest, accuracy=0.6)(forest).isfinite().all())


def test_each_group_meets_its_own_statement() -> None:
    log_probs, *_ = sharpened(8)
    groups = np.array(["north", "south"])[np.arange(len(log_probs)) % 2]
    accuracy = {"north": 0.75, "south": 0.65}
    found = calibrate_groups(log_probs, groups, accuracy=accuracy)
    corrected = found(log_probs, groups)
    for name, stated in accuracy.items():
        rows = torch.from_numpy(groups == name)
        assert answered(log_probs[rows], corrected[rows]) == pytest.approx(stated, abs=0.003)
        alone = calibrate_to_belief(log_probs[rows], accuracy=stated)
        torch.testing.assert_close(corrected[rows], alone(log_probs[rows]))
    with pytest.raises(ValueError, match="for every group, but has none for 'south'"):
        calibrate_groups(log_probs, groups, accuracy={"north": 0.7})
    with pytest.raises(ValueError, match="among those that were calibrated, but got 'west'"):
        found(log_probs[:1], ["west"])
    with pytest.raises(ValueError, match="one group per row, 2000 in all, but got 3"):
        calibrate_groups(log_probs, ["a", "b", "c"], accuracy=0.7)
    with pytest.raises(ValueError, match="group 'north': `accuracy` must lie"):
        calibrate_groups(log_probs, groups, accuracy=1.5)


def test_a_calibration_survives_json() -> None:
    log_probs, *_ = sharpened(9)
    found = calibrate_to_belief(log_probs, accuracy=0.7, class_fractions=[0.25] * 4)
    assert BeliefCalibration.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_logits_arrays_and_types() -> None:
    log_probs, *_ = sharpened(10, rows=200)
    found = calibrate_to_belief(log_probs, accuracy=0.7)
    shifted = calibrate_to_belief(log_probs + torch.arange(200.0)[:, None], accuracy=0.7)
    assert shifted.temperature == pytest.approx(found.temperature)
    assert calibrate_to_belief(log_probs.numpy(), accuracy=0.7) == found
    assert found(log_probs.float()).dtype == torch.float32
    assert found(log_probs[0]).shape == (4,)


# --- refusals ---


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({}, "nothing is stated"),
        ({"accuracy": 0.2}, "`accuracy` must lie strictly between 0.25 and 1"),
        ({"accuracy": 1.0}, "`accuracy` must lie"),
        ({"class_fractions": [0.5, 0.5]}, "`class_fractions` must hold 4 numbers, one for each column"),
        ({"class_fractions": [0.5, 0.5, 0.2, 0.2]}, "`class_fractions` must"),
        (
            {"accuracy": 0.99, "class_fractions": [0.85, 0.05, 0.05, 0.05]},
            "at most 0.4[0-9]* of the answers can be right",
        ),
        ({"accuracy": 0.7, "belief": expect(0.7, num_classes=4)}, "either `belief` or"),
        ({"belief": Masses([0.25] * 4)}, "`belief` must have a density"),
        (
            {"accuracy": 0.7, "labels": torch.zeros(3, dtype=torch.long)},
            r"`labels` must be whole numbers of shape \(300,",
        ),
        ({"accuracy": 0.7, "labels": torch.full((300,), 4)}, "`labels` must be from 0 to 3, or -1"),
        ({"accuracy": 0.7, "concentration": 0.0}, "`concentration` must be"),
    ],
)
def test_what_cannot_be_is_refused(stated: dict[str, object], message: str) -> None:
    log_probs, *_ = sharpened(11, rows=300)
    with pytest.raises(ValueError, match=message):
        calibrate_to_belief(log_probs, **stated)


def test_predictions_must_be_numbers_with_the_classes_of_the_fit() -> None:
    log_probs, *_ = sharpened(12, rows=50)
    with pytest.raises(ValueError, match="below infinity, but some are NaN"):
        calibrate_to_belief(log_probs.index_fill(0, torch.tensor([3]), math.nan), accuracy=0.7)
    found = calibrate_to_belief(log_probs, accuracy=0.7)
    with pytest.raises(ValueError, match=r"shape \(..., 4\), one column for each class"):
        found(log_probs[:, :3])


# --- fractions beside the labels that a classifier was trained on ---


def two_classes() -> Tensor:
    generator = torch.Generator().manual_seed(5)
    logits = torch.stack([torch.zeros(400), 2 * torch.randn(400, generator=generator) - 0.3], 1)
    return logits.double().log_softmax(-1)


def test_a_certain_statement_is_met_whatever_the_labels() -> None:
    rows = two_classes()
    plain = calibrate_to_belief(rows, class_fractions=[0.8, 0.2])
    found = calibrate_to_belief(rows, class_fractions=[0.8, 0.2], label_counts=[20, 30], fraction_uncertainty=0)
    assert found.offsets == pytest.approx(plain.offsets, abs=1e-12)
    assert found.class_fractions == pytest.approx([0.8, 0.2], abs=1e-6)


def test_many_labels_make_it_prior_correction() -> None:
    rows = two_classes()
    found = calibrate_to_belief(rows, class_fractions=[0.8, 0.2], label_counts=[4e9, 6e9])
    torch.testing.assert_close(found(rows), correct_prior(rows, [0.4, 0.6], [0.8, 0.2]), atol=1e-6, rtol=0)


def fractions_given_counts(stated: float, doubt: float, counts: tuple[int, int]) -> tuple[float, float]:
    """Mean and standard deviation of the fraction of the second class, by sums over a grid of fractions.

    The labels are a random sample, or their share of the second class is anything; both are equally probable.
    Equal counts, but for one label, say nothing.
    """
    if abs(counts[0] - counts[1]) <= 1:
        return stated, doubt
    grid = (np.arange(200_000) + 0.5) / 200_000
    worth = stated * (1 - stated) / doubt**2
    prior = grid ** (worth * stated - 1) * (1 - grid) ** (worth * (1 - stated) - 1)
    likelihood = grid ** counts[1] * (1 - grid) ** counts[0]
    joint = prior / prior.sum() * likelihood
    sampled = joint.sum() / (joint.sum() + likelihood.mean())
    updated = joint @ grid / joint.sum()
    mean = sampled * updated + (1 - sampled) * stated
    squares = sampled * (joint @ grid**2) / joint.sum() + (1 - sampled) * (stated**2 + doubt**2)
    return mean, math.sqrt(squares - mean**2)


@pytest.mark.parametrize(
    ("counts", "limit"),
    [
        ((30, 20), True),
        ((9, 6), False),
        ((3, 2), False),
        ((300, 200), True),
        ((40, 10), False),
        ((42, 8), False),
        ((25, 25), True),
        ((6, 5), False),
        ((160, 40), True),
        ((12, 8), False),
    ],
)
def test_between_the_two_the_most_probable_correction_is_found(counts: tuple[int, int], limit: bool) -> None:
    """Two normal errors, of the stated odds and of the odds of the labels; the prediction of both is one equation.

    With odds $o$, the corrected predictions must have the mean $\\sigma(o)$ if the offset is $o$, less that of the
    labels, plus an error of the labels. All odds are tried.
    """
    rows = two_classes()
    scores = (rows[:, 1] - rows[:, 0]).numpy()
    odds_of_labels, variance = math.log(counts[1] / counts[0]), 1 / counts[0] + 1 / counts[1]
    fraction, doubt = fractions_given_counts(0.1, 0.05, counts)
    offsets = np.linspace(-6, 4, 20_001)
    mean = np.array([1 / (1 + np.exp(-scores - each)) for each in offsets[::10]]).mean(1)
    mean = np.interp(offsets, offsets[::10], mean)
    of_labels = (offsets - np.log(mean / (1 - mean)) + odds_of_labels) ** 2 / (2 * variance)
    divergence = (1 - fraction) * np.log((1 - fraction) / (1 - mean)) + fraction * np.log(fraction / mean)
    best = offsets[(of_labels + fraction * (1 - fraction) / doubt**2 * divergence).argmin()]
    found = calibrate_to_belief(rows, class_fractions=[0.9, 0.1], label_counts=counts, fraction_uncertainty=0.05)
    met = calibrate_to_belief(rows, class_fractions=[1 - fraction, fraction])
    prior = math.log(fraction / (1 - fraction)) - odds_of_labels
    ends = sorted([prior, met.offsets[1] - met.offsets[0]])
    assert (not ends[0] < best < ends[1]) == limit
    assert found.offsets[1] - found.offsets[0] == pytest.approx(np.clip(best, *ends), abs=2e-3)
    assert found.class_fractions == pytest.approx(found(rows).exp().mean(0).tolist(), abs=1e-9)


def test_counts_like_those_of_a_random_sample_count_as_one() -> None:
    """The statement is worth 72 observations, and the labels are 1000; those of another domain do not count."""
    counts = [560, 320, 120]
    rows = torch.tensor(counts, dtype=torch.float64).log().expand(400, -1)
    found = calibrate_to_belief(rows, class_fractions=[0.6, 0.3, 0.1], label_counts=counts)
    assert found.class_fractions == pytest.approx([(72 * 0.6 + 560) / 1072, 0.3187, 0.1187], abs=0.003)
    found = calibrate_to_belief(rows, class_fractions=[0.1, 0.3, 0.6], label_counts=counts)
    assert found.class_fractions == pytest.approx([0.1, 0.3, 0.6], abs=1e-6)


def test_more_classes_are_weighed_too() -> None:
    """The fewer the labels, the closer to the statement; and between the two in every class."""
    logits = torch.randn(300, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    stated = [0.6, 0.3, 0.1]

    def miss(factor: float) -> float:
        found = calibrate_to_belief(logits, class_fractions=stated, label_counts=[factor * each for each in (2, 3, 1)])
        return max(abs(one - two) for one, two in zip(found.class_fractions, stated, strict=True))

    assert 0 < miss(0.1) < miss(3) <= miss(1e6)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"class_fractions": None, "accuracy": 0.8}, "is for class fractions alone"),
        ({"accuracy": 0.85}, "is for class fractions alone"),
        ({"labels": torch.zeros(400, dtype=torch.int64)}, "is for class fractions alone"),
        ({"label_counts": [1, 2, 3]}, "`label_counts` must hold 2 numbers, but got 3"),
        ({"label_counts": [0, 5]}, "`label_counts"),
        ({"fraction_uncertainty": -0.1}, "`fraction_uncertainty`"),
    ],
)
def test_label_counts_that_do_not_fit_are_refused(others: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"class_fractions": [0.8, 0.2], "label_counts": [20, 30], **others}
    with pytest.raises(ValueError, match=message):
        calibrate_to_belief(two_classes(), **settings)


# --- what is doubted ---


def only_warning(call: Callable[[], Any]) -> str:
    """The text of the only warning of a call, at the line of the call."""
    with pytest.warns(UserWarning, match=".") as said:
        call()
    (one,) = said
    assert one.filename == __file__
    return str(one.message)


def test_an_accuracy_far_from_what_is_claimed_is_doubted() -> None:
    log_probs, *_ = sharpened(0)
    claimed = 100 * answered(log_probs, log_probs)
    calibrate_to_belief(log_probs, accuracy=claimed / 100 - 0.34)  # no warning
    expected = f"claim an accuracy of {claimed:.1f} %, far above the stated 40 %: check it on a few labels"
    assert expected in only_warning(lambda: calibrate_to_belief(log_probs, accuracy=0.4))
    assert expected in only_warning(lambda: calibrate_in_parts(lambda call: [call(log_probs)], accuracy=0.4))
    by_group = only_warning(lambda: calibrate_groups(log_probs, ["a"] * len(log_probs), accuracy=0.4))
    assert by_group.startswith("group 'a': the predictions")
    vague = (log_probs / 20).log_softmax(-1)
    assert "far below the stated 70 %" in only_warning(lambda: calibrate_to_belief(vague, accuracy=0.7))
    estimated = belief_from_labels(40, 100)  # labels have told
    calibrate_to_belief(log_probs, estimated)


def test_an_accuracy_that_a_constant_answer_reaches_is_doubted() -> None:
    log_probs, *_ = sharpened(0, classes=2)
    log_probs[:, 0] += 3
    said = only_warning(lambda: calibrate_to_belief(log_probs, accuracy=0.65, class_fractions=[0.7, 0.3]))
    assert said.startswith("always answering 0 would be right in 70 % of cases, no less than the stated 65 %")
    calibrate_to_belief(log_probs, accuracy=0.75, class_fractions=[0.7, 0.3])


def test_class_fractions_in_another_order_are_doubted() -> None:
    log_probs, *_ = sharpened(0, classes=2)
    log_probs[:, 0] += 8
    shares = (log_probs.argmax(-1) == 0).double().mean().item()
    said = only_warning(lambda: calibrate_to_belief(log_probs, class_fractions=[1 - shares, shares]))
    assert f"at most {100 * 2 * (1 - shares):.1f} % of the answers can be right" in said
    calibrate_to_belief(log_probs, class_fractions=[shares, 1 - shares])
    counts = [400, 100]  # a known shift
    calibrate_to_belief(log_probs, class_fractions=[1 - shares, shares], label_counts=counts)


@pytest.mark.stochastic
def test_true_statements_are_not_doubted(seed: int) -> None:
    log_probs, labels, _ = sharpened(seed)
    right = (log_probs.argmax(-1) == labels).double().mean().item()
    fractions = (torch.bincount(labels, minlength=4).double() / len(labels)).tolist()
    some = torch.where(torch.arange(len(labels)) < 200, labels, -1)
    for stated in ({"accuracy": right}, {"class_fractions": fractions}, {"accuracy": right, "labels": some}):
        calibrate_to_belief(log_probs, **stated)


# --- in parts ---


@pytest.mark.parametrize(
    "stated",
    [
        {"accuracy": 0.7},
        {"class_fractions": [0.1, 0.2, 0.3, 0.4]},
        {"accuracy": 0.6, "class_fractions": [0.2, 0.2, 0.2, 0.4]},
    ],
)
def test_in_parts_as_in_one(stated: dict[str, Any], seed: int) -> None:
    """The function can be pickled, parts may come in any order, and some rows have zeros."""
    log_probs, *_ = sharpened(seed, rows=12_000, factor=2.0)
    log_probs[::7] += torch.tensor([0.0, 1.0, 0.0, 2.0])  # parts differ
    log_probs[5, 2] = -torch.inf
    parts = [*log_probs.float().split([1, 5000, 700, 6299])]
    asked: list[int] = []

    def map_parts(function: Any) -> Any:
        asked.append(1)
        return [pickle.loads(pickle.dumps(function))(part) for part in reversed(parts)]

    found, alone = calibrate_in_parts(map_parts, **stated), calibrate_to_belief(log_probs.float(), **stated)
    assert len(asked) < 15
    one, other = found.to_dict(), alone.to_dict()
    assert one.keys() == other.keys()
    for name, value in other.items():
        assert one[name] == pytest.approx(value, rel=1e-5, abs=1e-7), name


def test_parts_that_cannot_be_used_are_one_sentence() -> None:
    rows = torch.zeros(3, 2)

    def calibrated(*parts: Tensor, **stated: Any) -> BeliefCalibration:
        return calibrate_in_parts(lambda function: [function(part) for part in parts], **stated)

    with pytest.raises(ValueError, match="nothing is stated"):
        calibrated(rows)
    with pytest.raises(ValueError, match="at least one row of predictions, but gave none"):
        calibrated(accuracy=0.7)
    with pytest.raises(ValueError, match="the same classes in every part, but they differ"):
        calibrated(rows, torch.zeros(3, 3), accuracy=0.7)
    with pytest.raises(ValueError, match="some are NaN or inf"):
        calibrated(rows, torch.full((3, 2), torch.nan), accuracy=0.7)
    with pytest.raises(ValueError, match="must hold 2 numbers"):
        calibrated(rows, class_fractions=[0.2, 0.3, 0.5])
    always = torch.tensor([[0.0, -1.0], [0.0, -2.0]]).repeat(5000, 1)
    with pytest.raises(ValueError, match=r"`accuracy` of 0\.9 cannot be reached: with these class fractions"):
        calibrated(always, accuracy=0.9, class_fractions=[0.5, 0.5])
