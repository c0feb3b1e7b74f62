"""`selbo demo`, short: four stories, a table and a page; and what its conclusions say."""

from __future__ import annotations

import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rich.console  # noqa: F401  (importing it draws from `random`: before the guard looks)
import torch
from sklearn.naive_bayes import MultinomialNB
from typer.testing import CliRunner

import selbo
from forked_python import warm_pool
from selbo.cli.app import app
from selbo.demo import comparison, frozen, groups, shift
from selbo.demo import stories as demo
from selbo.demo.digits import noisy_digits
from selbo.demo.stories import PLANS
from selbo.report.stories import Story, StoryResults, verdict
from selbo.report.takeaway import takeaway

STORIES = ("frozen", "shift", "groups", "training")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--steps", "3", "--seeds", "2", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    (out / "printed.txt").write_text(result.output, encoding="utf-8")
    return out


@pytest.fixture(scope="module")
def stories(folder: Path) -> dict[str, Story]:
    found = StoryResults.from_dict(json.loads((folder / "results.json").read_text(encoding="utf-8")))
    return {story.name: story for story in found.stories}


def printed_runs(folder: Path, story: str) -> list[dict[str, Any]]:
    found = json.loads((folder / "results.json").read_text(encoding="utf-8"))["stories"]
    (runs,) = (each["results"]["runs"] for each in found if each["name"] == story)
    return runs


def test_one_line_per_story(folder: Path, stories: dict[str, Story]) -> None:
    printed = (folder / "printed.txt").read_text(encoding="utf-8").splitlines()
    assert tuple(stories) == STORIES == tuple(PLANS)
    for story in stories.values():
        (line,) = (line for line in printed if story.short in line)
        counts = [int(each) for each in line.split()[-3:]]
        assert sum(counts) == len(story.conditions) * len(story.others)
    assert max(map(len, (line for line in printed if "report.html" not in line))) <= 80


def test_stories_are_reported_as_they_end(folder: Path) -> None:
    """Where there is no terminal for a progress bar."""
    printed = (folder / "printed.txt").read_text(encoding="utf-8")
    told = re.findall(r"selbo: note: story '(\w+)' has ended after \d+ s, (\d) of 4\n", printed)
    assert told == [(name, str(k)) for k, name in enumerate(STORIES, 1)]


def test_plus_minus_has_one_meaning(folder: Path) -> None:
    page = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert set(re.findall(r"±(?: is| half| standard)[^.;:,]*", page)) == {
        "± is one standard error over 2 seeds",
        "± standard error over the seeds",
        "± standard error over 2 seeds",
    }


def test_every_method_and_seed_is_there(folder: Path, stories: dict[str, Story]) -> None:
    names = [method.name for method in comparison.DEMO_METHODS]
    assert stories["training"].results.methods == tuple(names)
    assert len(names) == 6
    for story in stories.values():
        runs = {(run.method, run.seed) for run in story.results.runs}
        assert runs == {(method, seed) for method in story.results.methods for seed in (0, 1)}
        assert all(set(story.conditions) <= set(run.conditions) for run in story.results.runs)
    for run in printed_runs(folder, "training"):
        assert set(run["conditions"]) == {"clean", *(f"noise {level:g}" for level in (0.1, 0.2, 0.3, 0.4, 0.5))}
        assert sum(run["histogram"]) == pytest.approx(1)


def test_page_shows_every_story_with_its_picture_code_and_conclusion(folder: Path, stories: dict[str, Story]) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=.https?:", page)
    sections = re.split(r'<section id="', page)[1:]
    assert [each.partition('"')[0] for each in sections] == list(STORIES)
    for section, story in zip(sections, stories.values(), strict=True):
        told = html.unescape(section)
        assert "<svg" in section
        assert story.code in told
        for sentence in verdict(story):
            assert sentence in told
    assert not list(folder.glob(".*")), "nothing half-written is left"


