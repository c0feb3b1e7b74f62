"""The pages of results say what the files in `results/` say."""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import results  # noqa: E402
from selbo.report import differences  # noqa: E402
from selbo_lab.report import studies  # noqa: E402
from selbo_lab.report.study_outcomes import cost_of_wrong_fractions, primary_outcome  # noqa: E402
from selbo_lab.run.result_store import Store  # noqa: E402
from selbo_lab.schedule import runner  # noqa: E402
from selbo_lab.studies import plan  # noqa: E402
from selbo_lab.studies.run_spec import DataSpec, ModelSpec, Recipe  # noqa: E402

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in results.PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_a_page_are_those_of_the_results(page: str) -> None:
    text = PAGES[page]
    tables, glances, whole = (each.findall(text) for each in (results.MARKED, results.OVERVIEW, results.WHOLE))
    assert text.count("<!-- table ") == len(tables) > 0
    assert sum(text.count(f"<!-- {name} ") for name in ("overview", "primary", "wrong-fractions")) == len(glances)
    assert [name for _, name, _ in whole] == (["counts", "overlaps", "repeats", "times"] if page == "results" else [])
    assert text.count("<!-- end -->") == len(tables) + len(glances) + len(whole)
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
    store = Store(folder)
    manifest = store.manifest()
    found, tracks = runner.study_of(study), manifest["tracks"]
    jobs = [
        *plan.tuning_jobs(found, tracks),
        *plan.final_jobs(found, tracks, found.seed_range(manifest["seeds"]), runner.val_nll(store, found, tracks)),
    ]
    assert store.ids()
    assert not store.ids() - {job.spec.id for job in jobs}


PAPER_NOISE = "corrupted ≤ 0.5"
"""Noise on sentences as far as the paper shows it."""

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
    ("cifar10 vgg11 selbo summary elbo", "corrupted.ece", True, "README.md", "−.2 points, −.9 to +.5"),
    ("cifar10 vgg11 selbo summary elbo", "corrupted.nll", True, "README.md", "−.043, −.074 to −.012"),
    ("cifar10 vgg11 selbo summary ensemble", "corrupted.nll", True, "docs/results.md", "−.036, −.053 to −.019"),
    ("cifar10 vgg11 selbo summary ensemble", "corrupted.ece", True, "docs/results.md", "−.5 points, −1.2 to +.1"),
    ("sst mlp selbo expect-equal evidential", f"{PAPER_NOISE}.nll", False, "docs/claims.md", "−.088, −.112 to −.065"),
    ("sst mlp selbo expect-equal evidential", "corrupted.nll", False, "docs/claims.md", "+.111, +.069 to +.154"),
    (
        "sst mlp selbo evidential expect-equal",
        f"{PAPER_NOISE}.nll",
        False,
        "docs/comparison.md",
        "+.088, +.065 to +.112",
    ),
    ("sst mlp selbo expect-equal evidential", f"{PAPER_NOISE}.ece", False, "docs/claims.md", "−5.8, −6.7 to −5.0"),
    ("sst mlp selbo expect-equal evidential", f"{PAPER_NOISE}.accuracy", False, "docs/claims.md", "+3.4, +2.8 to +3.9"),
    ("sst mlp selbo expect-equal elbo", f"{PAPER_NOISE}.nll", False, "docs/claims.md", "−.032, −.036 to −.028"),
    ("sst mlp selbo expect-equal elbo", f"{PAPER_NOISE}.nll", False, "docs/results.md", "−.032, −.036 to −.028"),
    (
        "sst mlp selbo expect-equal uniform-equal",
        f"{PAPER_NOISE}.nll",
        False,
        "docs/claims.md",
        "−.190, −.249 to −.130",
    ),
    ("sst mlp published uniform-equal elbo", "corrupted.ece", False, "docs/claims.md", "−3.8, −7.2 to −.3"),
    (
        "sst mlp published auto-equal uniform-equal",
        f"{PAPER_NOISE}.ece",
        False,
        "docs/claims.md",
        "+5.5, −2.6 to +13.6",
    ),
    (
        "sst mlp published auto-unequal uniform-unequal",
        f"{PAPER_NOISE}.ece",
        False,
        "docs/claims.md",
        "+5.4, +.8 to +9.9",
    ),
    ("sst mlp published uniform-equal evidential", f"{PAPER_NOISE}.ece", False, "docs/claims.md", "+1.3, −5.8 to +8.5"),
    ("ablation-sst mlp selbo none base", f"{PAPER_NOISE}.nll", False, "docs/claims.md", "−.001, −.010 to +.008"),
    ("ablation-sst mlp selbo none base", "corrupted.nll", False, "docs/claims.md", "+.007, −.027 to +.040"),
    ("ablation-sst mlp selbo uniform base", f"{PAPER_NOISE}.nll", False, "docs/claims.md", "−.062, −.077 to −.047"),
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
    assert re.sub("interval | points", "", text) == f"{mean}, {low} to {high}"
    assert spelled(text) in spelled((ROOT / page).read_text(encoding="utf-8"))


