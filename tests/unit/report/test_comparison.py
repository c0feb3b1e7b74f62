"""Means, standard errors and marks are those computed by hand; bad results are refused in one sentence."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import sys
from typing import Any

import pytest

import selbo
from selbo.plots import panels
from selbo.report import comparison, tables
from selbo.report.comparison import Value
from selbo.report.outcomes import describe_belief
from selbo.results import Comparison, StatedBelief

with contextlib.suppress(ModuleNotFoundError):
    import rich.console  # here, because importing rich draws from the global `random`, which is watched around tests

Results = dict[str, Any]


def run(method: str, seed: int, nll: float | None, *, noisy: float = 2.0, auroc: float | None = None) -> Results:
    return {
        "method": method,
        "seed": seed,
        "conditions": {
            "noise .5": {"level": 0.5, "metrics": {"nll": noisy, "ece": 0.25}},
            "clean": {"level": None, "metrics": {"nll": nll, "accuracy": 0.5 + seed / 10, "calls": 3.0}},
        },
        "ood": None if auroc is None else {"auroc": auroc},
        "seconds": 1.0,
    }


def small() -> Results:
    """Three methods, three seeds: means of NLL .4 (SE .1), .45 and .7."""
    numbers = {"a": (0.2, 0.5, 0.5), "b": (0.35, 0.55, 0.45), "c": (0.6, 0.8, 0.7)}
    return {
        "title": "A title",
        "description": "What was done.",
        "task": {
            "num_train": 10,
            "num_test": 20,
            "num_classes": 2,
            "class_names": ["no", "yes"],
            "class_counts": [7, 3],
        },
        "methods": ["a", "b", "c"],
        "seeds": [0, 1, 2],
        "runs": [run(m, s, nll) for m, values in numbers.items() for s, nll in enumerate(values)],
        "clean": "clean",
        "corruption": "noise",
        "made_by": {
            "command": "selbo compare",
            "selbo": "0.1",
            "python": "3.12",
            "torch": "2",
            "machine": "m",
            "seconds": 9,
        },
    }


def six() -> Results:
    """The methods, seeds and columns of a full comparison, with wide numbers."""
    names = ["plain", "plain + temperature", "label smoothing", "evidential", "ELBO", "Summary ELBO"]
    results = small() | {"methods": names, "ood_name": "digits", "corruption": "noise, standard deviation"}
    results["runs"] = [
        run(name, seed, 0.4 + i / 10 + seed / 50, noisy=2.5 - i / 5 + seed / 20, auroc=0.8 + i / 50 + seed / 200)
        for i, name in enumerate(names)
        for seed in (0, 1, 2)
    ]
    for each in results["runs"]:
        each["conditions"]["clean"]["metrics"]["ece"] = 0.12 + each["seed"] / 40
    return results


def column(results: Results, metric: str, condition: str = "clean") -> dict[str, Value]:
    return {
        row.method: row.values[metric]
        for row in comparison.summarise(Comparison.from_dict(results), condition, [metric])
    }


# --- means, errors, marks ---


def test_means_and_standard_errors_are_those_by_hand() -> None:
    values = column(small(), "nll")
    assert list(values) == ["a", "b", "c"]
    assert values["a"].mean == pytest.approx(0.4, rel=1e-12)
    # deviations -.2, .1, .1: variance .06 / 2 = .03, standard error sqrt(.03 / 3) = .1
    assert values["a"].error == pytest.approx(0.1, rel=1e-12)
    # deviations -.1, .1, 0: sqrt(.01 / 3)
    assert values["b"].error == values["c"].error == pytest.approx(math.sqrt(0.01 / 3), rel=1e-12)
    assert [v.runs for v in values.values()] == [3, 3, 3]


def test_marks_follow_the_direction_of_the_metric() -> None:
    values = column(small(), "nll")  # lower is better: .4, then .45 within .1 of it, then .7
    assert [(v.best, v.close) for v in values.values()] == [(True, False), (False, True), (False, False)]
    results = small()
    for each in results["runs"]:
        each["conditions"]["clean"]["metrics"]["accuracy"] = each["conditions"]["clean"]["metrics"]["nll"]
    values = column(results, "accuracy")  # higher is better: .7 with an error of .058
    assert [(v.best, v.close) for v in values.values()] == [(False, False), (False, False), (True, False)]


def test_the_reach_is_the_error_of_the_best_not_of_the_other() -> None:
    results = small()
    for each in results["runs"]:  # a: .4 with error 0; b: mean .45, error .058; its own error reaches .4
        if each["method"] == "a":
            each["conditions"]["clean"]["metrics"]["nll"] = 0.4
    assert not column(results, "nll")["b"].close


def test_ties_are_all_best_and_a_metric_without_direction_has_none() -> None:
    assert [v.best for v in column(small(), "ece", "noise .5").values()] == [True, True, True]
    assert not any(v.best or v.close for v in column(small(), "calls").values())


def test_a_mean_over_fewer_runs_is_not_the_best() -> None:
    results = small()
    results["runs"][2]["conditions"]["clean"]["metrics"]["nll"] = None  # of a: .2 and .5 are left
    values = column(results, "nll")
    assert values["a"].runs == 2
    assert values["a"].mean == pytest.approx(0.35)
    assert [v.best for v in values.values()] == [False, True, False]
    results = small()
    del results["runs"][2]
    assert [v.best for v in column(results, "nll").values()] == [False, True, False]


def test_one_seed_has_no_error_and_one_method_no_mark() -> None:
    results = small() | {"seeds": [0]}
    results["runs"] = [each for each in results["runs"] if each["seed"] == 0]
    assert [(v.error, v.best, v.close) for v in column(results, "nll").values()] == [
        (None, True, False),
        (None, False, False),
        (None, False, False),
    ]
    alone = small() | {"methods": ["b"]}
    alone["runs"] = [each for each in alone["runs"] if each["method"] == "b"]
    assert not column(alone, "nll")["b"].best


def test_what_no_run_has_is_none() -> None:
    assert column(small(), "brier")["a"] == Value(None, None, 0)
    (first, *_) = comparison.summarise_ood(Comparison.from_dict(small()))
    assert first.values["auroc"] == Value(None, None, 0)


def test_conditions_are_ordered_by_level() -> None:
    results = small()
    for each in results["runs"]:
        each["conditions"] |= {
            "noise .1": {"level": 0.1, "metrics": {}},
            "rotated": {"level": None, "metrics": {}},
        }
    assert [name for name, _ in comparison.conditions(Comparison.from_dict(results))] == [
        "clean",
        "noise .1",
        "noise .5",
        "rotated",
    ]
    assert comparison.noise_levels(Comparison.from_dict(results)) == [
        ("clean", 0.0),
        ("noise .1", 0.1),
        ("noise .5", 0.5),
    ]
    assert comparison.noisiest(Comparison.from_dict(results)) == ("noise .5", 0.5)
    assert comparison.noise_levels(Comparison.from_dict(results | {"corruption": None})) == []


def test_headline_columns() -> None:
    groups = [(c.group, c.metric) for c in comparison.headline(Comparison.from_dict(six()))]
    expected = [("clean", "nll"), ("clean", "accuracy"), ("clean", "ece"), ("noisy", "nll"), ("noisy", "ece")]
    assert groups == [*expected, ("ood", "auroc")]
    assert comparison.headline(Comparison.from_dict(six()))[-1].values["ELBO"].mean == pytest.approx(
        0.8 + 4 / 50 + 1 / 200
    )
    assert [
        (c.group, c.metric) for c in comparison.headline(Comparison.from_dict(small() | {"corruption": None}))
    ] == expected[:2]


def test_an_unknown_condition_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^`condition` must be one of \['clean', 'noise .5'\], but got 'fog'"):
        comparison.summarise(Comparison.from_dict(small()), "fog")


# --- what results must hold ---


def changed(path: str, value: Any) -> Results:
    results = copy.deepcopy(small())
    results["belief"] = {
        "words": "w",
        "partition": "p",
        "regions": ["r", "s"],
        "s0": [0.4, 0.6],
        "concentration": 10.0,
    }
    first = results["runs"][0]
    first["histogram"] = [0.3, 0.7]
    first["reliability"] = {"confidence": [None, 0.8], "accuracy": [None, 0.7], "count": [0, 20]}
    for each in results["runs"][:2]:
        each["entropy"] = {"edges": [0.0, 0.5, 0.7], "in": [15, 5], "out": [3, 9]}
    Comparison.from_dict(results)
    *parts, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    holder = results
    for part in parts:
        holder = holder[part]
    if value is KeyError:
        del holder[last]
    else:
        holder[last] = value
    return results


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("title", KeyError, "`title` must be given, but the keys are"),
        ("title", "", "`title` must be a text that is not empty"),
        ("conclusion", 3, "`conclusion` must be a text"),
        ("clean", "tidy", "`runs[0].conditions.tidy` must be given"),
        ("methods", [], "`methods` and `seeds` must each hold different entries"),
        ("methods", ["a", "b", "a"], "`methods` and `seeds` must each hold different entries"),
        ("methods", "abc", "`methods` must be a list, but got 'abc'"),
        ("methods", ["a", "b", "c", "d"], "`runs` must hold at least one run of every method, but got none of 'd'"),
        ("seeds", [0.5], "`seeds[0]` must be a whole number"),
        ("task/num_train", "10", "`task.num_train` must be a whole number"),
        ("task/class_names", ["no"], "`task.class_names` must hold 2 entries"),
        ("task/class_counts", [1, -1], "`task.class_counts[1]` must be a whole number"),
        ("made_by/torch", KeyError, "`made_by.torch` must be given"),
        ("made_by/seconds", -1, "`made_by.seconds` must be a finite number of at least 0"),
        ("belief/s0", [0.4, 0.7], "`belief.s0` must lie on the simplex"),
        ("belief/regions", ["r"], "`belief.s0` must hold 1 masses"),
        ("belief/concentration", 0, "`belief.concentration` must be a finite number greater than 0"),
        ("belief", None, "`runs[0].histogram` must be None where `belief` is None"),
        ("runs", {}, "`runs` must be a list"),
        ("runs/1", "run", "`runs[1]` must be a dictionary, but got 'run'"),
        ("runs/1/method", "z", "`runs[1].method` must be one of ['a', 'b', 'c'], but got 'z'"),
        ("runs/1/seed", 7, "`runs[1].seed` must be one of [0, 1, 2], but got 7"),
        ("runs/1/seed", 0, "`runs` must hold one run a method and seed, but got several of ('a', 0)"),
        ("runs/1/seconds", None, "`runs[1].seconds` must be a finite number"),
        ("runs/1/conditions/clean", 3, "`runs[1].conditions.clean` must be a dictionary"),
        ("runs/1/conditions/clean/metrics/nll", math.nan, "`runs[1].conditions.clean.metrics.nll` must be a finite"),
        ("runs/1/conditions/clean/metrics/nll", "x", "`runs[1].conditions.clean.metrics.nll` must be a finite number"),
        ("runs/1/conditions/noise .5/level", "x", "`runs[1].conditions.noise .5.level` must be a finite number"),
        ("runs/1/conditions/noise .5/level", 0.4, "`runs[1].conditions.noise .5.level` must be the same in all runs"),
        ("runs/1/ood", {"auroc": True}, "`runs[1].ood.auroc` must be a finite number"),
        ("runs/0/histogram", [0.2, 0.3, 0.5], "`runs[0].histogram` must hold 2 masses"),
        ("runs/0/reliability/accuracy", [None], "`runs[0].reliability.accuracy` must hold 2 entries, one per bin"),
        ("runs/0/reliability/accuracy", [None, None], "`runs[0].reliability.accuracy` must be a finite number"),
        ("runs/0/reliability/confidence", [None, 80], "`runs[0].reliability.confidence` must lie between 0 and 1"),
        ("runs/0/entropy/edges", [0.0, 0.5, 0.5], "`runs[0].entropy.edges` must be at least two increasing numbers"),
        ("runs/0/entropy/in", [0, 0], "`runs[0].entropy.in` must hold 2 counts, not all of them 0"),
        ("runs/0/entropy/out", [1, 2, 3], "`runs[0].entropy.out` must hold 2 counts"),
        ("runs/1/entropy/edges", [0.0, 0.5, 0.8], "`runs[1].entropy.edges` must have the same bins as in the other"),
    ],
)
def test_bad_results_name_the_key(path: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the message is compared below, as plain text)
        Comparison.from_dict(changed(path, value))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_results_must_be_a_dictionary() -> None:
    with pytest.raises(ValueError, match=r"^`results` must be a dictionary, but got \[\]"):
        Comparison.from_dict([])


# --- text of values, and names beside lines ---


def test_values_of_a_column_have_the_same_decimals() -> None:
    values = [Value(0.31249, 0.0041, 3), Value(12.5, None, 1), Value(None, None, 0)]
    shown = tables.texts("nll", values, num_seeds=3)
    assert shown == [("0.312", "0.004", None), ("12.500", None, "1 of 3 runs"), ("–", None, None)]
    fine = [Value(0.9123, 0.0002, 3), Value(0.8, 0.0003, 3)]
    assert tables.texts("accuracy", fine, num_seeds=3) == [("91.23", "0.02", None), ("80.00", "0.03", None)]
    assert tables.texts("accuracy", fine, num_seeds=3, precise=False)[0] == ("91.2", "0.0", None)


@pytest.mark.parametrize(
    ("positions", "expected"),
    [([3.0, 1.0], [3.0, 1.0]), ([1.0, 1.0, 1.0], [0.0, 1.0, 2.0]), ([0.0, 5.0, 5.2], [0.0, 4.6, 5.6]), ([], [])],
)
def test_names_are_moved_apart_no_further_than_needed(positions: list[float], expected: list[float]) -> None:
    assert panels.spread(positions, gap=1.0) == pytest.approx(expected)


NAMES = ["no", "yes"]


@pytest.mark.parametrize(
    ("partition", "labels", "title", "ends"),
    [
        (selbo.ScoreBins([0.25, 0.5]), ["0", ".25", ".5", "1"], "probability of class yes", []),
        (selbo.ConfidenceBins([0.7], num_classes=2), ["1/2", ".7", "1"], "largest predicted probability", []),
        (
            selbo.CornerShells(2, thresholds=(0.8, 0.9)),
            ["> .9", ".8–.9", "centre"],
            "class probability",
            [2.0, 4.0],
        ),
        (selbo.ClassRegions(2), NAMES, "", []),
    ],
)
def test_axis_of_a_stated_belief(partition: selbo.Partition, labels: list[str], title: str, ends: list[float]) -> None:
    summary = selbo.SummaryLikelihood(partition, selbo.Uniform(), concentration=9.0)
    stated = describe_belief(summary, "words", NAMES)
    belief = StatedBelief.from_dict(json.loads(json.dumps(stated.to_dict())))
    assert belief == stated
    axis, groups = panels.build_axis(belief.regions, scale=belief.scale, shells=belief.shells or ())
    assert (axis.labels, axis.title, groups) == (labels, title, ends)
    assert len(axis.positions) == len(labels)


def test_labels_that_look_like_intervals_are_labels() -> None:
    axis, groups = panels.build_axis(["0–.5", ".5–1"])  # of a user's partition, or a file without a scale
    assert (axis.labels, axis.title, groups) == (["0–.5", ".5–1"], "", [])


# --- the console ---


def printed(results: Results, width: int = 80, **options: Any) -> list[str]:
    pytest.importorskip("rich")
    out = io.StringIO()
    table = tables.console_table(Comparison.from_dict(results), **options)
    rich.console.Console(file=out, width=width, color_system=None).print(table)
    return out.getvalue().splitlines()


def test_the_console_table_fits_eighty_columns_and_marks_the_best_without_colour() -> None:
    lines = printed(six(), width=200, title="A comparison")
    assert max(len(line.rstrip()) for line in lines) <= 80
    text = " ".join(" ".join(lines).split())
    assert "…" not in text
    (row,) = [line for line in lines if line.startswith("Summary ELBO ")]
    # .9 + (0, 1, 2) / 50, mean .92, error .02 / sqrt 3; accuracy .6 and .1 / sqrt 3; 1.5 + (0, 1, 2) / 20; ...
    assert row.split()[2:] == [".920±.012", "60.0±5.8*", "14.5±1.4*", "1.550±.029*", "25.0±.0*", "90.5±.3*"]
    (plain,) = [line for line in lines if line.startswith("plain  ")]
    assert plain.split()[1] == ".420±.012*"
    assert "mean ± standard error over 3 seeds; * best" in text
    assert "noisy: noise, standard deviation" in text
    assert "ood: digits" in text


def test_the_best_is_bold() -> None:
    pytest.importorskip("rich")
    table = tables.console_table(Comparison.from_dict(six()))
    cells = list(table.columns[1].cells)
    assert [(str(cell).endswith("*"), cell.style) for cell in cells] == [(True, "bold")] + [(False, "")] * 5


def test_long_names_are_wrapped_and_markup_is_text() -> None:
    results = six()
    long = "[bold]a very long name of a method, which says how it was trained and why"
    results["methods"][0] = long
    for each in results["runs"]:
        each["method"] = long if each["method"] == "plain" else each["method"]
    lines = printed(results, width=200)
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert "[bold]a" in "\n".join(lines)


def test_one_run_in_the_console() -> None:
    results = small() | {"methods": ["a"], "seeds": [0], "corruption": None}
    results["runs"] = results["runs"][:1]
    lines = printed(results)
    assert lines[-1].strip() == "one seed"
    assert any(line.split() == ["a", ".200", "50.0"] for line in lines)


def test_missing_rich_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ModuleNotFoundError, match=r"^tables .* need rich, .*: pip install 'selbo\[cli\]'$"):
        tables.console_table(Comparison.from_dict(small()))
