"""The plain network, and the plain network that knows what its predictions should look like."""

from torch import Tensor

from selbo.objectives.base import Objective
from selbo.summary.likelihood import SummaryLikelihood


class CrossEntropy(Objective):
    """Log-likelihood of the labels and, if given, of a summary: the paper's NN and NN + SL.

    Args:
        num_data: N, the number of training examples.
        summary: What the predictions should look like.
        summary_weight: Factor of its term.
        summary_warmup: Number of steps over which that factor grows; 0 for none.

    Example:
        >>> import torch
        >>> inputs, labels = torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])
        >>> CrossEntropy(num_data=100)(torch.nn.Flatten(), inputs, labels).loss  # three equal logits: log 3
        tensor(1.0986)
    """

    for_bayesian = False

    def __init__(
        self,
        num_data: int,
        summary: SummaryLikelihood | None = None,
        *,
        summary_weight: float = 1.0,
        summary_warmup: int = 0,
    ) -> None:
        super().__init__(num_data, summary_weight=summary_weight, summary_warmup=summary_warmup)
        if summary is not None and not isinstance(summary, SummaryLikelihood):
            raise ValueError(f"`summary` must be a selbo.SummaryLikelihood, but got {type(summary).__name__}")
        self.summary = summary

    @property
    def has_summary(self) -> bool:
        """Whether a summary was given."""
        return self.summary is not None

    def _log_summary(self, log_probs: Tensor) -> Tensor:
        assert self.summary is not None
        by_draw: Tensor = self.summary(log_probs)
        return by_draw.mean()
