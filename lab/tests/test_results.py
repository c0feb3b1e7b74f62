"""What pages call for is what `lab/results` says, and every stored run is one of its study."""

from __future__ import annotations

import copy
import json
import lzma
import re
import sys
from collections import defaultdict
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import msgspec
import pytest

from study_fakes import comparison, method, study, typed

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "lab" / "docs"))

import results  # noqa: E402

from selbo_lab.run.records import Run  # noqa: E402
from selbo_lab.run.result_store import Store  # noqa: E402
from selbo_lab.schedule import runner  # noqa: E402
from selbo_lab.studies import plan  # noqa: E402
from selbo_lab.studies.paper import PaperValues  # noqa: E402
from selbo_lab.studies.run_spec import DataSpec, ModelSpec, Recipe  # noqa: E402

# --- stored runs ---


@pytest.mark.parametrize("name", results.studies())
def test_every_stored_run_is_one_of_the_study_as_it_stands(name: str) -> None:
    store = Store(results.RESULTS / name)
    manifest = store.manifest()
    found, tracks = runner.load_known_study(name), manifest.tracks
    jobs = [
        *plan.tuning_jobs(found, tracks),
        *plan.final_jobs(found, tracks, found.seed_range(manifest.seeds), runner.val_nll(store, found, tracks)),
    ]
    assert store.ids()
    assert not store.ids() - {job.spec.id for job in jobs}
    assert store.packed.stat().st_size < 2**20


def test_rows_without_a_summary_are_runs_of_the_study_posteriors() -> None:
    """So that `posteriors-summaries` compares with them and repeats none."""
    found = runner.load_known_study("posteriors-summaries")
    jobs = plan.final_jobs(found, ["selbo"], found.seed_range(found.seeds), {})
    without = {job.spec.id for job in jobs if not job.method.endswith("-summary")}
    stored = Store(results.RESULTS / "posteriors").ids()
    assert len(without) == 4 * found.seeds
    assert without <= stored


@pytest.mark.parametrize("name", ["scores", "sst", "shift-cifar10", "shift-mnist35"])
def test_ids_are_those_of_the_settings(name: str) -> None:
    for run in Store(results.RESULTS / name).all():
        assert run.spec.id == run.id


