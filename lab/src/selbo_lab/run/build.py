"""From the words of a study to the things of the library: network, partition, belief, objective."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

import torch
from torch import Tensor, nn

from selbo import (
    ELBO,
    Belief,
    Beta,
    ClassRegions,
    ConfidenceBins,
    CornerShells,
    CrossEntropy,
    Empirical,
    Evidential,
    LabelShift,
    LabelSmoothing,
    Masses,
    Partition,
    ScoreBins,
    SummaryELBO,
    SummaryLikelihood,
    Uniform,
    expect,
    to_bayesian,
)
from selbo.models import MLP, VGG11, ConvNet, LeNet
from selbo.nn import Relative, gaussians
from selbo.objectives import EntropyMinimisation, ExpectationRegularisation, Objective
from selbo.random import generator_for
from selbo_lab import checks, published
from selbo_lab.data.cifar import IMBALANCE
from selbo_lab.data.cifar_files import CLASSES
from selbo_lab.data.imbalance import class_fractions
from selbo_lab.studies.run_spec import DataSpec, ModelSpec, Recipe

EQUAL_EDGES: Final = tuple(i / 10 for i in range(1, 10))
UNEQUAL_EDGES: Final = (0.01, 0.05, 0.10, 0.90, 0.95, 0.99)
"""The two layouts of the paper's binary experiments."""

CONFIDENCE_EDGES: Final = (0.3, 0.5, 0.7, 0.85, 0.95)

PUBLISHED_MEAN_STD: Final = 0.1
PUBLISHED_RHO: Final = (-3.0, 0.1)
"""Where posteriors start in the paper's code: means from N(0, .1²), rho from N(-3, .1²)."""

SMALLEST_RELATIVE_STD: Final = 1e-20
"""Of weights that start at zero, in the paper's code: they have no spread to speak of."""

KNOWN_FRACTIONS: Final = {"cifar10-im": dict(zip(CLASSES, class_fractions(IMBALANCE), strict=True))}
"""Class fractions that a user is told, by data set and class; classes are equally frequent in the others."""

BELIEF: Final = re.compile(r"(uniform|fractions|beta|expect|shells|empirical)(?:\(([^();]*)(?:;([^();]*))?\))?")
NUMBERS: Final = {"uniform": 0, "beta": 2, "shells": 3, "empirical": 0}
"""How many numbers a belief has; `expect` and `fractions` have words for some."""

MOST_STATED: Final = 0.995
"""Accuracy that nobody states more than, however far off the belief is meant to be."""

AT_USE: Final = re.compile(r"use([+-][0-9.]+)?")


class Told(NamedTuple):
    """What a user is told of the place that a belief is about.

    Attributes:
        fractions: Of each class.
        accuracy: Share of the cases that can be decided; 0 if nothing is said of it.
        elsewhere: Class fractions of the place that labels come from.
        counts: Number of training labels of each class; nothing is known of them if empty.
    """

    fractions: tuple[float, ...]
    accuracy: float = 0.0
    elsewhere: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


def told_of(data: DataSpec | str, num_classes: int) -> Told:
    """What is known of a data set: where labels come from elsewhere, of the place of use."""
    case = DataSpec(data) if isinstance(data, str) else data
    known = tuple(KNOWN_FRACTIONS.get(case.name, {}).values()) or (1 / num_classes,) * num_classes
    stated = _shifted(case.use_fractions or known, case.fractions_off)
    return Told(stated, case.use_accuracy, case.label_fractions or known)


def _shifted(fractions: tuple[float, ...], by: float) -> tuple[float, ...]:
    """Class fractions with class 0 so much more frequent; the other classes give it in proportion."""
    if not by:
        return fractions
    first = fractions[0] + by
    return (first, *(share * (1 - first) / (1 - fractions[0]) for share in fractions[1:]))


