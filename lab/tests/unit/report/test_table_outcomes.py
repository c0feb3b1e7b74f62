"""Outcomes of studies of tables, on results whose every number is known."""

from __future__ import annotations

from typing import Any

import pytest

import study_fakes as fakes
from selbo_lab.report.overview import tables_over_cases
from selbo_lab.report.table_outcomes import table_outcome

TABLE = {"name": "keel", "table": "pima"}
FEW = TABLE | {"labels": 20, "label_fractions": [0.5, 0.5], "use_fractions": [0.9, 0.1]}


def case(
    nll: dict[str, float], recipes: dict[str, dict[str, Any]], *, variant: str, data: dict[str, Any]
) -> dict[str, Any]:
    """Methods with these NLL; an ECE of 1 less it, and ten CPU seconds per unit of it."""
    methods = []
    for i, (name, value) in enumerate(nll.items()):
        recipe = {"objective": "pool", "bayesian": False} | recipes.get(name, {})
        made = fakes.method(i, name, name.title(), seeds=3, recipe=recipe, suite="use")
        for run in made["runs"]:
            run["seconds"]["cpu"] = 10 * value
            for condition in run["conditions"].values():
                condition["metrics"] |= {"nll": value, "ece": 1 - value}
        methods.append(made)
    found = {**fakes.comparison(methods, variant=variant), "title": variant, "data": data, "focus": "pool"}
    return {**found, "reference": next(iter(nll))}


STATES = {"pool-accuracy": {"states_accuracy": True}}
FIRST = {"logistic-cv": 0.3, "forest-calibrated": 0.5, "pool": 0.2, "pool-accuracy": 0.25}
SECOND = {"logistic-cv": 0.9, "forest-calibrated": 0.6, "pool": 0.7, "pool-accuracy": 0.6}


def test_ranks_distances_and_statements() -> None:
    made = [case(nll, STATES, variant=name, data=TABLE) for name, nll in (("a", FIRST), ("b", SECOND))]
    results = fakes.typed(fakes.study(made))
    table = table_outcome(results, "selbo")
    assert table is not None
    found = {row["method"]: row for row in table.raw}
    ranks = {name: (row.get("rank_nll"), row.get("rank_ece")) for name, row in found.items()}
    assert ranks == {
        "logistic-cv": (2.5, 1.5),
        "forest-calibrated": (2.0, 2.0),
        "pool": (1.5, 2.5),
        "pool-accuracy": (None, None),
    }
    assert found["pool"]["worst_distance"] == pytest.approx(0.1)
    assert found["pool"]["worst"] == "b"
    assert found["forest-calibrated"]["worst_distance"] == pytest.approx(0.2)
    assert found["pool-accuracy"]["difference"] == pytest.approx((0.05 - 0.1) / 2)
    assert "difference" not in found["pool"]
    assert found["pool"]["cpu"] == pytest.approx(4.5)
    assert [row[0].method for row in table.rows if row[1].mark == "best"] == ["pool"]
    assert table.name in [each.name for each in tables_over_cases(results, "selbo")]


def test_a_table_with_a_run_missing_does_not_count() -> None:
    made = [case(nll, STATES, variant=name, data=TABLE) for name, nll in (("a", FIRST), ("b", SECOND))]
    pool = next(method for method in made[1]["methods"] if method["name"] == "pool")
    pool["runs"][1] = None
    table = table_outcome(fakes.typed(fakes.study(made)), "selbo")
    assert table is not None
    found = {row["method"]: row for row in table.raw}
    assert found["pool"]["rank_nll"] == 1.0
    assert found["pool"]["worst"] == "a"
    assert found["pool-accuracy"]["difference"] == pytest.approx(0.05)


def test_ranks_by_stated_fraction() -> None:
    recipes: dict[str, dict[str, Any]] = {
        "known": {"correction": "known"},
        "belief": {"correction": "belief"},
        "known-high-5": {"correction": "known", "fractions_off": -0.05},
        "belief-high-5": {"correction": "belief", "fractions_off": -0.05},
    }
    first = {"known": 0.3, "belief": 0.2, "network": 0.4, "known-high-5": 0.25, "belief-high-5": 0.35}
    second = {"known": 0.5, "belief": 0.6, "network": 0.7, "known-high-5": 0.55, "belief-high-5": 0.65}
    made = [case(nll, recipes, variant=name, data=FEW) for name, nll in (("a", first), ("b", second))]
    table = table_outcome(fakes.typed(fakes.study(made)), "selbo")
    assert table is not None
    found = {row["method"]: row for row in table.raw}
    assert set(found) == {"known", "belief", "network"}
    assert [found[name]["rank_stated_0.10"] for name in found] == [1.5, 1.5, 3.0]
    assert [found[name].get("rank_stated_0.15") for name in found] == [1.0, 2.0, None]
    assert [found[name]["nll_0.15"] for name in found] == [pytest.approx(0.4), pytest.approx(0.5), ""]


def test_other_studies_have_no_outcome_of_tables() -> None:
    assert (
        table_outcome(fakes.typed(fakes.study([case(FIRST, {}, variant="a", data={"name": "sst"})])), "selbo") is None
    )
