"""Builds the network, partition, belief and objective of a run from its settings."""

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
from selbo.checks import one_of
from selbo.models import MLP, VGG11, ConvNet, LeNet, ResNet20
from selbo.nn import Relative, gaussians
from selbo.objectives import EntropyMinimisation, ExpectationRegularisation, Objective
from selbo.posteriors import NaturalGradientPosterior, Posterior, as_posterior
from selbo.random import generator_for
from selbo_lab import published
from selbo_lab.data.cifar import IMBALANCE
from selbo_lab.data.cifar_files import CIFAR_CLASSES
from selbo_lab.data.imbalance import class_fractions
from selbo_lab.studies.run_spec import DataSpec, ModelSpec, Recipe

EQUAL_EDGES: Final = tuple(i / 10 for i in range(1, 10))
PAPER_EDGES: Final = (0.01, 0.05, 0.10, 0.90, 0.95, 0.99)
"""The two bin layouts of the paper's binary experiments."""

LARGE_NETWORKS: Final[dict[str, Callable[..., nn.Module]]] = {"vgg11": VGG11, "resnet20": ResNet20}
"""Networks for colour images, which have a width."""

STUDY_CONFIDENCE_EDGES: Final = (0.3, 0.5, 0.7, 0.85, 0.95)

PUBLISHED_MEAN_STD: Final = 0.1
PUBLISHED_RHO: Final = (-3.0, 0.1)
"""Initial posteriors of the paper's code: means from N(0, .1²), rho from N(-3, .1²)."""

SMALLEST_RELATIVE_STD: Final = 1e-20
"""Initial standard deviation of weights that start at zero, in the paper's code: practically none."""

KNOWN_FRACTIONS: Final = {"cifar10-im": dict(zip(CIFAR_CLASSES, class_fractions(IMBALANCE), strict=True))}
"""Known class fractions, by data set and class; classes are equally frequent in all other data sets."""

BELIEF_PATTERN: Final = re.compile(r"(uniform|fractions|beta|expect|shells|empirical)(?:\(([^();]*)(?:;([^();]*))?\))?")
NUMBERS: Final = {"uniform": 0, "beta": 2, "shells": 3, "empirical": 0}
"""Number of arguments of a belief; `expect` and `fractions` also accept words."""

MOST_STATED: Final = 0.995
"""Largest stated accuracy, however wrong the belief is meant to be."""

TARGET_FRACTIONS: Final = re.compile(r"use([+-][0-9.]+)?")


class Told(NamedTuple):
    """Prior knowledge about the domain that a belief is about.

    Attributes:
        fractions: Fraction of each class.
        accuracy: Share of cases that can be classified correctly; 0 if not stated.
        elsewhere: Class fractions of the source domain.
        counts: Number of training labels of each class; empty if not known.
    """

    fractions: tuple[float, ...]
    accuracy: float = 0.0
    elsewhere: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


def collect_told(data: DataSpec | str, num_classes: int) -> Told:
    """Prior knowledge about a data set; about the target domain, if there is one."""
    case = DataSpec(data) if isinstance(data, str) else data
    known = tuple(KNOWN_FRACTIONS.get(case.name, {}).values()) or (1 / num_classes,) * num_classes
    stated = with_first_off(case.use_fractions or known, case.fractions_off)
    return Told(stated, case.use_accuracy, case.label_fractions or known)


def with_first_off(fractions: tuple[float, ...], by: float) -> tuple[float, ...]:
    """Increase the fraction of class 0; the other classes decrease in proportion."""
    if not by:
        return fractions
    first = fractions[0] + by
    return (first, *(share * (1 - first) / (1 - fractions[0]) for share in fractions[1:]))


def choose_engine(model: ModelSpec, device: str) -> str:
    """Engine of `selbo.fit`. Large networks are compiled on a GPU: the runs of a process share the compiled code."""
    large = model.name in LARGE_NETWORKS and device.startswith("cuda")
    return "compile+cudagraph" if large else "cudagraph"


def build_network(model: ModelSpec, recipe: Recipe, *, input_size: int, num_classes: int, seed: int) -> nn.Module:
    """A network with the initial weights of its seed, with a mean-field posterior if the recipe says so."""
    generator = generator_for(seed, "weights")
    network: nn.Module
    if model.name == "mlp":
        network = MLP((input_size, *model.hidden, num_classes), generator=generator)
    elif model.name in LARGE_NETWORKS:
        network = LARGE_NETWORKS[model.name](num_classes, width=model.width, generator=generator)
    else:
        small: dict[str, Callable[..., nn.Module]] = {
            "lenet": LeNet,
            "convnet": partial(ConvNet, padded=True, width=model.width),
            "convnet-published": partial(ConvNet, width=model.width),
        }
        network = small[one_of("model", model.name, small)](num_classes, generator=generator)
    if not recipe.bayesian or recipe.posterior:
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


