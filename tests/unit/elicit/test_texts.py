"""Texts to copy do what they say: Python runs, a study reads the TOML, the command is parsed; all give the same s0."""

from __future__ import annotations

import itertools
import shlex
import sys
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from selbo.cli.app import app
from selbo.elicit.answer import answer
from selbo.experiments import build, catalogue
from selbo.experiments.settings import Settings, belief_of
from selbo.summary.likelihood import SummaryLikelihood

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TWO_NUMBERS = [
    {"classes": classes, "accuracy": 0.83, "fractions": fractions, "regions": regions, "concentration": 250.5}
    for classes, given in ((2, [0.7, 0.3]), (3, [0.5, 0.3, 0.2]), (10, [0.15, 0.05] + [0.1] * 8), (25, None))
    for fractions, regions in itertools.product(
        (None, given) if given else (None,),
        ("shells", "classes", "confidence", *(("equal", "unequal") if classes == 2 else ())),
    )
]
HISTOGRAMS: list[dict[str, Any]] = [
    {"source": "draw", "heights": [3, 2, 1, 4], "regions": "edges", "edges": [0.1, 0.5, 0.9]},
    {"source": "draw", "heights": [0, 1], "regions": "classes"},
    {"source": "scores", "masses": [0.25, 0.75], "rows": 7, "claimed": 0.8, "regions": "edges", "edges": [0.3]},
    {"source": "draw", "classes": 3, "heights": [2, 2, 2, 1, 1, 1, 5], "regions": "shells"},
    {"source": "draw", "classes": 3, "heights": [2, 2, 1, 1, 1, 1, 5], "regions": "shells"},
]
STUDY = """
name = "mine"
title = "Mine"
paper = "none"

[[variants]]
name = "one"
title = "One"
data = {{ name = "{data}" }}
model = {{ name = "mlp", hidden = [8] }}

[tracks.selbo]
reference = "stated"

"""


def name_of(state: dict[str, Any]) -> str:
    return "-".join(str(state.get(key)) for key in ("classes", "regions", "source", "fractions"))[:60]


@pytest.mark.parametrize("state", [*TWO_NUMBERS, *HISTOGRAMS], ids=name_of)
def test_the_python_runs_and_gives_the_same_summary(state: dict[str, Any]) -> None:
    found = answer("belief", state)
    names: dict[str, Any] = {}
    exec(found["copies"]["python"]["text"], names)
    summary = names["summary"]
    assert isinstance(summary, SummaryLikelihood)
    assert summary.s0.tolist() == pytest.approx(found["s0"], rel=1e-12)
    assert summary.concentration.item() == state.get("concentration", 1000.0)


def test_a_name_cannot_leave_its_comment() -> None:
    nasty = ["'); raise SystemExit #", '"""\\']
    text = answer("belief", {"names": nasty})["copies"]["python"]["text"]
    names: dict[str, Any] = {}
    exec(text, names)
    assert text.count("\n") == 6
    assert f"# classes: 0 = {nasty[0]!r}, 1 = {nasty[1]!r}\n" in text
    assert set(names) - {"__builtins__"} == {"selbo", "partition", "belief", "summary"}


@pytest.mark.parametrize("state", [*TWO_NUMBERS, *HISTOGRAMS], ids=name_of)
@pytest.mark.parametrize("named", [False, True])
def test_the_classifier_is_fitted_and_has_the_same_summary(state: dict[str, Any], named: bool) -> None:
    """Labels are not as frequent as stated, and come in another order than the classes."""
    if named and state.get("classes", 2) > 3:
        return
    labels = [f"c{k:02}" if named else k for k in range(state.get("classes", 2))]
    found = answer("belief", {**state, "names": labels if named else []})
    names: dict[str, Any] = {}
    exec(found["copies"]["sklearn"]["text"], names)
    y = np.array([*labels[::-1] * 2, *labels[:1] * 3])
    X = np.arange(len(y), dtype=np.float64).reshape(-1, 1)
    fitted = names["classifier"].set_params(steps=1, hidden=(2,), draws=1, random_state=0).fit(X, y)
    assert fitted.summary_.s0.tolist() == pytest.approx(found["s0"], rel=1e-9)
    assert fitted.concentration_ == state.get("concentration", 1000.0)


def test_a_classifier_that_sorts_its_classes_is_told_by_name_or_not_at_all() -> None:
    said = {"names": ["yes", "no"], "accuracy": 0.9, "fractions": [0.2, 0.8]}
    copy = answer("belief", said)["copies"]["sklearn"]
    assert "class_fractions={'yes': 0.2, 'no': 0.8}" in copy["text"]
    drawn = {"source": "draw", "heights": [3, 2, 1, 4], "regions": "edges", "edges": [0.1, 0.5, 0.9]}
    copy = answer("belief", {**drawn, "names": ["yes", "no"]})["copies"]["sklearn"]
    assert not copy["text"]
    assert "sorted order" in copy["note"]
    assert answer("belief", {**drawn, "names": ["no", "yes"]})["copies"]["sklearn"]["text"]


