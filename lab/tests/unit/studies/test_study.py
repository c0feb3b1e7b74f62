"""Studies as data: what is read, what is refused, which runs there are, and how settings are chosen."""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from selbo.training.fit import VALIDATIONS
from selbo_lab.run import build, tasks
from selbo_lab.schedule import runner
from selbo_lab.studies import plan, reader
from selbo_lab.studies.run_spec import ADDED_LATER, DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec
from selbo_lab.studies.smoke import smoke
from selbo_lab.studies.study import TRACKS, Study

tomllib = pytest.importorskip("tomllib")

SMALL: dict[str, Any] = tomllib.loads(
    """
name = "small"
title = "A small study"
paper = "Table 0"
seeds = 2
[[variants]]
name = "a"
title = "A"
data = { name = "sst" }
model = { name = "mlp", hidden = [8] }
[[variants]]
name = "b"
title = "B"
data = { name = "sst" }
model = { name = "mlp", hidden = [4] }
[variants.changes.selbo]
steps = 7
[variants.changes."selbo.elbo"]
prior_std = 2
[tracks.selbo]
reference = "elbo"
recipe = { bayesian = true, steps = 5 }
evaluation = { draws = 3, suite = "noise", levels = [0, 1] }
[[tracks.selbo.methods]]
name = "elbo"
title = "ELBO"
objective = "elbo"
grid = { kl_weight = [1, 0.1], prior_std = [1.0, 0.5] }
[[tracks.selbo.methods]]
name = "plain"
title = "plain"
objective = "cross_entropy"
bayesian = false
grid = { weight_decay = [0.0, 0.1] }
[[tracks.selbo.methods]]
name = "ensemble"
title = "ensemble"
objective = "cross_entropy"
bayesian = false
members = 5
chosen_with = "plain"
"""
)

METHODS_TO_RUN = [{"name": "elbo", "title": "ELBO", "objective": "elbo"}]


@pytest.fixture
def small() -> Study:
    return reader.from_toml(SMALL)


# --- reading ---


def changed(path: str, value: Any) -> dict[str, Any]:
    """The small study with one entry set, or left out if None; a path such as `tracks.selbo.methods.0.colour`."""
    content = copy.deepcopy(SMALL)
    *way, last = path.split(".")
    place: Any = content
    for key in way:
        place = place[int(key)] if isinstance(place, list) else place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("colour", 1, "unknown key 'colour'"),
        ("variants.0.colour", 1, "variants: unknown key 'colour'"),
        ("variants.0.data.size", 1, r"variants.data: unknown key 'size'"),
        ("variants.1.changes.ours", {}, "must be one of"),
        ("variants.1.changes.selbo", {"step": 1}, "changes.selbo: unknown key 'step'"),
        ("tracks.selbo.evaluation.draw", 1, "tracks.selbo.evaluation: unknown key 'draw'"),
        ("tracks.selbo.recipe.lr", 1, "method 'elbo': unknown key 'lr'"),
        ("tracks.selbo.methods.0.grid", {"alpha": [1]}, "grid: unknown key 'alpha'"),
        ("tracks.selbo.methods.0.grid", {"steps": [1, "two"]}, "`steps` must be int, but got 'two'"),
        ("tracks.selbo.methods.0.steps", 1.5, "`steps` must be int, but got 1.5"),
        ("tracks.selbo.methods.0.bayesian", 1, "`bayesian` must be bool, but got 1"),
        ("tracks.selbo.methods.0.objective", "magic", "`objective` must be one of"),
        ("tracks.selbo.methods.1.objective", "elbo", "`bayesian` must be true"),
        ("tracks.selbo.methods.0.belief", "uniform", "belong together"),
        ("tracks.selbo.methods.0.adaptation", "tent", "`adaptation` is for deterministic networks, but got 'tent'"),
        ("tracks.selbo.methods.1.adaptation", "magic", "`adaptation` must be one of"),
        ("tracks.selbo.methods.1.adaptation_rate", 0.0, "`adaptation_rate` must be"),
        ("tracks.selbo.methods.1.adaptation_epochs", 0, "`adaptation_epochs` must be"),
        ("tracks.selbo.methods.2.chosen_with", "nobody", "`chosen_with of ensemble` must be one of"),
        ("tracks.selbo.methods.2.chosen_with", "ensemble", r"must be one of \['elbo', 'plain'\], but got 'ensemble'"),
        ("tracks.selbo.reference", "nobody", "`reference` must be one of"),
        ("tracks.selbo.focus", "nobody", "`focus` must be one of"),
        ("tracks.ours", {}, "`track` must be one of"),
        ("paper_noise", -0.5, "paper_noise` must be a finite number of at least 0"),
    ],
)
def test_what_is_not_known_is_an_error(path: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reader.from_toml(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("title", 5, "study: `title` must be str, but got 5"),
        ("seeds", 0, "study: `seeds` must be a whole number of at least 1"),
        ("variants.0.data", "sst", "variants: `data` must be DataSpec, but got 'sst'"),
        ("variants.0.data", {}, "variants.data: .* field `name`"),
        ("variants.0.data.use_noise", 0.5, "variants.data: `labels` must be given"),
        (
            "variants.0.model.hidden",
            [8, 1.5],
            r"variants.model: `hidden` must be tuple\[int, ...\], but got \[8, 1.5\]",
        ),
        ("variants.0.tuning_seeds", -1, "variants: `tuning_seeds` must be a whole number"),
        ("variants.0.tracks", ["ours"], "variants: `tracks` must be one of"),
        ("tracks.selbo.methods.0.title", 5, "tracks.selbo: method 'elbo': `title` must be str"),
        (
            "tracks.selbo.methods.0.init_std",
            True,
            "tracks.selbo: method 'elbo': `init_std` must be float, but got True",
        ),
        ("tracks.selbo.methods.0.objective", "magic", "tracks.selbo: method 'elbo': `objective` must be one of"),
        ("tracks.selbo.reference", "nobody", "`reference` must be one of"),
        ("variants.0.name", None, "variants: .* field `name`"),
        ("tracks.selbo.methods.1.title", None, "tracks.selbo: method 'plain': .* field `title`"),
        ("tracks.selbo.reference", None, "tracks.selbo: `reference` must be given"),
        ("tracks.selbo.methods", None, "tracks.selbo: `methods` must be given"),
        ("variants", None, "study: `variants` must be given"),
        ("tracks", None, "study: `tracks` must be given"),
        ("paper", None, "study: .* field `paper`"),
    ],
)
def test_an_error_names_the_file_and_the_key(
    path: str, value: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"studies": {"order": ["small"]}, "small": changed(path, value)}
    monkeypatch.setattr(reader, "_toml", files.__getitem__)
    with pytest.raises(ValueError, match=rf"^small\.toml: {message}[^\n]*$"):
        reader.load_study("small")


