"""Texts to copy do what they say: Python runs, the command is parsed; all give the same s0."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from selbo.cli.app import app
from selbo.elicit.answer import answer
from selbo.summary.likelihood import SummaryLikelihood
from selbo.tabular.job import Job

TWO_NUMBERS = [
    {"classes": classes, "accuracy": 0.83, "fractions": fractions, "regions": regions, "concentration": 2.5}
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


def name_of(state: dict[str, Any]) -> str:
    return "-".join(str(state.get(key)) for key in ("classes", "regions", "source", "fractions"))[:60]


@pytest.mark.parametrize("state", [*TWO_NUMBERS, *HISTOGRAMS], ids=name_of)
def test_the_python_runs_and_gives_the_same_summary(state: dict[str, Any]) -> None:
    found = answer("belief", {**state, "num_labels": 40})
    names: dict[str, Any] = {}
    exec(found["copies"]["python"]["text"], names)
    summary = names["summary"]
    assert isinstance(summary, SummaryLikelihood)
    assert summary.s0.tolist() == pytest.approx(found["s0"], rel=1e-12)
    assert summary.concentration.item() == state.get("concentration", 40.0)


def test_a_name_cannot_leave_its_comment() -> None:
    nasty = ["'); raise SystemExit #", '"""\\']
    text, plain = (
        answer("belief", {"names": given, "num_labels": 9})["copies"]["python"]["text"] for given in (nasty, [])
    )
    names: dict[str, Any] = {}
    exec(text, names)
    assert text.replace(f"# classes: 0 = {nasty[0]!r}, 1 = {nasty[1]!r}\n", "") == plain
    added = {"selbo", "num_labels", "partition", "belief", "summary", "summary_term"}
    assert set(names) - {"__builtins__"} == added


# --- prior strength ---


def texts(**state: Any) -> dict[str, str]:
    return {kind: copy["text"] for kind, copy in answer("belief", state)["copies"].items()}


def test_without_a_number_of_labels_no_concentration_is_written() -> None:
    found = texts(accuracy=0.9, fractions=[0.5, 0.5])
    assert set(found) == {"python", "sklearn", "command"}
    for kind in ("sklearn", "command"):
        assert "concentration" not in found[kind]
        assert "1000" not in found[kind]
    with pytest.raises(TypeError):  # to be filled in
        exec(found["python"], {})
    for num_labels, concentration in ((300, 300.0), (4000, 1000.0)):
        names: dict[str, Any] = {}
        exec(found["python"].replace("num_labels = ...", f"num_labels = {num_labels}"), names)
        assert names["summary"].concentration.item() == concentration


@pytest.mark.parametrize(("num_labels", "concentration"), [(12, 12.0), (4000, 1000.0)])
def test_the_number_of_labels_decides_unless_a_strength_is_stated(num_labels: int, concentration: float) -> None:
    assert answer("belief", {"num_labels": num_labels})["strength"] == concentration
    found = texts(num_labels=num_labels)
    assert "concentration" not in found["sklearn"] + found["command"]  # chosen from the rows that are there
    names: dict[str, Any] = {}
    exec(found["python"], names)
    assert names["num_labels"] == num_labels
    assert names["summary"].concentration.item() == concentration
    stated = texts(num_labels=num_labels, concentration=7.5)
    for kind, text in (("python", "concentration=7.5)"), ("sklearn", "concentration=7.5,"), ("command", "n 7.5\n")):
        assert text in stated[kind]
        assert "overrule" not in stated[kind]


def test_a_strength_above_the_number_of_labels_is_warned_of_and_exported_as_such() -> None:
    state = {"num_labels": 300, "concentration": 5000.0}
    found = answer("belief", state)
    (warning,) = found["warnings"]
    assert (
        "after 5\N{NO-BREAK SPACE}000 cases, but have 300 labelled examples: your numbers would overrule the labels"
        in warning
    )
    names: dict[str, Any] = {}
    for kind in ("python", "sklearn"):
        assert "overrule_labels=True" in found["copies"][kind]["text"]
        exec(found["copies"][kind]["text"], names)
    assert names["summary"].concentration.item() == 5000.0
    assert names["classifier"].get_params()["overrule_labels"] is True
    assert shlex.split(found["copies"]["command"]["text"])[-3:] == ["--concentration", "5000", "--overrule-labels"]
    for num_labels in (None, 5000):
        found = answer("belief", {**state, "num_labels": num_labels})
        assert found["warnings"] == []
        assert not any("overrule" in copy["text"] for copy in found["copies"].values())


