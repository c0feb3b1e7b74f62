"""Test sets that are target domains: a correction is fitted to one half of each and tested on the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import nll_loss

from selbo.evaluation import calibrate
from selbo_lab.run import evaluate, execute, tasks
from selbo_lab.run.records import Run
from selbo_lab.schedule import runner
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec

DATA = DataSpec("cifar10", generated=True)
RECIPE = Recipe("cross_entropy", steps=8, batch_size=16, learning_rate=0.01, optimizer="sgd")
EVALUATION = EvaluationSpec(draws=1, suite="cifar10-c", corruptions=("fog", "contrast"), severities=(1, 5), halves=True)
SPEC = RunSpec(DATA, ModelSpec("vgg11", width=1 / 32), RECIPE, EVALUATION, 7)
CONDITIONS = ["clean", "fog 1", "fog 5", "contrast 1", "contrast 5"]


@pytest.fixture(autouse=True)
def few_hundred_images(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tasks, "SMOKE_TEST", 300)
    monkeypatch.setattr(execute, "_MEMORY", execute._Memory())
    for cached in (tasks._part, tasks._corrupted_trial):
        cached.cache_clear()
    yield
    for cached in (tasks._part, tasks._corrupted_trial):
        cached.cache_clear()


def run(**recipe: Any) -> Run:
    return execute.execute_run(replace(SPEC, recipe=replace(RECIPE, **recipe)))


def test_halves_are_disjoint_and_everything_and_differ_by_seed() -> None:
    first, second = evaluate.halves(11, seed=3)
    assert (len(first), len(second)) == (6, 5)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(11))
    assert not torch.equal(evaluate.halves(100, seed=0)[0], evaluate.halves(100, seed=1)[0])


def test_metrics_are_those_of_the_half_that_the_correction_has_not_seen() -> None:
    plain, scaled, stated = (
        run(),
        run(correction="temperature", target_labels=1000),
        run(correction="belief", states_accuracy=True, accuracy_off=0.05),
    )
    task = tasks.build_task(DATA, EVALUATION, seed=7)
    network = execute._trained(SPEC, task, device="cpu", member=0).network.eval()
    first, second = evaluate.halves(300, seed=7)
    sets = {"clean": task.test, **{each.name: each.data for each in task.corrupted()}}
    assert list(sets) == list(plain.conditions) == CONDITIONS
    for name, data in sets.items():
        with torch.no_grad():
            rows = network(data.network_inputs()).log_softmax(-1)
        labels = data.labels
        nll = nll_loss(rows[second], labels[second]).item()
        assert plain.conditions[name].metrics["nll"] == pytest.approx(nll, rel=1e-4)
        better = calibrate.scale(rows[second], calibrate.temperature(rows[first], labels[first]))
        nll = nll_loss(better, labels[second]).item()
        assert scaled.conditions[name].metrics["nll"] == pytest.approx(nll, rel=1e-3)
        hits = (rows[second].argmax(-1) == labels[second]).double().mean().item()
        assert stated.conditions[name].metrics["accuracy"] == pytest.approx(hits)
        assert stated.conditions[name].metrics["num_examples"] == 150


def test_a_network_is_trained_once_and_sees_every_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = {"trained": 0, "predicted": 0}
    train, predict = execute._trained, evaluate.Evaluation.predict_inputs

    def trained(*args: Any, **settings: Any) -> execute.Member:
        count["trained"] += 1
        return train(*args, **settings)

    def predicted(*args: Any) -> evaluate.Prediction:
        count["predicted"] += 1
        return predict(*args)

    monkeypatch.setattr(execute, "_trained", trained)
    monkeypatch.setattr(evaluate.Evaluation, "predict_inputs", predicted)
    first = run()
    assert count == {"trained": 1, "predicted": 1 + len(CONDITIONS)}
    for how in ("em-bcts", "rlls", "batch", "isotonic", "source-temperature"):
        run(correction=how, target_labels=100)
    assert count == {"trained": 1, "predicted": 1 + len(CONDITIONS)}
    assert run().conditions == first.conditions
    fewer = replace(SPEC, evaluation=replace(EVALUATION, severities=(1,)))
    assert set(execute.execute_run(fewer).conditions) == {"clean", "fog 1", "contrast 1"}
    assert count["trained"] == 1
    execute.execute_run(replace(SPEC, seed=8))
    assert count["trained"] == 2


def test_a_run_that_fails_leaves_no_part_of_its_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    predict, calls = evaluate.Evaluation.predict_inputs, list[int]()

    def fails(*args: Any) -> evaluate.Prediction:
        calls.append(1)
        if len(calls) == 4:
            raise OSError("no space left")
        return predict(*args)

    monkeypatch.setattr(evaluate.Evaluation, "predict_inputs", fails)
    with pytest.raises(OSError, match="no space"):
        run()
    assert list(run().conditions) == CONDITIONS


def test_halves_are_refused_beside_a_target_domain() -> None:
    with pytest.raises(ValueError, match="`halves` is for data without a target domain"):
        replace(SPEC, data=replace(DATA, labels=16))


def test_the_study_of_images_corrects_one_network_per_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = runner.load_known_study("frozen-images", trial=True)
    times, train = list[int](), execute._trained

    def trained(*args: Any, **settings: Any) -> execute.Member:
        times.append(1)
        return train(*args, **settings)

    monkeypatch.setattr(execute, "_trained", trained)
    (found,) = runner.run_study(study, tmp_path, executor="here", seeds=2).comparisons
    assert len(times) == 2
    by_name = {method.name: method.runs for method in found.methods}
    assert set(by_name) >= {"raw", "accuracy", "accuracy-high-10", "temperature-1000", "isotonic-1000", "em", "rlls"}
    for runs in zip(*by_name.values(), strict=True):
        assert len({each.val.metrics["nll"] for each in runs}) == 1  # the same network
        raw = runs[0].conditions["fog 1"].metrics
        assert [each.conditions["fog 1"].metrics["nll"] for each in runs].count(raw["nll"]) < len(runs) / 2
