"""A pasted table of groups: what is read, what is refused, and that the texts train a classifier."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import selbo
from selbo.elicit.answer import answer
from selbo.elicit.groups import LONGEST_CODE, read_group_shares
from selbo.elicit.refused import RefusedError
from selbo.tabular.groups import GroupSource, read_groups
from selbo.tabular.table import read_table

TABLE = "town,no,yes\nAsh,0.3,0.7\nBirch,0.6,0.4\n"


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        "town;no;yes\nAsh;30;70\n\nBirch;60 %;40%\n",
        "town\tno\tyes\nAsh\t3\t7\nBirch\t1200\t800",
        '"town","no","yes"\n"Ash",0.3,0.7\nBirch,0.6,0.4',
        "town;no;yes\nAsh;0,3;0,7\nBirch;0,6;0,4",
    ],
)
def test_fractions_percentages_and_counts_are_the_same(text: str) -> None:
    found = read_group_shares(text)
    assert found["groups"] == ["Ash", "Birch"]
    assert found["classes"] == ["no", "yes"]
    assert np.allclose(found["fractions"], [[0.3, 0.7], [0.6, 0.4]])
    assert found["texts"]["results"] == TABLE
    assert found["texts"]["groupcommand"] == (
        "selbo train people.csv --groups town --group-fractions results.csv --out model"
    )
    assert found["said"].startswith("The groups differ enough to learn from")
    assert "Between the 2 groups, shares differ by 3.2 times their precision" in found["said"]
    assert answer("groups", None, text.encode()) == found


def test_a_comma_in_the_name_of_a_class_does_not_separate() -> None:
    found = read_group_shares("town;no, never;yes, always\nAsh;30;10\nBirch;20;20")
    assert found["fractions"] == [[0.75, 0.25], [0.5, 0.5]]


def test_how_sure_the_shares_are_stays_in_the_table() -> None:
    found = read_group_shares("my town,no,yes,Margin\nAsh,0.3,0.7,0.05\nBirch,0.5,0.5,0.1")
    assert found["classes"] == ["no", "yes"]
    assert found["texts"]["results"].splitlines()[:2] == ["my town,no,yes,margin", "Ash,0.3,0.7,0.05"]
    assert "--groups 'my town'" in found["texts"]["groupcommand"]


@pytest.mark.parametrize("groups", [3, 100])
@pytest.mark.parametrize(
    ("column", "values"), [("margin", (0.05, 0.1)), ("count", (50, 800)), ("Concentration", (9, 70))]
)
def test_the_code_says_how_sure_the_shares_are(
    column: str, values: tuple[float, float], groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the command does with the same table, whether the code lists the groups or reads the table."""
    lines = [f"town {k},{0.3 + k / 500},{0.7 - k / 500},{values[k % 2]}" for k in range(groups)]
    found = read_group_shares("\n".join([f"town,no,yes,{column}", *lines]))
    given: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results.csv").write_text(found["texts"]["results"])
    code = found["texts"]["groupcode"].replace("selbo.SummaryClassifier(random_state=0)", "Stub()")
    stub = SimpleNamespace(fit=lambda *_, **settings: given.update(settings))
    exec(code, {"Stub": lambda: stub, "X": None, "group_of_rows": None})
    people = tmp_path / "people.csv"
    people.write_text("x,town\n" + "".join(f"{k},town {k}\n" for k in range(groups)))
    source = GroupSource("town", tmp_path / "results.csv")
    expected = read_groups(source, read_table(people))[0].concentration
    assert expected == pytest.approx(given["group_concentration"], rel=1e-3)
    assert "if each is right to" not in found["said"]


