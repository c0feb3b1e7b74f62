"""`expect`: the numbers that a user stated come back from the belief, by integrals that the solver does not use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from scipy import integrate, special

from references import win_against_two
from selbo.summary import elicitation
from selbo.summary._gauss_rule import GaussRule, gauss_rule
from selbo.summary.beliefs import Beta, Dirichlet
from selbo.summary.elicitation import _solve_dirichlet, expect, expected_accuracy

RESIDUAL = 1e-8
FRACTIONS_0 = (0.469, 0.478, 0.5, 0.6, 0.8, 0.9, 0.95, 0.99)
ACCURACIES = (0.55, 0.7, 0.9, 0.95, 0.98, 0.99)


def lower_half(a: float, b: float, power: float) -> float:
    """Integral of s^(a - 1) (1 - s)^power over (0, 1/2), times 2^(a + b - 2), which keeps it from vanishing."""
    if a < 1:
        # (1 - s)^power = 1 + (the rest, of order s): the singular part is known, the rest is integrated in s = u^4
        scale = 2 ** (a + b - 2)
        rest = integrate.quad(
            lambda u: 4 * u ** (4 * a - 1) * math.expm1(power * math.log1p(-(u**4))),
            0,
            0.5**0.25,
            epsabs=0,
            epsrel=1e-12,
        )[0]
        return scale * (0.5**a / a + rest)

    # in the distance d from one half, with marks around the peak
    def integrand(d: float) -> float:
        return math.exp((a - 1) * math.log1p(-2 * d) + power * math.log1p(2 * d))

    peak, width = 0.5 * (power + 1 - a) / max(a + power - 1, 1.0), 0.5 / math.sqrt(a + b)
    marks = sorted({0.0, 0.5, *(d for k in (-16, -6, -2, 0, 2, 6, 16) if 0 < (d := peak + k * width) < 0.5)})
    pieces = [integrate.quad(integrand, *ends, epsabs=1e-20, epsrel=1e-12)[0] for ends in itertools.pairwise(marks)]
    return math.fsum(pieces) * 2 ** (b - 1 - power)


def binary_statement(a: float, b: float) -> tuple[float, float]:
    """P(s < 1/2) and E max(s, 1 - s) for Beta(a, b), with the normalisation from the same quadrature."""
    below, above = lower_half(a, b, b - 1), lower_half(b, a, a - 1)
    right = lower_half(a, b, b) + lower_half(b, a, a)
    return below / (below + above), right / (below + above)


@pytest.mark.parametrize("fraction_0", FRACTIONS_0)
@pytest.mark.parametrize("accuracy", ACCURACIES)
def test_two_classes_say_what_was_stated(accuracy: float, fraction_0: float) -> None:
    """Eq. (9) and Eq. (14) hold for the Beta that `expect` finds, on the grid where the published solver fails."""
    belief = expect(accuracy, [fraction_0, 1 - fraction_0])
    assert isinstance(belief, Beta)
    got_fraction, got_accuracy = binary_statement(belief.a, belief.b)
    assert abs(got_fraction - fraction_0) <= RESIDUAL
    assert abs(got_accuracy - accuracy) <= RESIDUAL


@pytest.mark.parametrize(("a", "b"), [(0.03, 0.4), (2.0, 5.0), (7.5, 0.6), (1.0, 1.0), (1e-6, 3e-6), (340.0, 333.0)])
def test_the_quadrature_of_this_file_against_mpmath(a: float, b: float) -> None:
    """Eq. (9) and Eq. (14) once more at 40 digits, so that the reference itself has a reference."""
    with mpmath.workdps(40):
        a_, b_ = mpmath.mpf(a), mpmath.mpf(b)
        fraction = mpmath.betainc(a_, b_, 0, 0.5, regularized=True)
        right_below = mpmath.betainc(a_, b_ + 1, 0, 0.5) / mpmath.beta(a_, b_)
        right_above = mpmath.betainc(a_ + 1, b_, 0.5, 1) / mpmath.beta(a_, b_)
    assert binary_statement(a, b) == pytest.approx((float(fraction), float(right_below + right_above)), abs=1e-11)


@pytest.mark.parametrize(
    ("a", "b"), [(0.03, 0.4), (0.4, 0.03), (2.0, 5.0), (7.5, 0.6), (1e-3, 2e-3), (244.0, 298.0), (0.0189, 0.167)]
)
def test_expected_accuracy_against_quadrature(a: float, b: float) -> None:
    """Eq. (9): right with probability max(s, 1 - s) at each score."""
    assert expected_accuracy(a, b) == pytest.approx(binary_statement(a, b)[1], rel=1e-10)


def hypergeometric_terms(a: float, b: float) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """What Eq. (18) is made of: 1 / (2^a B), then the three hypergeometric functions with their denominators."""
    a, b = mpmath.mpf(a), mpmath.mpf(b)
    return (
        1 / (2**a * mpmath.beta(a, b)),
        mpmath.hyp2f1(a, 1 - b, a + 1, 0.5) / a,
        mpmath.hyp2f1(a + 1, 1 - b, a + 2, 0.5) / (a + 1),
        mpmath.hyp2f1(a + 1, 1 - b, a + 2, 1) / (a + 1),
    )


@pytest.mark.parametrize("a", [0.05, 0.8, 2.0, 6.5, 30.0])
@pytest.mark.parametrize("b", [0.03, 1.0, 5.0, 22.0])
def test_expected_accuracy_is_the_corrected_hypergeometric_form(a: float, b: float) -> None:
    """Eq. (18) with a minus between its terms and 2^a before the last function.

    The paper integrates s f(s) up to 1/2 and from there to 1; s^(a + 1) is 2^-(a + 1) at 1/2, once on either side, and
    1 at the upper end.
    """
    with mpmath.workdps(40):
        front, first, second, third = hypergeometric_terms(a, b)
        corrected = front * (first - (second - 2 ** mpmath.mpf(a) * third))
    assert expected_accuracy(a, b) == pytest.approx(float(corrected), rel=1e-11)


@pytest.mark.parametrize(("a", "b"), [(2.0, 5.0), (0.4, 1.7), (0.0189, 0.167)])
def test_the_printed_hypergeometric_form_is_not_the_expected_accuracy(a: float, b: float) -> None:
    """Eq. (18) as printed: the sign is missing (a product, if taken literally), and so is the factor 2^a."""
    true = expected_accuracy(a, b)
    front, first, second, third = hypergeometric_terms(a, b)
    factor = 2 ** mpmath.mpf(a)
    printed = {
        "product": front * first * (second - third),
        "minus": front * (first - (second - third)),
        "plus": front * (first + (second - third)),
        "product, with the factor": front * first * (second - factor * third),
        "plus, with the factor": front * (first + (second - factor * third)),
    }
    for reading, value in printed.items():
        assert abs(float(value) - true) > 1e-3, reading
    if (a, b) == (2.0, 5.0):
        assert true == pytest.approx(0.734375, rel=1e-12)  # 47 / 64
        assert float(printed["minus"]) == pytest.approx(0.5201, abs=5e-5)
        assert float(printed["plus"]) == pytest.approx(1.2612, abs=5e-5)


# --- two classes, known answers ---


def test_uniform_scores_are_right_three_times_in_four() -> None:
    for belief in (expect(0.75), expect(0.75, [0.5, 0.5]), expect(0.75, num_classes=2)):
        assert isinstance(belief, Beta)
        assert (belief.a, belief.b) == pytest.approx((1, 1), rel=1e-10)


def test_the_example_of_the_audit() -> None:
    belief = expect(0.98, [0.9, 0.1])
    assert (belief.a, belief.b) == (pytest.approx(0.0189, abs=5e-5), pytest.approx(0.167, abs=5e-4))


def test_scores_distributed_as_a_power() -> None:
    # Beta(2, 1) has P(s < 1/2) = 1/4, and E max(s, 1 - s) = 1/4 - 1/12 + 7/12 = 3/4
    belief = expect(0.75, [0.25, 0.75])
    assert (belief.a, belief.b) == pytest.approx((2, 1), rel=1e-9)


@pytest.mark.parametrize("accuracy", ACCURACIES)
def test_equal_fractions_give_equal_parameters(accuracy: float) -> None:
    belief = expect(accuracy, [0.5, 0.5])
    assert belief.a == pytest.approx(belief.b, rel=1e-9)


@pytest.mark.parametrize("accuracy", [0.55, 0.9, 0.999])
@pytest.mark.parametrize("fraction", [0.3, 0.05, 1e-4])
def test_swapping_the_fractions_swaps_the_parameters(accuracy: float, fraction: float) -> None:
    rare_first, rare_last = expect(accuracy, [fraction, 1 - fraction]), expect(accuracy, [1 - fraction, fraction])
    assert rare_first.a == pytest.approx(rare_last.b, rel=1e-8)
    assert rare_first.b == pytest.approx(rare_last.a, rel=1e-8)
    assert rare_first.a > rare_first.b  # class 1 is the frequent one, so scores are high


@pytest.mark.parametrize(
    ("accuracy", "fraction_0"),
    [(0.5001, 0.5), (0.5001, 0.3), (0.501, 0.999), (0.9999, 0.5), (1 - 1e-6, 0.2), (0.9, 1e-4), (0.7, 1 - 1e-4)],
)
def test_two_classes_at_the_extremes(accuracy: float, fraction_0: float) -> None:
    belief = expect(accuracy, [fraction_0, 1 - fraction_0])
    got_fraction, got_accuracy = binary_statement(belief.a, belief.b)
    assert abs(got_fraction - fraction_0) <= RESIDUAL
    assert abs(got_accuracy - accuracy) <= RESIDUAL


def test_a_rare_class_is_resolved_relative_to_its_size() -> None:
    belief = expect(0.9, [1e-9, 1 - 1e-9])
    with mpmath.workdps(40):
        got = mpmath.betainc(belief.a, belief.b, 0, 0.5, regularized=True)
    assert float(got) == pytest.approx(1e-9, rel=1e-6, abs=0)


def test_more_accuracy_means_smaller_parameters() -> None:
    totals = [(belief := expect(accuracy, [0.3, 0.7])).a + belief.b for accuracy in ACCURACIES]
    assert totals == sorted(totals, reverse=True)


def test_fractions_are_normalised_within_a_millionth() -> None:
    off = expect(0.9, [0.3000001, 0.7000002])
    exact = expect(0.9, [0.3000001 / 1.0000003, 0.7000002 / 1.0000003])
    assert (off.a, off.b) == pytest.approx((exact.a, exact.b), rel=1e-9)


# --- more classes ---


def three_class_statement(a: Sequence[float]) -> tuple[list[float], float]:
    """P(k is the largest) for each class, and E max p, for K = 3."""
    turned = [(a[k], a[k - 1], a[k - 2]) for k in range(3)]
    accuracy = math.fsum(win_against_two(*t, moment=1) for t in turned)
    return [win_against_two(*t, moment=0) for t in turned], accuracy


def statement(a: np.ndarray) -> tuple[np.ndarray, float]:
    """The same for any K, from independent Gamma variables x_k: p_k is the largest if x_k is.

    E max p is E max x / A, and E max x is the integral of P(max x > t). Gauss-Legendre on growing intervals of x; below
    the first of them a distribution function is a power, and class k wins a share a_k / A.
    """
    total, smallest = a.sum(), 1e-18
    points, weights = np.polynomial.legendre.leggauss(32)
    marks = np.geomspace(smallest, 4 * (a.max() + 60), 160)
    widths = np.diff(marks)[:, None] / 2
    x = (marks[:-1, None] + widths * (1 + points)).reshape(-1, 1)
    w = (widths * weights).ravel()
    cdf = special.gammainc(a, x)
    log_density = (a - 1) * np.log(x) - x - special.gammaln(a)
    product = cdf.prod(1)
    ones = np.ones_like(x)  # the product over the classes before k, times that over those after it
    before, after = np.hstack([ones, cdf[:, :-1]]).cumprod(1), np.hstack([ones, cdf[:, :0:-1]]).cumprod(1)[:, ::-1]
    others = before * after
    start = special.gammainc(a, smallest).prod()
    return w @ (np.exp(log_density) * others) + start * a / total, float(w @ (1 - product)) / total


THREE = [(0.2, 0.3, 0.5), (1 / 3, 1 / 3, 1 / 3), (0.05, 0.9, 0.05), (1e-4, 0.2, 0.7999), (0.98, 0.01, 0.01)]


@pytest.mark.parametrize("fractions", THREE)
@pytest.mark.parametrize("accuracy", [0.35, 0.45, 0.6, 0.9, 0.99, 0.9999])
def test_three_classes_say_what_was_stated(accuracy: float, fractions: tuple[float, ...]) -> None:
    belief = expect(accuracy, fractions)
    assert isinstance(belief, Dirichlet)
    got_fractions, got_accuracy = three_class_statement(belief.concentration)
    np.testing.assert_allclose(got_fractions, fractions, rtol=0, atol=RESIDUAL)
    assert abs(got_accuracy - accuracy) <= RESIDUAL


@pytest.mark.parametrize("a", [(0.06, 0.09, 0.15), (0.01, 0.5, 2.0), (3.0, 4.0, 2.5)])
def test_the_two_references_of_this_file_agree(a: tuple[float, ...]) -> None:
    on_simplex, from_gammas = three_class_statement(a), statement(np.array(a))
    np.testing.assert_allclose(on_simplex[0], from_gammas[0], rtol=1e-9)
    assert on_simplex[1] == pytest.approx(from_gammas[1], rel=1e-10)


FOUR_TO_TEN = [
    (0.3, (0.1, 0.2, 0.3, 0.4)),
    (0.7, (0.1, 0.2, 0.3, 0.4)),
    (0.9, (1e-4, 1e-4, 1e-4, 0.4, 0.3, 0.2, 0.0997)),
    (0.35, (1e-4, 1e-4, 1e-4, 0.4, 0.3, 0.2, 0.0997)),
    (0.999, (0.02, 0.08, 0.2, 0.3, 0.4)),
    (0.3, tuple(k / 55 for k in range(1, 11))),
    (0.9, tuple(k / 55 for k in range(1, 11))),
    (0.2, (0.1,) * 10),
]


@pytest.mark.parametrize(("accuracy", "fractions"), FOUR_TO_TEN)
def test_more_classes_say_what_was_stated(accuracy: float, fractions: tuple[float, ...]) -> None:
    belief = expect(accuracy, fractions)
    assert isinstance(belief, Dirichlet)
    assert len(belief.concentration) == len(fractions)
    got_fractions, got_accuracy = statement(np.array(belief.concentration))
    np.testing.assert_allclose(got_fractions, fractions, rtol=0, atol=RESIDUAL)
    assert abs(got_accuracy - accuracy) <= RESIDUAL


def test_a_hundred_classes() -> None:
    fractions = np.arange(1, 101) / 5050
    belief = expect(0.9, fractions.tolist())
    got_fractions, got_accuracy = statement(np.array(belief.concentration))
    np.testing.assert_allclose(got_fractions, fractions, rtol=0, atol=RESIDUAL)
    assert abs(got_accuracy - 0.9) <= RESIDUAL


@pytest.mark.parametrize("num_classes", [3, 4, 10])
def test_a_flat_dirichlet_is_found_from_its_harmonic_number(num_classes: int) -> None:
    accuracy = sum(1 / j for j in range(1, num_classes + 1)) / num_classes
    belief = expect(accuracy, num_classes=num_classes)
    assert isinstance(belief, Dirichlet)
    np.testing.assert_allclose(belief.concentration, np.ones(num_classes), rtol=1e-7)


@pytest.mark.parametrize("accuracy", [0.55, 0.7, 0.9, 0.99])
@pytest.mark.parametrize("fraction_0", [0.469, 0.5, 0.8, 0.99])
def test_the_dirichlet_solver_agrees_with_the_beta_for_two_classes(accuracy: float, fraction_0: float) -> None:
    beta = expect(accuracy, [fraction_0, 1 - fraction_0])
    found = _solve_dirichlet(accuracy, np.array([fraction_0, 1 - fraction_0]))
    np.testing.assert_allclose(found, [beta.b, beta.a], rtol=1e-8)


@pytest.mark.parametrize("accuracy", [0.4, 0.9])
def test_relabelling_the_fractions_relabels_the_parameters(accuracy: float) -> None:
    fractions = (0.1, 0.25, 0.6, 0.05)
    original = np.array(expect(accuracy, fractions).concentration)
    for order in ((1, 0, 2, 3), (3, 2, 1, 0), (2, 3, 0, 1)):
        relabelled = expect(accuracy, [fractions[k] for k in order]).concentration
        np.testing.assert_allclose(relabelled, original[list(order)], rtol=1e-8)


def test_sure_predictions_have_parameters_in_proportion_to_the_fractions() -> None:
    # to first order 1 - accuracy = A log 2 P(two draws of a class differ)
    fractions = np.array([0.2, 0.3, 0.5])
    a = np.array(expect(1 - 1e-5, fractions.tolist()).concentration)
    np.testing.assert_allclose(a / a.sum(), fractions, rtol=1e-4)
    assert a.sum() == pytest.approx(1e-5 / (math.log(2) * (1 - (fractions**2).sum())), rel=1e-4)


@pytest.mark.parametrize("excess", [1e-3, 0.01])
def test_accuracies_close_to_guessing(excess: float) -> None:
    a = expect(1 / 3 + excess, num_classes=3).concentration
    got_fractions, got_accuracy = three_class_statement(a)
    np.testing.assert_allclose(got_fractions, 1 / 3, rtol=0, atol=RESIDUAL)
    assert abs(got_accuracy - 1 / 3 - excess) <= RESIDUAL
    # p is then nearly normal: three equal variables of variance 1 / (3 (A + 1)) less their mean, and the expectation of
    # the largest of three standard normal variables is 3 / (2 sqrt(pi))
    spread = math.sqrt(1 / (3 * (math.fsum(a) + 1)))
    assert excess == pytest.approx(1.5 / math.sqrt(math.pi) * spread, rel=excess)


# --- many classes, represented by a few nodes ---


def zipf(num_classes: int, power: float = 1.0) -> np.ndarray:
    shares = np.arange(1.0, num_classes + 1) ** -power
    return np.asarray(shares / shares.sum())


def one_frequent(num_classes: int) -> np.ndarray:
    """One class with a fraction of .9; the others from 1e-6 on."""
    rest = np.geomspace(1e-6, 1e-2, num_classes - 1)
    return np.append(0.9, 0.1 * rest / rest.sum())


MANY = {
    "zipf": zipf(120),
    "steep": zipf(110, 2.5),
    "one frequent": one_frequent(100),
    "two groups": np.append(np.linspace(1, 1.2, 50), np.linspace(500, 700, 60)) / 36055,
    "evenly apart": np.geomspace(1e-6, 1, 97) / np.geomspace(1e-6, 1, 97).sum(),
}


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("accuracy", ["near guessing", "below the largest fraction", "above it", 0.9, 0.9999])
def test_many_different_fractions_say_what_was_stated(accuracy: str | float, name: str) -> None:
    """Each fraction to 1e-6 of itself, by the integrals of this file, which know nothing of nodes."""
    fractions = MANY[name] / MANY[name].sum()
    largest, chance = fractions.max(), 1 / len(fractions)
    words = {
        "near guessing": 1.5 * chance,
        "below the largest fraction": (largest + chance) / 2,
        "above it": 1.02 * largest,
    }
    stated = words[accuracy] if isinstance(accuracy, str) else accuracy
    a = np.array(expect(stated, fractions.tolist()).concentration)
    got_fractions, got_accuracy = statement(a)
    np.testing.assert_allclose(got_fractions, fractions, rtol=1e-6)
    assert abs(got_accuracy - stated) <= RESIDUAL


@pytest.mark.parametrize("name", ["zipf", "one frequent"])
@pytest.mark.parametrize("accuracy", [0.3, 0.95])
def test_nodes_find_the_parameters_of_a_solver_with_all_classes(
    accuracy: float, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fractions = MANY[name][:40] / MANY[name][:40].sum()
    by_nodes = expect(accuracy, fractions.tolist()).concentration
    monkeypatch.setattr(elicitation, "NODES", (40,))
    one_by_one = expect(accuracy, fractions.tolist()).concentration
    assert by_nodes != one_by_one
    np.testing.assert_allclose(by_nodes, one_by_one, rtol=1e-8)


def test_too_few_nodes_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def counted(points: np.ndarray, counts: np.ndarray, size: int) -> GaussRule:
        tried.append(size)
        return gauss_rule(points, counts, size)

    monkeypatch.setattr(elicitation, "gauss_rule", counted)
    monkeypatch.setattr(elicitation, "NODES", (4, 8, 30, 60))
    fractions = zipf(80)
    got_fractions, got_accuracy = statement(np.array(expect(0.7, fractions.tolist()).concentration))
    assert tried == [4, 8, 30]
    np.testing.assert_allclose(got_fractions, fractions, rtol=1e-6)
    assert abs(got_accuracy - 0.7) <= RESIDUAL


def test_nodes_that_never_suffice_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elicitation, "NODES", (3, 4))
    with pytest.raises(ValueError, match=TOO_CLOSE):
        expect(0.7, zipf(80, 2.0).tolist())


@pytest.mark.parametrize("num_classes", [6, 60])
def test_parameters_of_negligible_fractions_are_in_proportion_to_them(num_classes: int) -> None:
    rest = zipf(num_classes - 3)
    a = np.array(expect(0.8, [1e-60, 1e-30, 2e-15, *rest]).concentration)
    np.testing.assert_allclose(a[:2] / a[2], [5e-46, 5e-16], rtol=1e-9)


def test_the_order_of_many_fractions_does_not_matter(seed: int) -> None:
    fractions = zipf(200)
    order = np.random.default_rng(seed).permutation(200)
    original = np.array(expect(0.8, fractions.tolist()).concentration)
    np.testing.assert_allclose(expect(0.8, fractions[order].tolist()).concentration, original[order], rtol=1e-9)


# --- what cannot be reached ---


@pytest.mark.parametrize("accuracy", [0.5, 0.3, 0.0, -1.0, 1.0, 1.2, math.inf])
def test_accuracies_that_two_classes_cannot_reach(accuracy: float) -> None:
    message = r"^`accuracy` must lie strictly between 0\.5 and 1, which is what 2 classes can reach .*, but got "
    with pytest.raises(ValueError, match=message):
        expect(accuracy)
    with pytest.raises(ValueError, match=message):
        expect(accuracy, [0.3, 0.7])


@pytest.mark.parametrize(("num_classes", "low"), [(3, "0.333333"), (4, "0.25"), (10, "0.1"), (100, "0.01")])
def test_accuracies_that_more_classes_cannot_reach(num_classes: int, low: str) -> None:
    message = rf"^`accuracy` must lie strictly between {low} and 1, which is what {num_classes} classes can reach"
    for accuracy in (1 / num_classes, 0.5 / num_classes, 1.0):
        with pytest.raises(ValueError, match=message):
            expect(accuracy, num_classes=num_classes)


@pytest.mark.parametrize(("accuracy", "came"), [(math.nan, "NaN"), ("high", "'high'"), (None, "None")])
def test_an_accuracy_that_is_no_number(accuracy: float, came: str) -> None:
    with pytest.raises(ValueError, match=f"^`accuracy` must be a number, but got {came}$"):
        expect(accuracy)


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ([0.5, 0.4], r"must sum to 1, but the sum of \[0\.5, 0\.4\] is 0\.9"),
        ([30, 70], r"must sum to 1, but the sum of \[30\.0, 70\.0\] is 100"),
        ([0.0, 1.0], r"must be positive, every one of them, but got \[0\.0, 1\.0\]"),
        ([0.2, 0.9, -0.1], r"must be positive, every one of them, but got \[0\.2, 0\.9, -0\.1\]"),
        ([1.0], r"must hold at least 2 numbers, but got 1"),
        ([], r"must hold at least 2 numbers, but got 0"),
        ([0.5, math.nan], r"must be a number, but got NaN"),
        ([0.5, "half"], r"must be a number, but got 'half'"),
    ],
)
def test_fractions_that_are_none(fractions: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^`class_fractions` {message}"):
        expect(0.9, fractions)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_the_number_of_classes_must_be_that_of_the_fractions(num_classes: int) -> None:
    message = f"^`num_classes` must be the number of `class_fractions`, 3, but got {num_classes}$"
    with pytest.raises(ValueError, match=message):
        expect(0.9, [0.2, 0.3, 0.5], num_classes=num_classes)
    assert expect(0.9, [0.2, 0.3, 0.5], num_classes=3).concentration == expect(0.9, [0.2, 0.3, 0.5]).concentration


@pytest.mark.parametrize("num_classes", [1, 0, -2, 2.0, True])
def test_the_number_of_classes_must_be_a_whole_number(num_classes: int) -> None:
    with pytest.raises(
        ValueError, match=f"^`num_classes` must be a whole number of at least 2, but got {num_classes}$"
    ):
        expect(0.9, num_classes=num_classes)


TOO_CLOSE = r"^`accuracy` of .* is so close to the end of its range that no belief could be found .*: move it inwards$"


@pytest.mark.parametrize(
    ("accuracy", "fractions"),
    [(0.5 + 1e-8, (0.5, 0.5)), (0.5 + 1e-8, (0.3, 0.7)), (1 / 3 + 1e-9, (0.2, 0.3, 0.5)), (1 - 1e-13, (0.2, 0.3, 0.5))],
)
def test_accuracies_too_close_to_the_ends_are_refused(accuracy: float, fractions: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=TOO_CLOSE):
        expect(accuracy, fractions)


@pytest.mark.parametrize("excess", [1e-15, 1e-9, 1e-5])
@pytest.mark.parametrize("fractions", [(1 / 3, 1 / 3, 1 / 3), (0.8, 0.15, 0.05), (0.1,) * 10])
def test_accuracies_too_close_to_guessing_are_refused_without_a_search(
    excess: float, fractions: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elicitation, "_newton", lambda *_: pytest.fail("a search was started"))
    with pytest.raises(ValueError, match=TOO_CLOSE):
        expect(1 / len(fractions) + excess, fractions)


@pytest.mark.parametrize("fractions", [(1 / 3, 1 / 3, 1 / 3), (0.5, 0.3, 0.2), (0.1,) * 10])
def test_the_parameters_that_an_accuracy_needs_at_least(fractions: tuple[float, ...]) -> None:
    """Equal fractions need these, up to Blom's approximation, and others need larger ones."""
    accuracy = 1 / len(fractions) + 1e-3
    found = expect(accuracy, fractions).concentration
    ratio = math.fsum(found) / len(found) / elicitation._least_parameter(accuracy, len(found))
    assert 0.94 < ratio < (1.06 if len(set(fractions)) == 1 else 2)
    assert ratio > 1.06 or len(set(fractions)) == 1


