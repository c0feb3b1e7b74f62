"""Draws from a Dirichlet process, seen through a finite partition."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

SMALLEST_UNIFORM = 2.0**-54
"""In place of a uniform number that came out as exactly 0, which the generator gives once in 2^53."""


def dirichlet_draws(concentration: ArrayLike, num_draws: int, *, generator: torch.Generator) -> NDArray[np.float64]:
    r"""Draws from Dirichlet(concentration), for parameters of any size.

    A Gamma($a$) variable is a Gamma($a + 1$) variable times $U^{1/a}$, and a Dirichlet vector is a vector of them
    divided by its sum. Both are done with logarithms: with parameters of 1e-7, as a fine partition has them, most of
    the variables are too small for a float64.

    Args:
        concentration: Dirichlet parameters, positive, shape (R,); for a Dirichlet process, the concentration times the
            base measure of each region.
        num_draws: How many, n.
        generator: Where the random numbers come from.

    Returns:
        Shape (n, R), rows on the simplex.

    Example:
        >>> dirichlet_draws([0.5, 1.5], 4, generator=torch.Generator().manual_seed(0)).sum(-1)
        array([1., 1., 1., 1.])
    """
    from scipy.special import gammaincinv, softmax

    if not isinstance(generator, torch.Generator):
        raise ValueError(f"`generator` must be a torch.Generator, but got {generator!r}")
    a = np.asarray(concentration, dtype=np.float64)
    shape = (2, num_draws, len(a))
    uniforms = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)
    first, second = uniforms.clamp(min=SMALLEST_UNIFORM).cpu().numpy()
    return np.asarray(softmax(np.log(gammaincinv(a + 1, first)) + np.log(second) / a, axis=-1))
