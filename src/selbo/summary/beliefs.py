"""Beliefs about the predictions, converted to s0, the mass of each region of a partition.

A belief is a distribution on the probability simplex; ``belief.masses(partition)`` integrates it over the regions.
The masses are exact to float64 (relative error about 1e-12, 1e-10 for concentrations of 1e6), except for
`ConfidenceBins` with edges below one half. There they come from a numerical convolution with an absolute error of at
most 1e-6 and a relative error of at most 1e-2, usually far less; a larger error raises an exception. User-defined
partitions are integrated by quasi-Monte Carlo, see `Partition.dirichlet_masses`.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from selbo import _checks
from selbo._numerics import FloatArray
from selbo.summary._arguments import describe_object, type_name
from selbo.summary._labels import number
from selbo.summary.partitions import Partition, short_list

SMALLEST_MASS: Final = 1e-300
"""A region with less mass counts as impossible: its reciprocal would overflow float64."""

EMPIRICAL_SMOOTHING: Final = 0.5
"""Pseudo-count per region in `Empirical`: the Jeffreys prior of a multinomial, so that no region is impossible."""


class Belief(ABC):
    """Expected distribution of the predictions; base class of beliefs.

    To write your own belief, define `masses`. The other methods have defaults that are valid for any belief; override
    them where you know more.

    Attributes:
        num_classes: K, if the belief has a fixed number of classes.
        class_fractions: Class fractions that the belief was built from, if any, as by `selbo.expect`.
        uncertainty: Tolerance of each mass, see `Masses`.
    """

    num_classes: int | None = None
    class_fractions: tuple[float, ...] | None = None
    uncertainty: float = 0.0

    @abstractmethod
    def masses(self, partition: Partition) -> Tensor:
        """s0: the mass of each region.

        Args:
            partition: The regions.

        Returns:
            float64, shape (R,), strictly positive, sums to 1.
        """

    def dirichlet(self, num_classes: int) -> FloatArray | None:
        """Dirichlet parameters of the predictions, shape (K,); None (default) if they have another distribution."""
        return None

    def mean_probabilities(self, num_classes: int) -> tuple[float, ...] | None:
        """Mean probability of each class; by default that of `dirichlet`, and None without it."""
        parameters = self.dirichlet(num_classes)
        return None if parameters is None else tuple(float(a) / math.fsum(parameters) for a in parameters)

    def label(self) -> str:
        """Short label for a figure; by default the ``repr`` of the belief."""
        return repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for files: ``type``, an importable name, and ``arguments``.

        By default these are the arguments of ``__init__`` that are stored as attributes of the same names.
        """
        return describe_object(self)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={getattr(self, name, ...)!r}" for name in self.to_dict()["arguments"])
        return f"{type(self).__name__}({arguments})"


def require_belief(value: object, *, name: str = "belief") -> Belief:
    """Return the value if it is a belief; otherwise raise an error."""
    if not isinstance(value, Belief):
        raise ValueError(f"`{name}` must be a belief such as selbo.Beta or selbo.Masses, but got {value!r}")
    return value


def checked_masses(belief: Belief, partition: Partition) -> Tensor:
    """s0 of a belief, validated because it may come from a user-defined belief."""
    masses = belief.masses(partition)
    _checks.floating("masses", masses)
    if masses.shape != (partition.num_regions,):
        raise ValueError(
            f"`masses` of {type(belief).__name__} must have shape ({partition.num_regions},), one per region, but got "
            f"{tuple(masses.shape)}"
        )
    _checks.on_simplex("masses", masses, strictly_positive=True)
    return masses.detach().double().cpu()


def normalised_masses(belief: Belief, masses: FloatArray, partition: Partition) -> Tensor:
    """Masses as a tensor that sums to one; a region without mass raises an error."""
    for region, mass in enumerate(masses):
        if not mass > SMALLEST_MASS:
            raise ValueError(
                f"`{belief!r}` puts no mass that float64 can hold on region {region} of {type(partition).__name__} "
                f"({max(mass, 0.0):.3g}): use a less extreme belief, a coarser partition, or state `selbo.Masses` "
                "yourself"
            )
    return torch.from_numpy(masses / masses.sum())