@pytest.mark.parametrize("name", ["two", "three"])
@pytest.mark.slow
def test_a_loop_of_ones_own_with_the_exported_term_learns_the_right_classes(name: str, seed: int) -> None:
    """A belief that treats classes alike, at the strength that is chosen: the labels decide which class is which."""
    classes = {"two": 2, "three": 3}[name]
    regions = {"two": "equal", "three": "shells"}[name]
    rows = 60 * classes
    names: dict[str, Any] = {}
    exec(texts(classes=classes, regions=regions, accuracy=0.9, num_labels=rows)["python"], names)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % classes
    inputs = torch.randn(rows, 3, generator=generator) + 2.5 * torch.eye(3)[labels]
    weights = torch.zeros(3, classes, requires_grad=True)
    with torch.no_grad():
        weights += torch.randn(3, classes, generator=generator)
    optimiser, steps = torch.optim.Adam([weights], lr=0.05), 200
    for step in range(steps):
        log_probs = (inputs @ weights).log_softmax(-1)
        term = names["summary_term"](log_probs, step, steps)
        assert (term.item() == 0) == (step < steps // 4)
        loss = torch.nn.functional.nll_loss(log_probs, labels) - term
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert ((inputs @ weights).argmax(-1) == labels).float().mean().item() > 0.8


# --- scikit-learn ---


@pytest.mark.parametrize(
    ("state", "named"),
    [
        *((state, False) for state in (*TWO_NUMBERS, *HISTOGRAMS)),
        *((state, True) for state in (*TWO_NUMBERS, *HISTOGRAMS) if state.get("classes", 2) <= 3),
    ],
    ids=lambda value: name_of(value) if isinstance(value, dict) else f"named={value}",
)
def test_the_classifier_is_fitted_and_has_the_same_summary(state: dict[str, Any], named: bool) -> None:
    """Labels are not as frequent as stated, and come in another order than the classes."""
    labels = [f"c{k:02}" if named else k for k in range(state.get("classes", 2))]
    found = answer("belief", {**state, "names": labels if named else []})
    names: dict[str, Any] = {}
    exec(found["copies"]["sklearn"]["text"], names)
    y = np.array([*labels[::-1] * 2, *labels[:1] * 3])
    X = np.arange(len(y), dtype=np.float64).reshape(-1, 1)
    fitted = names["classifier"].set_params(steps=1, hidden=(2,), num_samples=1, random_state=0).fit(X, y)
    assert fitted.summary_.s0.tolist() == pytest.approx(found["s0"], rel=1e-9)
    assert fitted.concentration_ == state.get("concentration", len(y))


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


# --- the command ---

NAMES = [
    ("b", "a c"),
    ("b,x", "a,y"),
    ("x,y", "z"),
    ("a=b", "it's; rm -rf $HOME `id`"),
    ("=0.5", '"quoted" = 1'),
    ("-x", "--help"),
]


@pytest.mark.parametrize(
    ("state", "names"),
    [
        *((state, ()) for state in TWO_NUMBERS),
        *((state, names) for state in TWO_NUMBERS if state["classes"] == 2 for names in NAMES),
    ],
    ids=lambda value: name_of(value) if isinstance(value, dict) else " and ".join(value),
)
def test_the_command_is_parsed_and_gives_the_same_summary(
    state: dict[str, Any], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_text("not read", encoding="utf-8")
    found = answer("belief", {**state, "names": list(names)})
    copy = found["copies"]["command"]
    if not copy["text"]:
        assert "chooses its regions by itself" in copy["note"]
        return
    asked: dict[str, Any] = {}

    def keep(job: Job) -> None:
        asked["classifier"] = job.classifier
        raise LookupError("far enough")

    monkeypatch.setattr(Job, "identity", keep)
    program, *arguments = shlex.split(copy["text"])
    assert program == "selbo"
    result = CliRunner().invoke(app, arguments)
    assert str(result.exception) == "far enough", result.output
    classes, classifier = [f"c{k:02}" for k in range(state["classes"])], asked["classifier"]
    if names:  # in the order of the page
        by_name = classifier.class_fractions
        classifier.set_params(class_fractions={each: by_name[name] for each, name in zip(classes, names, strict=True)})
    y = classes * (1000 // len(classes))
    summary, *more = classifier.statement([[0.0]] * len(y), y).summaries
    assert summary.s0.tolist() == pytest.approx(found["s0"], rel=1e-9)
    assert summary.concentration.item() == state["concentration"]
    seen_apart = state["classes"] > 20 and state["regions"] != "classes"
    assert ("of the class fractions beside" in copy["note"]) == seen_apart
    assert [each.s0.tolist() for each in more] == ([pytest.approx(found["shares"])] if seen_apart else [])
    shown = [summary.s0.sum().item()] if not names else [by_name[name] for name in names]
    assert shown == pytest.approx([1.0] if not names else list(state["fractions"] or [0.5, 0.5]))


def test_the_command_gives_each_class_its_own_fraction_in_any_order() -> None:
    """The command sorts its classes; names with commas were once left out, and the fractions with them swapped."""
    text = texts(names=["b,x", "a,y"], fractions=[0.8, 0.2], accuracy=0.9)["command"]
    options = [word for word in shlex.split(text) if re.fullmatch(r".*=[\d.]+", word)]
    assert options == ["b,x=0.8", "a,y=0.2"]
    assert text.count("--class-fraction ") == 2
    assert "--class-fractions" not in text


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
    exec(texts(accuracy=0.9, fractions=[0.8, 0.2], num_labels=100)["python"], names)
    as_said = torch.tensor([0.02] * 6 + [0.3, 0.5, 0.8, 0.97])
    all_sure = torch.tensor([0.001] * 5 + [0.999] * 5)
    value = [names["summary"](torch.stack([1 - s, s], -1).log()).item() for s in (as_said, all_sure)]
    assert value[0] > value[1]
