"""The sentence on top of a comparison follows the numbers, whichever way they fall, and claims no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from selbo.report import differences, takeaway
from selbo.results import Comparison

Results = dict[str, Any]
NOISE = (0.0, 0.01, -0.01)
"""Of the seeds; the paired differences of two methods have less."""


def compared(**nll: float) -> Results:
    """Methods with this mean NLL and a tenth of it as ECE; a seed moves all of them, and each a little by itself."""
    runs = []
    for m, (method, mean) in enumerate(nll.items()):
        for seed, moved in enumerate(NOISE):
            own = 0.002 * ((seed + m) % 3)
            metrics = {"nll": mean + 10 * moved + own, "ece": 0.1 * (mean + 10 * moved + own)}
            conditions = {"clean": {"level": 0.0, "metrics": metrics}}
            conditions["noise 1"] = {"level": 1.0, "metrics": {key: 2 * value for key, value in metrics.items()}}
            runs.append({"method": method, "seed": seed, "conditions": conditions, "seconds": 1.0})
    made = {"command": "c", "selbo": "0", "python": "3", "torch": "2", "machine": "m", "seconds": 1.0}
    return {
        "title": "t",
        "description": "d",
        "clean": "clean",
        "methods": list(nll),
        "seeds": [0, 1, 2],
        "corruption": "noise",
        "task": {"num_train": 1, "num_test": 1, "num_classes": 2, "class_names": ["a", "b"], "class_counts": [1, 0]},
        "made_by": made,
        "runs": runs,
    }


@pytest.mark.parametrize(("own", "word"), [(0.4, "ahead"), (0.5, "level"), (0.6, "behind")])
def test_the_method_in_focus_is_ahead_level_or_behind(own: float, word: str) -> None:
    results = compared(Mine=own, Other=0.5, Poor=2.0) | {"focus": "Mine"}
    first, numbers, rule = takeaway.takeaway(Comparison.from_dict(results)).split("\n\n")
    assert first == (
        f"Mine against the best other method of each column: on the clean test set it is {word} in NLL and ECE; "
        f"at noise 1 it is {word} in NLL and ECE."
    )
    lines = numbers.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(f"- NLL on the clean test set: {own + 0.002:.3f} against 0.502 of Other, difference ")
    found = takeaway.difference(Comparison.from_dict(results), "clean", "nll", "Mine", "Other")
    assert lines[0].endswith(takeaway.shown_difference("nll", found))
    assert found.mean == pytest.approx(own - 0.5, abs=0.01)
    assert "over 3 seeds" in rule


def test_the_difference_is_that_of_the_seeds() -> None:
    results = compared(a=0.4, b=0.5)
    pairs = [r["conditions"]["clean"]["metrics"]["nll"] for r in results["runs"]]
    expected = differences.compute_difference([x - y for x, y in zip(pairs[:3], pairs[3:], strict=True)], seeds=3)
    assert takeaway.difference(Comparison.from_dict(results), "clean", "nll", "a", "b") == expected
    assert expected.high is not None
    assert expected.high < 0  # the seeds move both alike: unpaired means would overlap


def test_without_a_focus_the_best_is_named_with_its_equals() -> None:
    text = takeaway.takeaway(Comparison.from_dict(compared(a=0.5, b=0.5005, c=0.9)))
    assert text.startswith("Lowest NLL on the clean test set: a, 0.502; level with it: b.")
    assert "ahead of all others" in takeaway.takeaway(Comparison.from_dict(compared(a=0.5, c=0.9)))


def test_a_missing_run_is_no_victory() -> None:
    results = compared(Mine=0.1, Other=0.5) | {"focus": "Mine"}
    results["runs"][0]["conditions"]["clean"]["metrics"]["nll"] = None
    assert "on the clean test set it is ahead in ECE;" in takeaway.takeaway(Comparison.from_dict(results))


def test_nothing_is_claimed_of_one_method_or_of_one_seed() -> None:
    assert takeaway.takeaway(Comparison.from_dict(compared(a=0.5))) == ""
    single = compared(a=0.5, b=0.6)
    single |= {"seeds": [0], "runs": [run for run in single["runs"] if run["seed"] == 0]}
    assert (
        takeaway.takeaway(Comparison.from_dict(single))
        == "One seed: no difference between the methods can be distinguished from chance."
    )
    assert takeaway.takeaway(Comparison.from_dict(single | {"takeaway": "Said by hand."})) == "Said by hand."


def test_many_names_are_cut() -> None:
    assert takeaway.first_names(["a", "b", "c"]) == "a, b and c"
    assert takeaway.first_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
