"""Partitions of the probability simplex into regions A_1 .. A_R, with soft memberships and hard assignments."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import LOG_PROB_FLOOR, FloatArray, PreciseModule, result_dtype, widen
from selbo.summary._arguments import describe_object, type_name
from selbo.summary._dirichlet import beta_tails, centre_mass, largest_entry, max_tails, sampled_masses
from selbo.summary._edges import (
    Edges,
    binary_log_odds,
    interval_memberships,
    level_lines,
    log_odds,
    top_log_odds,
)
from selbo.summary._labels import (
    CONFIDENCE_TITLE,
    class_labels,
    edge_labels,
    interval_labels,
    percent_labels,
    score_title,
)

SAME_EDGE: Final = 1e-9
"""Edges that differ by less than this are equal: 1 - 0.9 is not exactly 0.1."""

INTEGRATION_ERROR: Final = 1e-6
"""Largest accepted absolute error of a mass that is computed by convolution."""

RESOLVED: Final = 100.0
SAMPLES_RESOLVE: Final = 20.0
"""Smallest accepted ratio of a mass to its error, because its logarithm is used; the second for sampled masses."""


class Scale(NamedTuple):
    """The quantity whose consecutive intervals are the regions, lowest first.

    Attributes:
        title: Title of an axis, such as ``"largest predicted probability"``.
        symbol: Short form, such as ``"largest p"``.
        word: Word before an interval in a sentence, such as ``"confidence"``.
        ends: Labels of the R + 1 ends of the intervals.
    """

    title: str
    symbol: str
    word: str
    ends: tuple[str, ...]


class Partition(PreciseModule, ABC):
    """Regions of the simplex; base class of partitions.

    To write your own partition, define ``num_classes``, ``num_regions``, `memberships` and `assign`. The other methods
    have defaults that are valid for any regions; override them where you know more.

    Attributes:
        num_classes: K, the length of a prediction.
        num_regions: R.
    """

    num_classes: int
    num_regions: int

    # --- methods that a partition must define ---

    @abstractmethod
    def memberships(self, log_probs: Tensor) -> Tensor:
        """Share of each prediction in each region.

        Args:
            log_probs: Log-probabilities, shape (..., B, K). `forward` passes them finite and in float32 or wider.

        Returns:
            Shape (..., B, R), rows on the simplex, differentiable.
        """

    @abstractmethod
    def assign(self, log_probs: Tensor) -> Tensor:
        """Region each prediction falls in: (..., B, K) -> (..., B) long."""

    # --- optional methods: numbers ---

    def dirichlet_masses(self, alpha: Sequence[float] | FloatArray) -> FloatArray:
        """Mass of each region under a Dirichlet distribution of the predictions.

        By default the masses are sampled: predictions at fixed quasi-random points are counted with `assign`. For bins
        of one quantity, the standard errors are at most 2e-4 with up to three classes and 1e-3 with ten. A region whose
        mass is less than 20 times its standard error raises an error.

        Args:
            alpha: Dirichlet parameters, one positive number per class.

        Returns:
            float64, shape (R,).
        """
        parameters = self._checked_alpha(alpha)
        masses, errors = sampled_masses(parameters, self._count)
        worst = int(np.argmin(masses / errors))
        if masses[worst] < SAMPLES_RESOLVE * errors[worst]:
            raise ValueError(
                f"Dirichlet({short_list(parameters)}) puts a mass of about {masses[worst]:.1g} on region {worst} of "
                f"{type(self).__name__}, which can only be found to {errors[worst]:.1g}: use wider regions, define "
                "`dirichlet_masses`, or state `selbo.Masses` yourself"
            )
        return masses

    def confidence_bounds(self) -> FloatArray:
        """Smallest and largest value of the largest probability in each region, shape (R, 2).

        By default 1/K and 1, that is, no information.
        """
        return np.tile([1 / self.num_classes, 1.0], (self.num_regions, 1))

    def predicted_class(self) -> list[int | None]:
        """Predicted class in each region; None (default) for a region with several predicted classes."""
        return [None] * self.num_regions

    def mean_bounds(self, masses: FloatArray) -> FloatArray | None:
        """Bounds of the mean probability of each class, given the masses of the regions.

        Args:
            masses: Shape (R,).

        Returns:
            Shape (K, 2); None (default) if the regions carry no information about it.
        """
        return None

    def boundaries(self) -> FloatArray | None:
        """Boundaries between the regions of two or three classes, for plots.

        Returns:
            For two classes points, shape (n, 1, 2); for three classes the two ends of lines, shape (n, 2, 3); both as
            probabilities. None (default) if they are not known; plots then find them with `assign`.
        """
        return None

    # --- optional methods: labels ---

    def region_labels(self, names: Sequence[str] | None = None) -> list[str]:
        """A label per region, short enough for an axis: by default the intervals of `scale`, or ``region 0``, ...

        Args:
            names: One name per class, instead of ``class 0``, ...
        """
        scale = self.scale(names)
        return [f"region {r}" for r in range(self.num_regions)] if scale is None else interval_labels(scale.ends)

    def spoken_labels(self, names: Sequence[str] | None = None) -> list[str]:
        """A label per region for a sentence; by default that of `region_labels`, after the word of `scale`."""
        labels, scale = self.region_labels(names), self.scale(names)
        return labels if scale is None else [f"{scale.word} {label.replace('–', ' to ')}" for label in labels]

    def scale(self, names: Sequence[str] | None = None) -> Scale | None:
        """The quantity whose intervals are the regions; None (default) if there is none."""
        return None

    def shells(self) -> list[str]:
        """Labels of the shells, if the regions are K per shell followed by a centre; otherwise empty."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Plain data for files: ``type``, an importable name, and ``arguments``.

        By default these are the arguments of ``__init__`` that are stored as attributes of the same names.
        """
        return describe_object(self)

    # --- methods of every partition ---

    def forward(self, log_probs: Tensor, *, validate: bool = False) -> Tensor:
        """Soft memberships of any log-probabilities: (..., B, K) -> (..., B, R), float32 or wider.

        Args:
            log_probs: Log-probabilities; they are checked and made finite before they are passed to `memberships`.
            validate: Also validate values; synchronises with the device.
        """
        shares = self.memberships(self.prepare(log_probs, validate))
        if shares.shape != (*log_probs.shape[:-1], self.num_regions):
            raise ValueError(
                f"`memberships` of {type(self).__name__} must have shape "
                f"{(*log_probs.shape[:-1], self.num_regions)}, but got {tuple(shares.shape)}"
            )
        return shares

    def set_slope_factor(self, slope_factor: float | Tensor) -> None:
        """Make the edges softer or harder, in place; to anneal them, call this between training steps."""
        buffers = [module.slope_factor for module in self.modules() if isinstance(module, Edges)]
        if not buffers:
            raise ValueError(f"`set_slope_factor` needs a partition with edges, but {type(self).__name__} has none")
        value = slope_factor if isinstance(slope_factor, Tensor) else _checks.positive("slope_factor", slope_factor)
        for buffer in buffers:
            buffer.fill_(value)

    def prepare(self, log_probs: Tensor, validate: bool = False) -> Tensor:
        """Check log-probabilities and make them finite, float32 or wider; for `memberships` that are called directly.

        Args:
            log_probs: Log-probabilities, shape (..., B, K).
            validate: Also validate values; synchronises with the device.
        """
        _checks.log_probs(log_probs, num_classes=self.num_classes, validate=validate)
        return widen(log_probs, result_dtype(log_probs)).clamp(min=LOG_PROB_FLOOR)

    def _checked_alpha(self, alpha: Sequence[float] | FloatArray) -> FloatArray:
        parameters = np.array([_checks.positive("alpha", float(each)) for each in alpha])
        if len(parameters) != self.num_classes:
            raise ValueError(f"`alpha` must hold {self.num_classes} numbers, one per class, but got {len(parameters)}")
        return parameters

    def _count(self, log_probs: FloatArray) -> FloatArray:
        """Number of predictions in each region: (n, K) -> (R,)."""
        regions = self.assign(torch.from_numpy(log_probs).clamp(min=LOG_PROB_FLOOR))
        return np.bincount(regions.numpy(), minlength=self.num_regions).astype(np.float64)


class CheckedPartition(Partition):
    """A partition whose `memberships` and `assign` check their arguments; base class of the library's partitions."""

    def memberships(self, log_probs: Tensor, *, validate: bool = False) -> Tensor:
        """Share of each prediction in each region.

        Args:
            log_probs: Log-probabilities, shape (..., B, K).
            validate: Also validate values; synchronises with the device.

        Returns:
            Shape (..., B, R), rows on the simplex, differentiable; float32 for half-precision input.
        """
        return self._memberships(self.prepare(log_probs, validate))

    def assign(self, log_probs: Tensor, *, validate: bool = False) -> Tensor:
        """Region each prediction falls in: (..., B, K) -> (..., B) long. An edge belongs to the region below it."""
        return self._assign(self.prepare(log_probs, validate))

    def forward(self, log_probs: Tensor, *, validate: bool = False) -> Tensor:
        """Soft memberships, so that a partition can be used as a layer."""
        return self.memberships(log_probs, validate=validate)

    @abstractmethod
    def _memberships(self, log_probs: Tensor) -> Tensor:
        """Memberships of checked, finite log-probabilities."""

    @abstractmethod
    def _assign(self, log_probs: Tensor) -> Tensor:
        """Regions of checked, finite log-probabilities."""


