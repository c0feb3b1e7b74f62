"""Runs on tables: their rows, what is stated, and classifiers at their defaults."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from selbo.estimator import SummaryClassifier
from selbo_lab.data.dataset import LabelledData
from selbo_lab.run import table_cases, table_methods, table_runs
from selbo_lab.run.execute import execute_run
from selbo_lab.run.table_cases import table_case
from selbo_lab.run.table_methods import (
    TUNED,
    correct_for_statement,
    fit_table_method,
    fractions_as_stated,
    stated_accuracy,
)
from selbo_lab.schedule import runner
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec, ModelSpec, Recipe, RunSpec

WHOLE = DataSpec("keel", table="pima", generated=True)
FEW = DataSpec(
    "keel",
    table="pima",
    generated=True,
    labels=16,
    label_fractions=(0.5, 0.5),
    use_fractions=(0.9, 0.1),
    unlabelled=2000,
)


def run_spec(data: DataSpec, seed: int = 0, **settings: Any) -> RunSpec:
    return RunSpec(data, ModelSpec("mlp"), Recipe(**settings), EvaluationSpec(draws=1), seed)


def made_table(counts: tuple[int, ...]) -> LabelledData:
    """The only input of a row is its number."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return LabelledData(
        "made",
        torch.arange(len(labels), dtype=torch.float32)[:, None],
        labels,
        tuple("abcdefg"[: len(counts)]),
        "made",
        "none",
    )


def cut(data: DataSpec, table: LabelledData, seed: int, monkeypatch: pytest.MonkeyPatch) -> table_cases.TableCase:
    monkeypatch.setattr(table_cases, "keel_table", lambda name: table)
    table_case.cache_clear()
    try:
        return table_case(replace(data, generated=False), seed)
    finally:
        table_case.cache_clear()


# --- rows ---


@pytest.mark.parametrize("number", range(5))
def test_a_table_is_cut_into_parts_without_common_rows(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = cut(WHOLE, made_table((60, 40)), number, monkeypatch)
    assert (len(case.train), len(case.test)) == (60, 40)
    assert sorted(torch.cat([case.train.inputs, case.test.inputs]).flatten().tolist()) == list(range(100))
    assert case.stated == pytest.approx(np.bincount(case.test.labels, minlength=2) / 40)


def test_large_tables_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, train, test in (("pima", 1000, 6000), ("magic", 6000, 6000), ("letter", 16_000, 4000)):
        case = cut(replace(WHOLE, table=name), made_table((12_000, 8000)), 0, monkeypatch)
        assert (len(case.train), len(case.test)) == (train, test)


@pytest.mark.parametrize("number", range(5))
def test_a_class_without_training_rows_is_left_out(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = cut(WHOLE, made_table((60, 1, 40)), number, monkeypatch)
    assert case.train.class_names == case.test.class_names == ("a", "c")
    for part in (case.train, case.test):
        assert (part.labels == (part.inputs.flatten() > 60)).all()


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("number", range(3))
def test_few_labels_have_their_fractions(number: int, flipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made_table((400, 1000) if flipped else (1000, 400))
    case = cut(replace(FEW, labels=20), table, number, monkeypatch)
    assert case.unlabelled is not None
    assert case.train.class_counts == (10, 10)
    assert case.unlabelled.class_counts == case.test.class_counts == (495, 55)
    rows = torch.cat([part.inputs for part in (case.train, case.unlabelled, case.test)]).flatten()
    assert len(rows.unique()) == len(rows) == 1120
    rare = rows < 400 if flipped else rows >= 1000
    assert (torch.cat([case.train.labels, case.unlabelled.labels, case.test.labels]) == rare).all()
    few = cut(replace(FEW, labels=20, label_fractions=(0.9, 0.1), unlabelled=100), table, number, monkeypatch)
    assert few.unlabelled is not None
    assert (few.train.class_counts, few.unlabelled.class_counts) == ((18, 2), (90, 10))


def test_few_labels_are_for_two_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="must have two classes, but 'pima' has 3"):
        cut(FEW, made_table((40, 40, 40)), 0, monkeypatch)


# --- what is stated ---


def test_stated_fractions() -> None:
    assert fractions_as_stated((0.9, 0.1)) == pytest.approx((0.9, 0.1))
    assert fractions_as_stated((0.9, 0.1), 0.05) == pytest.approx((0.95, 0.05))
    assert fractions_as_stated((0.5, 0.4, 0.1), -0.1) == pytest.approx((0.4, 0.48, 0.12))
    assert min(fractions_as_stated((0.6, 0.4, 0.0))) == pytest.approx(0.001, rel=0.01)


def test_a_stated_accuracy_can_be_stated() -> None:
    log_probs = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]]).log()
    assert stated_accuracy(log_probs, torch.tensor([0, 1, 0, 0])) == 0.75
    assert stated_accuracy(log_probs, torch.tensor([0, 1, 0, 1])) == 0.999
    assert stated_accuracy(log_probs, torch.tensor([1, 0, 1, 0])) == 0.501


