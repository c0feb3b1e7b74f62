"""From the words of a study to networks, regions and beliefs."""

from __future__ import annotations

import pytest
import torch

from selbo.nn.gaussian import gaussians
from selbo.objectives import (
    ELBO,
    CrossEntropy,
    EntropyMinimisation,
    Evidential,
    ExpectationRegularisation,
    LabelSmoothing,
    SummaryELBO,
)
from selbo.summary.beliefs import Beta, Masses, Uniform
from selbo.summary.elicitation import expect
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, ScoreBins
from selbo_lab.published import ClosedScoreBins, IndependentSummary, PublishedKL
from selbo_lab.run import build
from selbo_lab.studies.run_spec import DataSpec, ModelSpec, Recipe

MLP = ModelSpec("mlp", hidden=(5,))


@pytest.mark.parametrize(
    ("name", "classes", "kind", "regions"),
    [
        ("equal", 2, ScoreBins, 10),
        ("unequal", 2, ScoreBins, 7),
        ("equal-published", 2, ScoreBins, 10),
        ("shells", 10, CornerShells, 21),
        ("corners", 2, ScoreBins, 10),
        ("corners", 10, CornerShells, 21),
        ("shells-published", 10, CornerShells, 21),
        ("classes", 10, ClassRegions, 10),
        ("confidence", 10, ConfidenceBins, 6),
        ("confidence", 2, ConfidenceBins, 4),
    ],
)
def test_partitions(name: str, classes: int, kind: type, regions: int) -> None:
    found = build.parse_partition(name, classes)
    assert isinstance(found, kind)
    assert found.num_regions == regions


def test_published_bins_are_closed_and_steep() -> None:
    steep = build.parse_partition("equal-published", 2)
    assert isinstance(steep, ClosedScoreBins)
    for name in ("equal-published", "equal-steep", "unequal-steep", "shells-published"):
        edges = build.parse_partition(name, 2).edges
        assert (edges.slope_factor.item(), edges.space) == (500.0, "probability")
        assert edges.widths.eq(1).all()
    assert not isinstance(build.parse_partition("equal", 2), ClosedScoreBins)


@pytest.mark.parametrize("name", ["", "even", "equal-paper"])
def test_unknown_partitions_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="`partition"):
        build.parse_partition(name, 2)


def test_beliefs() -> None:
    assert isinstance(build.parse_belief("uniform", 2), Uniform)
    beta = build.parse_belief("beta(0.5, 2)", 2)
    assert isinstance(beta, Beta)
    assert (beta.a, beta.b) == (0.5, 2.0)
    bins = build.parse_partition("equal", 2)
    torch.testing.assert_close(build.parse_belief("expect(0.9)", 2).masses(bins), expect(0.9).masses(bins))
    shells = build.parse_belief("shells(0.01, 0.09, 0.9)", 10).masses(build.parse_partition("shells", 10))
    torch.testing.assert_close(shells[[0, 9, 10, 19, 20]], torch.tensor([0.001, 0.001, 0.009, 0.009, 0.9]).double())


def test_class_fractions_are_those_that_a_user_is_told() -> None:
    found = build.parse_belief("fractions", 10, data="cifar10-im")
    assert isinstance(found, Masses)
    ratios = torch.tensor([1.0, *(2.0**-k for k in range(1, 9)), 2.0**-8]).double()
    torch.testing.assert_close(found.masses(ClassRegions(10)), ratios / ratios.sum())
    torch.testing.assert_close(
        build.parse_belief("fractions", 4).masses(ClassRegions(4)), torch.full((4,), 0.25).double()
    )


CASE = DataSpec("sst", labels=9, label_fractions=(0.9, 0.1), use_fractions=(0.6, 0.4), use_accuracy=0.85)


@pytest.mark.parametrize(
    ("text", "accuracy", "fractions"),
    [
        ("expect(0.9)", 0.9, [0.6, 0.4]),
        ("expect(use)", 0.85, [0.6, 0.4]),
        ("expect(use - 0.05)", 0.8, [0.6, 0.4]),
        ("expect(use + 0.1)", 0.95, [0.6, 0.4]),
        ("expect(use + 0.3)", 0.995, [0.6, 0.4]),
        ("expect(use; 0.3, 0.7)", 0.85, [0.3, 0.7]),
        ("expect(0.97; train)", 0.97, [0.9, 0.1]),
        ("expect(use; +0.1)", 0.85, [0.7, 0.3]),
        ("expect(use; -0.2)", 0.85, [0.4, 0.6]),
    ],
)
def test_beliefs_about_the_place_of_use(text: str, accuracy: float, fractions: list[float]) -> None:
    bins = build.parse_partition("corners", 2)
    found = build.parse_belief(text, 2, data=CASE).masses(bins)
    torch.testing.assert_close(found, expect(accuracy, fractions).masses(bins), rtol=1e-6, atol=1e-9)


