"""`SummaryClassifier` taught by the class fractions of groups until it has learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from unit.estimator.towns import FRACTIONS, ROWS, STATED, TOWNS, X, Y, people, quick

import selbo
from selbo.estimator import SummaryClassifier


@pytest.mark.parametrize(
    ("settings", "steps"),
    [({"kl_weight": 0.1}, 400), ({"posterior": "natural_gradient"}, 400), ({"method": "plain_summary"}, 200)],
)
def test_fractions_alone_teach_individuals(settings: dict[str, Any], steps: int, seed: int) -> None:
    X, y, town, fractions = people(seed)
    rate = None if settings.get("posterior") else 0.01
    classifier = SummaryClassifier(
        **settings, hidden=(16,), steps=steps, learning_rate=rate, num_samples=32, random_state=seed
    ).fit(X[:ROWS], groups=town[:ROWS], group_fractions=fractions)
    of_town = np.array([fractions[each][1] > 0.5 for each in town[ROWS:]]).astype(int)
    by_rate = (of_town == y[ROWS:]).mean()
    assert classifier.score(X[ROWS:], y[ROWS:]) > by_rate + 0.05
    assert classifier.classes_.tolist() == [0, 1]
    assert classifier.n_unlabelled_ == ROWS
    probs = torch.from_numpy(classifier.predict_proba(X[ROWS:]))
    rates = torch.tensor([fractions[each] for each in town[ROWS:]]) * 0.98 + 0.01
    nll, nll_of_rates = (selbo.evaluate(each, torch.from_numpy(y[ROWS:]))["nll"] for each in (probs, rates))
    assert nll < nll_of_rates - 0.05


def test_counted_fractions_of_small_groups_do_not_break_a_natural_gradient(seed: int) -> None:
    """Groups of six, many of which are of one class: certain fractions at any concentration, if taken as they are."""
    X, y, _, _ = people(seed)
    group = np.arange(ROWS) // 6
    fractions = {each: [1 - y[:ROWS][group == each].mean(), y[:ROWS][group == each].mean()] for each in set(group)}
    classifier = SummaryClassifier(
        posterior="natural_gradient", hidden=(16,), steps=400, num_samples=32, random_state=seed
    ).fit(X[:ROWS], groups=group, group_fractions=fractions)
    scores = selbo.evaluate(torch.from_numpy(classifier.predict_proba(X[ROWS:])), torch.from_numpy(y[ROWS:]))
    assert scores["accuracy"] > 0.75
    assert scores["nll"] < 0.6


def test_labels_of_some_rows_are_learned_too() -> None:
    """One group, which teaches nothing about individuals: what is learned comes from the labels."""
    some = np.full(ROWS, -1)
    some[:200] = Y[:200]
    classifier = quick(steps=300)
    with pytest.warns(UserWarning, match="are the same in all groups"):
        classifier.fit(X[:ROWS], some, groups=["all"] * ROWS, group_fractions={"all": [0.5, 0.5]})
    assert classifier.score(X[ROWS:], Y[ROWS:]) > 0.75
    assert classifier.n_unlabelled_ == ROWS - 200


def test_an_accuracy_beside_the_groups_decides_how_sure_to_be() -> None:
    means = {}
    for accuracy in (0.7, 0.9):
        classifier = quick(accuracy=accuracy, kl_weight=0.1, steps=150, hidden=(16,))
        classifier.fit(X[:ROWS], **STATED, group_concentration=5.0)
        means[accuracy] = classifier.predict_proba(X[ROWS:]).max(1).mean()
        assert classifier.concentration_ == 5 * TOWNS  # as much as the groups
        assert classifier.summary_ is not None
        assert classifier.score(X[ROWS:], Y[ROWS:]) > 0.7
    assert means[0.7] + 0.05 < means[0.9]


def test_a_network_that_contradicts_all_groups_is_reported() -> None:
    """Labels that say the opposite of the fractions, and weigh more."""
    constant = np.mean([abs(yes - Y[:ROWS].mean()) for _, yes in FRACTIONS.values()])
    classifier = quick(steps=200, hidden=(16,))
    with pytest.warns(UserWarning, match=f"the same for everyone would miss them by {100 * constant:.3g}: train"):
        classifier.fit(X[:ROWS], 1 - Y[:ROWS], **STATED, group_concentration=0.1)