@pytest.mark.parametrize("off", [0.0, -0.1])
def test_the_pool_is_the_classifier_at_its_default(off: float) -> None:
    """Trained once for all statements, and corrected as `SummaryClassifier` does."""
    case, stated = table_case(FEW, 3), fractions_as_stated((0.9, 0.1), off)
    assert case.unlabelled is not None
    recipe = Recipe("pool", correction="belief")
    found = correct_for_statement(recipe, fit_table_method(recipe, case, seed=3), case, stated, case.test.inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = SummaryClassifier(class_fractions=list(stated), random_state=3).fit(
            case.train.inputs.double().numpy(),
            case.train.labels.numpy(),
            X_unlabelled=case.unlabelled.inputs.double().numpy(),
        )
    assert classifier.calibration_ is not None
    np.testing.assert_allclose(
        found.exp(), classifier.predict_proba(case.test.inputs.double().numpy()), rtol=1e-4, atol=1e-5
    )


# --- runs ---


def test_the_constant_answer() -> None:
    run = execute_run(run_spec(WHOLE, objective="constant"))
    case = table_case(WHOLE, 0)
    shares = np.bincount(case.train.labels) / len(case.train)
    assert run.conditions["clean"].metrics["nll"] == pytest.approx(-np.log(shares)[case.test.labels].mean())
    few = execute_run(run_spec(FEW, objective="constant", fractions_off=-0.1))
    labels, unlabelled = table_case(FEW, 0).test.labels, table_case(FEW, 0).unlabelled
    assert unlabelled is not None
    assert few.data["unlabelled"] == unlabelled.checksum
    assert few.sizes == {"train": 16, "use": len(labels), "unlabelled": len(unlabelled)}
    assert few.conditions["use"].metrics["nll"] == pytest.approx(-np.log([0.8, 0.2])[labels].mean())


def test_prior_correction() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    run = execute_run(run_spec(FEW, objective="logistic", inverse_penalty=0.1, correction="known", fractions_off=0.05))
    case = table_case(FEW, 0)
    scale = StandardScaler().fit(case.train.inputs)
    plain = LogisticRegression(C=0.1).fit(scale.transform(case.train.inputs), case.train.labels)
    odds = plain.predict_proba(scale.transform(case.test.inputs)) * np.array([0.95, 0.05]) / 0.5
    nll = -np.log(odds / odds.sum(1, keepdims=True))[np.arange(len(odds)), case.test.labels].mean()
    assert run.conditions["use"].metrics["nll"] == pytest.approx(nll, rel=1e-4)


def test_runs_that_differ_only_in_the_correction_share_a_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    real = table_runs.fit_table_method
    monkeypatch.setattr(
        table_runs, "fit_table_method", lambda *given, **named: trained.append(1) or real(*given, **named)
    )
    monkeypatch.setattr(table_runs, "_LAST", table_runs._LastClassifier())
    runs = [
        execute_run(run_spec(FEW, objective="logistic", correction="known", fractions_off=off)) for off in (0, 0.05)
    ]
    assert len(trained) == 1
    assert runs[0].conditions != runs[1].conditions
    assert runs[0].seconds.cpu == runs[1].seconds.cpu
    execute_run(run_spec(FEW, seed=1, objective="logistic", correction="known"))
    assert len(trained) == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"states_accuracy": True},
        {"states_fractions": True},
        {"states_accuracy": True, "states_fractions": True},
        {"states_label_fractions": True},
    ],
)
def test_what_is_stated_is_true_and_corrects_the_pool_as_the_classifier_does(settings: dict[str, bool]) -> None:
    run = execute_run(run_spec(WHOLE, objective="pool", **settings))
    case = table_case(WHOLE, 0)
    inputs, labels = case.train.inputs.double().numpy(), case.train.labels.numpy()
    test, answers = case.test.inputs.double().numpy(), case.test.labels.numpy()
    statements: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "states_accuracy" in settings:
            plain = SummaryClassifier(random_state=0).fit(inputs, labels)
            statements["accuracy"] = max(0.501, float((plain.predict(test) == answers).mean()))
        if "states_fractions" in settings:
            statements["class_fractions"] = (np.bincount(answers) / len(answers)).tolist()
        if "states_label_fractions" in settings:
            statements["class_fractions"] = (np.bincount(labels) / len(labels)).tolist()
        told = SummaryClassifier(**statements, random_state=0).fit(inputs, labels)
    nll = -np.log(told.predict_proba(test)[np.arange(len(answers)), answers]).mean()
    assert told.calibration_ is not None
    assert run.conditions["clean"].metrics["nll"] == pytest.approx(nll, rel=1e-4)


