"""Beliefs from samples and from labels: scipy's likelihood and posterior, known distributions, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from selbo import ClassRegions, SummaryLikelihood, belief_from_labels, belief_from_samples, calibrate_to_belief, expect
from selbo.summary.estimation import EstimatedBelief

PARAMETERS = np.array([40.0, 25.0, 5.0])


def test_the_concentration_is_that_of_greatest_likelihood(seed: int) -> None:
    """Of samples that are no Dirichlet, found by another optimiser and scipy's density."""
    scores = np.random.default_rng(seed).normal([1.0, 0.0, -1.0], [0.2, 0.1, 0.3], size=(300, 3))
    samples = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    found = belief_from_samples(samples)
    mean = samples.mean(0)

    def loss(log_alpha: float) -> float:
        return -float(np.mean([stats.dirichlet(np.exp(log_alpha) * mean).logpdf(each) for each in samples]))

    best = optimize.minimize_scalar(loss, bounds=(0, 10), method="bounded", options={"xatol": 1e-9})
    assert found.class_fractions == pytest.approx(mean)
    assert np.log(found.concentration) == pytest.approx(best.x, abs=1e-4)


def test_samples_of_a_dirichlet_give_its_parameters(seed: int) -> None:
    samples = np.random.default_rng(seed).dirichlet(PARAMETERS, size=20_000)
    found = belief_from_samples(samples, level=0.9)
    assert found.class_fractions == pytest.approx(PARAMETERS / 70, abs=0.003)
    # the information about log alpha in a sample is close to (K - 1) / 2
    assert np.log(found.concentration / 70) == pytest.approx(0, abs=5 / np.sqrt(20_000))
    ends = stats.beta(PARAMETERS, 70 - PARAMETERS).ppf([[0.05], [0.95]])
    np.testing.assert_allclose(np.array(found.fraction_intervals).T, ends, atol=0.006)


def test_order_of_samples_and_of_classes_do_not_matter() -> None:
    samples = np.random.default_rng(1).dirichlet(PARAMETERS, size=50)
    one, two = belief_from_samples(samples), belief_from_samples(samples[::-1, [2, 0, 1]])
    assert two.concentration == pytest.approx(one.concentration)
    assert two.class_fractions == pytest.approx([one.class_fractions[k] for k in (2, 0, 1)])


def test_zeros_are_raised() -> None:
    samples = np.random.default_rng(2).dirichlet([4.0, 2.0, 0.5], size=100)
    samples[:3, 2] = 0.0
    samples /= samples.sum(1, keepdims=True)
    by_hand = samples.copy()
    by_hand[:3, 2] = samples[3:, 2].min() / 2
    by_hand /= by_hand.sum(1, keepdims=True)
    assert belief_from_samples(samples) == belief_from_samples(by_hand)


def test_the_belief_is_used_as_it_is() -> None:
    found = belief_from_samples(np.random.default_rng(3).dirichlet([60.0, 30.0, 10.0], size=500))
    log_probs = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    by_hand = calibrate_to_belief(log_probs, class_fractions=found.class_fractions, concentration=found.concentration)
    assert calibrate_to_belief(log_probs, found) == by_hand
    assert calibrate_to_belief(log_probs, found, concentration=5.0).offset_errors > by_hand.offset_errors
    summary = SummaryLikelihood(ClassRegions(3), found.masses(), concentration=found.concentration)
    assert summary.s0.tolist() == pytest.approx(found.class_fractions)
    assert expect(0.8, found.class_fractions).class_fractions == found.class_fractions


def test_labels_give_a_beta_posterior() -> None:
    found = belief_from_labels(41, 50, level=0.8)
    posterior = stats.beta(41.5, 9.5)
    assert found.accuracy == pytest.approx(posterior.mean())
    assert found.accuracy_interval == pytest.approx(posterior.interval(0.8))
    # a concentration of alpha is a variance of a (1 - a) / (alpha + 1)
    assert posterior.var() == pytest.approx(found.accuracy * (1 - found.accuracy) / (found.concentration + 1))
    log_probs = torch.randn(300, 2, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    by_hand = calibrate_to_belief(log_probs, accuracy=found.accuracy, concentration=51.0)
    assert calibrate_to_belief(log_probs, found) == by_hand
    assert belief_from_labels(5, 5).accuracy < 1


def test_beliefs_travel_as_json() -> None:
    for each in (belief_from_labels(9, 10), belief_from_samples([[0.2, 0.8], [0.3, 0.7], [0.25, 0.75]])):
        assert EstimatedBelief.from_dict(json.loads(json.dumps(each.to_dict()))) == each
    assert EstimatedBelief.from_dict({"concentration": 10, "accuracy": 0.9}) == EstimatedBelief(10.0, 0.9)
    with pytest.raises(ValueError, match="`concentration` must be a number"):
        EstimatedBelief.from_dict({"accuracy": 0.9})
    with pytest.raises(ValueError, match="`accuracy_interval` must be two numbers"):
        EstimatedBelief.from_dict({"concentration": 10, "accuracy_interval": [1]})


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([[0.2, 0.8]], r"at least two of each, but got \(1, 2\)"),
        ([0.2, 0.8], "at least two of each"),
        ([["a", "b"], ["c", "d"]], "must be numbers"),
        ([[0.2, 0.8], [0.2, 0.7]], "a sum differs by 0.1"),
        ([[0.2, 0.8], [-0.2, 1.2]], "at least 0"),
        ([[0.2, 0.8], [np.nan, 0.2]], "at least 0"),
        ([[1.0, 0.0], [1.0, 0.0]], "class 1 is 0 in all of them"),
        ([[0.3, 0.7], [0.3, 0.7]], "must differ between samples"),
    ],
)
def test_samples_that_say_nothing_are_refused(samples: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        belief_from_samples(samples)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="`num_correct` must be at most `num_labels`, 5, but got 6"):
        belief_from_labels(6, 5)
    with pytest.raises(ValueError, match="`num_labels` must be a whole number of at least 1"):
        belief_from_labels(0, 0)
    with pytest.raises(ValueError, match="`class_fractions` must be known"):
        belief_from_labels(4, 5).masses()
