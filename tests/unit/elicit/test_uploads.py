"""Pasted counts and uploaded scores, in all the forms that people have them in, and in those that are mistakes."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from selbo.elicit.answer import answer
from selbo.elicit.refused import RefusedError
from selbo.elicit.uploads import count_scores, read_at_once, read_counts, read_row_by_row, read_scores
from selbo.summary.beliefs import Empirical
from selbo.summary.partitions import CornerShells


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("healthy 60\nill 30\ndead 10", ["healthy", "ill", "dead"]),
        ("healthy: 60\r\nill: 30\r\n\r\ndead: 10\r\n", ["healthy", "ill", "dead"]),
        ("label,count\nhealthy,60\nill,30\ndead,10\n", ["healthy", "ill", "dead"]),
        ("healthy;60\nill;30\ndead;10", ["healthy", "ill", "dead"]),
        ("healthy    60\nill    30\ndead    10\nName: count, dtype: int64", ["healthy", "ill", "dead"]),
        ("Counter({'healthy': 60, 'ill': 30, 'dead': 10})", ["healthy", "ill", "dead"]),
        ('{"healthy": 60, "ill": 30, "dead": 10}', ["healthy", "ill", "dead"]),
        ("healthy=60, ill=30, dead=10", ["healthy", "ill", "dead"]),
        ("class 0 60\nclass 1 30\nclass 2 10", ["class 0", "class 1", "class 2"]),
        ("0,60\n1,30\n2,10", ["0", "1", "2"]),
        ("class count\nhealthy 60\nill 30\ndead 10", ["healthy", "ill", "dead"]),
        ('"label";"N"\nhealthy;60\nill;30\ndead;10', ["healthy", "ill", "dead"]),
        ("diagnosis\nhealthy    60\nill    30\ndead    10\nName: count, dtype: int64", ["healthy", "ill", "dead"]),
        ("type 1,60\ntype 2,30\ntype 3,10", ["type 1", "type 2", "type 3"]),
        ("type 1 600\ntype 2 300\ntype 3 100", ["type 1", "type 2", "type 3"]),
        ('"covid 19",60\nflu,30\n"type 2": 10', ["covid 19", "flu", "type 2"]),
        ("0 600\n1 300\n2 100", ["0", "1", "2"]),
        ("0,60\n1,30\nother,10", ["0", "1", "other"]),
        ("62.4 31.2 10.4", []),
        ("healthy 62.4\nill 31.2\ndead 10.4", ["healthy", "ill", "dead"]),
        ("60;30;10", []),
        ("60\n30\n10", []),
        ("60 30 10", []),
        ("60, 30, 10", []),
        ("0.6\t.3\t1e-1", []),
    ],
)
def test_counts(text: str, names: list[str]) -> None:
    found = read_counts(text)
    assert found["names"] == names
    assert found["fractions"] == pytest.approx([0.6, 0.3, 0.1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least two counts"),
        ("healthy 3", "at least two counts"),
        ("healthy\nill", "at least two counts"),
        ("healthy 3\nill many", "must end with a count"),
        ("healthy 3\nill 0", "above 0"),
        ("healthy 3\nill -4", "above 0"),
        ("healthy 3\nill nan", "must end with a count"),
        ("healthy 3\nill 1e999", "above 0"),
        ("healthy 3\nill 1,234", "without separators"),
        ("healthy 62,5\nill 37,5", "'healthy 62,5' can be read in two ways"),
        ("healthy: 62,5\nill: 37,5", "'healthy: 62,5' can be read in two ways"),
        ("healthy;62,5\nill;37,5", "'healthy;62,5' can be read in two ways"),
        ("healthy 62,5\nill 37", "'healthy 62,5' can be read in two ways"),
        ("healthy=62,5; ill=37,5", "one without is '5'"),
        ("healthy=1,234, ill=567", "one without is '234'"),
        ("healthy,1,234\nill,203", "'healthy,1,234' can be read in two ways"),
        ("healthy: 1 234\nill: 203", "'healthy: 1 234' can be read in two ways"),
        ("healthy 1 234\nill 2 345", "'healthy 1 234' can be read in two ways"),
        ("ill 203\nhealthy 1\u202f234", "can be read in two ways"),
        ("62,5\n37,5", "'62,5' can be read in two ways"),
        ("0,6\n0,4", "'0,6' can be read in two ways"),
        ("1,234\n5,678", "'1,234' can be read in two ways"),
        ("1 234\n5 678", "'1 234' can be read in two ways"),
        ("62,5\n37", "one without is '37'"),
        ("62,5 37,5", "'62,5 37,5' can be read in two ways"),
        ("62,5; 37,5", "'62,5; 37,5' can be read in two ways"),
        ("1,234, 5,678", "can be read in two ways"),
        ("healthy 3\n4", "one without is '4'"),
        ("healthy\nill 203", "must end with a count such as 1234, .* but one is 'healthy'"),
        ("healthy\nill 203\ndead 5", "but one is 'healthy'"),
        ("ill 203\nclass count\ndead 5", "but one is 'class count'"),
        ("healthy, ill 203, dead 4", "but one is 'healthy'"),
        ("class count\nhealthy\nill 203", "but one is 'healthy'"),
        ("a 1\nb 1e308\nc 1e308\nd 1e308", "too large"),
        ("a 1\n" + " " * 60_000 + "x 1 x", "must end with a count"),
        ("1" * 60_000 + "x 1", "at least two counts"),
        ("\n".join(["1"] * 101), "up to 100 classes, but 101"),
        ("<script>alert(1)</script> x\na 1\nb 2", "must end with a count"),
    ],
)
def test_counts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as refused:
        answer("counts", None, text.encode())
    assert refused.value.field == "counts"


def test_names_that_are_pasted_are_text() -> None:
    assert read_counts("<b>x</b> 1\ny 1")["names"] == ["<b>x</b>", "y"]


PROBS = np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8]])


@pytest.mark.parametrize(
    "text",
    [
        "0.2,0.5,0.3\n1,0,0\n0.1,0.1,0.8\n",
        "a,b,c\n0.2,0.5,0.3\n1,0,0\n0.1,0.1,0.8",
        "\ufeffa;b;c\r\n0.2;0.5;0.3\r\n1;0;0\r\n\r\n0.1;0.1;0.8\r\n",
        "0,2;0,5;0,3\n1;0;0\n0,1;0,1;0,8",
        '"a"\t"b"\t"c"\n0.2\t0.5\t0.3\n1.0\t0.0\t0.0\n1e-1\t.1\t0.8',
        "0,1,2\n0.2,0.5,0.3\n1,0,0\n0.1,0.1,0.8\n",
        " 0.2 , 0.5 ,0.3\n1, 0, 0\n0.1,0.1, 0.8\n",
    ],
)
def test_scores_of_three_classes(text: str) -> None:
    np.testing.assert_allclose(read_scores(text.encode(), 3), PROBS)


@pytest.mark.parametrize("text", ["0.9\n0.2\n0", "score\n0.9\n0.2\n0\n", "0.1,0.9\n0.8,0.2\n1,0", "s\n0.9\n\n0.2\n0"])
def test_scores_of_two_classes(text: str) -> None:
    np.testing.assert_allclose(read_scores(text.encode(), 2), [[0.1, 0.9], [0.8, 0.2], [1, 0]])


@pytest.mark.parametrize(
    ("text", "rows"),
    [("0,1\n0.2,0.8\n1.0,0.0\n", 2), ("0\n0.8\n0.0\n", 2), ("0,1\n0.2,0.8\n1,0\n", 3), ("0\n0.8\n1\n", 3), ("0,1", 1)],
)
def test_a_numbering_of_two_classes_is_a_heading_unless_other_rows_are_whole_numbers_too(text: str, rows: int) -> None:
    assert len(read_scores(text.encode(), 2)) == rows


def test_what_is_read_at_once_is_what_is_read_row_by_row() -> None:
    """Whatever the file: what is not clear at once is left to the slow way, which says what is wrong."""
    draw = random.Random(0)
    cells = [
        "0",
        "1",
        "0.5",
        ".25",
        "0,5",
        " 0.75",
        "1e-1",
        "nan",
        "1_0",
        '"0.5"',
        '"',
        "",
        "a",
        "#",
        "0x1p-1",
        "2",
        "\uff11",
    ]
    read = 0
    for _ in range(20_000):
        separator, end = draw.choice(",;\t"), draw.choice(["\n", "\r\n", "\r", "\n\n"])
        width, few = draw.randint(1, 2), draw.sample(cells, draw.randint(1, 3))
        lines = [separator.join(draw.choice(few) for _ in range(width)) for _ in range(draw.randint(1, 3))]
        text = end.join(lines) + draw.choice(["", end])
        values = read_at_once(text, separator, 2)
        if values is not None:
            read += 1
            np.testing.assert_array_equal(values, read_row_by_row(text, separator, 2), err_msg=repr(text))
    assert read > 200


def test_rounded_rows_are_normalised() -> None:
    np.testing.assert_allclose(read_scores(b"0.33,0.33,0.33", 3), np.full((1, 3), 1 / 3))


@pytest.mark.parametrize(
    ("content", "classes", "message"),
    [
        (b"", 2, "holds no predictions"),
        (b"a,b\n", 2, "holds no predictions"),
        (b"0.1,0.2,0.7\n", 2, "has 3 columns, but for 2 classes there must be one column"),
        (b"0.1\n0.2\n", 3, "has 1 column, but for 3 classes there must be 3 columns"),
        (b"0.5,0.5\n0.4\n", 2, "line 2 has 1"),
        (b"h,i\n0.5,0.5\n0.4,0.4\n", 2, "line 3 sum to 0.8"),
        (b"0.5,0.5\n1.4,-0.4\n", 2, "between 0 and 1, but line 2 holds 1.4"),
        (b"0.5,0.5\n-0.4,1.4\n", 2, "line 2 holds -0.4"),
        (b"50\n99\n", 2, "percentages must be turned"),
        (b"0.5\nnan\n", 2, "line 2 holds 'nan'"),
        (b"0.5\ninf\n", 2, "between 0 and 1"),
        (b"0.5\n\xff\xfe\n", 2, "not text in UTF-8"),
        (b"PK\x03\x04\x00\x00", 2, "not a CSV file"),
        (b"0.5\n<script>alert(1)</script>\n", 2, "line 2 holds '<script>alert"),
        (b'0.5\n"' + b"x" * 200_000 + b"\n", 2, "cannot be read as CSV"),
    ],
)
def test_scores_that_are_refused(content: bytes, classes: int, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as refused:
        read_scores(content, classes)
    assert refused.value.field == "file"
    assert len(str(refused.value)) < 300


def test_masses_are_those_of_the_library() -> None:
    text = "\n".join(",".join(map(str, row)) for row in PROBS)
    found = answer("scores", {"classes": 3, "regions": "shells"}, text.encode())
    assert found["masses"] == Empirical(torch.from_numpy(PROBS).log()).masses(CornerShells(3)).tolist()
    assert found["rows"] == 3
    assert found["claimed"] == pytest.approx((0.5 + 1 + 0.8) / 3)
    assert found["predicted"] == pytest.approx([1 / 3, 1 / 3, 1 / 3])


def test_counted_scores_are_a_state_that_can_be_shown() -> None:
    from selbo.elicit.state import read_state

    state = {"classes": 2, "regions": "equal", "bins": 4, "source": "scores"}
    found = count_scores(b"0.1\n0.2\n0.3\n0.9", read_state(state))
    counted = {key: found[key] for key in ("masses", "rows", "claimed", "predicted")}
    shown = answer("belief", {**state, **counted})
    assert shown["s0"] == pytest.approx([2.5 / 6, 1.5 / 6, 0.5 / 6, 1.5 / 6])
    said = " ".join(shown["claims"]).replace("\N{NO-BREAK SPACE}", " ")
    assert "4 predictions of the earlier model" in said
    assert "“class 0” in 75 % and “class 1” in 25 % of cases" in said
