"""Likelihood of the class counts of a group: sums of labels sampled from the predictions of its members."""

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from selbo._numerics import HALF_LOG_2PI, MULTINOMIAL_FLOOR

UNDERFLOW: Final = 1e-290
"""Smallest probability of a count that is told from zero."""

SHORT_POLYNOMIAL: Final = 5
"""Most coefficients of polynomials that are multiplied term by term; longer ones take few operations by a table."""

COUNT_VARIANCE: Final = 1.0 / 12.0
"""Variance of a uniform distribution of width one: a count is a whole number, a Gaussian variable is not."""


def poisson_binomial(probs: Tensor) -> Tensor:
    """Probability of each number of successes in n independent trials: (..., n, 2) -> (..., n + 1), exact.

    The generating polynomials of the trials, p_0 + p_1 z, are multiplied in pairs, their products in pairs and so on.
    All terms are positive, so the relative error stays near that of the type, down to where it underflows.

    Args:
        probs: Probabilities of failure and success in each trial; (1, 0) for a place without a trial.

    Returns:
        Probabilities of 0 to n successes.

    Example:
        >>> poisson_binomial(torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
        tensor([0.4500, 0.5000, 0.0500])
    """
    count = probs.shape[-2]
    places = 1 << max(0, count - 1).bit_length()
    if places > count:
        failure = probs.new_ones(*probs.shape[:-2], places - count, 1)
        probs = torch.cat([probs, F.pad(failure, (0, 1))], -2)
    terms = probs.movedim(-1, 0)  # operations on long runs of memory, not on a few coefficients at a time
    while terms.shape[-1] > 1:
        terms = _products(*terms.chunk(2, -1))
    return terms.squeeze(-1).movedim(0, -1)[..., : count + 1]


def _products(one: Tensor, other: Tensor) -> Tensor:
    """Coefficients of products of polynomials: (L, ...), (L, ...) -> (2L - 1, ...)."""
    length, others = len(one), (0, 0) * (one.ndim - 1)
    if length <= SHORT_POLYNOMIAL:
        shifted = [F.pad(one[i] * other, (*others, i, length - 1 - i)) for i in range(length)]
        return sum(shifted[1:], shifted[0])
    table = F.pad(one.unsqueeze(1) * other, (*others, 0, length)).flatten(0, 1)
    # read in rows that are shorter by one, each row is shifted by one place against the row before
    products: Tensor = table[:-length].unflatten(0, (length, 2 * length - 1)).sum(0)
    return products


def exact_count_log_prob(pmf: Tensor, *, fraction: Tensor, concentration: Tensor, size: Tensor) -> Tensor:
    r"""Log-likelihood of a stated fraction of class 1, given the exact distribution of its count.

    With the probability $P(c)$ of count $c$, the stated fraction $f$, the concentration $\alpha$ and the size $n$ of
    the group, it is

    $$\log \sum_{c=0}^n P(c)\, q(c), \qquad q(c) \propto (c/n)^{\alpha f} (1 - c/n)^{\alpha (1 - f)} .$$

    The weights $q$ sum to one and have a standard deviation of about $n \sqrt{f (1 - f) / \alpha}$: a fraction stated
    with a large concentration stands for one count, and the result is the probability of that count.

    Args:
        pmf: Probabilities of the counts from 0 to m, shape (..., m + 1), with m at least ``size``.
        fraction: Stated fraction of class 1, shape (...).
        concentration: Strength of the statement, shape (...).
        size: Number of members, shape (...), at least 1.

    Returns:
        Log-likelihood in nats, shape (...). A likelihood below `UNDERFLOW` is replaced by it, without gradient.

    Example:
        >>> pmf = torch.tensor([0.45, 0.5, 0.05], dtype=torch.float64)
        >>> certain = torch.tensor(1e9, dtype=torch.float64)
        >>> half, two = (torch.tensor(each, dtype=torch.float64) for each in (0.5, 2.0))
        >>> exact_count_log_prob(pmf, fraction=half, concentration=certain, size=two).exp()
        tensor(0.5000, dtype=torch.float64)
    """
    counts = torch.arange(pmf.shape[-1], device=pmf.device, dtype=pmf.dtype)
    size = size.unsqueeze(-1)
    share = (counts / size).clamp(MULTINOMIAL_FLOOR, 1.0)
    f = fraction.unsqueeze(-1)
    kernel = f * share.log() + (1 - f) * (1 - share).clamp(min=MULTINOMIAL_FLOOR).log()
    kernel = torch.where(counts <= size, concentration.unsqueeze(-1) * kernel, -torch.inf)
    chance = (kernel.softmax(-1) * pmf).sum(-1)
    known = chance.detach().clamp(min=UNDERFLOW)
    # at a ratio of 1, the logarithm has derivatives that do not overflow, of any order
    return (chance / known).clamp(min=1.0).log() + known.log()


