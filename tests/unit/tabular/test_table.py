"""Tables: what is read from files, how columns become inputs, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from selbo._files import DATA_FILES
from selbo.tabular import table as module
from selbo.tabular.preprocessing import (
    CategoryInput,
    NumberInput,
    Preprocessing,
    find_classes,
    fit_preprocessing,
    label_names,
)
from selbo.tabular.splits import split
from selbo.tabular.table import Table, find_separator, read_table

ALL = np.arange


def csv(folder: Path, text: str, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def table_of(folder: Path, **columns: object) -> Table:
    path = folder / "data.csv"
    pl.DataFrame(columns).write_csv(path)
    return read_table(path)


def mixed(count: int = 12) -> dict[str, list[object]]:
    """Two columns of numbers, one of text, one of truth, and a target."""
    return {
        "age": [20 + 3 * i for i in range(count)],
        "dose": [0.5 * (i % 5) for i in range(count)],
        "site": [("north", "south", "east")[i % 3] for i in range(count)],
        "smoker": [i % 4 == 0 for i in range(count)],
        "ill": [("no", "yes")[i % 2] for i in range(count)],
    }


# --- reading ---


def test_types_of_a_csv_are_read_off_its_values(tmp_path: Path) -> None:
    text = (
        "whole,real,word,truth,day,time,gap,signed\n"
        "1,1.5,a,True,2024-01-31,2024-01-31 10:20,1,-1e3\n"
        "2, 2 ,b,FALSE,2024-02-01,2024-02-01T10:20:30Z,NA,+2\n"
        '3,inf,"c, d",true,2024-02-02,2024-02-02 00:00:00.5,,3\n'
    )
    table = read_table(csv(tmp_path, text))
    kinds = {name: column.kind for name, column in table.columns.items()}
    assert kinds == {
        "whole": "integer",
        "real": "number",
        "word": "text",
        "truth": "text",
        "day": "date",
        "time": "date",
        "gap": "integer",
        "signed": "integer",
    }
    assert table.num_rows == 3
    assert table["word"].texts() == ["a", "b", "c, d"]
    assert table["truth"].texts() == ["true", "false", "true"]
    np.testing.assert_array_equal(table["real"].numbers, [1.5, 2, np.inf])
    np.testing.assert_array_equal(table["gap"].numbers, [1, np.nan, np.nan])


def test_words_for_missing_numbers_are_words_in_a_column_of_text(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "garage,pool\nNone,?\nattached,?\nNone,?\n"))
    assert table["garage"].texts() == ["None", "attached", "None"]
    assert table["pool"].kind == "text"


def test_all_formats_give_the_same_table(tmp_path: Path) -> None:
    columns = mixed()
    pl.DataFrame(columns).write_csv(tmp_path / "a.csv")
    pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", **{name: np.array(values) for name, values in columns.items()})
    tables = [read_table(tmp_path / f"a.{kind}") for kind in ("csv", "parquet", "npz")]
    for table in tables:
        assert list(table.columns) == list(columns)
        assert [column.kind for column in table.columns.values()] == ["integer", "number", "text", "text", "text"]
        assert table["smoker"].texts()[:2] == ["true", "false"]
        np.testing.assert_array_equal(table["dose"].numbers, columns["dose"])


def test_an_array_of_two_dimensions_is_several_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(6.0).reshape(3, 2), y=np.array([1, 0, 1]), z=np.array([b"u", b"v", b""]))
    table = read_table(tmp_path / "a.npz")
    assert list(table.columns) == ["x_0", "x_1", "y", "z"]
    np.testing.assert_array_equal(table["x_1"].numbers, [1, 3, 5])
    assert table["z"].texts() == ["u", "v", None]


def test_types_of_parquet_are_its_own(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "day": pl.Series([1, 2]).cast(pl.Date),
            "kind": pl.Series(["a", "b"]).cast(pl.Categorical),
            "many": [[1], [2, 3]],
            "none": pl.Series([None, None], dtype=pl.Null),
            "exact": pl.Series(["1.50", "2"]).cast(pl.Decimal(10, 2)),
        }
    )
    frame.write_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert [column.kind for column in table.columns.values()] == ["date", "text", "List(Int64)", "integer", "number"]
    labels = read_table(csv(tmp_path, "y\na\na\na\nb\nb\nb\n"))["y"]
    found, notes = fit_preprocessing(
        Table("t", {**table.columns, "y": labels}, 2), target="y", rows=ALL(2), drop=["day"]
    )
    assert found.left_out == ("day", "kind", "many", "none")
    assert "columns that are neither numbers nor text are left out: 'many' (List(Int64))" in notes


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.csv", None, "'.*gone.csv' is not there"),
        ("data.xlsx", "x", r"must be a file that ends in .csv or .parquet or .npz, but got '.*data.xlsx'"),
        ("data.csv", "", "is empty"),
        ("data.csv", "\n", "is empty"),
        ("data.csv", "a,b\n", "has no rows, only the names of 2 columns"),
        (
            "data.csv",
            "a;b\n1;2\n1;2;3\n",
            "has 3 values in line 3, but 2 columns: put a value with a semicolon in it in",
        ),
        ("data.csv", "a,b\n1,2\n1,2,3\n", "has 3 values in line 3, but 2 columns: put a value with a comma in it in"),
        ("data.parquet", "not parquet", "cannot be read as Parquet"),
        ("data.npz", "not npz", "is not an NPZ file, or damaged: write it with numpy.savez"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        csv(tmp_path, content, name)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("age;weight, kg;height, cm\n34;70,5;180\n51;80,5;175\n", ["age", "weight, kg", "height, cm"]),
        ("weight, kg;height, m;ill\n70,5;1,80;1\n80,5;1,75;0\n", ["weight, kg", "height, m", "ill"]),
        ("name, first;age\nAnna;3\nBert, jr.;4\n", ["name, first", "age"]),
        ("name\tsize, m; roughly\nx\t2,5\ny\t3,5\n", ["name", "size, m; roughly"]),
        ("a;b,age\n1,2\n3,4\n", ["a;b", "age"]),
        ('"a;b",age\n1,2\n', ["a;b", "age"]),
        ("text;note,age\nx;y,2\nz;w,4\n", ["text;note", "age"]),
        ("a,b;c\n", ["a", "b;c"]),
    ],
)
def test_the_header_may_hold_other_separators(tmp_path: Path, text: str, names: list[str]) -> None:
    (tmp_path / "a.csv").write_text(text)
    if text.count("\n") > 1:
        assert list(read_table(tmp_path / "a.csv").columns) == names
    else:
        assert find_separator(tmp_path / "a.csv") == ","


@pytest.mark.parametrize("mark", [";", "\t"])
def test_semicolons_and_tabs_separate_too(tmp_path: Path, mark: str) -> None:
    rows = [["a", '"b, or c"', "d"], ["1", "x", "1,5"], ["2", f'"y{mark}z"', "2,5"]]
    table = read_table(csv(tmp_path, "\n" + "\n".join(mark.join(row) for row in rows) + "\n"))
    assert list(table.columns) == ["a", "b, or c", "d"]
    assert table["a"].numbers.tolist() == [1, 2]
    assert table["b, or c"].texts() == ["x", f"y{mark}z"]
    part = read_table(tmp_path / "data.csv", columns=["d"])
    assert (part["d"].texts(), part.other_columns) == (["1,5", "2,5"], ("a", "b, or c"))
    assert list(read_table(csv(tmp_path, f"a,b{mark}c\n1,2\n")).columns) == ["a", f"b{mark}c"]  # commas come first


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        read_table(tmp_path / "a.csv")


TOWNS = 'größe;stadt\n1,5;Köln\n2,5;"Genève; Bâle"\n3,5;Smörgås\n'


@pytest.mark.parametrize(
    ("encoding", "notes"),
    [
        ("utf-8-sig", ()),
        ("latin-1", ("the file is not text in UTF-8: it is read as Windows-1252",)),
        ("windows-1252", ("the file is not text in UTF-8: it is read as Windows-1252",)),
        ("utf-16", ()),
        ("utf-32", ()),
    ],
)
def test_other_encodings_are_read_as_utf8_is(tmp_path: Path, encoding: str, notes: tuple[str, ...]) -> None:
    text = TOWNS.replace("Smör", "€ – Smör") if encoding != "latin-1" else TOWNS
    expected = read_table(csv(tmp_path, text))
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    for columns in (None, ["stadt"]):
        table = read_table(tmp_path / "a.csv", columns=columns)
        assert table["stadt"].texts() == expected["stadt"].texts()
        assert [*table.other_columns, *table.columns] == ["größe", "stadt"]
        assert table.notes == notes
    assert expected["stadt"].texts()[1] == "Genève; Bâle"


def test_big_endian_utf16_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xfe\xff" + TOWNS.encode("utf-16-be"))
    assert read_table(tmp_path / "a.csv")["stadt"].texts()[2] == "Smörgås"


@pytest.mark.parametrize("content", [b"a,b\n\xff\x00,1\n", b"a,b\n\x81,1\n", b"\xff\xfea\x00,\x00b"])
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match="is not text in UTF-8, UTF-16 or Windows-1252: save the table as UTF-8"):
        read_table(tmp_path / "a.csv")


def test_a_long_line_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("a,b\nköln,2\n1,2,3\n".encode("latin-1"))
    with pytest.raises(ValueError, match="has 3 values in line 3, but 2 columns"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "names", "renamed"),
    [
        ("b;y;y\n1;2;3\n", ["b", "y", "y_2"], {"y_2": "y"}),
        ("b,y, y\n1,2,3\n", ["b", "y", "y_2"], {"y_2": "y"}),
        ("\r\ny,y,y\r\n1,2,3\r\n", ["y", "y_2", "y_3"], {"y_2": "y", "y_3": "y"}),
        (",,y\n1,2,3\n", ["", "column_2", "y"], {"column_2": ""}),
        ("y,y_2,y\n1,2,3\n", ["y", "y_2", "y_3"], {"y_3": "y"}),
        ('"a, b","a, b",c\n1,2,3\n', ["a, b", "a, b_2", "c"], {"a, b_2": "a, b"}),
    ],
)
def test_repeated_names_get_a_number(tmp_path: Path, text: str, names: list[str], renamed: dict[str, str]) -> None:
    table = read_table(csv(tmp_path, text))
    assert list(table.columns) == names
    assert [column.numbers.tolist() for column in table.columns.values()] == [[1], [2], [3]]
    assert table.header is not None
    assert table.header.renamed == renamed
    assert table.notes == (f"columns of the same name are renamed: {', '.join(map(repr, renamed))}",)
    part = read_table(tmp_path / "data.csv", columns=names[2:])
    assert part[names[2]].numbers.tolist() == [3]
    assert part.other_columns == tuple(names[:2])


FLOWERS = "5.1,3.5,setosa\n4.9,3.0,setosa\n6.3,3.3,virginica\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_first_line_may_be_a_row(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_bytes(FLOWERS.encode(encoding))
    table = read_table(tmp_path / "a.csv", no_header=True)
    assert list(table.columns) == ["column_1", "column_2", "column_3"]
    assert table["column_1"].numbers.tolist() == [5.1, 4.9, 6.3]
    assert table["column_3"].texts() == ["setosa", "setosa", "virginica"]
    assert table.notes == ()
    part = read_table(tmp_path / "a.csv", columns=["column_2"], no_header=True)
    assert (part["column_2"].numbers.tolist(), part.num_rows) == ([3.5, 3.0, 3.3], 3)


def test_a_first_line_that_looks_like_a_row_is_noted(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, FLOWERS))
    assert table.num_rows == 2
    assert read_table(csv(tmp_path, "5.1,3.5,red,setosa\n4.9,3.0,red,setosa\n")).notes == table.notes
    assert table.notes == ("the first line looks like data, not like names of columns: pass `no_header` if it is",)
    with pytest.raises(ValueError, match=r"there is no column 'kind' in data.csv: .*; its first line looks like data"):
        _ = table["kind"]
    for text in ("country,2019,2020\nx,1,2\n", "0,1,2,truth\n.1,.2,.7,1\n", "a,b,1.5\n1,2,3\n"):
        assert read_table(csv(tmp_path, text)).notes == ()
    np.savez(tmp_path / "a.npz", a=[1])
    with pytest.raises(ValueError, match=r"`no_header` is for .csv files, but got '.*a.npz'"):
        read_table(tmp_path / "a.npz", no_header=True)


def test_names_that_only_look_repeated(tmp_path: Path) -> None:
    table = read_table(csv(tmp_path, "\ufeffy_duplicated_0,Y,z,größe\n1,2,3,4\n"))
    assert list(table.columns) == ["y_duplicated_0", "Y", "z", "größe"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 2, 2))}, r"'x' has shape \(2, 2, 2\): a table needs one or two dimensions"),
        ({"x": np.zeros(2), "y": np.zeros(3)}, "columns of different lengths, from 2 to 3"),
        ({"x": np.zeros((2, 1)), "x_0": np.zeros(2)}, "two arrays give a column 'x_0'"),
        ({"x": np.array([{}, {}])}, "holds Python objects"),
    ],
)
def test_arrays_that_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "a.npz")


# --- inputs ---


def test_numbers_are_taken_as_they_are(tmp_path: Path) -> None:
    table = table_of(tmp_path, x=[1.0, 3.0, 5.0, 1000.0, -7.0, 2.0], y=["a", "b", "a", "b", "a", "b"])
    found, notes = fit_preprocessing(table, target="y", rows=np.array([0, 1, 2]))
    assert found.inputs == (NumberInput("x"),)
    inputs, more = found.transform(table)
    np.testing.assert_array_equal(inputs[:, 0], [1, 3, 5, 1000, -7, 2])
    assert inputs.dtype == np.float64
    assert notes == more == []


def test_text_becomes_one_input_a_value(tmp_path: Path) -> None:
    columns = mixed()
    table = table_of(tmp_path, **columns)
    found, _ = fit_preprocessing(table, target="ill", rows=ALL(12), drop=["dose"])
    assert found.inputs[1:] == (
        CategoryInput("site", ("east", "north", "south")),
        CategoryInput("smoker", ("false", "true")),
    )
    assert found.features == ("age", "site", "site", "site", "smoker", "smoker")
    inputs, _ = found.transform(table)
    assert inputs.shape == (12, 6)
    np.testing.assert_array_equal(inputs[:3, 1:4], [[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(inputs[:2, 4:], [[0, 1], [1, 0]])


def test_constant_columns_are_left_out_and_named(tmp_path: Path) -> None:
    table = table_of(tmp_path, **mixed(), zero=[0.0] * 12, third=[0.1 + 0.2] * 12, place=["here"] * 12)
    found, notes = fit_preprocessing(table, target="ill", rows=ALL(12))
    assert [each.name for each in found.inputs] == ["age", "dose", "site", "smoker"]
    assert notes == ["columns with only one value are left out: 'zero', 'third', 'place'"]
    assert found.left_out == ("zero", "third", "place")
    assert found.transform(table)[1] == []


def test_large_numbers_do_not_overflow(tmp_path: Path) -> None:
    table = table_of(tmp_path, x=[1e300, -1e300, 1e300, -1e300, 5e299, 0.0], y=list("ababab"))
    found, _ = fit_preprocessing(table, target="y", rows=ALL(6))
    assert np.isfinite(found.transform(table)[0]).all()


def test_a_column_that_numbers_the_rows_is_pointed_out(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"the year": list(range(1990, 2002))}, **mixed())
    found, notes = fit_preprocessing(table, target="ill", rows=ALL(12))
    assert notes == ["column 'the year' seems to number the rows: if so, leave it out with --drop 'the year'"]
    assert found.columns[0] == "the year"


def test_preprocessing_survives_json(tmp_path: Path) -> None:
    table = table_of(tmp_path, **mixed(), odd=[1 / 3 + i / 7 for i in range(12)])
    found, _ = fit_preprocessing(table, target="ill", rows=ALL(9), drop=["age"])
    again = Preprocessing.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    np.testing.assert_array_equal(again.transform(table)[0], found.transform(table)[0])
    np.testing.assert_array_equal(again.labels(table), [0, 1] * 6)


@pytest.mark.parametrize("data", [{}, [], {"format": "other"}])
def test_other_json_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="preprocessing"):
        Preprocessing.from_json(data)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["new[1]", "new[", "n*"])
def test_a_file_name_is_no_pattern(tmp_path: Path, name: str, kind: str) -> None:
    for each, value in (("new1", 1), (name, 2)):
        getattr(pl.DataFrame({"a": [value]}), f"write_{kind}")(tmp_path / f"{each}.{kind}")
    for columns in (None, ["a"]):
        assert read_table(tmp_path / f"{name}.{kind}", columns=columns)["a"].numbers.tolist() == [2]


# --- only what is needed, and not more than can be parsed ---


def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The columns that polars is asked for, file by file; None for all of them."""
    found: list[object] = []
    for name in ("read_csv", "read_parquet"):
        real = getattr(pl, name)

        def read(path: Path, real: Callable[..., pl.DataFrame] = real, **how: object) -> pl.DataFrame:
            if how.get("n_rows") != 0:  # not the names alone
                found.append(how.get("columns"))
            return real(path, **how)

        monkeypatch.setattr(pl, name, read)
    return found


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_only_the_columns_that_are_wanted_are_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file = tmp_path / f"a.{kind}"
    frame = pl.DataFrame({**{f"more_{i}": ["x", "y"] for i in range(200)}, "b": [1.5, 2.5], "a": ["p", "q"]})
    if kind == "npz":
        np.savez(file, **{name: np.array(frame[name].to_list()) for name in frame.columns})
    else:
        getattr(frame, f"write_{kind}")(file)
    parsed = asked(monkeypatch)
    table = read_table(file, columns=["a", "b", "gone"])
    assert list(table.columns) == ["b", "a"]
    assert table["b"].numbers.tolist() == [1.5, 2.5]
    assert table["a"].texts() == ["p", "q"]
    assert table.other_columns == tuple(f"more_{i}" for i in range(200))
    assert parsed == ([] if kind == "npz" else [["b", "a"]])
    with pytest.raises(ValueError, match="there is no column 'gone' in a"):
        _ = table["gone"]
    none = read_table(file, columns=["gone"])
    assert (none.num_rows, list(none.columns)) == (2, ["more_0"])  # which says how many rows there are
    assert list(read_table(file).columns) == frame.columns


