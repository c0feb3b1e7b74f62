"""The pages of results say what the files in `results/` say."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import results  # noqa: E402
from selbo.experiments import plan, runner  # noqa: E402
from selbo.experiments.store import Store  # noqa: E402

PAGE = results.PAGE.read_text(encoding="utf-8")


def test_tables_of_the_page_are_those_of_the_results() -> None:
    assert PAGE.count("<!-- table ") == PAGE.count("<!-- end -->") == len(results.MARKED.findall(PAGE)) > 0
    assert results.refreshed(PAGE) == PAGE, "run `python docs/results.py`"


def test_a_number_that_was_changed_is_found() -> None:
    begin = PAGE.index("| ELBO |")
    end = PAGE.index("\n", begin)
    changed = PAGE[:begin] + "| ELBO | 0.001 |" + PAGE[end:]
    assert results.refreshed(changed) == PAGE


@pytest.mark.parametrize("study", results.studies())
def test_full_pages_are_those_of_the_results(study: str) -> None:
    page = ROOT / "docs" / "results" / f"{study}.md"
    assert page.read_text(encoding="utf-8") == results.full_page(study), "run `python docs/results.py`"
    for comparison in results.gathered(study)["comparisons"]:
        for _, name in results.pictures(study, comparison):
            assert (ROOT / "docs" / "images" / "results" / f"{name}.png").exists()


@pytest.mark.parametrize("study", results.studies())
def test_every_file_is_a_run_of_the_study_as_it_stands(study: str) -> None:
    folder = ROOT / "results" / study
    manifest = runner.read_manifest(folder)
    found, tracks, store = runner.study_of(study), manifest["tracks"], Store(folder)
    jobs = [
        *plan.tuning_jobs(found, tracks),
        *plan.final_jobs(found, tracks, range(manifest["seeds"]), runner.val_nll(store, found, tracks)),
    ]
    files = {path.stem for path in store.runs.glob("*.json")}
    assert files
    assert not files - {job.spec.id for job in jobs}
