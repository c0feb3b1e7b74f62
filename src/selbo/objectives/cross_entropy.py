"""The plain network, and the plain network that knows what its predictions should look like."""

from selbo.objectives.label_shift import LabelShift
from selbo.objectives.summaries import Summaries, WithSummaries


class CrossEntropy(WithSummaries):
    """Log-likelihood of the labels and, if given, of a summary: the paper's NN and NN + SL.

    Args:
        num_data: N, the number of training examples.
        summary: What the predictions should look like: a `SummaryLikelihood`, or several, whose terms add up.
        summary_weight: Factor of its term.
        summary_warmup: Number of steps over which that factor grows; 0 for none. If not given, the term waits for the
            labels: see `labels_first`.
        label_shift: Class fractions where labels come from and at the place of use, if these differ: a `LabelShift`.

    Example:
        >>> import torch
        >>> inputs, labels = torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])
        >>> # three equal logits: log 3
        >>> CrossEntropy(num_data=100)(torch.nn.Flatten(), inputs, labels).loss
        tensor(1.0986)
    """

    for_bayesian = False

    def __init__(
        self,
        num_data: int,
        summary: Summaries | None = None,
        *,
        summary_weight: float = 1.0,
        summary_warmup: int | None = None,
        label_shift: LabelShift | None = None,
    ) -> None:
        super().__init__(
            summary, num_data, summary_weight=summary_weight, summary_warmup=summary_warmup, label_shift=label_shift
        )
