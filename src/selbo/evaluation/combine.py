"""Combine the members of an ensemble, or posterior samples, by how well each one agrees with a belief; no training."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from selbo import _checks
from selbo.summary.likelihood import SummaryLikelihood

BISECTIONS: Final = 60
"""Halvings of the interval of the power; the last one is far below rounding."""


@dataclass(frozen=True)
class BeliefWeights:
    r"""Weights of S samples, $w_j \propto \mathrm{DP}(s_0 \mid s_{\theta_j}, \alpha)^\beta$.

    Attributes:
        weights: Shape (S,), float64, summing to one.
        log_likelihoods: Log-likelihood of the summary under each sample, in nats, shape (S,), float64.
        power: The power of the likelihood; 1 unless a smaller one was needed to keep enough samples.
    """

    weights: Tensor
    log_likelihoods: Tensor
    power: float = 1.0

    @property
    def effective_sample_size(self) -> float:
        """Number of equally weighted samples that would be as good: 1 / sum of squared weights, from 1 to S."""
        return float(1 / self.weights.square().sum())

    def __call__(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities of the weighted mixture, for any inputs: (S, ..., K) -> (..., K)."""
        if log_probs.ndim < 2 or len(log_probs) != len(self.weights):
            raise ValueError(
                f"`log_probs` must have one entry per sample, {len(self.weights)}, in its first dimension, "
                f"but got shape {tuple(log_probs.shape)}"
            )
        logs = self.weights.log().to(log_probs)
        return (log_probs + logs.view(-1, *[1] * (log_probs.ndim - 1))).logsumexp(0)


def belief_weights(
    log_probs: Tensor, summary: SummaryLikelihood, *, min_effective_samples: float = 1.0
) -> BeliefWeights:
    """Weight samples of predictions by the likelihood of a summary, without labels and without training.

    Samples are members of an ensemble, posterior samples of a network, or different models. If they are samples of the
    posterior given the labels, the weighted ones are samples of the posterior given the labels and the summary.
    With a large concentration few samples count: check ``effective_sample_size``.

    Args:
        log_probs: Log-probabilities under each sample, shape (S, B, K), for inputs that the belief is about.
        summary: The belief, as a summary with its concentration.
        min_effective_samples: Raise the likelihood to the largest power up to 1 that keeps so many effective samples.

    Example:
        >>> import selbo
        >>> summary = selbo.SummaryLikelihood(
        ...     selbo.ClassRegions(2), selbo.Masses([0.8, 0.2]), concentration=50.0
        ... )
        >>> log_probs = torch.tensor([[[0.8, 0.2]], [[0.5, 0.5]], [[0.2, 0.8]]]).log()
        >>> found = belief_weights(log_probs.expand(3, 100, 2), summary)
        >>> found.weights.argmax().item(), round(found.effective_sample_size, 2)
        (0, 1.0)
    """
    if not isinstance(summary, SummaryLikelihood):
        raise ValueError(f"`summary` must be a selbo.SummaryLikelihood, but got {type(summary).__name__}")
    if not isinstance(log_probs, Tensor) or log_probs.ndim != 3:
        came = f"shape {tuple(log_probs.shape)}" if isinstance(log_probs, Tensor) else type(log_probs).__name__
        raise ValueError(f"`log_probs` must be a tensor of shape (S, B, K), but got {came}")
    count = len(log_probs)
    wanted = _checks.positive("min_effective_samples", min_effective_samples)
    if wanted > count:
        raise ValueError(f"`min_effective_samples` must be at most {count}, the number of samples, but got {wanted:g}")
    with torch.no_grad():
        values = summary(log_probs.detach()).double()
    if not bool(values.isfinite().all()):
        raise ValueError("`log_probs` must give a finite likelihood, but some entries are NaN")
    found = BeliefWeights(values.softmax(0), values)
    if found.effective_sample_size >= wanted:
        return found
    low, high = 0.0, 1.0  # with power 0 all samples count
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if BeliefWeights((middle * values).softmax(0), values).effective_sample_size >= wanted:
            low = middle
        else:
            high = middle
    return BeliefWeights((low * values).softmax(0), values, low)