def test_a_file_that_is_not_toml_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studies.toml").write_text('order = ["small"]')
    (tmp_path / "small.toml").write_text("name = ")
    monkeypatch.setattr(reader, "_folder", lambda: tmp_path)
    with pytest.raises(ValueError, match=r"^small\.toml: "):
        reader.load_study("small")


def test_whole_numbers_are_floats_where_floats_are_meant(small: Study) -> None:
    assert small.tracks[0].evaluation.levels == (0.0, 1.0)
    assert all(isinstance(level, float) for level in small.tracks[0].evaluation.levels)
    assert isinstance(small.tracks[0].methods[0].candidates()[0].kl_weight, float)


def test_all_studies_can_be_read_and_named() -> None:
    files = {path.name for path in reader._folder().glob("*.toml")}
    assert files == {f"{name}.toml" for name in (*reader.names(), "studies", "paper")}
    for name in reader.names():
        assert reader.load_study(name).name == name
    with pytest.raises(ValueError, match="`study` must be one of"):
        reader.load_study("cifar100")


@pytest.mark.parametrize("name", reader.names())
def test_every_study_is_sound(name: str) -> None:
    study = reader.load_study(name)
    for track in study.tracks:
        assert track.name in TRACKS
        for method in track.methods:
            for variant in study.variants:
                for recipe in variant.adapted(track, method).candidates():
                    classes = 10 if variant.data.name in tasks.TEN_CLASSES else 2
                    earlier = torch.full((5, classes), 1 / classes).log()
                    build.build_objective(recipe, num_data=100, num_classes=classes, data=variant.data, earlier=earlier)


WIDE_GRIDS = {
    "shift-sst": (10, 10, 25),
    "shift-mnist35": (10, 10, 25),
    "shift-tables": (10, 10, 25),
    "shift-cifar10": (9, 4, 15),
}
"""Studies whose grids reach as far as a setting makes sense (lab/docs/designs.md): grids, least and most settings."""


