"""Integrals of a Dirichlet distribution over the regions of a partition, as exactly as float64 allows.

A Dirichlet vector is a vector of independent Gamma(a_k) variables divided by their sum, and the division does not
change which is the largest. Everything about the largest entry is therefore a one-dimensional integral over the size
of the largest Gamma variable, taken here over its logarithm, where the integrand is log-concave.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from selbo._numerics import FloatArray
from selbo.summary._gauss_rule import gauss_rule

LOG_NEGLIGIBLE: Final = -46.0
"""exp(-46) = 1e-20: the part of an integral of order one that is neglected."""

LOG_TINY: Final = -36.0
"""exp(-36) = 2e-16: below it a Gamma distribution function equals its leading power to the last bit."""

PANELS: Final = 64
NODES_A_PANEL: Final = 16
"""Gauss-Legendre nodes. The probabilities of the largest entry then sum to one within 1e-13 (tested)."""

LARGE: Final = 1000.0
"""Above this parameter, log Gamma is computed by Stirling's series."""

RARE: Final = 1e-8
FILLED: Final = 0.25
"""A class that is the largest with a lower probability than the first is integrated over its own range, unless the
common nodes cover that and the second part of them or more lies in it."""

FIRST_CELLS: Final = 2**10
MOST_CELLS: Final = 2**16
UNCUT: Final = 1.5
ROUNDING: Final = 1e-15
CONVOLUTION_ERROR: Final = 1e-8
"""The grids of `max_tails`: cells of the unit interval, doubled until the result changes by less than the error; where
an uncut variable is truncated, well above the sum of one; and the rounding error of a Fourier transform."""

MANY: Final = 96
REPRESENTATIVES: Final = 24
SMALLEST: Final = 1e-16
"""Of more different parameters below one than the first, the second number represents them in `max_tails`, and smaller
ones than the third count as that."""

SCRAMBLINGS: Final = 8
MOST_QUANTILES: Final = 2**18
FEWEST_POINTS: Final = 2**12
MOST_POINTS: Final = 2**16
HALF_SOBOL_STEP: Final = 2.0**-31
TABLE: Final = 2**12
"""Quasi-Monte Carlo: independent sequences, quantiles and points of each; half the resolution of a sequence, which
keeps its points off 0; and nodes of a table of quantiles."""


class LargestEntry(NamedTuple):
    """Properties of the largest entry of a Dirichlet vector.

    Attributes:
        probabilities: P(entry k is the largest), shape (K,).
        expected: E max_k p_k, the accuracy of a calibrated classifier with this distribution of predictions.
    """

    probabilities: FloatArray
    expected: float


class GammaTables(NamedTuple):
    """Gamma(a_k) variables tabulated over the nodes y of a quadrature for the largest one, x = exp(y).

    Attributes:
        nodes: Nodes y, shape (n,).
        log_weights: Logarithms of the quadrature weights, shape (n,).
        log_density: Log-density of log Gamma(a_k) at y, shape (n, K).
        log_cdf: log P(Gamma(a_k) <= x), shape (n, K).
        counts: Number of variables with each parameter, shape (K,).
        low: Lower end of the first panel.
        log_tail: log P(all variables are below ``low``); integrals below it have a closed form.
    """

    nodes: FloatArray
    log_weights: FloatArray
    log_density: FloatArray
    log_cdf: FloatArray
    counts: FloatArray
    low: float
    log_tail: float


