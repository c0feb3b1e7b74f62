r"""Temperature scaling: one number, fitted on validation data, that raises or lowers the confidence of all predictions.

Guo et al., *On calibration of modern neural networks*, ICML 2017. Logits $x$ become $\mathrm{softmax}(x / T)$. A
temperature above 1 lowers confidence, one below 1 raises it; the predicted class never changes.

**Logits and log-probabilities give the same result.** They differ by a constant per row, $\log p = x - \log \sum_k
e^{x_k}$, so $\log p / T$ and $x / T$ do too, and the softmax is invariant to constants. The mean over several weight
samples has log-probabilities but no logits; it can be scaled as well.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import result_dtype, widen, working_dtype
from selbo.metrics.inputs import Array, as_class_labels, on_host, table

PRIOR_STRENGTH: Final = 8.0
"""Strength of the prior of the temperature: near T = 1 it equals a normal distribution of log T with a standard
deviation of 1/sqrt(8), about a third. Chosen by simulation (docs/reference/measurements-defaults.md): with few labels
the expected NLL was at most .05 above that at T = 1 and mostly below; with 200 or more labels it equalled that of
maximum likelihood."""

TEMPERATURE_BOUNDS: Final = (0.01, 100.0)
"""Limits of the search without a prior. If all data are classified correctly, there is no best temperature, because the
likelihood grows as T goes to 0; if predictions are worse than guessing, the best temperature is infinite. At 0.01 a
difference of 0.01 between logits becomes 1; at 100 a difference of 100 does."""

LOG_TEMPERATURE_TOLERANCE: Final = 1e-12
"""Width of the final interval of log T, the relative error of the temperature."""


def temperature(
    log_probs: Array,
    labels: Array,
    *,
    weights: Array | None = None,
    prior_strength: float = PRIOR_STRENGTH,
    bounds: tuple[float, float] | None = None,
) -> float:
    r"""Fit a temperature to labelled data by maximum a posteriori or, without a prior, by maximum likelihood.

    With few labels the likelihood alone is unreliable: if all of them are classified correctly, it keeps growing as T
    goes to 0. The prior prevents that. The inverse $\beta = 1/T$ has a gamma distribution with mode 1, and

    $$n \, \mathrm{NLL}(\beta) + c \, (\beta - 1 - \log \beta)$$

    is minimised, where $n$ is the number of labels, NLL the mean negative log-probability of the labels and $c$ the
    prior strength. Both terms are convex in $\beta$, so there is exactly one minimum; it is finite and positive for all
    data. The second term does not grow with $n$: its effect on the estimate falls as $1/n$. It penalises a temperature
    below 1, which raises confidence, more than one above 1.

    Without a prior (``prior_strength=0``), the function returns the minimum of the NLL between two bounds. If there is
    no minimum between them, it returns the better bound. If no temperature changes the NLL, because the classes of each
    row are equally probable or impossible, it returns 1.

    Args:
        log_probs: Log-probabilities or logits, shape (B, K), K >= 2; both give the same result. -inf is a probability
            of 0.
        labels: Classes, shape (B,), of data that the network was not trained on.
        weights: Weight of each row, shape (B,); they are divided by their mean, so that B rows count as B.
        prior_strength: c; 0 for maximum likelihood.
        bounds: Smallest and largest temperature; if not given, none with a prior and (0.01, 100) without.

    Returns:
        The temperature, to a relative error of 1e-12.

    Example:
        >>> logits = torch.tensor([[4.0, 0.0]]).expand(100, 2)
        >>> labels = torch.tensor([0, 0, 0, 1]).repeat(25)  # correct three times in four
        >>> temperature(logits, labels, prior_strength=0)  # 4 / log 3
        3.6410
        >>> temperature(logits, labels)
        3.0149
    """
    strength = _checks.non_negative("prior_strength", prior_strength)
    if bounds is None and strength == 0:
        bounds = TEMPERATURE_BOUNDS
    rows = table("log_probs", log_probs)
    classes = as_class_labels(labels, rows)
    slope_of_nll = _slope_by_inverse_temperature(rows, classes, _shares(weights, len(rows)))

    def slope(log_temperature: float) -> float:
        """Derivative of the mean objective by the inverse temperature; falls as the temperature rises."""
        inverse = math.exp(-log_temperature)
        return slope_of_nll(inverse) + strength / len(rows) * (1 - math.exp(log_temperature))

    low, high = _bracket(slope) if bounds is None else _check_bounds(bounds)
    coldest, hottest = slope(math.log(low)), slope(math.log(high))
    if coldest == 0 == hottest:
        return min(max(1.0, low), high)
    if coldest <= 0:
        return low
    if hottest >= 0:
        return high
    from scipy.optimize import brentq

    return math.exp(brentq(slope, math.log(low), math.log(high), xtol=LOG_TEMPERATURE_TOLERANCE))


def _bracket(slope: Callable[[float], float]) -> tuple[float, float]:
    """Two temperatures, one of them 1, between which the slope changes sign; with a prior they always exist."""
    at_one = slope(0.0)
    if at_one == 0:
        return 1.0, 1.0
    end = math.copysign(1.0, at_one)  # a positive slope requires less confidence
    while slope(end) * at_one > 0:
        end *= 2
    return math.exp(min(end, 0.0)), math.exp(max(end, 0.0))


@dataclass(frozen=True)
class BiasCorrection:
    """Bias-corrected temperature scaling: one temperature, and one offset per class.

    Attributes:
        temperature: Temperature of all classes.
        biases: Offsets added to the scaled log-probabilities, one per class; they sum to 0.
    """

    temperature: float
    biases: tuple[float, ...]

    def scale(self, log_probs: Tensor) -> Tensor:
        """Corrected log-probabilities, log softmax(log_probs / T + b), of the same shape and type."""
        biases = torch.tensor(self.biases, dtype=torch.float64, device=log_probs.device)
        return (log_probs.double() / self.temperature + biases).log_softmax(-1).to(log_probs)


def bias_corrected_temperature(
    log_probs: Array, labels: Array, *, prior_strength: float = PRIOR_STRENGTH
) -> BiasCorrection:
    r"""Fit a temperature and one offset per class, $\mathrm{softmax}(x / T + b)$ (Alexandari et al., ICML 2020).

    The mean of the corrected predictions matches the class fractions of the labels. Estimates of class fractions in a
    target domain rely on this (`selbo.evaluation.label_shift.estimate_by_em`). As in `temperature`, $1/T$ has a gamma
    prior. Offsets have a normal prior of precision $c / 4$, the information in $c$ labels of two equally probable
    classes.

    Args:
        log_probs: Log-probabilities or logits, shape (B, K); finite.
        labels: Classes, shape (B,), of data that the network was not trained on.
        prior_strength: c, above 0.

    Example:
        >>> even = torch.tensor([[0.5, 0.5]]).log().expand(1000, 2)
        >>> found = bias_corrected_temperature(even, torch.tensor([0] * 9 + [1]).repeat(100))
        >>> found.scale(even[:1]).exp()
        tensor([[0.8978, 0.1022]])
    """
    from scipy.optimize import minimize

    strength = _checks.positive("prior_strength", prior_strength)
    rows = table("log_probs", log_probs)
    classes = as_class_labels(labels, rows)
    if not bool(rows.isfinite().all()):
        raise ValueError("`log_probs` must be finite, but some are not")
    logits = rows.double().log_softmax(-1).numpy()
    count = logits.shape[1]
    of_label = np.eye(count)[classes.numpy()]

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        inverse, biases = math.exp(values[0]), values[1:]
        scores = logits * inverse + biases
        scores = scores - scores.max(1, keepdims=True)
        scores = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        rest = np.exp(scores) - of_label
        loss = -(scores * of_label).sum() + strength * (inverse - 1 - values[0]) + strength / 8 * biases @ biases
        by_inverse = (rest * logits).sum() * inverse + strength * (inverse - 1)
        return float(loss), np.concatenate([[by_inverse], rest.sum(0) + strength / 4 * biases])

    found = minimize(objective, np.zeros(1 + count), jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9})
    biases = found.x[1:] - found.x[1:].mean()
    return BiasCorrection(math.exp(-found.x[0]), tuple(biases.tolist()))


def scale(log_probs: Array, temperature: float) -> Tensor:
    """Log-probabilities at another temperature, log softmax(log_probs / T).

    Args:
        log_probs: Log-probabilities or logits, shape (..., K); both give the same result.
        temperature: Temperature; above 1 for less confidence, below 1 for more.

    Returns:
        Log-probabilities of the same shape, on the same device, in float32 or wider; differentiable.

    Example:
        >>> scale(torch.tensor([0.9, 0.1]).log(), 2.0).exp()  # odds of 9 become odds of 3
        tensor([0.7500, 0.2500])
    """
    given = log_probs if isinstance(log_probs, Tensor) else on_host("log_probs", log_probs)
    _checks.floating("log_probs", given)
    if given.ndim < 1 or given.shape[-1] < 2:
        raise ValueError(f"`log_probs` must have shape (..., classes), 2 or more classes, but got {tuple(given.shape)}")
    divided = widen(given, working_dtype(given)) / _checks.positive("temperature", temperature)
    return divided.log_softmax(-1).to(result_dtype(given))


def _shares(weights: Array | None, count: int) -> Tensor:
    """Weights of rows, summing to one."""
    if weights is None:
        return torch.full((count,), 1 / count, dtype=torch.float64)
    given = on_host("weights", weights).double()
    if (
        given.shape != (count,)
        or not bool(given.isfinite().all())
        or bool((given < 0).any())
        or float(given.sum()) <= 0
    ):
        raise ValueError(
            f"`weights` must be {count} numbers of at least 0, not all 0, but got shape {tuple(given.shape)}"
        )
    return given / given.sum()


def _slope_by_inverse_temperature(rows: Tensor, classes: Tensor, shares: Tensor) -> Callable[[float], float]:
    """Derivative by 1/T of the mean negative log-probability: E[x] under softmax(x / T), minus x of the label.

    A constant per row does not matter, so the largest entry of each row is moved to 0. This avoids overflow, and rows
    of equal entries have a slope of exactly 0.
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
    target = float(shares @ (of_label - largest)[:, 0])

    def slope(inverse_temperature: float) -> float:
        return float(shares @ ((inverse_temperature * shifted).softmax(-1) * finite).sum(-1)) - target

    return slope


def _check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = (_checks.positive("bounds", bound) for bound in bounds)
    if not low < high:
        raise ValueError(f"`bounds` must be increasing, but got {bounds!r}")
    return low, high
