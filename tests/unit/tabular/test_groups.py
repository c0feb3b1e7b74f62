"""Fractions of groups from a table to a model folder: what is read, what is refused, and the model that comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import selbo
from selbo.results import StatedGroup, StatedGroups
from selbo.tabular.group_results import contradictions_in_words, groups_takeaway
from selbo.tabular.groups import GroupSource, GroupTable, known_labels, read_groups
from selbo.tabular.splits import FEWEST_LABELS, split_groups
from selbo.tabular.table import read_table

TOWNS = ("Ash", "Birch", "Cedar")
PEOPLE = pl.DataFrame({"age": range(6), "town": ["Ash", "Ash", "Birch", "Cedar", "Cedar", None]})
VOTES = pl.DataFrame({"town": TOWNS, "yes": [0.5, 0.25, 0.9], "no": [0.5, 0.75, 0.1]})


def read(
    tmp_path: Path, votes: pl.DataFrame = VOTES, people: pl.DataFrame = PEOPLE, **others: Any
) -> tuple[GroupTable, list[str | None]]:
    votes.write_csv(tmp_path / "votes.csv")
    people.write_csv(tmp_path / "people.csv")
    return read_groups(GroupSource("town", tmp_path / "votes.csv", **others), read_table(tmp_path / "people.csv"))


# --- the table of groups ---


def test_fractions_percentages_and_counts_are_the_same_statement(tmp_path: Path) -> None:
    expected = {"Ash": (0.5, 0.5), "Birch": (0.75, 0.25), "Cedar": (0.1, 0.9)}  # no before yes
    for votes in (
        VOTES,
        VOTES.with_columns(pl.col("yes", "no") * 100),
        pl.DataFrame({"town": TOWNS, "yes": [1, 100, 9], "no": [1, 300, 1]}),
        pl.DataFrame({"town": TOWNS, "yes": ["50 %", "25%", "90%"], "no": ["50 %", "75%", "10%"]}),
        pl.DataFrame({"town": TOWNS, "yes": ["0,5", "0,25", "0,9"], "no": ["0,5", "0,75", "0,1"]}),
        VOTES.with_columns(region=pl.lit("north")).select("no", "region", "town", "yes"),
    ):
        found, of_rows = read(tmp_path, votes)
        assert found.classes == ("no", "yes")
        assert list(found.fractions) == list(TOWNS)
        for name, row in expected.items():
            assert found.fractions[name] == pytest.approx(row)
        assert of_rows == ["Ash", "Ash", "Birch", "Cedar", "Cedar", None]
        assert found.concentration is None
        assert found.notes == (
            ()
            if "region" not in votes.columns
            else ("columns of votes.csv that hold no numbers are ignored: 'region'",)
        )


@pytest.mark.parametrize(
    "more",
    [
        {"population": [900, 30, 410]},
        {"turnout": [0.7, 0.6, 0.81]},
        {"population": [900, 30, 410], "turnout": [0.7, 0.6, 0.81], "gini": [0.3, 0.31, 0.35]},
        {"rainfall": [70.0, 61.5, 44.0], "population": [900, 30, 410]},
    ],
)
@pytest.mark.parametrize("unit", [1, 100])
def test_numbers_beside_fractions_are_no_classes(tmp_path: Path, more: dict[str, list[float]], unit: int) -> None:
    votes = VOTES.with_columns(pl.col("yes", "no") * unit).with_columns(**{k: pl.Series(v) for k, v in more.items()})
    found, _ = read(tmp_path, votes)
    assert found.classes == ("no", "yes")
    assert found.fractions["Birch"] == pytest.approx((0.75, 0.25))
    verb = "is" if len(more) == 1 else "are"
    assert found.notes == (
        f"fractions are read from 'yes', 'no' of votes.csv; {', '.join(map(repr, more))} {verb} left out; if a class "
        "is missing, name the classes with `group_classes`",
    )


def test_counts_beside_counts(tmp_path: Path) -> None:
    """A total is found; another count only by labels, by a name, or by the reader of the note."""
    votes = pl.DataFrame({"town": TOWNS, "yes": [1, 100, 9], "no": [1, 300, 1]})
    total = votes.with_columns(total=pl.col("yes") + pl.col("no"))
    found, _ = read(tmp_path, total)
    assert found.classes == ("no", "yes")
    assert found.fractions["Birch"] == (0.75, 0.25)
    assert "counts are read from 'yes', 'no' of votes.csv; 'total' is left out" in found.notes[0]
    other = votes.with_columns(cars=pl.Series([5, 90, 20]))
    found, _ = read(tmp_path, other)
    assert found.classes == ("cars", "no", "yes")
    assert found.notes == (
        "counts are read from 'yes', 'no', 'cars' of votes.csv; if one of them is no class, name the classes with "
        "`group_classes`",
    )
    found, _ = read(tmp_path, other, classes=("no", "yes"))
    assert (found.classes, found.notes) == (("no", "yes"), ())
    for copies, classes in ((1, ("cars", "no", "yes")), (8, ("no", "yes"))):  # .78 of six is nothing, .78^48 is
        people = pl.concat([PEOPLE.with_columns(vote=pl.Series(["yes", "no", "no", "yes", None, "no"]))] * copies)
        people.write_csv(tmp_path / "people.csv")
        source = GroupSource("town", tmp_path / "votes.csv")
        found, _ = read_groups(source, read_table(tmp_path / "people.csv"), target="vote")
        assert found.classes == classes
    with pytest.raises(ValueError, match=r"`group_classes` must name columns of numbers in votes\.csv, but 'yess'"):
        read(tmp_path, other, classes=("yess", "no"))


def test_small_groups_are_counted_too(tmp_path: Path) -> None:
    """Most sums are 1, but whole numbers that sum to 4 elsewhere are no fractions."""
    found, _ = read(tmp_path, pl.DataFrame({"town": TOWNS, "yes": [1, 0, 1], "no": [0, 1, 3]}))
    assert found.fractions == {"Ash": (0.0, 1.0), "Birch": (1.0, 0.0), "Cedar": (0.75, 0.25)}


def test_many_classes_beside_a_measurement(tmp_path: Path) -> None:
    shares = np.random.default_rng(0).dirichlet(np.ones(120), 3)
    votes = pl.DataFrame({"town": TOWNS, **{f"c{k:03}": shares[:, k] for k in range(120)}, "gini": [0.3, 0.31, 0.35]})
    found, _ = read(tmp_path, votes)
    assert found.classes == tuple(f"c{k:03}" for k in range(120))


def test_only_groups_that_no_row_has_are_suggested(tmp_path: Path) -> None:
    people = pl.DataFrame({"age": range(3), "town": ["North 1", "North 2", "North 3"]})
    votes = pl.DataFrame({"town": ["North 1", "North 2", "South"], "yes": [0.5, 0.2, 0.1], "no": [0.5, 0.8, 0.9]})
    with pytest.raises(ValueError, match=r"no row for 'North 3', which people\.csv has$"):
        read(tmp_path, votes, people)
    with pytest.raises(ValueError, match=r"no row for 'North 3', which people\.csv has \(did you mean 'north-3'\?\)"):
        read(tmp_path, votes.with_columns(town=pl.Series(["North 1", "North 2", "north-3"])), people)


def test_another_name_of_the_column_is_found_if_it_is_the_only_text(tmp_path: Path) -> None:
    found, _ = read(tmp_path, VOTES.rename({"town": "place"}))
    assert list(found.fractions) == list(TOWNS)
    with pytest.raises(ValueError, match=r"votes\.csv must have the column 'town', with the names of the groups"):
        read(tmp_path, VOTES.rename({"town": "place"}).with_columns(more=pl.lit("x")))


def test_groups_that_are_numbers_may_be_written_in_two_ways(tmp_path: Path) -> None:
    people = pl.DataFrame({"age": range(3), "town": ["1", "2", "2"]})
    votes = pl.DataFrame({"town": ["1.0", "2.0", "3.0"], "0": [0.5, 0.2, 0.1], "1": [0.5, 0.8, 0.9]})
    found, of_rows = read(tmp_path, votes, people)
    assert of_rows == ["1", "2", "2"]
    assert list(found.fractions) == ["1", "2", "3"]
    assert found.numeric
    assert found.notes == ("votes.csv states groups that no row of people.csv has: '3'",)
    arguments = found.arguments(of_rows)
    assert arguments["group_fractions"] == {"1": {0: 0.5, 1: 0.5}, "2": {0: 0.2, 1: 0.8}}


@pytest.mark.parametrize(
    ("column", "values", "scale", "expected"),
    [
        ("concentration", [10.0, 20.5, 30.0], 1, [10.0, 20.5, 30.0]),
        ("count", [10, 20, 30], 1, [10, 20, 30]),
        ("margin", [0.1, 0.1, 0.05], 1, None),
        ("margin", [10, 10, 5], 100, None),
    ],
)
def test_how_sure_the_fractions_are_may_be_a_column(
    tmp_path: Path, column: str, values: list[float], scale: int, expected: list[float] | None
) -> None:
    votes = VOTES.with_columns(pl.col("yes", "no") * scale, pl.Series(column, values))
    found, _ = read(tmp_path, votes)
    if expected is None:
        expected = [float(selbo.elicit_concentration(m, fraction=f)) for m, f in ((0.1, 0.5), (0.1, 0.25), (0.05, 0.9))]
    assert isinstance(found.concentration, dict)
    assert list(found.concentration.values()) == pytest.approx(expected)
    assert found.arguments(["Birch"])["group_concentration"] == {"Birch": pytest.approx(expected[1])}


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"town": ["Ash", "Ash", "Cedar"]}, ["'Ash' is stated more than once", "no row for 'Birch', which people.csv"]),
        ({"town": ["Ash", "Birch", "Ceder"]}, ["no row for 'Cedar', which people.csv has (did you mean 'Ceder'?)"]),
        ({"town": ["Ash", None, "Cedar"]}, ["1 row has no name of a group"]),
        ({"yes": [0.5, -0.25, 0.9]}, ["'yes' of 'Birch' is negative"]),
        ({"yes": [0.5, None, 0.9]}, ["'yes' of 'Birch' is empty"]),
        (
            {"yes": [0.5, 0.5, 0.9]},
            ["per group: fractions must sum to 1 over 'yes', 'no', but sum to 1.25 for 'Birch'"],
        ),
        ({"yes": [1.5, 2.25, 3.9]}, ["must be fractions, which sum to 1, percentages, or counts, but sum to 2 to 4"]),
        ({"yes": [0, 0, 1], "no": [1, 0, 0]}, ["all values of 'Birch' are 0"]),
        ({"yes": ["x", "y", "z"]}, ["two or more columns must hold numbers, one per class, but only 'no' does"]),
        ({"margin": [0.1, 0.9, 0.1]}, ["'margin' is too wide to be informative about 'Birch'"]),
        ({"count": [1, 0, 1]}, ["'count' must be a number greater than 0 in every row"]),
        ({"count": [1, 1, 1], "margin": [0.1] * 3}, ["only one of 'margin', 'count' can give the precision"]),
        (
            {"town": ["Ash", "Ash", None], "yes": [0.5, None, 0.9], "count": [1, -2, 3]},
            [
                "one row per group: 1 row has no name of a group; 'Ash' is stated more than once; it has no row for "
                "'Birch', 'Cedar', which people.csv has; 'yes' of 'Ash' is empty; 'count' must be",
            ],
        ),
    ],
)
def test_all_problems_are_named_at_once(tmp_path: Path, changes: dict[str, Any], messages: list[str]) -> None:
    votes = VOTES.with_columns(pl.Series(name, values) for name, values in changes.items())
    with pytest.raises(ValueError, match=r"votes\.csv must state the class fractions of each group") as error:
        read(tmp_path, votes)
    for message in messages:
        assert message in str(error.value)


def test_one_concentration_for_all_and_a_column_contradict(tmp_path: Path) -> None:
    assert read(tmp_path, concentration=7.0)[0].concentration == 7.0
    with pytest.raises(ValueError, match="it has a column 'count', and `group_concentration` is given too"):
        read(tmp_path, VOTES.with_columns(count=pl.Series([1, 2, 3])), concentration=7.0)


def test_empty_cells_and_words_for_missing_values_are_no_labels(tmp_path: Path) -> None:
    people = PEOPLE.with_columns(vote=pl.Series(["yes", None, "NA", "no", "?", ""]))
    stated, _ = read(tmp_path, people=people)
    table = read_table(tmp_path / "people.csv")
    assert known_labels(table, "vote", stated).tolist() == [1, -1, -1, 0, -1, -1]
    assert known_labels(table, None, stated).tolist() == [-1] * 6
    read(tmp_path, people=people.with_columns(vote=pl.Series(["yes", "maybe", "NA", "no", "?", ""])))
    with pytest.raises(ValueError, match=r"must be the classes of votes\.csv, 'no', 'yes', but some are 'maybe'"):
        known_labels(read_table(tmp_path / "people.csv"), "vote", stated)
    with pytest.raises(ValueError, match="there is no column 'votes'"):
        known_labels(table, "votes", stated)


# --- the split ---


def test_a_share_of_each_large_group_is_held_out_and_small_groups_as_a_whole(seed: int) -> None:
    sizes = {"large": 100, "medium": 40, **{f"small {k}": 5 for k in range(10)}}
    groups = np.array([name for name, size in sizes.items() for _ in range(size)] + [None] * 7, dtype=object)
    labels = np.full(len(groups), -1)
    parts = split_groups(groups.tolist(), labels, test_fraction=0.2, val_fraction=0.1, seed=seed)
    everything = np.sort(np.concatenate([parts.train, parts.val, parts.test]))
    assert everything.tolist() == list(range(len(groups)))
    assert len(parts.val) == 0
    held_out = groups[parts.test].tolist()
    assert held_out.count("large") == 20
    assert held_out.count("medium") == 8
    small = [name for name in held_out if name is not None and name.startswith("small")]
    assert len(set(small)) == 2
    assert len(small) == 10
    assert None not in held_out


def test_labels_are_held_out_by_class_if_there_are_enough() -> None:
    labels = np.array([0] * 30 + [1] * 30 + [-1] * 40)
    parts = split_groups(["a"] * 100, labels, test_fraction=0.2, val_fraction=0.1, seed=0)
    assert np.bincount(labels[parts.test] + 1).tolist() == [8, 6, 6]
    assert np.bincount(labels[parts.val] + 1).tolist() == [0, 3, 3]
    few = np.where(np.arange(100) < FEWEST_LABELS - 1, labels, -1)
    parts = split_groups(["a"] * 100, few, test_fraction=0.2, val_fraction=0.1, seed=0)
    assert (few[parts.train] >= 0).sum() == FEWEST_LABELS - 1


# --- what is said about groups ---


def test_contradicted_groups_are_named() -> None:
    def result(name: str, p_value: float) -> StatedGroup:
        interval = ((0.1, 0.9), (0.1, 0.9))
        return StatedGroup(
            name=name,
            rows=10,
            stated=(0.6, 0.4),
            stated_interval=interval,
            predicted=(0.3, 0.7),
            predicted_interval=interval,
            p_value=p_value,
            contradicted=p_value < 0.01,
        )

    def results(*p_values: float) -> StatedGroups:
        found = tuple(result(f"town {k}", each) for k, each in enumerate(p_values))
        return StatedGroups(column="town", held_out=True, error=0.021, constant_error=0.12, groups=found)

    assert contradictions_in_words(results(0.5, 1.0)) == ""
    assert contradictions_in_words(results(0.5, 0.001, 0.0001)).startswith(
        "predictions contradict the stated fractions of 2 of 3 groups, town 2 (stated 40 %, predicted 70 %), town 1 ("
    )
    assert ") and 2 more: these fractions" in contradictions_in_words(results(*[0.001] * 5))
    assert contradictions_in_words(results(0.5, 0.001)).endswith("inputs differ between groups")
    assert contradictions_in_words(results(0.002, 0.001)).endswith(
        "; begin with the first, because a wrong fraction distorts the predictions for other groups"
    )
    assert groups_takeaway(results(0.5, 1.0), trained=3, labels=0) == (
        "Learned from the class fractions of 3 groups (town) and no label. Predictions for 20 held-out rows of 2 "
        "groups miss the stated fractions by 2.1 points on average; the same prediction for everyone would miss them "
        "by 12.0. No group is contradicted."
    )
    same = StatedGroups.from_dict(results(0.5, 0.001).to_dict())
    assert same == results(0.5, 0.001)
