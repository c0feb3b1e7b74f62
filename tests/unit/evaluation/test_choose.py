"""A number by a belief: the one of the largest likelihood, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from unit.evaluation.three_classes import N, data, natural, network, summary

import selbo
from selbo.evaluation.choose import BeliefChoice, choose_by_belief, choose_scale
from selbo.posteriors import MCDropout, NaturalGradientPosterior, Posterior, as_posterior


def mean_field() -> Posterior:
    """Untrained: what is compared here holds for any weights."""
    return as_posterior(selbo.to_bayesian(network(0), prior_std=1.0, init_std=0.05))


def test_a_search_finds_the_temperature_of_the_belief() -> None:
    """Logits whose softmax at a temperature of 3 has the masses of the belief."""
    generator = torch.Generator().manual_seed(0)
    logits = 6 * torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    stated = summary().partition.memberships((logits / 3).log_softmax(-1)).mean(0)
    belief = selbo.SummaryLikelihood(summary().partition, selbo.Masses(stated.tolist()), concentration=1e5)
    found = choose_by_belief(lambda value: (logits / value).log_softmax(-1), belief, bounds=(0.1, 100.0))
    assert found.value == pytest.approx(3, rel=0.02)
    assert not found.is_at_bound
    assert list(found.candidates) == sorted(found.candidates)
    assert max(found.log_likelihoods) == found.log_likelihoods[found.candidates.index(found.value)]


def test_candidates_are_compared_by_the_likelihood_of_the_mean_prediction() -> None:
    posterior, inputs = mean_field(), data(50, 1)[0]
    found = choose_scale(posterior, inputs, summary(), candidates=[4.0, 0.5, 16.0], num_samples=5, seed=7)
    assert found.candidates == (0.5, 4.0, 16.0)
    for value, expected in zip(found.candidates, found.log_likelihoods, strict=True):
        posterior.scale = value
        prediction = selbo.predict(posterior, inputs, 5, generator=torch.Generator().manual_seed(7))
        assert float(summary()(prediction.log_probs)) == pytest.approx(expected, rel=1e-5)
    assert found.value == max(zip(found.log_likelihoods, found.candidates, strict=True))[1]


def test_a_belief_that_cannot_be_met_gives_a_bound() -> None:
    posterior = natural(0, data(N, 0))
    found = choose_scale(posterior, data(200, 1)[0], summary(0.99), candidates=[0.5, 1.0, 2.0], num_samples=8)
    assert found.is_at_bound
    assert found.value == 0.5
    assert BeliefChoice(1.0, (0.5, 1.0, 2.0), (0.0, 1.0, 0.5)).is_at_bound is False


def test_an_error_leaves_the_setting() -> None:
    posterior = mean_field()
    posterior.scale = 3.0
    with pytest.raises(ValueError, match="`inputs` must be"):
        choose_scale(posterior, torch.ones(0, 6), summary())
    assert posterior.scale == 3.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": [1.0]}, "`candidates` must hold at least two values"),
        ({"candidates": [1.0, -1.0]}, "`candidates` must be a finite number greater than 0"),
        ({"bounds": (2.0, 1.0)}, "`bounds` must be increasing"),
        ({"bounds": (1.0, 2.0), "candidates": [1.0, 2.0]}, "one of `candidates` and `bounds` must be given"),
        ({"setting": "rate"}, "`setting` must be one of"),
        ({"setting": "prior_precision"}, "must have a prior precision, but NaturalGradientPosterior has none"),
        ({"summary": 3}, r"`summary` must be a selbo\.SummaryLikelihood"),
    ],
)
def test_mistakes_are_named(options: dict[str, object], message: str) -> None:
    posterior = NaturalGradientPosterior(network(0), num_data=N)
    settings = {"summary": summary(), **options}
    with pytest.raises(ValueError, match=message):
        choose_scale(posterior, data(10, 0)[0], **settings)
    with pytest.raises(ValueError, match="must have a scale, but MCDropout has none"):
        choose_scale(MCDropout(nn.Sequential(nn.Dropout(), nn.Flatten())), data(10, 0)[0], summary())
    with pytest.raises(ValueError, match=r"`posterior` must be a selbo posterior, but got MLP: .*as_posterior"):
        choose_scale(network(0), data(10, 0)[0], summary())  # type: ignore[arg-type]
