"""Labels, and class fractions where there are none: expectation regularisation."""

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import PreciseModule
from selbo.objectives.label_shift import LabelShift
from selbo.objectives.objective import Objective, View

NAME: Final = "fractions"


class ExpectationRegularisation(PreciseModule, Objective):
    r"""Log-likelihood of the labels, held to known class fractions on unlabelled inputs (Mann and McCallum, 2007).

    $$\sum_i \log p(y_i \mid x_i, \theta) - \lambda N\, \mathrm{KL}\Bigl(\pi \,\|\,
    \frac1U \sum_u p_T(\cdot \mid x_u, \theta)\Bigr) .$$

    $p_T$ are the predictions at temperature $T$. The mean is over a batch, and under `torchrun` over the part of each
    process: take batches that are large beside the number of classes. The term stands in the place of a summary:
    ``unlabelled`` of `selbo.fit` are its inputs (the training ones if not given), ``log_summary`` its value.

    Args:
        fractions: $\pi$, fraction of each class at the place of use; positive, summing to one.
        num_data: N, the number of training examples.
        weight: $\lambda$; the fractions count like so many times all labels.
        temperature: Below 1 predictions are counted more as decisions than as probabilities.
        warmup: Number of steps over which the term grows in; 0 for none. If None, it waits for the labels: see
            `labels_first`.
        kl_weight: Factor of the KL divergence of a Bayesian network.
        label_shift: Class fractions where labels come from and at the place of use, if these differ: a `LabelShift`.

    Example:
        >>> flat, labels = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
        >>> objective = ExpectationRegularisation([0.5, 0.5], num_data=100)
        >>> bool(objective(torch.nn.Flatten(), flat, labels).log_summary == 0)  # as stated
        True
    """

    fractions: Tensor

    def __init__(
        self,
        fractions: Sequence[float],
        num_data: int,
        weight: float = 1.0,
        *,
        temperature: float = 1.0,
        warmup: int | None = 0,
        kl_weight: float = 1.0,
        label_shift: LabelShift | None = None,
    ) -> None:
        super().__init__(
            num_data, summary_weight=weight, summary_warmup=warmup, kl_weight=kl_weight, label_shift=label_shift
        )
        self.temperature = _checks.positive("temperature", temperature)
        stated = torch.tensor(_checks.simplex("fractions", fractions), dtype=torch.float64)
        self.register_buffer("fractions", stated, persistent=False)

    @property
    def summary_names(self) -> tuple[str, ...]:
        """What the term on unlabelled inputs is called."""
        return (NAME,)

    def _log_summaries(self, views: Sequence[View]) -> list[Tensor]:
        return [self._worth(*view) for view in views]

    def _worth(self, log_probs: Tensor, weights: Tensor | None) -> Tensor:
        count = len(self.fractions)
        if log_probs.shape[-1] != count:
            raise ValueError(
                f"`fractions` must hold one number a class, {log_probs.shape[-1]} of them, but holds {count}"
            )
        stated = self.fractions.to(log_probs)
        at_temperature = (log_probs / self.temperature).log_softmax(-1)
        if weights is None:
            mean = at_temperature.logsumexp(-2) - math.log(log_probs.shape[-2])  # (S, K)
        else:
            shares = (weights / weights.sum()).to(log_probs)
            mean = (at_temperature + shares.log().unsqueeze(-1)).logsumexp(-2)
        divergence = (stated * (stated.log() - mean)).sum(-1)
        return -self.num_data * divergence.mean()
