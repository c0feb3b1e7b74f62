"""How much fractions differ between groups: against scipy's generalised eigenvalues, and special cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import linalg

import selbo
from selbo.summary.contrast import group_contrast


def test_two_classes_are_one_ratio() -> None:
    yes, strength = np.array([0.2, 0.5, 0.6]), np.array([10.0, 20.0, 30.0])
    found = group_contrast(np.stack([1 - yes, yes], 1), strength)
    own = np.sqrt(np.mean(yes * (1 - yes) / (strength + 1)))
    assert found.between == pytest.approx(yes.std())
    assert found.precision == pytest.approx(own)
    assert found.ratios == pytest.approx((yes.std() / own,))


def test_ratios_are_generalised_eigenvalues_whichever_class_is_left_out(seed: int) -> None:
    generator = np.random.default_rng(seed)
    fractions, strength = generator.dirichlet([2, 3, 4, 5], size=12), generator.uniform(5, 50, 12)
    own = sum((np.diag(f) - np.outer(f, f)) / (c + 1) for f, c in zip(fractions, strength, strict=True)) / 12
    between = np.cov(fractions.T, bias=True)
    for left_out in range(4):
        kept = [k for k in range(4) if k != left_out]
        values = linalg.eigh(between[np.ix_(kept, kept)], own[np.ix_(kept, kept)], eigvals_only=True)
        assert group_contrast(fractions, strength).ratios == pytest.approx(np.sqrt(values)[::-1], rel=1e-5)


def test_directions_that_do_not_differ_and_classes_that_never_occur() -> None:
    yes = np.array([0.2, 0.4, 0.8])
    halves = np.stack([1 - yes, yes / 2, yes / 2], 1)  # the last two always change together
    found = group_contrast(halves, np.full(3, 100.0))
    assert found.ratios[0] > 1
    assert found.ratios[1] == pytest.approx(0, abs=1e-6)
    never = np.stack([1 - yes, yes, 0 * yes], 1)
    assert group_contrast(never, np.full(3, 100.0)).ratios == pytest.approx(
        group_contrast(never[:, :2], np.full(3, 100.0)).ratios
    )
    certain = group_contrast(np.array([[1.0, 0.0], [1.0, 0.0]]), np.ones(2))
    assert certain.ratios == ()
    assert certain.between == 0


def test_a_summary_of_groups_knows_it() -> None:
    fractions = np.array([[0.5, 0.5], [0.7, 0.3]])
    summary = selbo.GroupedSummary(selbo.ClassRegions(2), torch.from_numpy(fractions), 99.0)
    assert summary.contrast() == group_contrast(fractions, np.full(2, 99.0))
