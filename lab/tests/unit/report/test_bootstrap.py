"""Bootstrap intervals over seeds and test examples, and Holm's procedure."""

import itertools

import numpy as np
import pytest

from selbo_lab.report.bootstrap import bootstrap_difference, bootstrap_differences, holm


def scores(
    generator: np.random.Generator, *, seeds: int, examples: int, effect: float
) -> tuple[np.ndarray, np.ndarray]:
    """Two methods whose difference varies from seed to seed and from example to example."""
    base = generator.gamma(1.0, size=(seeds, examples))
    difference = effect + generator.normal(0, 0.1, (seeds, 1)) + generator.normal(0, 1.0, (1, examples))
    return base + difference, base


def test_the_interval_covers_both_sources_of_chance() -> None:
    generator = np.random.default_rng(0)
    covered, widths, tries = 0, [], 200
    for seed in range(tries):
        ours, theirs = scores(generator, seeds=20, examples=200, effect=0.3)
        found = bootstrap_difference([ours], [theirs], samples=400, seed=seed)
        covered += found.low <= 0.3 <= found.high
        widths.append(found.high - found.low)
    assert covered / tries > 0.88, "nominal .95, a little less with 20 seeds"
    expected = 2 * 1.96 * (0.1**2 / 20 + 1.0**2 / 200) ** 0.5
    assert np.mean(widths) == pytest.approx(expected, rel=0.1)


def test_cases_are_averaged() -> None:
    generator = np.random.default_rng(1)
    cases = [scores(generator, seeds=5, examples=50, effect=effect) for effect in (0.0, 1.0)]
    found = bootstrap_difference([each[0] for each in cases], [each[1] for each in cases], samples=500)
    assert found.mean == pytest.approx(np.mean([(ours - theirs).mean() for ours, theirs in cases]))
    assert found.low < found.mean < found.high


def test_a_clear_difference_has_a_small_p_value_and_none_has_a_large_one() -> None:
    generator = np.random.default_rng(2)
    ours, theirs = scores(generator, seeds=10, examples=400, effect=1.0)
    assert bootstrap_difference([ours], [theirs], samples=1000).p_value < 0.01
    assert bootstrap_difference([theirs], [ours], samples=1000).p_value < 0.01
    assert bootstrap_difference([theirs], [theirs], samples=1000).p_value == 1.0


def test_several_methods_have_the_intervals_that_each_has_by_itself() -> None:
    generator = np.random.default_rng(3)
    cases = [scores(generator, seeds=seeds, examples=40, effect=0.2) for seeds in (3, 5)]
    ours = [each[0] for each in cases]
    others = {"near": [each[1] for each in cases], "far": [each[1] + 1 for each in cases]}
    found = bootstrap_differences(ours, others, samples=700, seed=4)
    assert found == {name: bootstrap_difference(ours, each, samples=700, seed=4) for name, each in others.items()}
    assert found["near"] != found["far"]


def test_scores_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="same cases"):
        bootstrap_difference([np.ones((2, 3))], [])
    with pytest.raises(ValueError, match="seeds, examples"):
        bootstrap_difference([np.ones((2, 3))], [np.ones((3, 2))])


def test_holm_by_its_closed_test() -> None:
    """A hypothesis is rejected if Bonferroni's test rejects every intersection that it is part of."""
    generator = np.random.default_rng(3)
    for _ in range(200):
        p_values = generator.beta(0.2, 3.0, size=4).tolist()
        expected = [
            all(
                min(p_values[each] for each in subset) <= 0.05 / len(subset)
                for size in range(1, 5)
                for subset in itertools.combinations(range(4), size)
                if index in subset
            )
            for index in range(4)
        ]
        assert holm(p_values) == expected