def test_the_columns_of_a_model_are_all_that_is_needed(tmp_path: Path) -> None:
    table = table_of(tmp_path, more=[7] * 12, **mixed())
    found, _ = fit_preprocessing(table, target="ill", rows=ALL(12), drop=["more"])
    part = read_table(tmp_path / "data.csv", columns=found.columns)
    assert set(part.other_columns) == {"more", "ill"}
    np.testing.assert_array_equal(found.transform(part)[0], found.transform(table)[0])
    other = table_of(tmp_path, **mixed(), shoe=[1] * 12)
    _, notes = found.transform(read_table(tmp_path / "data.csv", columns=found.columns))
    assert notes == found.transform(other)[1] == ["columns unknown to the model are ignored: 'shoe'"]
    csv(tmp_path, "agee,shoe\n1,2\n")
    with pytest.raises(ValueError, match="did you mean 'agee'"):
        found.transform(read_table(tmp_path / "data.csv", columns=found.columns))


@pytest.mark.parametrize(
    ("rows", "parsed"),
    [
        ("1,2,3\n", ["b"]),
        ('1,2,"3"\n', ["b"]),
        ('1,2,"3, or 4"\n', None),  # as many commas as a line with four values
        ('1,2,"3\n4"\n', None),
    ],
)
def test_lines_that_may_have_too_many_values_are_parsed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str, parsed: object
) -> None:
    found = asked(monkeypatch)
    table = read_table(csv(tmp_path, f"a,b,c\n0,1,2\n{rows}"), columns=["b"])
    assert table["b"].numbers.tolist() == [1, 2]
    assert list(table.columns) == ["b"]
    assert found == [parsed]


