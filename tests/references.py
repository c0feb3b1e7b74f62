"""Independent references for the tests: the same quantities by other means than the library's."""

import math
from fractions import Fraction

import mpmath
from scipy import integrate, special


def beta_mass(a: float, b: float, low: float, high: float) -> mpmath.mpf:
    """P(low < Beta(a, b) <= high) to 50 digits; above the mean from the upper end, so that a tail keeps its digits."""
    with mpmath.workdps(50):
        low, high, a, b = (mpmath.mpf(v) for v in (low, high, a, b))
        if low > a / (a + b):
            a, b, low, high = b, a, 1 - high, 1 - low
        upper = mpmath.betainc(a, b, 0, high, regularized=True)
        return upper - mpmath.betainc(a, b, 0, low, regularized=True) if low else upper


def relative_error(got: float, expected: mpmath.mpf) -> float:
    return float(abs(mpmath.mpf(got) / expected - 1))


def win_against_two(own: float, left: float, right: float, moment: int) -> float:
    """E[p^moment; p is the largest] for one entry p of three, on the simplex itself: no Gamma variables.

    Given p = x the other two share 1 - x as a Beta variable v, and p is the largest if max(v, 1 - v) < x / (1 - x):
    always for x > 1/2, never for x < 1/3.
    """
    rest, log_front = left + right, -special.betaln(own, left + right)

    def integrand(u: float) -> float:
        x = 0.5 - u**8 / 6  # smooths the power singularity at one half
        odds = min(x / (1 - x), 1.0)
        density = math.exp(log_front + (own - 1) * math.log(x) + (rest - 1) * math.log1p(-x))
        wins = special.betainc(left, right, odds) - special.betainc(left, right, 1 - odds)
        return float(x**moment * density * wins * 8 * u**7 / 6)

    above = special.betaincc(own + moment, rest, 0.5) * (own / (own + rest)) ** moment
    return float(above) + integrate.quad(integrand, 0, 1, epsabs=1e-14, epsrel=1e-12, limit=400)[0]


def flat_max_at_most(num_classes: int, c: float) -> float:
    """P(max <= c) for a point chosen uniformly: inclusion and exclusion over the corners that exceed c."""
    edge = Fraction(c)
    return float(
        sum(
            (-1) ** j * math.comb(num_classes, j) * max(1 - j * edge, Fraction(0)) ** (num_classes - 1)
            for j in range(num_classes + 1)
        )
    )
