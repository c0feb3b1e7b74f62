"""Intervals of estimated class fractions and of an accuracy hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom

from selbo import belief_from_labels, estimate_fractions

LEVEL = 0.9
BEFORE, AFTER = np.array([0.7, 0.3]), np.array([0.35, 0.65])


def cases(generator: np.random.Generator, count: int, fractions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictions that are certain by a factor of three too much, and labels."""
    labels = generator.choice(2, count, p=fractions)
    scores = 1.5 * np.eye(2)[labels] + generator.normal(size=(count, 2))
    return torch.from_numpy(3 * (1.5 * scores + np.log(BEFORE))), torch.from_numpy(labels)


@pytest.mark.parametrize(("method", "simulations"), [("em", 60), ("confusion", 150), ("regularised", 150)])
def test_intervals_of_fractions_hold_the_truth(method: str, simulations: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    held = 0
    for each in range(simulations):
        held_out, labels = cases(generator, 150, BEFORE)
        unlabelled, _ = cases(generator, 200, AFTER)
        found = estimate_fractions(
            unlabelled, held_out, labels, method=method, level=LEVEL, num_samples=39, seed=1000 * seed + each
        )
        assert found.fraction_intervals is not None
        low, high = found.fraction_intervals[1]
        held += low <= AFTER[1] <= high
    # a bootstrap is exact only in the limit: two points less than the level are allowed for, beside chance
    assert held >= binom.ppf(1e-6, simulations, LEVEL - 0.02)
    assert held <= binom.ppf(1 - 1e-6, simulations, LEVEL + 0.05)


def test_the_interval_of_an_accuracy_holds_the_truth_on_average(seed: int) -> None:
    """Over accuracies of the prior, a credible interval holds the truth with exactly its level."""
    generator = np.random.default_rng(seed)
    truth = generator.beta(0.5, 0.5, size=5000)
    correct = generator.binomial(30, truth)
    ends = np.array([belief_from_labels(k, 30, level=LEVEL).accuracy_interval for k in range(31)])[correct]
    held = int(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).sum())
    assert binom.ppf(1e-6, 5000, LEVEL) <= held <= binom.ppf(1 - 1e-6, 5000, LEVEL)