def test_class_fractions_of_the_place_of_use() -> None:
    regions = ClassRegions(2)
    for text, expected in (
        ("fractions", [0.6, 0.4]),
        ("fractions(train)", [0.9, 0.1]),
        ("fractions(0.2, 0.8)", [0.2, 0.8]),
    ):
        found = build.parse_belief(text, 2, data=CASE).masses(regions)
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    three = DataSpec("sst", labels=9, use_fractions=(0.2, 0.3, 0.5))
    found = build.parse_belief("fractions(+0.2)", 3, data=three).masses(ClassRegions(3))
    torch.testing.assert_close(found, torch.tensor([0.4, 0.225, 0.375], dtype=torch.float64))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expect(use)", "no accuracy is stated"),
        ("expect(use*2)", "numbers in its brackets"),
        ("expect(0.9; 0.5)", "one fraction per class"),
        ("expect(0.9; 0.2, 0.3, 0.5)", "one fraction per class"),
        ("beta(1, 1; 0.5, 0.5)", "behind an accuracy alone"),
        ("fractions(0.5, x)", "numbers in its brackets"),
    ],
)
def test_beliefs_about_the_place_of_use_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build.parse_belief(text, 2, data="sst")


@pytest.mark.parametrize(
    "text", ["", "gamma(1)", "beta(1)", "beta(1, x)", "uniform(1)", "expect()", "beta(1,1", "x uniform"]
)
def test_unknown_beliefs_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`belief`"):
        build.parse_belief(text, 2)


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        (Recipe("cross_entropy"), CrossEntropy),
        (Recipe("cross_entropy", partition="equal", belief="uniform"), CrossEntropy),
        (Recipe("label_smoothing", epsilon=0.1), LabelSmoothing),
        (Recipe("evidential"), Evidential),
        (Recipe("elbo", bayesian=True), ELBO),
        (Recipe("label_spreading"), CrossEntropy),
        (Recipe("summary_elbo", bayesian=True, partition="equal", belief="uniform"), SummaryELBO),
        (Recipe("independent_summary", bayesian=True, partition="equal", belief="beta(5,5)"), IndependentSummary),
    ],
)
def test_objectives(recipe: Recipe, kind: type) -> None:
    found = build.build_objective(recipe, num_data=50, num_classes=2, data="sst")
    assert isinstance(found, kind)
    assert found.num_data == 50
    assert found.has_summary == bool(recipe.partition)


@pytest.mark.parametrize("reduction", ["sum", "published", "mean"])
@pytest.mark.parametrize("name", ["elbo", "label_smoothing", "summary_elbo", "independent_summary"])
def test_the_published_divergence_is_asked_for(name: str, reduction: str) -> None:
    words = {"partition": "equal", "belief": "beta(5,5)"} if "summary" in name else {}
    recipe = Recipe(name, bayesian=True, epsilon=0.1, kl_reduction=reduction, **words)
    if reduction == "mean":
        with pytest.raises(ValueError, match=r"`kl_reduction` must be one of \['published', 'sum'\], but got 'mean'"):
            build.build_objective(recipe, num_data=50, num_classes=2, data="sst")
    else:
        found = build.build_objective(recipe, num_data=50, num_classes=2, data="sst")
        assert isinstance(found.kl, PublishedKL) == (reduction == "published")


def test_objectives_with_a_term_on_unlabelled_inputs() -> None:
    entropy, fractions = (
        build.build_objective(Recipe(name, unlabelled_weight=0.3), num_data=50, num_classes=2, data=CASE)
        for name in ("entropy_minimisation", "expectation_regularisation")
    )
    assert isinstance(entropy, EntropyMinimisation)
    assert isinstance(fractions, ExpectationRegularisation)
    assert entropy.terms[0].weight == fractions.terms[0].weight == 0.3
    assert fractions.terms[0].summary.fractions.tolist() == [0.6, 0.4]


def test_a_summary_may_grow_in() -> None:
    recipe = Recipe("summary_elbo", bayesian=True, partition="equal", belief="uniform", summary_warmup=7)
    assert build.build_objective(recipe, num_data=50, num_classes=2, data="sst").terms[0].warmup == 7


def test_concentration_may_be_a_multiple_of_the_data() -> None:
    recipe = Recipe("summary_elbo", bayesian=True, partition="equal", belief="uniform", concentration=0.5)
    plain = build.build_summary(recipe, num_data=200, num_classes=2, data="sst")
    assert plain.concentration == 0.5
    relative = Recipe(**{**vars(recipe), "per_example": True})
    assert build.build_summary(relative, num_data=200, num_classes=2, data="sst").concentration == 100.0


