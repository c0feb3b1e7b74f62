"""Integrals of a Dirichlet distribution, against mpmath, exact rational arithmetic and closed forms."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from references import beta_mass, flat_max_at_most, relative_error, win_against_two
from selbo.summary import _dirichlet
from selbo.summary._dirichlet import (
    Tails,
    beta_tails,
    centre_mass,
    gamma_tables,
    largest_entry,
    log_gamma_cdf,
    log_integrand,
    max_tails,
)

RELATIVE = 1e-10


# --- functions of the form sum c x^n exp(-m x), with exact coefficients: whole-number Gamma variables ---

Terms = dict[tuple[int, int], Fraction]


def times(left: Terms, right: Terms) -> Terms:
    result: Terms = {}
    for ((n, m), c), ((i, j), d) in itertools.product(left.items(), right.items()):
        result[n + i, m + j] = result.get((n + i, m + j), Fraction(0)) + c * d
    return result


def integral(terms: Terms) -> Fraction:
    """Over (0, inf)."""
    return sum((c * math.factorial(n) / Fraction(m) ** (n + 1) for (n, m), c in terms.items() if c), Fraction(0))


def erlang_cdf(shape: int) -> Terms:
    terms = {(n, 1): Fraction(-1, math.factorial(n)) for n in range(shape)}
    return {(0, 0): Fraction(1), **terms}


def exact_largest_entry(shapes: tuple[int, ...]) -> tuple[list[Fraction], Fraction]:
    """P(entry k is the largest) and E max, for whole-number concentrations."""
    probabilities = []
    for k, shape in enumerate(shapes):
        terms: Terms = {(shape - 1, 1): Fraction(1, math.factorial(shape - 1))}
        for other in (*shapes[:k], *shapes[k + 1 :]):
            terms = times(terms, erlang_cdf(other))
        probabilities.append(integral(terms))
    # the largest of the Gamma variables is independent of their shares: E max p = E max x / A, and
    # E max x is the integral of P(max x > t)
    product: Terms = {(0, 0): Fraction(1)}
    for shape in shapes:
        product = times(product, erlang_cdf(shape))
    assert product.pop((0, 0)) == 1
    return probabilities, -integral(product) / sum(shapes)


@pytest.mark.parametrize("shapes", [(1, 4), (1, 2, 3), (4, 1, 2, 2), (7, 3, 5), (1, 1, 1, 2, 1), (2, 1, 1, 1, 1, 1, 3)])
def test_largest_entry_of_whole_numbers_is_the_exact_rational(shapes: tuple[int, ...]) -> None:
    probabilities, expected = exact_largest_entry(shapes)
    assert sum(probabilities) == 1
    got = largest_entry(np.array(shapes, dtype=np.float64))
    np.testing.assert_allclose(got.probabilities, [float(p) for p in probabilities], rtol=1e-12)
    assert got.expected == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("num_classes", [2, 3, 5, 7, 40])
def test_expected_largest_entry_of_the_flat_dirichlet_is_a_harmonic_number(num_classes: int) -> None:
    expected = sum(Fraction(1, j) for j in range(1, num_classes + 1)) / num_classes
    got = largest_entry(np.ones(num_classes))
    assert got.expected == pytest.approx(float(expected), rel=1e-12)
    np.testing.assert_allclose(got.probabilities, 1 / num_classes, rtol=1e-12)


PAIRS = [(0.01, 0.01), (0.01, 0.02), (1000.0, 0.01), (1000.0, 900.0), (1000.0, 1000.0), (0.01, 3.0), (2.5, 40.0)]
PAIRS += [(1e-9, 3.0), (1e-12, 5.0), (300.0, 1e-3), (0.7, 0.2)]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_largest_of_two_entries_is_an_incomplete_beta_function_at_one_half(a: float, b: float) -> None:
    got = largest_entry(np.array([a, b]))
    assert relative_error(got.probabilities[0], beta_mass(a, b, 0.5, 1)) < RELATIVE
    assert relative_error(got.probabilities[1], beta_mass(a, b, 0, 0.5)) < RELATIVE
    with mpmath.workdps(50):
        # s times the Beta(a, b) density is a / (a + b) times that of Beta(a + 1, b)
        mean = mpmath.mpf(a) / (mpmath.mpf(a) + mpmath.mpf(b))
        expected = mean * beta_mass(a + 1, b, 0.5, 1) + (1 - mean) * beta_mass(a, b + 1, 0, 0.5)
    assert relative_error(got.expected, expected) < RELATIVE


def test_largest_entry_of_a_very_rare_class() -> None:
    # an exponential variable exceeds a Gamma(a) one with probability E exp(-Gamma(a)) = 2^-a
    assert relative_error(largest_entry(np.array([1000.0, 1.0])).probabilities[1], mpmath.mpf(2) ** -1000) < RELATIVE
    assert relative_error(largest_entry(np.array([1.0, 700.0])).probabilities[0], mpmath.mpf(2) ** -700) < RELATIVE
    # and with a second exponential variable, one class in the middle: integrate (1 - e^-x) e^-x F_a(x)
    a = 40
    got = largest_entry(np.array([1.0, float(a), 1.0])).probabilities
    np.testing.assert_allclose(got[[0, 2]], 2.0**-a - 3.0**-a / 2, rtol=RELATIVE)


def test_largest_entry_of_a_rare_class_among_unequal_ones() -> None:
    shapes = (30, 2, 1, 3)
    probabilities, expected = exact_largest_entry(shapes)
    assert float(min(probabilities)) < 1e-8
    got = largest_entry(np.array(shapes, dtype=np.float64))
    np.testing.assert_allclose(got.probabilities, [float(p) for p in probabilities], rtol=RELATIVE)
    assert got.expected == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(("a", "b"), [(1e-12, 0.01), (1e-10, 0.05), (1e-9, 0.5)])
def test_largest_entry_of_a_rare_class_among_small_parameters(a: float, b: float) -> None:
    got = largest_entry(np.array([a, b])).probabilities[0]
    assert relative_error(got, beta_mass(a, b, 0.5, 1)) < RELATIVE


@pytest.mark.parametrize(("a", "b"), [(1e6, 9.9e5), (1e8, 9.99e7)])
def test_largest_entry_of_a_rare_class_with_large_parameters(a: float, b: float) -> None:
    got = largest_entry(np.array([a, b])).probabilities[1]
    assert relative_error(got, special.betaincc(b, a, 0.5)) < 1e-8


TRIPLES = [(0.01, 0.02, 0.05), (0.3, 0.6, 2.0), (0.01, 5.0, 0.3), (80.0, 100.0, 95.0), (1000.0, 980.0, 1010.0)]
TRIPLES += [(0.01, 0.01, 0.01), (1e-4, 0.15, 0.54), (1.0, 1.0, 1.0)]


@pytest.mark.parametrize("a", TRIPLES)
def test_largest_of_three_entries_against_quadrature_on_the_simplex(a: tuple[float, ...]) -> None:
    turned = [(a[k], a[k - 1], a[k - 2]) for k in range(3)]
    got = largest_entry(np.array(a))
    np.testing.assert_allclose(got.probabilities, [win_against_two(*t, moment=0) for t in turned], rtol=1e-9)
    assert got.expected == pytest.approx(math.fsum(win_against_two(*t, moment=1) for t in turned), rel=RELATIVE)


CONCENTRATIONS = [(0.01,) * 7, (1000.0,) * 5, (0.02, 1.0, 30.0), (0.5, 0.1, 2.0, 0.03, 9.0), (3.0, 500.0, 450.0, 1e-3)]
CONCENTRATIONS += [tuple(np.linspace(0.001, 0.02, 100))]


@pytest.mark.parametrize("a", CONCENTRATIONS, ids=lambda a: f"K{len(a)}")
def test_probabilities_of_the_largest_entry_sum_to_one(a: tuple[float, ...]) -> None:
    got = largest_entry(np.array(a)).probabilities
    assert abs(got.sum() - 1) < 1e-12
    assert (got > 0).all()


@pytest.mark.parametrize("a", CONCENTRATIONS, ids=lambda a: f"K{len(a)}")
def test_expected_largest_entry_is_a_sum_over_raised_parameters(a: tuple[float, ...]) -> None:
    # E[p_k; k largest] = (a_k / A) P_{a + e_k}(k largest): p_k tilts the density into that of a + e_k
    concentration = np.array(a)
    raised = concentration + np.eye(len(a))
    total = sum(
        concentration[k] / concentration.sum() * largest_entry(raised[k]).probabilities[k] for k in range(len(a))
    )
    assert largest_entry(concentration).expected == pytest.approx(total, rel=1e-11)


@pytest.mark.parametrize("a", [(0.02, 1.0, 30.0, 2.0), (3e-3, 0.5, 0.1), (1.0, 40.0, 1.0, 2.0)])
def test_relabelling_classes_relabels_the_probabilities(a: tuple[float, ...]) -> None:
    concentration = np.array(a)
    original = largest_entry(concentration)
    first, second, *rest = range(len(a))
    for order in ([second, *rest, first], [second, first, *rest]):  # every other order is these two, repeated
        permuted = largest_entry(concentration[order])
        np.testing.assert_allclose(permuted.probabilities, original.probabilities[order], rtol=1e-12)
        assert permuted.expected == pytest.approx(original.expected, rel=1e-13)


@pytest.mark.parametrize("a", [0.01, 0.7, 3.0, 250.0])
@pytest.mark.parametrize("y", [-900.0, -100.0, -36.01, -35.99, -5.0, 0.0, 1.5, 5.5])
def test_log_gamma_cdf_against_mpmath(a: float, y: float) -> None:
    with mpmath.workdps(50):
        x = mpmath.exp(mpmath.mpf(y))
        reference = mpmath.log(mpmath.gammainc(mpmath.mpf(a), 0, x, regularized=True))
    if reference > -690 or y < -36:
        got = float(log_gamma_cdf(np.array(a), np.array(y)))
        # a cdf close to one has a logarithm close to zero, which is then as exact as the cdf itself
        assert got == pytest.approx(float(reference), rel=1e-12, abs=1e-14)
    else:  # the cdf is no float64: minus infinity, not NaN
        assert log_gamma_cdf(np.array(a), np.array(y)) == -math.inf


def test_gamma_tables_hold_densities_and_distribution_functions_of_log_gamma_variables() -> None:
    a = np.array([0.4, 3.0, 11.0])
    tables = gamma_tables(a, np.ones(len(a)))
    x = np.exp(tables.nodes)[:, None]
    shown = x[:, 0] > 1e-3
    np.testing.assert_allclose(np.exp(tables.log_density), stats.gamma(a).pdf(x) * x, rtol=1e-11)
    np.testing.assert_allclose(np.exp(tables.log_cdf)[shown], stats.gamma(a).cdf(x)[shown], rtol=1e-11)
    weights = np.exp(tables.log_weights)
    assert weights.sum() == pytest.approx(tables.nodes[-1] - tables.low, rel=1e-3)
    # the density of the largest variable, d/dy of the product of the distribution functions, has mass one
    assert np.exp(log_integrand(tables)).sum() + math.exp(tables.log_tail) == pytest.approx(1, abs=1e-12)


def test_gamma_tables_keep_the_tail_of_small_parameters() -> None:
    a = np.array([0.001, 0.003])
    tables = gamma_tables(a, np.ones(len(a)))
    tail = np.prod([float(mpmath.gammainc(v, 0, mpmath.exp(tables.low), regularized=True)) for v in a])
    assert tail > 0.8  # almost all of the mass lies where exp(y) means nothing any more
    assert math.exp(tables.log_tail) == pytest.approx(tail, rel=1e-12)


# --- Beta tails ---

EDGES = (1e-6, 0.02, 0.1, 0.35, 0.5, 0.81, 0.97, 1 - 1e-6)
SHAPES = [(0.05, 0.03), (5.0, 5.0), (0.5, 300.0), (300.0, 0.5), (2.0, 7.5), (0.9, 0.01), (40.0, 25.0), (1.0, 1.0)]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_beta_masses_against_mpmath(a: float, b: float) -> None:
    """Eq. (12), every bin to a relative 1e-10, whatever its size."""
    tails = beta_tails(a, b, np.array(EDGES))
    intervals = [*((0.0, edge) for edge in EDGES), *((edge, 1.0) for edge in EDGES)]
    intervals += itertools.pairwise((0.0, *EDGES, 1.0))
    for (low, high), got in zip(intervals, [*tails.below, *tails.above, *tails.masses()], strict=True):
        expected = beta_mass(a, b, low, high)
        if expected > 1e-290:
            assert relative_error(got, expected) < RELATIVE, (low, high)
        else:
            assert 0 <= got < 1e-289, (low, high)


@pytest.mark.parametrize(("a", "b"), [(0.5, 300.0), (3.0, 280.0), (9.0, 400.0)])
def test_beta_masses_far_in_a_tail(a: float, b: float) -> None:
    """Eq. (12) in bins of mass around 1e-200, where a difference of distribution functions is zero."""
    edges = np.array([0.05, 0.6, 0.79, 0.8])
    upper = beta_tails(a, b, edges).masses()
    lower = beta_tails(b, a, (1 - edges)[::-1]).masses()[::-1]
    bounds = (0.0, *edges, 1.0)
    for (low, high), above, below in zip(itertools.pairwise(bounds), upper, lower, strict=True):
        expected = beta_mass(a, b, low, high)
        assert above > 0
        assert relative_error(above, expected) < 1e-8
        # the mirrored edges are rounded, so here the reference is computed at the rounded ones
        mirrored = beta_mass(b, a, 1 - high if high < 1 else 0.0, 1 - low if low > 0 else 1.0)
        assert below > 0
        assert relative_error(below, mirrored) < 1e-8
    assert 1e-285 < upper[-1] < 1e-150
    assert 1e-285 < lower[-1] < 1e-150


def test_interval_masses_come_from_the_smaller_tails() -> None:
    # two descriptions that disagree on purpose: below the median the lower tails are used, above it the upper ones
    tails = Tails(below=np.array([0.1, 0.4, 0.9]), above=np.array([0.8, 0.5, 1e-30]))
    np.testing.assert_allclose(tails.masses(), [0.1, 0.3, 0.5 - 1e-30, 1e-30], rtol=1e-15)
    assert tails.error == 0.0


def test_interval_masses_of_close_edges_in_the_upper_tail_keep_their_digits() -> None:
    edges = np.array([0.9, 0.9 + 1e-9])
    expected = beta_mass(0.5, 30.0, *edges)
    assert relative_error(beta_tails(0.5, 30.0, edges).masses()[1], expected) < 1e-5


# --- the centre, and the largest entry as a number ---


def largest_of_three_at_most(a: tuple[float, float, float], c: float) -> float:
    """P(max p <= c) for K = 3: integrate over p_0 through its quantiles, which removes every singular density."""
    first, second, third = a

    def inner(q: float) -> float:
        rest = 1 - special.betaincinv(first, second + third, q)
        high = min(c / rest, 1.0)
        low = max(1 - c / rest, 0.0)
        return float(max(special.betainc(second, third, high) - special.betainc(second, third, low), 0.0))

    corners = sorted({x for x in (0.0, 1 - 2 * c, 1 - c, c) if 0 <= x <= c})
    bounds = special.betainc(first, second + third, corners)
    pieces = [
        # q = low + (high - low) w with w = u^3 (10 - 15 u + 6 u^2): flat at both ends
        integrate.quad(
            lambda u, low=low, high=high: (
                inner(low + (high - low) * u**3 * (10 - 15 * u + 6 * u * u)) * (high - low) * 30 * (u * (1 - u)) ** 2
            ),
            0,
            1,
            epsabs=1e-13,
            epsrel=1e-11,
            limit=400,
        )[0]
        for low, high in itertools.pairwise(bounds)
    ]
    return math.fsum(pieces)


CENTRES = [(0.3, 0.6, 2.0), (0.05, 0.02, 0.09), (4.0, 1.5, 7.0), (1.0, 1.0, 1.0), (30.0, 20.0, 25.0)]


@pytest.mark.parametrize("a", CENTRES)
@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.85, 0.97])
def test_centre_mass_against_quadrature(a: tuple[float, float, float], threshold: float) -> None:
    assert centre_mass(np.array(a), threshold) == pytest.approx(largest_of_three_at_most(a, threshold), rel=1e-9, abs=0)


def test_centre_mass_keeps_the_digits_of_a_small_centre() -> None:
    # a class that is nearly always sure: the centre is where it is not, 1e-60 of the whole
    a = (0.5, 900.0, 1.5)
    with mpmath.workdps(50):
        expected = beta_mass(a[1], a[0] + a[2], 0, 0.85)  # the others exceed .85 with probability 1e-700
    assert expected < 1e-50
    assert relative_error(centre_mass(np.array(a), 0.85), expected) < RELATIVE


@pytest.mark.parametrize("a", [(0.3, 0.7), (5.0, 1.3), (0.02, 0.4)])
def test_centre_mass_of_two_classes_is_an_interval_around_one_half(a: tuple[float, float]) -> None:
    expected = beta_mass(*a, 0.5, 0.75) + beta_mass(*a, 0.25, 0.5)
    assert relative_error(centre_mass(np.array(a), 0.75), expected) < RELATIVE


@pytest.mark.parametrize("a", CENTRES)
def test_max_tails_of_three_classes_against_quadrature(a: tuple[float, float, float]) -> None:
    edges = np.array([0.345, 0.4, 0.48, 0.5, 0.7, 0.93])
    tails = max_tails(np.array(a), edges)
    expected = [largest_of_three_at_most(a, c) for c in edges]
    assert tails.error < 1e-8
    np.testing.assert_allclose(tails.below, expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(tails.above, 1 - np.array(expected), rtol=0, atol=1e-8)
    # from one half on they are sums of Beta tails, without any grid
    np.testing.assert_allclose(tails.below[3:], expected[3:], rtol=1e-9)


@pytest.mark.parametrize("num_classes", [2, 3, 4, 5, 7, 12, 30])
def test_max_tails_of_the_flat_dirichlet_are_known(num_classes: int) -> None:
    chance = 1 / num_classes
    edges = np.array([chance + (1 - chance) * share for share in (0.02, 0.1, 0.2, 0.45, 0.8)])
    tails = max_tails(np.ones(num_classes), edges)
    expected = np.array([flat_max_at_most(num_classes, c) for c in edges])
    exact = edges >= 0.5
    # the extrapolation is better than its last change, which is what is promised
    np.testing.assert_allclose(tails.below, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(tails.below[exact], expected[exact], rtol=1e-12)
    np.testing.assert_allclose(tails.below + tails.above, 1, rtol=0, atol=1e-12)


def test_max_tails_far_out_keep_their_digits() -> None:
    # 5 classes of Dirichlet(20, ..): an entry above .95 has probability 1e-70, and its complement still differs from 1
    a = np.full(5, 20.0)
    above = max_tails(a, np.array([0.95])).above[0]
    expected = 5 * beta_mass(20.0, 80.0, 0.95, 1)
    assert 0 < above < 1e-60
    assert relative_error(above, expected) < RELATIVE


def test_max_tails_report_an_error_where_the_grid_is_too_coarse() -> None:
    assert max_tails(np.full(3, 1e7), np.array([0.3334])).error > 1e-6
    assert max_tails(np.full(3, 1e7), np.array([0.5])).error == 0.0


def test_a_rare_class_of_three_agrees_with_two_where_the_third_never_wins() -> None:
    for a, b in [(1e4, 9.2e3), (1e6, 9.9e5)]:
        got = largest_entry(np.array([a, b, 1e-3])).probabilities[1]
        assert relative_error(got, special.betaincc(b, a, 0.5)) < 1e-5


def test_a_rare_class_of_three_is_proportional_to_its_small_parameter() -> None:
    """P(k is the largest) is of first order in a_k; a parameter of 1e-6 is not rare, one of 1e-12 is."""
    rare, common = (largest_entry(np.array([a, 0.01, 0.02])).probabilities[0] / a for a in (1e-12, 1e-6))
    assert relative_error(rare, common) < 1e-4


@pytest.mark.parametrize("total", [30.0, 3e4, 3e7, 3e10])
def test_probabilities_of_large_parameters_sum_to_one(total: float) -> None:
    assert largest_entry(np.full(3, total / 3)).probabilities.sum() == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("rare", [1.0, 1e-3])
def test_equal_parameters_are_counted(rare: float) -> None:
    """Parameters that differ by 1e-9 are integrated one by one, and equal ones once."""
    a = np.array([2.0, 2.0, 2.0, 0.5, 0.5, rare])
    apart = a * (1 + 1e-9 * np.arange(6))
    found, expected = largest_entry(a), largest_entry(apart)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-7)
    assert found.expected == pytest.approx(expected.expected, rel=1e-7)
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-12)


def test_a_rare_class_among_equal_ones() -> None:
    found = largest_entry(np.array([60.0, 60.0, 60.0, 1.0, 1.0]))
    apart = largest_entry(np.array([60.0, 60.0, 60.0, 1.0, 1.0]) * (1 + 1e-9 * np.arange(5)))
    assert 0 < found.probabilities[3] < 1e-8
    np.testing.assert_allclose(found.probabilities, apart.probabilities, rtol=1e-5)


@pytest.mark.parametrize("total", [0.01, 0.7, 3.0])
def test_many_rare_classes_share_the_common_nodes(total: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """And agree with those that are integrated over their own range."""
    a = total * np.append(np.geomspace(1e-14, 1e-9, 6), [0.2, 0.3, 0.5])
    own = [_dirichlet._rare_probability(a, np.ones(9), k) for k in range(6)]
    assert max(own) < _dirichlet.RARE
    monkeypatch.setattr(_dirichlet, "_rare_probability", lambda *_: pytest.fail("a class was integrated on its own"))
    np.testing.assert_allclose(largest_entry(a).probabilities[:6], own, rtol=RELATIVE)


def test_a_rare_class_beyond_the_common_nodes_is_integrated_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only large parameter: its range is beyond those of the other classes, or far above their lower end."""
    asked = []
    monkeypatch.setattr(_dirichlet, "_rare_probability", lambda a, counts, k: asked.append(a[k]) or 0.5)
    largest_entry(np.array([1000.0, 1.0, 2.0]))
    assert asked == [1.0, 2.0]


@pytest.mark.parametrize("total", [0.5, 4.0, 150.0])
def test_max_tails_of_many_different_parameters(total: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Represented by a few, and one by one, on one grid; with a total of 150 some parameters exceed one."""
    shares = 1 / np.arange(1.0, 131)
    a, edges = total * shares / shares.sum(), np.array([0.15, 0.3, 0.45])
    represented, noise = _dirichlet._convolved_cdf(a, edges, 512)
    assert len(_dirichlet._represented(a)[0]) < 60
    monkeypatch.setattr(_dirichlet, "MANY", 1000)
    one_by_one, _ = _dirichlet._convolved_cdf(a, edges, 512)
    assert len(_dirichlet._represented(a)[0]) == 130
    np.testing.assert_allclose(represented, one_by_one, rtol=0, atol=1e-11 + 10 * noise)
