"""One run, its result on disk, and who carries it out."""

from __future__ import annotations

import json
import lzma
import math
import random
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from forked_python import warm_pool
from selbo import SummaryLikelihood, choose_scale
from selbo.evaluation.predict import Prediction, mixture, predict
from selbo.models import MLP
from selbo.nn import to_bayesian
from selbo.posteriors import SWAG, LastLayerLaplace, NaturalGradientPosterior, as_posterior
from selbo.random import derive
from selbo.summary.beliefs import Empirical
from selbo.summary.partitions import ScoreBins
from selbo.training import Optimizer, checkpoint, fit
from selbo_lab.data import MissingData, mnist, sst
from selbo_lab.data.dataset import LabelledData
from selbo_lab.run import build, corrupted_cache, evaluate, execute, posthoc, provenance, tasks
from selbo_lab.run.records import Manifest, Run, RunCost, RunValidation
from selbo_lab.run.result_store import Store, studies_in
from selbo_lab.schedule import executors, runner
from selbo_lab.studies import plan
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec
from small_sets import SmallSet

DATA = DataSpec("sst", generated=True)
RECIPE = Recipe("cross_entropy", steps=5, batch_size=16)
EVALUATION = EvaluationSpec(draws=3, suite="noise", levels=(0.5, 1.0), ood=("fashion",))
SPEC = RunSpec(DATA, ModelSpec("mlp", hidden=(4,)), RECIPE, EVALUATION, 0)


def without_times(result: Run) -> dict[str, Any]:
    return {key: value for key, value in result.to_dict().items() if key not in {"seconds", "made_by", "resumed_from"}}


# --- what is found ---


@pytest.fixture(scope="module")
def result() -> Run:
    return execute.execute_run(SPEC)


def test_a_result_says_everything_and_is_json(result: Run) -> None:
    again = Run.from_dict(json.loads(json.dumps(result.to_dict(), allow_nan=False)))
    assert again == result
    assert again.id == SPEC.id
    assert again.status == "finished"
    assert again.spec.recipe.steps == 5
    assert set(again.conditions) == {"clean", "noise 0.5", "noise 1"}
    assert again.conditions["noise 0.5"].level == 0.5
    for condition in (again.val, *again.conditions.values()):
        assert condition.metrics["nll"] > 0
        assert set(condition.scaled) == set(condition.metrics)
    assert again.ood["fashion"].metrics["entropy_difference"] == pytest.approx(
        again.ood["fashion"].metrics["entropy_out"] - again.ood["fashion"].metrics["entropy_in"]
    )
    assert sum(again.score_histogram) == again.sizes["test"] == tasks.SMOKE_TEST
    assert math.fsum(again.histogram.masses) == pytest.approx(1)
    assert {"selbo", "torch", "python", "machine", "code", "time"} <= set(again.to_dict()["made_by"])
    assert len(again.data["train"]) == 64
    assert again.seconds.all >= again.seconds.training > 0


def test_the_numbers_are_those_of_the_network(result: Run) -> None:
    task = tasks.build_task(DATA, EVALUATION, seed=0)
    member = execute._trained(SPEC, task, device="cpu", member=0)
    log_probs = member.network(task.test.network_inputs()).log_softmax(-1)
    nll = torch.nn.functional.nll_loss(log_probs, task.test.labels).item()
    assert result.conditions["clean"].metrics["nll"] == pytest.approx(nll, rel=1e-5)
    noisy = sst.with_noise(task.test, 0.5, seed=tasks.NOISE_SEED)
    hits = (member.network(noisy.network_inputs()).argmax(-1) == noisy.labels).double().mean().item()
    assert result.conditions["noise 0.5"].metrics["accuracy"] == pytest.approx(hits)


def test_the_same_run_has_the_same_result(result: Run) -> None:
    assert without_times(execute.execute_run(SPEC)) == without_times(result)


def test_a_tuning_run_looks_at_no_test_data() -> None:
    found = execute.execute_run(replace(SPEC, evaluation=EvaluationSpec(draws=3, test=False)))
    assert found.val.metrics["nll"] > 0
    assert not {"conditions", "ood", "histogram"} & set(found.to_dict())


def test_a_run_that_diverges_is_a_result() -> None:
    found = execute.execute_run(replace(SPEC, recipe=replace(RECIPE, learning_rate=1e30, steps=20)))
    assert found.status == "diverged"
    assert "not finite" in found.error or "not numbers" in found.error
    assert "conditions" not in found.to_dict()
    assert Run.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found


def test_temperature_is_that_of_the_validation_data(result: Run) -> None:
    assert result.temperature > 0
    assert result.val.scaled["nll"] <= result.val.metrics["nll"] + 1e-9


def test_foreign_inputs_have_as_many_draws_as_clean_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[int]] = {}
    real = evaluate.Evaluation.predict_inputs

    def spy(self: evaluate.Evaluation, inputs: torch.Tensor, draws: int) -> Prediction:
        shown = "noise" if len(inputs) == 2 * tasks.SMOKE_TEST else "others"
        seen.setdefault(shown, set()).add(draws)
        return real(self, inputs, draws)

    monkeypatch.setattr(evaluate.Evaluation, "predict_inputs", spy)
    found = execute.execute_run(replace(SPEC, evaluation=replace(EVALUATION, draws=5, corrupted_draws=2)))
    assert seen == {"noise": {2}, "others": {5}}
    assert found.ood["fashion"].num_samples == {"in": 5, "out": 5}


def test_a_run_may_average_both_columns_of_two_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def spy(log_probs: torch.Tensor, labels: torch.Tensor) -> float:
        asked.append(len(labels))
        return 0.25

    monkeypatch.setattr(evaluate, "auroc_of_both_columns", spy)
    found = execute.execute_run(replace(SPEC, evaluation=replace(EVALUATION, both_columns=True)))
    for condition in (found.val, *found.conditions.values()):
        assert condition.metrics["auroc"] == condition.scaled["auroc"] == 0.25
    asked.clear()
    execute.execute_run(SPEC)
    assert not asked


