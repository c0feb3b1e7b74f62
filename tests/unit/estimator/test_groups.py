"""`SummaryClassifier` taught by the class fractions of groups: what it accepts, what it refuses, what it keeps."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.base import clone
from unit.estimator.towns import FRACTIONS, ROWS, STATED, TOWN, TOWNS, X, Y, quick

import selbo
from selbo.estimator import classifier as module
from selbo.estimator.group_doubts import hardly_different, too_precise, unclear_directions, unrelated_inputs
from selbo.estimator.rows import GroupRows, score_by_groups
from selbo.estimator.storage import load_network, restore, save_classifier


class NAType:
    """What pandas puts in place of a missing value: it cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def test_stated_class_fractions_are_about_all_rows() -> None:
    stated = quick(class_fractions=[0.8, 0.2]).statement(X[:ROWS], **STATED)
    assert stated.class_fractions == [0.8, 0.2]
    assert len(stated.summaries) == 1
    alone = quick().statement(X[:ROWS], **STATED)
    assert alone.summaries == []
    assert alone.groups is not None
    assert alone.class_fractions == pytest.approx([1 - Y[:ROWS].mean(), Y[:ROWS].mean()])


# --- how it is stated ---


@pytest.mark.slow
def test_statements_that_say_the_same_give_the_same_classifier() -> None:
    """Lists, mappings by class, missing labels in every form, rows of weight zero."""
    names = np.array(["no", "yes"])
    by_class = {town: {"yes": yes, "no": no} for town, (no, yes) in FRACTIONS.items()}
    backwards = {town: [yes, no] for town, (no, yes) in FRACTIONS.items()}
    expected = quick().fit(X[:ROWS], **STATED, classes=["no", "yes"]).predict_proba(X[ROWS:])
    extra = np.concatenate([X[:ROWS], X[:5] + 100])
    towns = [*TOWN[:ROWS], *["nowhere"] * 5]
    for towns_given in (TOWN[:ROWS], pl.Series(TOWN[:ROWS])):
        found = quick().fit(X[:ROWS], groups=towns_given, group_fractions=by_class)
        assert found.classes_.tolist() == ["no", "yes"]
        np.testing.assert_array_equal(found.predict_proba(X[ROWS:]), expected)
        assert set(found.predict(X[ROWS:])) <= set(names)
    found = quick().fit(X[:ROWS], groups=TOWN[:ROWS], group_fractions=backwards, classes=["yes", "no"])
    np.testing.assert_array_equal(found.predict_proba(X[ROWS:]), expected)
    for missing in ([None] * ROWS, np.full(ROWS, np.nan), np.full(ROWS, -1), [NAType()] * ROWS):
        found = quick().fit(X[:ROWS], missing, **STATED)
        np.testing.assert_array_equal(found.predict_proba(X[ROWS:]), expected)
    weights = np.r_[np.ones(ROWS), np.zeros(5)]
    found = quick().fit(extra, sample_weight=weights, groups=towns, group_fractions=FRACTIONS)
    np.testing.assert_allclose(found.predict_proba(X[ROWS:]), expected, rtol=1e-6)


def test_missing_labels_in_every_form_are_the_same_rows() -> None:
    names = np.array(["no", "yes"])
    known = np.arange(ROWS) < 50
    by_class = {town: {"no": no, "yes": yes} for town, (no, yes) in FRACTIONS.items()}
    stated = {"groups": TOWN[:ROWS], "group_fractions": by_class}
    found = [
        quick(unlabelled_label=marker).fit(X[:ROWS], y, **stated).predict_proba(X[ROWS:])
        for marker, y in (
            (None, np.where(known, names[Y[:ROWS]], None)),
            (
                None,
                np.array(
                    [name if there else np.nan for name, there in zip(names[Y[:ROWS]], known, strict=True)], object
                ),
            ),
            (
                None,
                pl.Series([str(name) if there else None for name, there in zip(names[Y[:ROWS]], known, strict=True)]),
            ),
            ("?", np.where(known, names[Y[:ROWS]], "?")),
        )
    ]
    numbers = quick().fit(X[:ROWS], np.where(known, Y[:ROWS], np.nan), **STATED)
    for each in (*found[1:], numbers.predict_proba(X[ROWS:])):
        np.testing.assert_array_equal(each, found[0])
    assert numbers.n_unlabelled_ == ROWS - 50
    assert numbers.classes_.tolist() == [0, 1]


