"""Labels that are not quite believed: cross-entropy against targets mixed with the uniform distribution."""

from torch import Tensor

from selbo import _checks
from selbo.objectives.objective import Objective, log_prob_of_labels


class LabelSmoothing(Objective):
    r"""Label smoothing on logits, for plain networks and, with the KL of the weights, for Bayesian ones.

    The target of an example of class $y$ is $(1-\epsilon)\,\delta_y + \epsilon/K$, so the best prediction of an example
    whose label is certain is $1 - \epsilon + \epsilon/K$.

    Args:
        epsilon: Share of the uniform distribution, from 0 to below 1.
        num_data: N, the number of training examples.
        kl_weight: Factor of the KL divergence of a Bayesian network.
        kl_warmup: Number of steps over which the factor of the KL grows; 0 for none.
        estimator: How a Bayesian network draws, see `forward_samples`.
    """

    def __init__(
        self,
        epsilon: float,
        num_data: int,
        *,
        kl_weight: float = 1.0,
        kl_warmup: int = 0,
        estimator: str = "shared",
    ) -> None:
        super().__init__(num_data, kl_weight=kl_weight, kl_warmup=kl_warmup, estimator=estimator)
        self.epsilon = _checks.non_negative("epsilon", epsilon)
        if self.epsilon >= 1:
            raise ValueError(f"`epsilon` must be a share of at least 0 and below 1, but got {epsilon!r}")

    def _log_likelihood(self, logits: Tensor, labels: Tensor) -> Tensor:
        log_probs = logits.log_softmax(-1)
        return (1 - self.epsilon) * log_prob_of_labels(log_probs, labels) + self.epsilon * log_probs.mean(-1)

    def extra_repr(self) -> str:
        """Settings, for ``print``."""
        return f"epsilon={self.epsilon:g}, {super().extra_repr()}"