@pytest.mark.parametrize("row", ["1,5,2,3", '1,"5\n",2,3'])
def test_a_value_too_many_is_refused_whatever_is_wanted(tmp_path: Path, row: str) -> None:
    for columns in (None, ["b"], ["c"]):
        with pytest.raises(ValueError, match=r"has 4 values in line \d, but 3 columns"):
            read_table(csv(tmp_path, f"a,b,c\n0,1,2\n{row}\n"), columns=columns)


@pytest.mark.parametrize("columns", [None, ["a"]])
@pytest.mark.parametrize("where", ["header", "first", "last", "only"])
def test_a_line_too_long_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: list[str] | None, where: str
) -> None:
    monkeypatch.setattr(module, "MOST_LINE_BYTES", 2**20)
    monkeypatch.setattr(module, "BYTES_PER_BLOCK", 2**10)
    lines = ["a,b", *["1,2"] * 3]
    place = {"header": 0, "first": 1, "last": 3, "only": 0}[where]
    for length in (2**20, 2**20 + 1):
        lines[place] = "a," + "x" * (length - 2)
        path = csv(tmp_path, lines[0] if where == "only" else "\n".join(lines) + "\n")
        if length == 2**20:
            if where != "only":
                assert read_table(path, columns=columns).num_rows == 3
            continue
        with monkeypatch.context() as patch:
            patch.setattr(pl, "read_csv", lambda *_, **__: pytest.fail("it was parsed"))
            with pytest.raises(ValueError, match="has a line of more than 1 MB"):
                read_table(path, columns=columns)


