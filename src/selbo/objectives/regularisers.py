"""Terms on unlabelled inputs that are not summaries: entropy of the predictions, and stated class fractions."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import PreciseModule


def negative_entropy(log_probs: Tensor, weights: Tensor | None = None) -> Tensor:
    """Minus the entropy of each prediction, in nats, times its weight: (S, B, K), (B,) -> (S, B)."""
    values = (log_probs.exp() * log_probs).sum(-1)
    return values if weights is None else values * weights.to(values)


class ClassFractions(PreciseModule):
    """Minus the KL divergence of the mean prediction from stated class fractions (Mann and McCallum, 2007).

    The mean is taken over a batch (under `torchrun`, over the part of each process). Use batches that are large
    compared with the number of classes.

    Args:
        fractions: Fraction of each class; positive, summing to one.
        temperature: Temperature of the predictions. Values below 1 move them towards hard decisions.
    """

    name: ClassVar[str] = "class_fractions"
    fractions: Tensor

    def __init__(self, fractions: Sequence[float], temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = _checks.positive("temperature", temperature)
        stated = torch.tensor(_checks.simplex("fractions", fractions), dtype=torch.float64)
        self.register_buffer("fractions", stated, persistent=False)

    def forward(self, log_probs: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per sample, at most 0: (S, B, K), (B,) -> (S,)."""
        count = len(self.fractions)
        if log_probs.shape[-1] != count:
            raise ValueError(
                f"`fractions` must hold one number per class, {log_probs.shape[-1]} of them, but holds {count}"
            )
        stated = self.fractions.to(log_probs)
        at_temperature = (log_probs / self.temperature).log_softmax(-1)
        if weights is None:
            mean = at_temperature.logsumexp(-2) - math.log(log_probs.shape[-2])  # (S, K)
        else:
            shares = (weights / weights.sum()).to(log_probs)
            mean = (at_temperature + shares.log().unsqueeze(-1)).logsumexp(-2)
        return -(stated * (stated.log() - mean)).sum(-1)
