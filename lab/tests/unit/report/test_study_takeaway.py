"""The sentence on top of a study follows the numbers, whichever way they fall, and claims no more than they show."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import study_fakes as fakes
from selbo_lab.report import study_takeaway

Results = dict[str, Any]


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
    ((track, text),) = study_takeaway.study_takeaways(fakes.typed(study(*nll)))
    assert track == "our settings"
    assert text.startswith(f"NLL on the test set: Summary ELBO is {said[0]}, difference ")
    assert f"Of the 2 other methods it is {said[1]}." in text


def test_a_study_with_many_cases_counts_them() -> None:
    results = study(0.5, 0.4, 0.3, cases=3)
    for run in results["comparisons"][2]["methods"][1]["runs"]:
        run["conditions"]["clean"]["metrics"]["nll"] += 0.3
    ((_, text),) = study_takeaway.study_takeaways(fakes.typed(results))
    assert text == (
        "NLL on the test set: Summary ELBO is ahead of ELBO in 2 of 3 cases, level in 0 and behind in 1. "
        "More often ahead of it than behind: deep ensemble."
    )
    results["comparisons"][0]["methods"][0]["runs"][1] = None
    ((_, text),) = study_takeaway.study_takeaways(fakes.typed(results))
    assert "behind in 1 and not comparable in 1, for lack of runs" in text


def test_a_study_without_a_focus_holds_all_against_the_reference() -> None:
    ((_, text),) = study_takeaway.study_takeaways(fakes.typed(study(0.5, 0.4, 0.9, focus=False)))
    assert text == "NLL on the test set: of 2 other methods, 1 is ahead of ELBO (Summary ELBO), 0 level and 1 behind."


def test_one_seed_tells_nothing() -> None:
    ((_, text),) = study_takeaway.study_takeaways(fakes.typed(study(0.5, 0.4, seeds=1)))
    assert text == "NLL on the test set: one seed, so that no difference can be distinguished from chance."


def test_the_track_of_the_paper_says_how_many_values_agree() -> None:
    results = study(0.5, 0.4, track="published")
    paper = {"elbo": {"values": {"clean.nll": [0.8, 0.01], "clean.ece": [9.0, 0.01]}, "not_comparable": {}}}
    paper["summary"] = {"values": {"clean.nll": [0.4, 0.1]}, "not_comparable": {"all": "because"}}
    results["comparisons"][0]["paper"] = paper
    ((track, text),) = study_takeaway.study_takeaways(fakes.typed(results))
    assert track == "settings of the paper's code"
    assert text.endswith("Of 3 values of the paper, 2 can be compared; with 1 of these our 95 % intervals overlap.")
    edl = {"values": {"clean.nll": [0.8, 0.01]}, "not_comparable": {}}
    results["comparisons"][0]["methods"][1]["recipe"]["objective"] = "evidential"
    results["comparisons"][0]["paper"]["summary"] = edl
    ((_, text),) = study_takeaway.study_takeaways(fakes.typed(results))
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
    ((_, text),) = study_takeaway.study_takeaways(fakes.typed(results))
    assert "NLL under noise up to 0.5, as in the paper: Summary ELBO is ahead of ELBO, difference −0.200" in text
    assert "NLL under noise up to 0.9: Summary ELBO is behind ELBO, difference +0.9" in text
