"""Labels, and decided predictions where there are none: entropy minimisation."""

from collections.abc import Sequence
from typing import Final

from torch import Tensor

from selbo.objectives.objective import Objective, View

NAME: Final = "entropy"


class EntropyMinimisation(Objective):
    r"""Log-likelihood of the labels less the entropy of predictions for unlabelled inputs (Grandvalet, Bengio, 2005).

    $$\sum_i \log p(y_i \mid x_i, \theta) - \lambda\, \frac{N}{U} \sum_u H\bigl[p(\cdot \mid x_u, \theta)\bigr] .$$

    It says that classes do not overlap, and nothing of how frequent they are. The term stands in the place of a
    summary: ``unlabelled`` of `selbo.fit` are its inputs (the training ones if not given), ``log_summary`` its value.

    Args:
        num_data: N, the number of training examples.
        weight: $\lambda$; at 1 an unlabelled input counts as much as a label, if there are as many.
        warmup: Number of steps over which the term grows in; 0 for none.

    Example:
        >>> import torch
        >>> flat, labels = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
        >>> # 100 times log 2
        >>> EntropyMinimisation(num_data=100)(torch.nn.Flatten(), flat, labels).log_summary
        tensor(-69.3147)
    """

    for_bayesian = False

    def __init__(self, num_data: int, weight: float = 1.0, *, warmup: int = 0) -> None:
        super().__init__(num_data, summary_weight=weight, summary_warmup=warmup)

    @property
    def summary_names(self) -> tuple[str, ...]:
        """What the term on unlabelled inputs is called."""
        return (NAME,)

    def _log_summaries(self, views: Sequence[View]) -> list[Tensor]:
        return [self._over_data((seen.exp() * seen).sum(-1), weights) for seen, weights in views]
