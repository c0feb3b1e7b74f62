"""`selbo demo`, short: all methods, all tests, a table and a page; and what its conclusion says."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import rich.console  # noqa: F401  (importing it draws from `random`: before the guard looks)
from typer.testing import CliRunner

from forked_python import run_forked
from selbo.cli.app import app
from selbo.demo import comparison
from selbo.report.takeaway import takeaway
from selbo.results import Comparison


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--steps", "3", "--seeds", "2", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    (out / "printed.txt").write_text(result.output, encoding="utf-8")
    return out


def test_table_results_and_page(folder: Path) -> None:
    printed = (folder / "printed.txt").read_text(encoding="utf-8")
    names = [method.name for method in comparison.DEMO_METHODS]
    assert len(names) == 6
    for name in names:
        assert name.split()[0] in printed
    assert max(map(len, printed.splitlines())) <= 80 or "report.html" in printed
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["methods"] == names
    assert {(run["method"], run["seed"]) for run in results["runs"]} == {(m, s) for m in names for s in (0, 1)}
    for run in results["runs"]:
        assert set(run["conditions"]) == {"clean", *(f"noise {level:g}" for level in (0.1, 0.2, 0.3, 0.4, 0.5))}
        assert sum(run["histogram"]) == pytest.approx(1)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert not re.search(r"(src|href)=.https?:", page)
    assert not list(folder.glob(".*")), "nothing half-written is left"


def test_its_own_folder_is_written_to_again(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "results.json", tmp_path)
    (tmp_path / "report.html").write_text("old", encoding="utf-8")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--steps", "1", "--seeds", "1", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["seeds"] == [0]
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("results", [None, "{", "[]", '{"title": "of something else"}'])
def test_a_folder_with_something_else_is_refused(results: str | None, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("of a model", encoding="utf-8")
    if results is not None:
        (tmp_path / "results.json").write_text(results, encoding="utf-8")
    before = {each.name: each.read_text(encoding="utf-8") for each in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"an empty one, or one of selbo demo, but .* holds 'report.html'"):
        app(["demo", "--out", str(tmp_path), "--steps", "1"], standalone_mode=False)
    assert {each.name: each.read_text(encoding="utf-8") for each in tmp_path.iterdir()} == before


def test_several_processes_find_the_same(folder: Path, tmp_path: Path) -> None:
    chosen = ("--steps", "3", "--seeds", "1", "--jobs", "2")
    run = run_forked("selbo", "demo", "--out", str(tmp_path), *chosen)
    assert run.returncode == 0, run.stderr
    ours, theirs = (
        [run for run in json.loads((each / "results.json").read_text(encoding="utf-8"))["runs"] if run["seed"] == 0]
        for each in (tmp_path, folder)
    )
    assert len(ours) == len(comparison.DEMO_METHODS)
    for run in (*ours, *theirs):
        del run["seconds"]
    assert ours == theirs


def test_temperature_changes_confidence_and_nothing_else(folder: Path) -> None:
    runs = json.loads((folder / "results.json").read_text(encoding="utf-8"))["runs"]
    by_method = {run["method"]: run["conditions"]["clean"]["metrics"] for run in runs if run["seed"] == 0}
    plain, tempered = by_method["plain"], by_method["plain + temperature"]
    assert plain["accuracy"] == tempered["accuracy"]
    assert plain["nll"] != tempered["nll"]


def test_the_conclusion_follows_the_numbers(folder: Path) -> None:
    """Its cases are in lab/tests/unit/report/test_study_takeaway.py."""
    results = Comparison.from_json((folder / "results.json").read_text(encoding="utf-8"))
    told = str(results.takeaway)
    assert told == takeaway(replace(results, takeaway=None))
    assert told.startswith("Summary ELBO against the best other method of each column: on the clean test set it is ")
    assert told.splitlines()[0] in (folder / "report.html").read_text(encoding="utf-8").split("<h2>")[0]
