"""Large tables, chunk by chunk: the same content as the whole, and no chunk larger than asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from selbo.tabular import chunks
from selbo.tabular.chunks import Reservoir, is_large, open_large, read_sample
from selbo.tabular.table import read_table

WORDS = ["plain", "a, b", 'say "no"', "two\nlines", "", "  padded "]


def odd_table(rows: int = 400, seed: int = 0) -> pl.DataFrame:
    draws = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "number": [f"{value:.4g}" for value in draws.normal(size=rows)],
            "gaps": [("NA", "", "nan", f"{k}")[int(draws.integers(4))] for k in range(rows)],
            "late": ["1"] * (rows - 1) + ["one"],  # text, as the last row shows
            "word": [WORDS[int(k)] for k in draws.integers(0, len(WORDS), rows)],
            "truth": [("True", "false")[int(k)] for k in draws.integers(0, 2, rows)],
            "mostly truth": ["True"] * (rows - 1) + ["maybe"],
            "day": [f"2021-03-{1 + k % 28:02d}" for k in range(rows)],
            "never": ["NA"] * rows,
            "empty": [""] * rows,
        }
    )


def write(frame: pl.DataFrame, path: Path, mark: str = ",", start: bytes = b"") -> Path:
    path.write_bytes(start + frame.write_csv(separator=mark).encode())
    return path


@pytest.mark.parametrize("size", [60, 500, 2000, 2**20])
@pytest.mark.parametrize(("mark", "start"), [(",", b""), (";", b""), (",", b"\xef\xbb\xbf"), (",", b"\n\n")])
def test_a_csv_file_in_parts_is_the_whole(tmp_path, monkeypatch, size, mark, start):
    file = write(odd_table(100), tmp_path / "t.csv", mark, start)
    monkeypatch.setattr(chunks, "BYTES_PER_CHUNK", size)
    whole = read_table(file)
    found, rows = read_sample(file, most=10**6, seed=0)
    assert rows == whole.num_rows == found.num_rows
    for name, column in whole.columns.items():
        assert found[name].kind == column.kind, name
        assert found[name].texts() == column.texts(), name
        if column.numbers is not None:
            np.testing.assert_array_equal(found[name].numbers, column.numbers)


@pytest.mark.parametrize("no_header", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252", "utf-16"])
@pytest.mark.parametrize("size", [60, 2**20])
def test_any_text_in_parts_is_the_whole(tmp_path, monkeypatch, size, encoding, no_header):
    """Other encodings, names that are repeated, and none."""
    names = "zahl,zahl,größe\n" if not no_header else ""
    lines = [f'{k},{k / 2},"Köln, {WORDS[k % 4]!r} {k}"\n' for k in range(100)]
    (tmp_path / "t.csv").write_bytes((names + "".join(lines)).encode(encoding))
    monkeypatch.setattr(chunks, "BYTES_PER_CHUNK", size)
    whole, large = (read(tmp_path / "t.csv", no_header=no_header) for read in (read_table, open_large))
    assert tuple(whole.columns) == large.names
    assert whole.notes == large.notes
    found, rows = read_sample(tmp_path / "t.csv", most=10**6, seed=0, no_header=no_header)
    assert rows == whole.num_rows == 100
    assert {name: found[name].texts() for name in whole.columns} == {
        name: column.texts() for name, column in whole.columns.items()
    }
    assert sum(chunk.share for chunk in large.chunks()) == pytest.approx(1, abs=0.01)


def test_a_parquet_file_in_parts_is_the_whole(tmp_path, monkeypatch):
    frame = odd_table().with_columns(pl.Series("float", np.linspace(0, 1, 400, dtype=np.float32)), pl.lit(3).alias("i"))
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=70)
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 33)
    large, whole = open_large(tmp_path / "t.parquet"), read_table(tmp_path / "t.parquet")
    parts = list(large.chunks())
    assert [len(each.frame) for each in parts] == [33] * 12 + [4]
    assert [each.first for each in parts] == list(range(0, 400, 33))
    assert sum(each.share for each in parts) == pytest.approx(1)
    for name, column in whole.columns.items():
        assert [text for each in parts for text in each.table[name].texts()] == column.texts()


def test_no_part_is_larger_than_asked_for(tmp_path, monkeypatch):
    """Memory is bounded by construction: whatever the size of the file, so many bytes or cells are parsed at a time."""
    file = write(odd_table(4000), tmp_path / "t.csv")
    longest = max(map(len, file.read_bytes().split(b"\n")))
    monkeypatch.setattr(chunks, "BYTES_PER_CHUNK", 4096)
    parsed, read_csv = [], pl.read_csv

    def watched(source, **how):
        parsed.append(len(source) if isinstance(source, bytes) else 0)
        return read_csv(source, **how)

    monkeypatch.setattr(pl, "read_csv", watched)
    assert sum(each.frame.height for each in open_large(file).chunks()) == 4000
    assert len(parsed) > 20
    assert max(parsed) <= 4096 + 3 * longest  # and what was left of a row, which may have two lines
    odd_table(4000).write_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(chunks, "CELLS_PER_CHUNK", 900)
    assert {each.frame.height for each in open_large(tmp_path / "t.parquet").chunks()} == {100}


def test_only_some_columns(tmp_path):
    large = open_large(write(odd_table(), tmp_path / "t.csv")).only(["word", "number", "nothing"])
    (chunk,) = large.chunks()
    assert list(chunk.table.columns) == ["number", "word"]
    assert "late" in chunk.table.other_columns
    with pytest.raises(ValueError, match=r"there is no column 'Late' in t\.csv: did you mean 'late'"):
        _ = chunk.table["Late"]


@pytest.mark.parametrize("size", [5, 12, 1000])
def test_short_rows_have_missing_values_wherever_they_stand(tmp_path, monkeypatch, size):
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,3\n4,5\n6,7,8\n9")
    monkeypatch.setattr(chunks, "BYTES_PER_CHUNK", size)
    whole, (found, _) = read_table(tmp_path / "t.csv"), read_sample(tmp_path / "t.csv", most=9, seed=0)
    assert whole["c"].texts() == ["3", None, "8", None]
    assert {name: found[name].texts() for name in "abc"} == {name: whole[name].texts() for name in "abc"}


def test_a_line_with_too_many_values_is_named(tmp_path, monkeypatch):
    lines = ["a,b"] + ["1,2"] * 700 + ["1,2,3"] + ["1,2"] * 300
    (tmp_path / "t.csv").write_text("\n".join(lines))
    monkeypatch.setattr(chunks, "BYTES_PER_CHUNK", 400)
    with pytest.raises(ValueError, match="has 3 values in line 702, but 2 columns"):
        list(open_large(tmp_path / "t.csv").chunks())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n", "has no rows, only the names of 2 columns"),
        (b"a,b\n1,\xff\x00\n" + b"1,2\n" * 3, "is not text in UTF-8, UTF-16 or Windows-1252"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        list(open_large(tmp_path / "t.csv").chunks())


def test_what_is_large(tmp_path, monkeypatch):
    file = write(odd_table(), tmp_path / "t.csv")
    np.savez(tmp_path / "t.npz", a=np.arange(9))
    assert not is_large(file)
    assert is_large(file, stream=True)
    monkeypatch.setitem(chunks.LARGE_BYTES, ".csv", 1000)
    assert is_large(file)
    assert not is_large(file, stream=False)
    assert not is_large(tmp_path / "t.npz")
    with pytest.raises(ValueError, match=r"`stream` is for .csv and .parquet files, but got '.*t.npz'"):
        is_large(tmp_path / "t.npz", stream=True)


def test_a_sample_is_uniform(seed):
    """Each row is as likely as any other, wherever it stands: counts over many samples, five standard errors."""
    counts, rounds = np.zeros(90), 300
    for k in range(rounds):
        reservoir = Reservoir(15, seed=1000 * seed + k)
        for first in range(0, 90, 30):
            reservoir.add(first, pl.DataFrame({"row": np.arange(first, first + 30)}))
        frame, rows = reservoir.sample()
        assert frame["row"].to_list() == rows.tolist() == sorted(set(rows.tolist()))
        assert len(rows) == 15
        counts[rows] += 1
    share = 15 / 90
    error = np.sqrt(rounds * share * (1 - share))
    assert np.abs(counts - rounds * share).max() < 5 * error
    thirds = counts.reshape(3, 30).sum(1)
    assert np.abs(thirds - rounds * 5).max() < 5 * np.sqrt(rounds * 15 * (1 / 3) * (2 / 3))


def test_a_sample_of_fewer_rows_is_all_of_them():
    reservoir = Reservoir(50, seed=0)
    for first in (0, 20):
        reservoir.add(first, pl.DataFrame({"row": np.arange(first, first + 20)}))
    frame, rows = reservoir.sample()
    assert frame["row"].to_list() == rows.tolist() == list(range(40))
