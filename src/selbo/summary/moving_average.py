"""Exponential moving average of histograms, for batches that are too small to estimate a distribution."""

import torch
from torch import Tensor

from selbo import _checks
from selbo._compile import read_buffer
from selbo._numerics import PreciseModule


class MovingAverage(PreciseModule):
    """State of an exponential moving average; base class of averages.

    Attributes:
        decay: Weight of the previous average at each batch, between 0 and 1.
        total: Weighted sum of the batches.
        weight: Sum of their weights; ``total / weight`` is the average.
    """

    total: Tensor
    weight: Tensor

    def __init__(self, total: tuple[int, ...], weight: tuple[int, ...], decay: float) -> None:
        super().__init__()
        self.decay = _checks.fraction("ema_decay", decay, low=0.0, high=1.0)
        self.register_buffer("total", torch.zeros(total, dtype=torch.float64))
        # never shape (): torch.compile loses in-place changes of zero-dimensional float64 tensors
        self.register_buffer("weight", torch.zeros(weight, dtype=torch.float64))

    def reset(self) -> None:
        """Discard all batches."""
        self.total.zero_()
        self.weight.zero_()


class HistogramAverage(MovingAverage):
    """Exponential moving average of the histograms during training.

    Args:
        num_regions: R.
        decay: Weight of the previous average at each batch, between 0 and 1.

    Example:
        >>> average = HistogramAverage(2, 0.9)
        >>> average(torch.tensor([0.2, 0.8], dtype=torch.float64))
        tensor([0.2000, 0.8000], dtype=torch.float64)
        >>> average(torch.tensor([0.4, 0.6], dtype=torch.float64))
        tensor([0.3053, 0.6947], dtype=torch.float64)
        >>> average.reset()
        >>> average.weight
        tensor([0.], dtype=torch.float64)
    """

    def __init__(self, num_regions: int, decay: float) -> None:
        super().__init__((num_regions,), (1,), decay)

    @property
    def histogram(self) -> Tensor:
        """The average of the batches so far, shape (R,), on the simplex; NaN before the first."""
        return self.total / self.weight

    def forward(self, histogram: Tensor) -> Tensor:
        """Value of the moving average, gradient of the batch: (..., R) -> (..., R).

        The gradient of the log-likelihood by the histogram is evaluated at the average, where it is stable, and applied
        to the histogram of the batch at full weight: the surrogate is sum_r c_r h_r, with c_r the derivative at the
        average. Division by its weight makes the average unbiased from the first batch on.
        """
        decay, now = self.decay, histogram.detach()
        before, weight_before = read_buffer(self.total), read_buffer(self.weight)
        weight = decay * weight_before + (1 - decay)
        average = (decay * before + (1 - decay) * now) / weight
        self.total.mul_(decay).add_((1 - decay) * now.reshape(-1, now.shape[-1]).mean(0))
        self.weight.copy_(weight)
        return average + (histogram - now)


class GroupAverage(MovingAverage):
    """Exponential moving averages of the histograms of groups, one per group; a batch changes those of its groups.

    A batch counts in proportion to the number of members of the group that it holds.

    Args:
        num_groups: G.
        num_columns: Length of a histogram.
        decay: Weight of the previous average of a group at each batch with members of it, between 0 and 1.

    Example:
        >>> average = GroupAverage(3, 2, 0.9)
        >>> first = torch.tensor([[0.2, 0.8]], dtype=torch.float64)
        >>> group, size = torch.tensor([1]), torch.tensor([5.0])
        >>> average(first, group, size)
        tensor([[0.2000, 0.8000]], dtype=torch.float64)
        >>> average(first.flip(-1), group, size)
        tensor([[0.5158, 0.4842]], dtype=torch.float64)
    """

    def __init__(self, num_groups: int, num_columns: int, decay: float) -> None:
        super().__init__((num_groups, num_columns), (num_groups, 1), decay)

    @property
    def histograms(self) -> Tensor:
        """The averages so far, shape (G, columns); NaN for a group that no batch had."""
        return self.total / self.weight

    def forward(self, histograms: Tensor, groups: Tensor, sizes: Tensor) -> Tensor:
        """Value of the moving averages, gradient of the batch, as in `HistogramAverage`.

        Args:
            histograms: Histograms of the groups of a batch, shape (..., T, columns).
            groups: Their groups, shape (T,), each at most once, apart from empty ones.
            sizes: Number of members in the batch, shape (T,); 0 for an empty one, which changes nothing.

        Returns:
            Averages, shape (..., T, columns).
        """
        decay, now = self.decay, histograms.detach()
        before = read_buffer(self.total).index_select(0, groups)
        weight_before = read_buffer(self.weight).index_select(0, groups)
        here = sizes.unsqueeze(-1) > 0
        new = (1 - decay) * sizes.unsqueeze(-1).to(now)
        weight = torch.where(here, decay * weight_before + new, 1.0)
        average = torch.where(here, (decay * before + new * now) / weight, now)
        mean = now.reshape(-1, *now.shape[-2:]).mean(0)
        self.total.index_add_(0, groups, torch.where(here, (decay - 1) * before + new * mean, 0.0))
        self.weight.index_add_(0, groups, torch.where(here, weight - weight_before, 0.0))
        return average + (histograms - now)
