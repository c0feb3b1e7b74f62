r"""LaSCal: a temperature for a target domain under label shift, without its labels (Popordanoska et al., NeurIPS 2024).

If inputs of one class are alike in both domains, the share of class $k$ among target predictions of probability $f$ is
$p_t(k) \, p_s(f \mid k) / p_t(f)$. Labelled cases of the source domain estimate the density in the numerator, and
unlabelled cases of the target domain that in the denominator, each by a kernel. The mean squared difference between
this share and $f$, over cases and classes, estimates the calibration error. The temperature minimises it.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from torch import Tensor

_Floats = npt.NDArray[np.float64]

KERNEL_BANDWIDTH: Final = 0.003
"""Bandwidth of the beta kernel: its standard deviation is .03 at a probability of .5, and .003 at 0 and 1. Chosen on
trials at seed 40 (lab/docs/designs.md)."""

NUM_NODES: Final = 257
"""Points of [0, 1] at which kernel sums are calculated, for linear interpolation, so that time and memory do not grow
with the square of the number of cases. They are denser towards 0 and 1, as kernels are narrower there.
The estimate differs from that of direct sums by less than 5 %."""

LARGEST_TEMPERATURE: Final = 10.0
"""Temperatures lie between 1 / 10 and 10; a minimum outside is not looked for."""

STEPS_TO_EACH_SIDE: Final = 23
"""Grid of log T, in steps of about .1, from 0 to each end."""


class TargetCalibrationError:
    """Estimate of the classwise squared calibration error in the target domain, at any temperature.

    Args:
        unlabelled: Log-probabilities for unlabelled cases of the target domain, shape (U, K).
        held_out: Log-probabilities for labelled cases of the source domain, shape (B, K).
        labels: Their classes, shape (B,).
        fractions: Class fractions of the target domain, as estimated or stated.
    """

    def __init__(self, unlabelled: Tensor, held_out: Tensor, labels: Tensor, fractions: Sequence[float]) -> None:
        self.there, self.here = (each.double().cpu().numpy() for each in (unlabelled, held_out))
        counts = np.bincount(labels.cpu().numpy(), minlength=self.here.shape[1])
        self.labels, self.weights = labels.cpu().numpy(), np.asarray(fractions) / np.maximum(counts, 1)

    def __call__(self, temperature: float) -> float:
        """The estimate after division of all log-probabilities by a temperature.

        A share above 1, which two densities from different samples can give, counts as 1. The kernel of a case itself
        is left out of the density of the target domain.
        """
        there, here = _softmax(self.there / temperature), _softmax(self.here / temperature)
        classes, kernel = range(there.shape[1]), _kernel_table()
        spread = [_Spread(there[:, k]) for k in classes]
        of_class = [_Spread(here[self.labels == k, k]) for k in classes]
        sums = kernel @ np.stack([each.histogram() for each in (*spread, *of_class)], 1)
        errors = []
        for k, cases in enumerate(spread):
            others = np.maximum(cases.interpolate(sums[:, k]) - cases.kernel_of_itself(), np.finfo(float).tiny)
            labelled = self.weights[k] * cases.interpolate(sums[:, len(spread) + k]) * (len(there) - 1)
            share = np.minimum(labelled, others) / others
            errors.append(np.mean((share - there[:, k]) ** 2))
        return float(np.mean(errors))


def lascal_temperature(unlabelled: Tensor, held_out: Tensor, labels: Tensor, fractions: Sequence[float]) -> float:
    """The temperature of the local minimum that is reached downhill from T = 1, within the bounds.

    Not the global minimum: as T grows, predictions crowd within one bandwidth around 1 / K, their differences can no
    longer be seen, and the estimate falls to the distance between the class fractions and 1 / K, which is zero for
    equal classes. If the estimate falls up to a bound, the bound is returned.
    """
    from scipy.optimize import minimize_scalar

    estimate = TargetCalibrationError(unlabelled, held_out, labels, fractions)
    error = cache(lambda log_temperature: estimate(math.exp(log_temperature)))
    farthest = math.log(LARGEST_TEMPERATURE)
    grid: list[float] = np.linspace(-farthest, farthest, 2 * STEPS_TO_EACH_SIDE + 1).tolist()
    place = STEPS_TO_EACH_SIDE
    while 0 < place < len(grid) - 1:
        lower = min((place - 1, place + 1), key=lambda each: error(grid[each]))
        if error(grid[lower]) >= error(grid[place]):
            between = grid[place - 1], grid[place + 1]
            found = minimize_scalar(error, bounds=between, method="bounded", options={"xatol": 1e-3})
            return math.exp(min((grid[place], float(found.x)), key=error))
        place = lower
    return math.exp(grid[place])


# --- kernel sums ---


class _Spread:
    """Probabilities, each divided between the two nodes around it."""

    def __init__(self, probs: _Floats) -> None:
        nodes = _nodes()
        position = np.arcsin(np.sqrt(probs)) * (2 / np.pi) * (NUM_NODES - 1)
        self.left = np.minimum(position.astype(np.intp), NUM_NODES - 2)
        self.right_share = (probs - nodes[self.left]) / (nodes[self.left + 1] - nodes[self.left])
        self.left_share = 1 - self.right_share

    def histogram(self) -> _Floats:
        """Weight of each node."""
        left, right = (
            np.bincount(node, share, NUM_NODES)
            for node, share in ((self.left, self.left_share), (self.left + 1, self.right_share))
        )
        return np.asarray(left + right)

    def interpolate(self, values: _Floats) -> _Floats:
        """Values at the probabilities, of a function that is given at the nodes."""
        return np.asarray(self.left_share * values[self.left] + self.right_share * values[self.left + 1])

    def kernel_of_itself(self) -> _Floats:
        """What each probability adds to the kernel sum at its own place."""
        table, right = _kernel_table(), self.left + 1
        crossed = table[self.left, right] + table[right, self.left]
        return np.asarray(
            self.left_share**2 * table[self.left, self.left]
            + self.right_share**2 * table[right, right]
            + self.left_share * self.right_share * crossed
        )


@cache
def _nodes() -> _Floats:
    r"""Equally spaced on the scale of $\arcsin \sqrt{p}$, on which beta kernels are equally wide."""
    return np.asarray(np.sin(np.linspace(0, np.pi / 2, NUM_NODES)) ** 2)


@cache
def _kernel_table() -> _Floats:
    """Beta kernels: the density at each node (rows) of the beta distribution of each node (columns)."""
    from scipy.stats import beta

    centre = _nodes() / KERNEL_BANDWIDTH
    return np.asarray(beta.pdf(_nodes()[:, None], centre + 1, 1 / KERNEL_BANDWIDTH - centre + 1))


def _softmax(logits: _Floats) -> _Floats:
    from scipy.special import softmax

    return np.asarray(np.clip(softmax(logits, axis=1), 0.0, 1.0))
