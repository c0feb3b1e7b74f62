"""Data of the stories: sizes, fractions, and that no row is used twice."""

from __future__ import annotations

import numpy as np
import pytest

from selbo.demo import frozen, groups, shift
from selbo.demo.stories import PLANS, plan_jobs
from selbo.demo.telling import mean_measurement, shown_code
from selbo.results import Measurement


def test_digits_are_divided_without_overlap() -> None:
    parts = frozen.digit_parts(3)
    assert [len(y) for _, y in parts] == [300, 1000, 497]
    rows = np.concatenate([X for X, _ in parts])
    whole = frozen.digit_parts(4)
    assert np.array_equal(np.sort(rows.sum(1)), np.sort(np.concatenate([X for X, _ in whole]).sum(1)))
    assert not np.array_equal(parts[0][0], whole[0][0])


@pytest.mark.parametrize("name", ["breast cancer", "digits"])
def test_shifted_tables_have_the_stated_fractions(name: str) -> None:
    table = shift.shifted_table(name, 2)
    classes = len(table.before)
    assert len(table.source[1]) == 50
    for labels, fractions in ((table.source[1], table.before), (table.test[1], table.after)):
        assert np.allclose(np.bincount(labels, minlength=classes) / len(labels), fractions, atol=0.003)
    rows = np.concatenate([table.source[0], table.target, table.test[0]])
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_fractions_of_groups_are_counted() -> None:
    digits = groups.grouped_digits(1)
    labels = digits.train[1]
    assert set(digits.fractions) == set(digits.groups.tolist())
    for group, fractions in digits.fractions.items():
        inside = labels[digits.groups == group]
        assert fractions == pytest.approx([float((inside == k).mean()) for k in range(10)])
    spread = np.std([each[0] for each in digits.fractions.values()])
    assert spread > 0.05, "groups differ, or nothing could be learned"


def test_jobs_are_all_parts_with_all_seeds() -> None:
    work = plan_jobs(["groups", "training"], seeds=[4, 5], steps=2, device="cpu")
    assert len(work) == 2 * (len(PLANS["groups"].parts) + len(PLANS["training"].parts))
    assert len(set(work)) == len(work)
    assert {job.seed for job in work} == {4, 5}


def test_mean_over_models() -> None:
    parts = [Measurement(level=None, metrics={"nll": value, "ece": 0.1}) for value in (1.0, 2.0, 6.0)]
    assert mean_measurement(parts).metrics == pytest.approx({"nll": 3.0, "ece": 0.1})


def test_types_are_left_out_of_shown_code() -> None:
    shown = shown_code("import x", shift.adapt_to_target)
    assert shown.startswith(
        "import x\n\n\ndef adapt_to_target(X, y, X_target, X_new, *, class_fractions, seed=0):\n    "
    )
    assert "# a few labels" in shown
