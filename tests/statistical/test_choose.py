"""A scale chosen by a belief is close to the one chosen on labels, for every posterior with a scale."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from unit.evaluation.three_classes import N, data, natural, network, summary

import selbo
from selbo.evaluation.choose import choose_scale
from selbo.posteriors import SWAG, LastLayerLaplace, Posterior, as_posterior

SCALES = [2 ** (k / 2) for k in range(-8, 9)]
PRECISIONS = [10 ** (k / 2) for k in range(-8, 9)]


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
