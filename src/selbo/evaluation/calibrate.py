r"""Temperature scaling: one number, fitted on validation data, that makes all predictions more or less sure.

Guo et al., *On calibration of modern neural networks*, ICML 2017. Logits $x$ become $\mathrm{softmax}(x / T)$: above 1
a temperature takes confidence away, below 1 it adds some; the predicted class never changes.

**Logits or log-probabilities give the same.** They differ by a constant a row, $\log p = x - \log \sum_k e^{x_k}$, so
$\log p / T$ and $x / T$ do too, and the softmax does not see a constant. The mean of several weight draws has
log-probabilities but no logits; it can be scaled all the same.
"""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from selbo import checks
from selbo.metrics.inputs import Array, labels_of, on_host, table
from selbo.numerics import result_dtype, widen, working_dtype

TEMPERATURE_BOUNDS: Final = (0.01, 100.0)
"""Where the search ends. Data that are all classified rightly have no best temperature: the likelihood grows as T goes
to 0; data that are worse than guessed want an infinite one. At 0.01 a lead of 0.01 in the logits is made one of 1, at
100 a lead of 100: beyond that, the logits are not on the scale of logits."""

LOG_TEMPERATURE_TOLERANCE: Final = 1e-12
"""Width of the final interval of log T: a relative error of the temperature."""


def temperature(log_probs: Array, labels: Array, *, bounds: tuple[float, float] = TEMPERATURE_BOUNDS) -> float:
    r"""Temperature that makes the labels most probable, by maximum likelihood.

    The mean negative log-probability of the labels is convex in $1/T$, so its slope changes sign once at most. The
    change is bracketed in $\log T$ and found to a relative error of 1e-12; if there is none between the bounds, the
    better bound is the answer. It is the lower one if every label has the largest probability: such data do not say how
    much confidence is too much, so fit on others. Where no temperature between the bounds changes anything, because the
    classes of a row are equally probable or impossible, it is 1.

    Args:
        log_probs: Log-probabilities or logits, shape (B, K), K >= 2; both give the same. -inf is a probability of 0.
        labels: Classes, shape (B,), of data that the network was not trained on.
        bounds: Smallest and largest temperature.

    Returns:
        A number between the bounds.

    Example:
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
        >>> # right three times in four: 4 / log 3
        >>> temperature(logits, torch.tensor([0, 0, 0, 1]))
        3.6410
    """
    low, high = _check_bounds(bounds)
    rows = table("log_probs", log_probs)
    classes = labels_of(labels, rows)
    slope = _slope_by_inverse_temperature(rows, classes)
    coldest, hottest = slope(1 / low), slope(1 / high)
    if coldest == 0 == hottest:
        return min(max(1.0, low), high)
    if coldest <= 0:
        return low
    if hottest >= 0:
        return high
    from scipy.optimize import brentq

    root = brentq(lambda u: slope(math.exp(-u)), math.log(low), math.log(high), xtol=LOG_TEMPERATURE_TOLERANCE)
    return math.exp(root)


def scale(log_probs: Array, temperature: float) -> Tensor:
    """Log-probabilities at another temperature, log softmax(log_probs / T).

    Args:
        log_probs: Log-probabilities or logits, shape (..., K); both give the same.
        temperature: Above 1 for less confidence, below 1 for more.

    Returns:
        Log-probabilities of the same shape, on the same device, at least float32; differentiable.

    Example:
        >>> scale(torch.tensor([0.9, 0.1]).log(), 2.0).exp()  # odds of 9 become odds of 3
        tensor([0.7500, 0.2500])
    """
    given = log_probs if isinstance(log_probs, Tensor) else on_host("log_probs", log_probs)
    checks.floating("log_probs", given)
    if given.ndim < 1 or given.shape[-1] < 2:
        raise ValueError(f"`log_probs` must have shape (..., classes), 2 or more classes, but got {tuple(given.shape)}")
    divided = widen(given, working_dtype(given)) / checks.positive("temperature", temperature)
    return divided.log_softmax(-1).to(result_dtype(given))


def _slope_by_inverse_temperature(rows: Tensor, classes: Tensor) -> Callable[[float], float]:
    """Derivative by 1/T of the mean negative log-probability: E[x] under softmax(x / T), less x of the label.

    A constant a row does not matter, so the largest entry of each row is moved to 0: nothing overflows, and rows that
    are all equal have a slope of exactly 0.
    """
    if torch.isnan(rows).any() or (rows == torch.inf).any():
        raise ValueError("`log_probs` must be numbers below infinity, but some are NaN or inf")
    of_label = rows.double().gather(1, classes[:, None])
    if (of_label == -torch.inf).any():
        count = int((of_label == -torch.inf).sum())
        raise ValueError(
            f"`log_probs` must give every label some probability, but {count} have none, which no temperature changes"
        )
    largest = rows.double().amax(-1, keepdim=True)
    shifted = rows.double() - largest
    finite = shifted.nan_to_num(neginf=0.0)  # classes of probability 0 add nothing to the mean
    target = (of_label - largest).mean().item()

    def slope(inverse_temperature: float) -> float:
        return ((inverse_temperature * shifted).softmax(-1) * finite).sum(-1).mean().item() - target

    return slope


def _check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = (checks.positive("bounds", bound) for bound in bounds)
    if not low < high:
        raise ValueError(f"`bounds` must be increasing, but got {bounds!r}")
    return low, high