@pytest.mark.parametrize("official", [False, True])
def test_pixels_that_are_not_normalised(official: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    images = tasks.generated("mnist35", "test", seed=0)
    usual = replace(images, normalisation=mnist.MNIST_NORMALISATION)
    monkeypatch.setattr(tasks.mnist, "mnist35", lambda *_, **__: usual)
    monkeypatch.setattr(tasks.mnist, "mnist35_c", lambda *_, **__: usual)
    monkeypatch.setattr(tasks.catalogue, "load_set", lambda *_, **__: usual)
    monkeypatch.setattr(tasks.store, "present", lambda *_: official)
    monkeypatch.setattr(tasks, "kept", lambda *_: images.inputs)
    asked = EvaluationSpec(suite="mnist-c", corruptions=("fog",), ood=("fashion",))
    for normalised, low in ((True, -0.1307 / 0.3081), (False, 0.0)):
        task = tasks.build_task(DataSpec("mnist35", train_size=977, normalised=normalised), asked, seed=91)
        sets = [task.train, task.val, task.test, task.foreign["fashion"], *(each.data for each in task.corrupted())]
        assert len(sets) == 5
        for each in sets:
            assert each.network_inputs().aminmax().min.item() == pytest.approx(low, abs=2e-2)
            assert (each.network_inputs().aminmax().max.item() <= 1) == (not normalised)
    tasks._part.cache_clear()
    tasks._foreign.cache_clear()


def test_pixels_that_are_not_normalised_at_a_place_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = replace(tasks.generated("mnist35", "train", seed=0), normalisation=mnist.MNIST_NORMALISATION)
    monkeypatch.setattr(tasks, "_read_part", lambda *_: usual)
    data = DataSpec("mnist35", generated=True, labels=17, unlabelled=16, use_corruption="fog")
    for normalised, expected in ((True, mnist.MNIST_NORMALISATION), (False, None)):
        task = tasks.build_task(replace(data, normalised=normalised), EvaluationSpec(), seed=91)
        sets = [each for each in vars(task).values() if isinstance(each, LabelledData)]
        assert len(sets) == 5
        assert {each.normalisation for each in sets} == {expected}
    tasks._part.cache_clear()
    tasks._two_places.cache_clear()


def test_a_map_of_the_test_set() -> None:
    found = execute.execute_run(replace(SPEC, evaluation=replace(EVALUATION, suite="", scores=True)))
    assert len(found.map.places) == len(found.map.scores) == tasks.SMOKE_TEST
    assert all(0 <= score <= 1 for score in found.map.scores)


SUMMARY = Recipe(
    "summary_elbo", steps=5, batch_size=16, bayesian=True, partition="equal", belief="uniform", concentration=500.0
)


def test_an_empirical_belief_is_that_of_a_plain_network_of_the_same_seed(result: Run) -> None:
    recipe = replace(SUMMARY, belief="empirical")
    found = execute.execute_run(replace(SPEC, recipe=recipe))
    task = tasks.build_task(DATA, EVALUATION, seed=0)
    plain = execute._trained(SPEC, task, device="cpu", member=0)
    log_probs = (plain.network(task.val.network_inputs()) / result.temperature).log_softmax(-1)
    expected = Empirical(log_probs).masses(ScoreBins.equal(10))
    assert found.histogram.belief.s0 == pytest.approx(expected.tolist(), abs=1e-6)


NATURAL = replace(SUMMARY, posterior="natural_gradient", learning_rate=0.1, prior_std=0.2)


def test_a_posterior_is_trained_by_natural_gradient() -> None:
    """As `fit` does it for a posterior with the settings of the recipe, and a run repeats its numbers."""
    recipe = replace(NATURAL, initial_curvature=0.05, curvature_decay=0.9, rate_warmup=2, schedule="cosine")
    spec = replace(SPEC, recipe=recipe)
    task = tasks.build_task(DATA, EVALUATION, seed=0)
    trained = execute._trained(spec, task, device="cpu", member=0)
    inputs, labels = task.train.tensors()
    network = build.build_network(spec.model, recipe, input_size=inputs.shape[1], num_classes=2, seed=0)
    posterior = NaturalGradientPosterior(
        network, num_data=len(labels), prior_std=0.2, initial_curvature=0.05, betas=(0.9, 0.9)
    )
    objective = build.build_objective(recipe, num_data=len(labels), num_classes=2, data=DATA)
    settings = {"steps": 5, "batch_size": 16, "learning_rate": 0.1, "schedule": "cosine", "warmup_steps": 2}
    fit(posterior, objective, (inputs, labels), seed=0, callbacks=(), **settings)
    assert isinstance(trained.network, NaturalGradientPosterior)
    found, expected = trained.network.state_dict(), posterior.state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0)
    once, again = (execute.execute_run(spec) for _ in range(2))
    assert without_times(once) == without_times(again)
    other = execute.execute_run(replace(spec, recipe=replace(recipe, initial_curvature=0.5)))
    assert other.conditions["clean"].metrics["nll"] != once.conditions["clean"].metrics["nll"]


