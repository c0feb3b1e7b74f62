"""Counts of confusion, and recall and precision with Wilson's intervals, against scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from selbo.metrics import classwise, recall


@pytest.mark.parametrize(("correct", "of"), [(0, 1), (1, 1), (0, 7), (7, 7), (3, 10), (1, 400), (399, 400), (50, 100)])
def test_the_interval_is_wilsons(correct: int, of: int) -> None:
    expected = binomtest(correct, of).proportion_ci(0.95, method="wilson")
    found = classwise.wilson_interval(correct, of)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= found[0] <= correct / of <= found[1] <= 1


@pytest.mark.parametrize(("correct", "of"), [(1, 0), (-1, 4), (5, 4)])
def test_an_impossible_proportion_is_refused(correct: int, of: int) -> None:
    with pytest.raises(ValueError, match=f"but got {correct} of {of}"):
        classwise.wilson_interval(correct, of)


def test_confusion_agrees_with_scikit_learn(seed: int) -> None:
    from sklearn.metrics import confusion_matrix, precision_score, recall_score

    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (90,), generator=generator)  # class 4 has no rows
    scores = torch.randn(90, 5, generator=generator) + 2 * torch.eye(5)[labels]
    scores[:, 3] = -9.0  # never predicted
    guesses = scores.argmax(-1).numpy()
    expected = confusion_matrix(labels.numpy(), guesses, labels=range(5))
    counts = classwise.confusion(scores, labels)
    assert counts == {(int(i), int(j)): int(expected[i, j]) for i, j in zip(*np.nonzero(expected), strict=True)}
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    found = classwise.per_class(counts, num_classes=5)
    assert [each.recall for each in found] == recall(scores, labels)
    assert (found[3].precision, found[3].precision_interval, found[4].recall) == (None, None, None)
    for k in (0, 1, 2):
        picked = {"labels": [k], "average": "macro", "zero_division": 0}
        assert found[k].recall == pytest.approx(recall_score(labels.numpy(), guesses, **picked))
        assert found[k].precision == pytest.approx(precision_score(labels.numpy(), guesses, **picked))
        assert found[k].recall_interval == classwise.wilson_interval(found[k].correct, found[k].rows)
        assert found[k].precision_interval == classwise.wilson_interval(found[k].correct, found[k].predicted)


def test_many_classes_take_no_more_room_than_the_rows() -> None:
    labels = torch.arange(3)
    scores = torch.zeros(3, 50_000)
    assert len(classwise.confusion(scores, labels)) == 3
