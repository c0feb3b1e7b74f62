"""A few representatives of many numbers: the Gauss rule of their distribution.

Quantities of many classes often depend on the classes only through sums of a smooth function over them. A Gauss rule
replaces such a sum by a weighted sum over a few nodes. With M nodes it is exact for polynomials up to degree 2M - 1.
"""

from typing import Final, NamedTuple

import numpy as np

from selbo._numerics import FloatArray

NO_FURTHER_NODE: Final = 1e-13
"""Numbers that are this close to a polynomial of lower degree, relative to the largest one, add no further node."""


class GaussRule(NamedTuple):
    """Nodes that represent many points.

    Attributes:
        nodes: Shape (M,), increasing, in the range of the points.
        weights: Number of points that each node represents, positive, shape (M,). It need not be whole.
        interpolation: Values at the nodes to values at the points, by the polynomial through them, shape (K, M).
    """

    nodes: FloatArray
    weights: FloatArray
    interpolation: FloatArray


def gauss_rule(points: FloatArray, counts: FloatArray, size: int) -> GaussRule:
    r"""Gauss rule of points and their multiplicities.

    Its nodes $\theta_m$ and weights $w_m$ satisfy $\sum_k c_k\, g(t_k) = \sum_m w_m\, g(\theta_m)$ for polynomials $g$
    up to degree $2M - 1$, with $t_k$ the points and $c_k$ the multiplicities. Polynomials $\pi_j$ that are orthonormal
    under the points come from Lanczos's recurrence. The nodes are the eigenvalues of its coefficients (Golub and
    Welsch), and $w_m \sum_j \pi_j(\theta_m)\, \pi_j(t)$ is one at node $m$ and zero at the others.

    Args:
        points: Shape (K,), in any order.
        counts: Positive, shape (K,).
        size: Most nodes. Up to so many points represent themselves.

    Example:
        >>> rule = gauss_rule(np.array([0.0, 1.0, 2.0, 4.0]), np.ones(4), 2)
        >>> [float(np.round(rule.weights @ rule.nodes**power, 9)) for power in range(4)]
        [4.0, 7.0, 21.0, 73.0]
    """
    if len(points) <= size:
        return GaussRule(points, counts, np.eye(len(points)))
    roots = np.sqrt(counts)
    basis = [roots / np.linalg.norm(roots)]  # pi_j(t_k) sqrt(c_k), shape (K,) each
    diagonal, beside = [], []
    while True:
        product = points * basis[-1]
        diagonal.append(product @ basis[-1])
        for _ in range(2):  # the second time removes what rounding left
            product = product - np.transpose(basis) @ (np.array(basis) @ product)
        length = float(np.linalg.norm(product))
        if len(basis) == size or length < NO_FURTHER_NODE * np.abs(points).max():
            break
        beside.append(length)
        basis.append(product / length)
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    root_weights = vectors[0] * np.linalg.norm(roots)  # with a sign, which the product below needs
    return GaussRule(nodes, root_weights**2, np.transpose(basis) @ vectors * root_weights / roots[:, None])
