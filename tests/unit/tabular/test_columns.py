"""Columns as they stand in real files: spelt numbers, dates, identifiers, free text, gaps and rare categories."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from selbo.tabular.columns import CategoryInput, DateInput, NumberInput, named_identifier
from selbo.tabular.dates import day_comes_first, parse_date
from selbo.tabular.preprocessing import Preprocessing, fit_preprocessing
from selbo.tabular.spelling import decimal_mark, parse_number
from selbo.tabular.table import Table, read_table

ROWS = 24


def table_of(folder: Path, name: str = "data.csv", **columns: object) -> Table:
    pl.DataFrame(columns, strict=False).write_csv(folder / name)
    return read_table(folder / name)


def fitted(folder: Path, column: list[object], name: str = "x", **options: object) -> tuple[Preprocessing, list[str]]:
    """A column beside a plain one."""
    rows = len(column)
    table = table_of(folder, **{name: column}, plain=[0.1 * (i % 7) for i in range(rows)], y=["a", "b"] * (rows // 2))
    return fit_preprocessing(table, target="y", rows=np.arange(rows), **options)


def encoded(folder: Path, found: Preprocessing, column: list[object], name: str = "x") -> tuple[np.ndarray, list[str]]:
    inputs, notes = found.transform(table_of(folder, "new.csv", **{name: column}, plain=[0.0] * len(column)))
    return inputs, notes


# --- numbers ---


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        ("1234", 1234, 1234),
        ("1,234", 1234, 1.234),
        ("$1,234.50", 1234.5, None),
        ("1.234,50 €", None, 1234.5),
        ("1 234,5", None, 1234.5),
        ("1\u202f234\u202f567", 1234567, 1234567),
        ("1'234.5", 1234.5, None),
        ("12.3%", 12.3, None),
        ("12,3 %", None, 12.3),
        ("(1,200)", -1200, -1.2),
        ("-$5", -5, -5),
        ("$-5.5", -5.5, None),
        ("−3", -3, -3),
        ("+.5", 0.5, None),
        ("1e-3", 1e-3, 1e-3),
        ("0,125", None, 0.125),
        ("5.", 5, None),
        ("1,23,4", None, None),
        ("12,34.5", None, None),
        ("(5", None, None),
        ("5)", None, None),
        ("1_000", None, None),
        ("50s", None, None),
        ("2020-01-01", None, None),
        ("$", None, None),
        ("", None, None),
    ],
)
def test_spellings_of_numbers(text: str, point: float | None, comma: float | None) -> None:
    assert parse_number(text) == point
    assert parse_number(text, ",") == comma


def test_the_mark_that_more_values_allow() -> None:
    assert decimal_mark(["1,234", "56,789"]) == (".", 1.0)
    assert decimal_mark(["1,234", "56,7"]) == (",", 1.0)
    assert decimal_mark(["1.5", "1,234"]) == (".", 1.0)
    assert decimal_mark(["a", "1,5", "b", "2"]) == (",", 0.5)


@pytest.mark.parametrize(
    ("spell", "value", "words"),
    [
        (lambda i: f"{i}.5%", 3.5, "'0.5%' as 0.5"),
        (lambda i: f"${1000 + i:,}", 1003, "'$1,000' as 1000"),
        (lambda i: f"{i},5", 3.5, "'0,5' as 0.5"),
        (lambda i: f"1 {i:03d},5", 1003.5, "'1 000,5' as 1000.5"),
    ],
)
def test_spelt_numbers_are_read_and_said(tmp_path: Path, spell: object, value: float, words: str) -> None:
    found, notes = fitted(tmp_path, [spell(i) for i in range(ROWS)])
    assert notes == [f"column 'x' is read as numbers: {words}"]
    inputs, more = encoded(tmp_path, found, [spell(3), spell(4)])
    np.testing.assert_allclose(inputs[:, 0], [value, value + 1])
    assert more == []


def test_a_word_among_many_numbers_is_missing(tmp_path: Path) -> None:
    column = [*map(str, range(ROWS - 2)), "unknown", "unknown"]
    found, notes = fitted(tmp_path, column)
    assert found.inputs[0] == NumberInput("x", missing=True)
    assert notes == [
        "column 'x' is read as numbers: 'unknown' in 2 rows as missing",
        "missing values are imputed, and an indicator is added: 'x' (2)",
    ]
    inputs, more = encoded(tmp_path, found, ["5", "never", "?", "7"])
    np.testing.assert_array_equal(inputs[:, 0], [5, np.nan, np.nan, 7])
    assert more == ["values that cannot be read as in training count as missing: 'x' ('never' in 1 row)"]


def test_a_few_numbers_beside_a_word_are_categories(tmp_path: Path) -> None:
    found, notes = fitted(tmp_path, ["0", "1", "2", "3+"] * 6)
    assert found.inputs[0] == CategoryInput("x", ("0", "1", "2", "3+"))
    assert notes == ["column 'x' is taken as text, with one input per value: it has numbers, but '3+' is none"]
    few, notes = fitted(tmp_path, ["1,5", "2,0"] * 12)  # all are numbers
    assert few.inputs[0] == NumberInput("x", ",")


def test_numbers_that_are_stored_as_text(tmp_path: Path) -> None:
    pl.DataFrame({"x": [f"{i}.5" for i in range(12)], "y": ["a", "b"] * 6}).write_parquet(tmp_path / "a.parquet")
    found, _ = fit_preprocessing(read_table(tmp_path / "a.parquet"), target="y", rows=np.arange(12))
    assert found.inputs == (NumberInput("x"),)


# --- missing values ---


@pytest.mark.parametrize("word", ["", "NA", "NaN", "null", "?", "-", "n/a"])
def test_gaps_in_numbers_and_text(tmp_path: Path, word: str) -> None:
    numbers, notes = fitted(tmp_path, [*map(str, range(ROWS - 1)), word])
    assert numbers.inputs[0] == NumberInput("x", missing=True)
    assert notes == ["missing values are imputed, and an indicator is added: 'x' (1)"]
    text, notes = fitted(tmp_path, ["east", "west", word] * 8)
    assert text.inputs[0] == CategoryInput("x", ("east", "west"), missing=True)
    assert notes == ["missing values are imputed, and an indicator is added: 'x' (8)"]
    inputs, more = encoded(tmp_path, text, ["west", word or None, "north"])
    np.testing.assert_array_equal(inputs[:, :3], [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    assert more == ["column 'x' has values not seen in training, 'north', in 1 row: they count as other values"]


def test_signs_and_none_are_values(tmp_path: Path) -> None:
    assert fitted(tmp_path, ["+", "-"] * 12)[0].inputs[0] == CategoryInput("x", ("+", "-"))
    found = fitted(tmp_path, ["+", "-"] * 12)[0]
    np.testing.assert_array_equal(encoded(tmp_path, found, ["-", "-"])[0][:, :2], [[0, 1], [0, 1]])
    assert fitted(tmp_path, ["none", "mild"] * 12)[0].inputs[0] == CategoryInput("x", ("mild", "none"))


def test_one_empty_cell_is_no_reason_to_refuse(tmp_path: Path) -> None:
    found, _ = fitted(tmp_path, [0.5 * i for i in range(ROWS)])
    inputs, notes = encoded(tmp_path, found, [1.0, None, 3.0])
    np.testing.assert_array_equal(inputs[:, 0], [1, np.nan, 3])
    assert notes == ["missing values in columns that had none in training are imputed: 'x' (1)"]
    inputs, notes = encoded(tmp_path, found, [None, None])
    assert np.isnan(inputs[:, 0]).all()
    inputs, _ = encoded(tmp_path, found, [1.0, float("inf"), -float("inf")])
    np.testing.assert_array_equal(inputs[:, 0], [1, np.nan, np.nan])


def test_infinite_numbers_are_missing(tmp_path: Path) -> None:
    found, notes = fitted(tmp_path, [float("inf"), *[float(i) for i in range(ROWS - 1)]])
    assert found.inputs[0].missing
    assert notes == ["missing values are imputed, and an indicator is added: 'x' (1)"]


def test_a_constant_with_gaps_is_used_and_without_is_not(tmp_path: Path) -> None:
    for value in ("yes", "7"):
        found, _ = fitted(tmp_path, [value, None] * 12)
        assert found.columns == ("x", "plain")
        found, notes = fitted(tmp_path, [value] * ROWS)
        assert (found.columns, notes) == (("plain",), ["columns with only one value are left out: 'x'"])
    assert fitted(tmp_path, [None] * ROWS)[0].left_out == ("x",)
    assert fitted(tmp_path, ["?"] * ROWS)[0].left_out == ("x",)


# --- dates ---


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2020-03-01", (2020, 3, 1)),
        ("2020/3/1", (2020, 3, 1)),
        ("2020.03.01", (2020, 3, 1)),
        ("2020-03-01T14:30:00Z", (2020, 3, 1, 14, 30)),
        ("2020-03-01 14:30:59.123+02:00", (2020, 3, 1, 14, 30, 59)),
        ("3/1/2020 2:30 PM", (2020, 3, 1, 14, 30)),
        ("12/1/2020 12:05 am", (2020, 12, 1, 0, 5)),
        ("1 March 2020", (2020, 3, 1)),
        ("01-Mar-20", (2020, 3, 1)),
        ("March 1, 2020", (2020, 3, 1)),
        ("Mar 1st 2020", (2020, 3, 1)),
        ("Sun, 1 Mar 2020 14:30:00 GMT", (2020, 3, 1, 14, 30)),
        ("Mar-2018", (2018, 3, 1)),
        ("2018-03", (2018, 3, 1)),
        ("1/2/68", (2068, 1, 2)),
        ("1/2/69", (1969, 1, 2)),
        ("2020-02-30", None),
        ("2018-19", None),
        ("12", None),
        ("March", None),
        ("1.2.3.4", None),
        ("soon", None),
    ],
)
def test_spellings_of_dates(text: str, date: tuple[int, ...] | None) -> None:
    found = parse_date(text)
    assert found == (None if date is None else datetime(*date))


def test_whether_the_day_comes_first() -> None:
    assert parse_date("03.04.2020", day_first=True) == datetime(2020, 4, 3)
    assert parse_date("2020-04-03", day_first=True) == datetime(2020, 4, 3)
    assert day_comes_first(["13/1/2020", "2/3/2020"])
    assert not day_comes_first(["1/13/2020", "2/3/2020"])
    assert not day_comes_first(["1/3/2020", "2/3/2020"])
    assert day_comes_first(["1.3.2020", "2-3-2020"])
    assert not day_comes_first([])


def test_dates_become_numbers(tmp_path: Path) -> None:
    days = [f"{1 + i % 28}/{1 + i % 12}/2020" for i in range(ROWS - 1)]
    found, notes = fitted(tmp_path, [*days, None])
    assert found.inputs[0] == DateInput("x", ("day", "month", "weekday"), day_first=True, missing=True)
    assert notes == [
        "dates are used as numbers (day, month, weekday, hour): 'x' (day first)",
        "missing values are imputed, and an indicator is added: 'x' (1)",
    ]
    inputs, more = encoded(tmp_path, found, ["1/2/1970", None, "someday", "4/7/2024"])
    np.testing.assert_array_equal(inputs[0, :3], [31, 2, 6])  # a Sunday
    np.testing.assert_array_equal(inputs[3, 1:3], [7, 3])
    assert np.isnan(inputs[1:3, :3]).all()
    assert more == ["values that cannot be read as in training count as missing: 'x' ('someday' in 1 row)"]
    hours, _ = fitted(tmp_path, [f"2020-01-01 {i % 24}:30" for i in range(ROWS)])
    assert hours.inputs[0] == DateInput("x", ("day", "hour"))
    with pytest.raises(ValueError, match=r"column 'x' must hold dates as in training, but new\.csv has 'red' in it"):
        encoded(tmp_path, found, ["red", "red", "1/2/2020"])


def test_dates_of_parquet(tmp_path: Path) -> None:
    days = pl.Series([datetime(2020, 1, 1 + i, i) for i in range(12)])
    frame = pl.DataFrame({"x": days, "d": days.dt.date(), "t": days.dt.time(), "y": ["a", "b"] * 6})
    frame.write_parquet(tmp_path / "a.parquet")
    found, notes = fit_preprocessing(read_table(tmp_path / "a.parquet"), target="y", rows=np.arange(12))
    assert [(each.name, each.width) for each in found.inputs] == [("x", 3), ("d", 2)]
    assert notes == [
        "dates that cannot be read are left out: 't'",
        "dates are used as numbers (day, month, weekday, hour): 'x', 'd'",
    ]


# --- identifiers, free text, rare categories ---


@pytest.mark.parametrize(
    ("name", "column", "left_out"),
    [
        ("x", [f"P{i:03d}" for i in range(ROWS)], True),
        ("patient_id", [7 * i % 101 for i in range(ROWS)], True),
        ("PassengerId", list(range(100, 100 + ROWS)), True),
        ("", list(np.random.default_rng(0).permutation(ROWS) + 1), True),
        ("x", list(np.random.default_rng(0).permutation(ROWS)), True),
        ("x", [7 * i % 101 for i in range(ROWS)], False),
        ("year", list(range(2000, 2000 + ROWS)), False),
        ("id", [1, 2, 3] * 8, False),
        ("id", [0.5 * i for i in range(ROWS)], False),
    ],
)
def test_identifiers_are_left_out_in_any_order(tmp_path: Path, name: str, column: list[object], left_out: bool) -> None:
    found, notes = fitted(tmp_path, column, name)
    assert (name not in found.columns) == left_out
    said = f"columns that identify rows are left out: {name!r} (--keep uses one all the same)"
    assert (said in notes) == left_out
    if name:
        assert name in fitted(tmp_path, column, name, keep=[name])[0].columns or isinstance(column[0], str)


RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("column", "left_out"),
    [
        (700_001 + np.arange(200), True),
        (700_001 + RANDOM.permutation(200), True),
        (700_001 + RANDOM.choice(1000, 200, replace=False), True),  # a sample of the cases
        (np.arange(-100, 100), True),
        (1900 + np.arange(120), False),  # years
        (700_001 + RANDOM.permutation(200) // 2, False),
        (RANDOM.choice(10**6, 200, replace=False), False),  # measurements in fine units
        (10_000 * RANDOM.permutation(200), False),
    ],
)
def test_case_numbers_are_left_out_whatever_they_begin_with(tmp_path: Path, column: np.ndarray, left_out: bool) -> None:
    found, notes = fitted(tmp_path, column.tolist(), "case")
    assert ("case" not in found.columns) == left_out
    said = "columns that identify rows are left out: 'case' (--keep uses one all the same)"
    assert (said in notes) == left_out
    assert "case" in fitted(tmp_path, column.tolist(), "case", keep=["case"])[0].columns


@pytest.mark.stochastic
def test_whole_measurements_are_no_case_numbers(tmp_path: Path, seed: int) -> None:
    """Different in every row, by chance: as many tries as it takes."""
    generator = np.random.default_rng(seed)
    column = generator.integers(300, size=20)
    while len(set(column.tolist())) < 20:
        column = generator.integers(300, size=20)
    assert "income" in fitted(tmp_path, column.tolist(), "income")[0].columns


def test_names_of_identifiers() -> None:
    for name in ("id", "ID", "customerID", "Customer Id", "row_index", "Unnamed: 0", "", "uuid", "rownames"):
        assert named_identifier(name), name
    for name in ("paid", "grid", "humidity", "age", "Ideal", "id_of_parent_age"):
        assert not named_identifier(name), name


def test_free_text_is_left_out_unless_it_may_be_missing(tmp_path: Path) -> None:
    words = [f"word {i // 2}" if i % 3 else f"other {i}" for i in range(60)]
    found, notes = fitted(tmp_path, words)
    assert found.columns == ("plain",)
    assert notes == ["columns of text with too many different values are left out: 'x' (--keep uses one all the same)"]
    kept, _ = fitted(tmp_path, words, keep=["x"])
    assert kept.columns == ("x", "plain")
    cabins, notes = fitted(tmp_path, [f"C{i}" if i % 2 else None for i in range(60)])
    assert cabins.inputs[0] == CategoryInput("x", (), other=True, missing=True)
    assert notes == ["of text with too many different values, only whether it is there is used: 'x'"]
    inputs, more = encoded(tmp_path, cabins, ["new", None])
    np.testing.assert_array_equal(inputs[:, :2], [[1, 0], [0, 1]])
    assert more == []


def test_rare_categories_are_pooled_and_new_ones_with_them(tmp_path: Path) -> None:
    column = ["north"] * 150 + ["south"] * 145 + ["east", "west", "west", "up", "down"]
    found, notes = fitted(tmp_path, column)
    assert found.inputs[0] == CategoryInput("x", ("north", "south"), other=True)
    assert notes == ["rare categories are pooled into one: 'x' (4 of 6)"]
    inputs, more = encoded(tmp_path, found, ["south", "east", "new"])
    np.testing.assert_array_equal(inputs[:, :3], [[0, 1, 0], [0, 0, 1], [0, 0, 1]])
    assert more == [
        "column 'x' has values rare or not seen in training, 'east', 'new', in 2 rows: they count as other values"
    ]


# --- all problems at once ---


def test_all_problems_of_a_table_are_named(tmp_path: Path) -> None:
    table = table_of(tmp_path, x=["a"] * 12, y=["a"] * 12)
    with pytest.raises(ValueError, match="\n") as error:
        fit_preprocessing(table, target="y", rows=np.arange(12), drop=["no", "y"], keep=["none"], id_column="id")
    assert error.value.problems == (
        "the target must have at least 2 classes, but all of 'y' is 'a'",
        "there is no column 'no' in data.csv: there are 'x', 'y'",
        "the target 'y' cannot be left out with --drop",
        "there is no column 'none' in data.csv: there are 'x', 'y'",
        "there is no column 'id' in data.csv: there are 'x', 'y'",
        "there is no column to predict 'y' from: all others are left out (columns with only one value are left out: "
        "'x')",
    )


def test_all_problems_of_another_table_are_named(tmp_path: Path) -> None:
    table = table_of(
        tmp_path, a=list(range(5, 29)), b=[0.5 * i for i in range(24)], c=["u", "v"] * 12, y=["a", "b"] * 12
    )
    found, _ = fit_preprocessing(table, target="y", rows=np.arange(24))
    with pytest.raises(ValueError, match="\n") as error:
        found.transform(table_of(tmp_path, "new.csv", a=["red"] * 3, b=["blue"] * 3))
    assert error.value.problems == (
        "new.csv must have the columns of the training data, but has no 'c': there are 'a', 'b'",
        "column 'a' must hold numbers as in training, but new.csv has 'red' in it",
        "column 'b' must hold numbers as in training, but new.csv has 'blue' in it",
    )
