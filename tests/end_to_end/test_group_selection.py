"""Settings and concentrations that are chosen by held-out groups, in training runs of their own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, cross_val_score
from unit.estimator.test_selection import FRACTIONS, ROWS, TOWN, X, people

from selbo.estimator import GroupScorer, GroupSplit, SummaryClassifier


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_scikit_learn_selects_by_held_out_groups(routing: None) -> None:
    """A classifier that cannot learn anything is not chosen."""
    scorer = GroupScorer(FRACTIONS)
    classifier = SummaryClassifier(hidden=(), kl_weight=0.1, steps=30, num_samples=8, random_state=0)
    classifier.set_fit_request(groups=True, group_fractions=True)
    given = {"groups": TOWN[:ROWS], "group_fractions": scorer.group_fractions}
    for parts in (False, True):
        cv = GroupSplit(2, parts=parts, random_state=0)
        search = GridSearchCV(classifier, {"learning_rate": [1e-9, 0.05]}, scoring=scorer, cv=cv)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="predictions miss the stated fractions")
            search.fit(X[:ROWS], **given)
        assert search.best_params_ == {"learning_rate": 0.05}
        assert search.score(X[:ROWS], groups=TOWN[:ROWS]) == pytest.approx(
            scorer(search.best_estimator_, X[:ROWS], groups=TOWN[:ROWS])
        )
    found = cross_val_score(
        classifier.set_params(learning_rate=0.05),
        X[:ROWS],
        scoring=scorer,
        cv=GroupSplit(4, random_state=0),
        params=given,
    )
    assert found.shape == (4,)


def test_the_concentration_is_estimated_by_held_out_groups(seed: int) -> None:
    """Noisy fractions are worth less than counted ones."""
    found = {}
    for noise in (0.0, 0.2):
        X, _, town, fractions = people(seed, noise=noise)
        classifier = SummaryClassifier(
            hidden=(), kl_weight=0.1, steps=80, learning_rate=0.05, num_samples=8, random_state=seed
        )
        classifier.fit(X[:ROWS], groups=town[:ROWS], group_fractions=fractions, group_concentration="auto")
        assert classifier.group_summary_ is not None
        strengths = set(classifier.group_summary_.concentration.tolist())
        assert len(strengths) == 1
        (found[noise],) = strengths
    assert found[0.2] < found[0.0]
    assert found[0.2] <= 20  # .2 is the standard deviation at a concentration of about 5