def network_of(model: ModelSpec, recipe: Recipe, *, input_size: int, num_classes: int, seed: int) -> nn.Module:
    """A network with the initial weights of its seed, Bayesian if the recipe says so."""
    generator = generator_for(seed, "weights")
    network: nn.Module
    if model.name == "mlp":
        network = MLP((input_size, *model.hidden, num_classes), generator=generator)
    elif model.name == "vgg11":
        network = VGG11(num_classes, width=model.width, generator=generator)
    else:
        small: dict[str, Callable[..., nn.Module]] = {
            "lenet": LeNet,
            "convnet": partial(ConvNet, padded=True),
            "convnet-published": ConvNet,
        }
        network = small[checks.one_of("model", model.name, small)](num_classes, generator=generator)
    if not recipe.bayesian:
        return network
    relative = Relative(recipe.init_std, floor=SMALLEST_RELATIVE_STD)
    init_std = relative if recipe.start == "relative" else recipe.init_std
    bayesian = to_bayesian(network, prior_std=recipe.prior_std, init_std=init_std)
    if recipe.start == "published":
        with torch.no_grad():
            for each in gaussians(bayesian):
                each.mean.normal_(0.0, PUBLISHED_MEAN_STD, generator=generator)
                each.rho.normal_(*PUBLISHED_RHO, generator=generator)
    return bayesian


def partition_of(name: str, num_classes: int) -> Partition:
    """Regions by name.

    ``equal`` and ``unequal`` are the bins of the paper's binary experiments, ``shells`` the corners of its multiclass
    ones, ``corners`` the former for two classes and the latter for more, ``classes`` the predicted class and
    ``confidence`` the largest probability. With ``-published`` bins and
    shells have the slope of 500 and the closed ends of the paper's code, and ``classes`` is its mean softmax; with
    ``-steep`` bins have that slope, but open ends.
    """
    kind, _, way = name.partition("-")
    checks.one_of("partition", kind, ("equal", "unequal", "shells", "corners", "classes", "confidence"))
    if kind == "corners":
        kind = "equal" if num_classes == 2 else "shells"
    checks.one_of("partition after -", way, ("", "published", "steep"))
    if kind in {"equal", "unequal"}:
        edges = EQUAL_EDGES if kind == "equal" else UNEQUAL_EDGES
        if way == "published":
            return published.ClosedScoreBins(edges)
        return published.with_slope(ScoreBins(edges, space="probability")) if way else ScoreBins(edges)
    if kind == "shells":
        steep = CornerShells(num_classes, space="probability")
        return published.with_slope(steep) if way else CornerShells(num_classes)
    if kind == "classes":
        return ClassRegions(num_classes)
    edges = tuple(edge for edge in CONFIDENCE_EDGES if edge > 1 / num_classes)
    return ConfidenceBins(edges, num_classes)


def score_edges(recipe: Recipe) -> tuple[float, ...]:
    """Edges of the score bins of a recipe for two classes, from 0 to 1; none if its regions are others."""
    partition = partition_of(recipe.partition, 2) if recipe.partition else None
    return (0.0, *partition.edges.values, 1.0) if isinstance(partition, ScoreBins) else ()


