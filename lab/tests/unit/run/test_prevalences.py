"""Target domains with class fractions from the whole simplex, and a classifier that is not trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import nll_loss

from selbo.evaluation import correct_prior
from selbo.random import generator_for
from selbo_lab.report.study_page import render_study_page
from selbo_lab.report.study_tables import build_tables
from selbo_lab.run import domains, evaluate, execute, tasks
from selbo_lab.run.records import SHIFTS, Run
from selbo_lab.schedule import runner
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec

DATA = DataSpec("sst-zero-shot", generated=True, labels=20, label_fractions=(0.75, 0.25), val_size=30, prevalences=6)
SPEC = RunSpec(DATA, ModelSpec("mlp"), Recipe("zero_shot"), EvaluationSpec(draws=1), 5)


@pytest.fixture(autouse=True)
def few_hundred_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tasks, "SMOKE_TRAIN", 400)
    monkeypatch.setattr(tasks, "SMOKE_TEST", 300)
    monkeypatch.setattr(execute, "_MEMORY", execute._Memory())
    for cached in (tasks._part, tasks._two_places):
        cached.cache_clear()
    yield
    for cached in (tasks._part, tasks._two_places):
        cached.cache_clear()


def run(**recipe: Any) -> Run:
    return execute.execute_run(replace(SPEC, recipe=replace(SPEC.recipe, **recipe)))


# --- class fractions and rows ---


@pytest.mark.stochastic
def test_prevalences_are_uniform_on_the_simplex(seed: int) -> None:
    found = torch.tensor(domains.uniform_prevalences(3, 4000, seed=seed))
    assert found.sum(-1).sub(1).abs().max() < 1e-6
    assert found.min() >= domains.LEAST_PREVALENCE * 0.99
    assert (found.max(-1).values < 0.5).double().mean().item() == pytest.approx(0.25, abs=0.04)  # a quarter of the area
    assert (found < 0.1).double().mean(0).tolist() == pytest.approx([0.19] * 3, abs=0.04)  # 1 - .9²
    two = torch.tensor(domains.uniform_prevalences(2, 4000, seed=seed))[:, 0]
    assert two.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist() == pytest.approx([0.25, 0.5, 0.75], abs=0.05)


def test_prevalences_depend_on_the_seed_alone() -> None:
    assert domains.uniform_prevalences(4, 3, seed=1) == domains.uniform_prevalences(4, 5, seed=1)[:3]
    assert domains.uniform_prevalences(4, 3, seed=1) != domains.uniform_prevalences(4, 3, seed=2)


def test_rows_have_the_class_fractions_and_repeat_only_where_a_class_is_too_small() -> None:
    labels = torch.tensor([0] * 50 + [1] * 8)
    rows = domains.rows_with(labels, [0.5, 0.5], 30, generator=generator_for(0))
    assert labels[rows].bincount().tolist() == [15, 15]
    often, rare = rows[labels[rows] == 0], rows[labels[rows] == 1]
    assert len(often.unique()) == 15
    assert len(rare.unique()) <= 8
    with pytest.raises(ValueError, match="`labels` must hold class 1 to sample it"):
        domains.rows_with(torch.zeros(5).long(), [0.5, 0.5], 4, generator=generator_for(0))


def test_other_fractions_are_refused_beside_prevalences() -> None:
    with pytest.raises(ValueError, match="`prevalences` are class fractions"):
        replace(DATA, use_fractions=(0.5, 0.5))
    with pytest.raises(ValueError, match="`labels` must be given"):
        DataSpec("sst", prevalences=3)


# --- runs ---


def test_metrics_are_means_over_target_domains() -> None:
    plain, known, wrong = run(), run(correction="known"), run(correction="known", fractions_off=0.05)
    task = tasks.build_task(DATA, SPEC.evaluation, seed=5)
    noise, found, shifts = generator_for(5, "samples"), {"plain": [], "known": [], "wrong": []}, []
    for first, second in domains.uniform_prevalences(2, 6, seed=5):
        sample = [
            domains.rows_with(each.labels, (first, second), len(each), generator=noise)
            for each in (task.unlabelled, task.use)
        ][1]
        rows, labels = task.use.inputs[sample].log_softmax(-1), task.use.labels[sample]
        found["plain"].append(nll_loss(rows, labels).item())
        found["known"].append(nll_loss(correct_prior(rows, (0.75, 0.25), (first, second)), labels).item())
        off = min(first + 0.05, 0.999)
        found["wrong"].append(nll_loss(correct_prior(rows, (0.75, 0.25), (off, 1 - off)), labels).item())
        shifts.append(abs(first - 0.75))
    for result, expected in zip((plain, known, wrong), found.values(), strict=True):
        assert result.conditions["use"].metrics["nll"] == pytest.approx(sum(expected) / 6, rel=1e-5)
        by_shift = [nll for _, nll in sorted(zip(shifts, expected, strict=True))]
        thirds = [result.conditions[name].metrics["nll"] for name in SHIFTS]
        assert thirds == pytest.approx([sum(by_shift[i : i + 2]) / 2 for i in (0, 2, 4)], rel=1e-5)


def test_shifts_are_no_corruptions_and_have_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SMOKE_TRAIN", 64)  # what is in tables, not how good it is
    monkeypatch.setattr(tasks, "SMOKE_TEST", 32)
    study = runner.load_known_study("frozen-shift", trial=True)
    results = runner.run_study(study, tmp_path, executor="here", seeds=1)
    case = next(each for each in results.comparisons if each.data.prevalences)
    assert not any(run.corrupted for run in case.tested)
    tables = {table.name: table for table in build_tables(results, case)}
    assert not [name for name in tables if name.endswith("temperature")]
    assert [row[0].text for row in tables["corruptions"].rows] == list(SHIFTS)
    assert tables["corruptions"].heads[0].label == "label shift"
    assert "zero_shot" in {method.recipe.objective for each in results.comparisons for method in each.methods}
    assert "corrupted" not in render_study_page(results)


def test_predictions_are_made_once_for_all_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    count, predict = list[int](), evaluate.Evaluation.predict_inputs

    def predicted(*args: Any) -> evaluate.Prediction:
        count.append(1)
        return predict(*args)

    monkeypatch.setattr(evaluate.Evaluation, "predict_inputs", predicted)
    first = run()
    assert len(count) == 4  # validation, unlabelled, both test sets
    for how in ("belief", "batch", "em-bcts", "rlls", "lascal", "isotonic", "temperature"):
        run(correction=how, target_labels=100, states_fractions=True, states_accuracy=how == "belief")
    assert len(count) == 4
    assert run().conditions == first.conditions


def test_stated_fractions_stay_within_the_simplex() -> None:
    assert evaluate._stated_off((0.98, 0.01, 0.01), 0.05) == pytest.approx((0.999, 0.0005, 0.0005))
    assert evaluate._stated_off((0.02, 0.98), -0.05) == pytest.approx((0.001, 0.999))
    assert evaluate._stated_off((0.5, 0.3, 0.2), 0.05) == pytest.approx((0.55, 0.27, 0.18))
    assert evaluate._stated_off((0.0, 1.0), 0.0) == (0.0, 1.0)


def test_a_zero_shot_classifier_answers_with_its_inputs() -> None:
    found = execute.execute_run(
        replace(SPEC, data=replace(DATA, prevalences=0, use_fractions=(0.5, 0.5), unlabelled=50))
    )
    task = tasks.build_task(found.spec.data, SPEC.evaluation, seed=5)
    assert task.use.inputs.shape[1] == 2
    nll = nll_loss(task.use.inputs.log_softmax(-1), task.use.labels).item()
    assert found.conditions["use"].metrics["nll"] == pytest.approx(nll, rel=1e-5)
