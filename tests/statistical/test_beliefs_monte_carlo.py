"""Masses of regions against the share of random predictions that fall in them, in standard errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from selbo.summary.beliefs import Belief, Beta, Dirichlet, Empirical, Uniform
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

DRAWS = 40_000
Z = 5.0
FEWEST_EXPECTED = 150
"""Expected number of draws in a region, and outside it, from which its count is compared as a normal variable."""


def random_log_probs(concentration: list[float], generator: np.random.Generator, draws: int = DRAWS) -> Tensor:
    """Rows distributed as Dirichlet(concentration): (draws, K), by Gamma variables kept as logarithms.

    Gamma(a) is Gamma(a + 1) times U^(1 / a), so that a parameter of 0.01 does not underflow.
    """
    a = np.array(concentration)
    shape = (draws, len(a))
    logs = np.log(generator.standard_gamma(a + 1, size=shape)) - generator.standard_exponential(shape) / a
    return torch.from_numpy(logs).log_softmax(-1)


def assert_shares(counts: np.ndarray, masses: Tensor) -> None:
    """Counts of draws within Z standard errors of what the masses say, region by region."""
    expected = masses.numpy() * counts.sum()
    compared = (expected > FEWEST_EXPECTED) & (expected < counts.sum() - FEWEST_EXPECTED)
    assert compared.sum() >= 2, f"too few regions with enough mass: {masses.tolist()}"
    scores = (counts - expected) / np.sqrt(expected * (1 - masses.numpy()))
    assert np.abs(scores[compared]).max() < Z, f"z-scores {scores.round(1).tolist()} for masses {masses.tolist()}"
    # what is too rare to compare alone is compared together, as a Poisson count with room
    rare = expected <= FEWEST_EXPECTED
    assert counts[rare].sum() <= expected[rare].sum() + Z * np.sqrt(expected[rare].sum()) + Z**2


CASES: dict[str, tuple[list[float], Callable[[int], Partition]]] = {
    "scores": ([1.4, 0.3], lambda k: ScoreBins([0.02, 0.1, 0.5, 0.9])),
    "scores_small": ([0.02, 0.05], lambda k: ScoreBins([1e-6, 0.3, 0.999])),
    "shells_two_classes": ([0.8, 0.2], lambda k: CornerShells(k, [0.7, 0.9])),
    "shells_one_threshold": ([0.3, 0.9, 0.5, 0.2], lambda k: CornerShells(k, [0.6])),
    "shells_two_thresholds": ([0.06, 0.1, 0.2], CornerShells),
    "shells_three_thresholds": ([0.1, 0.4, 0.2, 0.15, 0.3], lambda k: CornerShells(k, [0.5, 0.75, 0.97])),
    "classes": ([0.02, 0.04, 0.01, 0.05], lambda k: ClassRegions(k, temperature=0.1)),
    "classes_mixed": ([0.2, 3.0, 1.0, 2.0, 4.0], ClassRegions),
    "classes_large": ([1000.0, 990.0, 1020.0], ClassRegions),
    "confidence_low": ([0.3, 0.6, 2.0, 1.0], lambda k: ConfidenceBins([0.35, 0.4, 0.48], k)),
    "confidence_many_classes": ([0.5] * 6 + [1.5], lambda k: ConfidenceBins([0.25, 0.32, 0.45, 0.7], k)),
    "confidence_small": ([0.1, 0.2, 0.05, 0.3, 0.1], lambda k: ConfidenceBins([0.4, 0.49, 0.5, 0.8, 0.99], k)),
    "confidence_large": ([30.0, 25.0, 40.0], lambda k: ConfidenceBins([0.38, 0.42, 0.47], k)),
}


@pytest.mark.parametrize("case", CASES)
def test_masses_are_the_shares_of_random_predictions(case: str, seed: int) -> None:
    concentration, make = CASES[case]
    partition = make(len(concentration))
    draws = random_log_probs(concentration, np.random.default_rng(seed))
    counts = np.bincount(partition.assign(draws).numpy(), minlength=partition.num_regions)
    assert_shares(counts, Dirichlet(concentration).masses(partition))


@pytest.mark.parametrize(
    ("belief", "concentration", "partition"),
    [
        (Uniform(), [1.0] * 6, ConfidenceBins([0.3, 0.4, 0.6], 6)),
        (Uniform(), [1.0] * 4, CornerShells(4, [0.55, 0.8])),
        (Beta(0.3, 1.4), [1.4, 0.3], ScoreBins([0.02, 0.1, 0.5, 0.9])),
        (Beta(0.3, 1.4), [1.4, 0.3], CornerShells(2, [0.7, 0.9])),
        (Beta(0.3, 1.4), [1.4, 0.3], ConfidenceBins([0.6, 0.95], 2)),
        (Beta(0.3, 1.4), [1.4, 0.3], ClassRegions(2)),
    ],
)
def test_other_beliefs_are_the_shares_of_random_predictions(
    belief: Belief, concentration: list[float], partition: Partition, seed: int
) -> None:
    draws = random_log_probs(concentration, np.random.default_rng(seed))
    counts = np.bincount(partition.assign(draws).numpy(), minlength=partition.num_regions)
    assert_shares(counts, belief.masses(partition))


def test_the_score_of_a_beta_has_its_mean(seed: int) -> None:
    # the draws of this file against numpy's own, so that the reference is not turned around with the code
    generator = np.random.default_rng(seed)
    scores = random_log_probs([1.4, 0.3], generator)[:, 1].exp().numpy()
    others = generator.beta(0.3, 1.4, size=DRAWS)
    error = np.sqrt((scores.var() + others.var()) / DRAWS)
    assert abs(scores.mean() - others.mean()) < Z * error
    assert abs(others.mean() - 0.3 / 1.7) < Z * others.std() / np.sqrt(DRAWS)


@pytest.mark.parametrize("partition", [CornerShells(3, [0.6, 0.8]), ClassRegions(3), ConfidenceBins([0.4, 0.7], 3)])
def test_empirical_masses_approach_those_of_the_distribution(partition: Partition, seed: int) -> None:
    concentration = [0.4, 0.9, 0.6]
    draws = random_log_probs(concentration, np.random.default_rng(seed)).reshape(4, 100, -1, 3)
    smoothing = 0.5
    shares = Empirical(draws, smoothing=smoothing).masses(partition).numpy()
    counts = shares * (DRAWS + partition.num_regions * smoothing) - smoothing
    np.testing.assert_allclose(counts, counts.round(), atol=1e-6)
    assert_shares(counts.round(), Dirichlet(concentration).masses(partition))
