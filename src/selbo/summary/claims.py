"""What a summary claims, in words and numbers, before anything is trained; and how far off it lets predictions be."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from selbo import checks
from selbo.summary.beliefs import Belief, Beta, Dirichlet, Uniform
from selbo.summary.dirichlet import Array, LargestEntry, largest_entry
from selbo.summary.partitions import Partition
from selbo.summary.ranges import SAME_EDGE, accuracy_range, class_ranges, confidence_ranges, predicted_class

Range = tuple[float, float]

MEAN_DEVIATION: Final = math.sqrt(2 / math.pi)
"""Mean distance of a normal variable from its mean, in standard deviations."""


@dataclass(frozen=True)
class Claims:
    """What a summary says of the predictions for the inputs it is about.

    Attributes:
        belief: The belief, as it prints itself.
        concentration: Trust in it, in pseudo-observations.
        num_inputs: B, the number of inputs that ``low`` and ``high`` are about; None for very many.
        level: Probability of each of these ranges.
        masses: s0, one number a region.
        low: Share of B predictions in each region that the belief still expects, lower end.
        high: The same, upper end.
        distance: Distance (total variation) from s0 at which it expects the histogram of B predictions, on average.
        accuracy: Expected accuracy of a calibrated classifier with such predictions: two equal numbers, or bounds where
            the regions leave it open; None if they say nothing about it.
        fractions: How often each class is predicted, likewise.
        confidence: Bands of the largest probability, (from, to, share of the predictions), highest first; empty if the
            regions say nothing about it.
    """

    belief: str
    concentration: float
    num_inputs: int | None
    level: float
    masses: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    distance: float
    accuracy: Range | None
    fractions: tuple[Range, ...] | None
    confidence: tuple[tuple[float, float, float], ...]

    def __str__(self) -> str:
        lines = [f"{self.belief}, trusted like {self.concentration:g} observations, says:"]
        if self.fractions is not None:
            shares = ", ".join(f"class {k} {_between(*share)}" for k, share in enumerate(self.fractions))
            lines.append(f"- predicted classes: {shares}")
        if self.accuracy is not None:
            lines.append(f"- right, if calibrated: {_between(*self.accuracy)} of the time")
        lines += [
            f"- confidence from {low:.3g} to {high:.3g}: {_percent(share)} of the predictions"
            for low, high, share in self.confidence
        ]
        many = "very many" if self.num_inputs is None else f"{self.num_inputs}"
        widest = max(range(len(self.masses)), key=lambda region: self.high[region] - self.low[region])
        lines.append(
            f"- of {many} predictions, {_percent(self.distance)} may well lie in other regions than this says; region "
            f"{widest} may hold {_between(self.low[widest], self.high[widest])} ({_percent(self.level)} range)"
        )
        return "\n".join(lines)


def claims_of(
    belief: Belief,
    partition: Partition,
    *,
    masses: Array,
    concentration: float,
    num_inputs: int | None = None,
    level: float = 0.95,
) -> Claims:
    r"""What a belief claims on a partition.

    The likelihood $\mathrm{Dir}(s_0 \mid \alpha h)$ as a function of the histogram $h$ is, to leading order in
    $1/\alpha$, that of a Dirichlet distribution of $h$ around $s_0$ with the same concentration; the shares of $B$
    predictions are then Dirichlet-multinomial, and that of one region beta-binomial, which is where ``low``, ``high``
    and ``distance`` come from.

    Args:
        belief: The belief.
        partition: The regions.
        masses: s0.
        concentration: Trust in the belief, alpha.
        num_inputs: B; None for very many.
        level: Probability of the ranges.
    """
    if num_inputs is not None:
        checks.whole("num_inputs", num_inputs, at_least=1)
    checks.fraction("level", level, low=0.0, high=1.0)
    known = _largest_entry(belief, partition.num_classes)
    bands = _bands(partition, masses)
    ranges = [_range(mass, concentration, num_inputs, level) for mass in masses]
    spread = (num_inputs + concentration) / num_inputs if num_inputs else 1.0
    variances = masses * (1 - masses) / (1 + concentration) * spread
    accuracy = None
    if bands:
        accuracy = accuracy_range(partition, masses) if known is None else (known.expected, known.expected)
    fractions = _fractions(partition, masses)
    if fractions is not None and known is not None:
        fractions = tuple((float(share), float(share)) for share in known.probabilities)
    return Claims(
        belief=repr(belief),
        concentration=concentration,
        num_inputs=num_inputs,
        level=level,
        masses=tuple(masses.tolist()),
        low=tuple(low for low, _ in ranges),
        high=tuple(high for _, high in ranges),
        distance=float(MEAN_DEVIATION * np.sqrt(variances).sum() / 2),
        accuracy=accuracy,
        fractions=fractions,
        confidence=tuple(bands),
    )


def _largest_entry(belief: Belief, num_classes: int) -> LargestEntry | None:
    if isinstance(belief, Beta):
        return largest_entry(np.array([belief.b, belief.a]))
    if isinstance(belief, Dirichlet):
        return largest_entry(np.array(belief.concentration))
    return largest_entry(np.ones(num_classes)) if isinstance(belief, Uniform) else None


def _range(mass: float, concentration: float, num_inputs: int | None, level: float) -> Range:
    """Central range of a beta or, for B inputs, a beta-binomial variable divided by B."""
    from scipy.special import betaincinv, betaln, gammaln

    a, b, ends = concentration * mass, concentration * (1 - mass), ((1 - level) / 2, (1 + level) / 2)
    if num_inputs is None:
        return float(betaincinv(a, b, ends[0])), float(betaincinv(a, b, ends[1]))
    count = np.arange(num_inputs + 1)
    ways = gammaln(num_inputs + 1) - gammaln(count + 1) - gammaln(num_inputs - count + 1)
    below = np.exp(ways + betaln(count + a, num_inputs - count + b) - betaln(a, b)).cumsum()
    low, high = (int(np.searchsorted(below, end * below[-1])) for end in ends)
    return low / num_inputs, high / num_inputs


def _bands(partition: Partition, masses: Array) -> list[tuple[float, float, float]]:
    """Bands of the largest probability and their masses, highest first; regions of the same band together."""
    limits = confidence_ranges(partition)
    if (limits == [1 / partition.num_classes, 1.0]).all():
        return []  # they do not tell
    found: list[tuple[float, float, float]] = []
    for (low, high), mass in sorted(zip(limits.tolist(), masses.tolist(), strict=True), reverse=True):
        if found and abs(found[-1][0] - low) < SAME_EDGE and abs(found[-1][1] - high) < SAME_EDGE:
            found[-1] = (*found[-1][:2], found[-1][2] + mass)
        else:
            found.append((low, high, mass))
    return found


def _fractions(partition: Partition, masses: Array) -> tuple[Range, ...] | None:
    """How often each class is predicted, as far as the regions tell."""
    if all(each is None for each in predicted_class(partition)):
        return None
    return tuple((low, high) for low, high in class_ranges(partition, masses).tolist())


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _between(low: float, high: float) -> str:
    return _percent(low) if high - low < 5e-4 else f"{_percent(low)} to {_percent(high)}"
