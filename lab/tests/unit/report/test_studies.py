"""Statistics of a study agree with numpy and scipy; what is missing, diverged or not finite is never passed over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from selbo.report import differences
from selbo_lab.report import origin, studies
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.studies import Cell
from selbo_lab.studies.paper import PaperValues
from study_fakes import typed

Plain = dict[str, Any]

MADE_BY = {"selbo": "0.1.0", "code": "abc", "machine": "x86_64", "time": "2026-01-02T03:04:05Z"}


def run(nll: float | None, *, foggy: float | None = 2.0, snowy: float = 4.0, made_by: Plain = MADE_BY) -> Plain:
    return {
        "status": "finished",
        "made_by": made_by,
        "seconds": {"all": 9.0, "training": 5.0 + (nll or 0.0), "evaluation": 1.0},
        "conditions": {
            "clean": {
                "level": 0.0,
                "metrics": {"nll": nll, "accuracy": 0.5, "brier": 0.3, "f1_macro": 0.25, "num_examples": 7},
                "scaled": {"nll": None if nll is None else nll / 2, "accuracy": 0.5},
            },
            "fog 3": {"level": None, "metrics": {"nll": foggy, "accuracy": 0.4}, "scaled": {"nll": 1.0}},
            "noise 0.1": {"level": 0.1, "metrics": {"nll": snowy, "accuracy": 0.2}, "scaled": {"nll": 3.0}},
        },
        "ood": {"svhn": {"name": "SVHN", "auroc": 0.7, "entropy_in": 0.1, "scaled": {"auroc": 0.8}}},
    }


DIVERGED: Plain = {"status": "diverged", "error": "NaN", "made_by": MADE_BY, "seconds": {"all": 1.0}}


def method(name: str, *runs: Plain | None) -> Plain:
    return {"name": name, "title": name.upper(), "note": "", "chosen": {}, "tried": [], "runs": list(runs)}


def comparison(*methods: Plain, **more: Any) -> Plain:
    return {"variant": "v", "track": "published", "reference": "a", "methods": list(methods), "paper": {}, **more}


def value(found: Plain | None, column: str, scaled: bool = False) -> float | None:
    return studies.value(typed(found), MetricColumn.parse(column), scaled)


def cell(found: Plain, column: str) -> Cell:
    return studies.cell(typed(found), MetricColumn.parse(column))


def cells(found: Plain, column: str) -> dict[str, Cell]:
    return studies.cells(typed(found), MetricColumn.parse(column))


def paired(first: Plain, second: Plain, column: str, **options: bool) -> differences.Difference:
    return studies.paired(typed(first), typed(second), MetricColumn.parse(column), **options)


def columns(found: Plain) -> list[str]:
    return list(map(str, studies.find_columns(typed(found))))


# --- columns and values ---


def test_a_value_is_found_by_the_name_of_its_column() -> None:
    one = run(0.5)
    found = [value(one, c) for c in ("clean.nll", "fog 3.nll", "noise 0.1.nll", "corrupted.nll", "ood.svhn.auroc")]
    assert found == [0.5, 2.0, 4.0, 3.0, 0.7]
    scaled = [value(one, c, scaled=True) for c in ("clean.nll", "fog 3.nll", "corrupted.nll", "ood.svhn.auroc")]
    assert scaled == [0.25, 1.0, 2.0, 0.8]


def noisy(*levels: float, **more: Any) -> Plain:
    """A comparison with one run, whose NLL under noise is ten times the square of its level."""
    found = run(0.5)
    del found["conditions"]["fog 3"], found["conditions"]["noise 0.1"]
    for level in levels:
        measured = {"nll": 10 * level**2, "accuracy": 1 - level}
        found["conditions"][f"noise {level:g}"] = {"level": level, "metrics": measured, "scaled": {"nll": level}}
    return comparison(method("a", found), **more)


def test_noise_has_two_ranges_where_more_was_measured_than_the_paper_shows() -> None:
    found = noisy(0.1, 0.5, 0.6, 1.0, paper_noise=0.5)
    assert studies.tested_noise_levels(typed(found)) == [0.1, 0.5, 0.6, 1.0]
    assert studies.noise_ranges(typed(found)) == (0.5, None)
    (one,) = found["methods"][0]["runs"]
    assert value(one, "corrupted ≤ 0.5.nll") == pytest.approx((0.1 + 2.5) / 2)
    assert value(one, "corrupted ≤ 0.5.nll", scaled=True) == pytest.approx(0.3)
    assert value(one, "corrupted.nll") == pytest.approx((0.1 + 2.5 + 3.6 + 10) / 4)
    places = ("corrupted ≤ 0.5", "corrupted")
    shown = [f"{place}.{metric}" for place in places for metric in ("nll", "accuracy")]
    assert columns(found)[2:6] == shown
    one["conditions"]["noise 0.1"]["metrics"]["nll"] = None
    assert value(one, "corrupted ≤ 0.5.nll") is None


@pytest.mark.parametrize(
    "found",
    [
        noisy(0.1, 0.5, 1.0),
        noisy(0.1, 0.5, 1.0, paper_noise=0.0),
        noisy(0.1, 0.5, paper_noise=0.5),
        noisy(paper_noise=0.5),
        comparison(method("a", None, DIVERGED), paper_noise=0.5),
    ],
)
def test_noise_has_one_range_elsewhere(found: Plain) -> None:
    assert studies.noise_ranges(typed(found)) == (None,)


def test_corruptions_without_a_level_are_in_no_range_of_noise() -> None:
    assert value(run(0.5), "corrupted ≤ 0.5.nll") == 4.0


@pytest.mark.parametrize(
    ("broken", "column", "scaled"),
    [
        (None, "clean.nll", False),
        (DIVERGED, "clean.nll", False),
        (run(None), "clean.nll", False),
        (run(0.5, foggy=None), "corrupted.nll", False),
        (run(0.5), "clean.nothing", False),
        (run(0.5), "snow 1.nll", False),
        (run(0.5), "ood.fashion.auroc", False),
        (run(0.5), "clean.brier", True),
        (run(0.5), "ood.svhn.entropy_in", True),
        (run(0.5) | {"conditions": {"clean": run(0.5)["conditions"]["clean"]}}, "corrupted.nll", False),
    ],
)
def test_there_is_no_value_where_nothing_finite_was_measured(broken: Plain, column: str, scaled: bool) -> None:
    assert value(broken, column, scaled) is None


def test_a_column_needs_a_place_and_a_metric() -> None:
    with pytest.raises(ValueError, match="`column` must be a place and a metric with a dot between, but got 'nll'"):
        value(run(0.5), "nll")


def test_columns_are_those_that_any_run_has() -> None:
    found = comparison(method("a", None, DIVERGED), method("b", run(None), run(0.5)))
    shown = ["clean.nll", "clean.accuracy", "corrupted.nll", "corrupted.accuracy"]
    shown += ["ood.svhn.entropy_in", "ood.svhn.auroc"]
    assert columns(found) == shown
    assert list(map(str, studies.all_columns(typed(found)))) == [*shown, "clean.brier", "clean.f1_macro"]
    assert "clean.f1_macro" in columns(found | {"classes": {"common": 0.9, "rare": 0.1}})
    assert columns(comparison(method("a", None, DIVERGED))) == []


def test_recall_of_a_class_is_a_metric_that_temperature_does_not_change() -> None:
    found = run(0.5)
    for name, first in {"clean": 0.9, "fog 3": 0.5, "noise 0.1": 0.25}.items():
        found["conditions"][name]["recall"] = [first, 0.25, None]
    assert str(MetricColumn("clean", "recall", of_class=1)) == "clean.recall 1"
    for scaled in (False, True):
        assert value(found, "clean.recall 1", scaled) == 0.25
        assert value(found, "corrupted.recall 0", scaled) == 0.375
    assert value(found, "clean.recall 2") is None  # no example of that class
    assert value(found, "clean.recall 3") is None
    assert value(run(0.5), "clean.recall 0") is None


# --- over seeds ---


def test_mean_and_standard_error_are_those_of_numpy() -> None:
    numbers = np.array([0.21, 0.35, 0.5, 0.95, 0.11])
    found = cell(method("a", *map(run, numbers.tolist())), "clean.nll")
    assert found.mean == pytest.approx(numbers.mean(), rel=1e-12)
    assert found.error == pytest.approx(stats.sem(numbers, ddof=1), rel=1e-12)
    assert found.interval == pytest.approx(stats.t.interval(0.95, 4, numbers.mean(), stats.sem(numbers)), rel=1e-10)
    assert (found.runs, found.seeds, found.complete, found.note) == (5, 5, True, None)


def test_no_run_is_passed_over() -> None:
    found = cell(method("a", run(0.2), DIVERGED, None, run(None), run(0.6), DIVERGED), "clean.nll")
    assert (found.mean, found.runs, found.seeds) == (pytest.approx(0.4), 2, 6)
    assert (found.diverged, found.missing, found.undefined, found.complete) == (2, 1, 1, False)
    assert found.note == "2 of 6 diverged, 1 of 6 missing, 1 of 6 without a finite value"


def test_one_seed_has_no_error_and_none_has_no_mean() -> None:
    one = cell(method("a", run(0.2)), "clean.nll")
    assert (one.mean, one.error, one.interval, one.note) == (0.2, None, None, None)
    none = cell(method("a", DIVERGED, DIVERGED), "clean.nll")
    assert (none.mean, none.error, none.note) == (None, None, "2 of 2 diverged")


def test_the_best_has_all_of_its_runs() -> None:
    found = cells(
        comparison(
            method("a", run(0.1), DIVERGED, run(0.1)),
            method("b", run(0.2), run(0.5), run(0.5)),  # .4, standard error .1
            method("c", run(0.35), run(0.55), run(0.45)),
            method("d", run(0.6), run(0.8), run(0.7)),
        ),
        "clean.nll",
    )
    assert [each.best for each in found.values()] == [False, True, False, False]
    assert [each.close for each in found.values()] == [False, False, True, False]


def test_larger_accuracies_are_better_and_entropies_have_no_best() -> None:
    both = comparison(method("a", run(0.1)), method("b", run(0.2)))
    both["methods"][1]["runs"][0]["conditions"]["clean"]["metrics"]["accuracy"] = 0.9
    assert [each.best for each in cells(both, "clean.accuracy").values()] == [False, True]
    assert not any(each.best for each in cells(both, "ood.svhn.entropy_in").values())


def test_seconds_of_training() -> None:
    found = studies.timings(typed(comparison(method("a", run(1.0), run(3.0)), method("b", DIVERGED, run(0.5)))))
    assert (found["a"].mean, found["a"].error) == (7.0, pytest.approx(1.0))
    assert (found["b"].mean, found["b"].note) == (5.5, "1 of 2 diverged")


def test_seconds_of_a_run_that_went_on_are_those_of_all_its_sessions() -> None:
    resumed = run(1.0)
    resumed["seconds"]["earlier"] = 20.0
    assert studies.timings(typed(comparison(method("a", resumed))))["a"].mean == 26.0


# --- paired differences ---


def test_paired_differences_agree_with_the_paired_t_test(seed: int) -> None:
    draws = np.random.default_rng(seed)
    a, b = draws.normal(0.5, 0.2, 5), draws.normal(0.4, 0.1, 5)
    found = paired(method("a", *map(run, a.tolist())), method("b", *map(run, b.tolist())), "clean.nll")
    test = stats.ttest_rel(a, b)
    low, high = test.confidence_interval(0.95)
    assert found.mean == pytest.approx((a - b).mean(), rel=1e-9)
    assert (found.low, found.high) == (pytest.approx(low, rel=1e-9), pytest.approx(high, rel=1e-9))
    assert found.mean / found.error == pytest.approx(test.statistic, rel=1e-9)  # type: ignore[operator]
    assert found.clear == (test.pvalue < 0.05)
    assert (found.pairs, found.seeds) == (5, 5)


def test_a_pair_needs_both_runs() -> None:
    ours = method("a", run(0.9), run(0.5), DIVERGED, run(0.7))
    theirs = method("b", None, run(0.1), run(0.1), run(0.2))
    found = paired(ours, theirs, "clean.nll")
    assert (found.mean, found.pairs, found.seeds) == (pytest.approx(0.45), 2, 4)
    assert found.error == pytest.approx(stats.sem([0.4, 0.5]))
    assert not found._replace(low=0.1, high=0.2).clear, "an interval from some of the seeds is not clear"
    assert found._replace(low=0.1, high=0.2, pairs=4).clear
    assert found._replace(low=-0.2, high=-0.1, pairs=4).clear
    assert not found._replace(low=-0.1, high=0.2, pairs=4).clear
    assert not found._replace(low=1e-9, high=2e-9, pairs=4).clear, "two numbers that are equal but for rounding"
    assert found._replace(low=2e-6, high=3e-6, pairs=4).clear


def test_differences_of_one_pair_and_of_none() -> None:
    one = paired(method("a", run(0.5)), method("b", run(0.25)), "clean.nll", scaled=True)
    assert one == (0.125, None, None, None, 1, 1)
    none = paired(method("a", DIVERGED), method("b", run(0.25)), "clean.nll")
    assert none == (None, None, None, None, 0, 1)
    assert not one.clear
    assert not none.clear


@pytest.mark.parametrize("freedom", [1, 2, 4, 9, 100])
def test_quantiles_are_those_of_scipy(freedom: int) -> None:
    assert differences.t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-10)


# --- beside the paper ---


def test_intervals_overlap_or_not() -> None:
    ours = Cell(0.300, 0.010, 5, 5)  # .2722 to .3278
    found = studies.against_paper(ours, (0.341, 0.024))  # .2925 to .3895
    assert found == (pytest.approx(-0.041), True, None)
    apart = studies.against_paper(ours, (0.341, 0.004))  # .3317 to .3503
    assert apart == (pytest.approx(-0.041), False, None)
    below = studies.against_paper(ours, (0.250, 0.005))  # to .2613
    assert below == (pytest.approx(0.050), False, None)


def test_a_printed_zero_is_a_rounded_one() -> None:
    exact = Cell(0.99995, 1e-6, 5, 5)
    assert studies.against_paper(exact, (1.000, 0.000)).overlap is True
    assert studies.against_paper(exact._replace(mean=0.9980), (1.000, 0.000)).overlap is False


def test_evidential_learning_is_counted_by_itself() -> None:
    values = {"values": {"clean.nll": [0.6, 0.01], "clean.accuracy": [0.9, 0.001]}}
    both = [method(name, run(0.5), run(0.7)) for name in ("a", "b")]
    both[1]["recipe"] = {"objective": "evidential"}
    found = comparison(*both, paper={"a": values, "b": {"values": {"clean.nll": [0.6, 0.01]}}})
    assert studies.overlaps(typed(found)) == [True, False]
    assert studies.overlaps(typed(found), evidential=True) == [True]
    other = {"a": {"values": {"clean.nll": [9.0, 0.01]}, "not_comparable": {}}}
    assert studies.overlaps(typed(found), paper=PaperValues.from_dict(other)) == [False]
    barred = {"a": other["a"] | {"not_comparable": {"all": "because"}}}
    assert studies.overlaps(typed(found), paper=PaperValues.from_dict(barred)) == [None]


def test_runs_that_predict_one_class_are_at_chance() -> None:
    runs = [run(0.5) for _ in range(3)]
    for each, recall in zip(runs, ([1.0, 0.0], [0.0, 0.9], [0.5, 0.1]), strict=True):
        each["conditions"]["clean"]["recall"] = recall
    assert studies.one_class_runs(typed(method("a", *runs, None, DIVERGED, run(0.5)))) == 2


def test_what_cannot_be_compared_says_why() -> None:
    ours = Cell(0.3, 0.01, 5, 5)
    assert studies.against_paper(ours, (0.3, 0.1), "other data") == (None, None, "other data")
    few = Cell(0.3, 0.01, 3, 5, diverged=2)
    assert studies.against_paper(few, (0.2, 0.1)) == (pytest.approx(0.1), None, "2 of 5 diverged")
    assert studies.against_paper(Cell(0.3, None, 1, 1), (0.2, 0.1)).reason == "one run has no interval"
    assert studies.against_paper(Cell(None, None, 0, 2, diverged=2), (0.2, 0.1)) == (None, None, "2 of 2 diverged")


def test_reasons_are_for_a_row_or_for_a_part_of_it() -> None:
    paper = PaperValues.from_dict(
        {
            "caveat": "Mind the data.",
            "a": {"values": {"clean.nll": [0.3, 0.1]}, "not_comparable": {"ood": "exchanged"}},
            "b": {"values": {"clean.nll": [0.3, 0.1]}, "not_comparable": {"all": "twice"}},
        }
    )
    assert paper.caveat == "Mind the data."
    assert studies.published(paper, "a") == {MetricColumn("clean", "nll"): (0.3, 0.1)}
    assert studies.published(paper, "c") == {}
    both = MetricColumn("clean", "nll"), MetricColumn("svhn", "auroc", ood=True)
    reasons = [studies.not_comparable(paper, name, column) for name in "abc" for column in both]
    assert reasons == [None, "exchanged", "twice", "twice", None, None]


# --- where the numbers come from ---


def test_all_versions_machines_and_days_are_named() -> None:
    later = {"selbo": "0.2.0", "code": None, "machine": "NVIDIA H200", "time": "2026-03-01T00:00:00Z"}
    found = comparison(method("a", run(0.1), None), method("b", run(0.1, made_by=later), DIVERGED))
    assert origin.provenance([3, 5], typed(found).runs) == (
        "Seeds 3, 5; 3 of 4 runs, 1 missing, 1 diverged; selbo 0.1.0 (abc), 0.2.0; on NVIDIA H200, x86_64; "
        "2026-01-02 to 2026-03-01."
    )
    assert origin.provenance([0], [None]) == "Seed 0; 0 of 1 runs, 1 missing."


def test_tuning_tells_the_range_and_what_failed() -> None:
    tried = [{"decay": 0.0, "val_nll": 0.5}, {"decay": 0.1, "val_nll": 0.4}, {"decay": 0.2, "val_nll": None}]
    chosen = typed(method("a") | {"tried": tried, "chosen": {"decay": 0.1}})
    assert studies.tuned(chosen) == (0.4, 0.4, 0.5, 1)
    assert [studies.is_chosen(chosen, each) for each in chosen.tried] == [False, True, False]
    assert studies.tuned(typed(method("a"))) == (None, None, None, 0)