@pytest.fixture(scope="module")
def again(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One story with one seed, by two processes, in a folder where the demo has been."""
    out = tmp_path_factory.mktemp("again")
    shutil.copy(folder / "results.json", out)
    (out / "report.html").write_text("old", encoding="utf-8")
    options = ["--steps", "3", "--seeds", "1", "--jobs", "2", "--only", "training"]
    with pytest.MonkeyPatch.context() as patch:  # processes that need not import torch
        patch.setattr(demo, "start_pool", warm_pool)
        result = CliRunner().invoke(app, ["demo", "--out", str(out), *options])
    assert result.exit_code == 0, result.output
    return out


def test_its_own_folder_is_written_to_again(again: Path) -> None:
    (story,) = json.loads((again / "results.json").read_text(encoding="utf-8"))["stories"]
    assert story["name"] == "training"
    assert story["results"]["seeds"] == [0]
    assert "<svg" in (again / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("results", [None, "{", "[]", '{"title": "of something else"}'])
def test_a_folder_with_something_else_is_refused(results: str | None, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("of a model", encoding="utf-8")
    if results is not None:
        (tmp_path / "results.json").write_text(results, encoding="utf-8")
    before = {each.name: each.read_text(encoding="utf-8") for each in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"an empty one, or one of selbo demo, but .* holds 'report.html'"):
        app(["demo", "--out", str(tmp_path), "--steps", "1"], standalone_mode=False)
    assert {each.name: each.read_text(encoding="utf-8") for each in tmp_path.iterdir()} == before


def test_an_unknown_story_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`--only` must be one of .*frozen.*, but got 'trees'"):
        app(["demo", "--out", str(tmp_path / "new"), "--only", "trees"], standalone_mode=False)
    assert not (tmp_path / "new").exists()


def test_several_processes_find_the_same(folder: Path, again: Path) -> None:
    ours, theirs = ([run for run in printed_runs(each, "training") if run["seed"] == 0] for each in (again, folder))
    assert len(ours) == len(comparison.DEMO_METHODS)
    for run in (*ours, *theirs):
        del run["seconds"]
    assert ours == theirs


def test_temperature_changes_confidence_and_nothing_else(folder: Path) -> None:
    runs = printed_runs(folder, "training")
    by_method = {run["method"]: run["conditions"]["clean"]["metrics"] for run in runs if run["seed"] == 0}
    plain, tempered = by_method["deterministic"], by_method["deterministic + temperature"]
    assert plain["accuracy"] == tempered["accuracy"]
    assert plain["nll"] != tempered["nll"]


def test_a_stated_accuracy_changes_confidence_towards_it_and_no_answer(stories: dict[str, Story]) -> None:
    before, after = (stories["frozen"].results.of_method(name)[0].conditions for name in ("as predicted", *OURS))
    for name, stated in frozen.STATED_ACCURACIES.items():
        assert before[name].metrics["accuracy"] == pytest.approx(after[name].metrics["accuracy"], abs=0.005)  # ties
        assert abs(after[name].metrics["confidence"] - stated) < 0.03
    assert after["mean of the five models"].metrics["nll"] == pytest.approx(
        np.mean([after[name].metrics["nll"] for name in frozen.STATED_ACCURACIES])
    )


OURS = ("stated accuracy, no labels",)


def test_the_conclusion_follows_the_numbers(stories: dict[str, Story]) -> None:
    """Its cases are in lab/tests/unit/report/test_study_takeaway.py."""
    results = stories["training"].results
    told = str(results.takeaway)
    assert told == takeaway(replace(results, takeaway=None))
    assert told.startswith("Summary ELBO against the best other method of each column: on the clean test set it is ")


# --- the code that is shown is the code ---


def shown_function(code: str, name: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(code, "shown", "exec"), namespace)
    return namespace[name]


def test_shown_code_calibrates_a_frozen_model(stories: dict[str, Story]) -> None:
    (X, y), (X_pool, _), (X_test, _) = frozen.digit_parts(0)
    model = MultinomialNB().fit(X, y)
    found = shown_function(stories["frozen"].code, "calibrate_frozen")(model, X_pool, X_test, 0.9)
    correction = selbo.calibrate_to_belief(torch.tensor(model.predict_proba(X_pool)).log(), accuracy=0.9)
    assert np.allclose(found, correction(torch.tensor(model.predict_proba(X_test)).log()).exp())


def test_shown_code_adapts(stories: dict[str, Story]) -> None:
    table = shift.shifted_table("breast cancer", 0)
    adapt = shown_function(stories["shift"].code, "adapt_to_target")
    probs = adapt(*table.source, table.target, table.test[0], class_fractions=table.after, seed=0)
    found = selbo.evaluate(probs, table.test[1])["nll"]
    (run,) = (run for run in stories["shift"].results.of_method("labels and class fractions") if run.seed == 0)
    assert found == pytest.approx(run.conditions["breast cancer"].metrics["nll"], rel=1e-6)


def test_shown_code_learns_from_groups(stories: dict[str, Story]) -> None:
    digits = groups.grouped_digits(0)
    learn = shown_function(stories["groups"].code, "learn_from_groups")
    probs = learn(digits.train[0], digits.groups, digits.fractions, digits.test[0], steps=3, seed=0)
    (run,) = (run for run in stories["groups"].results.of_method("group fractions, no labels") if run.seed == 0)
    assert selbo.evaluate(probs, digits.test[1])["nll"] == pytest.approx(run.conditions["digits"].metrics["nll"])


def test_shown_code_trains_the_network_of_the_summary_elbo(stories: dict[str, Story]) -> None:
    task, method = noisy_digits(0), comparison.DEMO_METHODS[-1]
    train = shown_function(stories["training"].code, "train_summary_elbo")
    belief = selbo.expect(comparison.STATED_ACCURACY, class_fractions=list(task.class_fractions))
    network, _ = train(task.train, belief, method.value * len(task.train[1]), steps=2, seed=5)
    ours = comparison.fitted(method, task, seed=5, steps=2).network
    for name, value in ours.state_dict().items():
        assert torch.equal(value, network.state_dict()[name])
