"""Edges on the scale of one probability: crossings of the edges, and soft memberships of the intervals between them.

All computations use log-odds, log p - log(1 - p), computed from log-probabilities without forming 1 - p, so predictions
of 1 - 1e-30 and 1 - 1e-20 remain distinct.

An interval partition uses one function per edge, its crossing: positive above the edge and negative below. The soft
membership of an interval is the softmax of the crossings summed from the left. Rows lie on the simplex by construction,
no interval is ever negative, and the largest membership is always the interval the prediction falls in, however soft
the edges and however unequal the intervals.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo import _checks
from selbo._numerics import PreciseModule

SPACES: Final = ("logit", "probability")

SLOPE_FACTORS: Final = {"logit": 15.0, "probability": 5.0}
"""Slope of an edge times the width of the narrower adjacent region, by space; see docs/reference/measurements.md."""

LONE_WIDTH: Final = 1.0
"""Width, in nats of log-odds, that sets the slope of an edge with no bounded region on either side."""

EMPTY_WIDTH: Final = 1e-12
"""Width up to which a region counts as empty: the slope of its edges would overflow to inf, and inf times 0 is NaN."""


def binary_log_odds(log_probs: Tensor) -> Tensor:
    """Log-odds of class 1: (..., 2) -> (...), exact for any prediction, because log(1 - p_1) is log p_0."""
    return log_probs[..., 1] - log_probs[..., 0]


def log_odds(log_probs: Tensor) -> Tensor:
    """Log-odds of each class against all others, log p_k - log(1 - p_k): (..., K) -> (..., K)."""
    largest = _is_largest(log_probs)
    others = log_probs.masked_fill(largest, -math.inf)
    second = others.detach().amax(-1, keepdim=True)
    relative = others.sub_(second).exp_()  # p_k over the second largest, from which both cases are computed
    rest_of_largest = second + relative.sum(-1, keepdim=True).log()
    # every other class has p <= 1/2, where 1 - p loses nothing and its rounding is small against log p
    scale = second.exp().clamp(max=0.5)
    rest_of_others = torch.addcmul(torch.ones_like(scale), relative, scale, value=-1).log()
    return log_probs - torch.where(largest, rest_of_largest, rest_of_others)


def top_log_odds(log_probs: Tensor) -> Tensor:
    """Log-odds of the predicted class: (..., K) -> (...)."""
    largest = _is_largest(log_probs)
    top = log_probs.masked_fill(~largest, -math.inf).amax(-1)
    return top - log_probs.masked_fill(largest, -math.inf).logsumexp(-1)


def _is_largest(log_probs: Tensor) -> Tensor:
    classes = torch.arange(log_probs.shape[-1], device=log_probs.device)
    return classes == log_probs.argmax(-1, keepdim=True)


class Edges(PreciseModule):
    r"""Soft edges $e_1 < \ldots < e_E$ on the scale of one probability.

    With $z$ the log-odds of a probability $p$, $k$ the slope factor and $w_j$ the width of the narrower region adjacent
    to edge $j$, a crossing is

    - in logit space $\;\varphi_j = (z - z_j) + \sqrt k \tanh\bigl(\sqrt k\,(z - z_j) / w_j\bigr)$, with $z_j$ the
      log-odds of $e_j$. This is a step at the edge, of slope $k / w_j$ and height $\sqrt k$; a larger $k$ makes it
      higher and narrower. Far from the edge the slope is one, so for saturated predictions the gradient of the summary
      vanishes at the same rate as that of the cross-entropy;
    - in probability space $\;\varphi_j = k\,(p - e_j) / w_j$.

    Args:
        edges: Strictly increasing, strictly between ``lower`` and 1.
        lower: Lower end of the lowest region.
        space: ``"logit"`` or ``"probability"``.
        slope_factor: Slope of the step times width, $k$; larger is harder. By default that of `SLOPE_FACTORS`.
    """

    probabilities: Tensor
    complements: Tensor
    positions: Tensor
    widths: Tensor
    slope_factor: Tensor

    def __init__(
        self,
        edges: Sequence[float],
        *,
        lower: float,
        space: str,
        slope_factor: float | None = None,
    ) -> None:
        super().__init__()
        self.values = tuple(edges)
        self.space = _checks.one_of("space", space, SPACES)
        probabilities = torch.tensor(self.values, dtype=torch.float64)
        positions = torch.logit(probabilities)
        bounds = torch.tensor([lower, *self.values, 1.0], dtype=torch.float64)
        regions = (bounds if space == "probability" else torch.logit(bounds)).diff()
        self.register_buffer("probabilities", probabilities)
        self.register_buffer("complements", 1 - probabilities)
        self.register_buffer("positions", positions)
        self.register_buffer("widths", _narrower(regions))
        factor = _checks.positive("slope_factor", SLOPE_FACTORS[space] if slope_factor is None else slope_factor)
        self.register_buffer("slope_factor", torch.tensor(factor, dtype=torch.float64))

    def crossings(self, log_odds: Tensor) -> Tensor:
        """Crossing of each edge: (...) -> (..., E), positive above the edge, zero on it."""
        return self._crossing(log_odds.unsqueeze(-1), slice(None))

    def crossing(self, log_odds: Tensor, edge: int) -> Tensor:
        """Crossing of one edge: (...) -> (...)."""
        return self._crossing(log_odds, edge)

    def _crossing(self, values: Tensor, edge: int | slice) -> Tensor:
        factor = self.slope_factor.to(values.device)  # zero-dimensional, so the result has the other operand's type
        widths = self._like(self.widths[edge], values)
        if self.space == "probability":
            return factor / widths * self._distances(values, edge)
        distance = values - self._like(self.positions[edge], values)
        height = self._like(factor.sqrt(), values)
        return torch.addcmul(distance, (height / widths * distance).tanh_(), height)

    def count_below(self, log_odds: Tensor) -> Tensor:
        """Number of edges below: (...) -> (...) long."""
        values = log_odds.unsqueeze(-1)
        return (values > self._like(self.positions, values)).sum(-1)

    def arguments(self) -> dict[str, Any]:
        """Edges and softness as plain data: the arguments of a partition that has such edges."""
        return {"edges": list(self.values), "space": self.space, "slope_factor": self.slope_factor.item()}

    def _distances(self, log_odds: Tensor, edge: int | slice) -> Tensor:
        # above one half, p - e is computed as (1 - e) - (1 - p): both are small there, so no precision is lost
        probabilities = self._like(self.probabilities[edge], log_odds)
        from_zero = torch.sigmoid(log_odds) - probabilities
        from_one = self._like(self.complements[edge], log_odds) - torch.sigmoid(-log_odds)
        return torch.where(probabilities < 0.5, from_zero, from_one)

    def _like(self, buffer: Tensor, values: Tensor) -> Tensor:
        return buffer.to(device=values.device, dtype=values.dtype)

    def extra_repr(self) -> str:
        """Edges and softness, for ``print``."""
        return f"{list(self.values)}, space={self.space!r}, slope_factor={self.slope_factor.item():g}"


def level_lines(levels: Sequence[float], num_classes: int) -> NDArray[np.float64]:
    """Where the largest of two or three probabilities equals a level, as corners of points or lines: (n, K - 1, K)."""
    lines = np.empty((len(levels), num_classes, num_classes - 1, num_classes))
    for line, level in zip(lines, levels, strict=True):
        for k in range(num_classes):
            rest = [j for j in range(num_classes) if j != k]
            other = min(level, 1 - level)  # below one half a line ends where another class becomes the largest
            line[k] = 1 - level - other
            line[k, :, k] = level
            line[k, range(len(rest)), rest] = other if num_classes > 2 else 1 - level
    return lines.reshape(-1, num_classes - 1, num_classes)


def _narrower(widths: Tensor) -> Tensor:
    """Width of the narrower of the two regions adjacent to each edge; unbounded or empty regions are ignored."""
    usable = torch.where(widths.isfinite() & (widths > EMPTY_WIDTH), widths, torch.full_like(widths, math.inf))
    narrower = torch.minimum(usable[:-1], usable[1:])
    return torch.where(narrower.isfinite(), narrower, torch.full_like(narrower, LONE_WIDTH))


def interval_memberships(crossings: Tensor) -> Tensor:
    r"""Soft memberships of the intervals between edges: (..., E) -> (..., E + 1).

    The odds of two neighbouring intervals are the exponential of the crossing between them: the adjacent-category
    logit model of ordinal regression. Eq. (19) is the corresponding cumulative-logit model. With one slope for all
    edges, in probability space, the two agree up to terms of the order of $e^{-k}$ (docs/explanation/deviations.md).
    This one stays non-negative for unequal slopes as well.
    """
    return torch.softmax(_steps(crossings), dim=-1)


def _steps(crossings: Tensor) -> Tensor:
    return torch.nn.functional.pad(crossings.cumsum(-1), (1, 0))
