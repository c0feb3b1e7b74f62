"""Labels come first: the weight of a summary term by step, the limit of its concentration, the check at the end."""

from __future__ import annotations

import warnings

import pytest
import torch

import selbo
from selbo.objectives import LabelCheck
from selbo.objectives.label_priority import check_labels, limited_to_labels

BINS = selbo.ScoreBins.equal(5)


def summary(concentration: float | None = None, **options: object) -> selbo.SummaryLikelihood:
    given = {} if concentration is None else {"concentration": concentration}
    return selbo.SummaryLikelihood(BINS, selbo.expect(accuracy=0.9), **given, **options)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 100, 5001])
def test_the_weight_grows_once_from_nothing_to_all(steps: int) -> None:
    weights = [selbo.labels_first(step, steps) for step in range(steps)]
    assert weights == sorted(weights)
    assert weights[-1] == 1.0
    assert sum(each == 0 for each in weights[: steps // 4]) == steps // 4
    assert all(each == 1 for each in weights[(steps + 1) // 2 :])
    as_tensors = [selbo.labels_first(torch.tensor(step), torch.tensor(steps)).item() for step in range(steps)]
    assert as_tensors == pytest.approx(weights, abs=1e-6)
    mixed = selbo.labels_first(torch.tensor(steps // 3), steps)
    assert mixed.item() == pytest.approx(weights[steps // 3], abs=1e-6)


def test_without_a_step_the_weight_is_whole() -> None:
    assert selbo.labels_first(None, 10) == selbo.labels_first(3, None) == 1.0


def test_objectives_wait_for_the_labels() -> None:
    network, inputs = selbo.models.MLP((3, 2), generator=torch.Generator().manual_seed(0)), torch.ones(4, 3)
    objective = selbo.CrossEntropy(4, summary())
    by_step = [objective(network, inputs, torch.tensor([0, 1, 1, 0]), step=step, steps=8) for step in range(8)]
    assert [terms.weights["log_summary"] for terms in by_step] == [0, 0, 0.5, 1, 1, 1, 1, 1]
    assert by_step[0].loss.item() == pytest.approx(-by_step[0].log_likelihood.item() / 4)
    with pytest.raises(ValueError, match="`steps`, the number of steps of the whole run, must be given"):
        objective(network, inputs, torch.tensor([0, 1, 1, 0]), step=3)
    at_once = selbo.CrossEntropy(4, summary(), summary_warmup=0)
    assert at_once(network, inputs, torch.tensor([0, 1, 1, 0]), step=0).weights["log_summary"] == 1


def test_a_concentration_is_limited_within_the_block_alone() -> None:
    stated, free, small = (
        summary(5000.0),
        summary(5000.0, overrule_labels=True, name="free"),
        summary(7.0, name="small"),
    )
    objective = selbo.CrossEntropy(30, [stated, free, small])
    with (
        pytest.warns(UserWarning, match="the concentration 5000 exceeds the number of labels, so 30 is used"),
        limited_to_labels(objective, 30),
    ):
        assert [each.concentration.item() for each in (stated, free, small)] == [30, 5000, 7]
    assert [each.concentration.item() for each in (stated, free, small)] == [5000, 5000, 7]


def test_the_default_concentration_is_limited_without_a_word() -> None:
    default = summary()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with limited_to_labels(selbo.CrossEntropy(30, default), 30):
            assert default.concentration.item() == 30
    assert default.concentration.item() == 1000


def test_fit_limits_the_concentration() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(32, 3, generator=generator)
    data = inputs, (inputs[:, 0] > 0).long()

    def last_term(given: selbo.SummaryLikelihood) -> float:
        network = selbo.models.MLP((3, 2), generator=torch.Generator().manual_seed(1))
        return selbo.fit(network, selbo.CrossEntropy(32, given), data, steps=1, batch_size=32).curve[0, 3].item()

    assert last_term(summary()) == last_term(summary(32.0))
    assert last_term(summary(900.0, overrule_labels=True)) != last_term(summary(32.0))


def test_more_weight_than_that_of_all_labels_may_overrule_them() -> None:
    belief = selbo.expect(accuracy=0.9)
    for share, overrules in ((0.5, False), (1.0, False), (3.0, True)):
        assert (
            selbo.SummaryLikelihood.for_data(BINS, belief, 50, concentration_per_label=share).overrule_labels
            is overrules
        )


def test_labels_are_compared_with_the_most_frequent_class() -> None:
    labels = torch.tensor([0] * 90 + [1] * 10)
    constant = torch.tensor([[0.9, 0.1]]).log().expand(100, 2)
    assert check_labels(constant, labels) == LabelCheck(0.9, 0.9, pytest.approx(100))
    assert not check_labels(constant, labels).below_majority
    assert check_labels(constant.flip(-1), labels).below_majority
    text = str(check_labels(constant.flip(-1), labels))
    assert "correct on 10 % of the labelled training examples" in text
    assert "would be on 90 %" in text
    weighted = check_labels(constant.flip(-1), labels, weights=torch.tensor([0.0] * 90 + [2.0] * 10))
    assert weighted == LabelCheck(1.0, 1.0, pytest.approx(10))