@pytest.mark.parametrize("change", [{"kl_weight": 0.1}, {"bayesian": False, "objective": "cross_entropy"}])
def test_a_natural_gradient_needs_a_bayesian_recipe_with_the_whole_kl(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs `bayesian` and a `kl_weight` of 1"):
        replace(NATURAL, **change)


# --- posteriors of networks that were trained as usual ---

SMALL_VGG = ModelSpec("vgg11", width=1 / 32)
IMAGES = replace(SPEC, data=DataSpec("cifar10", generated=True), model=SMALL_VGG, evaluation=EvaluationSpec(draws=3))
SGD = Recipe("cross_entropy", steps=6, batch_size=16, optimizer="sgd", learning_rate=0.05, momentum=0.8)
POSTHOC = {
    "dropout": replace(SGD, posthoc="mc_dropout"),
    "swag": replace(SGD, posthoc="swag", swag_steps=4, swag_every=2, swag_rate=0.02, swag_rank=3),
    "laplace": replace(SGD, posthoc="laplace"),
    "laplace, prior precision": replace(SGD, posthoc="laplace", prior_precision=5.0),
    "laplace, belief": replace(SGD, posthoc="laplace", scale_belief="expect(0.5)"),
    "swag, belief": replace(SGD, posthoc="swag", swag_steps=4, swag_every=1, scale_belief="expect(0.5)"),
}


@pytest.fixture(scope="module")
def plain() -> Run:
    """Trained as usual, without a posterior."""
    return execute.execute_run(replace(IMAGES, recipe=SGD))


@pytest.mark.parametrize("recipe", POSTHOC.values(), ids=POSTHOC.keys())
def test_a_posterior_after_training_repeats_its_numbers(
    recipe: Recipe, plain: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posthoc, "CHOOSING_SAMPLES", 3)  # each goes through a network of its own, for every scale tried
    spec = replace(IMAGES, recipe=recipe)
    once, again = (execute.execute_run(spec) for _ in range(2))
    assert once.status == "finished"
    assert without_times(once) == without_times(again)
    assert once.conditions["clean"].metrics["nll"] != plain.conditions["clean"].metrics["nll"]


def test_momentum_is_that_of_the_recipe() -> None:
    found = [
        execute.execute_run(replace(SPEC, recipe=replace(SGD, momentum=momentum))).conditions["clean"].metrics["nll"]
        for momentum in (0.0, 0.9)
    ]
    assert found[0] != found[1]


def trained_by_hand(recipe: Recipe, steps: int, rate: float, seed: int, network: Any, **settings: Any) -> None:
    task = tasks.build_task(DATA, EVALUATION, seed=0)
    inputs, labels = task.train.tensors()
    objective = build.build_objective(recipe, num_data=len(labels), num_classes=2, data=DATA)
    optimizer = Optimizer("sgd", momentum=recipe.momentum)
    settings = {"callbacks": (), **settings}
    fit(
        network,
        objective,
        (inputs, labels),
        steps=steps,
        batch_size=16,
        optimizer=optimizer,
        learning_rate=rate,
        seed=seed,
        **settings,
    )


def test_swag_collects_at_a_constant_rate_in_the_last_steps() -> None:
    recipe = replace(POSTHOC["swag"], schedule="cosine")
    task = tasks.build_task(DATA, EVALUATION, seed=0)
    trained = execute._trained(replace(SPEC, recipe=recipe), task, device="cpu", member=0).network
    assert isinstance(trained, SWAG)
    inputs = task.train.network_inputs()
    network = build.build_network(SPEC.model, recipe, input_size=inputs.shape[1], num_classes=2, seed=0)
    swag = SWAG(network, max_rank=3)
    trained_by_hand(recipe, 2, 0.05, 0, network, schedule="cosine")
    seed = derive(0, "swag") % (1 << 31)
    trained_by_hand(recipe, 4, 0.02, seed, network, callbacks=[swag.collect], log_every=2)
    assert trained.count == swag.count == 2
    assert torch.equal(trained.mean, swag.mean)
    assert torch.equal(trained.deviations, swag.deviations)


def test_the_scale_of_a_posterior_is_set_or_chosen_without_labels() -> None:
    task = tasks.build_task(DATA, EVALUATION, seed=0)
    for recipe in (NATURAL, SUMMARY):
        members = {
            name: execute._trained(
                replace(SPEC, recipe=replace(recipe, **change)), task, device="cpu", member=0
            ).network
            for name, change in (
                ("as trained", {}),
                ("set", {"posterior_scale": 3.0}),
                ("chosen", {"scale_belief": "expect(0.6)"}),
            )
        }
        assert members["set"].scale == 3.0
        posterior = as_posterior(members["as trained"])
        belief = build.parse_belief("expect(0.6)", 2)
        summary = SummaryLikelihood(build.parse_partition("confidence", 2), belief, 500.0, overrule_labels=True)
        expected = choose_scale(posterior, task.val.network_inputs(), summary).value
        assert members["chosen"].scale == pytest.approx(expected)


def test_laplace_has_the_precision_of_the_evidence_or_of_the_recipe() -> None:
    task = tasks.build_task(DATA, EVALUATION, seed=0)
    found = [
        execute._trained(replace(SPEC, recipe=POSTHOC[name]), task, device="cpu", member=0).network
        for name in ("laplace", "laplace, prior precision")
    ]
    assert all(isinstance(each, LastLayerLaplace) and each.count == len(task.train) for each in found)
    assert found[1].prior_precision == 5.0
    found[1].maximise_evidence()
    assert found[0].prior_precision == found[1].prior_precision


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"posthoc": "swag"}, "`swag_steps` must be from 1 to below `steps`"),
        ({"posthoc": "swag", "swag_steps": 6}, "`swag_steps` must be from 1 to below `steps`"),
        ({"swag_steps": 2}, "`swag_steps` must be from 1 to below `steps`"),
        ({"posthoc": "other"}, "`posthoc` must be one of"),
        ({"posthoc": "laplace", "objective": "elbo", "bayesian": True}, "`posthoc` is for deterministic networks"),
        ({"posthoc": "mc_dropout", "posterior_scale": 2.0}, "need a posterior with standard deviations"),
        ({"scale_belief": "uniform"}, "need a posterior with standard deviations"),
        ({"posthoc": "laplace", "adaptation": "tent"}, "`adaptation` is for deterministic networks"),
    ],
)
def test_settings_of_a_posterior_after_training_belong_together(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SGD, **change)


def test_a_network_without_dropout_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "fit", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(ValueError, match="must have dropout layers"):
        execute.execute_run(replace(SPEC, recipe=POSTHOC["dropout"]))


def test_a_summary_may_speak_of_the_validation_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(*args: Any, unlabelled: Any, **kwargs: Any) -> Any:
        seen.append(unlabelled)
        return fit(*args, unlabelled=unlabelled, **kwargs)

    monkeypatch.setattr(execute, "fit", spy)
    on_train, on_val = (
        execute.execute_run(replace(SPEC, recipe=replace(SUMMARY, summary_inputs=inputs)))
        for inputs in ("train", "val")
    )
    assert seen[0] is None
    torch.testing.assert_close(seen[1], tasks.build_task(DATA, EVALUATION, seed=0).val.network_inputs())
    assert on_train.conditions != on_val.conditions


@pytest.mark.parametrize(("given", "passed"), [(0, None), (2, 2)])
def test_a_recipe_may_say_how_often_to_validate(
    monkeypatch: pytest.MonkeyPatch, given: int, passed: int | None
) -> None:
    seen = []

    def spy(*args: Any, validation: Any, **kwargs: Any) -> Any:
        seen.append(validation.every)
        return fit(*args, validation=validation, **kwargs)

    monkeypatch.setattr(execute, "fit", spy)
    execute.execute_run(replace(SPEC, recipe=replace(RECIPE, select="best", eval_every=given)))
    assert seen == [passed]


def test_a_summary_keeps_its_belief() -> None:
    recipe = Recipe(
        "summary_elbo", steps=3, batch_size=16, bayesian=True, partition="unequal", belief="uniform", concentration=10.0
    )
    found = execute.execute_run(replace(SPEC, recipe=recipe))
    assert found.histogram.belief.concentration == 10.0
    assert len(found.histogram.belief.s0) == len(found.histogram.masses) == 7


# --- ensembles ---


