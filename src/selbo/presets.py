"""Training methods by name: their objectives, and summaries from an accuracy and class fractions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from torch import nn

from selbo import _checks
from selbo.objectives import ELBO, CrossEntropy, Evidential, LabelShift, LabelSmoothing, Objective, SummaryELBO
from selbo.objectives.factories import Summaries
from selbo.posteriors import NaturalGradientPosterior
from selbo.summary.beliefs import Belief, Masses
from selbo.summary.description import is_by_class
from selbo.summary.elicitation import expect
from selbo.summary.likelihood import DEFAULT_CONCENTRATION_PER_LABEL, SummaryLikelihood
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

SMOOTHING: Final = 0.1
INIT_STD: Final = 0.03
"""Initial standard deviation of posteriors."""

MEAN_FIELD: Final = "mean_field"
NATURAL_GRADIENT: Final = "natural_gradient"
POSTERIORS: Final = (MEAN_FIELD, NATURAL_GRADIENT)
"""Ways to train the posterior of a Bayesian method."""

TABULAR_RATE: Final = 0.1
"""Learning rate of a natural gradient for tables; docs/tutorials/tables.md has the values that were tried."""

NATURAL_BETAS: Final = (0.9, 0.999)
"""Decays of its averages: tables are trained for some thousand steps, in which the curvature must be found."""


NUM_BINS: Final = 10
MOST_CORNERS: Final = 20
"""Largest number of classes with separate regions for each class; with more, regions depend only on confidence."""

CONFIDENCE_EDGES: Final = (0.3, 0.5, 0.7, 0.9)

MOST_CONCENTRATION: Final = 1000.0
"""Largest default concentration of a belief about the training rows; more rows do not make the belief more certain."""


@dataclass(frozen=True)
class Method:
    """A training method: its title, whether the network is Bayesian, and whether it uses a belief."""

    title: str
    bayesian: bool
    believes: bool


METHODS: Final = {
    "summary_elbo": Method("Summary ELBO", bayesian=True, believes=True),
    "elbo": Method("ELBO", bayesian=True, believes=False),
    "plain": Method("deterministic", bayesian=False, believes=False),
    "plain_summary": Method("deterministic + summary", bayesian=False, believes=True),
    "label_smoothing": Method("label smoothing", bayesian=False, believes=False),
    "evidential": Method("evidential", bayesian=False, believes=False),
}


def objective_for(
    method: str,
    *,
    num_data: int,
    steps: int,
    summary: Summaries | None = None,
    kl_weight: float = 1.0,
    summary_weight: float = 1.0,
    label_shift: LabelShift | None = None,
) -> Objective:
    """Build the objective of a method.

    Args:
        method: One of `METHODS`.
        num_data: N, the number of training examples.
        steps: Number of steps of the run; the divergence of the evidential method grows over the first half of them.
        summary: One or several summaries, for the methods that use a belief.
        kl_weight: Factor of the KL divergence of a posterior.
        summary_weight: Factor of the summary term.
        label_shift: Class fractions of the labels and of the unlabelled inputs of the summary, if they differ.
    """
    believes = METHODS[_checks.one_of("method", method, METHODS)].believes
    if believes and summary is None:
        raise ValueError(f"`summary` must be given for the method {method!r}, which uses a belief")
    if method == "elbo":
        return ELBO(num_data, kl_weight=kl_weight)
    if method == "label_smoothing":
        return LabelSmoothing(SMOOTHING, num_data)
    if method == "evidential":
        return Evidential(num_data, annealing_steps=max(1, steps // 2))
    if method == "summary_elbo":
        assert summary is not None
        return SummaryELBO(
            summary, num_data, kl_weight=kl_weight, summary_weight=summary_weight, label_shift=label_shift
        )
    if method == "plain_summary":
        return CrossEntropy(num_data, summary, summary_weight=summary_weight, label_shift=label_shift)
    return CrossEntropy(num_data)


def natural_gradient_for(
    network: nn.Module, *, num_data: int, kl_weight: float, prior_std: float
) -> NaturalGradientPosterior:
    """A posterior that a natural gradient trains by the objective of the mean-field posterior, for tables.

    The mean field minimises N times the loss plus ``kl_weight`` times the KL. This is the objective of a natural
    gradient at the temperature ``kl_weight``, for a prior that is wider by its root.

    Args:
        network: The network; not copied.
        num_data: N, the number of training examples.
        kl_weight: Factor of the KL divergence; positive.
        prior_std: Standard deviation of the prior.
    """
    return NaturalGradientPosterior(
        network,
        num_data=num_data,
        prior_std=prior_std / kl_weight**0.5,
        initial_curvature=kl_weight / (num_data * INIT_STD**2),
        betas=NATURAL_BETAS,
        temperature=kl_weight,
    )


def partition_for(num_classes: int) -> Partition:
    """Default partition for a belief about confidence, by number of classes."""
    if num_classes == 2:
        return ScoreBins.equal(NUM_BINS)
    if num_classes <= MOST_CORNERS:
        return CornerShells(num_classes)
    return ConfidenceBins(CONFIDENCE_EDGES, num_classes=num_classes)


def summary_for(
    class_fractions: Sequence[float],
    *,
    accuracy: float | None,
    concentration: float,
    belief: Belief | None = None,
    partition: Partition | None = None,
    fraction_uncertainty: float = 0.0,
) -> SummaryLikelihood:
    """Build a summary of confidence and classes or, without an accuracy or a belief, of classes alone.

    Args:
        class_fractions: Fraction of each class, shape (K,).
        accuracy: Achievable accuracy, if known.
        concentration: Strength of the belief, in pseudo-observations; not limited to the number of labels.
        belief: Belief to use instead of the one from accuracy and fractions.
        partition: Partition to use instead of the default for the number of classes.
        fraction_uncertainty: Tolerance of each fraction, for a summary of class fractions alone.

    Example:
        >>> summary_for([0.7, 0.3], accuracy=None, concentration=10.0).s0
        tensor([0.7000, 0.3000], dtype=torch.float64)
        >>> len(summary_for([0.7, 0.3], accuracy=0.9, concentration=10.0).s0)
        10
    """
    count = len(class_fractions)
    if belief is None and accuracy is not None:
        belief = expect(accuracy, class_fractions=class_fractions)
    if belief is None:
        if partition is not None and not is_by_class(partition):
            raise ValueError(
                f"`partition` is {type(partition).__name__}, but no belief about confidence was given: "
                "pass `accuracy` or `belief` too"
            )
        belief = Masses(class_fractions, uncertainty=fraction_uncertainty)
        partition = partition or ClassRegions(count)
    partition = partition or partition_for(count)
    return SummaryLikelihood(partition, belief, concentration, overrule_labels=True)


def summaries_for(
    class_fractions: Sequence[float],
    *,
    stated: bool,
    accuracy: float | None,
    concentration: float,
    belief: Belief | None = None,
    partition: Partition | None = None,
    fraction_uncertainty: float = 0.0,
) -> list[SummaryLikelihood]:
    """Build one summary, or two if the regions of confidence carry no information about stated class fractions.

    Args:
        class_fractions: Fraction of each class, shape (K,).
        stated: Whether the user stated the class fractions.
        accuracy: Achievable accuracy, if known.
        concentration: Strength of each summary, in pseudo-observations.
        belief: Belief to use instead of the one from accuracy and fractions.
        partition: Partition to use instead of the default for the number of classes.
        fraction_uncertainty: Tolerance of each fraction, for a summary of class fractions alone.

    Example:
        >>> rare = [0.5, *([0.5 / 29] * 29)]
        >>> [
        ...     len(each.s0)
        ...     for each in summaries_for(rare, stated=True, accuracy=0.8, concentration=10.0)
        ... ]
        [5, 30]
    """
    first = summary_for(
        class_fractions,
        accuracy=accuracy,
        concentration=concentration,
        belief=belief,
        partition=partition,
        fraction_uncertainty=fraction_uncertainty,
    )
    unseen = partition is None and accuracy is not None and len(class_fractions) > MOST_CORNERS
    if not (stated and unseen):
        return [first]
    first.name = "confidence"
    second = summary_for(
        class_fractions, accuracy=None, concentration=concentration, fraction_uncertainty=fraction_uncertainty
    )
    second.name = "fractions"
    return [first, second]


def default_concentration(num_labels: float, *, elsewhere: bool = False) -> float:
    """Default concentration of a belief (docs/tutorials/tables.md).

    A belief about the labelled rows weighs as much as their labels, but at most 1000. A belief about unlabelled rows
    weighs 0.3 per label: no label can contradict it, and with this weight a wrong belief does little harm.

    Args:
        num_labels: Number of labelled rows.
        elsewhere: Whether the belief is about unlabelled rows.

    Example:
        >>> (
        ...     default_concentration(50),
        ...     default_concentration(8000),
        ...     default_concentration(8000, elsewhere=True),
        ... )
        (50.0, 1000.0, 2400.0)
    """
    return DEFAULT_CONCENTRATION_PER_LABEL * num_labels if elsewhere else min(float(num_labels), MOST_CONCENTRATION)


def below_guessing(
    accuracy: float, class_fractions: Sequence[float], labels: Sequence[object], *, tolerance: float = 0.0
) -> str:
    """Warning if a constant classifier would reach the stated accuracy; otherwise an empty string.

    Args:
        accuracy: Stated accuracy.
        class_fractions: Fraction of each class, shape (K,).
        labels: Name of each class.
        tolerance: Amount by which the accuracy may lie below the largest fraction.

    Example:
        >>> below_guessing(0.8, [0.9, 0.1], ["healthy", "ill"])[:54]
        'Always saying “healthy” would be right in 90 % of case'
        >>> below_guessing(0.95, [0.9, 0.1], ["healthy", "ill"])
        ''
    """
    share = max(class_fractions)
    likeliest = labels[list(class_fractions).index(share)]
    if accuracy > share - tolerance:
        return ""
    return (
        f"Always saying “{likeliest}” would be right in {100 * share:.3g} % of cases, which is no less than the "
        f"expected accuracy of {100 * accuracy:.3g} %: one of the two numbers cannot be meant."
    )