def largest_entry(concentration: FloatArray) -> LargestEntry:
    r"""Probability of being the largest, and expected largest entry, of a Dirichlet vector.

    With $f_k$ and $F_k$ the density and distribution function of Gamma($a_k$), and $A = \sum_k a_k$,

    $$P(k \text{ is the largest}) = \int f_k \prod_{j \ne k} F_j \,\mathrm{d}x, \qquad
    E \max_k p_k = \frac{1}{A} \int x \sum_k f_k \prod_{j \ne k} F_j \,\mathrm{d}x ,$$

    where the second equals $\sum_k (a_k / A)\, P_{a + e_k}(k \text{ is the largest})$.

    Args:
        concentration: Dirichlet parameters, positive, shape (K,).

    Returns:
        Probabilities and the expected largest entry. The relative error is about 1e-12, and 1e-10 for parameters of
        1e6. For these, a probability below 1e-8 has a relative error of 1e-5, that of the incomplete gamma function in
        its tails.
    """
    a = np.asarray(concentration, dtype=np.float64)
    if len(a) == 2:
        return LargestEntry(beta_tails(a[::-1], a, 0.5).below, expected_accuracy(a[1], a[0]))
    different, place, how_many = np.unique(a, return_inverse=True, return_counts=True)
    counts = how_many.astype(np.float64)
    tables = gamma_tables(different, counts)
    log_terms = log_integrand(tables)
    integrand = np.exp(log_terms)
    tail = np.exp(tables.log_tail) * different / a.sum()
    probabilities = integrand.sum(0) + tail
    expected = float((integrand @ counts * np.exp(tables.nodes)).sum() / a.sum())  # the tail adds less than exp(-36)
    covered = _within_nodes(log_terms - tables.log_weights[:, None], tables.low)
    for k in np.flatnonzero((probabilities < RARE) & ~covered):
        probabilities[k] = _rare_probability(different, counts, int(k))
    return LargestEntry(probabilities[place], expected)


def log_integrand(tables: GammaTables) -> FloatArray:
    """Log of weight x f_k x the product of the other F_j at each node: (n, K)."""
    log_product = (tables.log_cdf @ tables.counts)[:, None]
    return np.asarray(tables.log_weights[:, None] + tables.log_density + log_product - tables.log_cdf)


def _within_nodes(log_f: FloatArray, low: float) -> NDArray[np.bool_]:
    """Whether log-concave integrands, (n, K), have their range within the nodes and fill a part of it: (K,).

    Below LOG_TINY an integral has a closed form, so an integrand need not vanish at that end.
    """
    near = log_f > log_f.max(0) + LOG_TINY
    return np.asarray((~near[0] | (low == LOG_TINY)) & ~near[-1] & (near.mean(0) > FILLED))


def gamma_tables(a: FloatArray, counts: FloatArray) -> GammaTables:
    """Nodes and weights that cover the largest of independent Gamma variables, and tables on these nodes.

    Args:
        a: Different parameters, shape (K,).
        counts: Number of variables with each, shape (K,). A thousand equal classes are one parameter.
    """
    from scipy.special import gammainccinv

    # Gamma densities of small parameters are proportional to exp(-x), whatever their probability
    high = math.log(max(float(gammainccinv(a, math.exp(LOG_NEGLIGIBLE)).max()), -LOG_NEGLIGIBLE))
    low = _where_log_product_falls_to(LOG_NEGLIGIBLE, a, counts, high)
    nodes, weights = _panels(low, high)
    return GammaTables(
        nodes=nodes,
        log_weights=np.log(weights),
        log_density=_log_gamma_density(a, nodes[:, None]),
        log_cdf=log_gamma_cdf(a, nodes[:, None]),
        counts=counts,
        low=low,
        log_tail=float(log_gamma_cdf(a, np.array(low)) @ counts),
    )


def _log_gamma_density(a: FloatArray, y: FloatArray) -> FloatArray:
    """Log-density of the logarithm of a Gamma(a) variable, a y - exp(y) - log Gamma(a).

    Far from zero these terms are large and cancel, so they are taken relative to the mode, y = log a.
    """
    from scipy.special import gammaln

    at_mode = a * np.log(a) - a - gammaln(a)
    stirling = 0.5 * np.log(a / (2 * np.pi)) - (1 - 1 / (30 * a * a)) / (12 * a)
    from_mode = y - np.log(a)
    return np.asarray(np.where(a > LARGE, stirling, at_mode) - a * _exp_less_tangent(from_mode))


def _exp_less_tangent(u: FloatArray) -> FloatArray:
    """exp(u) - 1 - u, without cancellation near zero."""
    series = u * u / 2 * (1 + u / 3 * (1 + u / 4 * (1 + u / 5 * (1 + u / 6 * (1 + u / 7)))))
    return np.where(np.abs(u) < 0.05, series, np.expm1(np.where(np.abs(u) < 0.05, 0.0, u)) - u)


