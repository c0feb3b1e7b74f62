"""Files of predictions: which columns are the classes, what they hold, and that nothing else is changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from selbo.tabular.predictions import (
    PredictionFile,
    as_log_probs,
    columns_as_array,
    find_class_columns,
    parse_labels,
    read_predictions,
    recognise_kind,
)

PROBS = np.array([[0.2, 0.7, 0.1], [0.5, 0.25, 0.25], [0.9, 0.04, 0.06]])


def as_file(folder: Path, kind: str, **columns: object) -> PredictionFile:
    path = folder / f"table.{kind}"
    frame = pl.DataFrame(columns)
    if kind == "csv":
        frame.write_csv(path)
    elif kind == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_ndjson(path)
    return read_predictions(path)


def of_classes(probs: np.ndarray, *names: str) -> dict[str, list[float]]:
    return {name: probs[:, k].tolist() for k, name in enumerate(names)}


# --- which columns ---


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_ids_text_and_flags_are_left_alone(kind: str, tmp_path: Path) -> None:
    scores = of_classes(PROBS, "a", "b", "c")
    file = as_file(tmp_path, kind, id=[7, 8, 9], text=["x", "y", "0.5"], **scores, seen=[0, 1, 1])
    found = find_class_columns(file.table)
    assert found.columns == found.classes == ("a", "b", "c")
    assert found.others == ("id", "seen")
    assert columns_as_array(file.table, found.columns) == pytest.approx(PROBS)


def test_only_columns_of_no_class_are_suggested(tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", **of_classes(PROBS, "class1", "class2", "third"))
    with pytest.raises(ValueError, match=r"'class3', .* in table\.csv: there are 'class1', 'class2', 'third'"):
        find_class_columns(file.table, classes=("class1", "class2", "class3"))


def test_columns_of_selbo_predict_come_first(tmp_path: Path) -> None:
    scores = of_classes(PROBS, "p_a", "p_b", "p_c")
    file = as_file(tmp_path, "csv", predicted_class=list("bac"), **scores, entropy=[0.1, 0.2, 0.3])
    found = find_class_columns(file.table)
    assert (found.columns, found.classes, found.others) == (("p_a", "p_b", "p_c"), ("a", "b", "c"), ("entropy",))


def test_a_class_that_is_never_probable_is_still_a_class(tmp_path: Path) -> None:
    two = PROBS[:, :2] / PROBS[:, :2].sum(1, keepdims=True)
    file = as_file(tmp_path, "parquet", **of_classes(two, "a", "b"), never=[0.0, 0.0, 0.0])
    assert find_class_columns(file.table).columns == ("a", "b", "never")


def test_whole_numbers_are_taken_only_if_stated(tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", id=[1, 2, 3], a=[3, -1, 2], b=[0, 4, 5], empty=[None, None, None])
    assert find_class_columns(file.table, columns=["a", "b"]).classes == ("a", "b")
    with pytest.raises(ValueError, match=r"`columns` must be one per class, .* none holds numbers with fractions"):
        find_class_columns(file.table)


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_a_single_column_scores_one_of_two_classes(kind: str, tmp_path: Path) -> None:
    file = as_file(tmp_path, kind, id=[1, 2], p_fraud=[0.9, 0.3], fraud=[0, 1])
    found = find_class_columns(file.table)
    assert (found.columns, found.classes, found.others) == (("p_fraud",), ("not fraud", "fraud"), ("id", "fraud"))
    assert found.positive == "fraud"
    assert find_class_columns(file.table, names=["fine", "fraud"]).classes == ("fine", "fraud")
    for known in (("fine", "fraud"), ("fraud", "fine"), ("not fraud", "fraud")):  # the class that it scores is last
        found = find_class_columns(file.table, classes=known)
        assert (found.columns, found.positive, set(found.classes)) == (("p_fraud",), "fraud", set(known))


def test_a_single_column_beside_measurements_is_found_by_its_class_or_stated(tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", fraud=[0.9, 0.3], amount=[12.5, 0.1])
    assert find_class_columns(file.table, columns=["fraud"]).classes == ("not fraud", "fraud")
    assert find_class_columns(file.table, classes=("not fraud", "fraud")).columns == ("fraud",)
    with pytest.raises(ValueError, match="there is no column for the class 'fine'"):
        find_class_columns(file.table, classes=("fine", "fraud"))  # 'amount' may be it


def test_a_column_of_a_class_with_text_is_no_reason_to_read_the_other_alone(tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", p_no=[0.1, 0.7], p_yes=["0.9", "high"])
    with pytest.raises(ValueError, match=r"`columns` must hold numbers, but 'p_yes' in table\.csv holds text"):
        find_class_columns(file.table)
    assert find_class_columns(file.table, labels="p_yes").columns == ("p_no",)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["fraud"], "`classes` must be two names, with the class of the score last, but got 'fraud'"),
        (["fraud", "fraud"], "`classes` must be two names"),
        (["a", "fraud"], "those of the classes that the calibration was fitted to, 'b', 'fraud', but are 'a', 'fraud'"),
    ],
)
def test_wrong_names_of_the_classes_of_a_single_column(names: list[str], message: str, tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", score=[0.9, 0.3])
    with pytest.raises(ValueError, match=message):
        find_class_columns(file.table, names=names, classes=("b", "fraud"))


@pytest.mark.parametrize("gap", [None, 4.5])
def test_a_measurement_beside_probabilities_is_left_alone(gap: float | None, tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", id=[4, 5, 6], crp=[12.5, gap, 0.3], **of_classes(PROBS, "a", "b", "c"))
    found = find_class_columns(file.table)
    assert (found.columns, found.others) == (("a", "b", "c"), ("id", "crp"))


def test_a_measurement_beside_one_probability_is_no_logit(tmp_path: Path) -> None:
    score = np.linspace(0.05, 0.95, 30).tolist()
    file = as_file(tmp_path, "csv", crp=[10 * each for each in score], score=score)
    with pytest.raises(ValueError, match=r"`columns` must name the columns of the classes .* 'score' has values"):
        find_class_columns(file.table)
    assert find_class_columns(file.table, columns=["crp", "score"]).columns == ("crp", "score")


def test_certain_predictions_are_probabilities(tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", id=[4, 5, 6], a=[1, 0, 1], b=[0, 1, 0])
    assert find_class_columns(file.table).columns == ("a", "b")


def test_columns_of_known_classes(tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", **of_classes(PROBS, "p_a", "p_b", "p_c"))
    assert find_class_columns(file.table, classes=("c", "a", "b")).columns == ("p_c", "p_a", "p_b")
    stated = find_class_columns(file.table, classes=("c", "a", "b"), columns=("p_a", "p_b", "p_c"))
    assert stated.classes == ("a", "b", "c")
    with pytest.raises(ValueError, match=r"no column for the class 'd', which the calibration .* table\.csv"):
        find_class_columns(file.table, classes=("a", "b", "d"))
    with pytest.raises(ValueError, match=r"`columns` must be those of the classes .*'c', 'd', but are 'a', 'b'"):
        find_class_columns(file.table, classes=("c", "d"), columns=("p_a", "p_b"))


@pytest.mark.parametrize(
    ("columns", "labels", "message"),
    [
        (["a", "a"], None, "`columns` must name every column once"),
        (["a"], None, "must be all that are probabilities together in table.csv, 'a', 'b', but only 'a' is named"),
        (["a", "text"], None, "`columns` must hold numbers, but 'text' in table.csv holds text"),
        (["a", "B"], None, "there is no column 'B' in table.csv: did you mean 'b'?"),
        (["a", "b"], "b", "`labels` must be a column of its own, but 'b' is one of the columns"),
    ],
)
def test_wrong_columns(columns: list[str] | None, labels: str | None, message: str, tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", a=[0.5, 0.2], b=[0.5, 0.8], text=["x", "y"])
    with pytest.raises(ValueError, match=re.escape(message)):
        find_class_columns(file.table, columns=columns, labels=labels)


# --- what they hold ---


@pytest.mark.parametrize("scale", [1.0, 0.6])
def test_all_kinds_give_the_same_probabilities(scale: float) -> None:
    kinds = {
        "log-probabilities": np.log(scale * PROBS),
        "logits": np.log(PROBS) + np.array([[3.0], [-4.0], [1.0]]),
        **({"probabilities": PROBS} if scale == 1 else {}),
    }
    for kind, values in kinds.items():
        log_probs, found, text = as_log_probs(values, "abc")
        assert found == kind
        assert np.exp(log_probs) == pytest.approx(PROBS)
        assert (text is not None) == (scale < 1 and kind == "log-probabilities")
        stated, *_ = as_log_probs(values, "abc", kind)
        assert stated == pytest.approx(log_probs)
        if text is not None:
            assert "sum to 0.6, so they are normalised" in text


def test_rounded_probabilities_are_recognised() -> None:
    assert recognise_kind(np.full((1, 7), 0.14)) == "probabilities"  # 0.98
    log_probs, _, text = as_log_probs(np.full((1, 7), 0.14), "abcdefg")
    assert text is None
    assert np.exp(log_probs).sum() == pytest.approx(1)


def test_scores_that_do_not_sum_to_one_must_be_explained() -> None:
    scores = np.array([[0.9, 0.8], [0.1, 0.05]])
    with pytest.raises(ValueError, match=r"`input` must be stated, or `columns`: .* rows sum to 0\.15 to 1\.7"):
        as_log_probs(scores, "ab")
    as_probs, _, text = as_log_probs(scores, "ab", "probabilities")
    assert np.exp(as_probs) == pytest.approx(scores / scores.sum(1, keepdims=True))
    assert text is not None
    as_logits, *_ = as_log_probs(scores, "ab", "logits")
    assert np.exp(as_logits) == pytest.approx(np.exp(scores) / np.exp(scores).sum(1, keepdims=True))


def test_classes_that_a_service_did_not_score_are_impossible() -> None:
    log_probs, *_ = as_log_probs(np.array([[-0.1, -9999.0], [-np.inf, -0.5]]), "ab")
    assert np.exp(log_probs).tolist() == [[1, 0], [0, 1]]


SCORE = np.array([[0.8], [0.25], [1.0], [1e-12], [0.0]])


@pytest.mark.parametrize("kind", ["probabilities", "log-probabilities", "logits"])
def test_a_single_column_is_read_as_both_classes(kind: str) -> None:
    both = np.hstack([1 - SCORE, SCORE])
    with np.errstate(divide="ignore"):
        logs = np.log(both)
    finite = np.isfinite(logs).all(1)
    single, two = {
        "probabilities": (SCORE, both),
        "log-probabilities": (logs[:, 1:], logs),
        "logits": (logs[finite, 1:] - logs[finite, :1], logs[finite]),
    }[kind]
    expected, *_ = as_log_probs(two, "ab", kind)
    given = single.copy()
    found, named, text = as_log_probs(single, "b", kind, overwrite=True)
    assert (named, text) == (kind, None)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(single, given)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.2, 0.9, 1, 0], "probabilities"),
        ([-3.5, 0.2], "logits"),
        ([-3.5, -0.2], "values of -3.5 to -0.2, which may be log-probabilities or logits"),
        ([0.5, 97.0], "values of 0.5 to 97, which may be logits, percentages or no predictions"),
    ],
)
def test_the_kind_of_a_single_column(values: list[float], found: str) -> None:
    column = np.array(values)[:, None]
    if found in ("probabilities", "logits"):
        assert recognise_kind(column) == found
        return
    with pytest.raises(ValueError, match=f"`input` must be stated: the single column has {re.escape(found)}"):
        recognise_kind(column)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([[0.5], [1.5]], "probabilities", "the column 'a' must hold probabilities, at most 1, but row 2 has 1.5"),
        ([[0.5], [-1.5]], "probabilities", "the column 'a' must hold probabilities, at least 0, but row 2 has -1.5"),
        ([[0.5], [-1.5]], "log-probabilities", "the column 'a' must hold log-probabilities, at most 0, but row 1"),
        ([[0.5], [np.nan]], None, "the column 'a' must have a number in every row, but row 2 has none"),
        ([[0.5, 0.5], [np.nan, 1]], None, "the column 'a' must have a number in every row, but row 2 has none"),
        ([[0.5, np.inf]], None, "the column 'b' must be below infinity, but row 1 has inf"),
        ([[0.5, -0.5]], "probabilities", "the column 'b' must hold probabilities, at least 0, but row 1 has -0.5"),
        ([[0.5, -0.5]], "log-probabilities", "the column 'a' must hold log-probabilities, at most 0"),
        ([[0.5, 0.5], [0, 0]], "probabilities", "row 2 must give some class a positive probability"),
        ([[0.5, 0.5]], "odds", "`input` must be probabilities, log-probabilities or logits, but got 'odds'"),
    ],
)
def test_predictions_that_are_none(values: list[list[float]], kind: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        as_log_probs(np.array(values), "ab", kind)


# --- labels ---


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_labels_by_name(kind: str, tmp_path: Path) -> None:
    file = as_file(tmp_path, kind, truth=["ham", None, "spam"], number=[1, None, 0])
    assert parse_labels(file.table["truth"], ["spam", "ham"]).tolist() == [1, -1, 0]
    assert parse_labels(file.table["number"], ["0", "1"]).tolist() == [1, -1, 0]
    with pytest.raises(
        ValueError, match=r"`labels` must be classes or empty, but one is 'spam': did you mean 'Spam'\?"
    ):
        parse_labels(file.table["truth"], ["ham", "Spam"])


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize(
    "labels",
    [
        ["fraud", None, "not fraud"],
        [1, None, 0],
        [1.0, None, 0.0],
        [True, None, False],
        ["True", None, "False"],
        ["YES", None, "no"],
    ],
)
def test_labels_of_a_single_column(kind: str, labels: list[object], tmp_path: Path) -> None:
    file = as_file(tmp_path, kind, truth=labels)
    classes = ["not fraud", "fraud"]
    assert parse_labels(file.table["truth"], classes, "fraud").tolist() == [1, -1, 0]
    assert parse_labels(file.table["truth"], classes[::-1], "fraud").tolist() == [0, -1, 1]


def test_labels_of_a_single_column_that_scores_the_class_no_or_0(tmp_path: Path) -> None:
    file = as_file(tmp_path, "csv", truth=["no", "yes", None], number=[0, 1, None], other=["ham", "spam", None])
    assert parse_labels(file.table["truth"], ["not no", "no"], "no").tolist() == [1, 0, -1]
    assert parse_labels(file.table["number"], ["not 0", "0"], "0").tolist() == [1, 0, -1]
    message = "must be 'not spam', 'spam', 0, 1 or empty, but one is 'ham': name the two classes with `classes`"
    with pytest.raises(ValueError, match=message):
        parse_labels(file.table["other"], ["not spam", "spam"], "spam")


# --- nothing else is changed ---


def test_other_columns_of_a_csv_file_keep_their_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,a,b,text,flag\n007,0.10,0.9," x, ""y""",TRUE\n1e3,0.5,0.5,,no\n', encoding="utf-8")
    file = read_predictions(path)
    new = {"a": [0.25, 0.75]}
    assert file.replaced_texts(new) == {
        "id": ["007", "1e3"],
        "a": [0.25, 0.75],
        "b": ["0.9", "0.5"],
        "text": [' x, "y"', ""],
        "flag": ["TRUE", "no"],
    }


