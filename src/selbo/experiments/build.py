"""From the words of a study to the things of the library: network, partition, belief, objective."""

import re
from typing import Any, Final

import torch
from torch import Tensor, nn

from selbo import checks
from selbo.data.imbalance import class_fractions, geometric_ratios
from selbo.experiments.study import ModelSpec, Recipe
from selbo.models import MLP, VGG11, ConvNet, LeNet
from selbo.nn import to_bayesian
from selbo.nn.gaussian import Relative, gaussians
from selbo.objectives import (
    ELBO,
    CrossEntropy,
    Evidential,
    IndependentSummary,
    LabelSmoothing,
    Objective,
    SummaryELBO,
)
from selbo.seeding import generator_for
from selbo.summary.beliefs import Belief, Beta, Empirical, Masses, Uniform
from selbo.summary.edges import PUBLISHED_SLOPE
from selbo.summary.elicitation import expect
from selbo.summary.likelihood import PUBLISHED_HISTOGRAM_FLOOR, PUBLISHED_PSEUDO_COUNT, SummaryLikelihood
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

EQUAL_EDGES: Final = tuple(i / 10 for i in range(1, 10))
UNEQUAL_EDGES: Final = (0.01, 0.05, 0.10, 0.90, 0.95, 0.99)
"""The two layouts of the paper's binary experiments."""

CONFIDENCE_EDGES: Final = (0.3, 0.5, 0.7, 0.85, 0.95)

PUBLISHED_MEAN_STD: Final = 0.1
PUBLISHED_RHO: Final = (-3.0, 0.1)
"""Where posteriors start in the paper's code: means from N(0, .1²), rho from N(-3, .1²)."""

SMALLEST_RELATIVE_STD: Final = 1e-20
"""Of weights that start at zero, in the paper's code: they have no spread to speak of."""

KNOWN_FRACTIONS: Final = {"cifar10-im": tuple(class_fractions(geometric_ratios(10)))}
"""Class fractions that a user is told, by data set; classes are equally frequent in the others."""

BELIEF: Final = re.compile(r"(uniform|fractions|beta|expect|shells|empirical)(?:\(([^()]*)\))?")


def network_of(model: ModelSpec, recipe: Recipe, *, input_size: int, num_classes: int, seed: int) -> nn.Module:
    """A network with the initial weights of its seed, Bayesian if the recipe says so."""
    generator = generator_for(seed, "weights")
    network: nn.Module
    if model.name == "mlp":
        network = MLP((input_size, *model.hidden, num_classes), generator=generator)
    elif model.name == "vgg11":
        network = VGG11(num_classes, width=model.width, generator=generator)
    else:
        small = {"lenet": LeNet, "convnet": ConvNet}
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
    ones, ``classes`` the predicted class and ``confidence`` the largest probability. With ``-published`` bins and
    shells have the slope of 500 and the closed ends of the paper's code, and ``classes`` is its mean softmax; with
    ``-steep`` bins have that slope, but open ends.
    """
    kind, _, way = name.partition("-")
    checks.one_of("partition", kind, ("equal", "unequal", "shells", "classes", "confidence"))
    checks.one_of("partition after -", way, ("", "published", "steep"))
    steep: dict[str, Any] = {"slope": PUBLISHED_SLOPE, "space": "probability"} if way else {}
    if kind in {"equal", "unequal"}:
        return ScoreBins(EQUAL_EDGES if kind == "equal" else UNEQUAL_EDGES, **steep, closed=way == "published")
    if kind == "shells":
        return CornerShells(num_classes, **steep)
    if kind == "classes":
        return ClassRegions(num_classes)
    edges = tuple(edge for edge in CONFIDENCE_EDGES if edge > 1 / num_classes)
    return ConfidenceBins(edges, num_classes)


def belief_of(text: str, num_classes: int, *, data: str = "", earlier: Tensor | None = None) -> Belief:
    """A belief by name.

    ``uniform``; ``beta(a, b)``; ``expect(accuracy)``, with the class fractions that are known of the data;
    ``fractions``, these fractions themselves, for regions by class; ``shells(corner, middle, centre)``, total masses of
    the shells of all classes together; ``empirical``, the predictions of an earlier model.

    Args:
        text: The words.
        num_classes: K.
        data: Name of the data set, for its class fractions.
        earlier: Log-probabilities that an earlier model gave, for ``empirical``.
    """
    found = BELIEF.fullmatch(text.replace(" ", ""))
    if found is None:
        raise ValueError(f"`belief` must be such as uniform, beta(1,1), expect(0.9) or fractions, but got {text!r}")
    kind, inner = found[1], found[2]
    try:
        numbers = [float(each) for each in inner.split(",")] if inner else []
    except ValueError:
        raise ValueError(f"`belief` must have numbers in its brackets, but got {text!r}") from None
    if len(numbers) != {"uniform": 0, "fractions": 0, "beta": 2, "expect": 1, "shells": 3, "empirical": 0}[kind]:
        raise ValueError(f"`belief` has the wrong number of numbers: {text!r}")
    fractions = KNOWN_FRACTIONS.get(data, (1 / num_classes,) * num_classes)
    if kind == "uniform":
        return Uniform()
    if kind == "beta":
        return Beta(*numbers)
    if kind == "expect":
        return expect(numbers[0], class_fractions=list(fractions))
    if kind == "fractions":
        return Masses(fractions)
    if kind == "empirical":
        if earlier is None:
            raise ValueError("`belief` is 'empirical', but there are no predictions of an earlier model")
        return Empirical(earlier)
    corner, middle, centre = numbers
    return Masses([corner / num_classes] * num_classes + [middle / num_classes] * num_classes + [centre])


def summary_of(
    recipe: Recipe, *, num_data: int, num_classes: int, data: str, earlier: Tensor | None = None
) -> SummaryLikelihood:
    """The summary of a recipe that has one."""
    published = recipe.partition.endswith("-published")
    binary = published and num_classes == 2
    return SummaryLikelihood(
        partition_of(recipe.partition, num_classes),
        belief_of(recipe.belief, num_classes, data=data, earlier=earlier),
        recipe.concentration * (num_data if recipe.per_example else 1),
        form=recipe.form,
        pool_draws=recipe.pool_draws,
        ema_decay=recipe.ema_decay or None,
        pseudo_count=PUBLISHED_PSEUDO_COUNT if published else 0.0,
        histogram_floor=PUBLISHED_HISTOGRAM_FLOOR if binary else 0.0,
    )


def objective_of(
    recipe: Recipe, *, num_data: int, num_classes: int, data: str, earlier: Tensor | None = None
) -> Objective:
    """What is maximised."""
    weight, reduction = recipe.kl_weight, recipe.kl_reduction
    match recipe.objective:
        case "elbo":
            return ELBO(num_data, kl_weight=weight, kl_reduction=reduction)
        case "label_smoothing":
            return LabelSmoothing(recipe.epsilon, num_data, kl_weight=weight, kl_reduction=reduction)
        case "evidential":
            return Evidential(num_data, activation=recipe.activation, annealing_steps=recipe.annealing_steps)
        case "independent_summary":
            belief = belief_of(recipe.belief, num_classes, data=data)
            return IndependentSummary(belief, num_data, kl_weight=weight, kl_reduction=reduction)
    summary = None
    if recipe.partition:
        summary = summary_of(recipe, num_data=num_data, num_classes=num_classes, data=data, earlier=earlier)
    if recipe.objective == "cross_entropy":
        return CrossEntropy(num_data, summary)
    assert summary is not None
    return SummaryELBO(summary, num_data, kl_weight=weight, kl_reduction=reduction)
