"""Trees of scikit-learn as tensors: the same predictions, and no node that is not there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from selbo.estimator import forest as forests
from selbo.estimator.forest import Forest
from tests.unit.estimator.small import blobs


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
@pytest.mark.parametrize("leaf", [1, 5])
def test_a_forest_predicts_what_scikit_learn_does(kind, leaf, monkeypatch) -> None:
    X, y = blobs(200)
    model = kind(12, min_samples_leaf=leaf, random_state=0).fit(X[:120], y[:120])
    forest = Forest.from_trees(model.estimators_)
    expected = model.predict_proba(X[120:])
    np.testing.assert_allclose(forest(torch.from_numpy(X[120:])), expected, atol=1e-6)
    monkeypatch.setattr(forests, "MOST_PATHS", 30)  # a few rows at a time
    np.testing.assert_allclose(forest(torch.from_numpy(X[120:])), expected, atol=1e-6)


def test_values_at_a_threshold_go_to_the_left_in_single_precision() -> None:
    X, y = np.array([[0.1], [0.2], [0.3], [0.4]]), np.array([0, 0, 1, 1])
    model = RandomForestClassifier(5, bootstrap=False, random_state=0).fit(X, y)
    forest = Forest.from_trees(model.estimators_)
    threshold = model.estimators_[0].tree_.threshold[0]
    at = np.array([[threshold], [np.nextafter(threshold, 1)], [threshold + 1e-4]])
    np.testing.assert_array_equal(forest(torch.from_numpy(at)), model.predict_proba(at))


def test_a_state_is_loaded_into_a_forest_of_its_shapes() -> None:
    X, y = blobs(60)
    forest = Forest.from_trees(RandomForestClassifier(3, random_state=0).fit(X, y).estimators_)
    other = Forest.with_shapes(len(forest.features), 3, 3)
    other.load_state_dict(forest.state_dict())
    other.require_sound(4)
    assert torch.equal(other(torch.from_numpy(X)), forest(torch.from_numpy(X)))


@pytest.mark.parametrize(("name", "value"), [("features", 4), ("branches", 10**6), ("roots", -1), ("depth", 10**6)])
def test_a_node_that_is_not_there_is_refused(name, value) -> None:
    X, y = blobs(60)
    forest = Forest.from_trees(RandomForestClassifier(3, random_state=0).fit(X, y).estimators_)
    getattr(forest, name).view(-1)[0] = value
    with pytest.raises(ValueError, match="refer to features and nodes that it has"):
        forest.require_sound(4)