def test_a_name_stays_a_word_in_the_code_of_the_classifier() -> None:
    nasty = ["'); raise SystemExit #", '"""\\']
    names: dict[str, Any] = {}
    exec(answer("belief", {"names": nasty})["copies"]["sklearn"]["text"], names)
    assert list(names["classifier"].class_fractions) == nasty


@pytest.mark.parametrize("state", [*TWO_NUMBERS, *HISTOGRAMS], ids=name_of)
def test_a_study_reads_the_toml_and_gives_the_same_summary(state: dict[str, Any]) -> None:
    found = answer("belief", state)
    copy = found["copies"]["toml"]
    if not copy["text"]:
        assert copy["note"].endswith(".")
        return
    study = catalogue.from_toml(tomllib.loads(STUDY.format(data="sst") + copy["text"]))
    recipe = study.track("selbo").method("stated").recipe
    summary = build.summary_of(recipe, num_data=100, num_classes=state.get("classes", 2), data="sst")
    assert summary.s0.tolist() == pytest.approx(found["s0"], rel=1e-9)
    assert summary.concentration.item() == state.get("concentration", 1000.0)


def test_a_study_can_say_some_of_it_and_not_the_rest() -> None:
    """What is offered, by regions; so that a study which learns to say more is noticed."""
    offered = {
        (s.get("classes", 2), s["regions"], bool(s.get("fractions")))
        for s in TWO_NUMBERS
        if answer("belief", s)["copies"]["toml"]["text"]
    }
    assert offered == {
        *((2, regions, given) for regions in ("equal", "unequal", "shells", "classes") for given in (False, True)),
        *((classes, regions, False) for classes in (3, 10, 25) for regions in ("shells", "classes")),
    }
    drawn = [bool(answer("belief", state)["copies"]["toml"]["text"]) for state in HISTOGRAMS]
    assert drawn == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("state", "partition"),
    [
        ({"regions": "confidence", "edges": [0.7, 0.85, 0.95]}, "confidence"),
        ({"classes": 10, "regions": "confidence", "edges": [0.3, 0.5, 0.7, 0.85, 0.95]}, "confidence"),
        ({"regions": "edges", "edges": [0.01, 0.05, 0.1, 0.9, 0.95, 0.99]}, "unequal"),
    ],
)
def test_regions_of_a_study_are_recognised(state: dict[str, Any], partition: str) -> None:
    found = answer("belief", {**state, "accuracy": 0.8})
    (method,) = tomllib.loads(found["copies"]["toml"]["text"])["tracks"]["selbo"]["methods"]
    assert method["partition"] == partition
    masses = build.belief_of(method["belief"], state.get("classes", 2)).masses(
        build.partition_of(partition, state.get("classes", 2))
    )
    assert masses.tolist() == pytest.approx(found["s0"], rel=1e-9)


@pytest.mark.parametrize("names", [(), ("b", "a c"), ("x,y", "z"), ("a=b", "it's; rm -rf $HOME `id`")])
@pytest.mark.parametrize("state", TWO_NUMBERS, ids=name_of)
def test_the_command_is_parsed_and_gives_the_same_summary(
    state: dict[str, Any], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if names and state["classes"] > 2:
        return
    found = answer("belief", {**state, "names": list(names)})
    copy = found["copies"]["command"]
    if not copy["text"]:
        assert "chooses its regions by itself" in copy["note"]
        return
    asked: dict[str, Any] = {}

    def keep(data: object, settings: Settings, unlabelled: object) -> None:
        asked["settings"] = settings
        raise ValueError("far enough")

    monkeypatch.setattr("selbo.experiments.tabular.identity_of", keep)
    program, *arguments = shlex.split(copy["text"])
    assert program == "selbo"
    result = CliRunner().invoke(app, arguments)
    assert str(result.exception) == "far enough", result.output
    classes = list(names) or [f"c{k:02}" for k in range(state["classes"])]
    summary, _ = belief_of(asked["settings"], classes, shares=[0.0], num_train=1)
    assert summary.s0.tolist() == pytest.approx(found["s0"], rel=1e-9)
    assert summary.concentration.item() == state["concentration"]


def test_the_command_is_offered_where_it_takes_the_same_regions() -> None:
    offered = {(s["classes"], s["regions"]) for s in TWO_NUMBERS if answer("belief", s)["copies"]["command"]["text"]}
    assert offered == {
        *((classes, "classes") for classes in (2, 3, 10, 25)),
        (2, "equal"),
        (3, "shells"),
        (10, "shells"),
        (25, "confidence"),
    }
    for state in HISTOGRAMS:
        assert "not a histogram" in answer("belief", state)["copies"]["command"]["note"]


def test_the_likelihood_is_that_of_what_is_shown() -> None:
    """One more end: the copied term prefers a network that does as was said."""
    names: dict[str, Any] = {}
    exec(answer("belief", {"accuracy": 0.9, "fractions": [0.8, 0.2]})["copies"]["python"]["text"], names)
    as_said = torch.tensor([0.02] * 6 + [0.3, 0.5, 0.8, 0.97])
    all_sure = torch.tensor([0.001] * 5 + [0.999] * 5)
    value = [names["summary"](torch.stack([1 - s, s], -1).log()).item() for s in (as_said, all_sure)]
    assert value[0] > value[1]
