"""Do labels contradict a belief: against scipy, error rates by simulation, and which claims are judged at all."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import selbo
from selbo.evaluation.check_belief import (
    SIGNIFICANCE,
    CheckResult,
    check_accuracy,
    check_belief,
    check_fractions,
    check_likelihood,
)


def labels_of(counts: list[int]) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def log_probs_of(generator: np.random.Generator, count: int, *, classes: int = 2, sharpness: float = 2.0):
    logits = sharpness * torch.from_numpy(generator.standard_normal((count, classes)))
    return logits.log_softmax(-1)


# --- class fractions ---


@pytest.mark.parametrize("counts", [[30, 10], [0, 7], [12, 28], [1, 0]])
def test_two_classes_against_scipy(counts):
    total = sum(counts)
    found = check_fractions((0.3, 0.7), labels_of(counts))
    model, none = stats.binom(total, 0.3), stats.betabinom(total, 0.5, 0.5)
    expected = min(1, 2 * min(model.cdf(counts[0]), model.sf(counts[0] - 1)))
    assert found.p_value == pytest.approx(expected, rel=1e-10)
    assert found.log_bayes_factor == pytest.approx(model.logpmf(counts[0]) - none.logpmf(counts[0]), rel=1e-8, abs=1e-8)
    assert found.claimed == pytest.approx((0.3, 0.7))
    assert found.observed == pytest.approx([count / total for count in counts])
    assert (found.num_examples, found.claimed_to) == (total, None)


@pytest.mark.parametrize("counts", [[30, 10], [0, 7], [12, 28]])
def test_the_p_value_is_that_of_the_clopper_pearson_interval(counts):
    """It is below a level exactly if the interval at one less that level leaves out the claim."""
    for claimed in (0.1, 0.3, 0.5, 0.9):
        p_value = check_fractions((claimed, 1 - claimed), labels_of(counts)).p_value
        for level, inside in ((p_value * 1.001, False), (p_value * 0.999, True)):
            if 1e-9 < level < 1:
                low, high = stats.binomtest(counts[0], sum(counts)).proportion_ci(1 - level, "exact")
                assert (low <= claimed <= high) == inside


def test_more_classes_against_scipy(seed):
    """The Bayes factor exactly; the p-value, which is simulated, against the sum over all counts."""
    claimed, counts = np.array([0.5, 0.3, 0.2]), [4, 9, 2]
    total = sum(counts)
    found = check_fractions(claimed.tolist(), labels_of(counts), seed=seed)
    model, none = stats.multinomial(total, claimed), stats.dirichlet_multinomial([0.5, 0.5, 0.5], total)
    assert found.log_bayes_factor == pytest.approx(model.logpmf(counts) - none.logpmf(counts), rel=1e-8)
    all_counts = np.array([[a, b, total - a - b] for a in range(total + 1) for b in range(total + 1 - a)])
    pmf = model.pmf(all_counts)
    exact = pmf[pmf <= model.pmf(counts) * (1 + 1e-7)].sum()
    error = math.sqrt(exact * (1 - exact) / 9999)
    assert abs(found.p_value - exact) < 5 * error + 1e-4
    assert check_fractions(claimed.tolist(), labels_of(counts), seed=seed) == found


def test_ranges_of_more_classes_are_checked_class_by_class():
    """The class that fits worst decides, against all others, and is one of three."""
    counts = [30, 20, 50]
    found = check_fractions([0.5, 0.3, 0.2], labels_of(counts), uncertainty=0.1)
    assert (found.claimed, found.claimed_to) == (pytest.approx([0.4, 0.2, 0.1]), pytest.approx([0.6, 0.4, 0.3]))
    assert found.p_value == pytest.approx(3 * 2 * stats.binom(100, 0.3).sf(49), rel=1e-9)
    alone = check_accuracy((0.1, 0.3), torch.tensor([1] * 50 + [0] * 50))
    assert found.log_bayes_factor == pytest.approx(alone.log_bayes_factor)
    assert found.contradicted
    assert "claimed .400 .200 .100 to .600 .400 .300, found .300 .200 .500" in str(found)
    assert not check_fractions([0.5, 0.3, 0.2], labels_of(counts), uncertainty=0.25).contradicted


@pytest.mark.parametrize("total", [1, 7, 40, 300])
@pytest.mark.parametrize("claimed", [0.02, 0.3, 0.5, 0.85, 0.99])
@pytest.mark.parametrize("uncertainty", [0.0, 0.05])
def test_two_classes_have_their_size_exactly(total, claimed, uncertainty):
    """Summed over all counts, for truths all over what was stated: no simulation."""
    found = [
        check_fractions((claimed, 1 - claimed), labels_of([count, total - count]), uncertainty=uncertainty)
        for count in range(total + 1)
    ]
    p_values, contradicted = (np.array([getattr(each, name) for each in found]) for name in ("p_value", "contradicted"))
    for truth in np.clip(claimed + uncertainty * np.linspace(-1, 1, 5), 0, 1):
        pmf = stats.binom(total, truth).pmf(np.arange(total + 1))
        for level in (0.2, 0.05, SIGNIFICANCE, 1e-4):
            assert pmf[p_values <= level].sum() <= level * (1 + 1e-9)
        assert pmf[contradicted].sum() <= SIGNIFICANCE


# --- accuracy ---


def test_accuracy_is_a_question_of_two_classes():
    correct = torch.tensor([True] * 30 + [False] * 10)
    found = check_accuracy(0.9, correct)
    same = check_fractions([0.1, 0.9], correct.long())
    assert found.p_value == pytest.approx(same.p_value)
    assert found.log_bayes_factor == pytest.approx(same.log_bayes_factor)
    assert found.claimed == pytest.approx([0.9])
    assert found.observed == pytest.approx([0.75])
    assert found.about == "accuracy"


def test_bounds_are_contradicted_from_outside_only():
    correct = torch.tensor([1] * 300 + [0] * 100)
    assert check_accuracy((0.6, 0.8), correct).p_value == pytest.approx(1.0)
    assert check_accuracy((0.85, 0.95), correct).contradicted
    assert check_accuracy((0.4, 0.6), correct).contradicted
    found = check_accuracy((0.6, 0.8), correct)
    assert (found.claimed, found.claimed_to) == ((0.6,), (0.8,))
    assert "claimed .600 to .800, found .750" in str(found)
    for low, high in ((0.0, 0.5), (0.5, 1.0)):  # bounds may be the ends, and all answers right
        assert check_accuracy((low, high), torch.ones(30)).contradicted == (high < 1)


def test_uncertainty_widens_what_was_stated():
    correct = torch.tensor([1] * 340 + [0] * 60)
    exact, wide, wider = (check_accuracy(0.95, correct, uncertainty=each) for each in (0.0, 0.05, 0.1))
    assert (wide.claimed, wide.claimed_to) == (pytest.approx([0.9]), pytest.approx([1.0]))
    assert (wide.p_value, wide.log_bayes_factor) == (
        pytest.approx(check_accuracy((0.9, 1.0), correct).p_value),
        pytest.approx(check_accuracy((0.9, 1.0), correct).log_bayes_factor),
    )
    assert exact.p_value < wide.p_value < wider.p_value
    assert exact.contradicted
    assert not wider.contradicted
    assert check_accuracy((0.9, 0.95), correct, uncertainty=0.02).claimed == pytest.approx([0.88])


def test_the_bayes_factor_of_bounds_is_a_mean_over_them():
    found = check_accuracy((0.634, 0.901), torch.tensor([1] * 225 + [0] * 75))
    grid = np.linspace(0.634, 0.901, 4001)
    single, nothing = stats.binom(300, grid).pmf(225), stats.betabinom(300, 0.5, 0.5).pmf(225)
    assert found.log_bayes_factor == pytest.approx(
        np.log(np.trapezoid(single, grid) / (grid[-1] - grid[0]) / nothing), abs=1e-3
    )


@pytest.mark.parametrize("bounds", [(-0.1, 0.5), (0.5, 1.1), (0.8, 0.6)])
def test_bounds_must_be_bounds(bounds):
    with pytest.raises(ValueError, match=r"must be bounds between 0 and 1|strictly between 0 and 1"):
        check_accuracy(bounds, torch.ones(3))


# --- what a belief says of labels ---


def calibrated(belief, scores, seed):
    """Verdict on labels drawn from scores, by a belief about these scores."""
    summary = selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, concentration=1000.0)
    labels = torch.rand(500, generator=torch.Generator().manual_seed(seed)) < torch.as_tensor(scores)
    (found,) = check_belief(summary, labels.long())
    return found


@pytest.mark.parametrize(("a", "b"), [(1, 9), (2, 6), (0.3, 2)])
def test_labels_of_calibrated_predictions_do_not_contradict_their_belief(a, b):
    for seed in range(5):
        scores = np.random.default_rng(seed).beta(a, b, 500).clip(1e-9, 1 - 1e-9)
        log_probs = torch.tensor(np.stack([1 - scores, scores], -1)).log()
        for belief in (selbo.Beta(a, b), selbo.Empirical(log_probs)):
            found = calibrated(belief, scores, seed)
            assert not found.contradicted
            assert found.claimed[1] == pytest.approx(a / (a + b), abs=0.03)


def test_stated_fractions_are_compared_as_stated():
    belief = selbo.expect(0.8, [0.9, 0.1])  # whose scores have a mean of .22
    assert calibrated(belief, np.full(500, 0.1), 0).claimed == (0.9, 0.1)
    assert not calibrated(belief, np.full(500, 0.1), 0).contradicted
    assert calibrated(belief, np.full(500, 0.3), 0).contradicted


def test_a_histogram_of_scores_bounds_the_fractions():
    belief = selbo.Masses([0.4, 0.3, 0.1, 0.05, 0.05, 0.02, 0.02, 0.02, 0.02, 0.02])
    found = calibrated(belief, np.full(500, 0.2), 0)
    low = float(np.arange(0, 1, 0.1) @ np.array(belief.values))
    assert (found.claimed[1], found.claimed_to[1]) == (pytest.approx(low), pytest.approx(low + 0.1))
    assert (found.claimed[0], found.claimed_to[0]) == (pytest.approx(0.9 - low), pytest.approx(1 - low))
    assert not found.contradicted
    assert calibrated(belief, np.full(500, 0.5), 0).contradicted


# --- log-likelihood ---


def test_the_bayes_factor_is_the_sum_of_differences(seed):
    generator = np.random.default_rng(seed)
    ours, theirs = (log_probs_of(generator, 40, classes=3) for _ in range(2))
    labels = torch.from_numpy(generator.integers(0, 3, 40))
    found = check_likelihood(ours, theirs, labels)
    rows = torch.arange(40)
    difference = (ours[rows, labels] - theirs[rows, labels]).numpy()
    assert found.log_bayes_factor == pytest.approx(difference.sum(), rel=1e-9)
    assert found.claimed[0] - found.observed[0] == pytest.approx(difference.mean(), rel=1e-7)
    stakes = [2.0**-power / (ours - theirs).max().item() for power in range(8)]
    wealth = np.mean([math.prod(1 - stake * each for each in difference) for stake in stakes])
    assert found.p_value == pytest.approx(min(1, 1 / wealth), rel=1e-9)
    turned = check_likelihood(theirs, ours, labels)
    assert turned.log_bayes_factor == pytest.approx(-found.log_bayes_factor)


def test_harm_is_found_and_help_is_not_harm(seed):
    generator = np.random.default_rng(seed)
    honest = log_probs_of(generator, 600)
    labels = torch.from_numpy((generator.random(600) < honest[:, 1].exp().numpy()).astype(np.int64))
    bold = (4 * honest).log_softmax(-1)
    assert check_likelihood(bold, honest, labels).contradicted
    helped = check_likelihood(honest, bold, labels)
    assert not helped.contradicted
    assert helped.p_value > 0.9
    same = check_likelihood(honest, honest, labels)
    assert same.p_value == 1.0
    assert same.log_bayes_factor == 0.0


def test_a_network_that_excludes_a_class_cannot_be_shown_to_be_better():
    """The one label that it excludes would cost it everything."""
    sure, modest = torch.tensor([[1.0, 0.0]] * 50).log(), torch.tensor([[0.6, 0.4]] * 50).log()
    labels = torch.zeros(50).long()
    assert check_likelihood(modest, sure, labels).p_value == 1.0
    both = torch.tensor([[0.7, 0.3, 0.0]] * 50).log(), torch.tensor([[0.9, 0.1, 0.0]] * 50).log()
    assert check_likelihood(*both, labels).p_value < 1  # excluded by both: no matter


def constant(probability, count, classes):
    """The same prediction for all examples; other classes are equally probable."""
    others = [(1 - probability) / (classes - 1)] * (classes - 1)
    return torch.tensor([[probability, *others]], dtype=torch.float64).log().expand(count, classes)


EQUAL = {  # what each network says, and the truth at which their expected log score is the same
    "modest": (0.8, 0.962),
    "bold": (0.962, 0.8),
    "timid": (0.55, 0.9),
    "nearly sure": (0.9, 0.9999),
    "close": (0.84, 0.86),
}


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("count", [5, 20, 40, 200])
@pytest.mark.parametrize("case", EQUAL.values(), ids=EQUAL.keys())
def test_a_network_that_is_no_worse_is_seldom_contradicted(case, count, classes):
    """Summed over the number of labels of the first class; the truth is where both networks are equally good."""
    ours, theirs = (constant(each, count, classes) for each in case)
    on_first, on_others = (ours - theirs)[0, :2].tolist()
    truth = on_others / (on_others - on_first)
    found = []
    for first in range(count + 1):
        labels = torch.ones(count).long()
        labels[:first] = 0
        found.append(check_likelihood(ours, theirs, labels))
    pmf = stats.binom(count, truth).pmf(np.arange(count + 1))
    p_values, contradicted = (np.array([getattr(each, name) for each in found]) for name in ("p_value", "contradicted"))
    for level in (0.2, 0.05, SIGNIFICANCE):
        assert pmf[p_values <= level].sum() <= level
    assert pmf[contradicted].sum() <= SIGNIFICANCE
    if (case, count) == ((0.8, 0.962), 20):  # where a test of signs contradicts one time in nine
        difference = np.where(np.arange(20) < 20, on_first, on_others)
        flipped = stats.permutation_test(
            (difference,), np.mean, permutation_type="samples", alternative="less", rng=np.random.default_rng(1)
        )
        assert flipped.pvalue < SIGNIFICANCE
        assert pmf[-1] > 0.1
        assert not found[-1].contradicted


@pytest.mark.parametrize(("ours", "theirs", "truth"), [(0.8, 0.95, 0.97), (0.98, 0.81, 0.81), (0.95, 0.8, 0.85)])
def test_the_power_to_find_harm_rises_with_the_labels(ours, theirs, truth):
    power = []
    for count in (40, 200, 1000, 4000):
        total, model = 0.0, stats.binom(count, truth)
        for first in range(int(model.ppf(1e-4)), int(model.ppf(1 - 1e-4)) + 1):
            labels = torch.ones(count).long()
            labels[:first] = 0
            found = check_likelihood(constant(ours, count, 2), constant(theirs, count, 2), labels)
            total += model.pmf(first) * found.contradicted
        power.append(total)
    assert all(after > before for before, after in itertools.pairwise(power) if before < 0.99)
    assert power[-1] > 0.99


# --- a summary ---


def summary(partition, belief=None, concentration=100.0):
    return selbo.SummaryLikelihood(partition, belief or selbo.Uniform(), concentration)


def test_what_is_judged_is_what_was_claimed_and_can_be_seen(seed):
    generator = np.random.default_rng(seed)
    log_probs, labels = log_probs_of(generator, 50), torch.from_numpy(generator.integers(0, 2, 50))

    def about(*arguments, **options):
        return [each.about for each in check_belief(*arguments, **options)]

    bins = summary(selbo.ScoreBins.equal(10))
    assert about(bins, labels) == ["class fractions"]
    assert about(bins, labels, log_probs=log_probs) == ["class fractions", "accuracy"]
    everything = about(bins, labels, log_probs=log_probs, without=log_probs)
    assert everything == ["class fractions", "accuracy", "log-likelihood"]
    assert about(summary(selbo.ClassRegions(2)), labels, log_probs=log_probs) == ["class fractions"]
    assert about(summary(selbo.ConfidenceBins([0.8], 2)), labels, log_probs=log_probs) == ["accuracy"]
    open_middle = summary(selbo.ScoreBins([0.2, 0.8]), selbo.Masses([0.3, 0.3, 0.4]))
    assert about(open_middle, labels, log_probs=log_probs) == ["class fractions", "accuracy"]  # bounds of both


def test_the_numbers_of_the_summary_are_what_is_checked():
    belief = selbo.expect(accuracy=0.8, class_fractions=[0.7, 0.3])
    log_probs = torch.tensor([[0.9, 0.1]] * 40 + [[0.2, 0.8]] * 20).log()
    labels = torch.tensor([0] * 35 + [1] * 25)
    whole = summary(selbo.ScoreBins.equal(10), belief, 30.0)
    for uncertainty in (0.0, 0.04):
        fractions, accuracy = check_belief(whole, labels, log_probs=log_probs, uncertainty=uncertainty)
        alone = check_fractions([0.7, 0.3], labels, uncertainty=uncertainty)
        assert fractions.p_value == pytest.approx(alone.p_value, rel=1e-5)
        assert fractions.log_bayes_factor == pytest.approx(alone.log_bayes_factor, rel=1e-5)
        right = log_probs.argmax(-1) == labels
        alone = check_accuracy(0.8, right, uncertainty=uncertainty)
        assert accuracy.p_value == pytest.approx(alone.p_value, rel=1e-5)
        assert accuracy.observed == pytest.approx([55 / 60])


def test_checks_made_at_once_share_the_level(seed):
    generator = np.random.default_rng(seed)
    log_probs, labels = log_probs_of(generator, 50), torch.from_numpy(generator.integers(0, 2, 50))
    bins = summary(selbo.ScoreBins.equal(10))
    assert [each.level for each in check_belief(bins, labels)] == [SIGNIFICANCE]
    assert [each.level for each in check_belief(bins, labels, log_probs=log_probs, level=0.2)] == [0.1, 0.1]
    found = check_belief(bins, labels, log_probs=log_probs, without=log_probs)
    assert [each.level for each in found] == pytest.approx([SIGNIFICANCE / 3] * 3)
    between = CheckResult("accuracy", (0.9,), (0.6,), 50, 0.004, -9.0)
    assert between.contradicted
    assert not replace(between, level=SIGNIFICANCE / 3).contradicted


@pytest.mark.parametrize("found", [0.5, 0.9])
def test_the_concentration_is_no_doubt(found):
    """What was stated is checked alike, however strongly it was trained."""
    labels = labels_of([round(200 * found), round(200 * (1 - found))])
    log_probs = torch.tensor([[0.9, 0.1]] * 200).log()
    belief = selbo.expect(accuracy=0.8, class_fractions=[0.5, 0.5])
    verdicts = [
        check_belief(summary(selbo.ScoreBins.equal(10), belief, concentration), labels, log_probs=log_probs)
        for concentration in (0.01, 0.05, 1.0, 50.0, 1e6)
    ]
    assert all(each == verdicts[0] for each in verdicts)
    assert verdicts[0][0].contradicted == (found != 0.5)


def test_in_words():
    text = str(CheckResult("accuracy", (0.9,), (0.6,), 50, 1e-5, -7.25))
    assert text == "accuracy: contradicted by 50 labels (claimed .900, found .600; p = 1e-05, log Bayes factor -7.2)"
    assert str(CheckResult("log-likelihood", (-0.5,), (-1.25,), 9, 0.5, 6.75)).startswith(
        "log-likelihood: not contradicted by 9 labels (with -.500, without -1.250; p = 0.5"
    )
    for p_value, factor in ((0.02, -9.0), (0.001, -2.0)):  # both are needed
        assert not CheckResult("accuracy", (0.9,), (0.6,), 50, p_value, factor).contradicted


TWO = torch.tensor([[0.5, 0.5]]).log()
BAD = {
    "no summary": (lambda: check_belief(selbo.Uniform(), torch.tensor([0])), "`summary` must be a selbo.Summary"),
    "without alone": (
        lambda: check_belief(summary(selbo.ClassRegions(2)), torch.tensor([0]), without=TWO),
        "`without` is compared with `log_probs`, which must be given too",
    ),
    "classes": (
        lambda: check_belief(summary(selbo.ClassRegions(3)), torch.tensor([0]), log_probs=TWO),
        "`log_probs` must have 3 classes, as the summary has, but got 2",
    ),
    "a label": (
        lambda: check_fractions([0.5, 0.5], torch.tensor([2])),
        "`labels` must be classes from 0 to 1, but got 2",
    ),
    "negative": (lambda: check_fractions([0.5, 0.5], torch.tensor([-1])), "from 0 to 1, but got -1"),
    "no labels": (lambda: check_fractions([0.5, 0.5], torch.tensor([]).long()), r"B at least 1, but got \(0,\)"),
    "scores": (lambda: check_fractions([0.5, 0.5], torch.tensor([0.3])), "as whole numbers, .* of torch.float32"),
    "fractions": (lambda: check_fractions([0.5, 0.6], torch.tensor([0])), "`claimed` must sum to 1"),
    "uncertainty": (
        lambda: check_fractions([0.5, 0.5], torch.tensor([0]), uncertainty=-0.1),
        "`uncertainty` must be a finite number of at least 0",
    ),
    "no statement": (
        lambda: check_belief(summary(selbo.ClassRegions(2)), torch.tensor([0]), uncertainty=1.0),
        "`uncertainty` must be a number from 0 to below 1, but got 1.0",
    ),
    "level": (
        lambda: check_belief(summary(selbo.ClassRegions(2)), torch.tensor([0]), level=1.0),
        "`level` must lie strictly between 0 and 1",
    ),
    "correct": (lambda: check_accuracy(0.5, torch.tensor([0.3])), "`correct` must hold true or false"),
    "accuracy": (lambda: check_accuracy(1.0, torch.tensor([True])), "`claimed` must lie strictly between 0 and 1"),
    "shapes": (
        lambda: check_likelihood(TWO, torch.cat([TWO, TWO]), torch.tensor([0])),
        r"`without` must have the shape of `log_probs`, \(1, 2\), but got \(2, 2\)",
    ),
    "impossible": (
        lambda: check_likelihood(torch.tensor([[1.0, 0.0]]).log(), TWO, torch.tensor([1])),
        "must give every label some probability, but some have none",
    ),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