def test_minus_one_is_a_class_where_it_is_stated() -> None:
    signs = np.where(Y[:ROWS] == 1, 1, -1)
    by_class = {town: {-1: no, 1: yes} for town, (no, yes) in FRACTIONS.items()}
    for marker, given, classes in ((None, by_class, None), (None, FRACTIONS, [-1, 1]), (False, FRACTIONS, None)):
        classifier = quick(unlabelled_label=marker, steps=20)
        classifier.fit(X[:ROWS], signs, groups=TOWN[:ROWS], group_fractions=given, classes=classes)
        assert classifier.classes_.tolist() == [-1, 1]
        assert classifier.n_unlabelled_ == 0
    classifier = quick(unlabelled_label=-1, steps=20).fit(X[:ROWS], signs, **STATED)
    assert classifier.classes_.tolist() == [0, 1]
    assert classifier.n_unlabelled_ == (signs == -1).sum()


def test_rows_without_a_group_are_scaled_but_not_believed() -> None:
    towns = TOWN[:ROWS].astype(object)
    towns[::7] = None
    summary = quick().fit(X[:ROWS], groups=towns, group_fractions=FRACTIONS)
    np.testing.assert_allclose(summary.scale_.mean, X[:ROWS].mean(0))
    numbers = np.array([np.nan if each is None else int(each.split()[1]) for each in towns])
    by_number = {k: FRACTIONS[f"town {k}"] for k in range(TOWNS)}
    same = quick().fit(X[:ROWS], groups=numbers, group_fractions=by_number)
    np.testing.assert_array_equal(same.predict_proba(X[ROWS:]), summary.predict_proba(X[ROWS:]))


def test_fractions_counted_among_the_rows_are_recognised() -> None:
    """Whole numbers of rows in several small groups; small groups with other fractions were not counted here."""
    sizes = {"a": 7, "b": 9, "c": 30, "large": 200}
    groups = np.repeat(list(sizes), list(sizes.values()))
    counted = {"a": [3 / 7, 4 / 7], "b": [0.111, 0.889], "c": [0.3, 0.7], "large": [0.123, 0.877]}  # b is rounded
    sampled = {**counted, "b": [0.15, 0.85]}
    for fractions, posterior, expected in (
        (counted, None, [100, 100, 100, 100]),
        (counted, "natural_gradient", [7, 9, 30, 100]),
        (sampled, None, [7, 9, 30, 100]),
    ):
        classifier = quick() if posterior is None else quick(posterior=posterior)
        stated = classifier.statement(X[: len(groups)], groups=groups, group_fractions=fractions)
        assert stated.groups is not None
        assert stated.groups.concentration.tolist() == expected


