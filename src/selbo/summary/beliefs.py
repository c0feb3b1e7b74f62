"""What a user believes about the predictions, turned into s0, the mass of each region of a partition.

A belief is a distribution on the probability simplex; ``belief.masses(partition)`` integrates it over the regions.
The masses are exact to float64 (relative error about 1e-12, 1e-10 for concentrations of 1e6) except for
`ConfidenceBins` with edges below one half, where they come from a numerical convolution with an absolute error of at
most 1e-6 and a relative one of at most 1e-2, mostly far less; beyond that an error is raised.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from selbo import _checks
from selbo.summary._dirichlet import Array, beta_tails, centre_mass, largest_entry, max_tails
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

SMALLEST_MASS: Final = 1e-300
"""A region with less is taken for impossible: its reciprocal would no longer be a float64."""

INTEGRATION_ERROR: Final = 1e-6
"""Largest absolute error of a mass that is passed on in silence."""

RESOLVED: Final = 100.0
"""A mass must be this many times its error, because its logarithm is what counts."""

EMPIRICAL_SMOOTHING: Final = 0.5
"""Pseudo-count a region in `Empirical`: the Jeffreys prior of a multinomial, so that no region is impossible."""


class Belief(ABC):
    """A distribution on the probability simplex.

    Attributes:
        stated_fractions: Class fractions that the belief was made from, if it was, as `selbo.expect` does.
    """

    stated_fractions: tuple[float, ...] | None = None

    def masses(self, partition: Partition) -> Tensor:
        """s0: the mass of each region.

        Args:
            partition: The regions.

        Returns:
            float64, shape (R,), strictly positive, sums to 1.
        """
        masses = self._masses(partition)
        for region, mass in enumerate(masses):
            if not mass > SMALLEST_MASS:
                raise ValueError(
                    f"`{self!r}` puts no mass that float64 can hold on region {region} of {type(partition).__name__} "
                    f"({max(mass, 0.0):.3g}): take a less extreme belief, a coarser partition, or state `selbo.Masses` "
                    "yourself"
                )
        return torch.from_numpy(masses / masses.sum())

    @abstractmethod
    def _masses(self, partition: Partition) -> Array:
        """Masses before the check and normalisation."""


class Dirichlet(Belief):
    """Predictions distributed as Dirichlet(concentration) over the simplex.

    Parameters below one say that most predictions are confident, parameters above one that most are undecided; their
    proportions say how often each class is predicted.

    Args:
        concentration: One positive number a class.

    Example:
        >>> Dirichlet([0.5, 0.5, 0.5]).masses(ClassRegions(3))
        tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """

    def __init__(self, concentration: Sequence[float]) -> None:
        if len(concentration) < 2:
            raise ValueError(f"`concentration` must hold at least 2 numbers, but got {len(concentration)}")
        self.concentration = tuple(_checks.positive("concentration", a) for a in concentration)

    def _masses(self, partition: Partition) -> Array:
        if len(self.concentration) != partition.num_classes:
            raise ValueError(
                f"`{self!r}` has {len(self.concentration)} parameters, but the partition has "
                f"{partition.num_classes} classes: give one parameter a class"
            )
        return dirichlet_masses(np.array(self.concentration), partition)

    def __repr__(self) -> str:
        return f"Dirichlet({_short(self.concentration)})"


class Beta(Belief):
    """Scores of a binary classifier, the probabilities of class 1, distributed as Beta(a, b).

    Args:
        a: Larger means scores nearer to 1.
        b: Larger means scores nearer to 0.

    Example:
        >>> Beta(2, 2).masses(ScoreBins([0.5]))
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """

    def __init__(self, a: float, b: float) -> None:
        self.a = _checks.positive("a", a)
        self.b = _checks.positive("b", b)

    def _masses(self, partition: Partition) -> Array:
        if partition.num_classes != 2:
            raise ValueError(
                f"`{self!r}` speaks of two classes, but the partition has {partition.num_classes}: "
                "use `selbo.Dirichlet` with one parameter a class"
            )
        return dirichlet_masses(np.array([self.b, self.a]), partition)  # the score is column 1

    def __repr__(self) -> str:
        return f"Beta({self.a:.6g}, {self.b:.6g})"


class Uniform(Belief):
    """Every point of the simplex equally likely: Dirichlet(1, ..., 1), or Beta(1, 1) for two classes.

    Example:
        >>> Uniform().masses(ScoreBins.equal(4))
        tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """

    def _masses(self, partition: Partition) -> Array:
        return dirichlet_masses(np.ones(partition.num_classes), partition)

    def __repr__(self) -> str:
        return "Uniform()"


class Masses(Belief):
    """A histogram stated outright, one mass a region.

    Args:
        values: Positive numbers that sum to one.
        uncertainty: How far each of them may be off: with .05, a mass of .5 stands for any from .45 to .55, and a
            summary with this belief does not prefer one of these to another.

    Example:
        >>> Masses([0.2, 0.3, 0.5]).masses(ScoreBins([0.1, 0.9]))
        tensor([0.2000, 0.3000, 0.5000], dtype=torch.float64)
    """

    def __init__(self, values: Sequence[float], *, uncertainty: float = 0.0) -> None:
        self.values = _checks.simplex("values", values)
        self.uncertainty = _checks.uncertainty("uncertainty", uncertainty)

    def _masses(self, partition: Partition) -> Array:
        if len(self.values) != partition.num_regions:
            raise ValueError(
                f"`{self!r}` states {len(self.values)} masses, but the partition has {partition.num_regions} regions: "
                "give one mass a region"
            )
        return np.array(self.values)

    def __repr__(self) -> str:
        give_or_take = f", uncertainty={self.uncertainty:g}" if self.uncertainty else ""
        return f"Masses({_short(self.values)}{give_or_take})"


class Empirical(Belief):
    """The histogram of predictions at hand: those of an earlier model, or of another site.

    The mass of a region is (count + smoothing) / (total + R x smoothing), with counts of the regions that the
    predictions fall in.

    Args:
        log_probs: Log-probabilities, shape (..., B, K); leading dimensions are pooled.
        smoothing: Pseudo-count a region; positive, so that a region nobody was seen in stays possible.

    Example:
        >>> scores = torch.tensor([0.1, 0.2, 0.9])
        >>> earlier = Empirical(torch.stack([1 - scores, scores], -1).log())
        >>> earlier.masses(ScoreBins([0.5]))
        tensor([0.6250, 0.3750], dtype=torch.float64)
    """

    def __init__(self, log_probs: Tensor, *, smoothing: float = EMPIRICAL_SMOOTHING) -> None:
        self.smoothing = _checks.positive("smoothing", smoothing)
        num_classes = log_probs.shape[-1] if _checks.floating("log_probs", log_probs).ndim else 0
        _checks.log_probs(log_probs, num_classes=num_classes, validate=True)
        self.log_probs = log_probs.detach().cpu().clone()

    def _masses(self, partition: Partition) -> Array:
        if self.log_probs.shape[-1] != partition.num_classes:
            raise ValueError(
                f"`{self!r}` holds predictions of {self.log_probs.shape[-1]} classes, but the partition has "
                f"{partition.num_classes}: use a partition of as many classes"
            )
        regions = partition.assign(self.log_probs).flatten()
        counts = np.bincount(regions.numpy(), minlength=partition.num_regions) + self.smoothing
        return np.asarray(counts / counts.sum())

    def __repr__(self) -> str:
        return f"Empirical({self.log_probs.shape[:-1].numel()} predictions, smoothing={self.smoothing:g})"


def dirichlet_masses(concentration: Array, partition: Partition) -> Array:
    """Mass of each region of a partition under a Dirichlet distribution.

    Args:
        concentration: One parameter a class, shape (K,).
        partition: Any of the four partitions.

    Returns:
        Shape (R,).
    """
    total = concentration.sum()
    if isinstance(partition, ScoreBins):
        return beta_tails(concentration[1], concentration[0], np.array(partition.edges.values)).masses()
    if isinstance(partition, ClassRegions):
        return largest_entry(concentration).probabilities  # of the region itself, at any temperature
    if isinstance(partition, CornerShells):
        edges = np.array(partition.edges.values)
        marginals = np.stack([beta_tails(a, total - a, edges).masses() for a in concentration])  # (K, T + 1)
        shells = marginals[:, :0:-1].T.ravel()  # highest threshold first, then class by class
        return np.append(shells, centre_mass(concentration, edges[0]))
    if isinstance(partition, ConfidenceBins):
        tails = max_tails(concentration, np.array(partition.edges.values))
        masses = tails.masses()
        convolved = masses[: 1 + sum(edge < 0.5 for edge in partition.edges.values)]
        if tails.error > min(INTEGRATION_ERROR, convolved.min() / RESOLVED):
            raise ValueError(
                f"Dirichlet({_short(concentration)}) puts a mass of about {max(convolved.min(), 0.0):.1g} on a region "
                f"of ConfidenceBins({_short(partition.edges.values)}), which can only be found to {tails.error:.1g}: "
                "use edges of at least 0.5, fewer edges, or state `selbo.Masses` yourself"
            )
        return masses
    raise ValueError(
        f"`partition` must be one of selbo's partitions for a parametric belief, but got {type(partition).__name__}: "
        "use `selbo.Masses` or `selbo.Empirical`, which need no integral"
    )


def _short(values: Sequence[float] | Array) -> str:
    shown = [f"{v:.6g}" for v in values[:6]]
    return "[" + ", ".join(shown) + (f", ... {len(values)} in all]" if len(values) > 6 else "]")
