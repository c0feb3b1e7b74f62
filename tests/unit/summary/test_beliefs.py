"""Beliefs turned into masses: against mpmath, closed forms, and by hand; and every message for bad input."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

import selbo
from references import beta_mass, flat_max_at_most, relative_error
from selbo.summary.beliefs import Belief, Beta, Dirichlet, Empirical, Masses, Uniform
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, Partition, ScoreBins

RELATIVE = 1e-10


def assert_masses(got: Tensor, expected: list[mpmath.mpf], relative: float = RELATIVE) -> None:
    assert got.shape == (len(expected),)
    errors = [relative_error(g, e) for g, e in zip(got.tolist(), expected, strict=True)]
    assert max(errors) < relative, f"relative errors {errors}"


def assert_a_histogram(masses: Tensor, partition: Partition) -> None:
    assert masses.dtype == torch.float64
    assert masses.shape == (partition.num_regions,)
    assert (masses > 0).all()
    assert masses.sum().item() == pytest.approx(1, abs=1e-14)


def lopsided(num_classes: int) -> list[float]:
    return [0.3 + 0.55 * k for k in range(num_classes)]


def log_probs(*scores: float) -> Tensor:
    """Predictions of a binary classifier with these probabilities of class 1."""
    column = torch.tensor(scores, dtype=torch.float64)
    return torch.stack([1 - column, column], -1).log()


# --- every belief on every partition ---

PARTITIONS = {
    "score_bins": lambda k: ScoreBins([0.03, 0.2, 0.55, 0.9]),
    "shells_1": lambda k: CornerShells(k, [0.62]),
    "shells_2": CornerShells,
    "shells_3": lambda k: CornerShells(k, [0.55, 0.8, 0.97]),
    "classes_sharp": lambda k: ClassRegions(k, temperature=0.1),
    "classes_soft": lambda k: ClassRegions(k, temperature=1.0),
    "confidence_low": lambda k: ConfidenceBins([1 / k + (1 - 1 / k) * s for s in (0.12, 0.2, 0.75)], k),
    "confidence_high": lambda k: ConfidenceBins([0.51, 0.6, 0.92], k),
}
BELIEFS = {
    "uniform": lambda k: Uniform(),
    "lopsided": lambda k: Dirichlet(lopsided(k)),
    "small": lambda k: Dirichlet([0.02 + 0.01 * j for j in range(k)]),
    "large": lambda k: Dirichlet([6.0 + j for j in range(k)]),
    "mixed": lambda k: Dirichlet([0.05, 4.0, *[0.7] * (k - 2)]),
    "beta": lambda k: Beta(0.4, 1.7),
}
CASES = [
    (belief, partition, k)
    for belief, partition, k in itertools.product(BELIEFS, PARTITIONS, range(2, 8))
    if k == 2 or (belief != "beta" and partition != "score_bins")
]


@pytest.mark.parametrize(("belief", "partition", "num_classes"), CASES)
def test_masses_are_a_histogram_in_double_precision(belief: str, partition: str, num_classes: int) -> None:
    regions = PARTITIONS[partition](num_classes)
    assert_a_histogram(BELIEFS[belief](num_classes).masses(regions), regions)


@pytest.mark.parametrize("num_classes", [2, 3, 5, 7])
def test_stated_and_empirical_masses_are_histograms_on_every_partition(num_classes: int) -> None:
    rows = torch.linspace(-3, 2, 11 * num_classes, dtype=torch.float64).reshape(11, num_classes)
    predictions = (rows**3 * torch.arange(1, num_classes + 1)).log_softmax(-1)
    for name, make in PARTITIONS.items():
        if name != "score_bins" or num_classes == 2:
            partition = make(num_classes)
            stated = torch.arange(1.0, partition.num_regions + 1, dtype=torch.float64)
            assert_a_histogram(Masses((stated / stated.sum()).tolist()).masses(partition), partition)
            assert_a_histogram(Empirical(predictions).masses(partition), partition)


@pytest.mark.parametrize("partition", [name for name in PARTITIONS if name != "score_bins"])
@pytest.mark.parametrize("num_classes", [3, 4])
def test_relabelling_classes_permutes_the_regions(partition: str, num_classes: int) -> None:
    regions = PARTITIONS[partition](num_classes)
    concentration = lopsided(num_classes)
    original = Dirichlet(concentration).masses(regions)
    blocks = regions.num_regions // num_classes if not partition.startswith("confidence") else 0
    for order in itertools.permutations(range(num_classes)):
        moved = [block * num_classes + k for block in range(blocks) for k in order]
        kept = list(range(blocks * num_classes, regions.num_regions))  # the centre, or the bins of confidence
        permuted = Dirichlet([concentration[k] for k in order]).masses(regions)
        torch.testing.assert_close(permuted, original[moved + kept], rtol=1e-10, atol=1e-14)


def test_relabelling_the_two_classes_reverses_score_bins() -> None:
    forward = Beta(0.3, 4.0).masses(ScoreBins([0.125, 0.25, 0.5]))
    backward = Beta(4.0, 0.3).masses(ScoreBins([0.5, 0.75, 0.875]))
    torch.testing.assert_close(forward, backward.flip(0), rtol=1e-12, atol=0)


# --- two classes ---

SCORE_EDGES = (1e-6, 0.02, 0.1, 0.35, 0.5, 0.81, 0.97)


@pytest.mark.parametrize(("a", "b"), [(0.05, 0.03), (5.0, 5.0), (0.9, 0.01), (0.2, 6.0), (7.0, 1.5), (1.0, 1.0)])
def test_score_bins_of_a_beta_against_mpmath(a: float, b: float) -> None:
    """Eq. (12): the score is the probability of class 1, so a large `a` fills the upper bins."""
    expected = [beta_mass(a, b, low, high) for low, high in itertools.pairwise((0.0, *SCORE_EDGES, 1.0))]
    assert_masses(Beta(a, b).masses(ScoreBins(SCORE_EDGES)), expected)
    assert_masses(Dirichlet([b, a]).masses(ScoreBins(SCORE_EDGES)), expected)


def test_score_bins_far_in_both_tails_keep_their_digits() -> None:
    """Eq. (12) for bins of mass about 1e-200, above and below."""
    edges = (0.01, 0.5, 0.75)
    expected = [beta_mass(0.5, 300.0, low, high) for low, high in itertools.pairwise((0.0, *edges, 1.0))]
    masses = Beta(0.5, 300.0).masses(ScoreBins(edges))
    assert 0 < masses[-1] < 1e-180
    assert_masses(masses, expected, relative=1e-8)

    edges = (0.25, 0.5, 0.99)
    expected = [beta_mass(300.0, 0.5, low, high) for low, high in itertools.pairwise((0.0, *edges, 1.0))]
    masses = Beta(300.0, 0.5).masses(ScoreBins(edges))
    assert 0 < masses[0] < 1e-180
    assert_masses(masses, expected, relative=1e-8)


def test_score_bins_do_not_depend_on_how_soft_they_are() -> None:
    edges = [0.1, 0.6]
    expected = Beta(0.4, 2.0).masses(ScoreBins(edges))
    assert torch.equal(Beta(0.4, 2.0).masses(ScoreBins(edges, space="probability", slope_factor=50.0)), expected)


@pytest.mark.parametrize(("a", "b"), [(0.05, 0.03), (0.4, 2.3), (6.0, 2.0), (30.0, 0.7)])
def test_a_beta_on_every_partition_of_two_classes(a: float, b: float) -> None:
    # written out for the score s = p_1 and p_0 = 1 - s
    partitions = {
        CornerShells(2, [0.75, 0.875]): [(0, 0.125), (0.875, 1), (0.125, 0.25), (0.75, 0.875), (0.25, 0.75)],
        ClassRegions(2): [(0, 0.5), (0.5, 1)],
        ScoreBins([0.25, 0.5]): [(0, 0.25), (0.25, 0.5), (0.5, 1)],
    }
    for partition, intervals in partitions.items():
        expected = [beta_mass(a, b, low, high) for low, high in intervals]
        assert_masses(Beta(a, b).masses(partition), expected)
        assert_masses(Dirichlet([b, a]).masses(partition), expected)
    sure, unsure = beta_mass(a, b, 0, 0.125) + beta_mass(a, b, 0.875, 1), beta_mass(a, b, 0.375, 0.625)
    expected = [unsure, 1 - sure - unsure, sure]
    assert_masses(Beta(a, b).masses(ConfidenceBins([0.625, 0.875], 2)), expected)
    assert_masses(Dirichlet([b, a]).masses(ConfidenceBins([0.625, 0.875], 2)), expected)


# --- more classes ---


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("num_classes", [2, 3, 6])
def test_uniform_is_the_dirichlet_of_ones(partition: str, num_classes: int) -> None:
    regions = PARTITIONS[partition](2 if partition == "score_bins" else num_classes)
    expected = Dirichlet([1.0] * regions.num_classes).masses(regions)
    assert torch.equal(Uniform().masses(regions), expected)


@pytest.mark.parametrize("num_classes", [2, 3, 4, 7])
def test_uniform_corners_are_smaller_simplices(num_classes: int) -> None:
    # {p_k > t} is the simplex shrunk by 1 - t, so for K = 3 its share of the area is (1 - t)^2
    outer, inner = Fraction(1, 4) ** (num_classes - 1), Fraction(1, 8) ** (num_classes - 1)
    expected = [inner] * num_classes + [outer - inner] * num_classes + [1 - num_classes * outer]
    got = Uniform().masses(CornerShells(num_classes, [0.75, 0.875]))
    np.testing.assert_allclose(got, [float(e) for e in expected], rtol=1e-12)
    np.testing.assert_allclose(Uniform().masses(ClassRegions(num_classes)), 1 / num_classes, rtol=1e-12)


def test_uniform_scores_fill_bins_by_their_width() -> None:
    got = Uniform().masses(ScoreBins([0.125, 0.5, 0.75]))
    np.testing.assert_allclose(got, [0.125, 0.375, 0.25, 0.25], rtol=1e-14)


@pytest.mark.parametrize("thresholds", [(0.62,), (0.85, 0.95), (0.5, 0.8, 0.97)])
@pytest.mark.parametrize("concentration", [(0.3, 0.6, 2.0), (0.02, 0.05, 0.01, 0.4), (3.0, 0.5, 8.0, 1.0, 2.0)])
def test_corner_shells_are_intervals_of_beta_marginals(
    thresholds: tuple[float, ...], concentration: tuple[float, ...]
) -> None:
    # one entry against all others is a Beta variable; highest threshold first, class by class, the centre last
    total = math.fsum(concentration)
    shells = list(itertools.pairwise((*thresholds, 1.0)))[::-1]
    expected = [beta_mass(a, total - a, low, high) for low, high in shells for a in concentration]
    expected.append(1 - mpmath.fsum(expected))
    assert_masses(Dirichlet(concentration).masses(CornerShells(len(concentration), thresholds)), expected, 1e-9)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_class_regions_of_small_whole_numbers(temperature: float) -> None:
    # K = 2: class 0 wins if at least 2 of the 4 coin flips that order five exponential variables fall its way; so on
    regions = ClassRegions(2, temperature=temperature)
    np.testing.assert_allclose(Dirichlet([2, 3]).masses(regions), [5 / 16, 11 / 16], rtol=1e-12)
    np.testing.assert_allclose(Dirichlet([1, 4]).masses(regions), [1 / 16, 15 / 16], rtol=1e-12)
    # K = 3, shapes (1, 1, 2): integrate e^-x (1 - e^-x) (1 - (1 + x) e^-x) by hand
    expected = [1 / 2 - (1 / 2 + 1 / 4) + (1 / 3 + 1 / 9)] * 2
    np.testing.assert_allclose(
        Dirichlet([1, 1, 2]).masses(ClassRegions(3, temperature=temperature)),
        [*expected, 1 - sum(expected)],
        rtol=1e-12,
    )


@pytest.mark.parametrize(("a", "b"), [(0.01, 0.01), (0.01, 900.0), (1000.0, 990.0), (1000.0, 2.5)])
def test_class_regions_at_extreme_concentrations(a: float, b: float) -> None:
    expected = [beta_mass(a, b, 0.5, 1), beta_mass(a, b, 0, 0.5)]
    assert_masses(Dirichlet([a, b]).masses(ClassRegions(2)), expected)


def test_masses_are_normalised_where_the_integrals_lose_a_digit() -> None:
    masses = Dirichlet([1000.0, 990.0, 1020.0]).masses(ClassRegions(3))
    assert abs(math.fsum(masses.tolist()) - 1) < 4e-16


@pytest.mark.parametrize("value", [0.01, 1000.0])
def test_equal_concentrations_give_equal_classes(value: float) -> None:
    np.testing.assert_allclose(Dirichlet([value] * 5).masses(ClassRegions(5)), 0.2, rtol=1e-11)


def test_shells_at_extreme_concentrations() -> None:
    small = Dirichlet([0.01] * 4).masses(CornerShells(4))
    assert_masses(small[:4], [beta_mass(0.01, 0.03, 0.95, 1)] * 4)
    large = Dirichlet([1000.0, 900.0]).masses(CornerShells(2, [0.5625, 0.625]))
    intervals = [(0.625, 1), (0, 0.375), (0.5625, 0.625), (0.375, 0.4375), (0.4375, 0.5625)]  # of p_0
    assert_masses(large, [beta_mass(1000.0, 900.0, low, high) for low, high in intervals])


def test_confidence_bins_of_three_uniform_classes() -> None:
    low, high = (0.35, 0.42, 0.49), (0.5, 0.7, 0.9)
    expected = [1 - 3 * (1 - c) ** 2 + 3 * (1 - 2 * c) ** 2 for c in low] + [1 - 3 * (1 - c) ** 2 for c in high]
    got = Uniform().masses(ConfidenceBins([*low, *high], 3))
    np.testing.assert_allclose(got, np.diff([0, *expected, 1]), rtol=0, atol=1e-8)
    np.testing.assert_allclose(got[-3:], np.diff([*expected[-3:], 1]), rtol=1e-10)


@pytest.mark.parametrize("num_classes", [2, 4, 5, 6, 7, 20])
def test_confidence_bins_of_uniform_classes(num_classes: int) -> None:
    edges = [1 / num_classes + (1 - 1 / num_classes) * share for share in (0.1, 0.17, 0.3, 0.8)]
    expected = np.diff([0, *(flat_max_at_most(num_classes, c) for c in edges), 1])
    np.testing.assert_allclose(Uniform().masses(ConfidenceBins(edges, num_classes)), expected, rtol=0, atol=1e-8)


# --- histograms at hand ---


def test_stated_masses_come_back() -> None:
    got = Masses([0.2, 0.3, 0.5]).masses(ScoreBins([0.1, 0.9]))
    np.testing.assert_allclose(got, [0.2, 0.3, 0.5], rtol=1e-15)
    assert got.dtype == torch.float64


def test_stated_masses_are_normalised_within_a_millionth() -> None:
    got = Masses([0.3333333, 0.3333333, 0.3333333]).masses(ScoreBins([0.1, 0.9]))
    np.testing.assert_allclose(got, 1 / 3, rtol=1e-15)


def test_empirical_masses_by_hand() -> None:
    # bins up to .2, .5, .9 and 1: counts 3, 1, 0, 1, with a score on an edge in the bin below it
    earlier = log_probs(0.05, 0.1, 0.15, 0.5, 0.99)
    bins = ScoreBins([0.2, 0.5, 0.9])
    np.testing.assert_allclose(Empirical(earlier).masses(bins), np.array([3.5, 1.5, 0.5, 1.5]) / 7, rtol=1e-15)
    np.testing.assert_allclose(
        Empirical(earlier, smoothing=0.25).masses(bins), np.array([3.25, 1.25, 0.25, 1.25]) / 6, rtol=1e-15
    )


def test_empirical_counts_hard_regions_of_more_classes() -> None:
    probs = torch.tensor([[0.9, 0.05, 0.05], [0.1, 0.1, 0.8], [0.2, 0.1, 0.7], [0.3, 0.3, 0.4]], dtype=torch.float64)
    earlier = Empirical(probs.log(), smoothing=1.0)
    np.testing.assert_allclose(earlier.masses(ClassRegions(3)), np.array([2, 1, 4]) / 7, rtol=1e-15)
    shells = CornerShells(3, [0.6, 0.85])
    np.testing.assert_allclose(earlier.masses(shells), np.array([2, 1, 1, 1, 1, 3, 2]) / 11, rtol=1e-15)
    np.testing.assert_allclose(earlier.masses(ConfidenceBins([0.6], 3)), np.array([2, 4]) / 6, rtol=1e-15)


def test_empirical_pools_leading_dimensions() -> None:
    scores = (0.05, 0.3, 0.6, 0.7, 0.95, 0.99)
    bins = ScoreBins([0.2, 0.65])
    flat = Empirical(log_probs(*scores))
    pooled = Empirical(log_probs(*scores).reshape(3, 1, 2, 2))
    np.testing.assert_allclose(pooled.masses(bins), np.array([1.5, 2.5, 3.5]) / 7.5, rtol=1e-15)
    assert torch.equal(pooled.masses(bins), flat.masses(bins))
    assert repr(pooled) == "Empirical(6 predictions, smoothing=0.5)"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_empirical_takes_any_precision(dtype: torch.dtype) -> None:
    got = Empirical(log_probs(0.1, 0.2, 0.9).to(dtype)).masses(ScoreBins([0.5]))
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got, [0.625, 0.375], rtol=1e-15)


def test_empirical_leaves_its_input_alone() -> None:
    given = log_probs(0.0, 0.3, 1.0).requires_grad_()
    before = given.detach().clone()
    masses = Empirical(given).masses(ScoreBins([0.5]))
    assert torch.equal(given.detach(), before)
    assert given.requires_grad
    assert given.grad is None
    assert not masses.requires_grad
    np.testing.assert_allclose(masses, [2.5 / 4, 1.5 / 4], rtol=1e-15)


def test_masses_can_be_asked_for_again() -> None:
    for belief in (Beta(2, 3), Masses([0.25, 0.75]), Empirical(log_probs(0.2, 0.7, 0.8)), Uniform()):
        bins = ScoreBins([0.5])
        first = belief.masses(bins)
        kept = first.clone()
        first.zero_()
        assert torch.equal(belief.masses(bins), kept)


def test_beliefs_print_what_they_say() -> None:
    assert repr(Beta(2, 0.3333333333)) == "Beta(2, 0.333333)"
    assert repr(Dirichlet([1, 2.5])) == "Dirichlet([1, 2.5])"
    assert repr(Dirichlet(range(1, 11))) == "Dirichlet([1, 2, 3, 4, 5, 6, ... 10 in all])"
    assert repr(Masses([0.25, 0.75])) == "Masses([0.25, 0.75])"
    assert repr(Uniform()) == "Uniform()"


# --- bad input ---


@pytest.mark.parametrize("partition", [CornerShells(3), ClassRegions(4), ConfidenceBins([0.6], 5)])
def test_beta_speaks_of_two_classes_only(partition: Partition) -> None:
    message = (
        rf"`Beta\(2, 3\)` is a belief about two classes, but the partition has {partition.num_classes}: .*Dirichlet"
    )
    with pytest.raises(ValueError, match=message):
        Beta(2, 3).masses(partition)


@pytest.mark.parametrize("partition", [CornerShells(3), ClassRegions(5), ConfidenceBins([0.6], 2), ScoreBins([0.5])])
def test_dirichlet_needs_one_parameter_a_class(partition: Partition) -> None:
    message = rf"`Dirichlet\(\[1, 2, 3, 4\]\)` has 4 parameters, but the partition has {partition.num_classes} classes"
    with pytest.raises(ValueError, match=message):
        Dirichlet([1, 2, 3, 4]).masses(partition)


def test_dirichlet_needs_two_parameters() -> None:
    with pytest.raises(ValueError, match=r"`concentration` must hold at least 2 numbers, but got 1"):
        Dirichlet([1.0])


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan, "many", None])
def test_parameters_must_be_positive_and_finite(value: float) -> None:
    for name, make in {
        "a": lambda: Beta(value, 1),
        "b": lambda: Beta(1, value),
        "concentration": lambda: Dirichlet([1.0, value, 2.0]),
        "smoothing": lambda: Empirical(log_probs(0.5), smoothing=value),
    }.items():
        with pytest.raises(ValueError, match=rf"^`{name}` must be a .*number.*, but got "):
            make()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.2, 0.3], r"must sum to 1, but the sum of \[0\.2, 0\.3\] is 0\.5"),
        ([0.5, 0.500002], r"must sum to 1, but"),
        ([0.0, 1.0], r"must be positive, every one of them, but got \[0\.0, 1\.0\]"),
        ([-0.5, 1.5], r"must be positive, every one of them, but got \[-0\.5, 1\.5\]"),
        ([1.0], r"must hold at least 2 numbers, but got 1"),
        ([math.nan, 1.0], r"must be a number, but got NaN"),
    ],
)
def test_stated_masses_must_be_a_histogram(values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^`values` {message}"):
        Masses(values)


def test_stated_masses_must_match_the_regions() -> None:
    message = r"`Masses\(\[0\.25, 0\.75\]\)` states 2 masses, but the partition has 3 regions"
    with pytest.raises(ValueError, match=message):
        Masses([0.25, 0.75]).masses(ScoreBins([0.1, 0.9]))


@pytest.mark.parametrize(
    ("belief", "partition", "region"),
    [
        (Beta(1e5, 1e5), ScoreBins([0.01, 0.5, 0.99]), 0),
        (Beta(1e5, 1.0), ScoreBins([0.01, 0.5, 0.99]), 0),
        (Beta(1.0, 1e5), ScoreBins([0.001, 0.005, 0.99]), 3),
        (Dirichlet([1e6, 1.0, 1.0]), ClassRegions(3), 1),
        (Dirichlet([1e5, 1e5, 1e5]), CornerShells(3), 0),
        (Dirichlet([1e5, 1e5, 1e5]), ConfidenceBins([0.6], 3), 1),
        (Dirichlet([1.0, 1000.0]), ClassRegions(2), 0),  # 2^-1000 is a float64, its reciprocal hardly
    ],
)
def test_a_mass_that_vanishes_is_refused(belief: Belief, partition: Partition, region: int) -> None:
    start = re.escape(
        f"`{belief!r}` puts no mass that float64 can hold on region {region} of {type(partition).__name__}"
    )
    with pytest.raises(ValueError, match=start + ".*less extreme belief.*coarser partition.*Masses"):
        belief.masses(partition)


@pytest.mark.parametrize(
    ("concentration", "edge"),
    [([1e7] * 3, 0.3334), ([1e-4] * 3, 0.4), (selbo.expect(0.9999, num_classes=3).concentration, 0.4)],
)
def test_confidence_bins_that_cannot_be_integrated_are_refused(concentration: list[float], edge: float) -> None:
    """Too narrow a distribution for the grid, or a mass of the size of its rounding errors."""
    message = r"^Dirichlet\(.*\) puts a mass of about .* on a region of ConfidenceBins.*can only be found to .*`selbo\."
    with pytest.raises(ValueError, match=message):
        Dirichlet(concentration).masses(ConfidenceBins([edge], 3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.tensor([[0.5, math.nan]]), r"`log_probs` must hold numbers, but got 1 NaN"),
        (torch.tensor([[0.5, -1.0]]), r"`log_probs` must be logarithms of probabilities, at most 0, .*largest is 0\.5"),
        (torch.tensor([[-1.0, -1.0]]), r"`log_probs` must lie on the simplex: .* by up to 0\.26"),
        (torch.tensor([-0.5, -0.9]), r"`log_probs` must have shape \(\.\.\., batch, classes\), but got \(2,\)"),
        (torch.tensor(-0.5), r"`log_probs` must have shape \(\.\.\., batch, classes\), but got \(\)"),
        (torch.empty(0, 2), r"`log_probs` must not be an empty batch, but got shape \(0, 2\)"),
        (torch.tensor([[0, 1]]), r"`log_probs` must be a floating-point tensor, but got dtype torch\.int64"),
        ([[0.5, 0.5]], r"`log_probs` must be a floating-point tensor, but got list"),
    ],
)
def test_empirical_wants_log_probabilities(given: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Empirical(given)


def test_empirical_must_match_the_classes() -> None:
    message = r"`Empirical\(2 predictions, smoothing=0\.5\)` holds predictions of 2 classes, but the partition has 3"
    with pytest.raises(ValueError, match=message):
        Empirical(log_probs(0.2, 0.7)).masses(ClassRegions(3))


# --- known faults ---


def test_two_classes_have_no_centre_at_a_threshold_of_one_half() -> None:
    for concentration in itertools.product((0.01, 0.3, 1.7, 5.0), (0.4, 1.3, 2.2)):
        with pytest.raises(ValueError, match="puts no mass that float64 can hold on region 2 of CornerShells"):
            Dirichlet(concentration).masses(CornerShells(2, [0.5]))


def test_empirical_does_not_follow_later_changes_of_its_input() -> None:
    given = log_probs(0.1, 0.2, 0.9)
    belief = Empirical(given)
    given.copy_(log_probs(0.9, 0.9, 0.9))
    np.testing.assert_allclose(belief.masses(ScoreBins([0.5])), [0.625, 0.375], rtol=1e-15)
