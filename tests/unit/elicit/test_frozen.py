"""Predictions that are corrected on the page: those that the library and the command give; bad files are refused."""

from __future__ import annotations

import csv
import io
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import run_command
from selbo.elicit.answer import answer
from selbo.elicit.frozen import read_predictions_file
from selbo.elicit.refused import RefusedError
from selbo.evaluation.belief_calibration import calibrate_to_belief


def softmax(logits: np.ndarray) -> np.ndarray:
    found = np.exp(logits)
    return found / found.sum(1, keepdims=True)


PROBS = softmax(np.random.default_rng(0).normal(size=(300, 3)) * 3).round(6).clip(1e-6)


def table(probs: np.ndarray = PROBS, heading: str = "id,note,p_a,p_b,p_c") -> bytes:
    lines = [f'{i},"x, y",{",".join(map(str, row))}' for i, row in enumerate(probs)]
    return "\n".join([heading, *lines]).encode()


def corrected(content: bytes, **stated: Any) -> dict[str, Any]:
    return answer("calibrate", {"accuracy": 0.7, **stated}, content)


def read_columns(text: str, *names: str, separator: str = ",") -> np.ndarray:
    rows = list(csv.DictReader(io.StringIO(text), delimiter=separator))
    return np.array([[float(row[name].replace(",", ".")) for name in names] for row in rows])