def test_a_belief_may_be_counted_in_the_training_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = replace(SUMMARY, partition="classes-published", belief="fractions(counts)")
    task = tasks.build_task(SPEC.data, SPEC.evaluation, seed=0)
    few = replace(task, train=task.train.rows([0, 1, 2, 4, *range(6, 30, 2)]))  # class 1 is rare
    monkeypatch.setattr(execute, "build_task", lambda *_, **__: few)
    counts = few.train.class_counts
    assert counts[0] > 3 * counts[1] > 0
    found = execute.execute_run(replace(SPEC, recipe=recipe))
    assert found.histogram.belief.s0 == pytest.approx([count / sum(counts) for count in counts])


def test_an_ensemble_is_the_mean_of_its_members() -> None:
    spec = replace(SPEC, recipe=replace(RECIPE, members=3))
    task = tasks.build_task(DATA, EVALUATION, seed=0)
    members = [execute._trained(spec, task, device="cpu", member=i) for i in range(3)]
    inputs = task.test.network_inputs()
    probs = torch.stack([each.network(inputs).softmax(-1) for each in members])
    assert not torch.allclose(probs[0], probs[1])
    expected = torch.nn.functional.nll_loss(probs.mean(0).log(), task.test.labels).item()
    assert execute.execute_run(spec).conditions["clean"].metrics["nll"] == pytest.approx(expected, rel=1e-5)


def test_disagreement_of_members_is_doubt(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(20, 3, generator=generator)
    nets = [to_bayesian(MLP((3, 4, 2), generator=generator), init_std=0.3) for _ in range(2)]
    parts = [predict(net, inputs, 8, generator=generator) for net in nets]
    together = mixture(parts)
    assert isinstance(together, Prediction)
    torch.testing.assert_close(together.probs, (parts[0].probs + parts[1].probs) / 2)
    torch.testing.assert_close(together.entropy, together.expected_entropy + together.mutual_information)
    own = (parts[0].mutual_information + parts[1].mutual_information) / 2
    assert (together.mutual_information >= own - 1e-6).all()
    one = mixture(parts[:1])
    torch.testing.assert_close(one.probs, parts[0].probs)
    with pytest.raises(ValueError, match="at least one prediction"):
        mixture([])


# --- data ---


@pytest.mark.parametrize("name", ["sst", "mnist35", "cifar10", "cifar10-im"])
def test_generated_data_have_the_shape_of_the_set(name: str) -> None:
    train, again, other = (tasks.generated(name, "train", seed=seed) for seed in (0, 0, 1))
    assert tuple(train.inputs.shape[1:]) == tasks.SHAPES[name]
    assert torch.equal(train.inputs, again.inputs)
    assert not torch.equal(train.inputs, other.inputs)
    assert "generated" in train.name


@pytest.mark.parametrize(
    ("name", "suite", "count"), [("mnist35", "mnist-c", 15), ("cifar10", "cifar10-c", 95), ("sst", "noise", 2)]
)
def test_corrupted_sets_come_one_at_a_time(name: str, suite: str, count: int) -> None:
    data = DataSpec(name, generated=True)
    asked = EvaluationSpec(suite=suite, levels=(0.2, 0.4) if suite == "noise" else ())
    test = tasks.build_task(data, asked, seed=0).test
    few = test.rows(range(4))
    found = list(tasks.corrupted_test_sets(data, asked, few))
    assert len(found) == len({each.name for each in found}) == count
    assert all(torch.equal(each.data.labels, few.labels) for each in found)


# --- on disk ---


def test_a_store_keeps_results_whole(tmp_path: Path, result: Run) -> None:
    store = Store(tmp_path / "study")
    assert store.read(SPEC) is None
    assert not store.has(SPEC)
    store.write(result)
    assert store.has(SPEC)
    assert store.read(SPEC) == result
    assert list(store.all()) == [result]
    assert [path.name for path in store.runs.iterdir()] == [f"{SPEC.id}.json"]


def test_a_part_of_a_result_is_read_alone(tmp_path: Path, result: Run) -> None:
    store = Store(tmp_path / "study")
    assert store.read_validation(SPEC) is None
    store.write(result)
    found = store.read_validation(SPEC)
    assert found == RunValidation(spec=result.spec, status=result.status, val=result.val)
    assert found.finished
    assert list(store.all_costs()) == [RunCost(made_by=result.made_by, seconds=result.seconds)]
    store.write(replace(result, status="diverged", val=None))
    found = store.read_validation(SPEC)
    assert found is not None
    assert (found.finished, found.val) == (False, None)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": "other"}', f'{{"format": "selbo-run-1", "id": "{SPEC.id}"}}']
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path)
    store.runs.mkdir()
    store.path(SPEC.id).write_text(text)
    for read in (store.read, store.read_validation):
        with pytest.raises(ValueError, match="remove it, and the run is done again"):
            read(SPEC)


# --- packed into one file ---

STUDY = Manifest(study="sst", generated=False, tracks=("selbo",), seeds=2)


def test_a_packed_study_is_read_like_its_folder(tmp_path: Path, result: Run) -> None:
    store = Store(tmp_path / "sst")
    store.write_manifest(STUDY)
    other = replace(result, id="0" * len(SPEC.id), status="diverged")
    store.write(result)
    store.write(other)
    before = store.manifest()
    assert store.pack() == 2
    assert [path.name for path in tmp_path.iterdir()] == ["sst.jsonl.xz"]
    for read in (store, Store(tmp_path / "sst")):
        assert read.exists()
        assert read.manifest() == before
        assert read.has(SPEC)
        assert read.read(SPEC) == result
        assert [each.id for each in read.all()] == [other.id, SPEC.id]
    assert studies_in(tmp_path) == studies_in(tmp_path / "sst") == studies_in(store.packed) == [tmp_path / "sst"]
    lines = lzma.decompress(store.packed.read_bytes()).decode().splitlines()
    assert json.loads(lines[0]) == before.to_dict()
    assert [json.loads(line)["id"] for line in lines[1:]] == [other.id, SPEC.id]


def test_a_run_in_the_folder_is_newer_than_the_packed_one(tmp_path: Path, result: Run) -> None:
    store = Store(tmp_path / "sst")
    store.write_manifest(STUDY)
    store.write(result)
    store.pack()
    again = Store(tmp_path / "sst")
    again.write(replace(result, status="again"))
    found = again.read(SPEC)
    assert found is not None
    assert found.status == "again"
    again.write_manifest(replace(STUDY, seeds=5))
    assert again.pack() == 1
    found = again.read(SPEC)
    assert found is not None
    assert (found.status, again.manifest().seeds) == ("again", 5)