class DirichletBelief(Belief):
    """A belief with Dirichlet parameters, which a partition integrates."""

    @abstractmethod
    def dirichlet(self, num_classes: int) -> FloatArray:
        """Dirichlet parameters of the predictions, shape (K,)."""

    def masses(self, partition: Partition) -> Tensor:
        """s0: the mass of each region, float64, shape (R,), strictly positive, sums to 1."""
        parameters = self.dirichlet(partition.num_classes)
        return normalised_masses(self, partition.dirichlet_masses(parameters), partition)


class Dirichlet(DirichletBelief):
    """Predictions distributed as Dirichlet(concentration) over the simplex.

    With parameters below one, most predictions are confident; with parameters above one, most are undecided. The
    proportions of the parameters determine how often each class is predicted.

    Args:
        concentration: One positive number per class.
        class_fractions: Class fractions that the parameters were computed from, if any.

    Example:
        >>> from selbo.summary.partitions import ClassRegions
        >>> Dirichlet([0.5, 0.5, 0.5]).masses(ClassRegions(3))
        tensor([0.3333, 0.3333, 0.3333], dtype=torch.float64)
    """

    def __init__(self, concentration: Sequence[float], *, class_fractions: Sequence[float] | None = None) -> None:
        if len(concentration) < 2:
            raise ValueError(f"`concentration` must hold at least 2 numbers, but got {len(concentration)}")
        self.concentration = tuple(_checks.positive("concentration", a) for a in concentration)
        self.num_classes = len(self.concentration)
        self.class_fractions = _stated(class_fractions, self.num_classes)

    def dirichlet(self, num_classes: int) -> FloatArray:
        """The parameters, shape (K,)."""
        if len(self.concentration) != num_classes:
            raise ValueError(
                f"`{self!r}` has {len(self.concentration)} parameters, but the partition has "
                f"{num_classes} classes: give one parameter per class"
            )
        return np.array(self.concentration)

    def label(self) -> str:
        """The parameters, with three digits each.

        Example:
            >>> Dirichlet([0.0898504, 1, 2.5]).label()
            'Dirichlet(.0899, 1, 2.5)'
        """
        return f"Dirichlet({', '.join(number(a) for a in self.concentration)})"

    def __repr__(self) -> str:
        return f"Dirichlet({short_list(self.concentration)})"


class Beta(DirichletBelief):
    """Scores of a binary classifier, the probabilities of class 1, distributed as Beta(a, b).

    Args:
        a: First parameter; a larger value moves scores towards 1.
        b: Second parameter; a larger value moves scores towards 0.
        class_fractions: Fractions of the two classes that the parameters were computed from, if any.

    Example:
        >>> from selbo.summary.partitions import ScoreBins
        >>> Beta(2, 2).masses(ScoreBins([0.5]))
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """

    num_classes = 2

    def __init__(self, a: float, b: float, *, class_fractions: Sequence[float] | None = None) -> None:
        self.a = _checks.positive("a", a)
        self.b = _checks.positive("b", b)
        self.class_fractions = _stated(class_fractions, 2)

    def dirichlet(self, num_classes: int) -> FloatArray:
        """The parameters by class, shape (2,)."""
        if num_classes != 2:
            raise ValueError(
                f"`{self!r}` is a belief about two classes, but the partition has {num_classes}: "
                "use `selbo.Dirichlet` with one parameter per class"
            )
        return np.array([self.b, self.a])  # the score is column 1

    def label(self) -> str:
        """The parameters, with three digits each."""
        return f"Beta({number(self.a)}, {number(self.b)})"

    def __repr__(self) -> str:
        return f"Beta({self.a:.6g}, {self.b:.6g})"


class Uniform(DirichletBelief):
    """Every point of the simplex equally likely: Dirichlet(1, ..., 1), or Beta(1, 1) for two classes.

    Example:
        >>> from selbo.summary.partitions import ScoreBins
        >>> Uniform().masses(ScoreBins.equal(4))
        tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """

    def dirichlet(self, num_classes: int) -> FloatArray:
        """Ones, shape (K,)."""
        return np.ones(num_classes)

    def label(self) -> str:
        """The word ``uniform``."""
        return "uniform"

    def __repr__(self) -> str:
        return "Uniform()"


