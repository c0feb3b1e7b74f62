"""Quirks of the authors' code: where it differs from the paper or from the library.

Only the published track uses them; `docs/explanation/deviations.md` lists the effect of each.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn

from selbo import Belief, CornerShells, Partition, ScoreBins, SummaryLikelihood
from selbo.checks import non_negative, positive
from selbo.metrics import auroc
from selbo.objectives import KL, Objective, Term
from selbo.posteriors import MeanField, Posterior
from selbo.summary import PreciseModule, log_dirichlet

SLOPE: Final = 500.0
"""The slope of the paper's soft histogram, in probability space."""

PSEUDO_COUNT: Final = 1e-4
"""Added to each Dirichlet parameter by the authors' code."""

HISTOGRAM_FLOOR: Final = 1e-6
"""Added to each region of a binary histogram before normalisation by the authors' code."""

PUBLISHED_FLOOR: Final = -1e4
"""Lower bound of log-probabilities, so that log 0 = -inf becomes finite."""

EdgesT = TypeVar("EdgesT", ScoreBins, CornerShells)


# --- the histogram ---


def with_slope(partition: EdgesT, slope: float = SLOPE) -> EdgesT:
    """A partition whose edges all have one slope, instead of slopes that follow the widths of the regions.

    Args:
        partition: Built with ``space="probability"``; modified in place.
        slope: Slope of all edges, in probability space.
    """
    if partition.edges.space != "probability":
        raise ValueError("`partition` must be made with space='probability', where `slope` is a slope, but it is not")
    partition.edges.widths.fill_(1.0)
    partition.set_slope_factor(positive("slope", slope))
    return partition


class ClosedScoreBins(ScoreBins):
    """Bins of a score with edges at 0 and 1 too, as in the paper and its code: a saturated score counts one half.

    Args:
        edges: Interior edges, strictly increasing, in (0, 1).
        slope: Slope of all edges, in probability space.
    """

    def __init__(self, edges: Sequence[float], *, slope: float = SLOPE) -> None:
        super().__init__(edges, space="probability")
        with_slope(self, slope)

    def memberships(self, log_probs: Tensor, *, validate: bool = False) -> Tensor:
        """Share of each prediction in each bin: (..., B, 2) -> (..., B, R); see `closed_memberships`."""
        log_probs = self.prepare(log_probs, validate)
        score = log_probs[..., 1] - log_probs[..., 0]
        inner = self.edges.probabilities.to(score)
        ends = nn.functional.pad(nn.functional.pad(inner, (1, 0)), (0, 1), value=1.0)
        return closed_memberships(torch.sigmoid(score), edges=ends, slope=self.edges.slope_factor.to(score))


def closed_memberships(probs: Tensor, *, edges: Tensor, slope: Tensor) -> Tensor:
    """Soft memberships as printed in the paper, Eq. (19): a pair of sigmoids per bin, the ends 0 and 1 being edges too.

    Rows do not sum to one: a saturated score counts one half.
    """
    above = torch.sigmoid(slope * (probs.unsqueeze(-1) - edges))
    return above[..., :-1] - above[..., 1:]


