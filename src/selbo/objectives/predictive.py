"""The posterior predictive distribution: what the draws of a network say together."""

import math

import torch
from torch import Tensor, nn

from selbo import _checks
from selbo.objectives.objective import Objective
from selbo.posteriors.handle import as_posterior
from selbo.posteriors.posterior import Posterior


class evaluation_mode:  # noqa: N801  (reads as a statement)
    """A network in evaluation mode for the length of a block, every module back in its own mode after it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __enter__(self) -> None:
        self.modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()

    def __exit__(self, *_: object) -> None:
        for module, training in self.modes:
            module.training = training


def predictive_log_probs(
    model: nn.Module | Posterior,
    inputs: Tensor,
    *,
    num_samples: int,
    objective: Objective | None = None,
    generator: torch.Generator | None = None,
    batch_size: int = 1024,
) -> Tensor:
    """Log of the posterior predictive probabilities, the mean of Eq. (2) over draws: (B, K).

    Without gradients and in evaluation mode.

    Args:
        model: A network made by `to_bayesian`, or a plain one; or its posterior.
        inputs: Shape (B, ...), on the device of the network.
        num_samples: Number of draws.
        objective: What the network was trained with, if its outputs are not logits of a softmax.
        generator: Where the noise comes from.
        batch_size: Number of inputs at a time.
    """
    blocks = inputs.split(_checks.whole("batch_size", batch_size, at_least=1))
    posterior = as_posterior(model)
    with torch.no_grad(), evaluation_mode(posterior.network):
        by_block = posterior.logits_by_block(blocks, num_samples, generator=generator)
        return torch.cat([mean_over_draws(log_probs_of(logits, objective)) for logits in by_block])


def log_probs_of(logits: Tensor, objective: Objective | None) -> Tensor:
    """Log-probabilities that outputs stand for: a softmax, unless the objective knows better."""
    return logits.log_softmax(-1) if objective is None else objective.log_probs(logits)


def mean_over_draws(log_probs: Tensor) -> Tensor:
    """Log of the mean probability over draws, Eq. (2): (S, B, K) -> (B, K)."""
    return log_probs.logsumexp(0) - math.log(len(log_probs))
