"""What a browser may send, and what the library makes of it."""

from __future__ import annotations

import pytest
import torch

from selbo.elicit.state import (
    MOST_CLASSES,
    RefusedError,
    State,
    build_belief,
    build_partition,
    expected,
    read_aloud,
    read_state,
)
from selbo.summary.beliefs import Masses
from selbo.summary.elicitation import expect
from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, ScoreBins

SCRIPT = "<script>alert(1)</script>"


def test_nothing_said_is_the_default() -> None:
    assert read_state({}) == State()


def test_everything_said_is_read() -> None:
    given = {
        "classes": 3,
        "names": [" a ", "", SCRIPT],
        "accuracy": 0.8,
        "fractions": [0.6, 0.3, 0.1],
        "source": "draw",
        "heights": [1, 2, 3],
        "regions": "classes",
        "bins": 7,
        "num_labels": 80,
        "concentration": 50,
        "seed": 4,
    }
    state = read_state(given)
    assert state.labels == ["a", "class 1", SCRIPT]  # text, which nobody interprets
    assert state.shares == (0.6, 0.3, 0.1)
    assert (state.concentration, state.seed, state.heights) == (50.0, 4, (1.0, 2.0, 3.0))
    assert (state.num_labels, state.basis) == (80, "draw")


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ([], "", "must be an object"),
        ({"colour": "red"}, "", "does not know the entry 'colour'"),
        ({"classes": 1}, "classes", "between 2 and 100, but is 1"),
        ({"classes": 2.5}, "classes", "whole number, but is 2.5"),
        ({"classes": "2"}, "classes", "must be a number, but is '2'"),
        ({"classes": True}, "classes", "must be a number"),
        ({"classes": None}, "classes", "must be a number"),
        ({"classes": MOST_CLASSES + 1, "regions": "classes"}, "classes", "takes up to 100 classes, to answer at once"),
        ({"accuracy": 0.5}, "accuracy", r"above 50 %, which guessing among 2 classes reaches.* but is 50 %"),
        ({"accuracy": 1.0}, "accuracy", "below 100 %, but is 100 %"),
        ({"accuracy": float("nan")}, "accuracy", "finite"),
        ({"accuracy": 10**400}, "accuracy", "finite"),
        ({"fractions": [0.8, 0.3]}, "fractions", "sum to 100 %, but their sum is 110 %"),
        ({"fractions": [1.2, -0.2]}, "fractions", "above 0 %, but one is -20 %"),
        ({"fractions": [1e308, 1e308]}, "fractions", "their sum is inf %"),
        ({"source": "draw", "heights": [1e308, 1e308]}, "heights", "the highest must lie"),
        ({"fractions": [1.0, 0.0]}, "fractions", "above 0 %"),
        ({"fractions": [1.0]}, "fractions", "2 classes, but 1 class shares"),
        ({"fractions": [None, 1.0]}, "fractions", "nothing is left for 1 of them: lower the others, or scale"),
        ({"fractions": ["x", 0.5]}, "fractions", "each must be a number, but is 'x'"),
        ({"fractions": "0.5,0.5"}, "fractions", "must be a list of numbers"),
        ({"names": ["a"]}, "names", "2 classes, but 1 names"),
        ({"names": ["a", "a "]}, "names", "'a' is there twice"),
        ({"names": ["a\nimport os", "b"]}, "names", "all of them visible"),
        ({"names": ["a\u202eb", "b"]}, "names", "all of them visible"),
        ({"names": ["a" * 61, "b"]}, "names", "at most 60 characters"),
        ({"names": [1, 2]}, "names", "list of words"),
        ({"source": "guess"}, "source", "one of expect, scores, draw, but got 'guess'"),
        ({"regions": "squares"}, "regions", "must be one of"),
        ({"classes": 3, "regions": "equal"}, "regions", "two classes"),
        ({"bins": 1}, "bins", "between 2 and 50"),
        ({"regions": "edges", "edges": [0.5, 0.2]}, "edges", "grow from left to right.* but got 0.5, 0.2"),
        ({"regions": "edges", "edges": [0.5, 1.0]}, "edges", "between 0 and 1"),
        ({"regions": "edges", "edges": [None]}, "edges", "must be a number"),
        ({"regions": "edges", "edges": [i / 60 for i in range(1, 60)]}, "edges", "at most 50, but there are 59"),
        ({"regions": "shells", "edges": [0.4]}, "edges", "thresholds .* 0.5, or the shells would overlap"),
        ({"classes": 4, "regions": "confidence", "edges": [0.2]}, "edges", "0.25, which no largest probability"),
        ({"concentration": 0}, "concentration", "number of cases must lie between"),
        ({"concentration": "much"}, "concentration", "number of cases must be a number"),
        ({"num_labels": 0}, "labels", "number of labelled examples must lie between 1 and"),
        ({"num_labels": 1.5}, "labels", "number of labelled examples must be a whole number"),
        ({"num_labels": "many"}, "labels", "number of labelled examples must be a number"),
        ({"predicted": [0.5, 0.6]}, "file", "one per class and sum to 1"),
        ({"predicted": [1.5, -0.5]}, "file", "one per class and sum to 1"),
        ({"predicted": [1.0]}, "file", "one per class and sum to 1"),
        ({"source": "draw", "heights": [-1, 2]}, "heights", "must not be negative"),
        ({"source": "draw", "heights": [0, 0]}, "heights", "the highest must lie between 0 and 1e"),
        ({"masses": [0.5, 0.6]}, "file", "sum to 1"),
        ({"masses": [1.0, 0.0]}, "file", "positive"),
        ({"claimed": 2}, "file", "between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(given: object, field: str, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as refused:
        read_state(given)
    assert refused.value.field == field
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "kind", "regions"),
    [
        ({"bins": 7}, ScoreBins, 7),
        ({"regions": "unequal"}, ScoreBins, 7),
        ({"regions": "edges", "edges": [0.2, 0.7]}, ScoreBins, 3),
        ({"classes": 4, "regions": "shells"}, CornerShells, 9),
        ({"classes": 4, "regions": "shells", "edges": [0.5]}, CornerShells, 5),
        ({"classes": 4, "regions": "classes"}, ClassRegions, 4),
        ({"classes": 4, "regions": "confidence"}, ConfidenceBins, 5),
        ({"regions": "confidence"}, ConfidenceBins, 3),
    ],
)
def test_partitions(given: dict[str, object], kind: type, regions: int) -> None:
    found = build_partition(read_state(given))
    assert isinstance(found, kind)
    assert found.num_regions == regions