def log_gamma_cdf(a: FloatArray, y: FloatArray) -> FloatArray:
    """Logarithm of P(Gamma(a) <= exp(y)), also where exp(y) underflows."""
    from scipy.special import gammainc, gammaln

    with np.errstate(divide="ignore"):  # log 0 = -inf is the right limit
        direct = np.log(gammainc(a, np.exp(np.maximum(y, LOG_TINY))))
    return np.where(y < LOG_TINY, a * y - gammaln(a + 1), direct)


def _panels(low: float, high: float) -> tuple[FloatArray, FloatArray]:
    points, weights = np.polynomial.legendre.leggauss(NODES_A_PANEL)
    width = (high - low) / PANELS
    centres = low + width * (np.arange(PANELS) + 0.5)
    return (centres[:, None] + width / 2 * points).ravel(), np.tile(width / 2 * weights, PANELS)


def _where_log_product_falls_to(level: float, a: FloatArray, counts: FloatArray, high: float) -> float:
    """Lower end of the nodes: where the product of all Gamma CDFs falls below exp(level), at least LOG_TINY."""
    low = LOG_TINY
    if log_gamma_cdf(a, np.array(low)) @ counts > level:
        return low
    return _bisect(lambda y: float(log_gamma_cdf(a, np.array(y)) @ counts) - level, low, high)


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return low


def _rare_probability(a: FloatArray, counts: FloatArray, k: int) -> float:
    """P(an entry with parameter k is the largest), integrated over its own range, which the common nodes may miss."""
    others, total = counts - (np.arange(len(a)) == k), float(a @ counts)
    a_others, others = a[others > 0], others[others > 0]

    def log_f(y: FloatArray) -> FloatArray:
        return np.asarray(_log_gamma_density(a[k], y) + log_gamma_cdf(a_others, np.asarray(y)[..., None]) @ others)

    low, high = LOG_TINY, math.log(2 * (total + 400))
    mode = _mode(lambda y: float(log_f(np.array(y))), low, high)
    level = float(log_f(np.array(mode))) + LOG_NEGLIGIBLE
    left = _bisect(lambda y: float(log_f(np.array(y))) - level, low, mode)
    right = _bisect(lambda y: level - float(log_f(np.array(y))), mode, high)
    nodes, weights = _panels(left, right)
    below_low = a[k] / total * math.exp(float(log_gamma_cdf(a, np.array(LOG_TINY)) @ counts))
    return float(np.exp(log_f(nodes)) @ weights + below_low)


