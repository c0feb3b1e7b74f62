"""The Gauss rule of many points, against rules that are known and sums that are exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from selbo.summary._gauss_rule import gauss_rule


@pytest.mark.parametrize(("num_points", "size"), [(7, 3), (60, 12), (500, 24)])
def test_zeros_of_a_chebyshev_polynomial_are_represented_by_those_of_a_lower_one(num_points: int, size: int) -> None:
    """Chebyshev polynomials are orthogonal under the zeros of a higher one, so the nodes are known."""

    def zeros(degree: int) -> np.ndarray:
        return -np.cos((2 * np.arange(degree) + 1) * np.pi / (2 * degree))

    rule = gauss_rule(zeros(num_points)[::-1], np.ones(num_points), size)
    np.testing.assert_allclose(rule.nodes, zeros(size), rtol=0, atol=1e-13)
    np.testing.assert_allclose(rule.weights, num_points / size, rtol=1e-11)


def test_sums_of_powers_are_kept_up_to_twice_the_number_of_nodes() -> None:
    points, counts, size = [0, 1, 3, 4, 8, 9, 15], [5, 1, 2, 2, 7, 1, 3], 3
    rule = gauss_rule(np.array(points, dtype=np.float64), np.array(counts, dtype=np.float64), size)
    for power in range(2 * size + 1):
        exact = sum(Fraction(count) * Fraction(point) ** power for point, count in zip(points, counts, strict=True))
        error = float(rule.weights @ rule.nodes**power) / float(exact) - 1
        assert abs(error) < 1e-12 if power < 2 * size else abs(error) > 1e-4
    assert rule.weights.min() > 0


def test_values_are_interpolated_by_the_polynomial_through_the_nodes(seed: int) -> None:
    generator = np.random.default_rng(seed)
    points, counts = generator.normal(size=40), generator.integers(1, 5, size=40).astype(np.float64)
    rule = gauss_rule(points, counts, 6)
    values = generator.normal(size=6)
    others = [np.delete(rule.nodes, m) for m in range(6)]
    lagrange = [
        ((points[:, None] - rest) / (node - rest)).prod(1) for node, rest in zip(rule.nodes, others, strict=True)
    ]
    np.testing.assert_allclose(rule.interpolation @ values, values @ lagrange, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(counts @ rule.interpolation, rule.weights, rtol=1e-10)


def test_a_few_points_represent_themselves() -> None:
    points, counts = np.array([3.0, 1.0, 2.0]), np.array([1.0, 4.0, 2.0])
    for size in (3, 10):
        rule = gauss_rule(points, counts, size)
        assert rule.nodes.tolist() == points.tolist()
        assert rule.weights.tolist() == counts.tolist()
        assert (rule.interpolation == np.eye(3)).all()


def test_points_that_differ_by_rounding_have_one_node() -> None:
    points = -7.0 * (1 + 1e-16 * np.arange(30))
    rule = gauss_rule(points, np.ones(30), 8)
    assert rule.nodes == pytest.approx([-7.0], rel=1e-14)
    assert rule.weights == pytest.approx([30.0], rel=1e-14)
    np.testing.assert_allclose(rule.interpolation, 1.0, rtol=1e-13)


def test_one_far_point_among_many_near_ones_is_a_node() -> None:
    points = np.append(np.linspace(-9.1, -9.0, 99), -0.1)
    rule = gauss_rule(points, np.ones(100), 6)
    assert rule.nodes[-1] == pytest.approx(-0.1, abs=1e-8)
    assert rule.weights[-1] == pytest.approx(1.0, abs=1e-8)
