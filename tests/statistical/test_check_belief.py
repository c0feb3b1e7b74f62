"""How often labels contradict a belief that is right, and one that is wrong, by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from unit.evaluation.test_check_belief import labels_of, log_probs_of

import selbo
from selbo.evaluation.check_belief import (
    SIGNIFICANCE,
    check_accuracy,
    check_belief,
    check_fractions,
    check_likelihood,
)


def at_most(probability, hits, runs):
    """Whether so many hits are possible at all, to one in ten million, if each has at most this probability."""
    return hits <= stats.binom.ppf(1 - 1e-7, runs, probability)


@pytest.mark.parametrize("uncertainty", [0.0, 0.03])
@pytest.mark.parametrize("claimed", [(0.5, 0.3, 0.2), (0.4, 0.3, 0.15, 0.1, 0.05), (0.97, 0.02, 0.01)])
def test_more_classes_have_at_most_their_size(claimed, uncertainty, seed):
    generator, runs, total = np.random.default_rng(seed), 120, 60
    truth = np.array(claimed) + uncertainty * np.array([1, -1] + [0] * (len(claimed) - 2))
    truth = truth.clip(0) / truth.clip(0).sum()
    found = [
        check_fractions(claimed, labels_of(list(counts)), uncertainty=uncertainty, seed=run)
        for run, counts in enumerate(generator.multinomial(total, truth, runs))
    ]
    for level in (0.3, 0.1, SIGNIFICANCE):
        assert at_most(level, sum(each.p_value <= level for each in found), runs)
    assert at_most(SIGNIFICANCE, sum(each.contradicted for each in found), runs)


def test_power_rises_with_the_labels(seed):
    """Two classes exactly; of five, by simulation."""
    for claimed, truth in ((0.95, 0.85), (0.5, 0.7), (0.3, 0.2)):
        power = []
        for total in (20, 40, 100, 400, 2000):
            counts = np.arange(total + 1)
            near = counts[
                np.abs(counts - total * truth) <= 5 * math.sqrt(total * truth)
            ]  # others are too rare to count
            found = [check_accuracy(claimed, torch.tensor([1] * k + [0] * (total - k))).contradicted for k in near]
            power.append(stats.binom(total, truth).pmf(near[found]).sum())
        assert all(after > before for before, after in itertools.pairwise(power) if before < 0.999)
        assert power[-1] > 0.999
    generator, claimed, truth = np.random.default_rng(seed), [0.3, 0.2, 0.2, 0.2, 0.1], [0.2, 0.2, 0.2, 0.2, 0.2]
    power = [
        np.mean(
            [check_fractions(claimed, labels_of(list(generator.multinomial(n, truth)))).contradicted for _ in "x" * 30]
        )
        for n in (20, 100, 1000)
    ]
    assert power[0] < power[1] + 0.2 < power[2] + 0.4
    assert power[0] < 0.5 < power[2] == 1


def test_networks_that_differ_at_random_are_seldom_contradicted(seed):
    """Two networks drawn alike, and labels of neither: exchangeable, for the mean over inputs too."""
    generator, runs, count = np.random.default_rng(seed), 300, 40
    hits = {0.2: 0, 0.05: 0, SIGNIFICANCE: 0}
    for _ in range(runs):
        truth = log_probs_of(generator, count, classes=3)
        ours, theirs = ((truth + log_probs_of(generator, count, classes=3)).log_softmax(-1) for _ in range(2))
        labels = torch.from_numpy((truth.numpy() + generator.gumbel(size=(count, 3))).argmax(-1))
        p_value = check_likelihood(ours, theirs, labels).p_value
        for level in hits:
            hits[level] += p_value <= level
    assert all(at_most(level, count, runs) for level, count in hits.items())


SCORES = np.random.default_rng(7).beta(2.0, 5.0, 300)
TRUE = {
    "Beta": (selbo.ScoreBins.equal(10), selbo.Beta(2.0, 5.0)),
    "expect": (selbo.ScoreBins.equal(10), selbo.expect(0.85, [0.7, 0.3])),
    "expect, rare": (selbo.ScoreBins.equal(10), selbo.expect(0.97, [0.95, 0.05])),
    "Masses": (selbo.ScoreBins.equal(5), selbo.Masses([0.3, 0.25, 0.2, 0.15, 0.1])),
    "fractions": (selbo.ClassRegions(4), selbo.Masses([0.4, 0.3, 0.2, 0.1])),
    "Dirichlet": (selbo.CornerShells(3), selbo.Dirichlet([0.5, 0.3, 0.9])),
    "three classes": (selbo.CornerShells(3), selbo.expect(0.8, [0.5, 0.3, 0.2])),
    "confidence": (selbo.ConfidenceBins([0.5, 0.8], 4), selbo.expect(0.7, [0.25] * 4)),
    "Empirical": (selbo.ScoreBins.equal(10), selbo.Empirical(torch.tensor(np.stack([1 - SCORES, SCORES], -1)).log())),
}


@pytest.mark.parametrize("name", TRUE)
def test_a_right_belief_is_seldom_contradicted(name, seed):
    """All checks together, the stated numbers true, beside a network that is more modest than right."""
    generator, runs, level = np.random.default_rng([seed, len(name)]), 60, 0.3
    partition, belief = TRUE[name]
    likelihood = selbo.SummaryLikelihood(partition, belief, 1000.0)
    claims, classes = likelihood.describe(), partition.num_classes
    weak = selbo.SummaryLikelihood(partition, belief, 1.0).describe()  # what is checked does not depend on it
    assert (weak.accuracy, weak.label_fractions) == (claims.accuracy, claims.label_fractions)
    fractions = np.full(classes, 1 / classes)
    if claims.label_fractions is not None:
        fractions = np.array(claims.label_fractions).mean(-1)
    accuracy = 0.9 if claims.accuracy is None else np.mean(claims.accuracy)
    hits = 0
    for run in range(runs):
        labels = generator.choice(classes, 50, p=fractions / fractions.sum())
        answers = (labels + (generator.random(50) > accuracy) * generator.integers(1, classes, 50)) % classes
        honest, modest = (
            torch.full((50, classes), (1 - sure) / (classes - 1), dtype=torch.float64)
            .scatter(1, torch.from_numpy(answers)[:, None], sure)
            .log()
            for sure in (accuracy, accuracy - 0.1 * (accuracy - 1 / classes))
        )
        found = check_belief(
            likelihood, torch.from_numpy(labels), log_probs=honest, without=modest, level=level, seed=run
        )
        hits += any(each.p_value < each.level for each in found)
    assert at_most(level, hits, runs)
