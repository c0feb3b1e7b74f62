"""Exponential moving average of histograms, for batches that are too small to estimate a distribution."""

import torch
from torch import Tensor

from selbo import _checks
from selbo._compile import read_buffer
from selbo._numerics import PreciseModule


class HistogramAverage(PreciseModule):
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

    total: Tensor
    weight: Tensor

    def __init__(self, num_regions: int, decay: float) -> None:
        super().__init__()
        self.decay = _checks.fraction("ema_decay", decay, low=0.0, high=1.0)
        self.register_buffer("total", torch.zeros(num_regions, dtype=torch.float64))
        # shape (1,), not (): torch.compile loses in-place changes of zero-dimensional float64 tensors
        self.register_buffer("weight", torch.zeros(1, dtype=torch.float64))

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

    def reset(self) -> None:
        """Discard all batches."""
        self.total.zero_()
        self.weight.zero_()
