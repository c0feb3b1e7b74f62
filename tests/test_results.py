"""The pages of results say what the files in `results/` say."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import results  # noqa: E402
from selbo.experiments import plan, runner  # noqa: E402
from selbo.experiments.store import Store  # noqa: E402

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in results.PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_a_page_are_those_of_the_results(page: str) -> None:
    text = PAGES[page]
    tables, glances, times = (each.findall(text) for each in (results.MARKED, results.OVERVIEW, results.TIMES))
    assert text.count("<!-- table ") == len(tables) > 0
    assert text.count("<!-- overview ") == len(glances)
    assert text.count("<!-- times -->") == len(times) == (page == "results")
    assert text.count("<!-- end -->") == len(tables) + len(glances) + len(times)
    assert results.refreshed(text) == text, "run `python docs/results.py`"


@pytest.mark.parametrize("page", PAGES)
def test_a_number_that_was_changed_is_found(page: str) -> None:
    text = PAGES[page]
    begin = text.index("| ELBO |")
    end = text.index("\n", begin)
    changed = text[:begin] + "| ELBO | 0.001 |" + text[end:]
    assert results.refreshed(changed) == text


def test_time_that_runs_share_counts_once() -> None:
    assert results.covered([(5.0, 7.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.7)]) == 5.0
    assert results.covered([]) == 0.0


def test_tables_are_only_in_pages_that_are_refreshed() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    marked = {path for path in pages if "<!-- table " in path.read_text(encoding="utf-8")}
    assert marked == set(results.PAGES)


def test_a_narrowed_table_keeps_the_columns_that_were_asked_for() -> None:
    whole = results.tables_of(results.gathered("sst"), results.gathered("sst")["comparisons"][0])[0]
    some = results.narrowed(whole, ["NLL", "ECE"])
    kept = [i for i, head in enumerate(whole.heads) if i == 0 or head.label[:3] in ("NLL", "ECE")]
    assert 1 < len(kept) < len(whole.heads)
    assert some.heads == [whole.heads[i] for i in kept]
    assert some.rows == [[row[i] for i in kept] for row in whole.rows]
    assert list(some.align) == [whole.align[i] for i in kept]


@pytest.mark.parametrize("study", results.studies())
def test_full_pages_are_those_of_the_results(study: str) -> None:
    page = ROOT / "docs" / "results" / f"{study}.md"
    assert page.read_text(encoding="utf-8") == results.full_page(study), "run `python docs/results.py`"
    names = [f"{study}-cases-{track}" for track in results.tracks_with_cases(results.gathered(study))]
    for comparison in results.gathered(study)["comparisons"]:
        names += [name for _, name in results.pictures(study, comparison)]
    for name in names:
        assert (ROOT / "docs" / "images" / "results" / f"{name}.png").exists()


@pytest.mark.parametrize("study", results.studies())
def test_every_file_is_a_run_of_the_study_as_it_stands(study: str) -> None:
    folder = ROOT / "results" / study
    manifest = runner.read_manifest(folder)
    found, tracks, store = runner.study_of(study), manifest["tracks"], Store(folder)
    jobs = [
        *plan.tuning_jobs(found, tracks),
        *plan.final_jobs(found, tracks, found.seed_range(manifest["seeds"]), runner.val_nll(store, found, tracks)),
    ]
    files = {path.stem for path in store.runs.glob("*.json")}
    assert files
    assert not files - {job.spec.id for job in jobs}