def build_posterior(network: nn.Module, recipe: Recipe, *, num_data: int) -> Posterior:
    """What is trained and predicts: the network, or its posterior by natural gradient."""
    if not recipe.posterior:
        return as_posterior(network)
    return NaturalGradientPosterior(
        network,
        num_data=num_data,
        prior_std=recipe.prior_std,
        initial_curvature=recipe.initial_curvature,
        betas=(0.9, recipe.curvature_decay),
    )


def parse_partition(name: str, num_classes: int) -> Partition:
    """Regions by name.

    ``equal`` and ``unequal`` are the bins of the paper's binary experiments, ``shells`` the corners of its multiclass
    ones, ``corners`` the former for two classes and the latter for more, ``classes`` the predicted class and
    ``confidence`` the largest probability. With ``-published`` bins and
    shells have the slope of 500 and the closed ends of the paper's code, and ``classes`` is its mean softmax; with
    ``-steep`` bins have that slope, but open ends.
    """
    kind, _, way = name.partition("-")
    one_of("partition", kind, ("equal", "unequal", "shells", "corners", "classes", "confidence"))
    if kind == "corners":
        kind = "equal" if num_classes == 2 else "shells"
    one_of("partition after -", way, ("", "published", "steep"))
    if kind in {"equal", "unequal"}:
        edges = EQUAL_EDGES if kind == "equal" else PAPER_EDGES
        if way == "published":
            return published.ClosedScoreBins(edges)
        return published.with_slope(ScoreBins(edges, space="probability")) if way else ScoreBins(edges)
    if kind == "shells":
        steep = CornerShells(num_classes, space="probability")
        return published.with_slope(steep) if way else CornerShells(num_classes)
    if kind == "classes":
        return ClassRegions(num_classes)
    edges = tuple(edge for edge in STUDY_CONFIDENCE_EDGES if edge > 1 / num_classes)
    return ConfidenceBins(edges, num_classes)


def score_edges(recipe: Recipe) -> tuple[float, ...]:
    """Edges of the score bins of a recipe for two classes, from 0 to 1; empty for other regions."""
    partition = parse_partition(recipe.partition, 2) if recipe.partition else None
    return (0.0, *partition.edges.values, 1.0) if isinstance(partition, ScoreBins) else ()


def parse_belief(
    text: str,
    num_classes: int,
    *,
    data: DataSpec | str = "",
    counts: Sequence[int] = (),
    earlier: Tensor | None = None,
    uncertainty: float = 0.0,
) -> Belief:
    """A belief by name.

    ``uniform``; ``beta(a, b)``; ``expect(accuracy)``, with the known class fractions of the data, or of the target
    domain if there is one; ``fractions``, these class fractions themselves, for regions by class; ``shells(corner,
    middle, centre)``, total masses of the shells of all classes together; ``empirical``, the predictions of an earlier
    model.

    An accuracy may be ``use``, the one stated for the target domain, with an optional offset as in ``use-0.05``. Other
    class fractions are given as ``fractions(...)``, or as ``expect(accuracy; ...)``: one number per class; ``train``,
    those of the source domain; ``counts``, those of the training labels, which the paper's code uses for rare classes;
    or an offset such as ``+0.1`` of the fraction of class 0, with the other classes decreased in proportion.

    Args:
        text: The name, with its arguments.
        num_classes: Number of classes K.
        data: The data or their name, for the prior knowledge about them.
        counts: Number of training labels of each class, for ``counts``.
        earlier: Log-probabilities predicted by an earlier model, for ``empirical``.
        uncertainty: Uncertainty of each stated mass, for ``fractions`` and ``shells``.
    """
    found = BELIEF_PATTERN.fullmatch(text.replace(" ", ""))
    if found is None:
        raise ValueError(f"`belief` must be such as uniform, beta(1,1), expect(0.9) or fractions, but got {text!r}")
    kind, inner, behind = found.groups()
    told = collect_told(data, num_classes)._replace(counts=tuple(counts))
    if kind == "expect":
        return _expected(_accuracy(inner or "", told, text), tuple(_fractions(behind, told, num_classes, text)))
    if behind is not None:
        raise ValueError(f"`belief` can have class fractions behind an accuracy alone, but got {text!r}")
    if kind == "fractions":
        return Masses(_fractions(inner, told, num_classes, text), uncertainty=uncertainty)
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
    shells = [corner / num_classes] * num_classes + [middle / num_classes] * num_classes + [centre]
    return Masses(shells, uncertainty=uncertainty)


