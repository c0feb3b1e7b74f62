"""Description of a summary before training: what it claims about predictions, and how far they may deviate."""

from dataclasses import dataclass

import numpy as np

from selbo import _checks
from selbo._numerics import FloatArray
from selbo.summary._dirichlet import largest_entry
from selbo.summary.beliefs import Belief
from selbo.summary.partitions import SAME_EDGE, Partition

Range = tuple[float, float]


@dataclass(frozen=True)
class Claims:
    """Claims of a summary about the predictions for its inputs.

    Attributes:
        belief: The ``repr`` of the belief.
        concentration: Weight of the belief in training, in pseudo-observations; not an uncertainty of the claims.
        num_inputs: B, the number of inputs for ``low`` and ``high``; None for the limit of many.
        level: Probability of each range from ``low`` to ``high``.
        masses: s0, one number per region.
        low: Lower end of the expected fraction of B predictions in each region.
        high: Upper end of the same.
        distance: Expected total variation distance between the histogram of B predictions and s0.
        accuracy: Expected accuracy of a calibrated classifier with such predictions: two equal numbers, or bounds if
            the regions do not determine it; None if they carry no information about it.
        fractions: Fraction of predictions of each class, in the same form.
        label_fractions: Fraction of labels of each class, in the same form: the stated fraction or, if there is none,
            the mean probability, which equals the fraction of the labels if predictions are calibrated.
        confidence: Bands of the largest probability, (from, to, fraction of the predictions), highest first; empty if
            the regions carry no information about it.
        mean_probabilities: Mean probability of each class, if the belief is a distribution or holds predictions.
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
    label_fractions: tuple[Range, ...] | None
    confidence: tuple[tuple[float, float, float], ...]
    mean_probabilities: tuple[float, ...] | None = None

    def __str__(self) -> str:
        lines = [f"{self.belief}, with the weight of {self.concentration:g} observations, says:"]
        if self.fractions is not None:
            shares = ", ".join(f"class {k} {_between(*share)}" for k, share in enumerate(self.fractions))
            lines.append(f"- predicted classes: {shares}")
            if self.mean_probabilities is not None and _apart(self.mean_probabilities, self.fractions):
                means = ", ".join(f"class {k} {_percent(mean)}" for k, mean in enumerate(self.mean_probabilities))
                lines.append(f"- mean probabilities: {means}")
        if self.accuracy is not None:
            lines.append(f"- right, if calibrated: {_between(*self.accuracy)} of the time")
            most = max((low for low, _ in self.label_fractions or ()), default=0.0)
            if self.accuracy[1] < most - 5e-4:
                lines.append(
                    "- too low: a constant prediction of the most frequent class would be right "
                    f"{_percent(most)} of the time"
                )
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


def compute_claims(
    belief: Belief,
    partition: Partition,
    *,
    masses: FloatArray,
    concentration: float,
    num_inputs: int | None = None,
    level: float = 0.95,
) -> Claims:
    r"""Compute the claims of a belief on a partition.

    The likelihood $\mathrm{Dir}(s_0 \mid \alpha h)$ as a function of the histogram $h$ is, to leading order in
    $1/\alpha$, that of a Dirichlet distribution of $h$ around $s_0$ with the same concentration. The fractions of $B$
    predictions are then Dirichlet-multinomial, and that of one region is beta-binomial. ``low``, ``high`` and
    ``distance`` are computed from it.

    Args:
        belief: The belief.
        partition: The regions.
        masses: s0.
        concentration: Strength of the belief, alpha.
        num_inputs: B; None for the limit of many.
        level: Probability of the ranges.
    """
    if num_inputs is not None:
        _checks.whole("num_inputs", num_inputs, at_least=1)
    _checks.fraction("level", level, low=0.0, high=1.0)
    parameters = belief.dirichlet(partition.num_classes)
    known = None if parameters is None else largest_entry(parameters)
    bands = _bands(partition, masses)
    pairs = [(mass, np.delete(masses, r).sum()) for r, mass in enumerate(masses)]  # 1 - mass may round to 0
    ranges = [_range(*each, concentration, num_inputs, level) for each in pairs]
    accuracy = None
    if bands:
        accuracy = accuracy_range(partition, masses) if known is None else (known.expected, known.expected)
    fractions = _fractions(partition, masses)
    if fractions is not None and known is not None:
        fractions = tuple((float(share), float(share)) for share in known.probabilities)
    means = belief.mean_probabilities(partition.num_classes)
    return Claims(
        belief=repr(belief),
        concentration=concentration,
        num_inputs=num_inputs,
        level=level,
        masses=tuple(masses.tolist()),
        low=tuple(low for low, _ in ranges),
        high=tuple(high for _, high in ranges),
        distance=float(sum(_mean_deviation(*each, concentration, num_inputs) for each in pairs) / 2),
        accuracy=accuracy,
        fractions=fractions,
        label_fractions=None if fractions is None else _label_fractions(belief, partition, masses, means),
        confidence=tuple(bands),
        mean_probabilities=means,
    )


def _label_fractions(
    belief: Belief, partition: Partition, masses: FloatArray, means: tuple[float, ...] | None
) -> tuple[Range, ...] | None:
    exact = belief.class_fractions or means
    if exact is not None:
        return tuple((share, share) for share in exact)
    bounds = partition.mean_bounds(masses)
    return None if bounds is None else tuple((low, high) for low, high in bounds.tolist())


def _range(mass: float, rest: float, concentration: float, num_inputs: int | None, level: float) -> Range:
    """Central range of a beta or, for B inputs, a beta-binomial variable divided by B; ``rest`` is 1 - mass."""
    from scipy.special import betaincinv

    a, b, ends = concentration * mass, concentration * rest, ((1 - level) / 2, (1 + level) / 2)
    if num_inputs is None:
        return float(betaincinv(a, b, ends[0])), float(betaincinv(a, b, ends[1]))
    below = _beta_binomial(a, b, num_inputs).cumsum()
    low, high = (int(np.searchsorted(below, end * below[-1])) for end in ends)
    return low / num_inputs, high / num_inputs


def _mean_deviation(mass: float, rest: float, concentration: float, num_inputs: int | None) -> float:
    """Mean absolute deviation of this variable from its mean."""
    from scipy.special import betaln

    mass, rest = min(mass, rest), max(mass, rest)  # that of 1 less the variable is the same
    a, b = concentration * mass, concentration * rest
    if num_inputs is None:  # of a beta variable: 2 m^a (1 - m)^b / ((a + b) B(a, b)), m its mean
        return float(2 * np.exp(a * np.log(mass) + b * np.log(rest) - betaln(a, b)) / concentration)
    shares = np.arange(num_inputs + 1) / num_inputs
    return float(_beta_binomial(a, b, num_inputs) @ np.abs(shares - mass))


def _beta_binomial(a: float, b: float, total: int) -> FloatArray:
    """Probabilities of 0 to ``total`` successes."""
    from scipy.special import betaln, gammaln

    count = np.arange(total + 1)
    ways = gammaln(total + 1) - gammaln(count + 1) - gammaln(total - count + 1)
    return np.asarray(np.exp(ways + betaln(count + a, total - count + b) - betaln(a, b)))


def _bands(partition: Partition, masses: FloatArray) -> list[tuple[float, float, float]]:
    """Bands of the largest probability and their masses, highest first; regions of the same band are merged."""
    if not tells_confidence(partition):
        return []
    limits = partition.confidence_bounds()
    found: list[tuple[float, float, float]] = []
    for (low, high), mass in sorted(zip(limits.tolist(), masses.tolist(), strict=True), reverse=True):
        if found and abs(found[-1][0] - low) < SAME_EDGE and abs(found[-1][1] - high) < SAME_EDGE:
            found[-1] = (*found[-1][:2], found[-1][2] + mass)
        else:
            found.append((low, high, mass))
    return found


def _fractions(partition: Partition, masses: FloatArray) -> tuple[Range, ...] | None:
    """Fraction of predictions of each class, as far as the regions determine it."""
    if not tells_class(partition):
        return None
    return tuple((low, high) for low, high in class_ranges(partition, masses).tolist())


def _apart(means: tuple[float, ...], shares: tuple[Range, ...]) -> bool:
    """Whether mean probabilities differ visibly, at the printed precision, from the fractions of predictions."""
    return any(mean < low - 5e-4 or mean > high + 5e-4 for mean, (low, high) in zip(means, shares, strict=True))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _between(low: float, high: float) -> str:
    return _percent(low) if high - low < 5e-4 else f"{_percent(low)} to {_percent(high)}"


# --- information in the regions of a partition: values, or bounds where the regions do not determine them ---


def tells_confidence(partition: Partition) -> bool:
    """Whether the regions carry information about the confidence of a prediction."""
    return bool((partition.confidence_bounds() != [1 / partition.num_classes, 1.0]).any())


def tells_class(partition: Partition) -> bool:
    """Whether the regions carry information about the predicted class."""
    return any(each is not None for each in partition.predicted_class())


def is_by_class(partition: Partition) -> bool:
    """Whether the regions are those of the predicted classes, in their order, as in `ClassRegions`."""
    return partition.predicted_class() == list(range(partition.num_classes))


def accuracy_range(partition: Partition, masses: FloatArray) -> tuple[float, float]:
    """Bounds on the accuracy of a calibrated classifier with this histogram."""
    low, high = masses @ partition.confidence_bounds()
    return float(low), float(high)


def class_ranges(partition: Partition, masses: FloatArray) -> FloatArray:
    """Smallest and largest fraction of predictions of each class that the histogram allows, shape (K, 2)."""
    owners = list(zip(masses.tolist(), partition.predicted_class(), strict=True))
    least = np.array([sum(mass for mass, k in owners if k == each) for each in range(partition.num_classes)])
    undecided = sum(mass for mass, k in owners if k is None)
    return np.stack([least, least + undecided], -1)
