"""How much stated fractions differ between groups, beyond their own uncertainty: what can be learned from groups."""

from typing import Final, NamedTuple

import numpy as np

from selbo._numerics import FloatArray

NEVER: Final = 1e-9
"""A class with no larger fraction in any group does not count, and a smaller standard deviation is rounding."""


class GroupContrast(NamedTuple):
    """Differences between the stated fractions of groups.

    Attributes:
        between: Standard deviation of the fractions between groups, for the class where it is largest relative to
            ``precision``.
        precision: Standard deviation of a stated fraction of that class, from the concentrations.
        ratios: The same ratio in each of the K - 1 directions in which fractions of K classes can differ, largest
            first. Nothing can be learned about a direction with a ratio far below one. Random groups whose members
            were counted have about one, which is enough.
    """

    between: float
    precision: float
    ratios: tuple[float, ...]


def group_contrast(fractions: FloatArray, concentration: FloatArray) -> GroupContrast:
    """Compare the differences between groups with the stated precision of their fractions.

    Args:
        fractions: Class fractions, shape (G, K).
        concentration: Concentrations, shape (G,).

    Example:
        >>> found = group_contrast(np.array([[0.5, 0.5], [0.7, 0.3]]), np.array([99.0, 99.0]))
        >>> round(found.between, 3), round(found.precision, 3), round(found.ratios[0], 2)
        (0.1, 0.048, 2.08)
    """
    strength = concentration[:, None] + 1
    between = fractions.std(0)
    own = np.sqrt((fractions * (1 - fractions) / strength).mean(0))
    ratio = np.divide(between, own, out=np.where(between > 0, np.inf, 0.0), where=own > 0)
    largest = int(ratio.argmax())
    kept = fractions[:, fractions.max(0) > NEVER]
    spread = (np.einsum("gi,ij->gij", kept, np.eye(kept.shape[1])) - kept[:, :, None] * kept[:, None, :]) / strength[
        ..., None
    ]
    return GroupContrast(float(between[largest]), float(own[largest]), _ratios(kept, spread.mean(0)))


def _ratios(fractions: FloatArray, own: FloatArray) -> tuple[float, ...]:
    """Standard deviations between groups in units of their own, along the principal directions."""
    count = fractions.shape[1] - 1  # one fraction follows from the others
    if count < 1:
        return ()
    centred = (fractions - fractions.mean(0))[:, :count]
    covariance = centred.T @ centred / len(centred)
    scale = np.trace(own[:count, :count]) / count
    factor = np.linalg.cholesky(own[:count, :count] + 1e-9 * max(scale, NEVER) * np.eye(count))
    whitened = np.linalg.solve(factor, np.linalg.solve(factor, covariance).T)
    values = np.linalg.eigvalsh((whitened + whitened.T) / 2)
    return tuple(float(each) for each in np.sqrt(np.maximum(values, 0.0))[::-1])