class Masses(Belief):
    """A histogram stated directly, one mass per region.

    Args:
        values: Positive numbers that sum to one.
        uncertainty: Tolerance of each mass: with .05, a mass of .5 allows any value from .45 to .55, and a summary
            with this belief does not prefer any of these values.

    Example:
        >>> from selbo.summary.partitions import ScoreBins
        >>> Masses([0.2, 0.3, 0.5]).masses(ScoreBins([0.1, 0.9]))
        tensor([0.2000, 0.3000, 0.5000], dtype=torch.float64)
    """

    def __init__(self, values: Sequence[float], *, uncertainty: float = 0.0) -> None:
        self.values = _checks.simplex("values", values)
        self.uncertainty = _checks.uncertainty("uncertainty", uncertainty)

    def masses(self, partition: Partition) -> Tensor:
        """The stated masses, float64, shape (R,)."""
        if len(self.values) != partition.num_regions:
            raise ValueError(
                f"`{self!r}` states {len(self.values)} masses, but the partition has {partition.num_regions} regions: "
                "give one mass per region"
            )
        return normalised_masses(self, np.array(self.values), partition)

    def __repr__(self) -> str:
        give_or_take = f", uncertainty={self.uncertainty:g}" if self.uncertainty else ""
        return f"Masses({short_list(self.values)}{give_or_take})"


class Empirical(Belief):
    """The histogram of given predictions, for example of an earlier model or of another site.

    The mass of a region is (count + smoothing) / (total + R x smoothing), where count is the number of predictions in
    the region.

    Args:
        log_probs: Log-probabilities, shape (..., B, K); leading dimensions are pooled.
        smoothing: Pseudo-count per region; positive, so that a region without predictions stays possible.

    Example:
        >>> from selbo.summary.partitions import ScoreBins
        >>> scores = torch.tensor([0.1, 0.2, 0.9])
        >>> earlier = Empirical(torch.stack([1 - scores, scores], -1).log())
        >>> earlier.masses(ScoreBins([0.5]))
        tensor([0.6250, 0.3750], dtype=torch.float64)
    """

    def __init__(self, log_probs: Tensor, *, smoothing: float = EMPIRICAL_SMOOTHING) -> None:
        self.smoothing = _checks.positive("smoothing", smoothing)
        num_classes = log_probs.shape[-1] if _checks.floating("log_probs", log_probs).ndim else 0
        _checks.log_probs(log_probs, num_classes=num_classes, validate=True)
        self.num_classes = num_classes
        self.log_probs = log_probs.detach().cpu().clone()

    def masses(self, partition: Partition) -> Tensor:
        """The smoothed histogram, float64, shape (R,)."""
        if self.log_probs.shape[-1] != partition.num_classes:
            raise ValueError(
                f"`{self!r}` holds predictions of {self.log_probs.shape[-1]} classes, but the partition has "
                f"{partition.num_classes}: use a partition with the same number of classes"
            )
        regions = partition.assign(self.log_probs).flatten()
        counts = np.bincount(regions.numpy(), minlength=partition.num_regions) + self.smoothing
        return normalised_masses(self, np.asarray(counts / counts.sum()), partition)

    def mean_probabilities(self, num_classes: int) -> tuple[float, ...]:
        """Mean of the predictions, shape (K,)."""
        return tuple(self.log_probs.double().exp().reshape(-1, num_classes).mean(0).tolist())

    def to_dict(self) -> dict[str, Any]:
        """Type and arguments as plain data; predictions are represented by shape and digest."""
        content = self.log_probs.double().contiguous().numpy().tobytes()
        predictions = {"shape": list(self.log_probs.shape), "sha256": hashlib.sha256(content).hexdigest()}
        return {
            "type": type_name(type(self)),
            "arguments": {"smoothing": self.smoothing},
            "predictions": predictions,
        }

    def __repr__(self) -> str:
        return f"Empirical({self.log_probs.shape[:-1].numel()} predictions, smoothing={self.smoothing:g})"


def _stated(class_fractions: Sequence[float] | None, num_classes: int) -> tuple[float, ...] | None:
    if class_fractions is None:
        return None
    if len(_checks.simplex("class_fractions", class_fractions)) != num_classes:
        raise ValueError(
            f"`class_fractions` must hold {num_classes} numbers, one per class, but got {len(class_fractions)}"
        )
    return tuple(float(each) for each in class_fractions)