@pytest.mark.stochastic
def test_a_thousand_classes_of_two_frequencies(seed: int) -> None:
    """Samples of the belief: how often each kind of class has the largest probability, and how large it is."""
    fractions = [0.05] * 10 + [0.5 / 990] * 990
    belief = expect(accuracy=0.75, class_fractions=fractions)
    a = np.array(belief.concentration)
    generator = np.random.default_rng(seed)
    gammas = np.log(generator.gamma(a + 1, size=(4000, 1000))) + np.log(generator.random((4000, 1000))) / a
    largest = np.exp(gammas.max(1) - np.logaddexp.reduce(gammas, axis=1))
    assert abs(largest.mean() - 0.75) < 5 * largest.std() / 4000**0.5
    frequent = (gammas.argmax(1) < 10).mean()
    assert abs(frequent - 0.5) < 5 * 0.5 / 4000**0.5


@pytest.mark.stochastic
def test_a_thousand_classes_of_different_frequencies(seed: int) -> None:
    """Samples of the belief, which no integral is needed for."""
    fractions = zipf(1000)
    a = np.array(expect(accuracy=0.75, class_fractions=fractions.tolist()).concentration)
    generator = np.random.default_rng(seed)
    gammas = np.log(generator.gamma(a + 1, size=(4000, 1000))) + np.log(generator.random((4000, 1000))) / a
    largest = np.exp(gammas.max(1) - np.logaddexp.reduce(gammas, axis=1))
    assert abs(largest.mean() - 0.75) < 5 * largest.std() / 4000**0.5
    for classes in (slice(0, 1), slice(1, 10), slice(10, 100), slice(100, 1000)):
        share = fractions[classes].sum()
        found = np.isin(gammas.argmax(1), np.arange(1000)[classes]).mean()
        assert abs(found - share) < 5 * math.sqrt(share * (1 - share) / 4000)
