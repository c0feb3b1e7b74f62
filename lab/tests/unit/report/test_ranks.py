"""Ranks of methods for groups, on results whose every number is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import study_fakes as fakes
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.overview import tables_over_cases
from selbo_lab.report.ranks import bootstrap_interval, compute_ranks, counted_once, group_ranks

GROUPS = {"name": "voters", "groups": "state"}


def case(nll: dict[str, float], *, data: dict[str, Any] = GROUPS, variant: str = "v") -> dict[str, Any]:
    """Methods with these NLL; the one called ``all`` has all labels, ``bold`` a wrong accuracy."""
    methods = []
    for i, (name, value) in enumerate(nll.items()):
        recipe = {"objective": "all_labels" if name == "all" else "group_belief", "bayesian": False}
        recipe["accuracy_off"] = 0.05 if name == "bold" else 0.0
        made = fakes.method(i, name, name.title(), seeds=3, recipe=recipe)
        for run in made["runs"]:
            run["conditions"]["clean"]["metrics"] |= {"nll": value, "ece": 1 - value}
        methods.append(made)
    return {**fakes.comparison(methods, variant=variant), "data": data}


FIRST = {"elbo": 0.3, "b": 0.2, "c": 0.4, "all": 0.1, "bold": 0.15}
SECOND = {"elbo": 0.5, "b": 0.6, "c": 0.7, "all": 0.8, "bold": 0.9}


def test_ranks_leave_out_methods_and_share_places() -> None:
    made = fakes.typed(case({"elbo": 0.3, "b": 0.3, "c": 0.1}))
    assert compute_ranks(made, MetricColumn("clean", "nll")) == {"elbo": 2.5, "b": 2.5, "c": 1.0}
    assert compute_ranks(made, MetricColumn("clean", "nll"), {"c"}) == {"elbo": 1.5, "b": 1.5}


def test_a_huge_nll_has_a_rank() -> None:
    made = fakes.typed(case({"elbo": 0.3, "b": 1e25, "c": 0.1}))
    assert compute_ranks(made, MetricColumn("clean", "nll")) == {"elbo": 2.0, "b": 3.0, "c": 1.0}


def test_mean_ranks_over_cases() -> None:
    results = fakes.typed(fakes.study([case(FIRST), case(SECOND, variant="w")]))
    table = group_ranks(results, "selbo")
    assert table is not None
    found = {row["method"]: (row["rank_nll"], row["rank_ece"]) for row in table.raw}
    assert found == {"elbo": (1.5, 2.5), "b": (1.5, 2.5), "c": (3.0, 1.0)}
    assert [row[0].method for row in table.rows if row[2].mark == "best"] == ["c"]
    assert [row[0].method for row in table.rows if row[1].mark == "best"] == ["elbo", "b"]
    assert table.name in [each.name for each in tables_over_cases(results, "selbo")]


def test_cases_that_differ_only_in_the_stated_precision_count_once() -> None:
    again = GROUPS | {"stated_concentration": 16.0}
    noisy = GROUPS | {"fraction_noise": 0.1, "stated_deviation": 0.1}
    cases = [case(FIRST), case(SECOND, data=again, variant="w"), case(SECOND, data=noisy, variant="x")]
    results = fakes.typed(fakes.study(cases))
    assert [each.variant for each in counted_once(results.of_track("selbo"))] == ["v", "x"]
    table = group_ranks(results, "selbo")
    assert table is not None
    assert {row["cases"] for row in table.raw} == {2}


def test_ranks_among_some_methods() -> None:
    table = group_ranks(fakes.typed(fakes.study([case(FIRST), case(SECOND, variant="w")])), "selbo", ["b", "c"])
    assert table is not None
    assert {row["method"]: row["rank_nll"] for row in table.raw} == {"b": 1.0, "c": 2.0}


def test_other_studies_have_no_such_table() -> None:
    cases = [case(each, data={"name": "mnist35"}, variant=name) for each, name in ((FIRST, "v"), (SECOND, "w"))]
    assert group_ranks(fakes.typed(fakes.study(cases)), "selbo") is None


def test_one_case_has_no_mean_ranks() -> None:
    assert group_ranks(fakes.typed(fakes.study([case(FIRST)])), "selbo") is None


def test_an_interval_holds_the_mean_and_is_a_point_for_equal_values() -> None:
    values = np.array([1.0, 2.0, 2.0, 5.0])
    low, high = bootstrap_interval(values)
    assert 1.0 <= low < values.mean() < high <= 5.0
    assert bootstrap_interval(np.full(4, 3.0)) == pytest.approx((3.0, 3.0))