@pytest.mark.parametrize("name", WIDE_GRIDS)
def test_wide_grids_are_the_same_for_methods_with_the_same_settings(name: str) -> None:
    (track,) = reader.load_study(name).tracks
    kinds, least, most = WIDE_GRIDS[name]
    grids = defaultdict(set)
    for method in track.methods:
        own = next((kind for kind in ("logistic", "entropy") if method.name.startswith(kind)), "")
        grids[(own, *(setting for setting, _ in method.grid))].add(method.grid)
        assert least <= len(method.candidates()) <= most
    assert len(grids) == kinds
    assert all(len(each) == 1 for each in grids.values())


NOT_COMPARED = ("group_rate", "all_labels")
"""Objectives of lines that say where others stand: the fraction of a group for everyone, and what all labels give."""


WIDER_ROWS = ("groups", "groups-labels")
"""Studies in which baselines have a second row with a wider grid (lab/tests/unit/run/test_groups.py)."""


@pytest.mark.parametrize("name", [name for name in reader.names() if name not in WIDE_GRIDS])
def test_methods_of_our_track_have_the_same_budget(name: str) -> None:
    study = reader.load_study(name)
    budgets = {
        len(method.candidates())
        for track in study.tracks
        if track.name == "selbo"
        for method in track.methods
        if not method.chosen_with and method.recipe.objective not in NOT_COMPARED
        if not (name in WIDER_ROWS and method.name.endswith("-wide"))
    }
    assert len(budgets) <= 1


@pytest.mark.parametrize("name", reader.names())
def test_the_published_track_chooses_nothing(name: str) -> None:
    for track in reader.load_study(name).tracks:
        if track.name == "published":
            assert all(len(method.candidates()) == 1 for method in track.methods)


def test_a_learning_rate_that_waits_is_looked_at_every_epoch() -> None:
    """As in the paper's code, whose patience is one of epochs, whatever the length of the run."""
    study, epoch = reader.load_study("sgd"), 45_000 // 256
    for variant, track in study.comparisons(["published"]):
        for method in track.methods:
            (recipe,) = variant.adapted(track, method).candidates()
            assert recipe.schedule == "plateau"
            assert (recipe.eval_every or max(epoch, recipe.steps // VALIDATIONS)) == epoch


def test_a_variant_may_be_part_of_some_tracks_only(small: Study) -> None:
    content = copy.deepcopy(SMALL)
    content["variants"][1]["tracks"] = ["published"]
    found = reader.from_toml(content)
    assert [(variant.name, track.name) for variant, track in found.comparisons(TRACKS)] == [("a", "selbo")]
    assert {job.variant for job in plan.tuning_jobs(found, TRACKS)} == {"a"}
    assert {job.variant for job in plan.tuning_jobs(small, TRACKS)} == {"a", "b"}
    content["variants"][1]["tracks"] = ["ours"]
    with pytest.raises(ValueError, match="tracks"):
        reader.from_toml(content)


# --- identity ---


def spec(**changes: Any) -> RunSpec:
    found = RunSpec(DataSpec("sst"), ModelSpec("mlp"), Recipe("cross_entropy"), EvaluationSpec(), 0)
    return replace(found, **changes)


def test_identity_is_the_whole_configuration() -> None:
    others = [
        spec(seed=1),
        spec(data=DataSpec("sst", train_size=5)),
        spec(model=ModelSpec("mlp", width=2.0)),
        spec(recipe=Recipe("cross_entropy", learning_rate=2e-3)),
        spec(evaluation=EvaluationSpec(draws=5)),
    ]
    assert len({each.id for each in [spec(), *others]}) == 6
    assert spec().id == spec().id
    assert len(spec().id) == 20


def test_a_field_that_came_later_leaves_the_identity_of_earlier_runs_alone() -> None:
    assert spec().id == "8868803a67fa0d728497"
    assert spec(recipe=Recipe("cross_entropy", summary_inputs="val")).id != spec().id


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("data", {"labels": 5}),
        ("data", {"labels": 5, "label_fractions": (0.5, 0.5)}),
        ("data", {"labels": 5, "use_fractions": (0.5, 0.5)}),
        ("data", {"labels": 5, "use_noise": 0.1}),
        ("data", {"labels": 5, "use_corruption": "fog"}),
        ("data", {"labels": 5, "use_accuracy": 0.9}),
        ("data", {"labels": 5, "unlabelled": 3}),
        ("data", {"labels": 5, "val_size": 3}),
        ("data", {"labels": 5, "standardised": True}),
        ("recipe", {"summary_warmup": 3}),
        ("recipe", {"pretraining": 3}),
        ("recipe", {"unlabelled_inputs": 3}),
        ("recipe", {"unlabelled_weight": 3.0}),
        ("recipe", {"correction": "em"}),
        ("recipe", {"rounds": 3}),
        ("recipe", {"threshold": 0.5}),
        ("recipe", {"neighbours": 3}),
        ("recipe", {"clamping": 0.5}),
        ("recipe", {"inverse_penalty": 3.0}),
        ("recipe", {"eval_every": 3}),
        ("recipe", {"annealing_every": 3}),
        ("recipe", {"adaptation": "tent"}),
        ("recipe", {"adaptation_rate": 3.0}),
        ("recipe", {"adaptation_epochs": 3}),
        ("data", {"normalised": False}),
        ("evaluation", {"both_columns": True}),
    ],
)
def test_what_came_later_enters_the_identity_where_it_is_used(part: str, changes: dict[str, Any]) -> None:
    changed_part = replace(getattr(spec(), part), **changes)
    assert spec(**{part: changed_part}).id != spec().id
    if len(changes) > 1:
        assert spec(**{part: changed_part}).id != spec(data=DataSpec("sst", labels=5)).id
    assert set(changes) <= set(ADDED_LATER[part])


