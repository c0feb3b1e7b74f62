"""Evidential deep learning: the network predicts a Dirichlet distribution (Sensoy, Kaplan and Kandemir, 2018)."""

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from selbo import _checks
from selbo._numerics import result_dtype, working_dtype
from selbo.objectives.objective import Objective
from selbo.posteriors.posterior import Posterior

LOSSES: Final = ("mean_square", "cross_entropy", "log_marginal")
ACTIVATIONS: Final = ("softplus", "relu", "exp")
LARGEST_EXPONENT: Final = 10.0
"""Outputs are clamped here before ``exp``: evidence of 22 000 is as good as certainty."""


class Evidential(Objective):
    r"""Evidence for each class, $e = $ activation(outputs), as a Dirichlet distribution with $\alpha = e + 1$.

    ``log_likelihood`` is the negative expected loss under it, and ``kl`` the divergence of the misleading evidence,
    $\tilde\alpha = y + (1-y)\,\alpha$, from no evidence at all. Predictions are $\alpha / \sum_k \alpha_k$.

    Args:
        num_data: N, the number of training examples.
        loss: ``"mean_square"`` (the authors' recommendation): $\sum_k (y_k - p_k)^2 + p_k (1-p_k)/(\sum\alpha + 1)$;
            ``"cross_entropy"``: $\psi(\sum\alpha) - \psi(\alpha_y)$; ``"log_marginal"``: $\log \sum\alpha - \log
            \alpha_y$, the negative logarithm of the marginal likelihood.
        activation: ``"softplus"``; ``"relu"``, theirs, has no gradient where an output is negative; ``"exp"``.
        kl_weight: Factor of the divergence once it has grown.
        annealing_steps: Number of *steps* over which it grows.
        annealing_every: Number of steps between two rises of its factor. With that of an epoch, the factor is the
            fraction of the annealing epochs that are complete, from 0 in the first one, as in the code of the Summary
            ELBO's authors. If not given, the factor rises at every step, from ``1 / annealing_steps`` at the first.
    """

    for_bayesian = False

    def __init__(
        self,
        num_data: int,
        *,
        loss: str = "mean_square",
        activation: str = "softplus",
        kl_weight: float = 1.0,
        annealing_steps: int = 1000,
        annealing_every: int | None = None,
    ) -> None:
        super().__init__(num_data, kl_weight=kl_weight, kl_warmup=annealing_steps)
        self.loss = _checks.one_of("loss", loss, LOSSES)
        self.activation = _checks.one_of("activation", activation, ACTIVATIONS)
        if annealing_every is not None:
            _checks.whole("annealing_every", annealing_every, at_least=1)
        self.annealing_every = annealing_every

    def alpha(self, logits: Tensor) -> Tensor:
        """Parameters of the Dirichlet distribution that the outputs stand for: (..., K) -> (..., K), at least 1."""
        if self.activation == "softplus":
            return F.softplus(logits) + 1
        return (F.relu(logits) if self.activation == "relu" else logits.clamp(max=LARGEST_EXPONENT).exp()) + 1

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log of alpha / sum alpha."""
        alpha = self.alpha(logits)
        return alpha.log() - alpha.sum(-1, keepdim=True).log()

    def _log_likelihood(self, logits: Tensor, labels: Tensor) -> Tensor:
        return -expected_loss(self.alpha(logits), labels, loss=self.loss)

    def _kl_growth(self, step: int | Tensor | None) -> float | Tensor:
        if self.annealing_every is None or step is None or self.kl_warmup == 0:
            return super()._kl_growth(step)
        done = step // self.annealing_every / (self.kl_warmup / self.annealing_every)
        return done.clamp(max=1.0) if isinstance(done, Tensor) else min(1.0, done)

    def _kl(self, posterior: Posterior, logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
        return self._over_data(misleading_evidence(self.alpha(logits), labels), weights)

    def extra_repr(self) -> str:
        """Settings, for ``print``."""
        every = "" if self.annealing_every is None else f", annealing_every={self.annealing_every}"
        return f"loss={self.loss!r}, activation={self.activation!r}, {super().extra_repr()}{every}"


def expected_loss(alpha: Tensor, labels: Tensor, *, loss: str) -> Tensor:
    """Loss of each label, expected under Dirichlet(alpha): (..., B, K), (B,) -> (..., B)."""
    total = alpha.sum(-1, keepdim=True)
    truth = F.one_hot(labels.long(), alpha.shape[-1]).to(alpha)
    if loss == "mean_square":
        probs = alpha / total
        return ((truth - probs).square() + probs * (1 - probs) / (total + 1)).sum(-1)
    transform = torch.digamma if loss == "cross_entropy" else torch.log
    return (truth * (transform(total) - transform(alpha))).sum(-1)


def misleading_evidence(alpha: Tensor, labels: Tensor) -> Tensor:
    """KL of the evidence for other classes than the label from Dirichlet(1, ..., 1): (..., B, K), (B,) -> (..., B).

    In double precision: log-gamma functions of the order of 1e5 cancel to a few nats, and float32 is wrong in the first
    decimal then.
    """
    wide = alpha.to(working_dtype(alpha))
    truth = F.one_hot(labels.long(), alpha.shape[-1]).to(wide)
    misleading = truth + (1 - truth) * wide
    total = misleading.sum(-1, keepdim=True)
    constant = torch.lgamma(total.squeeze(-1)) - torch.lgamma(misleading).sum(-1) - math.lgamma(alpha.shape[-1])
    divergence = constant + ((misleading - 1) * (torch.digamma(misleading) - torch.digamma(total))).sum(-1)
    return divergence.clamp(min=0).to(result_dtype(alpha))  # rounding