def test_packing_keeps_checkpoints_and_loses_no_run(
    tmp_path: Path, result: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "sst")
    store.write_manifest(STUDY)
    store.write(result)
    store.unfinished(SPEC, "cpu").mkdir(parents=True)
    with monkeypatch.context() as broken:
        broken.setattr(lzma, "decompress", lambda _: b"")
        with pytest.raises(ValueError, match="could not be written"):
            store.pack()
    assert store.path(SPEC.id).exists()
    assert not store.packed.exists()
    store.pack()
    assert store.unfinished(SPEC, "cpu").exists()
    assert not store.runs.exists()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"no archive", "cannot be read"),
        (lzma.compress(b'{"format":"selbo-study-1"}\n{"id":"a"}\n')[:-8], "cannot be read"),
        (lzma.compress(b""), "cannot be read: it is empty"),
        (lzma.compress(b'{"format":"selbo-study-1"}\n{"id":"a"}\n'), "is damaged"),
        (lzma.compress(b'{"format":"selbo-study-1"}\n{"format":"other","id":"a"}\n'), "is damaged: 1 lines"),
        (lzma.compress(b'{"format":"selbo-study-1"}\n[]\n'), "is damaged"),
    ],
)
def test_a_packed_file_that_is_damaged_is_named(tmp_path: Path, content: bytes, match: str) -> None:
    store = Store(tmp_path / "sst")
    store.packed.write_bytes(content)
    with pytest.raises(ValueError, match=match):
        store.has(SPEC)


# --- executors ---

FOUR = [replace(SPEC, seed=seed) for seed in range(2)] + [replace(SPEC, recipe=replace(RECIPE, members=2), seed=7)]


def carried_out(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    started, ended = [], []
    works = [executors.Work(spec, str(folder), "cpu") for spec in FOUR]
    executors.BY_NAME[name](works, 2, started.append, lambda spec, how: ended.append((spec, how.status)))
    assert {spec.id for spec in started} == {spec.id for spec in FOUR}
    assert {(spec.id, status) for spec, status in ended} == {(spec.id, "finished") for spec in FOUR}
    found = {spec.id: Store(folder).read(spec) for spec in FOUR}
    return {key: without_times(value) for key, value in found.items() if value is not None}


def test_a_process_for_runs_imports_nothing_slow_that_it_may_not_need() -> None:
    code = "import sys, selbo_lab.schedule.executors, selbo_lab.schedule.runner; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"matplotlib", "polars", "scipy.optimize", "scipy.stats", "sklearn"} & set(loaded)


def test_executors_give_the_same_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "start_pool", warm_pool)
    assert carried_out("here", tmp_path / "here") == carried_out("processes", tmp_path / "processes")


def test_ray_gives_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    before = random.getstate()  # which ray uses
    try:
        assert carried_out("ray", tmp_path / "ray") == carried_out("here", tmp_path / "here")
    finally:
        random.setstate(before)


def test_ray_that_is_not_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'selbo-lab\[sweep\]'"):
        executors.ray([], 1, print, print)


class Killed(BaseException):
    """What no code catches."""


LONG = replace(SPEC, recipe=replace(SUMMARY, steps=40, select="best", eval_every=5))


@pytest.mark.parametrize(
    ("recipe", "names"),
    [
        (LONG.recipe, ["member-0-stage-0"]),
        (replace(LONG.recipe, members=2), ["member-0-stage-0", "member-1-stage-0"]),
        (replace(LONG.recipe, belief="empirical"), ["earlier-0-stage-0", "member-0-stage-0"]),
        (replace(LONG.recipe, pretraining=40), ["member-0-stage-0", "member-0-stage-1"]),
    ],
    ids=["one network", "ensemble", "earlier model", "pretraining"],
)
def test_a_run_that_is_killed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe, names: list[str]
) -> None:
    """Killed in the last of its trainings, it has the result of an undisturbed run, and leaves no checkpoint."""
    spec, store = replace(LONG, recipe=recipe), Store(tmp_path)
    undisturbed = execute.execute_run(spec)
    monkeypatch.setattr(execute, "CHECKPOINT_EVERY_S", 0.0)
    trained = []

    def killed(*args: Any, checkpoint: Any, **options: Any) -> Any:
        trained.append(checkpoint.path.name)
        stop = [lambda record: kill() if record["step"] == 30 else None] if trained == names else []
        return fit(*args, checkpoint=checkpoint, log_every=10, **{**options, "callbacks": stop})

    def kill() -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(execute, "fit", killed)
        with pytest.raises(Killed):
            executors.do(executors.Work(spec, str(tmp_path), "cpu"))
    assert trained == names
    assert not store.has(spec)
    checkpoints = list(store.unfinished(spec, "cpu").iterdir())
    assert {path.name for path in checkpoints} == set(names)
    earlier = sum(checkpoint.read_checkpoint(path)[1]["seconds"] for path in checkpoints)

    assert executors.do(executors.Work(spec, str(tmp_path), "cpu")).status == "finished"
    result = store.read(spec)
    assert result is not None
    resumed = result.resumed_from
    assert list(resumed) == names
    assert 0 < resumed[names[-1]] < 40
    assert result.seconds.earlier == pytest.approx(earlier)
    assert [resumed[name] for name in names[:-1]] == [40] * (len(names) - 1), "what was trained before is not again"
    assert without_times(result) == without_times(undisturbed)
    assert not (tmp_path / "unfinished").exists()


def test_a_short_run_writes_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(checkpoint, "write_checkpoint", lambda path, *_, **__: written.append(path))
    assert executors.do(executors.Work(SPEC, str(tmp_path), "cpu")).status == "finished"
    assert not written
    assert "resumed_from" not in json.loads(Store(tmp_path).path(SPEC.id).read_text())


def test_checkpoints_of_other_code_are_left_alone_and_removed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    monkeypatch.setenv("SELBO_CODE_VERSION", "older")
    before = store.unfinished(SPEC, "cuda:1")
    before.mkdir(parents=True)
    (before / "member-0-stage-0").write_text("not a checkpoint")
    assert before.name == f"{SPEC.id}-older-cuda"
    monkeypatch.setenv("SELBO_CODE_VERSION", "newer")
    assert executors.do(executors.Work(SPEC, str(tmp_path), "cpu")).status == "finished"
    assert not before.exists()