def _mode(log_concave: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(60):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        at_first, at_second = log_concave(first), log_concave(second)
        # where both underflow, the mode is to the right: on the left the distribution functions vanish
        low, high = (first, high) if at_first < at_second or at_first == -math.inf else (low, second)
    return (low + high) / 2


class Tails(NamedTuple):
    """Mass below and above each edge, computed separately so that the smaller one is exact.

    Attributes:
        below: Shape (E,).
        above: Shape (E,).
        error: Estimate of the absolute error; 0 where a closed form was used.
    """

    below: FloatArray
    above: FloatArray
    error: float = 0.0

    def masses(self) -> FloatArray:
        """Mass of each interval between the edges, computed from the smaller tails: (E + 1,)."""
        below = np.concatenate([[0.0], self.below, [1.0]])
        above = np.concatenate([[1.0], self.above, [0.0]])
        return np.where(below[1:] <= 0.5, np.diff(below), -np.diff(above))


def beta_tails(a: float | FloatArray, b: float | FloatArray, edges: float | FloatArray) -> Tails:
    """Distribution function of Beta(a, b), Eq. (12), and its complement at each edge."""
    from scipy.special import betainc, betaincc

    return Tails(np.asarray(betainc(a, b, edges), np.float64), np.asarray(betaincc(a, b, edges), np.float64))


def expected_accuracy(a: float, b: float) -> float:
    r"""Expected accuracy of a binary classifier with calibrated scores distributed as Beta(a, b), Eq. (9).

    $E \max(s, 1 - s) = F(1/2) - \mu\,(2 I_{1/2}(a + 1, b) - 1)$ with $\mu = a / (a + b)$: the closed form of Eq. (18)
    with two misprints corrected (docs/explanation/deviations.md), written with the regularised incomplete beta
    function $I$.
    """
    from scipy.special import betainc

    return float(betainc(a, b, 0.5) + a / (a + b) * (betainc(b, a + 1, 0.5) - betainc(a + 1, b, 0.5)))


def centre_mass(concentration: FloatArray, threshold: float) -> float:
    """P(no entry exceeds the threshold) for a Dirichlet vector and a threshold of at least one half.

    The events p_k > t exclude each other; starting from the most likely one minimises cancellation. For two classes the
    centre is an interval.
    """
    if len(concentration) == 2:
        first, second = concentration
        return float(beta_tails(first, second, np.array([1 - threshold, threshold])).masses()[1])
    tails = beta_tails(concentration, concentration.sum() - concentration, threshold)
    likeliest = int(np.argmax(tails.above))
    return float(tails.below[likeliest] - np.delete(tails.above, likeliest).sum())


def max_tails(concentration: FloatArray, edges: FloatArray) -> Tails:
    r"""P(max_k p_k <= c) and P(max_k p_k > c) for a Dirichlet vector, at each c of ``edges``.

    For c of at least one half, the events p_k > c exclude each other, and the result is an exact sum of Beta tails.
    Below one half, it is the density at one of a sum of Gamma variables truncated at c, divided by that of the
    untruncated sum. Both are convolved on successively finer grids, whose cells preserve mass and mean, until the
    extrapolation to cells of zero width converges.

    Args:
        concentration: Dirichlet parameters, positive, shape (K,).
        edges: In (1/K, 1), increasing, shape (E,).

    Returns:
        Both tails. Their error is the last change of the extrapolation, at most 1e-8 in all but extreme cases.
    """
    a = np.asarray(concentration, dtype=np.float64)
    low = edges[edges < 0.5]
    convolved, error = _extrapolated_cdf(a, low) if len(low) else (low, 0.0)
    high = [c for c in edges if c >= 0.5]
    below = np.array([*convolved, *(centre_mass(a, c) for c in high)])
    above = np.array([*(1 - convolved), *(beta_tails(a, a.sum() - a, c).above.sum() for c in high)])
    return Tails(below, above, error)


def _extrapolated_cdf(a: FloatArray, edges: FloatArray) -> tuple[FloatArray, float]:
    cells = FIRST_CELLS
    fine, noise = _convolved_cdf(a, edges, cells)
    estimate, change = fine, math.inf
    while change > max(CONVOLUTION_ERROR, noise) and cells < MOST_CELLS:
        cells *= 2
        coarse, last = fine, estimate
        fine, noise = _convolved_cdf(a, edges, cells)
        estimate = fine + (fine - coarse) / 3  # the error of a grid is of second order in its cell width
        change = float(np.abs(estimate - last).max())
    return estimate, max(change, noise)


def _convolved_cdf(a: FloatArray, edges: FloatArray, cells: int) -> tuple[FloatArray, float]:
    """The distribution function on one grid, and what the rounding of Fourier transforms does to it."""
    from scipy.fft import irfft, rfft

    rate = max(a.sum(), 5.0)  # a Dirichlet vector does not depend on the rate; 5 keeps far sums negligible
    length = 8 * cells
    cuts = [*edges, UNCUT]
    spectra = np.ones((len(cuts), length // 2 + 1), dtype=np.complex128)
    for value, count in zip(*_represented(a), strict=True):
        for spectrum, masses in zip(spectra, _cut_gamma_masses(float(value), rate, cuts, cells), strict=True):
            spectrum *= rfft(masses, length) ** count
    mass_at_one = irfft(spectra, length)[:, cells]
    noise = ROUNDING / mass_at_one[-1]
    return np.asarray(mass_at_one[:-1] / mass_at_one[-1]), float(noise)


def _represented(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Different parameters and the number of variables with each; many below one are represented by a few.

    A Gamma density with a parameter below one falls everywhere. The Fourier transform of such a density, cut or not,
    has a positive imaginary part, so its logarithm is a smooth function of the parameter.
    """
    different, how_many = np.unique(a, return_counts=True)
    counts, below = how_many.astype(np.float64), different < 1
    if below.sum() <= MANY:
        return different, counts
    rule = gauss_rule(np.log(np.maximum(different[below], SMALLEST)), counts[below], REPRESENTATIVES)
    return np.append(np.exp(rule.nodes), different[~below]), np.append(rule.weights, counts[~below])


def _cut_gamma_masses(a: float, rate: float, cuts: list[float], cells: int) -> list[FloatArray]:
    """Gamma(a, rate) truncated at each of ``cuts``, on the points 0, 1/cells, ..; cells preserve mass and mean."""
    from scipy.special import gammainc

    points = np.arange(math.ceil(UNCUT * cells) + 1) / cells
    distribution, first_moment = gammainc(a, rate * points), gammainc(a + 1, rate * points) * a / rate
    results = []
    for cut in cuts:
        last = math.ceil(cut * cells)
        mass = np.diff(distribution[: last + 1])
        moment = np.diff(first_moment[: last + 1])
        mass[-1] = gammainc(a, rate * cut) - distribution[last - 1]
        moment[-1] = gammainc(a + 1, rate * cut) * a / rate - first_moment[last - 1]
        to_right = moment * cells - np.arange(last) * mass
        masses = np.zeros(last + 1)
        masses[:-1] += mass - to_right
        masses[1:] += to_right
        results.append(masses)
    return results


def sampled_masses(
    concentration: FloatArray, count: Callable[[FloatArray], FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Masses of arbitrary regions under a Dirichlet distribution, by deterministic quasi-Monte Carlo.

    The points come from scrambled Sobol sequences with fixed seeds, so every call gives the same result. Quantiles of
    Gamma variables map them to Dirichlet vectors. The error is estimated from several scramblings.

    Args:
        concentration: Dirichlet parameters, positive, shape (K,).
        count: Function that maps logarithms of Dirichlet vectors, shape (n, K), to the number in each region, (R,).

    Returns:
        Masses and their standard errors, shape (R,) each. For bins of one quantity the errors are at most 2e-4 with up
        to three classes and 1e-3 with ten.
    """
    from scipy.special import logsumexp
    from torch.quasirandom import SobolEngine

    a = np.asarray(concentration, dtype=np.float64)
    points = min(max(2 ** int(math.log2(MOST_QUANTILES / len(a))), FEWEST_POINTS), MOST_POINTS)
    quantiles = [_log_gamma_quantile(each) for each in a]
    shares = []
    for seed in range(SCRAMBLINGS):
        sobol = SobolEngine(len(a), scramble=True, seed=seed).draw(points, dtype=torch.float64).numpy()
        columns = (sobol + HALF_SOBOL_STEP).T
        logs = np.stack([quantile(column) for quantile, column in zip(quantiles, columns, strict=True)], -1)
        shares.append(count(logs - logsumexp(logs, axis=1, keepdims=True)) / points)
    found = np.stack(shares)
    error = np.maximum(found.std(0, ddof=1), 1 / points) / math.sqrt(SCRAMBLINGS)
    return np.asarray(found.mean(0)), np.asarray(error)


def _log_gamma_quantile(a: float) -> Callable[[FloatArray], FloatArray]:
    """Function from probabilities to log quantiles of Gamma(a), by a table; valid where a quantile underflows."""
    from scipy.special import gammaincc, gammainccinv, gammaincinv, gammaln

    def leading(log_probability: FloatArray) -> FloatArray:
        return np.asarray((log_probability + gammaln(a + 1)) / a)  # of the leading power of the distribution function

    tiny = leading(np.log(HALF_SOBOL_STEP)) < LOG_TINY
    low = LOG_TINY if tiny else math.log(gammaincinv(a, HALF_SOBOL_STEP))
    nodes = np.linspace(low, math.log(gammainccinv(a, HALF_SOBOL_STEP)), TABLE)
    log_odds = log_gamma_cdf(np.array(a), nodes) - np.log(gammaincc(a, np.exp(nodes)))

    def quantile(probability: FloatArray) -> FloatArray:
        log_probability = np.log(probability)
        between = np.interp(log_probability - np.log1p(-probability), log_odds, nodes)
        below = leading(log_probability)
        return np.where(below < LOG_TINY, below, between)

    return quantile


def log_dirichlet_multinomial(counts: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    """Log-probability of a sequence of cases with these counts, whose fractions are Dirichlet: (..., R), (R,) -> (...).

    Args:
        counts: Number of cases in each region.
        parameters: Parameters of the Dirichlet distribution.
    """
    inside = (torch.lgamma(parameters + counts) - torch.lgamma(parameters)).sum(-1)
    total = parameters.sum()
    return inside + torch.lgamma(total) - torch.lgamma(total + counts.sum(-1))