def test_the_published_track_of_threes_and_fives_is_the_authors_set_up() -> None:
    study = reader.load_study("mnist35")
    ours = {variant.name: variant for variant, _ in study.comparisons(["selbo"])}
    for variant, track in study.comparisons(["published"]):
        net = variant.name.partition("-")[0]
        assert variant.model.name == {"lenet": "lenet", "convnet": "convnet-published"}[net]
        assert not variant.data.normalised
        assert (track.evaluation.draws, track.evaluation.corrupted_draws) == (128, 0)
        assert track.evaluation.both_columns
        epoch = -(-variant.data.train_size // 256)  # the authors keep the last batch
        recipe = variant.adapted(track, track.method("evidential")).recipe
        assert (recipe.annealing_every, recipe.annealing_steps) == (epoch, 10 * epoch)
        assert ours[variant.name].model.name == net
        assert ours[variant.name].data == replace(variant.data, normalised=True)


# --- runs ---


def test_tuning_runs_look_at_validation_data_alone(small: Study) -> None:
    jobs = list(plan.tuning_jobs(small, ["selbo"]))
    assert len(jobs) == 2 * (4 + 2)  # the ensemble takes what plain has
    assert not any(job.spec.evaluation.test for job in jobs)
    assert {job.spec.seed for job in jobs} == {plan.TUNING_SEED}


def test_final_runs_have_the_settings_of_the_lowest_validation_nll(small: Study) -> None:
    tuning = list(plan.tuning_jobs(small, ["selbo"]))
    nll = {job.spec.id: 1.0 for job in tuning}
    best = next(
        job.spec
        for job in tuning
        if (job.variant, job.method) == ("a", "elbo")
        and (job.spec.recipe.kl_weight, job.spec.recipe.prior_std) == (0.1, 0.5)
    )
    plain = next(
        job.spec for job in tuning if (job.variant, job.method) == ("b", "plain") and job.spec.recipe.weight_decay
    )
    nll |= {best.id: 0.5, plain.id: 0.2}
    final = list(plan.final_jobs(small, ["selbo"], range(3), nll))
    assert len(final) == 2 * 3 * 3
    recipes = {(job.variant, job.method): job.spec.recipe for job in final}
    assert (recipes["a", "elbo"].kl_weight, recipes["a", "elbo"].prior_std) == (0.1, 0.5)
    assert recipes["b", "plain"].weight_decay == recipes["b", "ensemble"].weight_decay == 0.1
    assert recipes["a", "plain"].weight_decay == recipes["a", "ensemble"].weight_decay == 0.0
    assert recipes["b", "ensemble"].members == 5
    assert all(job.spec.evaluation.test for job in final)


def test_settings_are_chosen_by_the_mean_over_tuning_seeds(small: Study) -> None:
    variant, track = replace(small.variants[0], tuning_seeds=2), small.tracks[0]
    variant = replace(variant, data=DataSpec("sst", labels=20, val_size=20))
    method = track.method("plain")
    first, second = method.candidates()
    specs = {recipe: plan.tuning_specs(variant, track, recipe) for recipe in (first, second)}
    assert [spec.seed for spec in specs[first]] == [plan.TUNING_SEED, plan.TUNING_SEED + 1]
    assert all(spec.data.val_size == 20 for spec in specs[first]), "as large as in the runs that are reported"
    nll: dict[str, float | None] = {specs[first][0].id: 0.1, specs[first][1].id: 0.8}
    nll |= {specs[second][0].id: 0.4, specs[second][1].id: 0.4}
    assert plan.tuned_nll(variant, track, first, nll) == pytest.approx(0.45)
    assert plan.chosen(variant, track, method, nll) == second
    assert plan.chosen(variant, track, method, nll | {specs[second][1].id: None}) == first


def test_a_run_that_diverged_is_never_chosen(small: Study) -> None:
    variant, track = small.variants[0], small.tracks[0]
    method = track.method("plain")
    ids = [spec.id for recipe in method.candidates() for spec in plan.tuning_specs(variant, track, recipe)]
    assert plan.chosen(variant, track, method, {ids[0]: None, ids[1]: 9.0}).weight_decay == 0.1
    assert plan.chosen(variant, track, method, {ids[0]: None, ids[1]: None}).weight_decay == 0.0


def test_settings_are_chosen_with_all_validation_data(small: Study) -> None:
    variant = replace(small.variants[0], data=DataSpec("sst", labels=20, val_size=20))
    track = small.tracks[0]
    recipe = track.method("elbo").recipe
    assert [spec.data for spec in plan.tuning_specs(variant, track, recipe)] == [DataSpec("sst", labels=20)]
    (job, *_) = plan.final_jobs(replace(small, variants=(variant,)), ["selbo"], [0], {})
    assert job.spec.data.val_size == 20


def test_a_part_of_a_study_has_its_runs_and_those_that_choose_for_it(small: Study) -> None:
    part = plan.StudyPart(methods=("ensemble",), variants=("b",))
    part.check(small)
    tuning = part.specs(small, plan.tuning_jobs(small, ["selbo"]))
    final = part.specs(small, plan.final_jobs(small, ["selbo"], range(2), {}))
    assert {(each.recipe.members, each.recipe.weight_decay, each.seed) for each in tuning} == {
        (1, 0.0, plan.TUNING_SEED),
        (1, 0.1, plan.TUNING_SEED),
    }
    assert [(each.recipe.members, each.model.hidden, each.seed) for each in final] == [(5, (4,), 0), (5, (4,), 1)]
    whole = list(plan.final_jobs(small, ["selbo"], range(2), {}))
    assert plan.StudyPart().specs(small, whole) == [job.spec for job in whole]


@pytest.mark.parametrize(("what", "there"), [("methods", "elbo, plain, ensemble"), ("variants", "a, b")])
def test_a_part_that_is_not_there_is_an_error(small: Study, what: str, there: str) -> None:
    with pytest.raises(ValueError, match=rf"`--{what}` must name {what} of small \({there}\), but got 'c'"):
        plan.StudyPart(**{what: ("c",)}).check(small)


def test_variants_of_another_study() -> None:
    tuned = reader.load_study("tables-tuned")
    assert tuned.variants == reader.load_study("tables").variants
    assert tuned.tracks != reader.load_study("tables").tracks


def test_tracks_of_another_study() -> None:
    content = {key: value for key, value in SMALL.items() if key != "tracks"} | {"tracks_of": "shift-sst"}
    content = copy.deepcopy(content)
    content["variants"][1].pop("changes")
    assert reader.from_toml(content).tracks == reader.load_study("shift-sst").tracks


def test_a_trial_has_one_case_of_each_kind() -> None:
    trial = smoke(reader.load_study("shift-sst"))
    assert [variant.name for variant in trial.variants] == ["shift-90-50-300", "noise-1000"]
    small_sets = smoke(reader.load_study("shift-tables"))
    assert {variant.data.name for variant in small_sets.variants} == {"digits", "breast-cancer"}
    assert all(variant.data.labels <= 16 for variant in (*trial.variants, *small_sets.variants))


PLACES = [name for name in reader.names() if name.startswith(("deployment", "shift"))]


@pytest.mark.parametrize("name", PLACES)
def test_a_trial_leaves_out_no_kind_of_method(name: str) -> None:
    whole, trial = (study.tracks[0].methods for study in (reader.load_study(name), smoke(reader.load_study(name))))
    for setting in ("objective", "correction", "bayesian", "partition", "summary_inputs"):
        assert {getattr(each.recipe, setting) for each in trial} == {getattr(each.recipe, setting) for each in whole}
    for setting in ("rounds", "pretraining", "summary_warmup", "unlabelled_inputs"):
        used = {(each.recipe.objective, bool(getattr(each.recipe, setting))) for each in trial}
        assert {(o, u) for o, u in used if u} == {
            (each.recipe.objective, True) for each in whole if getattr(each.recipe, setting)
        }
    focus = smoke(reader.load_study(name)).tracks[0].focus
    assert not focus or focus in {each.name for each in trial}
    with_summary = {(each.recipe.objective, bool(each.recipe.partition)) for each in whole}
    assert {(each.recipe.objective, bool(each.recipe.partition)) for each in trial} == with_summary
    assert {each.name for each in trial if each.grid} == {each.chosen_with for each in trial if each.chosen_with}


def test_a_trial_of_one_place_keeps_all_methods(small: Study) -> None:
    methods = smoke(small).tracks[0].methods
    assert [each.name for each in methods] == ["elbo", "plain", "ensemble"]
    assert [bool(each.grid) for each in methods] == [True, True, False]


# --- seeds ---


def test_seeds_that_are_reported_begin_where_the_study_says(small: Study) -> None:
    assert list(small.seed_range(3)) == [0, 1, 2]
    assert list(reader.from_toml({**SMALL, "first_seed": 4}).seed_range(2)) == [4, 5]
    with pytest.raises(ValueError, match="first_seed` must be a whole number"):
        reader.from_toml({**SMALL, "first_seed": -1})


FIRST_SEEDS = {
    "deployment-ablation": 10,
    "shift-sst": 70,
    "shift-mnist35": 70,
    "shift-tables": 70,
    "shift-cifar10": 60,
    "wrong-fractions": 60,
    "primary-shift": 140,
    "frozen": 90,
    "frozen-images": 300,
    "frozen-shift": 310,
    "posteriors": 80,
    "posteriors-20k": 110,
    "posteriors-plain": 170,
    "posteriors-plain-20k": 195,
    "posteriors-resnet": 180,
    "posteriors-resnet-plain": 185,
    "posteriors-resnet-20k": 190,
    "posteriors-resnet-plain-20k": 260,
    "posteriors-summaries": 80,
    "posteriors-small": 150,
    "groups": 200,
    "groups-labels": 200,
    "groups-small": 240,
    "groups-fashion": 220,
    "groups-fashion-convnet": 230,
    "groups-fashion-sizes": 235,
    "tables": 400,
    "tables-tuned": 420,
    "few-labels": 400,
    "few-labels-again": 405,
}
"""Where seeds do not begin at 0, because test scores of earlier ones had been seen."""


@pytest.mark.parametrize("name", reader.names())
def test_seeds_that_were_looked_at_are_not_reported(name: str) -> None:
    study = reader.load_study(name)
    assert study.first_seed == FIRST_SEEDS.get(name, 0)
    assert plan.TUNING_SEED not in study.seed_range(study.seeds)
    assert smoke(study).first_seed == study.first_seed


def test_runs_and_results_have_the_seeds_of_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {**copy.deepcopy(SMALL), "first_seed": 4}
    content["variants"], content["tracks"]["selbo"]["methods"] = content["variants"][:1], METHODS_TO_RUN
    study = smoke(reader.from_toml(content))
    monkeypatch.setattr(runner, "load_known_study", lambda name, trial: study)
    results = runner.run_study(study, tmp_path, seeds=2, executor="here")
    assert list(results.seeds) == [4, 5]
    (method,) = results.comparisons[0].methods
    assert [run.spec.seed for run in method.runs] == [4, 5]


def test_changes_of_a_variant(small: Study) -> None:
    (track,) = small.tracks
    first, second = small.variants
    assert first.adapted(track, track.method("elbo")).recipe.steps == 5
    changed_recipe = second.adapted(track, track.method("elbo")).recipe
    assert (changed_recipe.steps, changed_recipe.prior_std) == (7, 2.0)
    assert second.adapted(track, track.method("plain")).recipe.prior_std == 1.0


def test_a_trial_is_small_and_has_other_runs(small: Study) -> None:
    trial = smoke(small)
    assert trial.generated
    jobs = list(plan.final_jobs(trial, ["selbo"], range(trial.seeds), {}))
    assert all(job.spec.data.generated for job in jobs)
    assert {job.spec.recipe.steps for job in jobs} == {3}
    real = {job.spec.id for job in plan.final_jobs(small, ["selbo"], range(5), {})}
    assert not real & {job.spec.id for job in jobs}