class PublishedSummary(SummaryLikelihood):
    """The summary likelihood with the authors' changes to counts and parameters.

    Args:
        partition: The regions.
        belief: The belief about the predictions.
        concentration: Prior strength of the belief, alpha.
        pool_draws: Combine the samples, dimension -3, into one histogram, as in the authors' multiclass code.
        pseudo_count: Added to each Dirichlet parameter; `PSEUDO_COUNT` in the authors' code.
        histogram_floor: Added to each soft count; `HISTOGRAM_FLOOR` in the authors' binary code.
        **options: Options of `selbo.SummaryLikelihood`.
    """

    def __init__(
        self,
        partition: Partition,
        belief: Belief,
        concentration: float,
        *,
        pool_draws: bool = False,
        pseudo_count: float = 0.0,
        histogram_floor: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(partition, belief, concentration, **options)
        self.pool_draws = pool_draws
        self.pseudo_count = non_negative("pseudo_count", pseudo_count)
        self.histogram_floor = non_negative("histogram_floor", histogram_floor)

    def normalise(self, counts: Tensor) -> Tensor:
        """Histogram of the soft counts: (..., R), or (..., S, R) with pooled samples -> (..., R)."""
        if self.pool_draws and counts.ndim > 1:
            counts = counts.sum(-2)
        return super().normalise(counts + self.histogram_floor if self.histogram_floor else counts)

    def log_prob(self, histogram: Tensor, s0: Tensor) -> Tensor:
        """Log-likelihood of the summary: (..., R) -> (...)."""
        if not self.pseudo_count or self.form == "multinomial":
            return super().log_prob(histogram, s0)
        parameters = self.concentration.to(histogram.device) * histogram + self.pseudo_count
        return log_dirichlet(s0.to(histogram), parameters)

    def extra_repr(self) -> str:
        """Belief, concentration and quirks, for ``print``."""
        quirks = {name: getattr(self, name) for name in ("pool_draws", "pseudo_count", "histogram_floor")}
        return ", ".join([super().extra_repr(), *(f"{name}={value}" for name, value in quirks.items() if value)])


# --- the divergence ---


def published_kl(bnn: nn.Module | MeanField) -> Tensor:
    """The sum of the *means* of the KL over the tensors of a network, as computed by the library the authors used.

    That is not a KL divergence: for an MLP 768-128-2 it is some 24 000 times too small.
    """
    posterior = bnn if isinstance(bnn, MeanField) else MeanField(bnn)
    kl = torch.stack([each.mean() for each in posterior.kl_by_tensor()]).sum()
    return kl.to(torch.promote_types(kl.dtype, torch.float32))


class PublishedKL(KL):
    """`published_kl` instead of the KL divergence."""

    def forward(self, posterior: Posterior) -> Tensor | None:
        """The quantity, at least float32."""
        return published_kl(posterior) if isinstance(posterior, MeanField) else None


def with_published_kl(objective: Objective) -> Objective:
    """Replace the KL of an objective by `published_kl` with the same weight; modified in place."""
    before = objective.kl
    objective.kl = PublishedKL(before.weight, before.warmup or 0, before.every)
    return objective


# --- the ablation of Figure 3 ---


class DensityOfEach(PreciseModule):
    """Log-density of a belief, `Beta`, `Dirichlet` or `Uniform`, at each prediction."""

    concentration: Tensor

    def __init__(self, belief: Belief) -> None:
        super().__init__()
        values = belief.dirichlet(belief.num_classes or 2)
        if values is None:
            raise ValueError(
                f"`belief` must have a density, as selbo.Beta, Dirichlet and Uniform do, but got {belief!r}"
            )
        if belief.num_classes is None and (values == 1).all():
            values = values[:0]  # uniform over any number of classes
        self.register_buffer("concentration", torch.from_numpy(values))

    def forward(self, log_probs: Tensor, weights: Tensor | None = None) -> Tensor:
        """Log-density at each prediction, times its weight: (S, B, K), (B,) -> (S, B)."""
        values = dirichlet_log_density(log_probs, self.concentration)
        return values if weights is None else values * weights.to(values)


class IndependentSummary(Objective):
    r"""Likelihood plus the density of the belief at every single prediction: $\sum_i \log p_0(f(x_i))$.

    The ablation of the paper's Figure 3, for comparison only. Predictions concentrate at the mode of the belief instead
    of being distributed like it, which motivates the Dirichlet process. The term is called ``independent_summary``.

    Args:
        belief: `Beta`, `Dirichlet` or `Uniform`, which have a density.
        num_data: N, the number of training examples.
        kl_weight: Weight of the KL divergence of a Bayesian network.
        kl_warmup: Warm-up steps of the KL divergence.
        summary_weight: Weight of the term.
        summary_warmup: Warm-up steps of the term; 0 for none.
    """

    def __init__(
        self,
        belief: Belief,
        num_data: int,
        *,
        kl_weight: float = 1.0,
        kl_warmup: int = 0,
        summary_weight: float = 1.0,
        summary_warmup: int = 0,
    ) -> None:
        density = DensityOfEach(belief)
        term = Term(density, summary_weight, summary_warmup, name="independent_summary", per_example=True)
        super().__init__(num_data, kl=KL(kl_weight, kl_warmup), terms=[term])


def dirichlet_log_density(log_probs: Tensor, concentration: Tensor) -> Tensor:
    """Log-density of Dirichlet(concentration) at each prediction: (..., K), (K,) -> (...); no parameters: uniform."""
    num_classes = log_probs.shape[-1]
    if concentration.numel() == 0:
        return (log_probs * 0).sum(-1) + math.lgamma(num_classes)
    if concentration.numel() != num_classes:
        raise ValueError(f"`belief` speaks of {concentration.numel()} classes, but predictions have {num_classes}")
    normaliser = torch.lgamma(concentration.sum()) - torch.lgamma(concentration).sum()
    excess = (concentration - 1).to(log_probs)
    return normaliser.to(log_probs) + (excess * log_probs.clamp(min=PUBLISHED_FLOOR)).sum(-1)


# --- scores ---


def auroc_of_both_columns(scores: Tensor, labels: Tensor) -> float | None:
    """For two classes, the mean AUROC of both, each by its own column, as computed by torchmetrics and the authors.

    It differs from the AUROC of class 1 only if rounding makes scores of a column equal.
    """
    area = auroc(scores, labels)
    if area is None or scores.shape[-1] > 2:
        return area
    other = auroc(scores.flip(-1), 1 - labels)
    assert other is not None
    return (other + area) / 2


# --- the choice of weights ---


def best_f1(log_probs: Tensor, labels: Tensor) -> Tensor:
    """F1 score of class 1 for two classes; for more, the micro average, which is the accuracy. For `selbo.fit`."""
    predicted = log_probs.argmax(-1)
    if log_probs.shape[-1] > 2:
        return (predicted == labels).double().mean()
    hits = ((predicted == 1) & (labels == 1)).sum()
    return 2 * hits.double() / ((predicted == 1).sum() + (labels == 1).sum()).clamp(min=1)


PAPER_SELECTIONS: Final[dict[str, str | Callable[[Tensor, Tensor], Tensor]]] = {
    "last": "last",
    "best": "best",
    "best_f1": best_f1,
}
"""Arguments of `selbo.fit` for the selections of a study."""
