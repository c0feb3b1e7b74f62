"""Decisions from predictions: their guarantees by simulation, their thresholds by brute force."""

import math

import pytest
import torch
from scipy.stats import binom
from torch import Tensor

from selbo import decide
from selbo.metrics import aurc, risk_coverage

CLASSES = 3


def cases(
    seed: int, rows: int, *, factor: float = 1.0, fractions: tuple[float, ...] | None = None
) -> tuple[Tensor, Tensor]:
    """Probabilities, over-confident for a factor above 1, and labels; inputs of a class are alike for all fractions."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.tensor(fractions or (1 / CLASSES,) * CLASSES).expand(rows, CLASSES)
    labels = torch.multinomial(weights, 1, generator=generator)[:, 0]
    scores = 1.5 * torch.eye(CLASSES)[labels] + torch.randn(rows, CLASSES, generator=generator)
    return (1.5 * factor * scores).double().softmax(-1), labels  # for equal fractions the posterior is softmax(1.5 x)


# --- when to answer ---


def test_without_labels_as_many_are_answered_as_the_expected_risk_allows() -> None:
    probs, labels = cases(0, 20_000)
    rule = decide.abstain(probs, max_risk=0.05)
    confidence = probs.amax(-1)
    tried = [confidence >= level for level in confidence.sort().values[:: len(probs) // 500]]
    allowed = [kept.double().mean().item() for kept in tried if (1 - confidence[kept]).mean() <= 0.05]
    assert rule.coverage == pytest.approx(max(allowed), abs=0.003)
    assert rule.risk <= 0.05
    answered = rule(probs)
    assert answered.double().mean().item() == pytest.approx(rule.coverage)
    assert (probs.argmax(-1) != labels)[answered].double().mean().item() == pytest.approx(0.05, abs=0.006)
    assert rule.confidence is None


@pytest.mark.parametrize("factor", [1.0, 4.0])
@pytest.mark.slow
def test_with_labels_the_risk_is_kept_for_any_probabilities(factor: float, seed: int) -> None:
    """Over 200 labelled samples the true risk exceeds the limit in at most a share delta, but for chance."""
    probs, labels = cases(10_000 + seed, 200_000, factor=factor)
    truth = risk_coverage(probs, labels)
    confidence = probs.amax(-1).sort(descending=True).values
    broken = answered = 0
    for sample in range(200):
        some, known = cases(1000 * seed + sample, 300, factor=factor)
        rule = decide.abstain(some, max_risk=0.1, labels=known, delta=0.1)
        if math.isfinite(rule.threshold):
            place = int((confidence >= rule.threshold).sum()) - 1
            broken += truth[1][place].item() > 0.1
            answered += 1
    assert answered > 100
    assert broken <= binom.ppf(1 - 1e-6, 200, 0.1)
    assert broken > 0  # the rule is not far too careful


def test_thresholds_with_labels_are_those_of_a_loop_of_tests() -> None:
    probs, labels = cases(1, 400)
    rule = decide.abstain(probs, max_risk=0.1, labels=labels)
    order = probs.amax(-1).argsort(descending=True)
    wrong = (probs.argmax(-1) != labels)[order]
    most = 0
    for count in range(1, 401):
        if 0.9**count > 0.05:  # even without an error it would not show
            continue
        if binom.cdf(int(wrong[:count].sum()), count, 0.1) > 0.05:
            break
        most = count
    assert rule.coverage == most / 400 > 0.2
    assert rule.threshold == probs.amax(-1)[order][most - 1].item()
    assert rule.risk == pytest.approx(wrong[:most].double().mean().item())
    assert rule.confidence == pytest.approx(0.95)


def test_nothing_is_answered_where_nothing_can_be_shown() -> None:
    probs, labels = cases(2, 20)
    rule = decide.abstain(probs, max_risk=0.01, labels=labels)
    assert rule.threshold == math.inf
    assert rule.coverage == 0
    assert math.isnan(rule.risk)
    assert not bool(rule(probs).any())
    assert decide.abstain(torch.full((5, 2), 0.5), max_risk=0.1).coverage == 0


# --- sets ---


def coverage(sets: Tensor, labels: Tensor) -> float:
    return sets.gather(1, labels[:, None]).double().mean().item()


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_sets_hold_the_right_class(factor: float, seed: int) -> None:
    new, truth = cases(20_000 + seed, 50_000, factor=factor)
    found = [
        coverage(decide.conformal_sets(*cases(1000 * seed + sample, 200, factor=factor), alpha=0.1)(new), truth)
        for sample in range(60)
    ]
    mean, error = torch.tensor(found).mean().item(), torch.tensor(found).std().item() / math.sqrt(60)
    assert mean > 0.9 - 5 * error
    assert mean < 0.9 + 1 / 201 + 5 * error  # and not much more


@pytest.mark.slow
def test_known_label_shift_keeps_the_coverage_that_plain_sets_lose(seed: int) -> None:
    after = (0.02, 0.08, 0.9)
    new, truth = cases(30_000 + seed, 50_000, fractions=after)
    before = (0.7, 0.25, 0.05)
    weighted, plain = [], []
    for sample in range(60):
        labelled = cases(1000 * seed + sample, 600, fractions=before)
        biased = (labelled[0] * torch.tensor(before)).double()
        biased /= biased.sum(-1, keepdim=True)  # what a classifier of the source domain would say
        here = (new * torch.tensor(before)).double()
        here /= here.sum(-1, keepdim=True)
        weighted.append(coverage(decide.conformal_sets(biased, labelled[1], class_fractions=after)(here), truth))
        plain.append(coverage(decide.conformal_sets(biased, labelled[1])(here), truth))
    error = torch.tensor(weighted).std().item() / math.sqrt(60)
    assert torch.tensor(weighted).mean().item() > 0.9 - 5 * error - 0.01  # the old fractions are estimated
    assert torch.tensor(plain).mean().item() < 0.8


def test_thresholds_of_sets_by_hand() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]).double()
    labels = torch.tensor([0, 0, 1, 1])  # probabilities of the labels .9, .8, .7, .4
    assert decide.conformal_sets(probs, labels, alpha=0.4).thresholds == pytest.approx((0.7, 0.7))  # third of 3.0
    assert decide.conformal_sets(probs, labels, alpha=0.25).thresholds == pytest.approx((0.4, 0.4))  # fourth of 3.75
    assert decide.conformal_sets(probs, labels, alpha=0.1).thresholds == (-math.inf, -math.inf)  # fifth of four
    # weights .4 and 1.6, sums .4, .8, 2.4, 4; class 0 needs .6 (4 + .4) = 2.64, class 1 needs .6 (4 + 1.6) = 3.36
    shifted = decide.conformal_sets(probs, labels, alpha=0.4, class_fractions=[0.2, 0.8])
    assert shifted.thresholds == pytest.approx((0.4, 0.4))
    # .5 of them: 2.2 and 2.8
    again = decide.conformal_sets(probs, labels, alpha=0.5, class_fractions=[0.2, 0.8])
    assert again.thresholds == pytest.approx((0.7, 0.4))
    assert bool(again(torch.tensor([[0.7, 0.3]]))[0, 0])


# --- actions, curves, refusals ---


def test_actions_are_those_of_least_expected_cost() -> None:
    probs, _ = cases(3, 200)
    costs = torch.tensor([[0.0, 2.0, 1.0, 0.4], [5.0, 0.0, 1.0, 0.4], [1.0, 1.0, 0.0, 0.4]])
    found = decide.best_actions(probs, costs)
    for row, action in zip(probs, found.tolist(), strict=True):
        expected = [sum(row[k].item() * costs[k, a].item() for k in range(3)) for a in range(4)]
        assert expected[action] == pytest.approx(min(expected))
    assert set(found.tolist()) == {0, 1, 2, 3}


def test_the_risk_coverage_curve_and_its_area() -> None:
    probs, labels = cases(4, 300)
    coverages, risks = risk_coverage(probs, labels)
    order = probs.amax(-1).argsort(descending=True)
    wrong = (probs.argmax(-1) != labels)[order].double()
    by_hand = [wrong[: k + 1].mean().item() for k in range(300)]
    assert coverages.tolist() == pytest.approx([(k + 1) / 300 for k in range(300)])
    assert risks.tolist() == pytest.approx(by_hand)
    assert aurc(probs, labels) == pytest.approx(sum(by_hand) / 300)
    same = torch.tensor([[0.6, 0.4]]).expand(4, 2)  # equally confident: one point, whatever the order
    assert [each.tolist() for each in risk_coverage(same, torch.tensor([0, 1, 1, 0]))] == [[1.0], [0.5]]


def test_what_cannot_be_is_refused() -> None:
    probs, labels = cases(5, 30)
    with pytest.raises(ValueError, match="`max_risk` must lie strictly between 0 and 1"):
        decide.abstain(probs, max_risk=0)
    with pytest.raises(ValueError, match="`delta` must lie"):
        decide.abstain(probs, max_risk=0.1, labels=labels, delta=1)
    with pytest.raises(ValueError, match="`alpha` must lie"):
        decide.conformal_sets(probs, labels, alpha=0)
    with pytest.raises(ValueError, match="`class_fractions` must hold 3 numbers"):
        decide.conformal_sets(probs, labels, class_fractions=[0.5, 0.5])
    with pytest.raises(ValueError, match="but has none of class 2"):
        decide.conformal_sets(probs, labels.clamp(max=1), class_fractions=[0.5, 0.25, 0.25])
    with pytest.raises(ValueError, match="must have 3 classes, but got 2"):
        decide.conformal_sets(probs, labels)(torch.full((1, 2), 0.5))
    with pytest.raises(ValueError, match=r"`costs` must have shape \(3, actions\)"):
        decide.best_actions(probs, torch.zeros(2, 2))
    with pytest.raises(ValueError, match="`costs` must be finite"):
        decide.best_actions(probs, torch.full((3, 2), math.nan))
