"""Regions A_1 .. A_R of the probability simplex: how much of a prediction lies in each, softly and hard."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import LOG_PROB_FLOOR, PreciseModule, result_dtype, widen
from selbo.summary._edges import (
    Edges,
    binary_log_odds,
    interval_memberships,
    log_odds,
    top_log_odds,
)


class Partition(PreciseModule, ABC):
    """Regions of the simplex. Subclasses say how a prediction is shared between them.

    Attributes:
        num_classes: K, the length of a prediction.
        num_regions: R.
    """

    num_classes: int
    num_regions: int

    def memberships(self, log_probs: Tensor, *, validate: bool = False) -> Tensor:
        """Share of each prediction in each region.

        Args:
            log_probs: Log-probabilities, shape (..., B, K).
            validate: Look at the values too, not only at shape and type; waits for the device.

        Returns:
            Shape (..., B, R), rows on the simplex, differentiable; float32 for half-precision input.
        """
        return self._memberships(self._prepare(log_probs, validate))

    def assign(self, log_probs: Tensor, *, validate: bool = False) -> Tensor:
        """Region each prediction falls in: (..., B, K) -> (..., B) long. An edge belongs to the region below it."""
        return self._assign(self._prepare(log_probs, validate))

    def forward(self, log_probs: Tensor) -> Tensor:
        """Soft memberships, so that a partition can be used as a layer."""
        return self.memberships(log_probs)

    def set_slope_factor(self, slope_factor: float | Tensor) -> None:
        """Make the edges softer or harder, in place; to anneal them, call this between training steps."""
        buffers = [module.slope_factor for module in self.modules() if isinstance(module, Edges)]
        if not buffers:
            raise ValueError(f"`set_slope_factor` needs a partition with edges, but {type(self).__name__} has none")
        value = slope_factor if isinstance(slope_factor, Tensor) else _checks.positive("slope_factor", slope_factor)
        for buffer in buffers:
            buffer.fill_(value)

    def _prepare(self, log_probs: Tensor, validate: bool) -> Tensor:
        _checks.log_probs(log_probs, num_classes=self.num_classes, validate=validate)
        return widen(log_probs, result_dtype(log_probs)).clamp(min=LOG_PROB_FLOOR)

    @abstractmethod
    def _memberships(self, log_probs: Tensor) -> Tensor:
        """Memberships of checked, finite log-probabilities."""

    @abstractmethod
    def _assign(self, log_probs: Tensor) -> Tensor:
        """Regions of checked, finite log-probabilities."""


class ScoreBins(Partition):
    """Bins of the score of a binary classifier, the probability of class 1.

    The outer bins are open: a saturated score counts in full.

    Args:
        edges: Interior edges, strictly increasing, in (0, 1); R = len(edges) + 1 bins.
        space: Where distance to an edge is measured, ``"logit"`` or ``"probability"``.
        slope_factor: Slope of an edge times the width of the narrower bin beside it; larger is harder. By default 15 in
            logit space and 5 in probability space.

    Example:
        >>> bins = ScoreBins([0.25, 0.75])
        >>> scores = torch.tensor([0.001, 0.5, 0.8])
        >>> log_probs = torch.stack([1 - scores, scores], -1).log()
        >>> bins.assign(log_probs)
        tensor([0, 1, 2])
        >>> bins.memberships(log_probs).sum(-1)
        tensor([1., 1., 1.])
    """

    def __init__(
        self,
        edges: Sequence[float],
        *,
        space: str = "logit",
        slope_factor: float | None = None,
    ) -> None:
        super().__init__()
        inner = _checks.increasing("edges", edges, low=0, high=1)
        self.num_classes = 2
        self.num_regions = len(inner) + 1
        self.edges = Edges(inner, lower=0.0, space=space, slope_factor=slope_factor)

    @classmethod
    def equal(cls, num_bins: int, *, space: str = "logit", slope_factor: float | None = None) -> "ScoreBins":
        """Bins of equal width.

        Example:
            >>> ScoreBins.equal(4).edges.values
            (0.25, 0.5, 0.75)
        """
        _checks.whole("num_bins", num_bins, at_least=2)
        return cls([i / num_bins for i in range(1, num_bins)], space=space, slope_factor=slope_factor)

    def _memberships(self, log_probs: Tensor) -> Tensor:
        return interval_memberships(self.edges.crossings(binary_log_odds(log_probs)))

    def _assign(self, log_probs: Tensor) -> Tensor:
        return self.edges.count_below(binary_log_odds(log_probs))

    def extra_repr(self) -> str:
        """Number of bins, for ``print``."""
        return f"num_regions={self.num_regions}"


class CornerShells(Partition):
    """The corners of the simplex, shell by shell, and its centre.

    With thresholds (.85, .95) and K classes there are 2K + 1 regions, in this order: p_k > .95 for each class, then
    .85 < p_k <= .95 for each class, last the centre, where no class exceeds .85. Thresholds of at least one half make
    them disjoint.

    Args:
        num_classes: K, at least 2.
        thresholds: Any number of them, strictly increasing, in [0.5, 1).
        space: Where distance to a threshold is measured, ``"logit"`` or ``"probability"``.
        slope_factor: Slope of a threshold times the width of the narrower shell beside it; larger is harder. By default
            15 in logit space and 5 in probability space.

    Example:
        >>> shells = CornerShells(3)
        >>> shells.num_regions
        7
        >>> shells.assign(
        ...     torch.tensor([[0.96, 0.03, 0.01], [0.05, 0.05, 0.9], [0.5, 0.3, 0.2]]).log()
        ... )
        tensor([0, 5, 6])
    """

    def __init__(
        self,
        num_classes: int,
        thresholds: Sequence[float] = (0.85, 0.95),
        *,
        space: str = "logit",
        slope_factor: float | None = None,
    ) -> None:
        super().__init__()
        self.num_classes = _checks.whole("num_classes", num_classes, at_least=2)
        levels = _checks.increasing("thresholds", thresholds, low=0, high=1)
        if levels[0] < 0.5:
            raise ValueError(f"`thresholds` must be at least 0.5, or the shells would overlap, but got {list(levels)}")
        self.num_regions = len(levels) * num_classes + 1
        self.edges = Edges(levels, lower=1 / num_classes, space=space, slope_factor=slope_factor)

    def _memberships(self, log_probs: Tensor) -> Tensor:
        # weight of a shell against the centre: the crossings of all thresholds up to it
        climb = self.edges.crossings(log_odds(log_probs)).cumsum(-1)  # (..., B, K, T)
        shells = climb.flip(-1).transpose(-1, -2).flatten(-2)  # highest threshold first, then class by class
        return torch.softmax(torch.nn.functional.pad(shells, (0, 1)), dim=-1)

    def _assign(self, log_probs: Tensor) -> Tensor:
        level = self.edges.count_below(top_log_odds(log_probs))
        shell = (len(self.edges.values) - level) * self.num_classes + log_probs.argmax(-1)
        return torch.where(level > 0, shell, torch.full_like(shell, self.num_regions - 1))

    def extra_repr(self) -> str:
        """Number of classes and regions, for ``print``."""
        return f"num_classes={self.num_classes}, num_regions={self.num_regions}"


class ClassRegions(Partition):
    """One region a class: where that class is predicted, however surely.

    The mass of a region under a belief is P(class k is predicted), at any temperature. For a belief made by `expect`
    that is the stated fraction of the class, which is what the mean softmax of a calibrated classifier comes to as
    well: temperature 1 asks this of the probabilities, a low temperature of the decisions.

    Args:
        num_classes: K, at least 2.
        temperature: Softness. Memberships are softmax(log_probs / temperature): towards 0 the predicted class alone,
            at 1 the predicted probabilities themselves, whose mean over a batch is the mean softmax.

    Example:
        >>> regions = ClassRegions(3)
        >>> regions.memberships(torch.tensor([[0.5, 0.3, 0.2]]).log())
        tensor([[0.5000, 0.3000, 0.2000]])
    """

    def __init__(self, num_classes: int, temperature: float = 1.0) -> None:
        super().__init__()
        self.num_classes = _checks.whole("num_classes", num_classes, at_least=2)
        self.num_regions = num_classes
        self.temperature = _checks.positive("temperature", temperature)

    def _memberships(self, log_probs: Tensor) -> Tensor:
        return torch.softmax(log_probs / self.temperature, dim=-1)

    def _assign(self, log_probs: Tensor) -> Tensor:
        return log_probs.argmax(-1)

    def extra_repr(self) -> str:
        """Classes and softness, for ``print``."""
        return f"num_classes={self.num_classes}, temperature={self.temperature:g}"


class ConfidenceBins(Partition):
    """Bins of the largest predicted probability, whatever the class; the partition for very many classes.

    Args:
        edges: Strictly increasing, in (1/K, 1), since no largest probability is below 1/K; R = len(edges) + 1 bins.
        num_classes: K, at least 2.
        space: Where distance to an edge is measured, ``"logit"`` or ``"probability"``.
        slope_factor: Slope of an edge times the width of the narrower bin beside it; larger is harder. By default 15 in
            logit space and 5 in probability space.

    Example:
        >>> bins = ConfidenceBins([0.5, 0.9], num_classes=4)
        >>> bins.assign(torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.0, 0.95, 0.05, 0.0]]).log())
        tensor([0, 2])
    """

    def __init__(
        self, edges: Sequence[float], num_classes: int, *, space: str = "logit", slope_factor: float | None = None
    ) -> None:
        super().__init__()
        self.num_classes = _checks.whole("num_classes", num_classes, at_least=2)
        inner = _checks.increasing("edges", edges, low=1 / num_classes, high=1)
        self.num_regions = len(inner) + 1
        self.edges = Edges(inner, lower=1 / num_classes, space=space, slope_factor=slope_factor)

    def _memberships(self, log_probs: Tensor) -> Tensor:
        return interval_memberships(self.edges.crossings(top_log_odds(log_probs)))

    def _assign(self, log_probs: Tensor) -> Tensor:
        return self.edges.count_below(top_log_odds(log_probs))

    def extra_repr(self) -> str:
        """Number of classes and bins, for ``print``."""
        return f"num_classes={self.num_classes}, num_regions={self.num_regions}"