def gaussian_count_log_prob(
    mean: Tensor, covariance: Tensor, *, fractions: Tensor, concentration: Tensor, size: Tensor, total: Tensor
) -> Tensor:
    r"""Log-likelihood of stated fractions, with a Gaussian distribution of the counts.

    The counts of n members are a sum of independent samples, with the given mean and covariance. Three more sources of
    uncertainty are added to the covariance, with $D = \mathrm{diag} f - f f^T$ for the stated fractions $f$: that
    of the statement, $n^2 D / (\alpha + 1)$, the covariance of a Dirichlet distribution with concentration $\alpha$;
    that of a part of n members of a group of N, $n D (N - n) / (N - 1)$, the hypergeometric covariance; and rounding,
    1/12 per count. Counts sum to n, so the density is that of all counts but one; it does not matter which.

    Args:
        mean: Sum of the probabilities of the members, shape (..., R).
        covariance: Sum of their covariances, diag p - p p^T, shape (..., R, R).
        fractions: Stated fractions f, shape (..., R), on the simplex; zero is allowed.
        concentration: Strength of the statement, alpha, shape (...).
        size: Number of members n, shape (...).
        total: Number of members of the whole group N, shape (...), at least ``size``.

    Returns:
        Log-density in nats, shape (...).

    Example:
        >>> p = torch.tensor([[0.2, 0.8], [0.5, 0.5], [0.4, 0.6]], dtype=torch.float64)
        >>> spread = torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)
        >>> f, three = torch.tensor([1 / 3, 2 / 3]), torch.tensor(3.0, dtype=torch.float64)
        >>> gaussian_count_log_prob(
        ...     p.sum(0),
        ...     spread.sum(0),
        ...     fractions=f.double(),
        ...     concentration=torch.tensor(1e9, dtype=torch.float64),
        ...     size=three,
        ...     total=three,
        ... )
        tensor(-0.7707, dtype=torch.float64)
    """
    regions = mean.shape[-1]
    stated = torch.diag_embed(fractions) - fractions.unsqueeze(-1) * fractions.unsqueeze(-2)
    part = size * (total - size) / (total - 1).clamp(min=1.0)
    variance = size * size / (concentration + 1) + part
    residual = size.unsqueeze(-1) * fractions - mean
    if regions == 2:
        spread = covariance[..., 1, 1] + variance * stated[..., 1, 1] + COUNT_VARIANCE
        return -0.5 * (residual[..., 1].square() / spread + spread.log()) - HALF_LOG_2PI
    identity, level = torch.eye(regions, dtype=mean.dtype, device=mean.device), 1.0 / regions
    rounding = COUNT_VARIANCE * regions / (regions - 1) * (identity - level)  # 1/12 per count, and no change of the sum
    # the sum of all counts has no variance; one is given to it, which changes neither determinant nor residual
    whole = covariance + variance[..., None, None] * stated + rounding + level
    factor, _ = torch.linalg.cholesky_ex(whole)
    scaled: Tensor = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1)
    log_det: Tensor = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - math.log(regions)
    return -0.5 * (scaled.square().sum(-1) + log_det) - (regions - 1) * HALF_LOG_2PI
