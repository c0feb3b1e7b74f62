"""Three Gaussian classes, and a belief about them, for numbers that are chosen by a belief."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import selbo
from selbo.posteriors import NaturalGradientPosterior, Posterior

N, ACCURACY = 100, 0.8


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


def natural(seed: int, train: tuple[Tensor, Tensor]) -> Posterior:
    posterior = NaturalGradientPosterior(network(seed), num_data=N, prior_std=1.0)
    selbo.fit(posterior, selbo.CrossEntropy(N), train, steps=300, batch_size=N, callbacks=())
    return posterior
