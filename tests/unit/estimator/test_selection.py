"""Model selection without labels: which rows are held out, what the score is, and that scikit-learn takes both."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import cross_val_score

import selbo
from selbo.estimator import GroupScorer, GroupSplit, SummaryClassifier
from selbo.estimator import classifier as module

TOWNS, SIZE = 16, 30
ROWS = TOWNS * SIZE


def people(seed: int = 0, *, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, list[float]]]:
    """Features, labels and towns of 480 people and 960 others, and stated fractions of the first by town."""
    generator = np.random.default_rng(seed)
    town = np.arange(3 * ROWS) % TOWNS
    X = 1.5 * generator.normal(size=(TOWNS, 2))[town] + generator.normal(size=(3 * ROWS, 2))
    y = (generator.random(3 * ROWS) < 1 / (1 + np.exp(2 * X[:, 1] - 2 * X[:, 0]))).astype(int)
    yes = np.array([y[:ROWS][town[:ROWS] == each].mean() for each in range(TOWNS)])
    yes = np.clip(yes + noise * generator.normal(size=TOWNS), 0.02, 0.98)
    names = np.array([f"town {each}" for each in range(TOWNS)])
    return X, y, names[town], {f"town {k}": [1 - each, each] for k, each in enumerate(yes)}


X, Y, TOWN, FRACTIONS = people()


class Known:
    """A classifier that knows the probability of each row."""

    classes_ = np.array([0, 1])

    def __init__(self, probs: np.ndarray) -> None:
        self.probs = probs

    def predict_log_proba(self, X: np.ndarray) -> np.ndarray:
        return np.log(np.stack([1 - self.probs, self.probs], 1)[X[:, 0].astype(int)])


# --- splits ---


def test_whole_groups_are_held_out_once(seed: int) -> None:
    sizes = {"a": 10, "b": 20, "c": 30, "d": 5, "e": 5, "f": 30}
    groups = np.array([name for name, size in sizes.items() for _ in range(size)] + [None] * 3, dtype=object)
    folds = list(GroupSplit(3, random_state=seed).split(np.zeros((103, 1)), groups=groups))
    assert len(folds) == GroupSplit(3).get_n_splits() == 3
    held_out = [set(groups[test]) for _, test in folds]
    assert sorted(name for each in held_out for name in each) == list("abcdef")
    for train, test in folds:
        assert sorted([*train, *test]) == list(range(103))
        assert not set(groups[train]) & set(groups[test])
        assert 25 <= len(test) <= 40  # as equal as such groups allow
        assert {100, 101, 102} <= set(train.tolist())


def test_parts_of_all_groups_are_held_out_once(seed: int) -> None:
    groups = np.array([name for name, size in {"a": 10, "b": 21, "c": 3}.items() for _ in range(size)])
    folds = list(GroupSplit(3, parts=True, random_state=seed).split(np.zeros((34, 1)), groups=groups))
    assert sorted(row for _, test in folds for row in test) == list(range(34))
    for _, test in folds:
        found = Counter(groups[test].tolist())
        assert found["b"] == 7
        assert found["c"] == 1
        assert found["a"] in (3, 4)
    again = list(GroupSplit(3, parts=True, random_state=seed).split(np.zeros((34, 1)), groups=groups))
    assert all((one[1] == other[1]).all() for one, other in zip(folds, again, strict=True))


def test_splits_that_are_refused() -> None:
    with pytest.raises(ValueError, match="`groups` must be given"):
        next(GroupSplit().split(np.zeros((3, 1))))
    with pytest.raises(ValueError, match="at least 5 groups, one per fold, but holds 2"):
        next(GroupSplit().split(np.zeros((3, 1)), groups=["a", "b", "b"]))
    with pytest.raises(ValueError, match="`n_splits` must be"):
        GroupSplit(1)


# --- the score ---


@pytest.mark.parametrize("part", [False, True])
def test_the_score_is_the_likelihood_of_the_counts(part: bool) -> None:
    """Against the Gaussian formula, for two groups of which one is stated and not there."""
    probs = np.random.default_rng(0).random(60)
    groups = np.array(["a"] * 20 + ["b"] * 40)
    fractions = {"a": [0.3, 0.7], "b": [0.6, 0.4], "c": [0.5, 0.5]}
    sizes = {"a": 50, "b": 40, "c": 3} if part else None
    scorer = GroupScorer(fractions, 25.0, group_sizes=sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = scorer(Known(probs), np.arange(60)[:, None], groups=groups)
    expected = 0.0
    for name, f in (("a", 0.7), ("b", 0.4)):
        p = probs[groups == name]
        n, total = len(p), (sizes or {}).get(name, len(p))
        f = (25 * f + 0.5) / 26  # pseudo-observations of the classifier
        variance = (p * (1 - p)).sum() + f * (1 - f) * (n * n / 26 + n * (total - n) / max(total - 1, 1)) + 1 / 12
        expected += -0.5 * ((n * f - p.sum()) ** 2 / variance + np.log(2 * np.pi * variance))
    assert found == pytest.approx(expected / 2, rel=1e-9)


def test_the_true_probabilities_have_the_best_score(seed: int) -> None:
    generator = np.random.default_rng(seed)
    group = np.arange(6000) % 60
    logits = generator.normal(size=60)[group] + generator.normal(size=6000)
    p = 1 / (1 + np.exp(-logits))
    y = generator.random(6000) < p
    fractions = {f"{k}": [1 - y[group == k].mean(), y[group == k].mean()] for k in range(60)}
    scorer = GroupScorer(fractions, 1e6)
    names = [f"{k}" for k in group]
    scores = [
        scorer(Known(1 / (1 + np.exp(-scale * logits - shift))), np.arange(6000)[:, None], groups=names)
        for scale, shift in ((1.0, 0.0), (1.0, 0.5), (0.2, 0.0), (5.0, 0.0))
    ]
    assert scores[0] == max(scores)


def test_another_order_of_classes_is_refused() -> None:
    scorer = GroupScorer({"a": {"no": 0.3, "yes": 0.7}})
    with pytest.raises(ValueError, match=r"must have the classes .*'no', 'yes'.*, but has"):
        scorer(Known(np.ones(3) / 2), np.zeros((3, 1)), groups=["a"] * 3)


def test_what_a_scorer_refuses() -> None:
    fractions = {"a": [0.3, 0.7], "b": [0.6, 0.4]}
    with pytest.raises(ValueError, match="`group_fractions` must be a mapping from group to its value, but got list"):
        GroupScorer([0.3, 0.7])  # type: ignore[arg-type]
    known, X = Known(np.ones(3) / 2), np.zeros((3, 1))
    with pytest.raises(ValueError, match="`group_sizes` must state every group in `groups`, but 'b' is missing"):
        GroupScorer(fractions, 5.0, group_sizes={"a": 3})(known, X, groups=["a", "b", "b"])
    with pytest.raises(ValueError, match=r"one per row, but is None: .*set_config\(enable_metadata_routing=True\)"):
        GroupScorer(fractions)(known, X)


def test_the_sizes_of_whole_groups_decide_the_concentration_of_parts(seed: int) -> None:
    """By default, as in training on whole groups: 100 for groups that were counted, of which a part is scored."""
    fractions = {"a": [0.3, 0.7], "b": [0.6, 0.4], "c": [0.5, 0.5]}
    groups, sizes = ["a"] * 3 + ["b"] * 4 + ["c"] * 5, {"a": 20, "b": 20, "c": 30}
    known, X = Known(np.random.default_rng(seed).random(12)), np.arange(12)[:, None]
    found, same, fewer = (
        GroupScorer(fractions, given, group_sizes=sizes)(known, X, groups=groups) for given in (None, 100.0, 20.0)
    )
    assert found == same != fewer


# --- with scikit-learn ---


def test_without_routing_scikit_learn_says_how_to_enable_it() -> None:
    classifier = DummyClassifier()
    with pytest.raises(ValueError, match=r"sklearn.set_config\(enable_metadata_routing=True\)"):
        cross_val_score(classifier, X[:ROWS], Y[:ROWS], scoring=GroupScorer(FRACTIONS), cv=2, error_score="raise")


# --- in the classifier ---


@pytest.mark.slow
def test_early_stopping_can_hold_out_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def spied(model: Any, objective: Any, train: Any, val: Any, **options: Any) -> Any:
        calls.append((train, val, options["groups"]))
        return selbo.fit(model, objective, train, val, **options)

    monkeypatch.setattr(module, "fit", spied)
    classifier = SummaryClassifier(
        hidden=(8,), steps=30, learning_rate=0.3, num_samples=8, random_state=0, early_stopping="groups"
    ).fit(X[:ROWS], groups=TOWN[:ROWS], group_fractions=FRACTIONS)
    assert 0 < classifier.n_iter_ <= 30
    ((inputs, _), (held_out, _), groups) = calls[-1]  # those before choose the weight of the KL
    assert len(held_out) == 3 * SIZE  # a fifth of 16 groups, rounded
    assert len(inputs) == ROWS - 3 * SIZE
    assert len(groups.unique()) == 13
    with pytest.raises(ValueError, match="`early_stopping` must be"):
        SummaryClassifier(early_stopping="rows").fit(X[:ROWS], groups=TOWN[:ROWS], group_fractions=FRACTIONS)
    with (
        pytest.warns(UserWarning, match="are the same in all groups"),
        pytest.raises(ValueError, match="at least 2 groups are needed"),
    ):
        SummaryClassifier(early_stopping="groups").fit(X[:ROWS], groups=["a"] * ROWS, group_fractions={"a": [0.5, 0.5]})


def test_an_estimated_concentration_needs_groups() -> None:
    classifier = SummaryClassifier(hidden=(), steps=2, random_state=0)
    stated = {"groups": TOWN[:ROWS], "group_fractions": FRACTIONS}
    with pytest.raises(ValueError, match="or 'auto': 'many'"):
        classifier.fit(X[:ROWS], **stated, group_concentration="many")
    with (
        pytest.warns(UserWarning, match="are the same in all groups"),
        pytest.raises(ValueError, match="if there is one group"),
    ):
        classifier.fit(X[:ROWS], groups=["a"] * ROWS, group_fractions={"a": [0.5, 0.5]}, group_concentration="auto")


@pytest.mark.slow
def test_the_estimate_is_used_for_training(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only that training is in the checkpoint: none of those that the estimate needs resumes from it."""
    monkeypatch.setattr(module, "GROUP_CONCENTRATIONS", (7.0,))
    stated = {"groups": TOWN[:ROWS], "group_fractions": FRACTIONS}
    settings = {
        "hidden": (4,),
        "steps": 20,
        "num_samples": 8,
        "learning_rate": 0.03,
        "kl_weight": 0.1,
        "random_state": 0,
    }
    found, expected, again = (
        SummaryClassifier(**settings)
        .fit(X[:ROWS], **stated, group_concentration=each, checkpoint=tmp_path / file)
        .predict_proba(X[ROWS:])
        for each, file in (("auto", "estimated"), (7.0, "stated"), ("auto", "stated"))
    )
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again, expected)
    assert torch.from_numpy(found).isfinite().all()
