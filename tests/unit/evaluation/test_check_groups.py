"""Which groups contradict their stated fractions: against scipy, and error rates by simulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import selbo
from selbo.evaluation.check_groups import GROUP_SIGNIFICANCE, GroupCheck


def summary_of(fractions: object, concentration: object = 100.0, **others: object) -> selbo.GroupedSummary:
    classes = torch.as_tensor(np.asarray(fractions)).shape[-1]
    return selbo.GroupedSummary(
        selbo.ClassRegions(classes), torch.as_tensor(np.asarray(fractions)), concentration, form="counts", **others
    )


def test_one_group_of_labels_against_scipy() -> None:
    labels = torch.tensor([1] * 30 + [0] * 10)
    (found,) = selbo.check_groups(summary_of([[0.45, 0.55]], 60.0), torch.zeros(40, dtype=torch.long), labels=labels)
    law = stats.betabinom(40, 0.45 * 60 + 0.5, 0.55 * 60 + 0.5)
    assert found.p_value == pytest.approx(2 * min(law.cdf(10), law.sf(9)), rel=1e-9)
    assert found.observed == (0.25, 0.75)
    assert found.claimed == pytest.approx((0.45, 0.55))
    beta = stats.beta(0.55 * 60 + 0.5, 0.45 * 60 + 0.5)
    assert found.claimed_interval[1] == pytest.approx((beta.ppf(0.025), beta.ppf(0.975)))
    assert found.observed_interval[0] == pytest.approx(stats.beta(10.5, 30.5).interval(0.95))
    assert found.num_examples == 40
    assert found.by_labels


def test_one_group_of_predictions_against_the_gaussian_form(seed: int) -> None:
    p = torch.from_numpy(np.random.default_rng(seed).random(25))
    rows = torch.stack([1 - p, p], 1)
    (found,) = selbo.check_groups(
        summary_of([[0.7, 0.3]], 60.0), torch.zeros(25, dtype=torch.long), log_probs=rows.log(), sizes=[80]
    )
    variance = float((p * (1 - p)).sum()) + 0.21 * 25**2 / 61 + 0.21 * 25 * 55 / 79 + 1 / 12
    expected = 2 * stats.norm.sf(abs(25 * 0.3 - float(p.sum())) / np.sqrt(variance))
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    assert found.observed[1] == pytest.approx(float(p.mean()))
    half = 1.959964 * float((p * (1 - p)).sum()) ** 0.5 / 25
    assert found.observed_interval[1] == pytest.approx((float(p.mean()) - half, float(p.mean()) + half), rel=1e-6)
    assert not found.by_labels


def test_p_values_are_corrected_for_the_number_of_groups() -> None:
    """Holm: the smallest times the number of groups, the next times one less, never decreasing."""
    counts = [10, 14, 20, 24]
    labels = torch.cat([torch.tensor([1] * each + [0] * (40 - each)) for each in counts])
    groups = torch.arange(4).repeat_interleave(40)
    alone = [
        selbo.check_groups(summary_of([[0.5, 0.5]]), torch.zeros(40, dtype=torch.long), labels=labels[groups == k])[0]
        for k in range(4)
    ]
    raw = np.array([each.p_value for each in alone])
    assert raw[0] < raw[1] < raw[3] < raw[2]
    expected = np.array([4 * raw[0], 3 * raw[1], 1.0, min(1, 2 * raw[3])])
    together = selbo.check_groups(summary_of([[0.5, 0.5]] * 4), groups, labels=labels)
    assert [each.p_value for each in together] == pytest.approx(expected.tolist())


def test_only_groups_with_examples_are_checked_and_named() -> None:
    towns = selbo.GroupedSummary(selbo.ClassRegions(2), {"a": [0.5, 0.5], "b": [0.9, 0.1], "c": [0.2, 0.8]}, 200.0)
    group = towns.index(["c"] * 50 + [None] * 3 + ["b"] * 50)
    labels = torch.tensor([1] * 41 + [0] * 12 + [1] * 50)
    found = selbo.check_groups(towns, group, labels=labels)
    assert [each.group for each in found] == ["b", "c"]
    assert [each.contradicted for each in found] == [True, False]
    assert str(found[0]).startswith("group 'b': contradicted by 50 labels (stated 0.900 0.100, found 0.000 1.000; p = ")
    assert selbo.check_belief(towns, labels, groups=group) == found


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("by_labels", [True, False])
def test_true_statements_are_contradicted_at_most_at_the_level(classes: int, by_labels: bool, seed: int) -> None:
    """Fractions deviate as their concentration says, labels are samples, predictions are calibrated."""
    generator = np.random.default_rng(seed)
    alarms, runs = 0, 150
    for _ in range(runs):
        size, groups = 30, 8
        p = generator.dirichlet(np.full(classes, 0.7), size=(groups, size))
        labels = (p.cumsum(-1) < generator.random((groups, size, 1))).sum(-1).clip(max=classes - 1)
        true = np.stack([(labels == k).mean(1) for k in range(classes)], 1)
        stated = np.stack([generator.dirichlet(80 * each + 1e-3) for each in true]).clip(1e-9)
        summary = summary_of(stated / stated.sum(1, keepdims=True), 80.0)
        index = torch.arange(groups).repeat_interleave(size)
        given = (
            {"labels": torch.from_numpy(labels.ravel())}
            if by_labels
            else {"log_probs": torch.from_numpy(p.reshape(-1, classes)).clamp(min=1e-300).log()}
        )
        alarms += any(each.contradicted for each in selbo.check_groups(summary, index, level=0.05, **given))
    assert alarms <= stats.binom.ppf(1 - 1e-7, runs, 0.05)


def test_a_few_members_of_true_groups_seldom_contradict_them(seed: int) -> None:
    """Five of 24 members, with probabilities near 0 and 1, whose spread so few do not show."""
    generator, alarms, runs = np.random.default_rng(seed), 0, 150
    seen = torch.arange(24).repeat_interleave(5)
    for _ in range(runs):
        yes = generator.beta(0.3, 0.3, size=(24, 24)).clip(1e-6, 1 - 1e-6)
        counted = (generator.random(yes.shape) < yes).mean(1)
        given = torch.from_numpy(np.stack([1 - yes[:, :5], yes[:, :5]], -1).reshape(-1, 2)).log()
        stated = summary_of(np.stack([1 - counted, counted], 1), 2400.0)
        found = selbo.check_groups(stated, seen, log_probs=given, sizes=[24] * 24)
        alarms += any(each.contradicted for each in found)
    assert alarms <= stats.binom.ppf(1 - 1e-7, runs, GROUP_SIGNIFICANCE)


def test_a_wrong_group_among_many_is_found(seed: int) -> None:
    generator = np.random.default_rng(seed)
    p = generator.beta(2, 2, size=(200, 100))
    stated = p.mean(1)
    stated[17] += 0.4 if stated[17] < 0.5 else -0.4
    rows = torch.from_numpy(np.stack([1 - p, p], -1).reshape(-1, 2)).log()
    index = torch.arange(200).repeat_interleave(100)
    found = selbo.check_groups(summary_of(np.stack([1 - stated, stated], 1), 200.0), index, log_probs=rows)
    assert [each.group for each in found if each.contradicted] == [17]


def test_a_fraction_of_zero_is_uncertain_too() -> None:
    towns = summary_of([[1.0, 0.0]], 20.0)
    group = torch.zeros(30, dtype=torch.long)
    for count, contradicted in ((1, False), (20, True)):
        (found,) = selbo.check_groups(towns, group, labels=torch.tensor([1] * count + [0] * (30 - count)))
        assert found.contradicted == contradicted
        assert found.claimed_interval[1][0] == 0.0
        assert found.claimed_interval[1][1] == pytest.approx(stats.beta.ppf(0.975, 0.5, 20.5))


def test_unlabelled_examples_are_left_out() -> None:
    summary = summary_of([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    groups = torch.tensor([0] * 30 + [1] * 30 + [2] * 5)
    labels = torch.arange(65) % 2
    mask = (torch.arange(65) % 3 == 0) | (groups == 2)
    found = selbo.check_groups(summary, groups, labels=torch.where(mask, -1, labels))
    assert found == selbo.check_groups(summary, groups[~mask], labels=labels[~mask])
    assert [each.group for each in found] == [0, 1]
    assert selbo.check_belief(summary, torch.where(mask, -1, labels), groups=groups) == found


SUMMARY = summary_of([[0.5, 0.5]])
NAMED = selbo.GroupedSummary(selbo.ClassRegions(2), {"a": [0.5, 0.5], "b": [0.2, 0.8]}, 10.0)
GROUP = torch.zeros(3, dtype=torch.long)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": torch.tensor([0, 1, 2])}, "`labels` must be classes from 0 to 1"),
        ({"labels": torch.tensor([0, 1])}, "one group per example, 2, but holds 3"),
        ({}, "`labels` or `log_probs` must be given"),
        ({"labels": torch.tensor([0, 1, 1]), "groups": GROUP + 1}, "from 0 to 0, or -1"),
        (
            {"summary": NAMED, "labels": torch.tensor([0, 1, 1]), "groups": ["a", "b", "b"]},
            r"`groups` must hold groups as whole numbers, shape \(B,\), but got list: pass `summary.index\(names\)`$",
        ),
        (
            {"summary": NAMED, "labels": torch.tensor([0, 1, 1]), "groups": np.array(["a", "b", "b"])},
            r"but got <U1: pass `summary.index\(names\)`$",
        ),
        ({"labels": torch.tensor([0, 1, 1]), "groups": GROUP + 0.5}, r"shape \(B,\), but got torch.float32$"),
        ({"labels": torch.tensor([-1, -1, -1])}, "`labels` must hold the class of some example, but all 3 are -1"),
        ({"labels": torch.tensor([-2, -1, 1])}, "`labels` must be classes from 0 to 1, but got -2"),
        (
            {"summary": NAMED, "labels": torch.tensor([0, 1, 1]), "sizes": [3]},
            r"`sizes` must be one number, or 2, one per group, but has shape \(1,\)",
        ),
        ({"labels": torch.tensor([0, 1, 1]), "level": 0.0}, "`level` must lie"),
        ({"labels": torch.tensor([0, 1, 1]), "summary": 3}, "must be a selbo.GroupedSummary, but got int"),
        (
            {
                "labels": torch.tensor([0, 1, 1]),
                "summary": selbo.GroupedSummary(selbo.ScoreBins.equal(3), [[0.2, 0.3, 0.5]], 3.0),
            },
            "must state class fractions",
        ),
    ],
)
def test_what_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        selbo.check_groups(**{"summary": SUMMARY, "groups": GROUP, **arguments})


def test_check_belief_needs_groups_for_groups_alone() -> None:
    one = selbo.SummaryLikelihood(selbo.ClassRegions(2), selbo.Masses([0.5, 0.5]), 10.0)
    labels = torch.tensor([0, 1, 1])
    with pytest.raises(ValueError, match="`groups` must be given"):
        selbo.check_belief(SUMMARY, labels)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="is for a selbo"):
        selbo.check_belief(one, labels, groups=GROUP)  # type: ignore[call-overload]
    (found,) = selbo.check_belief(SUMMARY, labels, groups=GROUP)
    assert isinstance(found, GroupCheck)
    assert found.level == GROUP_SIGNIFICANCE
