"""Records come back from JSON as they were, refuse what does not fit, and read files that were written before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from selbo.results import (
    ClassResults,
    Comparison,
    EntropyHistogram,
    Measurement,
    Outcome,
    Record,
    RegionScale,
    ReliabilityBins,
    StatedBelief,
)

CLASSES = {
    "per_class": [
        {
            "class": name,
            "rows": 4,
            "predicted": 3,
            "correct": 3,
            "recall": 0.75,
            "recall_interval": [0.3, 0.95],
            "precision": None,
            "precision_interval": None,
        }
        for name in ("no", "yes")
    ],
    "confusion": [{"true": "no", "predicted": "yes", "rows": 1}],
}


def plain() -> dict[str, Any]:
    """A file of a comparison with every part, as `selbo demo` and `selbo train` write it."""
    run = {
        "method": "a",
        "seed": 3,
        "conditions": {
            "clean": {"level": None, "metrics": {"nll": 0.5, "auroc": None}, "recall": [1.0, None]},
            "noise 1": {"level": 1.0, "metrics": {"nll": 2.5}},
        },
        "histogram": [0.25, 0.75],
        "reliability": {"confidence": [None, 0.8], "accuracy": [None, 0.7], "count": [0, 20]},
        "entropy": {"edges": [0.0, 0.5, 0.7], "in": [15, 5], "out": [3, 9]},
        "ood": {"auroc": 0.9},
        **CLASSES,
        "seconds": 1.5,
    }
    made = {"command": "c", "selbo": "0", "python": "3", "torch": "2", "machine": "m", "seconds": 9.0}
    return {
        "title": "t",
        "description": "d",
        "focus": "a",
        "task": {"num_train": 7, "num_test": 8, "num_classes": 2, "class_names": ["no", "yes"], "class_counts": [4, 3]},
        "belief": {"words": "w", "partition": "p", "regions": ["r", "s"], "s0": [0.4, 0.6], "concentration": 10.0},
        "methods": ["a"],
        "seeds": [3],
        "runs": [run],
        "clean": "clean",
        "corruption": "noise",
        "ood_name": "photographs",
        "made_by": made,
    }


def test_a_file_is_written_as_it_was_read() -> None:
    found = Comparison.from_dict(plain())
    assert found.to_dict() == plain()
    assert Comparison.from_json(found.to_json()) == found
    (run,) = found.runs
    assert run.value("noise 1", "nll") == 2.5
    assert run.value("fog", "nll") is run.value("clean", "auroc") is None
    assert run.entropy is not None
    assert (run.entropy.inside, run.entropy.outside) == ((15, 5), (3, 9))
    assert run.classes is not None
    assert run.classes.per_class[1].name == "yes"


def test_optional_keys_may_be_missing_and_others_are_ignored() -> None:
    bare = {key: value for key, value in plain().items() if key not in {"focus", "belief", "corruption", "ood_name"}}
    kept = ("method", "seed", "conditions", "seconds")
    bare["runs"] = [{key: bare["runs"][0][key] for key in kept} | {"colour": "red"}]
    found = Comparison.from_dict({**bare, "names": {"a": "b"}})
    assert (found.belief, found.runs[0].ood, found.takeaway) == (None, None, None)
    assert found.to_dict()["runs"] == [{key: bare["runs"][0][key] for key in kept}]


def test_records_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Comparison.from_dict(plain()).title = "other"  # type: ignore[misc]


@pytest.mark.parametrize("value", [10**400, -(10**400), float("nan"), float("inf"), True, "1"])
def test_only_finite_numbers_are_read(value: object) -> None:
    content = plain()
    content["runs"][0]["seconds"] = value
    with pytest.raises(ValueError, match=r"^`runs\[0\].seconds` must be a finite number, but got"):
        Comparison.from_dict(content)


def test_the_runs_of_a_method_are_in_the_order_of_the_seeds() -> None:
    content = plain()
    content["seeds"] = [5, 3]
    content["runs"] += [{**content["runs"][0], "seed": 5}]
    assert [run.seed for run in Comparison.from_dict(content).of_method("a")] == [5, 3]


def test_checks_hold_for_records_that_are_made_in_python() -> None:
    with pytest.raises(ValueError, match=r"^`accuracy` must hold 1 entries, one per bin, but got 2"):
        ReliabilityBins(confidence=(0.5,), accuracy=(0.5, 0.6), count=(3,))
    with pytest.raises(ValueError, match=r"^`out` must hold 1 counts, not all of them 0"):
        EntropyHistogram(edges=(0.0, 1.0), inside=(3,), outside=(0,))
    with pytest.raises(ValueError, match=r"^`s0` must lie on the simplex"):
        StatedBelief(words="w", partition="p", regions=("a", "b"), s0=(0.5, 0.6), concentration=1.0)
    belief = StatedBelief(words="w", partition="p", regions=("a", "b", "c"), s0=(0.5, 0.3, 0.2), concentration=1.0)
    with pytest.raises(ValueError, match=r"^`scale.ends` must hold 4 labels, but got 2"):
        replace(belief, scale=RegionScale(title="t", ends=("0", "1")))
    for shells in ((), ("> .9", ".8–.9", ".7–.8")):
        with pytest.raises(ValueError, match=r"^`shells` must divide the 2 regions before the centre, but got \("):
            replace(belief, shells=shells)
    with pytest.raises(ValueError, match=r"^`seconds` must be a finite number of at least 0"):
        Outcome(method="a", seed=0, conditions={}, seconds=-1.0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("per_class", None, "`per_class` must be a list, but got None"),
        ("confusion/0/true", "x", "`confusion.true` must be one of ['no', 'yes'], but got 'x'"),
        ("confusion/0/rows", 0, "`confusion[0].rows` must be a whole number of at least 1"),
        ("per_class/1/rows", 1.5, "`per_class[1].rows` must be a whole number of at least 0"),
        ("per_class/0/recall", 0.99, "`per_class[0].recall` must lie in its interval"),
        ("per_class/0/recall_interval", [0.3], "`per_class[0].recall` must lie in its interval"),
        ("per_class/0/class", "", "`per_class[0].class` must be a text that is not empty"),
        ("per_class/0", 7, "`per_class[0]` must be a dictionary, but got 7"),
    ],
)
def test_bad_scores_of_classes_name_their_place(path: str, value: Any, message: str) -> None:
    content = json.loads(json.dumps(CLASSES))
    *parts, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    holder = content
    for part in parts:
        holder = holder[part]
    holder[last] = value
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the message is compared below, as plain text)
        ClassResults.from_dict(content)
    assert str(caught.value).startswith(message)


def test_scores_of_classes_come_with_the_confusions_and_for_every_class() -> None:
    content = plain()
    del content["runs"][0]["confusion"]
    with pytest.raises(ValueError, match=r"^`runs\[0\].per_class` and `runs\[0\].confusion` must be given together"):
        Comparison.from_dict(content)
    content = plain()
    content["runs"][0] |= {"per_class": CLASSES["per_class"][:1], "confusion": []}
    with pytest.raises(ValueError, match=r"^`runs\[0\].per_class` must hold one entry per class"):
        Comparison.from_dict(content)


@dataclass(frozen=True, kw_only=True)
class Nested(Record):
    """A record of a user: optional records, records by name, another key in JSON."""

    parts: Mapping[str, Measurement]
    one: Measurement | None = None
    lists: tuple[tuple[int, ...], ...] = field(default=(), metadata={"key": "list"})


def test_records_of_ones_own_are_read_and_written() -> None:
    content = {"parts": {"x": {"level": 0.5, "metrics": {"nll": 1}}}, "list": [[1, 2], [3]]}
    found = Nested.from_dict(content)
    assert (found.parts["x"].level, found.one, found.lists) == (0.5, None, ((1, 2), (3,)))
    assert found.to_dict() == content
    with pytest.raises(ValueError, match=r"^`parts.x.metrics.nll` must be a finite number, but got 'much'$"):
        Nested.from_dict({"parts": {"x": {"level": 0.5, "metrics": {"nll": "much"}}}})


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), 10**400, True, "1"])
@pytest.mark.parametrize("others", [[], [0.5], [2, None, 0]])
def test_a_number_that_is_none_is_found_among_others(wrong: object, others: list[float | None]) -> None:
    content = {"level": None, "metrics": {str(i): each for i, each in enumerate(others)} | {"nll": wrong}}
    with pytest.raises(ValueError, match=r"^`metrics.nll` must be a finite number, but got"):
        Measurement.from_dict(content)
    content = {"level": None, "metrics": {}, "recall": [*others, wrong]}
    with pytest.raises(ValueError, match=rf"^`recall\[{len(others)}\]` must be a finite number, but got"):
        Measurement.from_dict(content)


def test_a_number_may_be_missing_only_where_a_field_says_so() -> None:
    assert Measurement.from_dict({"level": 1, "metrics": {}, "recall": [None, 1, 0.5]}).recall == (None, 1, 0.5)
    content = plain()
    content["runs"][0]["histogram"] = [0.25, None]
    with pytest.raises(ValueError, match=r"^`runs\[0\].histogram\[1\]` must be a finite number, but got None$"):
        Comparison.from_dict(content)
