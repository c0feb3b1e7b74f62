"""The posterior predictive distribution: the mean of the predictions over weight samples."""

import math

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.objectives.objective import Objective
from selbo.posteriors.handle import as_posterior
from selbo.posteriors.posterior import Posterior, evaluation_mode


def predictive_log_probs(
    model: nn.Module | Posterior,
    inputs: Tensor,
    *,
    num_samples: int,
    objective: Objective | None = None,
    generator: torch.Generator | None = None,
    batch_size: int = 1024,
) -> Tensor:
    """Log of the posterior predictive probabilities, the mean of Eq. (2) over samples: (B, K).

    Runs without gradients and in evaluation mode.

    Args:
        model: A network made by `to_bayesian`, or a deterministic one; or its posterior.
        inputs: Shape (B, ...), on the device of the network.
        num_samples: Number of weight samples.
        objective: Training objective of the network, if its outputs are not logits of a softmax.
        generator: Source of the noise.
        batch_size: Number of inputs per pass.
    """
    blocks = inputs.split(_checks.whole("batch_size", batch_size, at_least=1))
    posterior = as_posterior(model)
    with torch.no_grad(), evaluation_mode(posterior.network):
        by_block = posterior.logits_by_block(blocks, num_samples, generator=generator)
        return torch.cat([mean_over_samples(to_log_probs(logits, objective)) for logits in by_block])


def to_log_probs(logits: Tensor, objective: Objective | None) -> Tensor:
    """Log-probabilities for outputs of a network: those of the objective if given, otherwise of a softmax."""
    return logits.log_softmax(-1) if objective is None else objective.log_probs(logits)


def mean_over_samples(log_probs: Tensor) -> Tensor:
    """Log of the mean probability over samples, Eq. (2): (S, B, K) -> (B, K)."""
    return log_probs.logsumexp(0) - math.log(len(log_probs))