@pytest.mark.parametrize(("margin", "message"), [("0", "greater than 0"), ("2", "too wide")])
def test_a_precision_that_cannot_be_is_refused(margin: str, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        read_group_shares(f"town,no,yes,margin\nAsh,0.3,0.7,{margin}\nBirch,0.5,0.5,0.1")


def test_a_margin_has_the_unit_of_the_shares() -> None:
    found = read_group_shares("town,no,yes,margin\nAsh,30,70,5%\nBirch,50,50,10%")
    assert found["texts"]["results"] == "town,no,yes,margin\nAsh,0.3,0.7,0.05\nBirch,0.5,0.5,0.1\n"


@pytest.mark.parametrize(
    ("column", "values"), [("population", '900,"1,200"'), ("turnout", "0.71,0.61"), ("region", "north,south")]
)
def test_columns_that_are_no_class_are_left_out_with_a_note(column: str, values: str) -> None:
    ash, birch = next(csv.reader([values]))
    found = read_group_shares(f'town,no,{column},yes\nAsh,0.3,"{ash}",0.7\nBirch,0.6,"{birch}",0.4')
    assert found["classes"] == ["no", "yes"]
    assert found["texts"]["results"] == TABLE
    assert found["note"] == (
        f"The classes are “no”, “yes”; “{column}” is left out. If it is a class, delete the columns that are none."
    )


def test_a_total_is_left_out_and_other_counts_are_questioned() -> None:
    total = read_group_shares("town,no,yes,total\nAsh,3,7,10\nBirch,1200,800,2000")
    assert total["texts"]["results"] == TABLE
    assert "“total” is left out" in total["note"]
    cars = read_group_shares("town,no,yes,cars\nAsh,3,7,2\nBirch,1200,800,900")
    assert cars["classes"] == ["no", "yes", "cars"]
    assert cars["note"] == "The classes are “no”, “yes”, “cars”. If one of them is no class, delete its column."
    many = ",".join(f"x{k}" for k in range(8))
    rows = "\n".join(f"{town},0.3,0.7,{','.join(['900'] * 8)}" for town in ("Ash", "Birch"))
    assert "“x4”, “x5” and 2 more are left out. If one of them" in read_group_shares(f"t,no,yes,{many}\n{rows}")["note"]


def test_shares_alone_need_no_note() -> None:
    assert read_group_shares(TABLE)["note"] == ""


def test_shares_that_hardly_differ_are_said_to() -> None:
    assert "too alike to teach" in read_group_shares("g,a,b\nx,0.5,0.5\ny,0.51,0.49")["said"]


@pytest.mark.parametrize("count", [20, LONGEST_CODE + 1])
def test_the_code_trains_a_classifier(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"g{k},{0.2 + 0.6 * k / count:.3f},{0.8 - 0.6 * k / count:.3f}" for k in range(count)]
    found = read_group_shares("\n".join(["town,no,yes", *lines]))
    (tmp_path / "results.csv").write_text(found["texts"]["results"])
    monkeypatch.chdir(tmp_path)
    rows = np.arange(10 * count) % count
    inputs = np.random.default_rng(0).normal(size=(10 * count, 2)) - 5 * rows[:, None] / count
    quick = {"steps": 2, "num_samples": 2, "hidden": ()}
    known = {"X": inputs, "group_of_rows": [f"g{k}" for k in rows]}
    made = selbo.SummaryClassifier
    monkeypatch.setattr(selbo, "SummaryClassifier", lambda **settings: made(**settings, **quick))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="predictions miss the stated fractions")  # two steps are few
        exec(found["texts"]["groupcode"], known)
    assert known["classifier"].classes_.tolist() == ["no", "yes"]
    assert known["classifier"].groups_ == tuple(f"g{k}" for k in range(count))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "heading and at least two groups"),
        ("town,no,yes\nAsh,0.3,0.7", "heading and at least two groups"),
        ("town,no\nAsh,1\nBirch,1", "two or more columns must hold numbers, one per class, but only “no” does"),
        ("town,no,yes\nAsh,x,y\nBirch,y,x", "but none does"),
        ("town,no,no\nAsh,0.3,0.7\nBirch,0.3,0.7", "each once"),
        ("town,no,yes\nAsh,0.3\nBirch,0.3,0.7", "Every line must have 3 entries"),
        (
            "town,no,yes\nAsh,0.3,x\nBirch,0.3,0.7",
            "“yes” must be a number of at least 0 in every line, but “Ash” has “x”",
        ),
        ("town,no,yes\nAsh,0.3,\nBirch,0.3,0.7", "“Ash” has “”"),
        ("town,no,yes,margin\nAsh,0.3,0.7,?\nBirch,0.3,0.7,1", "“margin” must be a number"),
        ("town,no,yes\nAsh,0.3,-1\nBirch,0.3,0.7", "“Ash” has “-1”"),
        ("town,no,yes\nAsh,0.3,0.7\nAsh,0.3,0.7", "“Ash” is there twice"),
        ("town,no,yes\nAsh,0.3,0.7\nBirch,0.3,0.6", "must sum to 1, but those of “Birch” sum to 0.9"),
        ("town,no,yes\nAsh,30,70\nBirch,40,60\nCedar,30,60", "must sum to 100, but those of “Cedar” sum to 90"),
        ("town,no,yes\nAsh,0,0\nBirch,3,6", "Some class of “Ash” must have a share"),
        ("town,no,yes\nAsh,1.5,2.5\nBirch,3,6", "but sums are from 4 to 9"),
        ("town,no,yes,x\nAsh,0.3,0.7,0.7\nBirch,0.6,0.4,0.61", "from 1.61 to 1.7: delete columns that are no class"),
        ("g,a,b\n" + "\n".join(f"{k},1,1" for k in range(2001)), "up to 2000 groups"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as error:
        read_group_shares(text)
    assert error.value.field == "groups"
