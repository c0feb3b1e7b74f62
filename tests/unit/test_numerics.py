"""The standardisation of a column."""

from __future__ import annotations

import numpy as np
import pytest

from selbo._numerics import mean_and_std


def test_mean_and_std_count_a_row_as_often_as_its_weight_says() -> None:
    values, counts = np.array([3.0, -1e200, 5e199, 7.0]), np.array([2, 1, 3, 0])
    repeated = mean_and_std(values.repeat(counts))
    assert mean_and_std(values, counts.astype(float)) == pytest.approx(repeated, rel=1e-12)
    assert mean_and_std(values) != pytest.approx(repeated, rel=1e-3)
    small = np.array([1.0, 2.0, 4.0])
    assert mean_and_std(small) == pytest.approx((small.mean(), small.std()), rel=1e-12)
    assert mean_and_std(np.full(5, 0.1)) is None
    assert mean_and_std(np.zeros(5)) is None