def require_partition(value: object) -> Partition:
    """Return the value if it is a partition; otherwise raise an error."""
    if not isinstance(value, Partition):
        raise ValueError(f"`partition` must be a partition such as selbo.ScoreBins, but got {value!r}")
    return value


def short_list(values: Sequence[float] | FloatArray) -> str:
    """The first six numbers of a sequence, for messages."""
    shown = [f"{v:.6g}" for v in values[:6]]
    return "[" + ", ".join(shown) + (f", ... {len(values)} in all]" if len(values) > 6 else "]")


class ScoreBins(CheckedPartition):
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

    def dirichlet_masses(self, alpha: Sequence[float] | FloatArray) -> FloatArray:
        """Mass of each bin under a Dirichlet distribution, exact to float64."""
        first, second = self._checked_alpha(alpha)
        return beta_tails(second, first, np.array(self.edges.values)).masses()

    def confidence_bounds(self) -> FloatArray:
        """Smallest and largest value of the largest probability in each bin, shape (R, 2)."""
        edges = np.array([0.0, *self.edges.values, 1.0])
        left, right = edges[:-1], edges[1:]
        nearest = np.clip(0.5, left, right)
        return np.stack([np.maximum(nearest, 1 - nearest), np.maximum(1 - left, right)], -1)

    def predicted_class(self) -> list[int | None]:
        """Predicted class in each bin; None for a bin with both."""
        ends = pairwise([0.0, *self.edges.values, 1.0])
        return [0 if high <= 0.5 + SAME_EDGE else 1 if low >= 0.5 - SAME_EDGE else None for low, high in ends]

    def mean_bounds(self, masses: FloatArray) -> FloatArray:
        """Bounds of the mean probability of each class: (R,) -> (2, 2)."""
        edges = np.array([0.0, *self.edges.values, 1.0])
        low, high = float(masses @ edges[:-1]), float(masses @ edges[1:])
        return np.array([[1 - high, 1 - low], [low, high]])

    def boundaries(self) -> FloatArray:
        """The edges, shape (n, 1, 2)."""
        return np.array([[[1 - edge, edge]] for edge in self.edges.values])

    def scale(self, names: Sequence[str] | None = None) -> Scale:
        """The probability of class 1."""
        name = class_labels(2, names)[1]
        return Scale(score_title(name), f"P({name})", f"P({name})", ("0", *edge_labels(self.edges.values), "1"))

    def spoken_labels(self, names: Sequence[str] | None = None) -> list[str]:
        """Ranges of the probability of class 1, for a sentence.

        Example:
            >>> ScoreBins([0.25]).spoken_labels(["healthy", "ill"])
            ['ill: 0 to 25 % likely', 'ill: 25 to 100 % likely']
        """
        name, ends = class_labels(2, names)[1], ["0", *percent_labels(self.edges.values), "100"]
        return [f"{name}: {low} to {high} % likely" for low, high in pairwise(ends)]

    def to_dict(self) -> dict[str, Any]:
        """Type and arguments as plain data."""
        return {"type": type_name(type(self)), "arguments": self.edges.arguments()}

    def extra_repr(self) -> str:
        """Number of bins, for ``print``."""
        return f"num_regions={self.num_regions}"


