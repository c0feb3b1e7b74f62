"""Tables over all cases of a study that answer one question, from results whose every number is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from selbo_lab.report.overview import find_cases, tables_over_cases
from selbo_lab.report.study_outcomes import cost_of_wrong_fractions, primary_outcome
from selbo_lab.report.study_page import render_study_page
from selbo_lab.report.table_files import write_tables
from study_fakes import Results, comparison, domain_study, method, study, typed

SEEDS = 4


def case(nlls: dict[str, float], *, items: int = 0, **data: object) -> Results:
    """A case with one method per name; the NLL of a seed is that of the method plus a hundredth of the seed."""
    methods = [method(0, name, name.title(), seeds=SEEDS, suite="use") for name in nlls]
    made = comparison(methods, variant=f"case-{sorted(data.items())}")
    generator = np.random.default_rng(0)
    for each, nll in zip(methods, nlls.values(), strict=True):
        for seed, run in enumerate(each["runs"]):
            use = run["conditions"]["use"]
            use["metrics"]["nll"] = nll + seed / 100
            use["scaled"]["nll"] = nll / 2 + seed / 100
            if items:
                use["items"] = (nll + seed / 100 + generator.normal(0, 1e-3, items)).tolist()
    told = {**domain_study(noise=0.0)["comparisons"][0]["data"], "fractions_off": 0.0, "random_pool": False, **data}
    made |= {"reference": "elbo", "focus": "summary", "data": told}
    made["evaluation"] = {**made.get("evaluation", {}), "items": bool(items)}
    return made


def primary(**nlls: float) -> Results:
    cases = [case(nlls, items=50), case({name: nll + 0.2 for name, nll in nlls.items()}, items=80, labels=1000)]
    return study(cases, name="primary-shift", seeds=SEEDS)


def test_a_primary_outcome_is_the_mean_over_cases_seeds_and_examples() -> None:
    table = primary_outcome(typed(primary(elbo=0.5, plain=0.4, summary=0.4)), "selbo")
    assert table is not None
    assert [row[0].text for row in table.rows] == ["Elbo", "Plain", "Summary"]
    elbo, plain, summary = table.raw
    assert elbo["nll"] == pytest.approx(0.5 + 0.1 + 0.015, abs=1e-3)
    assert elbo["difference"] == pytest.approx(-0.1, abs=1e-3)
    assert plain["difference"] == pytest.approx(0, abs=1e-3)
    assert elbo["low"] < elbo["difference"] < elbo["high"]
    assert elbo["scaled"] == pytest.approx(-0.05)
    assert "difference" not in summary
    assert (elbo["holm"], plain["holm"]) == (True, False)
    assert [row[2].mark for row in table.rows] == ["better", "", ""]
    other = primary_outcome(typed(primary(elbo=0.3, summary=0.4)), "selbo")
    assert other is not None
    assert [row[2].mark for row in other.rows] == ["worse", ""]


def test_a_study_without_scores_of_examples_has_no_primary_outcome() -> None:
    results = primary(elbo=0.5, summary=0.4)
    assert primary_outcome(typed(results), "published") is None
    results["comparisons"][1]["methods"][0]["runs"][2] = None
    assert primary_outcome(typed(results), "selbo") is None
    assert primary_outcome(typed(study([case({"elbo": 0.5, "summary": 0.4})], seeds=SEEDS)), "selbo") is None


def wrong() -> Results:
    """Two cases; the second can be stated too low only, and has no pool that is drawn at random."""
    cases = [
        case({"elbo": 0.7, "summary": 0.3}),
        case({"elbo": 0.7, "summary": 0.34}, fractions_off=0.1),
        case({"elbo": 0.7, "summary": 0.36}, fractions_off=-0.1),
        case({"elbo": 0.7, "summary": 0.31}, fractions_off=0.05),
        case({"elbo": 0.7, "summary": 0.5}, fractions_off=0.2),
        case({"elbo": 0.7, "summary": 0.32}, random_pool=True, unlabelled=100),
        case({"elbo": 0.5, "summary": 0.4}, labels=50),
        case({"elbo": 0.5, "summary": 0.43}, labels=50, fractions_off=-0.1),
    ]
    return study(cases, name="wrong-fractions", seeds=SEEDS)


def test_wrong_fractions_cost_what_exact_ones_do_not() -> None:
    table = cost_of_wrong_fractions(typed(wrong()), "selbo")
    assert table is not None
    elbo, summary = table.raw
    assert summary["nll"] == pytest.approx(0.35 + 0.015)
    assert summary["gain"] == pytest.approx(0.25)
    assert summary["off_0.10"] == pytest.approx((0.05 + 0.03) / 2)
    assert summary["off_0.05"] == pytest.approx(0.01)
    assert summary["off_0.20"] == pytest.approx(0.2)
    assert summary["random_pool"] == pytest.approx(0.02)
    assert elbo["off_0.10"] == pytest.approx(0)
    assert [entry.text for entry in table.rows[0]][2] == "–"
    assert cost_of_wrong_fractions(typed(primary(elbo=0.5, summary=0.4)), "selbo") is None
    assert len(find_cases(typed(study([*wrong()["comparisons"]] * 2, seeds=SEEDS)), "selbo")[0]) == 4  # stated exactly


def test_missing_runs_and_kinds_leave_places_empty() -> None:
    results = wrong()
    results["comparisons"] = [each for each in results["comparisons"] if not each["data"]["random_pool"]]
    for run in results["comparisons"][1]["methods"][1]["runs"]:
        run["conditions"]["use"]["metrics"]["nll"] = None
    table = cost_of_wrong_fractions(typed(results), "selbo")
    assert table is not None
    assert [entry.text for entry in table.rows[1]][-1] == "–"
    assert table.raw[1]["off_0.10"] is None


def test_both_are_among_what_is_written(tmp_path: Path) -> None:
    for results, name in ((primary(elbo=0.5, summary=0.4), "primary"), (wrong(), "wrong-fractions")):
        assert name in {table.name for table in tables_over_cases(typed(results), "selbo")}
        written = {path.name for path in write_tables(typed(results), tmp_path / name)}
        assert f"selbo-{name}.csv" in written
    results = primary(elbo=0.5, summary=0.4)
    results["comparisons"] += [case({"elbo": 0.5, "summary": 0.4}, items=9, labels=7)]
    assert "after Holm" in render_study_page(typed(results))
