"""Do labels contradict a belief: against scipy, error rates by simulation, and which claims are judged at all."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import selbo
from selbo.evaluation.contradiction import (
    LEVEL,
    STRONG,
    Verdict,
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


@pytest.mark.parametrize("concentration", [5.0, 100.0, math.inf])
@pytest.mark.parametrize("counts", [[30, 10], [0, 7], [12, 28], [1, 0]])
def test_two_classes_against_scipy(concentration, counts):
    claimed, total = (0.3, 0.7), sum(counts)
    found = check_fractions(claimed, labels_of(counts), concentration=concentration)
    if concentration == math.inf:
        model = stats.binom(total, 0.3)
        assert found.p_value == pytest.approx(stats.binomtest(counts[0], total, 0.3).pvalue, rel=1e-6)
    else:
        model = stats.betabinom(total, 0.3 * concentration, 0.7 * concentration)
        pmf = model.pmf(np.arange(total + 1))
        assert found.p_value == pytest.approx(pmf[pmf <= pmf[counts[0]] * (1 + 1e-7)].sum(), rel=1e-6)
    none = stats.betabinom(total, 0.5, 0.5)
    assert found.log_bayes_factor == pytest.approx(model.logpmf(counts[0]) - none.logpmf(counts[0]), rel=1e-8, abs=1e-8)
    assert found.claimed == pytest.approx(claimed)
    assert found.observed == pytest.approx([count / total for count in counts])
    assert found.num_examples == total


@pytest.mark.parametrize("concentration", [20.0, math.inf])
def test_more_classes_against_scipy(concentration, seed):
    """The Bayes factor exactly; the p-value, which is simulated, against the sum over all counts."""
    claimed, counts = np.array([0.5, 0.3, 0.2]), [4, 9, 2]
    total = sum(counts)
    found = check_fractions(claimed.tolist(), labels_of(counts), concentration=concentration, seed=seed)
    model = stats.multinomial(total, claimed)
    if concentration < math.inf:
        model = stats.dirichlet_multinomial(concentration * claimed, total)
    none = stats.dirichlet_multinomial([0.5, 0.5, 0.5], total)
    assert found.log_bayes_factor == pytest.approx(model.logpmf(counts) - none.logpmf(counts), rel=1e-8)
    all_counts = np.array([[a, b, total - a - b] for a in range(total + 1) for b in range(total + 1 - a)])
    pmf = np.array([model.pmf(each) for each in all_counts])
    exact = pmf[pmf <= model.pmf(counts) * (1 + 1e-7)].sum()
    error = math.sqrt(exact * (1 - exact) / 9999)
    assert abs(found.p_value - exact) < 5 * error + 1e-4
    again = check_fractions(claimed.tolist(), labels_of(counts), concentration=concentration, seed=seed)
    assert again == found


@pytest.mark.parametrize("classes", [2, 4])
def test_a_right_belief_is_seldom_contradicted_and_a_wrong_one_is_found(classes, seed):
    """The p-value keeps its level; both conditions together are stricter."""
    generator = np.random.default_rng(seed)
    claimed = np.arange(1, classes + 1) / (classes * (classes + 1) / 2)
    runs, wrong = 60, claimed[::-1]
    right = [
        check_fractions(
            claimed.tolist(),
            labels_of(generator.multinomial(120, generator.dirichlet(60 * claimed)).tolist()),
            concentration=60.0,
            seed=run,
        )
        for run in range(runs)
    ]
    below = sum(each.p_value < 0.1 for each in right)
    assert below < runs * 0.1 + 5 * math.sqrt(runs * 0.09)
    assert sum(each.contradicted for each in right) <= sum(each.p_value < LEVEL for each in right) < 8
    off = check_fractions(claimed.tolist(), labels_of((400 * wrong).round().astype(int).tolist()), concentration=1000.0)
    assert off.contradicted
    assert off.log_bayes_factor < -STRONG


def test_trust_makes_a_belief_easier_to_contradict():
    labels = labels_of([60, 40])
    vague, exact = (check_fractions([0.75, 0.25], labels, concentration=each) for each in (3.0, math.inf))
    assert vague.p_value > exact.p_value
    assert not vague.contradicted
    assert exact.contradicted


# --- accuracy ---


def test_accuracy_is_a_question_of_two_classes():
    correct = torch.tensor([True] * 30 + [False] * 10)
    found = check_accuracy(0.9, correct, concentration=50.0)
    same = check_fractions([0.1, 0.9], correct.long(), concentration=50.0)
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
        assert check_accuracy((low, high), torch.ones(30), concentration=9.0).contradicted == (high < 1)


def test_the_bayes_factor_of_bounds_is_a_mean_over_them():
    answers, alpha = torch.tensor([1] * 225 + [0] * 75), 1000.0
    found = check_accuracy((0.634, 0.901), answers, concentration=alpha)
    grid = np.linspace(0.634, 0.901, 4001)
    single = [stats.betabinom(300, alpha * each, alpha * (1 - each)).pmf(225) for each in grid]
    nothing = stats.betabinom(300, 0.5, 0.5).pmf(225)
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
    assert found.claimed[1] == pytest.approx(low + 0.1)
    assert found.claimed_to[1] == pytest.approx(low)
    assert not found.contradicted
    assert calibrated(belief, np.full(500, 0.5), 0).contradicted


# --- log-likelihood ---


def test_the_bayes_factor_is_the_sum_of_differences(seed):
    generator = np.random.default_rng(seed)
    ours, theirs = (log_probs_of(generator, 40, classes=3) for _ in range(2))
    labels = torch.from_numpy(generator.integers(0, 3, 40))
    found = check_likelihood(ours, theirs, labels, seed=seed)
    rows = torch.arange(40)
    difference = (ours[rows, labels] - theirs[rows, labels]).numpy()
    assert found.log_bayes_factor == pytest.approx(difference.sum(), rel=1e-9)
    assert found.claimed[0] - found.observed[0] == pytest.approx(difference.mean(), rel=1e-7)
    flipped = stats.permutation_test(
        (difference,),
        np.mean,
        permutation_type="samples",
        alternative="less",
        n_resamples=9999,
        rng=np.random.default_rng(1),
    )
    error = math.sqrt(flipped.pvalue * (1 - flipped.pvalue) / 9999) + 1e-4
    assert abs(found.p_value - flipped.pvalue) < 5 * math.sqrt(2) * error
    turned = check_likelihood(theirs, ours, labels, seed=seed)
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
    fractions, accuracy = check_belief(summary(selbo.ScoreBins.equal(10), belief, 30.0), labels, log_probs=log_probs)
    alone = check_fractions([0.7, 0.3], labels, concentration=30.0)
    assert fractions.p_value == pytest.approx(alone.p_value, rel=1e-5)
    assert fractions.log_bayes_factor == pytest.approx(alone.log_bayes_factor, rel=1e-5)
    right = log_probs.argmax(-1) == labels
    assert accuracy.p_value == pytest.approx(check_accuracy(0.8, right, concentration=30.0).p_value, rel=1e-5)
    assert accuracy.observed == pytest.approx([55 / 60])


def test_in_words():
    text = str(Verdict("accuracy", (0.9,), (0.6,), 50, 1e-5, -7.25))
    assert text == "accuracy: contradicted by 50 labels (claimed .900, found .600; p = 1e-05, log Bayes factor -7.2)"
    assert str(Verdict("log-likelihood", (-0.5,), (-1.25,), 9, 0.5, 6.75)).startswith(
        "log-likelihood: not contradicted by 9 labels (with -.500, without -1.250; p = 0.5"
    )
    for p_value, factor in ((0.02, -9.0), (0.001, -2.0)):  # both are needed
        assert not Verdict("accuracy", (0.9,), (0.6,), 50, p_value, factor).contradicted


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
    "trust": (lambda: check_fractions([0.5, 0.5], torch.tensor([0]), concentration=0), "`concentration` must be a fin"),
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