def spelled(text: str) -> str:
    """A text without what changes from sentence to sentence: line breaks, units, and brackets around an interval."""
    flat = re.sub(r"(?:percentage )?points|interval ", " ", " ".join(text.split()))
    return re.sub(r"[(),]", " ", re.sub(r"\s+", " ", flat)).replace("  ", " ").replace("  ", " ")


def test_a_sentence_with_another_number_is_not_the_same() -> None:
    assert spelled("−.032 (−.036 to −.028)") == spelled("−.032,\ninterval −.036 to −.028 ").rstrip() + " "
    assert spelled("−.5 percentage points, −1.2 to +.1") != spelled("−.5 points, −1.3 to +.1")


def test_the_table_of_settings_tried_is_that_of_the_results() -> None:
    """Validation NLL and fitted temperature of ELBO and Summary ELBO with narrower priors, at the seed for tuning."""
    tuned = dict[tuple[str, str, str], list[str]]()
    for run in runs_of("cifar10-prior"):
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


OTHER_CORRUPTIONS = 14
"""Corruptions that are neither noise nor glass blur."""


def without_noise(run: dict[str, Any], part: str) -> float:
    """NLL over the corruptions that are neither noise nor glass blur."""
    kinds = {name: name.rpartition(" ")[0] for name in run["conditions"] if name != "clean"}
    kept = [name for name, kind in kinds.items() if "noise" not in kind and kind != "glass_blur"]
    assert len({kinds[name] for name in kept}) == OTHER_CORRUPTIONS
    return fmean(run["conditions"][name][part]["nll"] for name in kept)


@pytest.mark.parametrize("page", ["README.md", "docs/results.md", "docs/comparison.md", "docs/claims.md"])
def test_where_the_ensemble_is_ahead_of_the_summary_elbo(page: str) -> None:
    methods = methods_of("cifar10", "vgg11", "selbo")
    said = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    shown = {}
    for part in ("metrics", "scaled"):
        pairs = zip(methods["summary"]["runs"], methods["ensemble"]["runs"], strict=True)
        found = differences.difference_of([without_noise(a, part) - without_noise(b, part) for a, b in pairs], seeds=5)
        assert found.low is not None
        assert found.low > 0
        shown[part] = [f"{number:.3f}"[1:] for number in (found.mean, found.low, found.high) if number is not None]
    as_predicted = "by {} ({} to {}".format(*shown["metrics"])
    assert as_predicted in said
    if page == "docs/results.md":
        assert "with temperature scaling on both by {} ({} to {})".format(*shown["scaled"]) in said