def test_tuned_classifiers_have_the_same_budget() -> None:
    budgets = {name: math.prod(len(values) for values in grid.values()) for name, grid in TUNED.items()}
    assert set(budgets.values()) == {8}


def test_a_tuned_classifier_has_the_lowest_cross_validated_nll() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    case = table_case(WHOLE, 1)
    inputs, labels = case.train.inputs.double().numpy(), case.train.labels.numpy()
    candidates = [make_pipeline(StandardScaler(), LogisticRegression(C=10.0**k, max_iter=1000)) for k in range(-3, 5)]
    scores = [cross_val_score(each, inputs, labels, scoring="neg_log_loss", cv=5).mean() for each in candidates]
    best = candidates[int(np.argmax(scores))].fit(inputs, labels)
    found = fit_table_method(Recipe("tuned_logistic"), case, seed=1)
    np.testing.assert_allclose(
        found(case.test.inputs).exp(), best.predict_proba(case.test.inputs.double().numpy()), atol=1e-6
    )


def test_methods_whose_package_is_not_there_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the user is told."""
    monkeypatch.setattr(table_methods, "find_spec", lambda package: None)
    study = runner.load_known_study("tables", trial=True)
    with pytest.warns(UserWarning, match="runs of LightGBM are left out, as it is not installed"):
        results = runner.run_study(study, tmp_path / "tables", executor="here", seeds=1)
    for method in (each for case in results.comparisons for each in case.methods):
        missing = "lightgbm" in method.recipe.objective
        assert all((run is not None and run.tested) != missing for run in method.runs)


@pytest.mark.parametrize("name", ["tables", "few-labels"])
def test_a_study_of_tables_has_tables(name: str) -> None:
    """It runs in lab/tests/end_to_end/test_trials.py, on tiny data."""
    for variant in runner.load_known_study(name).variants:
        assert variant.data.table
        assert bool(variant.data.labels) == (name == "few-labels")
