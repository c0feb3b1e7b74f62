"""Ways to train a classifier, by name: the objective of each, and the summary of what a user said in plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from selbo import _checks
from selbo.objectives import ELBO, CrossEntropy, Evidential, LabelShift, LabelSmoothing, Objective, SummaryELBO
from selbo.objectives.factories import Summaries
from selbo.summary.beliefs import Belief, Masses
from selbo.summary.description import is_by_class
from selbo.summary.elicitation import expect
from selbo.summary.likelihood import DEFAULT_TRUST, SummaryLikelihood
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

SMOOTHING: Final = 0.1
INIT_STD: Final = 0.03
"""Standard deviation that posteriors start from."""

NUM_BINS: Final = 10
MOST_CORNERS: Final = 20
"""Classes up to which every class has regions of its own; with more of them, only confidence is spoken of."""

CONFIDENCE_EDGES: Final = (0.3, 0.5, 0.7, 0.9)

FRACTION_UNCERTAINTY: Final = 0.05
"""How far stated class fractions of unlabelled rows may be off, by default: chosen together with `DEFAULT_TRUST`."""

MOST_TRUST: Final = 1000.0
"""Highest concentration that is chosen for a belief about the training rows: more of them do not make it surer."""


@dataclass(frozen=True)
class Method:
    """A way to train: its title, whether the network gets a posterior, whether it is told what is believed."""

    title: str
    bayesian: bool
    believes: bool


METHODS: Final = {
    "summary_elbo": Method("Summary ELBO", bayesian=True, believes=True),
    "elbo": Method("ELBO", bayesian=True, believes=False),
    "plain": Method("plain", bayesian=False, believes=False),
    "plain_summary": Method("plain + summary", bayesian=False, believes=True),
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
    """What a method maximises.

    Args:
        method: One of `METHODS`.
        num_data: N, the number of training examples.
        steps: Of the run; the divergence of the evidential method grows over the first half of them.
        summary: What is believed, for the methods that believe.
        kl_weight: Factor of the KL divergence of a posterior.
        summary_weight: Factor of the summary term.
        label_shift: Class fractions of the labels and of the unlabelled inputs that the summary is about, if these
            differ.
    """
    believes = METHODS[_checks.one_of("method", method, METHODS)].believes
    if believes and summary is None:
        raise ValueError(f"`summary` must be given for the method {method!r}, which is told what is believed")
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


def partition_for(num_classes: int) -> Partition:
    """Regions that suit a number of classes, where confidence is spoken of."""
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
    """The summary of what was said: of confidence and classes, or, without an accuracy or a belief, of classes alone.

    Args:
        class_fractions: Fraction of each class, shape (K,).
        accuracy: How accurate anyone can be, if that is known.
        concentration: Strength of the belief, in pseudo-observations; it is not limited any more.
        belief: In the place of the belief that accuracy and fractions give.
        partition: In the place of the regions that suit the number of classes.
        fraction_uncertainty: How far each fraction may be off, where class fractions alone are believed.

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
                f"`partition` is {type(partition).__name__}, but nothing was said of how sure predictions should be: "
                "give `accuracy` or `belief` too"
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
    """The summaries of what was said: one, or two where the regions of confidence do not see stated class fractions.

    Args:
        class_fractions: Fraction of each class, shape (K,).
        stated: Whether a user stated them.
        accuracy: See `summary_for`, as for all others.
        concentration: Of each summary.
        belief: Instead of accuracy and fractions.
        partition: Instead of the regions that suit the number of classes.
        fraction_uncertainty: How far each fraction may be off, where class fractions alone are believed.

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


def trust_for(num_labels: float, *, elsewhere: bool = False) -> float:
    """Concentration of a belief, if none is given (docs/sklearn.md).

    A belief about the labelled rows weighs as much as their labels, and 1000 at most. No label can contradict one about
    unlabelled rows, so that weighs less than a third of it: if it is wrong, it does little harm.

    Args:
        num_labels: How many rows have one.
        elsewhere: Whether the belief is about unlabelled rows.

    Example:
        >>> trust_for(50), trust_for(8000), trust_for(8000, elsewhere=True)
        (50.0, 1000.0, 2400.0)
    """
    return DEFAULT_TRUST * num_labels if elsewhere else min(float(num_labels), MOST_TRUST)


def uncertainty_for(class_fractions: Sequence[float]) -> float:
    """How far stated class fractions of unlabelled rows may be off, if nothing is said: .05, or half of the smallest.

    Example:
        >>> uncertainty_for([0.5, 0.5]), uncertainty_for([0.98, 0.02])
        (0.05, 0.01)
    """
    return min(FRACTION_UNCERTAINTY, min(class_fractions) / 2)


def below_guessing(
    accuracy: float, class_fractions: Sequence[float], labels: Sequence[object], *, tolerance: float = 0.0
) -> str:
    """A sentence if always saying the most frequent class would be as accurate as what was stated; else none.

    Args:
        accuracy: How accurate anyone can be, as stated.
        class_fractions: Fraction of each class, shape (K,).
        labels: Name of each class.
        tolerance: How far the accuracy may lie below the largest fraction.

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