def test_more_columns_than_can_be_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_COLUMNS", 3)
    assert len(read_table(csv(tmp_path, "a,b,c\n1,2,3\n")).columns) == 3
    with pytest.raises(ValueError, match="has more than 3 columns"):
        read_table(csv(tmp_path, "a,b,c,d\n1,2,3,4\n"))


AGE = {"kind": "number", "name": "age", "decimal": ".", "missing": False}
SITE = {"kind": "category", "name": "site", "values": ["east", "north"], "other": False, "missing": False}
DAY = {"kind": "date", "name": "day", "parts": ["day", "hour"], "day_first": True, "missing": True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "`target` must be"),
        ({"numeric_target": "no"}, "`numeric_target` must be"),
        ({"inputs": []}, "`inputs` must be"),
        ({"inputs": {"age": AGE}}, "`inputs` must be"),
        ({"inputs": [AGE, AGE]}, "different names"),
        ({"inputs": [{**AGE, "name": "ill"}]}, "different names"),
        ({"inputs": ["age"]}, r"`inputs\[0\]` must be a column"),
        ({"inputs": [AGE, {**SITE, "values": ["east", "east"]}]}, r"`inputs\[1\].values` must be"),
        ({"inputs": [AGE, {**SITE, "values": []}]}, r"`inputs\[1\].values` must be"),
        ({"classes": ["no"]}, "`classes` must be"),
        ({"classes": ["no", 1]}, "`classes` must be"),
        ({"left_out": "unit"}, "`left_out` must be"),
        ({"id_column": None}, "`id_column` must be the name of a column"),
        ({"inputs": [{**AGE, "kind": ["number"]}]}, r"`inputs\[0\]` must be a column with a name and a kind"),
        ({"inputs": [{**AGE, "decimal": ";"}]}, r"`inputs\[0\].decimal` must be a point or a comma"),
        ({"inputs": [{**AGE, "missing": 1}]}, r"`inputs\[0\].missing` must be true or false"),
        ({"inputs": [AGE, {**SITE, "other": None}]}, r"`inputs\[1\].other` must be true or false"),
        ({"inputs": [{**DAY, "day_first": "no"}]}, r"`inputs\[0\].day_first` must be true or false"),
        ({"inputs": [{**DAY, "parts": ["day", "moon"]}]}, r"`inputs\[0\].parts` must be some of 'day', 'month'"),
        ({"inputs": [{**DAY, "parts": []}]}, r"`inputs\[0\].parts` must be a list of at least 1"),
    ],
)
def test_damaged_json_is_refused(change: dict[str, object], message: str) -> None:
    good = {"target": "ill", "classes": ["no", "yes"], "numeric_target": False, "left_out": [], "id_column": ""}
    data = {"format": "selbo-preprocessing-3", **good, "inputs": [AGE, SITE, DAY]}
    assert Preprocessing.from_json(data).features == ("age", "site", "site", "day", "day")
    with pytest.raises(ValueError, match=message):
        Preprocessing.from_json({**data, **change})


