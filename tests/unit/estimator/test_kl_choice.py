"""The weight of the KL divergence that groups choose if there are no labels."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from unit.estimator.towns import FRACTIONS, ROWS, STATED, TOWN, X, Y, quick

from selbo.estimator import GroupScorer, SummaryClassifier
from selbo.estimator import classifier as module
from selbo.estimator.settings import steps_for
from selbo.estimator.storage import restore, save_classifier
from selbo.random import generator_for
from selbo.training import Diverged

WEIGHTS = (0.1, 0.03, 0.01)


def bags(size: int, count: int, *, clean: bool, seed: int) -> tuple[np.ndarray, np.ndarray, dict[int, list[float]]]:
    """Zeros and ones, which are not standardised, in random bags, and the class fractions of each bag."""
    generator = np.random.default_rng(seed)
    features = generator.integers(2, size=(size * count, 20)).astype(float)
    score = features[:, :6].sum(1) - 3 if clean else np.zeros(len(features))
    labels = (generator.random(len(features)) < 1 / (1 + np.exp(-4 * score))).astype(int)
    of_row = np.arange(len(features)) % count
    yes = [labels[of_row == each].mean() for each in range(count)]
    return features, of_row, {k: [1 - each, each] for k, each in enumerate(yes)}


def brute_force(classifier: SummaryClassifier, X: Any, groups: Any, fractions: Any) -> dict[float, float]:
    """Score of each weight: train without every fourth group of a random order, and score these."""
    order = torch.randperm(len(fractions), generator=generator_for(classifier.seed_, "folds of groups")).tolist()
    held_out = np.isin(groups, order[::4])
    others = {group: each for group, each in fractions.items() if group not in order[::4]}
    scorer = GroupScorer(fractions, 10_000.0)
    found = {}
    for weight in WEIGHTS:
        trial = clone(classifier).set_params(kl_weight=weight, num_samples=16)
        trial.fit(X[~held_out], groups=groups[~held_out], group_fractions=others)
        found[weight] = scorer(trial, X[held_out], groups=groups[held_out])
    return found


@pytest.mark.filterwarnings(
    "ignore:predictions miss:UserWarning",
    "ignore:the (mean )?inputs:UserWarning",
    "ignore:the stated fractions hardly differ:UserWarning",  # of random groups, by chance
)
@pytest.mark.slow
def test_groups_choose_what_a_loop_over_all_weights_chooses(seed: int) -> None:
    for size, count, clean in ((48, 6, True), (8, 16, False)):  # labels that inputs explain, and that they do not
        features, groups, fractions = bags(size, count, clean=clean, seed=seed)
        classifier = SummaryClassifier(hidden=(16,), steps=15, learning_rate=0.02, num_samples=8, random_state=seed)
        before = dict(classifier.get_params())
        classifier.fit(features, groups=groups, group_fractions=fractions)
        expected = brute_force(classifier, features, groups, fractions)
        assert classifier.kl_scores_ == pytest.approx(expected, rel=1e-6)
        assert len(set(expected.values())) == 3
        assert classifier.kl_weight_ == max(expected, key=lambda each: expected[each])
        assert classifier.get_params() == before
        same = clone(classifier).set_params(kl_weight=classifier.kl_weight_)
        same.fit(features, groups=groups, group_fractions=fractions)
        np.testing.assert_array_equal(same.predict_proba(features), classifier.predict_proba(features))
        assert same.kl_scores_ is None


def few(count: int) -> dict[str, Any]:
    """The first towns."""
    kept = {town: FRACTIONS[town] for town in list(FRACTIONS)[:count]}
    return {"groups": [each if each in kept else None for each in TOWN[:ROWS]], "group_fractions": kept}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("settings", "given", "weight"),
    [
        ({}, few(3), 0.1),
        ({}, {**STATED, "y": np.where(np.arange(ROWS) < 30, Y[:ROWS], -1)}, 0.1),
        ({"posterior": "natural_gradient", "learning_rate": None}, STATED, 0.1),
        ({"kl_weight": 0.02}, STATED, 0.02),
        ({"method": "plain_summary"}, STATED, None),
        ({"base": "network"}, {"y": Y[:ROWS]}, 0.1),
    ],
)
def test_where_groups_do_not_choose(settings: dict[str, Any], given: dict[str, Any], weight: float | None) -> None:
    classifier = quick(**settings).fit(X[:ROWS], **given)
    assert classifier.kl_scores_ is None
    assert classifier.kl_weight_ == weight


def test_the_time_of_a_fit_includes_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from a clock that only the classifier has: at the begin and the end of the whole fit."""
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=iter((3.0, 10.0)).__next__))
    classifier = quick(steps=5).fit(X[:ROWS], **STATED)
    assert classifier.kl_scores_
    assert classifier.seconds_ == 7.0