def parse_belief(
    text: str,
    num_classes: int,
    *,
    data: DataSpec | str = "",
    counts: Sequence[int] = (),
    earlier: Tensor | None = None,
) -> Belief:
    """A belief by name.

    ``uniform``; ``beta(a, b)``; ``expect(accuracy)``, with the class fractions that are known of the data, at the place
    of use if there is one; ``fractions``, these fractions themselves, for regions by class; ``shells(corner, middle,
    centre)``, total masses of the shells of all classes together; ``empirical``, the predictions of an earlier model.

    An accuracy may be ``use``, what is stated of the place of use, or so much more or less, as ``use-0.05``. Other
    fractions stand in ``fractions(...)``, and in ``expect(accuracy; ...)`` behind the accuracy: one number a class;
    ``train``, those of the place that labels come from; ``counts``, those of the training labels as counted, which the
    paper's code has for rare classes; or how much more frequent class 0 is said to be than it is, as ``+0.1``, which
    the other classes give in proportion.

    Args:
        text: The words.
        num_classes: K.
        data: The data, or their name: what a user is told of them.
        counts: Number of training labels of each class, for ``counts``.
        earlier: Log-probabilities that an earlier model gave, for ``empirical``.
    """
    found = BELIEF.fullmatch(text.replace(" ", ""))
    if found is None:
        raise ValueError(f"`belief` must be such as uniform, beta(1,1), expect(0.9) or fractions, but got {text!r}")
    kind, inner, behind = found.groups()
    told = told_of(data, num_classes)._replace(counts=tuple(counts))
    if kind == "expect":
        return _expected(_accuracy(inner or "", told, text), tuple(_fractions(behind, told, num_classes, text)))
    if behind is not None:
        raise ValueError(f"`belief` can have class fractions behind an accuracy alone, but got {text!r}")
    if kind == "fractions":
        return Masses(_fractions(inner, told, num_classes, text))
    numbers = _numbers(inner, text)
    if len(numbers) != NUMBERS[kind]:
        raise ValueError(f"`belief` has the wrong number of numbers: {text!r}")
    if kind == "uniform":
        return Uniform()
    if kind == "beta":
        return Beta(*numbers)
    if kind == "empirical":
        if earlier is None:
            raise ValueError("`belief` is 'empirical', but there are no predictions of an earlier model")
        return Empirical(earlier)
    corner, middle, centre = numbers
    return Masses([corner / num_classes] * num_classes + [middle / num_classes] * num_classes + [centre])


@lru_cache(maxsize=64)
def _expected(accuracy: float, fractions: tuple[float, ...]) -> Belief:
    """Found once for all runs of a process: with many classes it takes a while."""
    return expect(accuracy, class_fractions=fractions)


def _numbers(inner: str | None, text: str) -> list[float]:
    try:
        return [float(each) for each in inner.split(",")] if inner else []
    except ValueError:
        raise ValueError(f"`belief` must have numbers in its brackets, but got {text!r}") from None


def _accuracy(inner: str, told: Told, text: str) -> float:
    if stated := AT_USE.fullmatch(inner):
        if not told.accuracy:
            raise ValueError(f"`belief` is {text!r}, but nothing is stated of the accuracy at the place of use")
        return min(told.accuracy + float(stated[1] or 0), MOST_STATED)
    numbers = _numbers(inner, text)
    if len(numbers) != 1:
        raise ValueError(f"`belief` has the wrong number of numbers: {text!r}")
    return numbers[0]


def _fractions(inner: str | None, told: Told, num_classes: int, text: str) -> list[float]:
    if not inner:
        return list(told.fractions)
    if inner == "train":
        return list(told.elsewhere)
    if inner == "counts":
        if len(told.counts) != num_classes:
            raise ValueError(f"`belief` is {text!r}, but the training labels are not there to be counted")
        return [count / sum(told.counts) for count in told.counts]
    numbers = _numbers(inner, text)
    if len(numbers) == 1 and inner[0] in "+-":
        return list(_shifted(told.fractions, numbers[0]))
    if len(numbers) != num_classes:
        raise ValueError(f"`belief` must have one fraction a class, {num_classes} of them, but got {text!r}")
    return numbers


def summary_of(
    recipe: Recipe,
    *,
    num_data: int,
    num_classes: int,
    data: DataSpec | str,
    counts: Sequence[int] = (),
    earlier: Tensor | None = None,
) -> SummaryLikelihood:
    """The summary of a recipe that has one."""
    as_published = recipe.partition.endswith("-published")
    binary = as_published and num_classes == 2
    belief = parse_belief(recipe.belief, num_classes, data=data, counts=counts, earlier=earlier)
    if recipe.fraction_uncertainty and isinstance(belief, Masses):
        belief = Masses(belief.values, uncertainty=recipe.fraction_uncertainty)
    return published.PublishedSummary(
        partition_of(recipe.partition, num_classes),
        belief,
        recipe.concentration * (num_data if recipe.per_example else 1),
        overrule_labels=True,  # as the study says
        form=recipe.form,
        pool_draws=recipe.pool_draws,
        ema_decay=recipe.ema_decay or None,
        pseudo_count=published.PSEUDO_COUNT if as_published else 0.0,
        histogram_floor=published.HISTOGRAM_FLOOR if binary else 0.0,
    )