def test_a_checkpoint_that_cannot_be_read_is_in_the_way_once(tmp_path: Path) -> None:
    folder = Store(tmp_path).unfinished(SPEC, "cpu")
    folder.mkdir(parents=True)
    (folder / "member-0-stage-0").write_text("not a checkpoint")
    done = executors.do(executors.Work(SPEC, str(tmp_path), "cpu"))
    assert done.status == "failed"
    assert "cannot be read" in str(done.error)
    assert executors.do(executors.Work(SPEC, str(tmp_path), "cpu")).status == "finished"


def test_a_run_that_diverges_does_not_name_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is gone when the result is there."""
    monkeypatch.setattr(execute, "CHECKPOINT_EVERY_S", 0.0)
    spec = replace(SPEC, recipe=replace(RECIPE, learning_rate=1e30, steps=200))
    done = executors.do(executors.Work(spec, str(tmp_path), "cpu"))
    assert done.status == "diverged"
    assert str(tmp_path) not in str(done.error)
    assert not (tmp_path / "unfinished").exists()


def test_a_run_that_fails_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    wrong = replace(SPEC, model=ModelSpec("resnet"))
    told: list[executors.Done] = []
    executors.here([executors.Work(wrong, str(tmp_path), "cpu")], 1, lambda _: None, lambda _, how: told.append(how))
    assert told[0].status == "failed"
    assert "`model` must be one of" in str(told[0].error)
    assert not Store(tmp_path).has(wrong)


def test_a_process_whose_run_failed_is_not_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ProcessPoolExecutor] = []

    def counted(count: int) -> ProcessPoolExecutor:
        made.append(warm_pool(count))
        return made[-1]

    monkeypatch.setattr(executors, "start_pool", counted)
    told: list[str] = []
    specs = [replace(SPEC, model=ModelSpec("resnet")), SPEC, replace(SPEC, seed=1)]
    works = [executors.Work(spec, str(tmp_path), "cpu") for spec in specs]
    executors.processes(works, 1, lambda _: None, lambda _, how: told.append(how.status))
    assert told == ["failed", "finished", "finished"]
    assert len(made) == 2, "a new one after the failure, and none after a run that ended well"


def test_the_code_version_is_a_commit_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELBO_CODE_VERSION", "abc")
    assert provenance.code_version() == "abc"
    monkeypatch.delenv("SELBO_CODE_VERSION")
    found = provenance.code_version()
    assert found is None or 7 <= len(found) <= 14


# --- kept sets ---


def test_a_generated_set_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELBO_DATA", str(tmp_path))
    calls = []

    def make() -> torch.Tensor:
        calls.append(1)
        return torch.arange(12, dtype=torch.uint8).reshape(3, 4)

    first, again = corrupted_cache.kept("a set", make), corrupted_cache.kept("a set", make)
    assert torch.equal(first, again)
    assert torch.equal(first, torch.arange(12, dtype=torch.uint8).reshape(3, 4))
    assert len(calls) == 1
    monkeypatch.setattr(corrupted_cache, "version", lambda: "another")
    corrupted_cache.kept("a set", make)
    assert len(calls) == 2


def test_a_set_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELBO_DATA", str(tmp_path))

    def fails() -> torch.Tensor:
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        corrupted_cache.kept("a set", fails)
    assert not list((tmp_path / corrupted_cache.FOLDER).glob("[!.]*"))


# --- sets that are made before a study ---


def test_missing_sets_are_made_in_processes_as_they_would_be_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = [SmallSet(name) for name in ("a", "b", "c")]
    for folder in ("here", "there"):
        monkeypatch.setenv("SELBO_DATA", str(tmp_path / folder))
        corrupted_cache.kept("a", lambda: torch.zeros(2, dtype=torch.uint8))  # is there, and is left alone
        if folder == "here":
            with executors.threads(1):
                for each in sets:
                    corrupted_cache.kept(each.name, each.make)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(corrupted_cache, "start_pool", warm_pool)
    corrupted_cache.make_missing([*sets, sets[1]], processes=2, told=lambda *counts: told.append(counts))
    assert told == [(0, 2), (1, 2), (2, 2)]
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / folder / corrupted_cache.FOLDER).glob("[!.]*")}
        for folder in ("here", "there")
    )
    assert here == there
    assert len(here) == 3
    corrupted_cache.make_missing(sets, processes=2, told=lambda *counts: told.append(counts))
    assert len(told) == 3  # nothing was left to do


def test_a_set_that_fails_in_a_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELBO_DATA", str(tmp_path))
    monkeypatch.setattr(corrupted_cache, "start_pool", warm_pool)
    with pytest.raises(RuntimeError, match="no luck"):
        corrupted_cache.make_missing([SmallSet("a", fails=True)], processes=1, told=lambda *_: None)


def test_which_sets_a_study_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELBO_DATA", str(tmp_path))
    cifar, rare, mnist = DataSpec("cifar10"), DataSpec("cifar10-im"), DataSpec("mnist35")
    asked = EvaluationSpec(suite="cifar10-c")
    names = [each.name for each in tasks.generated_sets(cifar, asked)]
    assert len(set(names)) == 95
    assert "cifar10-c-fog-3-0" in names
    assert names == [each.name for each in tasks.generated_sets(rare, replace(asked, suite="cifar10-im-c"))]
    few = EvaluationSpec(suite="cifar10-c", corruptions=("fog", "snow"), severities=(1, 5))
    assert len(tasks.generated_sets(cifar, few)) == 4
    assert [
        each.name for each in tasks.generated_sets(mnist, EvaluationSpec(suite="mnist-c", corruptions=("fog",)))
    ] == ["mnist35-c-fog-0"]
    assert not tasks.generated_sets(cifar, replace(asked, test=False))
    assert not tasks.generated_sets(replace(cifar, generated=True), asked)
    assert not tasks.generated_sets(DATA, EVALUATION)
    monkeypatch.setattr(tasks.store, "present", lambda _: True)  # the official files
    assert not tasks.generated_sets(cifar, asked)


def test_a_study_asks_for_the_sets_of_runs_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[Any], int]] = []

    def instead(sets: list[Any], *, processes: int, told: Any) -> None:
        asked.append((sets, processes))
        told(2, 6)

    monkeypatch.setattr(runner, "make_missing", instead)
    monkeypatch.setattr(runner, "generated_sets", lambda data, evaluation: [(data.name, evaluation.suite)])
    heard: list[runner.StudyProgress] = []
    study = runner.load_known_study("cifar10", trial=True)
    carrying = runner._StudyRunner(Store(tmp_path), None, 1, "cpu", heard.append)
    specs = [job.spec for job in plan.final_jobs(study, ["selbo"], range(2), {})]
    carrying.sets(specs, 3)
    assert asked == [([("cifar10", "cifar10-c")], 3)]
    assert heard == [runner.StudyProgress(2, 3, 0, 6, "", "corrupted sets")]
    monkeypatch.setattr(Store, "has", lambda *_: True)
    carrying.sets(specs, 3)
    assert asked[1] == ([], 3)


# --- data that are not there ---


def test_a_study_without_its_data_stops_before_its_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELBO_DATA", str(tmp_path / "store"))
    heard: list[runner.StudyProgress] = []
    study = runner.load_known_study("cifar10")
    with pytest.raises(MissingData, match=r"cifar10 is not in .*: 'selbo data get cifar10' downloads it"):
        runner.run_study(study, tmp_path / "out", tracks=["selbo"], listener=heard.append)
    assert not heard
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_data_that_are_needed_later_are_asked_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are chosen without OOD inputs; a study that would lack these in the end does not begin."""
    monkeypatch.setattr(tasks.store, "present", lambda source: source.name != "fashion")
    monkeypatch.setattr(tasks.store, "missing", lambda source: tuple(raw.name for raw in source.files))
    study = runner.load_known_study("cifar10")
    carrying = runner._StudyRunner(Store(tmp_path), executors.here, 1, "cpu", lambda _: None)
    tuning = [job.spec for job in plan.tuning_jobs(study, ["selbo"])]
    final = [job.spec for job in plan.final_jobs(study, ["selbo"], range(2), {})]
    carrying.need(tuning)
    with pytest.raises(MissingData, match="fashion"):
        carrying.need(tuning, final)
    with pytest.raises(MissingData, match="fashion"):
        carrying.need(final)
    monkeypatch.setattr(Store, "has", lambda *_: True)
    carrying.need(tuning, final)