@pytest.mark.parametrize(
    ("drop", "message"),
    [
        (["ill"], "the target 'ill' cannot be left out"),
        (["Age "], "no column 'Age ' in data.csv: did you mean 'age'"),
        (["qqq"], "no column 'qqq' in data.csv: there are 'age', 'dose'"),
        (["age", "dose", "site", "smoker"], "no column to predict 'ill' from"),
    ],
)
def test_columns_to_leave_out_that_are_refused(tmp_path: Path, drop: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_preprocessing(table_of(tmp_path, **mixed()), target="ill", rows=ALL(12), drop=drop)


# --- other tables than that of training ---


@pytest.fixture
def known(tmp_path: Path) -> Preprocessing:
    return fit_preprocessing(table_of(tmp_path, **mixed()), target="ill", rows=ALL(12))[0]


def test_unseen_values_are_none_of_the_known(tmp_path: Path, known: Preprocessing) -> None:
    columns = mixed(2) | {"site": ["west", "south"]}
    del columns["ill"]
    inputs, notes = known.transform(table_of(tmp_path, **columns))
    np.testing.assert_array_equal(inputs[:, 2:5], [[0, 0, 0], [0, 0, 1]])
    assert notes == ["column 'site' has values not seen in training, 'west', in 1 row: they count as other values"]


def test_categories_that_look_like_numbers_elsewhere(tmp_path: Path) -> None:
    """A file with the codes 1 and 2 alone is a column of numbers; the training file had a C as well."""
    found, _ = fit_preprocessing(
        table_of(tmp_path, code=["1", "2", "C"] * 4, y=["a", "b"] * 6), target="y", rows=ALL(12)
    )
    inputs, notes = found.transform(table_of(tmp_path, code=["2", "1"]))
    np.testing.assert_array_equal(inputs, [[0, 1, 0], [1, 0, 0]])
    assert notes == []


def test_columns_too_many_are_ignored_and_named(tmp_path: Path, known: Preprocessing) -> None:
    _, notes = known.transform(table_of(tmp_path, **mixed(), shoe=[1] * 12))
    assert notes == ["columns unknown to the model are ignored: 'shoe'"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": None, "Age": list(range(12))}, "has no 'age': did you mean 'Age'"),
        ({"age": None, "site": None}, "has no 'age', 'site': there are 'dose', 'smoker', 'ill'"),
        ({"age": ["2024-01-02"] * 12}, "'age' must hold numbers as in training, but data.csv has '2024-01-02' in it$"),
        ({"age": ["old"] * 12}, "'age' must hold numbers as in training, but data.csv has 'old' in it"),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, known: Preprocessing, change: dict[str, object], message: str) -> None:
    columns = {name: values for name, values in (mixed() | change).items() if values is not None}
    with pytest.raises(ValueError, match=message):
        known.transform(table_of(tmp_path, **columns))


def test_labels_not_seen_in_training_are_named(tmp_path: Path, known: Preprocessing) -> None:
    table = table_of(tmp_path, **(mixed() | {"ill": ["no", "maybe", "yes"] * 4}))
    with pytest.raises(
        ValueError, match=r"labels not seen in training, 'maybe', in 4 rows; the classes are 'no', 'yes'"
    ):
        known.labels(table)


# --- the target ---


def test_classes_of_numbers_are_in_the_order_of_size(tmp_path: Path) -> None:
    assert find_classes(table_of(tmp_path, y=[10, 9, -1] * 3), "y") == ("-1", "9", "10")
    assert find_classes(table_of(tmp_path, y=["10", "9", "x"] * 3), "y") == ("10", "9", "x")
    assert find_classes(table_of(tmp_path, y=[0.5, 1.0] * 3), "y") == ("0.5", "1")
    assert find_classes(table_of(tmp_path, y=[1e300, -2.0] * 3), "y")[0] == "-2"  # too large for a whole number
    assert find_classes(table_of(tmp_path, y=[True, False] * 3), "y") == ("false", "true")


def test_one_and_one_point_zero_are_the_same_class(tmp_path: Path) -> None:
    table = table_of(tmp_path, x=list(range(6)), y=[0, 1] * 3)
    found, _ = fit_preprocessing(table, target="y", rows=ALL(6))
    np.testing.assert_array_equal(found.labels(table_of(tmp_path, y=[1.0, 0.0])), [1, 0])
    assert found.class_labels.tolist() == [0, 1]
    assert label_names(table_of(tmp_path, y=["01", "x"]), "y") == ["01", "x"]


def test_words_for_missing_values_that_are_classes(tmp_path: Path) -> None:
    assert find_classes(table_of(tmp_path, y=["+", "-"] * 3), "y") == ("+", "-")
    assert find_classes(table_of(tmp_path, y=["mild", "none", "severe"] * 3), "y") == ("mild", "none", "severe")
    older = Preprocessing("y", ("mild", "null"), numeric_target=False, inputs=())  # of a model that has such a class
    np.testing.assert_array_equal(older.labels(table_of(tmp_path, y=["null", "mild"])), [1, 0])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (["a"] * 9, "at least 2 classes, but all of 'y' is 'a'"),
        (["a"] * 7 + ["b"] * 2, "at least 3 rows, and two of them must, but 1 of 2 in 'y' have fewer: 'b'"),
        ([*"aaaabbbb", *"cdef"], "at least 3 rows, .* but 4 of 6 in 'y' have fewer: 'c', 'd', 'e', 'f'"),
        ([None] * 9, "the target must be known in some rows, but 'y' has no value in 9"),
        (["NA"] * 9, "the target must be known in some rows, but 'y' has no value in 9"),
        (["a", "-"] * 3, "at least 2 classes, but all of 'y' is 'a', and 3 of 6 rows have no label"),
        ([0.1 * i for i in range(33)], "33 different numbers in 33 rows, as in regression"),
        (list(range(60)) * 3, "60 different numbers in 180 rows, as in regression"),
        (["2024-01-01", "2024-01-02"] * 3, "'y' holds dates"),
    ],
)
def test_targets_that_are_refused(tmp_path: Path, target: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_classes(table_of(tmp_path, x=list(range(len(target))), y=target), "y")


# --- parts ---


def test_parts_are_disjoint_and_have_every_class_in_its_share(seed: int) -> None:
    labels = ["a"] * 60 + ["b"] * 30 + ["c"] * 3
    parts = split(labels, test_fraction=0.2, val_fraction=0.1, seed=seed)
    together = np.concatenate([parts.train, parts.val, parts.test])
    assert sorted(together) == list(range(93))
    counts = [
        [sum(labels[row] == name for row in part) for name in "abc"] for part in (parts.train, parts.val, parts.test)
    ]
    assert counts == [[42, 21, 1], [6, 3, 1], [12, 6, 1]]
    again = split(labels, test_fraction=0.2, val_fraction=0.1, seed=seed)
    assert all(np.array_equal(getattr(parts, name), getattr(again, name)) for name in ("train", "val", "test"))
    other = split(labels, test_fraction=0.2, val_fraction=0.1, seed=seed + 1)
    assert not np.array_equal(parts.train, other.train)


@pytest.mark.parametrize(
    ("test", "val", "message"),
    [(-0.1, 0.1, "test_fraction"), (0.2, 1.0, "val_fraction"), (0.6, 0.4, "must leave rows to train on")],
)
def test_shares_that_are_refused(test: float, val: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(["a"] * 9, test_fraction=test, val_fraction=val, seed=0)


def test_there_is_a_reader_for_every_kind_of_file() -> None:
    assert tuple(module.READERS) == DATA_FILES