class CornerShells(CheckedPartition):
    """Shells around the corners of the simplex, and its centre.

    With thresholds (.85, .95) and K classes there are 2K + 1 regions, in this order: p_k > .95 for each class, then
    .85 < p_k <= .95 for each class, and finally the centre, where no class exceeds .85. The regions are disjoint
    because thresholds are at least one half.

    Args:
        num_classes: K, at least 2.
        thresholds: One or more thresholds, strictly increasing, in [0.5, 1).
        space: Space in which distance to a threshold is measured, ``"logit"`` or ``"probability"``.
        slope_factor: Slope of a threshold times the width of the narrower adjacent shell; larger is harder. By default
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
        odds = log_odds(log_probs)
        # weight of a shell against the centre: the crossings of all thresholds up to it
        climb, shells = torch.zeros_like(odds[..., :1]), [torch.zeros_like(odds[..., :1])]
        for edge in range(len(self.edges.values)):
            climb = climb + self.edges.crossing(odds, edge)
            shells.insert(0, climb)  # highest threshold first, and the centre last
        return torch.softmax(torch.cat(shells, -1), dim=-1)

    def _assign(self, log_probs: Tensor) -> Tensor:
        level = self.edges.count_below(top_log_odds(log_probs))
        shell = (len(self.edges.values) - level) * self.num_classes + log_probs.argmax(-1)
        return torch.where(level > 0, shell, torch.full_like(shell, self.num_regions - 1))

    def dirichlet_masses(self, alpha: Sequence[float] | FloatArray) -> FloatArray:
        """Mass of each region under a Dirichlet distribution, exact to float64."""
        parameters, edges = self._checked_alpha(alpha), np.array(self.edges.values)
        total = parameters.sum()
        marginals = np.stack([beta_tails(a, total - a, edges).masses() for a in parameters])  # (K, T + 1)
        shells = marginals[:, :0:-1].T.ravel()  # highest threshold first, then class by class
        return np.append(shells, centre_mass(parameters, edges[0]))

    def confidence_bounds(self) -> FloatArray:
        """Smallest and largest value of the largest probability in each region, shape (R, 2)."""
        edges = np.array([*self.edges.values, 1.0])
        shells = np.stack([edges[:-1], edges[1:]], -1)[::-1].repeat(self.num_classes, axis=0)
        return np.vstack([shells, [[1 / self.num_classes, edges[0]]]])

    def predicted_class(self) -> list[int | None]:
        """The class of each shell; None for the centre, where any class may be predicted."""
        return [*list(range(self.num_classes)) * len(self.edges.values), None]

    def boundaries(self) -> FloatArray | None:
        """Points or lines where the largest of two or three probabilities equals a threshold, shape (n, K - 1, K)."""
        return level_lines(self.edges.values, self.num_classes) if self.num_classes <= 3 else None

    def region_labels(self, names: Sequence[str] | None = None) -> list[str]:
        """Class and shell of each region.

        Example:
            >>> CornerShells(2).region_labels(["cat", "dog"])
            ['cat > .95', 'dog > .95', 'cat .85–.95', 'dog .85–.95', 'centre']
        """
        classes = class_labels(self.num_classes, names)
        return [*(f"{name} {shell}" for shell in self.shells() for name in classes), "centre"]

    def spoken_labels(self, names: Sequence[str] | None = None) -> list[str]:
        """Class and shell of each region, for a sentence.

        Example:
            >>> CornerShells(2, [0.9]).spoken_labels(["cat", "dog"])
            ['cat: over 90 % sure', 'dog: over 90 % sure', 'no class above 90 %']
        """
        levels = percent_labels(self.edges.values)
        shells = [f"over {levels[-1]}", *reversed([f"{low} to {high}" for low, high in pairwise(levels)])]
        classes = class_labels(self.num_classes, names)
        return [*(f"{name}: {shell} % sure" for shell in shells for name in classes), f"no class above {levels[0]} %"]

    def shells(self) -> list[str]:
        """The shells of a corner, from the corner inwards.

        Example:
            >>> CornerShells(3).shells()
            ['> .95', '.85–.95']
        """
        levels = edge_labels(self.edges.values)
        return [f"> {levels[-1]}", *reversed(interval_labels(levels))]

    def to_dict(self) -> dict[str, Any]:
        """Type and arguments as plain data."""
        edges = self.edges.arguments()
        return {
            "type": type_name(type(self)),
            "arguments": {"num_classes": self.num_classes, "thresholds": edges.pop("edges"), **edges},
        }

    def extra_repr(self) -> str:
        """Number of classes and regions, for ``print``."""
        return f"num_classes={self.num_classes}, num_regions={self.num_regions}"


class ClassRegions(CheckedPartition):
    """One region per class, where that class is predicted with any confidence.

    The mass of a region under a belief is P(class k is predicted), at any temperature. For a belief made by `expect`
    this is the stated fraction of the class, which also equals the mean softmax of a calibrated classifier. At
    temperature 1 the summary constrains the probabilities, at a low temperature the decisions.

    Args:
        num_classes: K, at least 2.
        temperature: Softness. Memberships are softmax(log_probs / temperature): near 0 one-hot at the predicted class,
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

    def dirichlet_masses(self, alpha: Sequence[float] | FloatArray) -> FloatArray:
        """Probability under a Dirichlet distribution that each class is predicted, at any temperature; exact."""
        return largest_entry(self._checked_alpha(alpha)).probabilities

    def predicted_class(self) -> list[int | None]:
        """One class per region."""
        return list(range(self.num_classes))

    def mean_bounds(self, masses: FloatArray) -> FloatArray:
        """The masses themselves, which are the mean softmax at temperature 1: (K,) -> (K, 2)."""
        return np.stack([masses, masses], -1)

    def boundaries(self) -> FloatArray | None:
        """Points or lines where the two largest of two or three probabilities are equal, shape (n, K - 1, K)."""
        if self.num_classes == 2:
            return np.full((1, 1, 2), 0.5)
        centre = np.full((3, 3), 1 / 3)  # lines from there to the middle of the sides
        return np.stack([centre, (1 - np.eye(3)) / 2], axis=1) if self.num_classes == 3 else None

    def region_labels(self, names: Sequence[str] | None = None) -> list[str]:
        """The names of the classes."""
        return class_labels(self.num_classes, names)

    def extra_repr(self) -> str:
        """Classes and softness, for ``print``."""
        return f"num_classes={self.num_classes}, temperature={self.temperature:g}"