def test_other_columns_of_a_parquet_file_keep_their_types(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [2**62, 1], "a": [0.5, 0.5], "b": [0.5, 0.5], "when": [None, 3], "more": [[1], [2, 3]]})
    frame = frame.with_columns(pl.col("when").cast(pl.Date), pl.col("a").cast(pl.Float32))
    frame.write_parquet(tmp_path / "a.parquet")
    found = pl.DataFrame(read_predictions(tmp_path / "a.parquet").replaced({"b": [0.1, 0.9]}))
    assert found.drop("b").equals(frame.drop("b"))
    assert found.schema == frame.schema
    assert found["b"].to_list() == [0.1, 0.9]
    texts = read_predictions(tmp_path / "a.parquet").replaced_texts({})
    assert texts["when"] == ["", "1970-01-04"]
    assert texts["id"] == [str(2**62), "1"]


def test_other_entries_of_json_lines_stay(tmp_path: Path) -> None:
    records = [{"a": -0.1, "b": -2, "more": {"k": [1, None]}}, {"b": -1, "a": -0.5, "flag": True, "none": None}]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, records)) + "\n\n", encoding="utf-8")
    file = read_predictions(path)
    assert find_class_columns(file.table, columns=["a", "b"]).classes == ("a", "b")
    found = file.replaced_records({"a": [0.9, 0.6], "b": [0.1, 0.4]})
    assert found == [{**records[0], "a": 0.9, "b": 0.1}, {**records[1], "a": 0.6, "b": 0.4}]
    assert [list(each) for each in found] == [list(each) for each in records]
    assert file.replaced_texts({})["more"] == ['{"k": [1, null]}', ""]
    assert file.replaced_texts({})["flag"] == ["", "true"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npz", b"", "predictions must be a file that ends in .csv or .parquet or .jsonl"),
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b"[1, 2]\n", "must be a JSON object, but line 1 is none"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "must be a JSON object, but line 2 is none"),
        ("a.jsonl", b'{"a": "\xff"}\n', "is not text in UTF-8"),
        ("a.csv", b"", "is empty"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_predictions(tmp_path / name)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"predictions must be a file, but .*b\.jsonl' is not there"):
        read_predictions(tmp_path / "b.jsonl")


def test_huge_whole_numbers_are_names(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1' + "0" * 400 + ', "a": 0.5, "b": 0.5}\n', encoding="utf-8")
    assert find_class_columns(read_predictions(tmp_path / "a.jsonl").table).columns == ("a", "b")