def test_the_published_histogram_has_its_constants() -> None:
    recipe = Recipe("summary_elbo", bayesian=True, partition="equal-published", belief="uniform")
    found = build.build_summary(recipe, num_data=200, num_classes=2, data="sst")
    assert (found.pseudo_count, found.histogram_floor) == (1e-4, 1e-6)


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (MLP, 3),
        (ModelSpec("lenet"), 784),
        (ModelSpec("convnet"), 784),
        (ModelSpec("convnet-published"), 784),
        (ModelSpec("vgg11", width=0.02), 0),
    ],
)
def test_networks_depend_on_their_seed_alone(model: ModelSpec, size: int) -> None:
    def weights(seed: int) -> torch.Tensor:
        net = build.build_network(model, Recipe("cross_entropy"), input_size=size, num_classes=2, seed=seed)
        return torch.cat([each.flatten() for each in net.parameters()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


def test_counted_fractions_are_those_of_the_training_labels() -> None:
    found = build.parse_belief("fractions(counts)", 3, data="cifar10-im", counts=(6, 3, 1))
    assert isinstance(found, Masses)
    assert found.masses(ClassRegions(3)).tolist() == pytest.approx([0.6, 0.3, 0.1])
    with pytest.raises(ValueError, match="there are no training labels to count"):
        build.parse_belief("fractions(counts)", 3, data="cifar10-im")


@pytest.mark.parametrize(("name", "paddings"), [("convnet", [1, 1, 1, 1, 1]), ("convnet-published", [0, 0, 0, 0, 1])])
def test_the_two_convnets(name: str, paddings: list[int]) -> None:
    net = build.build_network(ModelSpec(name), Recipe("cross_entropy"), input_size=784, num_classes=2, seed=0)
    assert [each.padding[0] for each in net.modules() if isinstance(each, torch.nn.Conv2d)] == paddings


@pytest.mark.parametrize("name", ["convnet", "convnet-published"])
def test_a_trial_has_a_narrow_network(name: str) -> None:
    def channels(model: ModelSpec) -> list[int]:
        net = build.build_network(model, Recipe("cross_entropy"), input_size=784, num_classes=2, seed=0)
        return [each.out_channels for each in net.modules() if isinstance(each, torch.nn.Conv2d)]

    whole, narrow = channels(ModelSpec(name)), channels(ModelSpec(name, width=1 / 32))
    assert narrow == [max(1, count // 32) for count in whole]


def test_published_start(seed: int) -> None:
    recipe = Recipe("elbo", bayesian=True, start="published", prior_std=2.0)
    net = build.build_network(ModelSpec("mlp", hidden=(400,)), recipe, input_size=50, num_classes=2, seed=seed)
    first = gaussians(net)[0]
    assert first.mean.mean().abs() < 0.005
    assert first.mean.std().item() == pytest.approx(0.1, rel=0.05)
    assert first.std.mean().item() == pytest.approx(0.049, rel=0.05)
    assert first.prior_std == 2.0


def test_relative_start() -> None:
    recipe = Recipe("elbo", bayesian=True, start="relative", init_std=0.2)
    net = build.build_network(ModelSpec("vgg11", width=0.02), recipe, input_size=0, num_classes=2, seed=0)
    for each in gaussians(net):
        spread = 0.2 * each.mean.abs()
        torch.testing.assert_close(each.std[spread > 1e-6], spread[spread > 1e-6], rtol=1e-3, atol=0)
    assert gaussians(net)[1].std.max() < 1e-15  # biases start at zero, and have no spread to speak of


def test_unknown_model() -> None:
    with pytest.raises(ValueError, match="`model` must be one of"):
        build.build_network(ModelSpec("resnet"), Recipe("cross_entropy"), input_size=1, num_classes=2, seed=0)


def test_steep_bins_have_the_papers_slope_and_open_ends() -> None:
    scores = torch.tensor([0.0, 0.05, 0.101, 1.0], dtype=torch.float64)
    log_probs = torch.stack([1 - scores, scores], -1).log().clamp(min=-40)
    steep, published = (
        build.parse_partition(name, 2).memberships(log_probs) for name in ("equal-steep", "equal-published")
    )
    torch.testing.assert_close(steep[1:3], published[1:3], rtol=0, atol=1e-6)
    assert steep[0, 0] == pytest.approx(1)
    assert published[0, 0] == pytest.approx(0.5, abs=1e-3)


def test_an_empirical_belief_needs_an_earlier_model() -> None:
    with pytest.raises(ValueError, match="earlier model"):
        build.parse_belief("empirical", 2)


@pytest.mark.parametrize(
    ("name", "device", "engine"),
    [
        ("vgg11", "cuda:0", "compile+cudagraph"),
        ("resnet20", "cuda", "compile+cudagraph"),
        ("lenet", "cuda", "cudagraph"),
        ("vgg11", "cpu", "cudagraph"),
    ],
)
def test_large_networks_are_compiled_on_a_gpu(name: str, device: str, engine: str) -> None:
    assert build.choose_engine(ModelSpec(name), device) == engine