@lru_cache(maxsize=64)
def _expected(accuracy: float, fractions: tuple[float, ...]) -> Belief:
    """Cached for all runs of a process: with many classes it takes a while."""
    return expect(accuracy, class_fractions=fractions)


def _numbers(inner: str | None, text: str) -> list[float]:
    try:
        return [float(each) for each in inner.split(",")] if inner else []
    except ValueError:
        raise ValueError(f"`belief` must have numbers in its brackets, but got {text!r}") from None


def _accuracy(inner: str, told: Told, text: str) -> float:
    if stated := TARGET_FRACTIONS.fullmatch(inner):
        if not told.accuracy:
            raise ValueError(f"`belief` is {text!r}, but no accuracy is stated for the target domain")
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
            raise ValueError(f"`belief` is {text!r}, but there are no training labels to count")
        return [count / sum(told.counts) for count in told.counts]
    numbers = _numbers(inner, text)
    if len(numbers) == 1 and inner[0] in "+-":
        return list(with_first_off(told.fractions, numbers[0]))
    if len(numbers) != num_classes:
        raise ValueError(f"`belief` must have one fraction per class, {num_classes} in total, but got {text!r}")
    return numbers


def build_summary(
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
    belief = parse_belief(
        recipe.belief,
        num_classes,
        data=data,
        counts=counts,
        earlier=earlier,
        uncertainty=recipe.fraction_uncertainty,
    )
    return published.PublishedSummary(
        parse_partition(recipe.partition, num_classes),
        belief,
        recipe.concentration * (num_data if recipe.per_example else 1),
        overrule_labels=True,  # the study decides
        form=recipe.form,
        pool_draws=recipe.pool_draws,
        ema_decay=recipe.ema_decay or None,
        pseudo_count=published.PSEUDO_COUNT if as_published else 0.0,
        histogram_floor=published.HISTOGRAM_FLOOR if binary else 0.0,
    )


def build_label_shift(recipe: Recipe, labels: Tensor, *, num_classes: int, data: DataSpec | str) -> LabelShift | None:
    """The shift from the class fractions of the labels to those stated for the target domain, if the recipe has one."""
    if not recipe.label_shift:
        return None
    return LabelShift.from_labels(labels, collect_told(data, num_classes).fractions)


def build_objective(
    recipe: Recipe,
    *,
    num_data: int,
    num_classes: int,
    data: DataSpec | str,
    counts: Sequence[int] = (),
    earlier: Tensor | None = None,
    shift: LabelShift | None = None,
) -> Objective:
    """The objective to maximise; for a method without a network, one that reads its outputs as logits."""
    weight, warmup = recipe.kl_weight, _warmup(recipe)
    objective: Objective
    match recipe.objective:
        case "elbo":
            objective = ELBO(num_data, kl_weight=weight, label_shift=shift)
        case "label_smoothing":
            objective = LabelSmoothing(recipe.epsilon, num_data, kl_weight=weight)
        case "evidential":
            objective = Evidential(
                num_data,
                activation=recipe.activation,
                annealing_steps=recipe.annealing_steps,
                annealing_every=recipe.annealing_every or None,
            )
        case "entropy_minimisation" | "expectation_regularisation":
            objective = _on_unlabelled(recipe, num_data, collect_told(data, num_classes), shift)
        case "independent_summary":
            belief = parse_belief(recipe.belief, num_classes, data=data, counts=counts)
            objective = published.IndependentSummary(belief, num_data, kl_weight=weight)
        case _:
            summary = None
            if recipe.partition:
                summary = build_summary(
                    recipe, num_data=num_data, num_classes=num_classes, data=data, counts=counts, earlier=earlier
                )
            if recipe.objective != "summary_elbo":
                objective = CrossEntropy(num_data, summary, summary_warmup=warmup, label_shift=shift)
            else:
                assert summary is not None
                objective = SummaryELBO(summary, num_data, kl_weight=weight, summary_warmup=warmup, label_shift=shift)
    return published.with_published_kl(objective) if has_published_kl(recipe) else objective


def has_published_kl(recipe: Recipe) -> bool:
    """Whether the KL divergence of each tensor is averaged instead of summed, as in the authors' code."""
    return one_of("kl_reduction", recipe.kl_reduction, ("sum", "published")) == "published"


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
