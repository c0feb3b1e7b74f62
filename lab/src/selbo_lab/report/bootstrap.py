"""Bootstrap intervals over seeds and test examples, and correction for multiple tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from selbo.checks import whole

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
    return bootstrap_differences(ours, {"": theirs}, samples=samples, seed=seed)[""]


def bootstrap_differences(
    ours: Sequence[np.ndarray],
    others: Mapping[str, Sequence[np.ndarray]],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> dict[str, BootstrapDifference]:
    """`bootstrap_difference` to each of several methods, by name, all with the same bootstrap samples.

    Each bootstrap sample resamples seeds and, independently, test examples, with replacement. Several cases are
    resampled independently and averaged.

    Args:
        ours: Scores for each case, shape (seeds, examples).
        others: Scores of each other method, on the same seeds and examples.
        samples: Number of bootstrap samples.
        seed: Seed for the bootstrap.
    """
    whole("samples", samples, at_least=1)
    generator = np.random.default_rng(seed)
    differences = {name: _by_case(ours, theirs) for name, theirs in others.items()}
    drawn = {name: np.zeros(samples) for name in others}
    for case, scores in enumerate(ours):
        seeds, examples = scores.shape
        for begin in range(0, samples, AT_A_TIME):
            count = min(AT_A_TIME, samples - begin)
            of_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), count) / seeds
            of_examples = generator.multinomial(examples, np.full(examples, 1 / examples), count) / examples
            for name, each in differences.items():
                means = ((of_seeds @ each[case]) * of_examples).sum(1)
                drawn[name][begin : begin + count] += means / len(ours)
    return {name: _summarised(differences[name], drawn[name]) for name in others}


def _by_case(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> list[np.ndarray]:
    if not ours or len(ours) != len(theirs):
        raise ValueError(f"`ours` and `theirs` must have the same cases, but have {len(ours)} and {len(theirs)}")
    for first, second in zip(ours, theirs, strict=True):
        if first.ndim != 2 or first.shape != second.shape or not first.size:
            raise ValueError(
                f"scores of a case must have shape (seeds, examples) in both, but have {first.shape} and {second.shape}"
            )
    return [np.asarray(first, dtype=float) - second for first, second in zip(ours, theirs, strict=True)]


def _summarised(differences: Sequence[np.ndarray], drawn: np.ndarray) -> BootstrapDifference:
    mean = sum(float(each.mean()) / len(differences) for each in differences)
    low, high = np.quantile(drawn, [0.025, 0.975])
    beyond = min((drawn <= 0).sum(), (drawn >= 0).sum())
    return BootstrapDifference(mean, float(low), float(high), min(1.0, 2 * (float(beyond) + 1) / (len(drawn) + 1)))


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
