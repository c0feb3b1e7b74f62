"""`SummaryClassifier` trained for long: what it learns, how beliefs change it, and when it warns."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from unit.estimator.small import blobs, quick, two_groups

import selbo
from selbo.estimator.classifier import SummaryClassifier


def test_check_of_scikit_learn_that_needs_a_variable() -> None:
    """Arrays of numpy with array-API dispatch switched on, which scipy allows only if told so before its import."""
    program = (
        "from selbo.estimator import SummaryClassifier\n"
        "from sklearn.utils.estimator_checks import check_array_api_input\n"
        "check_array_api_input('x', SummaryClassifier(steps=2, num_samples=1, hidden=(4,)), array_namespace='numpy', "
        "expect_only_array_outputs=False)"
    )
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_weights_and_repetitions_agree_over_many_steps() -> None:
    """As scikit-learn's check, but long enough for rounding to grow."""
    X, y = blobs(20)
    counts = np.arange(20) % 3
    counts[:3] = 1
    settings = {"steps": 150, "learning_rate": 6e-3, "accuracy": 0.9, "concentration": 50.0, "overrule_labels": True}
    repeated = quick(**settings).fit(X.repeat(counts, 0), y.repeat(counts))
    weighted = quick(**settings).fit(X, y, sample_weight=counts)
    np.testing.assert_allclose(repeated.predict_proba(X), weighted.predict_proba(X), rtol=1e-7)
    unweighted = quick(**settings).fit(X, y)
    assert np.abs(unweighted.predict_proba(X) - weighted.predict_proba(X)).max() > 0.01


def test_learns_with_default_settings_but_fewer_steps() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    scores = []
    for random_state in range(3):  # one alone may be two points off, and differs between processors
        settings = {"concentration": 250.0, "steps": 150, "learning_rate": 0.01, "random_state": random_state}
        classifier = SummaryClassifier(0.95, **settings).fit(X[::2], y[::2])
        scores.append(classifier.score(X[1::2], y[1::2]))
        assert classifier.loss_curve_.shape == (150,)
        assert classifier.loss_curve_[-10:].mean() < classifier.loss_curve_[:10].mean()
    assert np.mean(scores) > 0.93


def test_a_belief_changes_how_sure_predictions_are() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    settings = {"steps": 100, "concentration": 5000.0, "overrule_labels": True}
    modest = quick(accuracy=0.7, **settings).fit(X, y).predict_proba(X).max(1).mean()
    bold = quick(accuracy=0.97, **settings).fit(X, y).predict_proba(X).max(1).mean()
    assert modest == pytest.approx(0.7, abs=0.06)
    assert bold > 0.92


def test_stated_fractions_of_many_classes_are_used() -> None:
    """More than 20 classes: the regions of confidence see no class, so that fractions have a summary of their own."""
    generator, y = np.random.default_rng(0), np.arange(240) % 24
    X = 4 * generator.normal(size=(24, 6))[y] + generator.normal(size=(240, 6))
    stated = {"class_fractions": [0.31] + [0.03] * 23}
    settings = {"accuracy": 0.9, "hidden": (32,), "steps": 100, "learning_rate": 0.02}
    found, silent = quick(**settings, **stated).fit(X, y), quick(**settings).fit(X, y)
    assert isinstance(found.summary_.partition, selbo.ConfidenceBins)
    assert found.predict_proba(X)[:, 0].mean() > silent.predict_proba(X)[:, 0].mean() + 0.03
    for others in ({"accuracy": 0.9, "partition": selbo.ClassRegions(24)}, {}):
        seeing = quick(**stated, **others).fit(X, y)
        np.testing.assert_allclose(seeing.summary_.s0.numpy(), stated["class_fractions"], atol=1e-6)


def test_a_belief_that_outweighs_the_labels_is_met_by_their_classes(seed: int) -> None:
    """Labels come first: if the summary did, whatever the first weights point to would become sure.

    Of three sets: a belief that outweighs 30 labels by so much sometimes leaves the most frequent class alone.
    """
    scores = []
    for each in (seed, seed + 100, seed + 200):
        X, y = blobs(60, classes=2, seed=each)
        settings = {"accuracy": 0.95, "concentration": 1000.0, "steps": 200, "learning_rate": 0.01}
        fitted = quick(**settings, overrule_labels=True, random_state=each).fit(X[:30], y[:30])
        assert fitted.concentration_ == 1000
        scores.append(fitted.score(X[:30], y[:30]))
    assert np.mean(scores) > 0.75


@pytest.mark.parametrize("how", [{"early_stopping": True}, {"concentration": "auto"}])
def test_an_accuracy_that_is_clearly_missed_is_warned_of(how) -> None:
    classifier = quick(accuracy=0.99, steps=40, validation_fraction=0.3, **how)
    with pytest.warns(
        UserWarning, match=r"of 90 held-out rows are classified .* clearly below the stated 99 %"
    ) as told:
        classifier.fit(*two_groups(0))
    assert told[0].filename == __file__
    assert str(told[0].message).endswith("% instead.")


@pytest.mark.parametrize(
    "how",
    [
        {"early_stopping": True, "accuracy": 0.84},
        {"concentration": "auto", "accuracy": 0.84},
        {"early_stopping": True, "accuracy": 0.7},
        {"early_stopping": True},  # nothing is stated
        {"accuracy": 0.99},  # nothing is held out
        {"accuracy": 0.99, "early_stopping": True, "method": "elbo"},  # which believes nothing
    ],
)
def test_what_is_true_or_unknown_is_not_warned_of(how) -> None:
    """Warnings are errors here. The rate of false ones is that of the check, which has a test of its own."""
    for run in range(3):
        quick(steps=40, validation_fraction=0.3, **how).fit(*two_groups(run))
