"""Likelihoods of the labels given the outputs of the network, one value per example."""

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selbo import _checks
from selbo._numerics import result_dtype, working_dtype
from selbo.metrics.uncertainty import dirichlet_expected_entropy, expected_entropy

LOSSES: Final = ("mean_square", "cross_entropy", "log_marginal")
ACTIVATIONS: Final = ("softplus", "relu", "exp")
LARGEST_EXPONENT: Final = 10.0
"""Outputs are clamped to this value before ``exp``: evidence of 22 000 amounts to certainty."""


class Categorical(nn.Module):
    """Log-probability of the label under a softmax, Eq. (6). Also the base class of other likelihoods.

    To write your own likelihood, override `forward` and, if outputs are not logits of a softmax, `log_probs`.
    """

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities of the classes for the outputs of a network: (..., K) -> (..., K)."""
        return logits.log_softmax(-1)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Log-likelihood of each label: (S, B, K), (B,) -> (S, B)."""
        return log_prob_of_labels(logits.log_softmax(-1), labels)

    def expected_entropy(self, logits: Tensor) -> Tensor:
        """Entropy that remains when the weights are known, mean over samples: (S, B, K) -> (B,)."""
        return expected_entropy(log_probs=self.log_probs(logits), validate=False)

    def divergence(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        """Divergence of each predicted distribution from no evidence, (S, B), added to the KL; None without one."""
        return None


class SmoothedCategorical(Categorical):
    r"""Label smoothing: the target of class $y$ is $(1-\epsilon)\,\delta_y + \epsilon/K$.

    Args:
        epsilon: Weight of the uniform distribution, from 0 to below 1.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = _checks.non_negative("epsilon", epsilon)
        if self.epsilon >= 1:
            raise ValueError(f"`epsilon` must be a share of at least 0 and below 1, but got {epsilon!r}")

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Expected log-probability under the smoothed target: (S, B, K), (B,) -> (S, B)."""
        log_probs = logits.log_softmax(-1)
        return (1 - self.epsilon) * log_prob_of_labels(log_probs, labels) + self.epsilon * log_probs.mean(-1)

    def extra_repr(self) -> str:
        """Settings, for ``print``."""
        return f"epsilon={self.epsilon:g}"


class DirichletEvidence(Categorical):
    r"""Evidence for each class, $e = $ activation(outputs), as a Dirichlet distribution with $\alpha = e + 1$.

    The log-likelihood is the negative expected loss under it. The divergence is that of the misleading evidence,
    $\tilde\alpha = y + (1-y)\,\alpha$, from no evidence at all. Predictions are $\alpha / \sum_k \alpha_k$.

    Args:
        loss: ``"mean_square"`` (the authors' recommendation): $\sum_k (y_k - p_k)^2 + p_k (1-p_k)/(\sum\alpha + 1)$;
            ``"cross_entropy"``: $\psi(\sum\alpha) - \psi(\alpha_y)$; ``"log_marginal"``: $\log \sum\alpha - \log
            \alpha_y$, the negative logarithm of the marginal likelihood.
        activation: ``"softplus"``; ``"relu"`` (the authors' choice), which has no gradient where an output is negative;
            or ``"exp"``.
    """

    def __init__(self, loss: str = "mean_square", activation: str = "softplus") -> None:
        super().__init__()
        self.loss = _checks.one_of("loss", loss, LOSSES)
        self.activation = _checks.one_of("activation", activation, ACTIVATIONS)

    def alpha(self, logits: Tensor) -> Tensor:
        """Parameters of the Dirichlet distribution for the outputs of a network: (..., K) -> (..., K), at least 1."""
        if self.activation == "softplus":
            return F.softplus(logits) + 1
        return (F.relu(logits) if self.activation == "relu" else logits.clamp(max=LARGEST_EXPONENT).exp()) + 1

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log of alpha / sum alpha."""
        alpha = self.alpha(logits)
        return alpha.log() - alpha.sum(-1, keepdim=True).log()

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Negative expected loss of each label: (S, B, K), (B,) -> (S, B)."""
        return -expected_loss(self.alpha(logits), labels, loss=self.loss)

    def expected_entropy(self, logits: Tensor) -> Tensor:
        """Expected entropy under the Dirichlet distributions, mean over samples: (S, B, K) -> (B,)."""
        return dirichlet_expected_entropy(self.alpha(logits)).mean(0)

    def divergence(self, logits: Tensor, labels: Tensor) -> Tensor:
        """KL of the misleading evidence of each example: (S, B, K), (B,) -> (S, B)."""
        return misleading_evidence(self.alpha(logits), labels)

    def extra_repr(self) -> str:
        """Settings, for ``print``."""
        return f"loss={self.loss!r}, activation={self.activation!r}"


def log_prob_of_labels(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Log-probability of each label, log Cat(y | f), Eq. (6): (S, B, K), (B,) -> (S, B)."""
    if labels.device.type == "cpu" and not torch.compiler.is_compiling():  # on a GPU this would synchronise
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= log_probs.shape[-1]:
            raise ValueError(
                f"`labels` must be classes from 0 to {log_probs.shape[-1] - 1}, as the model has {log_probs.shape[-1]} "
                f"outputs, but got {low if low < 0 else high}"
            )
    index = labels.long().expand(log_probs.shape[:-1]).unsqueeze(-1)
    return log_probs.gather(-1, index).squeeze(-1)


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

    Computed in double precision: log-gamma values of the order of 1e5 cancel to a few nats, which leaves an error in
    the first decimal in float32.
    """
    wide = alpha.to(working_dtype(alpha))
    truth = F.one_hot(labels.long(), alpha.shape[-1]).to(wide)
    misleading = truth + (1 - truth) * wide
    total = misleading.sum(-1, keepdim=True)
    constant = torch.lgamma(total.squeeze(-1)) - torch.lgamma(misleading).sum(-1) - math.lgamma(alpha.shape[-1])
    divergence = constant + ((misleading - 1) * (torch.digamma(misleading) - torch.digamma(total))).sum(-1)
    return divergence.clamp(min=0).to(result_dtype(alpha))  # rounding