def test_four_groups_choose() -> None:
    assert set(quick(steps=5).fit(X[:ROWS], **few(4)).kl_scores_ or {}) == set(WEIGHTS)


def test_a_trial_that_diverges_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SummaryClassifier._predict_fold

    def diverging(self: SummaryClassifier, rows: Any, fold: Any, running: Any, plan: Any) -> Any:
        if plan.kl_weight in survivors:
            return original(self, rows, fold, running, plan)
        raise Diverged("the loss is not finite")

    monkeypatch.setattr(SummaryClassifier, "_predict_fold", diverging)
    for survivors in ([0.03], []):
        found = quick(steps=5).fit(X[:ROWS], **STATED)
        assert list(found.kl_scores_ or {}) == survivors
        assert found.kl_weight_ == (survivors or [0.1])[0]


@pytest.mark.parametrize(("steps", "trial"), [(1, 1), (4, 2), (12, 3)])
def test_steps_of_trials(monkeypatch: pytest.MonkeyPatch, steps: int, trial: int) -> None:
    """A quarter of the steps, but not fewer than some. Folds of the concentration have the chosen weight."""
    monkeypatch.setattr(module, "TRIAL_STEPS", 2)
    taken = []
    original = SummaryClassifier._train

    def spied(self: SummaryClassifier, *args: Any) -> Any:
        found = original(self, *args)
        taken.append((found.result.steps, found.plan.kl_weight))
        return found

    monkeypatch.setattr(SummaryClassifier, "_train", spied)
    classifier = quick(steps=steps).fit(X[:ROWS], **STATED, group_concentration="auto")
    assert taken[:3] == [(trial, weight) for weight in WEIGHTS]
    assert taken[3:] == [(steps, classifier.kl_weight_)] * 6


@pytest.mark.parametrize("settings", [{}, {"kl_weight": 0.02}, {"method": "plain_summary"}])
def test_what_was_chosen_is_saved(tmp_path: Path, settings: dict[str, Any]) -> None:
    classifier = quick(steps=5, **settings).fit(X[:ROWS], **STATED)
    described = json.loads(json.dumps(save_classifier(classifier, tmp_path / "weights.safetensors")))
    loaded = restore(described, classifier.classes_, ["x", "y", "z"])
    assert loaded.kl_weight_ == classifier.kl_weight_
    assert loaded.kl_scores_ == classifier.kl_scores_
    for damaged in ({"kl_scores": [[0.1]]}, {"kl_weight": -1.0}, {"kl_scores": [[0.1, "x"]]}):
        with pytest.raises(ValueError, match="`kl_"):
            restore({**described, **damaged}, classifier.classes_, ["x", "y", "z"])
    earlier = {name: each for name, each in described.items() if not name.startswith("kl_")}
    assert restore(earlier, classifier.classes_, ["x", "y", "z"]).kl_weight_ is None


def test_a_resumed_fit_chooses_the_same(tmp_path: Path) -> None:
    classifier = quick().fit(X[:ROWS], **STATED, checkpoint=tmp_path / "run.pt", log=tmp_path / "log.jsonl")
    log = (tmp_path / "log.jsonl").read_text()
    again = quick().fit(X[:ROWS], **STATED, checkpoint=tmp_path / "run.pt", log=tmp_path / "log.jsonl")
    assert again.kl_scores_ == classifier.kl_scores_
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert (tmp_path / "log.jsonl").read_text() == log


@pytest.mark.parametrize(
    ("rows", "settings", "expected"),
    [(3000, {}, 500), (25_600, {}, 1000), (100_000, {}, 2000), (3000, {"steps": 3000}, 3000)],
)
def test_default_steps(rows: int, settings: dict[str, Any], expected: int) -> None:
    """500, or ten passes in batches of 256, up to 2000; 2000 with labels."""
    inputs, groups = torch.zeros(rows, 1), torch.zeros(rows, dtype=torch.long)
    known = module.GroupRows(inputs, groups, None, ("a",), torch.tensor([[0.5, 0.5]]), torch.tensor([1.0]))
    none = module.Rows(inputs, torch.empty(0, dtype=torch.long), None, None, known)
    assert steps_for(SummaryClassifier(**settings), none) == expected
    labels = module.Rows(inputs, groups, None, None, known)
    assert steps_for(SummaryClassifier(**settings), labels) == settings.get("steps", 2000)