def test_the_sizes_of_whole_groups_decide_if_rows_are_held_out() -> None:
    """Counts of 10, 20 and 30 rows, of which a few are not there."""
    sizes = {"a": 10, "b": 20, "c": 30}
    fractions = {"a": [0.3, 0.7], "b": [0.65, 0.35], "c": [0.1, 0.9]}
    groups = ["a"] * 7 + ["b"] * 17 + ["c"] * 23
    stated = {"groups": groups, "group_fractions": fractions}
    for given, expected in (
        ({}, [7, 17, 23]),
        ({"group_sizes": sizes}, [100, 100, 100]),
        ({"group_sizes": {**sizes, "d": 5, "a": 11}}, [11, 20, 30]),
    ):
        found = quick().statement(X[: len(groups)], **stated, **given).groups
        assert found is not None
        assert found.concentration.tolist() == expected
    with pytest.warns(UserWarning, match="is no whole number"):
        quick().statement(X[: len(groups)], **stated, group_concentration=1e4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick().statement(X[: len(groups)], **stated, group_concentration=1e4, group_sizes=sizes)


def test_concentrations_are_as_stated_or_by_default_at_most_a_hundred() -> None:
    towns = np.array(["large"] * 300 + ["small"] * 30 + ["tiny"] * 3)
    fractions = {"tiny": [0, 1], "small": [0.5, 0.5], "large": [0.2, 0.8]}
    for given, expected in (
        (None, {"tiny": 3, "small": 30, "large": 100}),
        (7, {"tiny": 7, "small": 7, "large": 7}),
        ({"tiny": 1, "small": 2, "large": 3.5}, {"tiny": 1, "small": 2, "large": 3.5}),
    ):
        stated = quick().statement(X[:333], groups=towns, group_fractions=fractions, group_concentration=given)
        assert stated.groups is not None
        assert stated.groups.concentration.tolist() == [expected[each] for each in fractions]
    classifier = quick().fit(X[:ROWS], **STATED, group_concentration=7)
    assert classifier.group_summary_ is not None
    assert classifier.group_summary_.concentration.tolist() == [7] * TOWNS
    assert classifier.groups_ == tuple(FRACTIONS)
    assert classifier.concentration_ is None
    assert classifier.summary_ is None


# --- warnings and errors ---


def test_rounded_fractions_are_normalised() -> None:
    def summary(first: list[float]) -> selbo.GroupedSummary:
        fractions = FRACTIONS | {"town 0": first}
        fitted = quick(steps=1, kl_weight=0.1).fit(X[:ROWS], groups=TOWN[:ROWS], group_fractions=fractions)
        assert fitted.group_summary_ is not None
        return fitted.group_summary_

    assert torch.allclose(summary([0.333, 0.666]).s0, summary([1 / 3, 2 / 3]).s0)


def test_fractions_that_hardly_differ_are_doubted_with_a_number() -> None:
    same = {town: [0.5, 0.5] for town in FRACTIONS} | {"town 0": [0.52, 0.48]}
    with pytest.warns(UserWarning, match=r"standard deviation of 0\.44 points at a stated precision of 6\.4 points"):
        quick(steps=2).fit(X[:ROWS], groups=TOWN[:ROWS], group_fractions=same)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(steps=2).fit(X[:ROWS], **STATED)


def test_fractions_that_are_the_same_cannot_teach() -> None:
    """One warning, before training: none that longer training would help, though predictions are off."""
    same = {town: [0.1, 0.2, 0.7] for town in FRACTIONS}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quick(steps=1, learning_rate=1e-9, kl_weight=0.1).fit(X[:ROWS], groups=TOWN[:ROWS], group_fractions=same)
    assert [str(each.message) for each in caught] == [
        "the stated fractions are the same in all groups, so nothing can be learned from them about the class of "
        "individuals"
    ]


def test_random_groups_are_not_doubted() -> None:
    """Counted fractions of random groups differ as much as their size allows, and teach."""
    generator = np.random.default_rng(0)
    yes = generator.binomial(16, 0.3, size=500) / 16
    assert hardly_different(np.stack([1 - yes, yes], 1), np.full(500, 16.0)) == ""
    assert hardly_different(np.full((3, 2), 0.5), np.full(3, 1e9)) != ""


def grouped(inputs: np.ndarray, groups: np.ndarray, fractions: np.ndarray, concentration: float = 100.0) -> GroupRows:
    count = len(fractions)
    return GroupRows(
        torch.from_numpy(inputs),
        torch.from_numpy(groups),
        None,
        tuple(f"group {k}" for k in range(count)),
        torch.from_numpy(fractions),
        torch.full((count,), concentration, dtype=torch.float64),
    )


def test_classes_that_groups_cannot_tell_apart_are_doubted() -> None:
    """Three classes, of which the last two always change together."""
    yes = np.linspace(0.1, 0.9, 12)
    fractions = np.stack([1 - yes, yes / 2, yes / 2], 1)
    assert "3 classes differ between groups in 1 of 2 directions (in the next by " in unclear_directions(
        fractions, np.full(12, 100.0)
    )
    fractions[:, 1], fractions[:, 2] = yes * np.linspace(0.2, 0.8, 12)[::-1], yes * np.linspace(0.2, 0.8, 12)
    assert unclear_directions(fractions, np.full(12, 100.0)) == ""
    halves = {town: [no, yes / 2, yes / 2] for town, (no, yes) in FRACTIONS.items()}
    with pytest.warns(UserWarning, match="some classes cannot be told apart"):
        quick().statement(X[:ROWS], groups=TOWN[:ROWS], group_fractions=halves)


@pytest.mark.parametrize("square", [False, True])
def test_inputs_that_are_not_related_to_fractions_are_doubted(square: bool, seed: int) -> None:
    """Related through their means or their squares: never doubted. Unrelated: usually."""
    generator = np.random.default_rng(seed)
    groups = np.arange(1000) % 20
    yes = np.linspace(0.1, 0.9, 20)
    fractions = np.stack([1 - yes, yes], 1)
    noise = generator.normal(size=(1000, 5))
    signal = noise[:, 0] * (1 + 3 * yes[groups]) if square else noise[:, 0] + 4 * yes[groups]
    inputs = np.column_stack([signal, noise[:, 1:]])
    assert unrelated_inputs(grouped(inputs, groups, fractions)) == ""
    alarms = [unrelated_inputs(grouped(generator.normal(size=(1000, 5)), groups, fractions)) for _ in range(20)]
    assert sum(each != "" for each in alarms) >= 5  # each with probability .7
    assert "not related to their stated fractions beyond chance (p = " in max(alarms)
    few = np.arange(1000) % 15
    assert unrelated_inputs(grouped(generator.normal(size=(1000, 5)), few, fractions[:15])) == ""


@pytest.mark.parametrize(
    ("size", "yes", "concentration", "doubted"),
    [
        (20, 0.13, 1e4, True),  # 2.6 people
        (20, 0.15, 1e4, False),  # 3 people
        (20, 0.13, 15, False),  # not that precise
        (20, 0.13, 21, True),
        (20, 0.52, 1064, True),  # 10.4 people, "plus or minus 3 points"
        (50, 0.47, 1064, True),  # 23.5 people
        (50, 0.48, 1064, False),  # 24 people
        (50, 0.473, 1064, True),
        (50, 0.473, 50, False),
        (30, 0.333, 1e4, False),  # 10 people, rounded
        (30, 0.33, 1e4, False),  # in per cent
        (9, 0.11, 100, False),  # one person: recognised as counted, too
        (3000, 0.13, 1e9, False),  # 390 people
        (3000, 0.1301, 1e9, True),  # 390.3, which four digits tell
        (3000, 0.1303, 1e9, False),  # 391, rounded
        (150, 0.47, 1064, True),  # 70.5: rounding may hide a count, but this number is no count
    ],
)
def test_fractions_that_cannot_be_true_of_few_rows_are_doubted(
    size: int, yes: float, concentration: float, *, doubted: bool
) -> None:
    rows = grouped(np.zeros((size, 1)), np.zeros(size, dtype=np.int64), np.array([[1 - yes, yes]]), concentration)
    assert bool(too_precise(rows)) == doubted
    if doubted:
        most = 100 * max(yes, 1 - yes)
        assert (
            f"such as 'group 0': {most:g} % of {size} rows is no whole number, at a concentration of {concentration:g};"
        ) in too_precise(rows)


def test_a_poll_of_more_people_than_the_rows_is_doubted_once() -> None:
    """The shares of whole states, plus or minus 3 points, about 20 rows of each: a sample of 20 is less precise."""
    polls = {f"state {k}": [0.48 + 0.011 * k, 0.52 - 0.011 * k] for k in range(-10, 10)}
    groups = np.repeat(list(polls), 20)
    stated = {"groups": groups, "group_fractions": polls}
    precise = {each: selbo.elicit_concentration(0.03, fraction=share[0]) for each, share in polls.items()}
    with pytest.warns(UserWarning, match="may be stated more precisely than their rows can be") as caught:
        quick().statement(X[:400], **stated, group_concentration=precise)
    (said,) = [str(each.message) for each in caught if "precisely" in str(each.message)]
    assert "the fractions of 19 of 20 groups" in said  # 10.04 of 20 may be rounded
    assert "state a `group_concentration` of at most the number of rows, or 'auto' to estimate it" in said
    for given in (None, 20, {each: min(strength, 20) for each, strength in precise.items()}, "auto"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message=".*hardly differ|.*not related")
            quick().statement(X[:400], **stated, group_concentration=given)


def test_absent_groups_are_left_out_with_a_warning() -> None:
    more = {**FRACTIONS, "Atlantis": [0.5, 0.5]}
    with pytest.warns(UserWarning, match="no row has, which are left out: 'Atlantis' is absent") as caught:
        classifier = quick().fit(X[:ROWS], groups=TOWN[:ROWS], group_fractions=more)
    assert [each.filename for each in caught] == [__file__]
    assert classifier.groups_ == tuple(FRACTIONS)
    expected = quick().fit(X[:ROWS], **STATED).predict_proba(X[ROWS:])
    np.testing.assert_array_equal(classifier.predict_proba(X[ROWS:]), expected)


@pytest.mark.parametrize("labels", [0, 20])
def test_a_stated_accuracy_corrects_what_groups_have_taught(labels: int, tmp_path: Path) -> None:
    """As a term of the training it would choose another network, mostly a worse one."""
    y = np.where(np.arange(ROWS) < labels, Y[:ROWS], -1)
    plain, stated = (quick(accuracy=each).fit(X[:ROWS], y, **STATED) for each in (None, 0.7))
    assert stated.loss_curve_.tolist() == plain.loss_curve_.tolist()
    found, before = (each.predict_proba(X[:ROWS]) for each in (stated, plain))
    np.testing.assert_array_equal(found.argmax(1), before.argmax(1))
    assert abs(before.max(1).mean() - 0.7) > 0.05
    assert found.max(1).mean() == pytest.approx(0.7, abs=0.02)
    assert stated.calibration_ is not None
    described = json.loads(json.dumps(save_classifier(stated, tmp_path / "weights.safetensors")))
    loaded = restore(described, stated.classes_, ["x", "y", "z"])
    load_network(loaded, tmp_path / "weights.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(X[:ROWS]), found)


def test_an_accuracy_on_regions_of_ones_own_is_a_term_of_the_training() -> None:
    regions = selbo.ConfidenceBins([0.6, 0.8], num_classes=2)
    classifier = quick(accuracy=0.7, partition=regions).fit(X[:ROWS], **STATED)
    assert classifier.calibration_ is None
    assert classifier.loss_curve_.tolist() != quick().fit(X[:ROWS], **STATED).loss_curve_.tolist()


def test_class_fractions_beside_an_accuracy_are_met_as_well() -> None:
    classifier = quick(accuracy=0.75, class_fractions=[0.7, 0.3]).fit(X[:ROWS], **STATED)
    np.testing.assert_allclose(classifier.predict_proba(X[:ROWS]).mean(0), [0.7, 0.3], atol=0.02)


def test_an_accuracy_that_cannot_be_reached_leaves_the_predictions() -> None:
    plain = quick().fit(X[:ROWS], **STATED)
    with pytest.warns(UserWarning, match="predictions are left as they are"):
        stated = quick(accuracy=0.85, class_fractions=[0.2, 0.8]).fit(X[:ROWS], **STATED)
    np.testing.assert_array_equal(stated.predict_proba(X[:ROWS]), plain.predict_proba(X[:ROWS]))


FEW = {"a": [0.2, 0.8], "b": [0.7, 0.3]}
AB = ["a", "b"] * 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": ["a", "b", "c", "d", "e", "f"] + ["a"] * 4}, "but 'c', 'd', 'e' and 1 more are missing"),
        ({"groups": None}, "must be given together, but one of them is missing: in cross-validation scikit-learn"),
        (
            {"group_fractions": None},
            "`groups` and `group_fractions` must be given together, but one of them is missing$",
        ),
        ({"groups": None, "group_fractions": None, "classes": [0, 1]}, "`classes` is about `group_fractions`"),
        ({"groups": AB[:4]}, r"`groups` must have one entry per row of `X`, 10, but has shape \(4,\)"),
        ({"groups": [None] * 10}, "`groups` must hold a group in some row"),
        ({"group_fractions": [[0.2, 0.8]]}, "`group_fractions` must be a mapping from group to its value"),
        ({"group_fractions": {}}, "at least one group"),
        ({"group_fractions": {"a": 0.2, "b": 0.3}}, "one fraction per class for each group, but that of 'a' is 0.2"),
        ({"group_fractions": {"a": [0.2, 0.8], "b": [1.0]}}, "2 numbers per group, for the classes .* 'b' are 1"),
        (
            {"group_fractions": {"a": [0.2, 0.7], "b": [0.5, 0.5]}},
            "sum to 1 for each group, but those of 'a' sum to 0.9",
        ),
        ({"group_fractions": {"a": [20, 79.9], "b": [50, 50]}}, "those of 'a' sum to 99.9: divide percentages by 100"),
        ({"group_fractions": {"a": [-0.2, 1.2], "b": [0.5, 0.5]}}, "must be at least 0 everywhere"),
        ({"group_fractions": {"a": [52, 84], "b": [40, 60]}}, "must sum to 100 for each group, .* 'a' sum to 136"),
        ({"group_fractions": {"a": [1, 1], "b": [0.4, 0.6]}}, "must sum to 1 for each group, .* 'a' sum to 2"),
        ({"group_fractions": {"a": [52, 48], "b": [0.4, 0.6]}}, "must sum to 1 for each group, .* 'a' sum to 100"),
        ({"group_fractions": {"a": [math.inf, 1], "b": [0.4, 0.6]}}, r"finite numbers, but got \[inf, 1.0\] for 'a'"),
        (
            {"group_fractions": {"a": {"yes": 1}, "b": {"no": 0.7, "yess": 0.3}, "c": {"no": 0.5, "yes": 0.5}}},
            "names the class 'yess' for 'b' alone, where all others have 'yes'",
        ),
        ({"groups": ["a", "B"] * 5}, "but 'B' is missing$"),
        (
            {"groups": ["Ohio", "texas"] * 5, "group_fractions": {"Ohio": [0.2, 0.8], "Texas": [0.7, 0.3]}},
            "but 'texas' is missing: 'Texas' is stated, which no row has",
        ),
        (
            {"groups": [1, 2] * 5, "group_fractions": {"1": [0.2, 0.8], "2": [0.7, 0.3]}},
            "1, 2 are missing: 1 in `groups` is of type int, and in `group_fractions` of type str",
        ),
        (
            {"group_fractions": {"a": [math.nan, 0.7], "b": [0.5, 0.5]}},
            r"must hold numbers, but got \[nan, 0.7\] for 'a'",
        ),
        ({"group_fractions": {"a": ["x", 0.7], "b": [0.5, 0.5]}}, "must hold numbers, but those of 'a'"),
        ({"group_fractions": {"a": {0: 0.2, 1: 0.8}, "b": [0.5, 0.5]}}, "in all groups or in none"),
        ({"group_fractions": {"a": [1.0], "b": [1.0]}}, "at least 2 different ones"),
        ({"classes": ["no", "no"]}, "at least 2 different ones"),
        ({"group_concentration": 0}, "`group_concentration` must be a finite number greater than 0"),
        ({"group_concentration": {"a": 3}}, "`group_concentration` must state every group in `groups`, but 'b' is"),
        ({"group_concentration": [1, 2]}, "one number, or a mapping from group to number, but is a list"),
        ({"group_sizes": {"a": 9}}, "`group_sizes` must state every group in `groups`, but 'b' is missing"),
        ({"group_sizes": [9, 9]}, "`group_sizes` must be a mapping from group to its value, but got list"),
        ({"group_sizes": {"a": 9, "b": -1}}, r"`group_sizes\['b'\]` must be a finite number greater than 0"),
        (
            {"groups": None, "group_fractions": None, "group_sizes": {"a": 9}},
            "`group_sizes` is about `group_fractions`",
        ),
        ({"y": ["x"] * 5 + ["y"] * 5, "classes": ["x", "z"]}, r"`y` must hold the classes \['x', 'z'\], .* 'y'"),
        ({"y": ["x"] * 10}, "`classes` must be given for the 2 fractions per group"),
        ({"y": [1, "x"] * 5}, "labels of one kind"),
        ({"y": [1, -1] * 5}, "`y` has the label -1, which may be a class"),
        ({"y": [1] * 10, "sample_weight": np.arange(10)}, "`sample_weight` must be 0 or 1"),
        ({"X_unlabelled": X[:3]}, "`X_unlabelled` cannot be given together with `groups`"),
    ],
)
def test_what_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(steps=1).fit(X[:10], **{"groups": AB, "group_fractions": FEW, **given})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "elbo"}, "`groups` is for a method with a summary"),
        ({"concentration": "auto", "accuracy": 0.9}, "no labels to choose it by"),
    ],
)
def test_settings_that_groups_refuse(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(steps=1, **settings).fit(X[:ROWS], **STATED)


def test_without_groups_labels_are_needed() -> None:
    with pytest.raises(ValueError, match="requires y to be passed"):
        quick().fit(X[:10])


# --- seeds, stopping, saving ---


@pytest.mark.slow
def test_early_stopping_needs_no_labels() -> None:
    classifier = quick(early_stopping=True, steps=40, learning_rate=0.3).fit(X[:ROWS], **STATED)
    assert classifier.validation_nll_ is None
    assert 0 < classifier.n_iter_ <= 40
    by_labels = quick(early_stopping=True).fit(X[:ROWS], **STATED, X_val=X[ROWS:], y_val=Y[ROWS:])
    assert by_labels.validation_nll_ is not None
    some = np.where(np.arange(ROWS) < 50, Y[:ROWS], -1)
    assert quick(early_stopping=True).fit(X[:ROWS], some, **STATED).validation_nll_ is not None


@pytest.mark.slow
def test_early_stopping_keeps_the_step_that_explains_held_out_groups_best(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []

    def spied(*args: Any, **options: Any) -> selbo.training.FitResult:
        results.append(selbo.fit(*args, **options, log_every=1))
        return results[-1]

    monkeypatch.setattr(module, "fit", spied)
    classifier = quick(early_stopping=True, steps=60, learning_rate=1.0).fit(X[:ROWS], **STATED)
    found = {each["step"]: each["val_nll"] for each in results[-1].history if "val_nll" in each}
    assert len(found) > 5
    assert classifier.n_iter_ == min(found, key=lambda step: found[step])
    assert classifier.n_iter_ != 60  # another step than without early stopping


def test_the_stated_fraction_has_the_best_score_in_a_held_out_group() -> None:
    """One group of 40 rows, 10 of them held out: the stated fraction is the best prediction for them."""
    groups = torch.zeros(40, dtype=torch.long)
    fractions = torch.tensor([[0.3, 0.7]], dtype=torch.float64)
    whole = GroupRows(torch.zeros(40, 1), groups, None, ("a",), fractions, torch.tensor([1e9]).double())
    train, held_out = whole.split(0.25, seed=0)
    assert (len(train.groups), len(held_out.groups)) == (30, 10)
    score = score_by_groups(train, held_out)
    found = [float(score(torch.tensor([[1 - p, p]] * 10).double().log(), None)) for p in (0.5, 0.7, 0.9)]
    assert found[1] > max(found[0], found[2])
    unknown = replace(whole, groups=torch.where(torch.arange(40) < 20, groups, -1))
    train, held_out = unknown.split(0.25, seed=0)
    assert (train.groups == -1).sum() == 20
    assert (held_out.groups == 0).all()


def test_the_seed_decides_and_the_statement_is_no_parameter() -> None:
    first, second = (clone(quick()).fit(X[:ROWS], **STATED) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert not any("group" in name for name in first.get_params())


def test_what_is_saved_predicts_the_same(tmp_path: Path) -> None:
    classifier = quick(accuracy=0.8).fit(X[:ROWS], **STATED)
    same = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(same.predict_proba(X), classifier.predict_proba(X))
    assert same.groups_ == classifier.groups_
    described = json.loads(json.dumps(save_classifier(classifier, tmp_path / "weights.safetensors")))
    loaded = restore(described, classifier.classes_, ["x", "y", "z"])
    load_network(loaded, tmp_path / "weights.safetensors", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(X), classifier.predict_proba(X))


def test_a_failed_fit_leaves_the_classifier_as_it_was() -> None:
    classifier = quick().fit(X[:ROWS], **STATED)
    before = classifier.predict_proba(X[:5])
    with pytest.raises(ValueError, match="missing"):
        classifier.fit(X[:ROWS], groups=["elsewhere"] * ROWS, group_fractions=FRACTIONS)
    np.testing.assert_array_equal(classifier.predict_proba(X[:5]), before)