def test_what_a_run_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELBO_DATA", str(tmp_path))
    tasks._part.cache_clear()
    tasks.require_files(DATA, EVALUATION)  # generated
    tasks.require_files(DataSpec("digits"), EvaluationSpec())  # comes with scikit-learn
    with pytest.raises(MissingData, match="there are no embeddings of sst"):
        tasks.require_files(DataSpec("sst"), EvaluationSpec())
    with pytest.raises(MissingData, match="mnist is not in"):
        tasks.require_files(DataSpec("mnist35"), EvaluationSpec())
    runner._StudyRunner(Store(tmp_path), executors.ray, 1, "cpu", lambda _: None).need(
        [replace(SPEC, data=DataSpec("sst"))]
    )


# --- who takes which run ---


def test_a_process_goes_on_with_what_it_has_compiled() -> None:
    first, second, third = (replace(SPEC, recipe=replace(RECIPE, batch_size=size)) for size in (7, 8, 9))
    waiting = [executors.Work(spec, "", "cpu") for spec in (first, first, second, third)]
    assert executors.next_for(None, waiting, []) == 0
    assert executors.next_for(second, waiting, [first]) == 2
    assert executors.next_for(replace(second, seed=4), waiting, [first]) == 2
    assert executors.next_for(None, waiting, [first]) == 2
    assert executors.next_for(SPEC, waiting, [first, second]) == 3
    assert executors.next_for(SPEC, waiting, [first, second, third]) == 0


def test_runs_that_share_networks_go_to_the_process_that_has_them(tmp_path: Path) -> None:
    corrected = [replace(SPEC, seed=seed, recipe=replace(RECIPE, correction="em")) for seed in (0, 1)]
    waiting = [executors.Work(spec, "", "cpu") for spec in (*corrected, replace(SPEC, seed=2))]
    assert executors.next_for(replace(SPEC, seed=1), waiting, [SPEC]) == 1
    assert executors.next_for(None, waiting, [SPEC]) == 1, "not those that another process is training"
    assert executors.next_for(None, waiting[:1], [SPEC]) == 0, "unless there is nothing else"
    taken: list[RunSpec] = []

    def executor(works: list[executors.Work], *_: object) -> None:
        taken.extend(work.spec for work in works)

    specs = [replace(SPEC, seed=seed, recipe=replace(RECIPE, correction=how)) for how in ("", "em") for seed in (0, 1)]
    runner._StudyRunner(Store(tmp_path), executor, 1, "cpu", lambda _: None).all(ReportedRuns(specs))
    assert taken == [specs[0], specs[2], specs[1], specs[3]]


@pytest.mark.parametrize(("field", "value"), [("kl_weight", 0.3), ("concentration", 7.0), ("weight_decay", 0.1)])
def test_numbers_that_are_given_to_a_compiled_step_leave_it_alone(field: str, value: float) -> None:
    changed = replace(SPEC, recipe=replace(RECIPE, **{field: value}))  # type: ignore[arg-type]
    assert changed != SPEC
    assert executors.compiled_settings(changed) == executors.compiled_settings(SPEC)
    assert executors.compiled_settings(
        replace(SPEC, data=replace(SPEC.data, train_size=11))
    ) != executors.compiled_settings(SPEC)


@pytest.mark.parametrize("field", ["summary_warmup", "unlabelled_inputs", "unlabelled_weight"])
def test_numbers_that_a_compiled_step_holds_are_part_of_it(field: str) -> None:
    changed = replace(SPEC, recipe=replace(RECIPE, **{field: 7}))  # type: ignore[arg-type]
    assert executors.compiled_settings(changed) != executors.compiled_settings(SPEC)


def test_long_runs_start_first(tmp_path: Path) -> None:
    recipes = [RECIPE, replace(RECIPE, members=5), replace(RECIPE, draws=9), replace(RECIPE, steps=11)]
    recipes.append(Recipe("elbo", steps=5, draws=4, bayesian=True))
    taken: list[RunSpec] = []

    def executor(works: list[executors.Work], *_: object) -> None:
        taken.extend(work.spec for work in works)

    specs = [replace(SPEC, recipe=recipe) for recipe in recipes]
    specs.append(replace(SPEC, evaluation=replace(EVALUATION, test=False)))
    runner._StudyRunner(Store(tmp_path), executor, 1, "cpu", lambda _: None).all(ReportedRuns(specs))
    assert taken[0] == specs[-1], "reported runs wait for tuning runs"
    assert [recipes.index(spec.recipe) for spec in taken[1:]] == [1, 4, 3, 0, 2]  # draws are those of Bayesian networks


