"""Bootstrap intervals over seeds and test examples, and correction for multiple tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from selbo_lab import checks

SAMPLES: Final = 10_000
AT_A_TIME: Final = 500
"""Bootstrap samples per block: 500 times 10 000 test examples take 40 MB."""


@dataclass(frozen=True)
class BootstrapDifference:
    """A difference of two means, with its bootstrap interval.

    Attributes:
        mean: Mean over seeds, test examples and cases.
        low: 2.5 % quantile of the bootstrap samples.
        high: 97.5 % quantile.
        p_value: Two-sided: twice the share of samples on the other side of 0, one more counted there, so never 0.
    """

    mean: float
    low: float
    high: float
    p_value: float


def bootstrap_difference(
    ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], *, samples: int = SAMPLES, seed: int = 0
) -> BootstrapDifference:
    """Difference between two methods in a score of every test example, paired by seed and example.

    Each bootstrap sample resamples seeds and, independently, test examples, with replacement. Several cases are
    resampled independently and averaged.

    Args:
        ours: Scores for each case, shape (seeds, examples).
        theirs: Scores of the other method, on the same seeds and examples.
        samples: Number of bootstrap samples.
        seed: Seed for the bootstrap.

    Example:
        >>> ours = np.array([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]])
        >>> found = bootstrap_difference([ours], [ours + 0.1])
        >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
        (-0.1, -0.1, -0.1)
    """
    checks.whole("samples", samples, at_least=1)
    if not ours or len(ours) != len(theirs):
        raise ValueError(f"`ours` and `theirs` must have the same cases, but have {len(ours)} and {len(theirs)}")
    generator = np.random.default_rng(seed)
    total, drawn = 0.0, np.zeros(samples)
    for first, second in zip(ours, theirs, strict=True):
        if first.ndim != 2 or first.shape != second.shape or not first.size:
            raise ValueError(
                f"scores of a case must have shape (seeds, examples) in both, but have {first.shape} and {second.shape}"
            )
        difference = np.asarray(first, dtype=float) - second
        seeds, examples = difference.shape
        total += difference.mean() / len(ours)
        for begin in range(0, samples, AT_A_TIME):
            count = min(AT_A_TIME, samples - begin)
            of_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), count) / seeds
            of_examples = generator.multinomial(examples, np.full(examples, 1 / examples), count) / examples
            drawn[begin : begin + count] += ((of_seeds @ difference) * of_examples).sum(1) / len(ours)
    low, high = np.quantile(drawn, [0.025, 0.975])
    beyond = min((drawn <= 0).sum(), (drawn >= 0).sum())
    return BootstrapDifference(float(total), float(low), float(high), min(1.0, 2 * (float(beyond) + 1) / (samples + 1)))


def holm(p_values: Sequence[float], level: float = 0.05) -> list[bool]:
    """Which hypotheses are rejected by Holm's step-down procedure: at most ``level`` for a single false rejection.

    Example:
        >>> holm([0.04, 0.001, 0.02])
        [True, True, True]
        >>> holm([0.04, 0.001, 0.03])
        [False, True, False]
    """
    rejected = [False] * len(p_values)
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] > level / (len(p_values) - done):
            break
        rejected[index] = True
    return rejected