@pytest.mark.parametrize("name", ["scores", "sst", "shift-cifar10", "cifar10-da"])
def test_a_stored_run_is_written_as_it_was_read(name: str) -> None:
    """But for settings that came later, which a run of then has at their defaults."""
    with lzma.open(results.RESULTS / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
        stored = [json.loads(line) for line in file][1:]
    assert stored
    for each in stored:
        written = json.loads(json.dumps(Run.from_dict(each).to_dict()))
        for part in ("data", "model", "recipe", "evaluation"):
            known = each["spec"][part]
            written["spec"][part] = {key: value for key, value in written["spec"][part].items() if key in known}
        assert written == each


class StoredSpec(msgspec.Struct):
    data: msgspec.Raw
    model: msgspec.Raw
    recipe: msgspec.Raw
    seed: int


class Stored(msgspec.Struct):
    """Of a stored run, only its settings and where and when it ran: the rest is passed over."""

    spec: StoredSpec
    made_by: msgspec.Raw


@cache
def completed(kind: type, written: bytes) -> str:
    """Settings of a run with the defaults of those that came later; many runs share them."""
    whole = {each.name: each.default for each in fields(kind)} | msgspec.json.decode(written)
    if kind is Recipe and (not whole["belief"] or whole["objective"] in results.WITHOUT_SUMMARY):
        whole = {key: value for key, value in whole.items() if key not in results.OF_A_SUMMARY}
    return json.dumps(whole, sort_keys=True)


def test_every_run_that_two_studies_share_is_in_the_table_of_repeats() -> None:
    """Read from the files: same data, network, recipe and seed, whatever it was tested on."""
    seen = defaultdict[tuple[str | int, ...], dict[bytes, str]](dict)
    for name in results.studies():
        with lzma.open(results.RESULTS / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
            stored = [msgspec.json.decode(line, type=Stored) for line in file.readlines()[1:]]
        for run in stored:
            spec, ran = run.spec, bytes(run.made_by)  # one run that two studies store is no repeat
            if spec.seed >= plan.TUNING_SEED:  # settings are chosen alike in studies that share their grids
                continue
            parts = ((DataSpec, spec.data), (ModelSpec, spec.model), (Recipe, spec.recipe))
            seen[(*(completed(kind, bytes(written)) for kind, written in parts), spec.seed)].setdefault(ran, name)
    names = [frozenset(found.values()) for found in seen.values()]
    shared = {found for found in names if len(found) > 1}
    assert shared == {frozenset((first[0], second[0])) for first, second in results.repeated()}
    listed = results.repeats()
    assert all(f"| `{a}` | `{b}` |" in listed for a, b in (sorted(each) for each in shared))


def test_a_run_that_two_studies_store_counts_for_the_first_in_the_table_of_times() -> None:
    own = Store(results.RESULTS / "posteriors-summaries").ids() - Store(results.RESULTS / "posteriors").ids()
    assert f"| `posteriors-summaries` | NVIDIA H200 | {len(own)} |" in results.times()


def test_a_recipe_is_the_same_but_for_what_an_objective_does_not_look_at() -> None:
    recipe = Recipe("elbo", bayesian=True, concentration=0.1, kl_weight=0.5)
    told = replace(recipe, belief="uniform", partition="equal", concentration=9.0)
    assert results.what_is_trained(recipe) == results.what_is_trained(told)
    assert results.what_is_trained(recipe) != results.what_is_trained(replace(recipe, kl_weight=0.1))
    believes = replace(told, objective="summary_elbo")
    assert results.what_is_trained(believes) == believes


def test_clean_rows_are_exchanged_and_others_stay() -> None:
    paper = {"caveat": "c", "a": {"values": {"clean.nll": [1, 0], "ood.x.auroc": [2, 0]}, "not_comparable": {}}}
    other = {"a": {"values": {"clean.nll": [3, 0], "ood.x.auroc": [4, 0]}}}
    made = {"caveat": "c", "a": {"values": {"clean.nll": [3, 0], "ood.x.auroc": [2, 0]}, "not_comparable": {}}}
    assert results.with_clean_rows_of(*map(PaperValues.from_dict, (paper, other))) == PaperValues.from_dict(made)


# --- pages ---


@pytest.mark.parametrize(("page", "calls"), list(zip(results.READMES, (15, 1), strict=True)))
def test_a_readme_has_what_its_calls_give(page: Path, calls: int) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- = ") == len(results.KEPT.findall(text)) == text.count("<!-- / -->") == calls
    assert results.refreshed(text) == text, "run `python lab/docs/results.py`"


@pytest.mark.parametrize(
    "page",
    [
        *("lab/docs/results", "lab/docs/claims", "lab/docs/designs"),
        *("docs/explanation/comparison", "docs/explanation/label-shift", "docs/explanation/evidence"),
    ],
)
def test_pages_have_calls_and_no_tables_of_their_own(page: str) -> None:
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    assert text.count("{{ ") == len(results.CALL.findall(text)) > 0
    assert "<!-- table" not in text
    assert "Seeds " not in text  # below a table that was put in
    assert {call.partition("(")[0] for call in results.CALL.findall(text)} <= set(results.CALLS)


@pytest.mark.parametrize(
    ("link", "on_site"),
    [
        ("../lab/docs/claims.md", "claims.md"),  # of docs/index.md
        ("../../lab/docs/results.md#x", "../results.md#x"),  # of docs/how-to/
        ("../../../lab/docs/results.md", "../../results.md"),  # of docs/reference/api/
        ("../../docs/how-to/data.md#y", "how-to/data.md#y"),  # of lab/docs/
        ("../../../docs/images/a.png", "../images/a.png"),  # of lab/docs/how-to/
        ("../../../../docs/index.md", "../../index.md"),  # of lab/docs/reference/api/
        ("../theory.md", "../theory.md"),
    ],
)
def test_links_between_both_folders(link: str, on_site: str) -> None:
    assert results.filled(f"see [this]({link}).") == f"see [this]({on_site})."


def test_a_call_that_fails_is_named() -> None:
    for call in ('table("cifar10 vgg11 selbo", "nothing")', "unknown()", 'difference("no study here")'):
        with pytest.raises(ValueError, match=re.escape(f"the call {call} of a page fails")):
            results.filled(f"text {{{{ {call} }}}}")
    assert results.filled("nothing { here } {{ or(here }}") == "nothing { here } {{ or(here }}"


# --- what calls give, of results whose every number is known ---


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two studies; NLL .2 + .1 times the number of the method, less a hundredth of the seed in the second method."""
    first = [method(i, name, name.title(), seeds=3) for i, name in enumerate(("elbo", "summary"))]
    for seed, run in enumerate(first[1]["runs"]):
        for condition in run["conditions"].values():
            condition["metrics"]["nll"] -= seed / 100
    second = copy.deepcopy(first)
    for run in second[0]["runs"]:
        run["conditions"]["clean"]["metrics"]["nll"] += 1
    made = {key: typed(study([comparison(each, variant="v")])) for key, each in (("a", first), ("b", second))}
    monkeypatch.setattr(results, "gathered", made.__getitem__)


@pytest.mark.usefixtures("known")
def test_differences_in_sentences() -> None:
    assert results.difference("a v selbo", "summary", "elbo", "clean.nll") == "+.090, +.065 to +.115"
    assert results.difference("a v selbo", "elbo", "summary", "clean.nll", brackets=True) == "−.090 (−.115 to −.065)"
    assert results.difference("a v selbo", "summary", "b/elbo", "clean.nll") == "−.910, −.935 to −.885"
    shown = results.difference("a v selbo", "summary", "elbo", "clean.accuracy", unit="points")
    assert re.fullmatch(r"[+−][\d.]+ points, [+−][\d.]+ to [+−][\d.]+", shown)
    words = {"words": "{}", "sign": False}
    assert results.difference("a v selbo", "summary", "elbo", "clean.nll", digits=2, **words) == ".09"
    assert results.difference("a v selbo", "elbo", "summary", "clean.nll", **words) == "−.090"  # a minus stays
    assert results.difference("a v selbo", "summary", "elbo", "clean.nll", words="{1} to {2}") == "+.065 to +.115"
    assert results.difference("a v selbo", "summary", "elbo", "clean.nll", other_scaled=True, words="{}") == "+.140"


def test_scores_in_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [method(i, name, name.title(), seeds=3, suite="noise") for i, name in enumerate(("elbo", "summary"))]
    tuned = rows[1] | {"tried": [{"kl_weight": each, "val_nll": 4 * each} for each in (0.1, 0.3)]}
    made = {"a": typed(study([comparison([rows[0], tuned], variant="v")]))}
    monkeypatch.setattr(results, "gathered", made.__getitem__)
    assert results.score("a v selbo", "summary", "nll") == results.score("a v selbo", "summary", "clean.nll") == ".310"
    assert results.score("a v selbo", "summary", "clean.nll", scaled=True, digits=2) == ".26"
    assert results.score("a v selbo", "elbo", "corrupted.nll") == ".510"
    assert results.score("a v selbo", "elbo", "corrupted ≤ 0.1.nll") == ".310"
    assert results.score("a v selbo", "elbo", "accuracy", digits=0) == "90 %"
    assert results.score("a v selbo", "elbo", "noise 0.1.accuracy", unit="") == "87.0"
    assert results.score("a v selbo", "elbo", "accuracy", fraction=True) == ".900"
    assert results.score("a v selbo", "elbo", "nll", seeds=[1, 2]) == ".215"
    assert results.score("a v selbo", "summary,elbo", "nll") == ".210 to .310"
    assert results.score("a v selbo", "elbo,elbo", "accuracy") == "90.0 to 90.0 %"
    assert results.tried("a v selbo", "summary", kl_weight=0.3) == "1.200"
    assert results.temperatures("a v selbo", "elbo") == "1.10 to 1.10"
    with pytest.raises(AssertionError, match=r"a v selbo has no clean\.nll"):
        results.score("a v selbo", "elbo", "nll", seeds=[3])
    with pytest.raises(AssertionError, match=r"a v selbo has no clean\.f1_macro"):
        results.score("a v selbo", "elbo", "clean.f1_macro")


@pytest.mark.usefixtures("known")
def test_a_goal_is_missed_in_either_direction() -> None:
    assert results.misses("a v selbo", "elbo", "nll", 0.2) == ".010"
    assert results.misses("a v selbo", "elbo", "clean.accuracy", 0.913) == "1.3"
    with pytest.raises(AssertionError, match=r"elbo of a v selbo meets the goal 0\.3"):
        results.misses("a v selbo", "elbo", "nll", 0.3)


@pytest.mark.parametrize(("place", "nll"), [("", ".510"), ("use.", ".510"), ("clean.", ".210")])
def test_a_score_is_that_of_the_target_domain_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, place: str, nll: str
) -> None:
    case = comparison([method(0, "elbo", "ELBO", seeds=3, suite="use")], variant="v")
    case["data"] = {**case["data"], "labels": 20}
    monkeypatch.setattr(results, "gathered", {"a": typed(study([case]))}.__getitem__)
    assert results.score("a v selbo", "elbo", f"{place}nll") == nll


def test_cases_of_a_study_are_better_level_or_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = []
    for variant, change in (("b", -1.0), ("c", 1.0), ("d", 0.0), ("e", 0.0)):  # in accuracy
        rows = [method(0, name, name.title(), seeds=3) for name in ("elbo", "summary")]
        for seed, run in enumerate(rows[1]["runs"]):
            run["conditions"]["clean"]["metrics"]["accuracy"] += change + 0.01 * seed - 0.01
        cases.append(comparison(rows, variant=variant))
    monkeypatch.setattr(results, "gathered", {"a": typed(study(cases))}.__getitem__)
    assert results.tally("a selbo", "summary", "elbo", "clean.accuracy") == "one | two | one"
    assert results.tally("a selbo", "summary", "elbo", "clean.nll") == "| four |"


def test_overlaps_of_several_cases_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"v": [True, None, False], "w": [True]}
    monkeypatch.setattr(results, "case_of", str)
    monkeypatch.setattr(results.statistics, "overlaps", found.__getitem__)
    assert results.overlap("v") == "1 of 2"
    assert results.overlap("v", "w", words="{1} numbers {0}") == "3 numbers 2"


def test_a_statement_is_compared_with_labels_on_every_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "temperature-1000",
        "accuracy",
        "temperature-100",
        "temperature-20",
        "raw",
    )  # NLL .1 more from one to the next
    rows = [method(i, name, name.title(), seeds=2, suite="kinds") for i, name in enumerate(names)]
    for run in rows[1]["runs"]:
        run["conditions"]["fog"]["metrics"].update(nll=0.05, ece=1.0)
    made = typed(study([comparison(rows, variant="v")], seeds=2))
    monkeypatch.setattr(results, "gathered", {"images": made}.__getitem__)
    results.frozen_means.cache_clear()
    assert results.labels_worth("images", "accuracy").splitlines()[2:] == [
        "| Accuracy | 3 of 3 | 3 of 3 | 1 of 3 | 2 of 3 | 2 of 3 | 2 of 3 |"
    ]
    nll, ece = (0.3 + 0.05 + 0.9 + 2 * 0.005) / 3, (0.03 + 1.0 + 0.09 + 2 * 0.001) / 3
    (row,) = results.frozen("accuracy", "images").splitlines()[2:]
    assert row.split(" | ")[1:3] == [f"{nll:.3f}", f"{100 * ece:.1f}"]
    assert row.endswith("| 3 of 3 | 2 of 3 | -0.300 |")
    assert results.frozen_share("accuracy,raw", "nll", "images") == "50 %"
    results.frozen_means.cache_clear()


@pytest.mark.usefixtures("known")
def test_choices_of_settings_are_weighted_by_their_shares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = results.gathered("a")
    case = whole.comparisons[0]
    chosen = replace(case.methods[0], chosen={"weight_decay": 3.0})
    whole = replace(whole, comparisons=(replace(case, methods=(chosen, case.methods[1])),))
    by_labels = {"all": [1.0, 0.0], "200": [0.5, 0.5]}
    run = {"case": "v", "method": chosen.name, "precisions": [1.0, 3.0], "test_nll": [[0.2, 0.4], [0.5, 0.7]]}
    stored = tmp_path / "choices.json"
    stored.write_text(json.dumps({"runs": [run | {"chosen_by_labels": by_labels}]}), encoding="utf-8")
    monkeypatch.setattr(results, "gathered", {"groups": whole}.__getitem__)
    monkeypatch.setattr(results, "CHOICES", stored)
    results.choices.cache_clear()
    (found,) = results.choices()[chosen.name]
    results.choices.cache_clear()
    expected = {"held-out groups": 0.6, "all labels": 0.3, "200 labels": 0.45, "best setting": 0.3}
    assert found == (case.title, pytest.approx(expected | {"mean of the settings": 0.45}))


@pytest.mark.usefixtures("known")
def test_a_difference_with_runs_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = results.gathered("a")
    case = whole.comparisons[0]
    elbo = replace(case.methods[0], runs=(case.methods[0].runs[0], None, case.methods[0].runs[2]))
    whole = replace(whole, comparisons=(replace(case, methods=(elbo, case.methods[1])),))
    monkeypatch.setattr(results, "gathered", {"a": whole}.__getitem__)
    with pytest.raises(AssertionError, match="runs missing"):
        results.difference("a v selbo", "summary", "elbo", "clean.nll")
    assert results.difference("a v selbo", "summary", "elbo", "clean.nll", pairs=2, words="{}") == "+.090"
    with pytest.raises(AssertionError, match="a v selbo has runs missing"):
        results.score("a v selbo", "elbo", "clean.nll")


def test_numbers_as_sentences_have_them() -> None:
    assert [results.short(each, 3) for each in (-0.1634, 0.05, 1.25, 0.0)] == ["−.163", "+.050", "+1.250", "+.000"]
    assert [results.short(each, 3, sign=False) for each in (0.0144, -0.0144)] == [".014", "−.014"]
    assert results.short(0.4, 0) == "+0"
