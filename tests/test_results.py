"""The pages of results say what the files in `results/` say."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import results  # noqa: E402
from selbo.experiments import plan, runner  # noqa: E402
from selbo.experiments.store import Store  # noqa: E402
from selbo.report import studies  # noqa: E402

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


STATED = [
    ("cifar10 vgg11 selbo", "clean.nll", False, "README.md", "−.163, interval −.182 to −.144"),
    ("cifar10 vgg11 selbo", "clean.accuracy", False, "docs/claims.md", "+.6, +.2 to +1.1"),
    ("cifar10 vgg11 selbo", "clean.ece", False, "docs/claims.md", "−6.6, −7.3 to −6.0"),
    ("cifar10 vgg11 selbo", "ood.fashion.auroc", False, "docs/claims.md", "+2.1, −.1 to +4.2"),
    ("cifar10 vgg11 selbo", "clean.nll", True, "docs/claims.md", "−.047, −.058 to −.036"),
    ("sgd 5k published", "ood.fashion.auroc", False, "docs/results.md", "+.5, −2.8 to +3.9"),
    ("sgd 30k published", "clean.nll", True, "docs/results.md", "−.023, interval −.035 to −.011"),
    ("sgd 30k published", "clean.accuracy", False, "docs/claims.md", "+.4, −.1 to +.8"),
    ("sgd 30k published", "clean.ece", False, "docs/claims.md", "−1.6, −1.9 to −1.2"),
    ("sgd 30k published", "ood.fashion.auroc", False, "docs/results.md", "−.5, −2.3 to +1.3"),
    ("sgd da-5k published", "clean.nll", False, "docs/results.md", "−.014, −.046 to +.018"),
    ("sgd da-5k published", "clean.ece", False, "docs/claims.md", "−1.8, −2.9 to −.7"),
    ("sgd da-30k published", "clean.accuracy", False, "docs/claims.md", "−.4, −.7 to −.1"),
    ("sgd da-30k published", "clean.ece", False, "docs/claims.md", "−.9, −1.3 to −.6"),
    ("sgd da-30k published", "ood.fashion.auroc", False, "docs/results.md", "+.8, −1.3 to +2.8"),
    ("cifar10-da vgg11 selbo", "clean.ece", False, "docs/claims.md", "−1.8, −2.4 to −1.3"),
    ("cifar10-da vgg11 selbo", "clean.accuracy", False, "docs/claims.md", "−.2, −.6 to +.1"),
    ("cifar10-da vgg11 selbo", "clean.nll", False, "docs/results.md", "−.021, −.031 to −.010"),
    ("cifar10-da vgg11 selbo", "corrupted.nll", False, "docs/results.md", "−.140, −.198 to −.083"),
    ("cifar10-da vgg11 selbo", "corrupted.ece", False, "docs/results.md", "−3.9, −4.7 to −3.0"),
    ("cifar10-prior vgg11 selbo summary elbo", "corrupted.nll", True, "docs/results.md", "−.049, −.113 to +.014"),
    ("cifar10-da vgg11 selbo summary elbo", "corrupted.nll", False, "docs/claims.md", "−.004, −.023 to +.015"),
    ("cifar10-da vgg11 selbo summary elbo", "corrupted.ece", False, "docs/claims.md", "−.7, −.9 to −.5"),
    ("cifar10-prior vgg11 selbo summary elbo", "corrupted.nll", False, "docs/claims.md", "−.079, −.134 to −.025"),
    ("cifar10-prior vgg11 selbo summary elbo", "corrupted.ece", False, "docs/claims.md", "−2.4, −3.6 to −1.2"),
    ("cifar10-prior vgg11 selbo elbo cifar10 elbo", "clean.nll", False, "docs/results.md", "−.021, −.033 to −.008"),
    (
        "cifar10-prior vgg11 selbo summary cifar10 summary",
        "clean.nll",
        False,
        "docs/results.md",
        "−.021, −.032 to −.011",
    ),
    (
        "cifar10-prior vgg11 selbo summary cifar10 label-smoothing",
        "clean.accuracy",
        False,
        "docs/results.md",
        "−.1, −.5 to +.3",
    ),
]
"""Differences that stand in sentences, and in no table: study, variant, track and, unless it is a plain network with a
summary and one without, the method, the study of its rival if that is another, and the rival."""


def methods_of(study: str, variant: str, track: str) -> dict[str, Any]:
    (comparison,) = (
        each for each in results.gathered(study)["comparisons"] if (each["variant"], each["track"]) == (variant, track)
    )
    return {method["name"]: method for method in comparison["methods"]}


@pytest.mark.parametrize(("where", "column", "scaled", "page", "text"), STATED)
def test_differences_in_sentences_are_those_of_the_results(
    where: str, column: str, scaled: bool, page: str, text: str
) -> None:
    study, variant, track, *pair = where.split()
    first, *between, second = pair or ["plain-summary", "plain"]
    method = methods_of(study, variant, track)[first]
    rival = methods_of(between[0] if between else study, variant, track)[second]
    found = studies.paired(method, rival, column, scaled)
    assert found.pairs == 5
    digits, factor = (3, 1) if column.endswith("nll") else (1, 100)
    shown = [f"{factor * each:+.{digits}f}".replace("-", "−") for each in found[:4] if each is not None]
    mean, low, high = (each[0] + each[1:].removeprefix("0") for each in (shown[0], *shown[2:]))
    assert text.replace("interval ", "") == f"{mean}, {low} to {high}"
    assert text in " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_the_table_of_settings_tried_is_that_of_the_results() -> None:
    """Validation NLL and fitted temperature of ELBO and Summary ELBO with narrower priors, at the seed for tuning."""
    tuned = dict[tuple[str, str, str], list[str]]()
    for path in (ROOT / "results/cifar10-prior/runs").glob("*.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        recipe = run["spec"]["recipe"]
        if run["spec"]["seed"] >= plan.TUNING_SEED:
            place = (recipe["objective"], *(f"{recipe[key]:g}"[1:] for key in ("prior_std", "kl_weight")))
            tuned[place] = [f"{run['val']['metrics']['nll']:.3f}"[1:], f"{run['temperature']:.2f}".removeprefix("0")]
    lines = (ROOT / "docs/results.md").read_text(encoding="utf-8").partition("| prior | KL times |")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:8]]
    assert (len(tuned), len(rows)) == (12, 6)
    for prior, kl, *shown in rows:
        assert shown == tuned["elbo", prior, kl] + tuned["summary_elbo", prior, kl]


BY_CORRUPTION = {
    "cifar10": (
        {"ensemble": 11, "plain": 0, "elbo": 0},
        "NLL {summary} for the Summary ELBO, {elbo} for the ELBO, {ensemble} for the ensemble); under 11 of the 19",
    ),
    "cifar10-da": (
        {"ensemble": 13, "plain": 2, "elbo": 9},
        "NLL {summary} against {ensemble} for the ensemble, {plain} for the plain network); under 13 of the 19",
    ),
    "cifar10-prior": ({"elbo": 0}, "the mean NLL is lower under all 19 corruptions"),
}
"""Under how many corruptions others have a lower mean NLL than the Summary ELBO, and what docs/results.md says of it,
with the NLL under Gaussian noise."""


@pytest.mark.parametrize("study", BY_CORRUPTION)
def test_sentences_about_single_corruptions(study: str) -> None:
    nll = dict[str, dict[str, float]]()
    for name, method in methods_of(study, "vgg11", "selbo").items():
        found = defaultdict[str, list[float]](list)
        for run in method["runs"]:
            for condition, measured in run["conditions"].items():
                found[condition.rpartition(" ")[0]].append(measured["metrics"]["nll"])
        nll[name] = {kind: fmean(each) for kind, each in found.items() if kind}
    ours = nll["summary"]
    assert len(ours) == 19
    rivals, sentence = BY_CORRUPTION[study]
    assert {name: sum(nll[name][kind] < ours[kind] for kind in ours) for name in rivals} == rivals
    said = sentence.format(**{name: f"{each['gaussian_noise']:.2f}" for name, each in nll.items()})
    assert said in " ".join(PAGES["results"].split())
