"""The ablation of the paper's Figure 3: each prediction scored under the belief by itself, not their distribution."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from selbo._numerics import LOG_PROB_FLOOR, PreciseModule
from selbo.objectives.objective import Objective, View
from selbo.summary.beliefs import Belief, Beta, Dirichlet, Uniform


class IndependentSummary(PreciseModule, Objective):
    r"""Labels, and the density of the belief at every single prediction: $\sum_i \log p_0(f(x_i))$.

    Predictions gather at the mode of the belief instead of being distributed as it says: the reason for the Dirichlet
    process. For comparison only.

    Args:
        belief: `Beta`, `Dirichlet` or `Uniform`, which have a density.
        num_data: N, the number of training examples.
        kl_weight: Factor of the KL divergence of a Bayesian network.
        kl_reduction: See `kl_divergence`.
        kl_warmup: Number of steps over which the factor of the KL grows; 0 for none.
        summary_weight: Factor of the term.
        summary_warmup: Number of steps over which that factor grows; 0 for none.
    """

    concentration: Tensor

    def __init__(
        self,
        belief: Belief,
        num_data: int,
        *,
        kl_weight: float = 1.0,
        kl_reduction: str = "sum",
        kl_warmup: int = 0,
        summary_weight: float = 1.0,
        summary_warmup: int = 0,
    ) -> None:
        super().__init__(
            num_data,
            kl_weight=kl_weight,
            kl_reduction=kl_reduction,
            kl_warmup=kl_warmup,
            summary_weight=summary_weight,
            summary_warmup=summary_warmup,
        )
        if isinstance(belief, Beta):
            values: tuple[float, ...] = (belief.b, belief.a)  # the score is column 1
        elif isinstance(belief, Dirichlet):
            values = belief.concentration
        elif isinstance(belief, Uniform):
            values = ()
        else:
            raise ValueError(
                f"`belief` must have a density, as selbo.Beta, Dirichlet and Uniform do, but got {belief!r}"
            )
        self.register_buffer("concentration", torch.tensor(values, dtype=torch.float64))

    @property
    def summary_names(self) -> tuple[str, ...]:
        """One, without a name of its own."""
        return ("0",)

    def _log_summaries(self, views: Sequence[View]) -> list[Tensor]:
        return [self._over_data(dirichlet_log_density(each, self.concentration), weights) for each, weights in views]


def dirichlet_log_density(log_probs: Tensor, concentration: Tensor) -> Tensor:
    """Log-density of Dirichlet(concentration) at each prediction: (..., K), (K,) -> (...); no parameters: uniform."""
    num_classes = log_probs.shape[-1]
    if concentration.numel() == 0:
        return (log_probs * 0).sum(-1) + math.lgamma(num_classes)
    if concentration.numel() != num_classes:
        raise ValueError(f"`belief` speaks of {concentration.numel()} classes, but predictions have {num_classes}")
    normaliser = torch.lgamma(concentration.sum()) - torch.lgamma(concentration).sum()
    excess = (concentration - 1).to(log_probs)
    return normaliser.to(log_probs) + (excess * log_probs.clamp(min=LOG_PROB_FLOOR)).sum(-1)