def test_two_numbers_are_those_of_expect() -> None:
    state = read_state({"accuracy": 0.87, "fractions": [0.7, 0.3]})
    assert repr(expected(state)) == repr(expect(0.87, class_fractions=[0.7, 0.3]))


def test_a_drawn_histogram_is_normalised_and_nowhere_empty() -> None:
    state = read_state({"source": "draw", "heights": [0, 60, 40], "regions": "edges", "edges": [0.3, 0.6]})
    belief = build_belief(state, build_partition(state))
    assert isinstance(belief, Masses)
    torch.testing.assert_close(torch.tensor(belief.values), torch.tensor([0.06, 60.0, 40.0]) / 100.06)


@pytest.mark.parametrize("source", ["draw", "scores"])
def test_nothing_drawn_or_counted_yet_begins_with_the_two_numbers(source: str) -> None:
    state = read_state({"source": source, "accuracy": 0.8})
    assert state.basis == "expect"
    assert repr(build_belief(state, build_partition(state))) == repr(expect(0.8))


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"source": "scores", "masses": [0.5, 0.5]}, "file", "regions have changed"),
        ({"source": "draw", "heights": [1, 2]}, "heights", "drawn for 2 regions, but there are 10"),
    ],
)
def test_a_histogram_of_other_regions_is_refused(given: dict[str, object], field: str, message: str) -> None:
    state = read_state(given)
    with pytest.raises(RefusedError, match=message) as refused:
        build_belief(state, build_partition(state))
    assert refused.value.field == field


def test_regions_can_be_read_aloud() -> None:
    state = read_state({"names": ["no", "yes"], "regions": "edges", "edges": [0.25]})
    assert read_aloud(state, build_partition(state)) == ["yes: 0 to 25 % likely", "yes: 25 to 100 % likely"]
    state = read_state({"classes": 5, "regions": "confidence", "edges": [0.4, 0.8]})
    assert read_aloud(state, build_partition(state)) == [
        "at most 40 % sure",
        "40 to 80 % sure",
        "over 80 % sure",
    ]


def test_the_centre_says_what_it_is() -> None:
    state = read_state({"classes": 3, "names": ["a", "b", "c"], "regions": "shells", "edges": [0.7, 0.99]})
    assert read_aloud(state, build_partition(state)) == [
        *(f"{name}: over 99 % sure" for name in "abc"),
        *(f"{name}: 70 to 99 % sure" for name in "abc"),
        "no class above 70 %",
    ]