class ConfidenceBins(CheckedPartition):
    """Bins of the largest predicted probability, for any class.

    With many classes, combine it with `ClassRegions` in a second summary: confidence alone does not determine which
    class is which (docs/how-to/elicitation.md).

    Args:
        edges: Strictly increasing, in (1/K, 1), because the largest probability is at least 1/K; R = len(edges) + 1
            bins.
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
        inner = _checks.increasing(
            "edges",
            edges,
            low=1 / num_classes,
            high=1,
            reason=f", as the largest of {num_classes} probabilities does",
        )
        self.num_regions = len(inner) + 1
        self.edges = Edges(inner, lower=1 / num_classes, space=space, slope_factor=slope_factor)

    def _memberships(self, log_probs: Tensor) -> Tensor:
        return interval_memberships(self.edges.crossings(top_log_odds(log_probs)))

    def _assign(self, log_probs: Tensor) -> Tensor:
        return self.edges.count_below(top_log_odds(log_probs))

    def dirichlet_masses(self, alpha: Sequence[float] | FloatArray) -> FloatArray:
        """Mass of each bin under a Dirichlet distribution.

        Exact to float64 for edges of at least one half. For lower edges, masses come from a numerical convolution with
        an absolute error of at most 1e-6 and a relative error of at most 1e-2; a larger error raises an exception.
        """
        parameters = self._checked_alpha(alpha)
        tails = max_tails(parameters, np.array(self.edges.values))
        masses = tails.masses()
        convolved = masses[: 1 + sum(edge < 0.5 for edge in self.edges.values)]
        if tails.error > min(INTEGRATION_ERROR, convolved.min() / RESOLVED):
            raise ValueError(
                f"Dirichlet({short_list(parameters)}) puts a mass of about {max(convolved.min(), 0.0):.1g} on a region "
                f"of ConfidenceBins({short_list(self.edges.values)}), which can only be found to {tails.error:.1g}: "
                "use edges of at least 0.5, fewer edges, or state `selbo.Masses` yourself"
            )
        return masses

    def confidence_bounds(self) -> FloatArray:
        """The edges of each bin, shape (R, 2)."""
        edges = np.array([1 / self.num_classes, *self.edges.values, 1.0])
        return np.stack([edges[:-1], edges[1:]], -1)

    def boundaries(self) -> FloatArray | None:
        """Points or lines where the largest of two or three probabilities equals an edge, shape (n, K - 1, K)."""
        return level_lines(self.edges.values, self.num_classes) if self.num_classes <= 3 else None

    def region_labels(self, names: Sequence[str] | None = None) -> list[str]:
        """The labels of the bins.

        Example:
            >>> ConfidenceBins([0.5, 0.9], num_classes=10).region_labels()
            ['≤ .5', '.5–.9', '> .9']
        """
        edges = edge_labels(self.edges.values)
        return [f"≤ {edges[0]}", *interval_labels(edges), f"> {edges[-1]}"]

    def spoken_labels(self, names: Sequence[str] | None = None) -> list[str]:
        """Ranges of the largest probability, for a sentence.

        Example:
            >>> ConfidenceBins([0.5, 0.9], num_classes=10).spoken_labels()
            ['at most 50 % sure', '50 to 90 % sure', 'over 90 % sure']
        """
        edges = percent_labels(self.edges.values)
        inner = [f"{low} to {high} % sure" for low, high in pairwise(edges)]
        return [f"at most {edges[0]} % sure", *inner, f"over {edges[-1]} % sure"]

    def scale(self, names: Sequence[str] | None = None) -> Scale:
        """The largest probability; none is below 1/K."""
        ends = (f"1/{self.num_classes}", *edge_labels(self.edges.values), "1")
        return Scale(CONFIDENCE_TITLE, "largest p", "confidence", ends)

    def to_dict(self) -> dict[str, Any]:
        """Type and arguments as plain data."""
        edges = self.edges.arguments()
        return {
            "type": type_name(type(self)),
            "arguments": {"edges": edges.pop("edges"), "num_classes": self.num_classes, **edges},
        }

    def extra_repr(self) -> str:
        """Number of classes and bins, for ``print``."""
        return f"num_classes={self.num_classes}, num_regions={self.num_regions}"
