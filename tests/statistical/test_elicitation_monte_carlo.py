"""The statements behind `expect`, as frequencies among random predictions and labels, in standard errors."""

from __future__ import annotations

import numpy as np
import pytest

from selbo.summary._dirichlet import largest_entry
from selbo.summary.beliefs import Beta
from selbo.summary.elicitation import expect, expected_accuracy

DRAWS = 100_000


def assert_mean(draws: np.ndarray, expected: np.ndarray | float, z: float = 5.0) -> None:
    """Monte Carlo means of the columns within z standard errors (z = 5: about 6e-7 false alarms an entry)."""
    error = draws.std(0, ddof=1) / np.sqrt(len(draws))
    scores = np.abs((draws.mean(0) - expected) / error)
    assert np.max(scores) < z, f"|z| = {scores} for means {draws.mean(0)}, expected {expected}"


def random_probs(concentration: np.ndarray, generator: np.random.Generator, draws: int = DRAWS) -> np.ndarray:
    """Rows distributed as Dirichlet(concentration), by Gamma variables kept as logarithms: (draws, K)."""
    shape = (draws, len(concentration))
    logs = np.log(generator.standard_gamma(concentration + 1, size=shape))
    logs -= generator.standard_exponential(shape) / concentration  # Gamma(a) = Gamma(a + 1) U^(1 / a)
    weights = np.exp(logs - logs.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def winners(probs: np.ndarray) -> np.ndarray:
    """One column a class: 1.0 where it is the largest."""
    return (probs.argmax(1)[:, None] == np.arange(probs.shape[1])).astype(np.float64)


CONCENTRATIONS = [(0.3, 0.9, 2.0), (0.02, 0.01, 0.04, 0.03), (5.0, 4.0, 7.0, 4.5, 6.0), (0.4, 0.15)]


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_the_largest_entry(concentration: tuple[float, ...], seed: int) -> None:
    a = np.array(concentration)
    probs = random_probs(a, np.random.default_rng(seed))
    entry = largest_entry(a)
    assert_mean(winners(probs), entry.probabilities)
    assert_mean(probs.max(1), entry.expected)


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_each_class_wins_its_share_of_the_expected_largest_entry(concentration: tuple[float, ...], seed: int) -> None:
    # E[p_k; k largest] = (a_k / A) P_{a + e_k}(k largest), once by the integral and once by draws from a + e_k
    a = np.array(concentration)
    generator = np.random.default_rng(seed)
    probs = random_probs(a, generator)
    won = probs * winners(probs)
    raised = a + np.eye(len(a))
    assert_mean(won, a / a.sum() * [largest_entry(raised[k]).probabilities[k] for k in range(len(a))])
    for k in range(len(a)):
        tilted = winners(random_probs(raised[k], generator))[:, k] * a[k] / a.sum()
        difference = won[:, k].mean() - tilted.mean()
        assert abs(difference) < 5 * np.sqrt((won[:, k].var() + tilted.var()) / DRAWS)


@pytest.mark.parametrize(("a", "b"), [(0.3, 1.4), (2.0, 5.0), (0.03, 0.05)])
def test_expected_accuracy_is_that_of_calibrated_scores(a: float, b: float, seed: int) -> None:
    """Eq. (9): a label drawn by its score agrees with the prediction that often."""
    generator = np.random.default_rng(seed)
    scores = generator.beta(a, b, size=DRAWS)
    labels = generator.random(DRAWS) < scores
    assert_mean((labels == (scores > 0.5)).astype(np.float64), expected_accuracy(a, b))
    assert_mean(np.maximum(scores, 1 - scores), expected_accuracy(a, b))


@pytest.mark.parametrize(("accuracy", "fraction_0"), [(0.7, 0.8), (0.9, 0.3), (0.98, 0.478), (0.55, 0.6)])
def test_two_classes_come_out_as_stated(accuracy: float, fraction_0: float, seed: int) -> None:
    """Eq. (9) and Eq. (14), with numpy's Beta variables."""
    belief = expect(accuracy, [fraction_0, 1 - fraction_0])
    assert isinstance(belief, Beta)
    generator = np.random.default_rng(seed)
    scores = generator.beta(belief.a, belief.b, size=DRAWS)
    assert_mean((scores < 0.5).astype(np.float64), fraction_0)
    labels = generator.random(DRAWS) < scores
    assert_mean((labels == (scores > 0.5)).astype(np.float64), accuracy)


STATEMENTS = [
    (0.45, (0.2, 0.3, 0.5)),
    (0.95, (0.05, 0.15, 0.8)),
    (0.8, (0.1, 0.2, 0.3, 0.15, 0.25)),
    (0.6, tuple(k / 55 for k in range(1, 11))),
]


@pytest.mark.parametrize(("accuracy", "fractions"), STATEMENTS)
def test_more_classes_come_out_as_stated(accuracy: float, fractions: tuple[float, ...], seed: int) -> None:
    belief = expect(accuracy, fractions)
    generator = np.random.default_rng(seed)
    probs = random_probs(np.array(belief.concentration), generator)
    won = winners(probs)
    assert_mean(won, np.array(fractions))
    labels = (probs.cumsum(1) < generator.random((DRAWS, 1))).sum(1).clip(max=len(fractions) - 1)
    right = (labels == probs.argmax(1)).astype(np.float64)
    assert_mean(right, accuracy)