def test_what_the_pages_say_of_single_corruptions_by_interval() -> None:
    methods = methods_of("cifar10", "vgg11", "selbo")
    kinds = {name.rpartition(" ")[0] for name in methods["elbo"]["runs"][0]["conditions"]} - {""}
    counts = {"ahead": 0, "level": 0, "behind": 0}
    for kind in kinds:
        columns = [f"{kind} {strength}.nll" for strength in range(1, 6)]
        pairs = zip(methods["summary"]["runs"], methods["elbo"]["runs"], strict=True)
        gaps = [fmean((studies.value(a, c) or 0) - (studies.value(b, c) or 0) for c in columns) for a, b in pairs]
        found = differences.difference_of(gaps, seeds=5)
        counts["level" if not found.clear else "ahead" if (found.mean or 0) < 0 else "behind"] += 1
    assert counts == {"ahead": 9, "level": 10, "behind": 0}
    assert "by its interval it is ahead under 9 and level under 10" in " ".join(PAGES["results"].split())


@pytest.mark.parametrize(
    ("study", "variant", "sentence"),
    [
        ("cifar10", "vgg11", "of its {} numbers for ELBO and S-ELBO {} overlap with ours"),
        ("cifar10-im", "vgg11", "of its {} numbers for ELBO and S-ELBO {} overlap with ours"),
    ],
)
def test_overlaps_in_sentences_leave_out_evidential_learning(study: str, variant: str, sentence: str) -> None:
    (case,) = (
        each
        for each in results.gathered(study)["comparisons"]
        if (each["variant"], each["track"]) == (variant, "published")
    )
    assert any(studies.is_evidential(method) for method in case["methods"])
    found = [each for each in studies.overlaps(case) if each is not None]
    assert sentence.format(len(found), sum(found)) in " ".join(PAGES["results"].split())


def test_clean_rows_are_exchanged_and_others_stay() -> None:
    paper = {"caveat": "c", "a": {"values": {"clean.nll": [1, 0], "ood.x.auroc": [2, 0]}, "not_comparable": {}}}
    other = {"a": {"values": {"clean.nll": [3, 0], "ood.x.auroc": [4, 0]}}}
    made = {"a": {"values": {"clean.nll": [3, 0], "ood.x.auroc": [2, 0]}, "not_comparable": {}}}
    assert results.with_clean_rows_of(paper, other) == made


# --- what was run twice ---


def runs_of(study: str) -> Iterator[dict[str, Any]]:
    return Store(ROOT / "results" / study).all()


def test_every_run_that_two_studies_share_is_in_the_table_of_repeats() -> None:
    """Read from the files: same data, network, recipe and seed, whatever it was tested on."""
    seen = defaultdict[str, set[str]](set)
    for study, spec in ((name, run["spec"]) for name in results.studies() for run in runs_of(name)):
        if spec["seed"] >= plan.TUNING_SEED:  # settings are chosen alike in studies that share their grids
            continue
        parts = []
        for part, kind in (("data", DataSpec), ("model", ModelSpec), ("recipe", Recipe)):
            whole = {each.name: each.default for each in fields(kind)} | spec[part]
            if part == "recipe" and (not whole["belief"] or whole["objective"] in results.WITHOUT_SUMMARY):
                whole = {key: value for key, value in whole.items() if key not in results.OF_A_SUMMARY}
            parts.append(whole)
        seen[json.dumps([*parts, spec["seed"]], sort_keys=True)].add(study)
    shared = {frozenset(found) for found in seen.values() if len(found) > 1}
    assert shared == {frozenset((first[0], second[0])) for first, second in results.repeated()}
    listed = results.repeats()
    assert all(f"| `{a}` | `{b}` |" in listed for a, b in (sorted(each) for each in shared))


