"""A number by a belief: the largest likelihood, close to the choice on labels for every posterior with a scale."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import selbo
from selbo.evaluation.choose import BeliefChoice, choose_by_belief, choose_scale
from selbo.posteriors import SWAG, LastLayerLaplace, MCDropout, NaturalGradientPosterior, Posterior, as_posterior

N, ACCURACY = 100, 0.8
SCALES = [2 ** (k / 2) for k in range(-8, 9)]
PRECISIONS = [10 ** (k / 2) for k in range(-8, 9)]


def data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three Gaussian classes; the best classifier has an accuracy of .83."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    return torch.randn(count, 6, generator=generator) + 1.8 * torch.eye(3, 6)[labels], labels


def network(seed: int) -> nn.Module:
    return selbo.models.MLP((6, 16, 3), generator=torch.Generator().manual_seed(seed))


def summary(accuracy: float = ACCURACY, concentration: float = 100.0) -> selbo.SummaryLikelihood:
    partition = selbo.ConfidenceBins([0.4, 0.5, 0.6, 0.7, 0.8, 0.9], num_classes=3)
    return selbo.SummaryLikelihood(
        partition, selbo.expect(accuracy=accuracy, class_fractions=[1 / 3] * 3), concentration
    )


def trained(net: nn.Module, train: tuple[Tensor, Tensor], **settings: object) -> nn.Module:
    settings = {"steps": 150, "batch_size": N, "optimizer": "sgd", "learning_rate": 0.1, "callbacks": (), **settings}
    selbo.fit(net, selbo.CrossEntropy(N), train, **settings)
    return net


def swag(seed: int, train: tuple[Tensor, Tensor]) -> Posterior:
    net = network(seed)
    posterior = SWAG(net, max_rank=10)
    trained(net, train)
    trained(net, train, steps=100, batch_size=20, callbacks=[posterior.collect], log_every=4)
    return posterior


def laplace(seed: int, train: tuple[Tensor, Tensor]) -> Posterior:
    posterior = LastLayerLaplace(trained(network(seed), train, steps=250))
    posterior.observe(train[0])
    return posterior


def natural(seed: int, train: tuple[Tensor, Tensor]) -> Posterior:
    posterior = NaturalGradientPosterior(network(seed), num_data=N, prior_std=1.0)
    selbo.fit(posterior, selbo.CrossEntropy(N), train, steps=300, batch_size=N, callbacks=())
    return posterior


def mean_field(seed: int, train: tuple[Tensor, Tensor]) -> Posterior:
    """Cold by its weight of the KL, so that its standard deviations are too small."""
    bnn = selbo.to_bayesian(network(seed), prior_std=1.0, init_std=0.05)
    objective = selbo.ELBO(N, kl_weight=0.02)
    selbo.fit(bnn, objective, train, steps=300, batch_size=N, learning_rate=0.01, callbacks=())
    return as_posterior(bnn)


@pytest.mark.parametrize(
    ("make", "setting"),
    [(swag, "scale"), (laplace, "prior_precision"), (natural, "scale"), (mean_field, "scale")],
    ids=["swag", "laplace", "natural gradient", "mean field"],
)
def test_the_choice_without_labels_is_close_to_that_by_labels(
    make: Callable[..., Posterior], setting: str, seed: int
) -> None:
    """Validation NLL within .1 of the best, or half of what is lost at the value 1; on average it is much closer."""
    posterior, val = make(seed, data(N, 3 * seed)), data(1000, 3 * seed + 1)

    def nll(value: float) -> float:
        setattr(posterior, setting, value)
        found = selbo.predict(posterior, val[0], 32, generator=torch.Generator().manual_seed(0))
        return nn.functional.nll_loss(found.log_probs, val[1]).item()

    best, before = min(nll(value) for value in (SCALES if setting == "scale" else PRECISIONS)), nll(1.0)
    found = choose_scale(posterior, data(600, 3 * seed + 2)[0], summary(), setting=setting)
    assert getattr(posterior, setting) == found.value
    assert nll(found.value) - best < max(0.1, (before - best) / 2)


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
    posterior, inputs = mean_field(0, data(N, 0)), data(50, 1)[0]
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
    posterior = mean_field(0, data(N, 0))
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
    with pytest.raises(ValueError, match="`posterior` must be a selbo posterior, but got MLP"):
        choose_scale(network(0), data(10, 0)[0], summary())  # type: ignore[arg-type]