def test_the_file_is_the_one_that_the_command_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also with class fractions and a concentration: the command that the page shows is run."""
    monkeypatch.chdir(tmp_path)
    Path("my file.csv").write_bytes(table())
    for stated in ({}, {"fractions": [0.5, 0.25, 0.25], "concentration": 50}):
        found = corrected(table(), name="my file.csv", **stated)
        program, command, *words = shlex.split(found["copies"]["calibrate"]["text"])
        assert (program, command, words[0], words[-1]) == ("selbo", "calibrate", "my file.csv", "calibrated.csv")
        run_command(monkeypatch, capsys, command)(*words)
        written = Path("calibrated.csv").read_text()
        names = ("id", "p_a", "p_b", "p_c")
        np.testing.assert_allclose(read_columns(found["csv"], *names), read_columns(written, *names), rtol=1e-7)
        assert [row["note"] for row in csv.DictReader(io.StringIO(found["csv"]))] == ["x, y"] * len(PROBS)


@pytest.mark.parametrize("stated", [{}, {"fractions": [0.5, 0.25, 0.25], "concentration": 50}])
def test_the_command_for_a_file_without_a_heading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stated: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    content = "\n".join(",".join(map(str, row)) for row in PROBS).encode()
    Path("bare.csv").write_bytes(content)
    found = corrected(content, name="bare.csv", **stated)
    _, command, *words = shlex.split(found["copies"]["calibrate"]["text"])
    assert "--no-header" in words
    run_command(monkeypatch, capsys, command)(*words)
    written = read_columns(Path("calibrated.csv").read_text(), "column_1", "column_2", "column_3")
    np.testing.assert_allclose(np.loadtxt(io.StringIO(found["csv"]), delimiter=","), written, rtol=1e-7)


def test_what_is_said_follows_from_the_numbers() -> None:
    found = corrected(table())
    probs = PROBS / PROBS.sum(1, keepdims=True)
    reference = calibrate_to_belief(np.log(probs), accuracy=0.7)
    after = reference(np.log(probs)).exp().numpy()
    assert found["classes"] == ["a", "b", "c"]
    claimed = probs.max(1).mean()
    assert f"too sure: its predictions claim to be right in {100 * claimed:.0f} % of cases" in found["claims"][0]
    assert found["claims"][0].endswith(f"you say 70 %. Corrected, they claim {100 * after.max(1).mean():.0f} %.")
    assert found["claims"][1] == "None of the 300 predictions names another class than before."
    (name, *values), _, (share, *fractions, stated), _ = found["rows"]
    assert (name, share, stated) == ("right answers", "share of “b”", None)
    assert values == pytest.approx([claimed, after.max(1).mean(), 0.7])
    assert fractions == pytest.approx([probs[:, 1].mean(), after[:, 1].mean()])
    histogram = found["histogram"]
    assert histogram["ends"] == ["30", "40", "50", "60", "70", "80", "90", "100"]
    counts = [((probs.max(1) >= low) & (probs.max(1) < low + 0.1)).mean() for low in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)]
    assert histogram["before"][:-1] == pytest.approx(counts)
    assert sum(histogram["after"]) == pytest.approx(1)
    assert any("far from what the predictions claim" in text for text in found["warnings"])


def test_shares_change_answers_and_are_met() -> None:
    found = corrected(table(), fractions=[0.5, 0.3, 0.2])
    after = read_columns(found["csv"], "p_a", "p_b", "p_c")
    np.testing.assert_allclose(after.mean(0), [row[2] for row in found["rows"][1:]], rtol=1e-7)
    np.testing.assert_allclose(after.mean(0), [0.5, 0.3, 0.2], atol=0.03)
    changed = (after.argmax(1) != PROBS.argmax(1)).sum()
    assert changed > 0
    assert found["claims"][1].startswith(f"{changed} of 300 predictions now name another class.")


@pytest.mark.parametrize(
    ("content", "classes", "first"),
    [
        ("id,ham,spam\n7,0.9,0.1\n8,0.2,0.8", ["ham", "spam"], [0.9, 0.1]),
        ("spam;id\n0,1;7\n0,8;8", ["not spam", "spam"], [0.9, 0.1]),
        ("id,p_spam\n7,0.1\n8,0.8", ["not spam", "spam"], [0.9, 0.1]),
        ("0.9,0.1\n0.2,0.8", ["class 0", "class 1"], [0.9, 0.1]),
        ("a\tb\n1\t0\n0.25\t0.75", ["a", "b"], [1, 0]),
        ("flag,a,b\n0,0.9,0.1\n1,0.2,0.8", ["a", "b"], [0.9, 0.1]),
    ],
)
def test_probabilities_are_found(content: str, classes: list[str], first: list[float]) -> None:
    found = read_predictions_file(content.encode())
    assert found.classes == classes
    assert found.probs[0] == pytest.approx(first)


def test_a_single_column_is_the_probability_of_yes() -> None:
    scores = PROBS[:, 0].clip(0.001, 0.999)
    content = "risk;age\n" + "\n".join(f"{score:.6f};{40}".replace(".", ",") for score in scores)
    found = corrected(content.encode(), accuracy=0.8)
    assert found["classes"] == ["not risk", "risk"]
    log_probs = np.log(np.stack([1 - scores.round(6), scores.round(6)], 1))
    reference = calibrate_to_belief(log_probs, accuracy=0.8)(log_probs).exp()[:, 1]
    written = read_columns(found["csv"], "risk", "age", separator=";")
    np.testing.assert_allclose(written[:, 0], reference, rtol=1e-7)
    assert set(written[:, 1]) == {40}
    command = "selbo calibrate predictions.csv --accuracy 0.8 --columns risk --out calibrated.csv\n"
    assert found["copies"]["calibrate"]["text"] == command


@pytest.mark.parametrize(
    ("content", "stated", "field", "message"),
    [
        (b"", {}, "predictions", "holds no predictions"),
        (b"a,b\n", {}, "predictions", "holds no predictions"),
        (b"\xff\xfe", {}, "predictions", "not text in UTF-8"),
        (b"a,b\n0.5,0.5\n0.5\n", {}, "predictions", "must have 2 cells, but one has 1"),
        (b"a,b\n2.5,-1\n0.5,3\n", {}, "predictions", "also takes logits"),
        (b"a,b\n0.5,0.7\n0.5,0.5\n", {}, "predictions", "sum to 1 in every row"),
        (table(), {"accuracy": 0.2}, "accuracy", "must lie above 33.3 %"),
        (table(), {"fractions": [0.5, 0.5]}, "fractions", "There are 3 classes, but 2 class shares"),
        (
            table(),
            {"accuracy": 0.9, "fractions": [0.9, 0.05, 0.05]},
            "accuracy",
            "at most 0.3.* of the answers can be right",
        ),
    ],
)
def test_what_cannot_be_corrected_is_refused(content: bytes, stated: dict, field: str, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as refused:
        corrected(content, **stated)
    assert refused.value.field == field
    assert "`" not in str(refused.value)


def test_a_comma_in_a_name_does_not_separate() -> None:
    found = read_predictions_file(b"case, no;ham, ok;spam, bad\n7;0.9;0.1\n8;0.2;0.8\n")
    assert found.classes == ["ham, ok", "spam, bad"]
    assert found.separator == ";"


def test_few_rows_and_shares_of_other_rows_are_doubted() -> None:
    found = corrected(table(PROBS[:50]), fractions=[0.6, 0.2, 0.2], accuracy=0.6)
    text = " ".join(found["warnings"])
    assert "50 rows are few" in text
    assert "are they about these rows?" in text
    assert "Always saying “a” would be right in 60 %" in text
