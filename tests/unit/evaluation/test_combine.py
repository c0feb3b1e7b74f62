"""Weights of samples by a belief: importance weights, the mixture, and how many samples count."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import selbo
from selbo.evaluation.combine import BeliefWeights, belief_weights


def samples(seed: int, count: int = 6, rows: int = 40, classes: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shift = 2 * torch.randn(count, 1, classes, generator=generator, dtype=torch.float64)
    return (torch.randn(count, rows, classes, generator=generator, dtype=torch.float64) + shift).log_softmax(-1)


def summary(concentration: float = 3.0) -> selbo.SummaryLikelihood:
    return selbo.SummaryLikelihood(selbo.ClassRegions(3), selbo.Masses([0.6, 0.3, 0.1]), concentration)


def test_weights_are_those_of_bayes_rule(seed: int) -> None:
    """Samples from a uniform prior over functions; the posterior by enumeration of its likelihoods."""
    log_probs = samples(seed)
    likelihoods = torch.stack([summary()(each).exp() for each in log_probs])
    found = belief_weights(log_probs, summary())
    torch.testing.assert_close(found.weights, likelihoods / likelihoods.sum())
    assert found.power == 1.0
    expected = (found.weights[:, None, None] * log_probs.exp()).sum(0)
    torch.testing.assert_close(found(log_probs).exp(), expected)
    torch.testing.assert_close(found(log_probs[:, 0]).exp(), expected[0])  # any shape after the samples


def test_samples_that_agree_alike_count_alike() -> None:
    log_probs = samples(0)[:1].expand(4, -1, -1)
    found = belief_weights(log_probs, summary(1e4))
    torch.testing.assert_close(found.weights, torch.full((4,), 0.25, dtype=torch.float64))
    assert found.effective_sample_size == pytest.approx(4)


def test_the_effective_sample_size() -> None:
    weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    assert BeliefWeights(weights, weights.log()).effective_sample_size == pytest.approx(8 / 3)


@pytest.mark.parametrize("wanted", [2.0, 4.5, 6.0])
def test_enough_samples_are_kept_by_the_largest_power(wanted: float, seed: int) -> None:
    log_probs = samples(seed)
    all_in_one = belief_weights(log_probs, summary(1e4))
    assert all_in_one.effective_sample_size < 2
    found = belief_weights(log_probs, summary(1e4), min_effective_samples=wanted)
    assert found.effective_sample_size == pytest.approx(wanted, rel=1e-4)
    assert 0 <= found.power < 1
    torch.testing.assert_close(found.weights, (found.power * found.log_likelihoods).softmax(0))
    more = (1.01 * found.power + 1e-9) * found.log_likelihoods
    assert 1 / more.softmax(0).square().sum() < wanted


def test_members_that_contradict_the_fractions_are_left_out(seed: int) -> None:
    """Of networks of which half have learned other class fractions; the mixture is then better on labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.tensor([0.7, 0.2, 0.1]), 2000, replacement=True, generator=generator)
    evidence = torch.randn(4, 2000, 3, generator=generator) * 0.3 + 2 * torch.nn.functional.one_hot(labels, 3)
    right, wrong = torch.tensor([0.7, 0.2, 0.1]).log(), torch.tensor([0.1, 0.2, 0.7]).log()
    log_probs = (evidence + torch.stack([right, wrong, right, wrong])[:, None]).log_softmax(-1)
    stated = selbo.SummaryLikelihood(selbo.ClassRegions(3), selbo.Masses([0.7, 0.2, 0.1]), 200.0)
    found = belief_weights(log_probs, stated)
    assert found.weights[[0, 2]].sum() > 0.99
    nll = torch.nn.functional.nll_loss(found(log_probs), labels)
    assert nll < torch.nn.functional.nll_loss(log_probs.exp().mean(0).log(), labels)


def test_an_order_of_samples_does_not_matter(seed: int) -> None:
    log_probs = samples(seed, count=4)
    weights = belief_weights(log_probs, summary()).weights
    for order in itertools.permutations(range(4)):
        torch.testing.assert_close(belief_weights(log_probs[list(order)], summary()).weights, weights[list(order)])


@pytest.mark.parametrize(
    ("log_probs", "options", "message"),
    [
        (samples(0)[0], {}, r"`log_probs` must be a tensor of shape \(S, B, K\), but got shape \(40, 3\)"),
        ([[0.5, 0.5]], {}, "but got list"),
        (samples(0), {"min_effective_samples": 7}, "must be at most 6, the number of samples, but got 7"),
        (samples(0), {"min_effective_samples": 0}, "`min_effective_samples` must be"),
        (samples(0) * torch.nan, {}, "`log_probs` must"),
    ],
)
def test_mistakes_are_named(log_probs: object, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        belief_weights(log_probs, summary(), **options)  # type: ignore[arg-type]


def test_what_is_no_summary_or_has_another_number_of_samples_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`summary` must be a selbo\.SummaryLikelihood, but got Masses"):
        belief_weights(samples(0), selbo.Masses([0.5, 0.3, 0.2]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one entry per sample, 6"):
        belief_weights(samples(0), summary())(samples(0)[:3])