def label_shift_of(recipe: Recipe, labels: Tensor, *, num_classes: int, data: DataSpec | str) -> LabelShift | None:
    """From the class fractions of the labels to those that are stated of the place of use, if a recipe asks for it."""
    if not recipe.label_shift:
        return None
    return LabelShift.from_labels(labels, told_of(data, num_classes).fractions)


def objective_of(
    recipe: Recipe,
    *,
    num_data: int,
    num_classes: int,
    data: DataSpec | str,
    counts: Sequence[int] = (),
    earlier: Tensor | None = None,
    shift: LabelShift | None = None,
) -> Objective:
    """What is maximised; of a method that is not a network, what reads its answers as logits."""
    weight, mean = recipe.kl_weight, has_published_kl(recipe)
    match recipe.objective:
        case "elbo":
            elbo = published.PublishedELBO if mean else ELBO
            return elbo(num_data, kl_weight=weight, label_shift=shift)
        case "label_smoothing":
            smoothing = published.PublishedLabelSmoothing if mean else LabelSmoothing
            return smoothing(recipe.epsilon, num_data, kl_weight=weight)
        case "evidential":
            return Evidential(
                num_data,
                activation=recipe.activation,
                annealing_steps=recipe.annealing_steps,
                annealing_every=recipe.annealing_every or None,
            )
        case "entropy_minimisation" | "expectation_regularisation":
            return _on_unlabelled(recipe, num_data, told_of(data, num_classes), shift)
        case "independent_summary":
            belief = parse_belief(recipe.belief, num_classes, data=data, counts=counts)
            independent = published.PublishedIndependentSummary if mean else published.IndependentSummary
            return independent(belief, num_data, kl_weight=weight)
    summary = None
    if recipe.partition:
        summary = summary_of(
            recipe, num_data=num_data, num_classes=num_classes, data=data, counts=counts, earlier=earlier
        )
    return _with_summary(recipe, num_data, summary, shift)


def _with_summary(
    recipe: Recipe, num_data: int, summary: SummaryLikelihood | None, shift: LabelShift | None
) -> Objective:
    """An objective that may have a summary, or must."""
    warmup = _warmup(recipe)
    if recipe.objective != "summary_elbo":
        return CrossEntropy(num_data, summary, summary_warmup=warmup, label_shift=shift)
    assert summary is not None
    summary_elbo = published.PublishedSummaryELBO if has_published_kl(recipe) else SummaryELBO
    return summary_elbo(summary, num_data, kl_weight=recipe.kl_weight, summary_warmup=warmup, label_shift=shift)


def has_published_kl(recipe: Recipe) -> bool:
    """Whether a recipe has the mean of each tensor instead of the KL divergence, as the authors' code does."""
    return checks.one_of("kl_reduction", recipe.kl_reduction, ("sum", "published")) == "published"


def _warmup(recipe: Recipe) -> int | None:
    return None if recipe.summary_warmup < 0 else recipe.summary_warmup


def _on_unlabelled(recipe: Recipe, num_data: int, told: Told, shift: LabelShift | None) -> Objective:
    """An objective with a term on unlabelled inputs that is not a summary."""
    if recipe.objective == "entropy_minimisation":
        return EntropyMinimisation(num_data, recipe.unlabelled_weight)
    return ExpectationRegularisation(
        told.fractions,
        num_data,
        recipe.unlabelled_weight,
        warmup=_warmup(recipe),
        kl_weight=recipe.kl_weight,
        label_shift=shift,
    )
