"""The sentence on top of a report follows the numbers, whichever way they fall, and claims no more than they show."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import study_fakes as fakes
from selbo.report import studies, takeaway

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
    first, numbers, rule = takeaway.takeaway(results).split("\n\n")
    assert first == (
        f"Mine against the best other method of each column: on the clean test set it is {word} in NLL and ECE; "
        f"at noise 1 it is {word} in NLL and ECE."
    )
    lines = numbers.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(f"- NLL on the clean test set: {own + 0.002:.3f} against 0.502 of Other, difference ")
    found = takeaway.difference(results, "clean", "nll", "Mine", "Other")
    assert lines[0].endswith(takeaway.shown_difference("nll", found))
    assert found.mean == pytest.approx(own - 0.5, abs=0.01)
    assert "over 3 seeds" in rule


def test_the_difference_is_that_of_the_seeds() -> None:
    results = compared(a=0.4, b=0.5)
    pairs = [r["conditions"]["clean"]["metrics"]["nll"] for r in results["runs"]]
    expected = studies.difference_of([x - y for x, y in zip(pairs[:3], pairs[3:], strict=True)], seeds=3)
    assert takeaway.difference(results, "clean", "nll", "a", "b") == expected
    assert expected.high is not None
    assert expected.high < 0  # the seeds move both alike: unpaired means would overlap


def test_without_a_focus_the_best_is_named_with_its_equals() -> None:
    text = takeaway.takeaway(compared(a=0.5, b=0.5005, c=0.9))
    assert text.startswith("Lowest NLL on the clean test set: a, 0.502; level with it: b.")
    assert "ahead of all others" in takeaway.takeaway(compared(a=0.5, c=0.9))


def test_a_missing_run_is_no_victory() -> None:
    results = compared(Mine=0.1, Other=0.5) | {"focus": "Mine"}
    results["runs"][0]["conditions"]["clean"]["metrics"]["nll"] = None
    assert "on the clean test set it is ahead in ECE;" in takeaway.takeaway(results)


def test_nothing_is_claimed_of_one_method_or_of_one_seed() -> None:
    assert takeaway.takeaway(compared(a=0.5)) == ""
    single = compared(a=0.5, b=0.6)
    single |= {"seeds": [0], "runs": [run for run in single["runs"] if run["seed"] == 0]}
    assert takeaway.takeaway(single) == "One seed: no difference between the methods can be told from chance."
    assert takeaway.takeaway(single | {"takeaway": "Said by hand."}) == "Said by hand."


# --- studies ---


def study(*nll: float, seeds: int = 3, cases: int = 1, focus: bool = True, track: str = "selbo") -> Results:
    """ELBO, Summary ELBO, ensemble: a mean each; the same in every case."""
    names = {"elbo": "ELBO", "summary": "Summary ELBO", "ensemble": "deep ensemble"}
    methods = [fakes.method(0, name, title, seeds=seeds) for name, title in names.items()][: len(nll)]
    for m, (method, mean) in enumerate(zip(methods, nll, strict=True)):
        for seed, run in enumerate(method["runs"]):
            run["conditions"]["clean"]["metrics"]["nll"] = mean + 0.3 * seed + 0.002 * ((seed + m) % 3)
    each = fakes.comparison(methods, track=track) | ({"focus": "summary"} if focus else {})
    return fakes.study([copy.deepcopy(each) | {"variant": f"v{i}"} for i in range(cases)], seeds=seeds)


@pytest.mark.parametrize(
    ("nll", "said"),
    [
        ((0.5, 0.4, 0.3), ("ahead of ELBO", "ahead of 1 and behind 1 (deep ensemble)")),
        ((0.5, 0.5, 0.9), ("level with ELBO", "ahead of 1, level with 1 (ELBO) and behind 0")),
        ((0.5, 0.6, 0.6), ("behind ELBO", "ahead of 0, level with 1 (deep ensemble) and behind 1 (ELBO)")),
    ],
)
def test_a_study_with_a_focus(nll: tuple[float, ...], said: tuple[str, str]) -> None:
    ((track, text),) = takeaway.study_takeaways(study(*nll))
    assert track == "our settings"
    assert text.startswith(f"NLL on the test set: Summary ELBO is {said[0]}, difference ")
    assert f"Of the 2 other methods it is {said[1]}." in text


def test_a_study_with_many_cases_counts_them() -> None:
    results = study(0.5, 0.4, 0.3, cases=3)
    for run in results["comparisons"][2]["methods"][1]["runs"]:
        run["conditions"]["clean"]["metrics"]["nll"] += 0.3
    ((_, text),) = takeaway.study_takeaways(results)
    assert text == (
        "NLL on the test set: Summary ELBO is ahead of ELBO in 2 of 3 cases, level in 0 and behind in 1. "
        "More often ahead of it than behind: deep ensemble."
    )
    results["comparisons"][0]["methods"][0]["runs"][1] = None
    ((_, text),) = takeaway.study_takeaways(results)
    assert "behind in 1 and not comparable in 1, for lack of runs" in text


def test_a_study_without_a_focus_holds_all_against_the_reference() -> None:
    ((_, text),) = takeaway.study_takeaways(study(0.5, 0.4, 0.9, focus=False))
    assert text == "NLL on the test set: of 2 other methods, 1 is ahead of ELBO (Summary ELBO), 0 level and 1 behind."


def test_one_seed_tells_nothing() -> None:
    ((_, text),) = takeaway.study_takeaways(study(0.5, 0.4, seeds=1))
    assert text == "NLL on the test set: one seed, so that no difference can be told from chance."


def test_the_track_of_the_paper_says_how_many_values_agree() -> None:
    results = study(0.5, 0.4, track="published")
    paper = {"elbo": {"values": {"clean.nll": [0.8, 0.01], "clean.ece": [9.0, 0.01]}, "not_comparable": {}}}
    paper["summary"] = {"values": {"clean.nll": [0.4, 0.1]}, "not_comparable": {"all": "because"}}
    results["comparisons"][0]["paper"] = paper
    ((track, text),) = takeaway.study_takeaways(results)
    assert track == "settings of the paper's code"
    assert text.endswith("Of 3 values of the paper, 2 can be compared; with 1 of these our 95 % intervals overlap.")
    edl = {"values": {"clean.nll": [0.8, 0.01]}, "not_comparable": {}}
    results["comparisons"][0]["methods"][1]["recipe"]["objective"] = "evidential"
    results["comparisons"][0]["paper"]["summary"] = edl
    ((_, text),) = takeaway.study_takeaways(results)
    assert text.endswith(
        "Of 2 values of the paper, evidential learning left out, 2 can be compared; with 1 of these our 95 % intervals "
        "overlap."
    )


def test_noise_within_the_range_of_the_paper_has_a_sentence_of_its_own() -> None:
    results = study(0.5, 0.4)
    results["comparisons"][0]["paper_noise"] = 0.5
    for method, harm in zip(results["comparisons"][0]["methods"], (0.1, 0.3), strict=True):
        for seed, run in enumerate(method["runs"]):
            for level, nll in ((0.5, 1 - harm), (0.9, 1 + 10 * harm)):
                measured = {"level": level, "metrics": {"nll": nll + 0.1 * seed + 0.001 * seed * harm}}
                run["conditions"][f"noise {level}"] = measured
    ((_, text),) = takeaway.study_takeaways(results)
    assert "NLL under noise up to 0.5, as in the paper: Summary ELBO is ahead of ELBO, difference −0.200" in text
    assert "NLL under noise up to 0.9: Summary ELBO is behind ELBO, difference +0.9" in text


def test_many_names_are_cut() -> None:
    assert takeaway._named(["a", "b", "c"]) == "a, b and c"
    assert takeaway._named(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
