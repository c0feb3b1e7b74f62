"""Samples from a Dirichlet process on a finite partition."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

SMALLEST_UNIFORM = 2.0**-54
"""Replaces a uniform number of exactly 0, which the generator returns once in 2^53."""


def dirichlet_samples(concentration: ArrayLike, num_samples: int, *, generator: torch.Generator) -> NDArray[np.float64]:
    r"""Samples from Dirichlet(concentration), for parameters of any size.

    A Gamma($a$) variable is a Gamma($a + 1$) variable times $U^{1/a}$, and a Dirichlet vector is a vector of them
    divided by its sum. Both are computed in log space: with parameters such as 1e-7, which a fine partition has, most
    of the variables are too small for float64.

    Args:
        concentration: Dirichlet parameters, positive, shape (R,); for a Dirichlet process, the concentration times the
            base measure of each region.
        num_samples: Number of samples n.
        generator: Source of the random numbers.

    Returns:
        Shape (n, R), rows on the simplex.

    Example:
        >>> dirichlet_samples([0.5, 1.5], 4, generator=torch.Generator().manual_seed(0)).sum(-1)
        array([1., 1., 1., 1.])
    """
    from scipy.special import gammaincinv, softmax

    if not isinstance(generator, torch.Generator):
        raise ValueError(f"`generator` must be a torch.Generator, but got {generator!r}")
    a = np.asarray(concentration, dtype=np.float64)
    shape = (2, num_samples, len(a))
    uniforms = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)
    first, second = uniforms.clamp(min=SMALLEST_UNIFORM).cpu().numpy()
    return np.asarray(softmax(np.log(gammaincinv(a + 1, first)) + np.log(second) / a, axis=-1))