def test_a_recipe_is_the_same_but_for_what_an_objective_does_not_look_at() -> None:
    recipe = {"objective": "elbo", "belief": "", "concentration": 0.1, "kl_weight": 0.5}
    key = results.training_of({"name": "d"}, {"name": "m"}, recipe)
    assert key == results.training_of({"name": "d"}, {"name": "m"}, recipe | {"belief": "b", "concentration": 9.0})
    assert key != results.training_of({"name": "d"}, {"name": "m"}, recipe | {"kl_weight": 0.1})
    assert key != results.training_of({"name": "d"}, {"name": "n"}, recipe)
    told = recipe | {"objective": "summary_elbo", "belief": "b"}
    assert results.training_of({}, {}, told) != results.training_of({}, {}, told | {"concentration": 9.0})


def test_a_comparison_that_was_run_twice_is_quoted_twice_and_pooled() -> None:
    gaps = dict[str, list[float]]()
    for study, (ours, none) in {"ablation": ("base", "none"), "alpha": ("alpha-0.1", "none")}.items():
        methods = methods_of(study, "vgg11", "selbo")
        pairs = zip(methods[ours]["runs"], methods[none]["runs"], strict=True)
        gaps[study] = [(studies.value(a, "clean.nll") or 0) - (studies.value(b, "clean.nll") or 0) for a, b in pairs]
    gaps["pooled"] = gaps["ablation"] + gaps["alpha"]
    said = " ".join(PAGES["results"].split())
    for each in gaps.values():
        found = differences.difference_of(each, seeds=len(each))
        shown = [f"{number:+.3f}" for number in (found.mean, found.low, found.high) if number is not None]
        mean, low, high = (number.replace("-", "−").replace("0.", ".") for number in shown)
        assert said.count(f"{mean} ({low} to {high})") >= 1
    for line in PAGES["results"].split("\n- ")[1:]:
        if line.startswith("**What makes the difference on CIFAR-10"):
            assert all(number in line for number in ("−.040", "−.022", ".031")), "one study alone"


# --- cases counted in the README ---


@pytest.mark.parametrize(
    ("against", "words"), [("elbo", "| ELBO | ahead"), ("plain-known", "| deterministic network, corrected |")]
)
def test_cases_are_counted_as_the_readme_says(against: str, words: str) -> None:
    (row,) = (line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith(words))
    shown = [tuple(map(int, each)) for each in re.findall(r"(\d+), (?:behind in )?(\d+)", row)]
    assert shown == [
        results.ahead_and_behind(against),
        results.ahead_and_behind(against, "scaled"),
        results.ahead_and_behind(against, after_holm=True),
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("elbo", "the same network without a belief (ELBO)"),
        ("elbo-known", "the same network, corrected by the same fractions"),
        ("plain-known", "a deterministic network, corrected by the same fractions"),
    ],
)
def test_the_readme_has_the_primary_outcome(name: str, words: str) -> None:
    table = primary_outcome(results.gathered("primary-shift"), "selbo")
    assert table is not None
    (found,) = (row for row in table.raw if row["method"] == name)
    mean, low, high = (
        f"{found[key]:+.3f}".replace("-", "−").replace("0.", ".") for key in ("difference", "low", "high")
    )
    assert f"| {words} | {mean} | {low} to {high} |" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_cost_of_wrong_fractions_is_what_pages_say() -> None:
    table = cost_of_wrong_fractions(results.gathered("wrong-fractions"), "selbo")
    assert table is not None
    found = {row["method"]: row for row in table.raw}
    ours, before = found["uncertain-0.05"], found["unadjusted-3"]
    assert f"{ours['off_0.10']:.3f}" == "0.014"
    assert f"{ours['gain'] / before['gain']:.2f}" == "0.81"
    for page in ("README.md", "docs/deployment.md", "docs/designs.md", "docs/results.md"):
        assert re.search(r"\.10 off\s+cost(s)? \.014", (ROOT / page).read_text(encoding="utf-8")), page
    shown = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    for name in ("uncertain-0.05", "unadjusted-3", "elbo-known", "plain-known"):
        numbers = (f"{found[name][key]:.3f}".removeprefix("0") for key in ("gain", "off_0.10"))
        assert f"| {' | '.join(numbers)} |" in shown, name