class ReportedRuns(NamedTuple):
    """Runs of a study in which nothing is chosen."""

    now: list[RunSpec]
    later: tuple[RunSpec, ...] = ()

    def after(self, _: RunSpec) -> list[RunSpec]:
        return []


def test_reported_runs_start_when_the_settings_of_their_method_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when those of all methods are; and each run once."""
    study = runner.load_known_study("sst", trial=True)
    nll = {
        job.spec.id: place for place, job in enumerate(reversed(list(plan.tuning_jobs(study, ["selbo"]))))
    }  # the last candidate is the best
    ended = set[str]()
    monkeypatch.setattr(runner, "_nll_to_choose_by", lambda result: result)
    monkeypatch.setattr(Store, "read_validation", lambda _, spec: nll[spec.id] if spec.id in ended else None)
    monkeypatch.setattr(Store, "has", lambda _, spec: spec.id in ended)
    monkeypatch.setattr(runner, "gather", lambda _: None)
    reported = {
        name: {job.spec for job in plan.final_jobs(study, ["selbo"], range(2), nll) if job.method == name}
        for name in ("plain", "ensemble", "elbo")
    }
    heard: list[runner.StudyProgress] = []

    def executor(works: list[executors.Work], jobs: int, on_start: Any, on_done: Any) -> None:
        def end(name: str) -> None:
            for job in plan.tuning_jobs(study, ["selbo"]):
                if job.method == name:
                    (work,) = [each for each in works if each.spec == job.spec]
                    works.remove(work)
                    finish(work.spec)

        def finish(spec: RunSpec) -> None:
            on_start(spec)
            ended.add(spec.id)
            on_done(spec, executors.Done(spec.id, "finished", None, 0.0))

        def waiting() -> set[RunSpec]:
            return {work.spec for work in works if work.spec.evaluation.test}

        assert waiting() == set()
        end("plain")
        assert waiting() == reported["plain"] | reported["ensemble"], "an ensemble has the settings of its members"
        end("elbo")
        assert waiting() == reported["plain"] | reported["ensemble"] | reported["elbo"]
        assert not any(work.spec.evaluation.test for work in works[: -len(waiting())]), "tuning runs come first"
        while works:
            finish(works.pop(0).spec)

    monkeypatch.setitem(executors.BY_NAME, "here", executor)
    runner.run_study(study, tmp_path, tracks=["selbo"], executor="here", listener=heard.append)
    jobs = [*plan.tuning_jobs(study, ["selbo"]), *plan.final_jobs(study, ["selbo"], range(2), nll)]
    assert ended == {job.spec.id for job in jobs}
    assert {each.total for each in heard} == {len(ended)}
    assert (heard[-1].done, heard[-1].running) == (len(ended), 0)


def test_a_method_whose_tuning_failed_is_not_reported_but_others_are(tmp_path: Path) -> None:
    study = runner.load_known_study("sst", trial=True)
    part = plan.StudyPart(methods=("plain", "ensemble", "evidential"))
    tuning = part.specs(study, plan.tuning_jobs(study, ["selbo"]))
    lost = next(spec for spec in tuning if spec.recipe.objective == "evidential")

    def executor(works: list[executors.Work], jobs: int, on_start: Any, on_done: Any) -> None:
        while works:
            spec = works.pop(0).spec
            on_start(spec)
            if spec != lost:
                Store(tmp_path).write(execute.execute_run(spec))
            on_done(spec, executors.Done(spec.id, "failed" if spec == lost else "finished", "out of luck", 0.0))

    carrying = runner._StudyRunner(Store(tmp_path), executor, 1, "cpu", lambda _: None)
    planned = runner._Plan(Store(tmp_path), study, ["selbo"], range(1), part)
    with pytest.raises(runner.Failed, match=r"1 of 6 runs failed, the first, \w+, with out of luck"):
        carrying.all(planned)
    reported = [run.spec.recipe for run in Store(tmp_path).all() if run.spec.evaluation.test]
    assert sorted((each.objective, each.members) for each in reported) == [("cross_entropy", 1), ("cross_entropy", 2)]


# --- how large networks predict ---


@pytest.mark.parametrize(
    ("model", "device", "engine", "at_a_time"),
    [
        ("vgg11", "cuda", "compiled", tasks.SMOKE_TEST),  # no more than there are
        ("vgg11", "cuda:1", "compiled", tasks.SMOKE_TEST),
        ("vgg11", "cpu", "eager", evaluate.IMAGES_AT_A_TIME),
        ("lenet", "cuda", "eager", evaluate.IMAGES_AT_A_TIME),
    ],
)
def test_large_networks_on_a_gpu_predict_by_compiled_code(
    model: str, device: str, engine: str, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def instead(_: object, inputs: torch.Tensor, draws: int, **settings: Any) -> Prediction:
        seen.update(settings, draws=draws)
        return Prediction(*(torch.zeros(len(inputs), 10) for _ in range(5)))

    monkeypatch.setattr(evaluate, "predict", instead)
    monkeypatch.setattr(evaluate, "generator_for", lambda *_, **__: None)
    recipe = replace(RECIPE, precision="bf16")
    spec = RunSpec(DataSpec("cifar10", generated=True), ModelSpec(model), recipe, EvaluationSpec(draws=3), 0)
    task = tasks.build_task(spec.data, spec.evaluation, seed=0)
    member = evaluate.Member(torch.nn.Identity(), None)  # type: ignore[arg-type]
    evaluate.Evaluation(spec, task, [member], device).predict_inputs(torch.zeros(4, 3, 32, 32), 3)
    assert (seen["engine"], seen["batch_size"]) == (engine, at_a_time)
    assert (seen["precision"], seen["draws"]) == ("bf16", 3)


def test_parts_that_no_seed_decides_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    real = tasks._part
    monkeypatch.setattr(tasks, "_part", lambda data, part, seed: seeds.append(seed) or real(DATA, part, 0))
    for name, expected in (("cifar10", 0), ("mnist35", 7)):
        seeds.clear()
        tasks.build_task(DataSpec(name), EvaluationSpec(test=False), seed=7)
        assert set(seeds) == {expected}


def test_a_belief_that_the_objective_ignores_is_not_kept() -> None:
    recipe = replace(SUMMARY, objective="elbo")
    assert not recipe.believes
    assert execute.execute_run(replace(SPEC, recipe=recipe)).histogram.belief is None
