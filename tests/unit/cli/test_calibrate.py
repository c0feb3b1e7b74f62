"""`selbo calibrate`: the table that is written, what is shown, and every kind of bad input."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from command_line import Run, run_command
from selbo import BeliefCalibrator, calibrate_to_belief
from selbo.cli.app import app
from selbo.cli.calibrate import Effect, doubt, effect_table, measure_effect
from selbo.cli.output import console
from selbo.evaluation.belief_calibration import BeliefCalibration
from selbo.tabular.saved_calibration import SavedCalibration, load_calibration

ROWS = 200


@pytest.fixture
def selbo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("COLUMNS", "80")
    return run_command(monkeypatch, capsys, "calibrate")


def probabilities(count: int = ROWS) -> np.ndarray:
    """Overconfident probabilities of two classes."""
    scores = np.random.default_rng(3).normal(-2, 4, count)
    spam = 1 / (1 + np.exp(-scores))
    return np.stack([spam, 1 - spam], axis=1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "predictions.csv"
    probs = probabilities()
    label = np.where(np.arange(ROWS) % 4 == 0, np.where(probs[:, 0] > 0.5, "spam", "ham"), "")
    columns = {"id": np.arange(ROWS), "text": ["a, b"] * ROWS, "spam": probs[:, 0], "ham": probs[:, 1], "truth": label}
    pl.DataFrame(columns).write_csv(path)
    return path


def read(path: Path) -> list[dict[str, str]]:
    return read_text(path.read_text(encoding="utf-8"))


def read_text(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def of_classes(rows: list[dict[str, str]], *names: str) -> np.ndarray:
    return np.array([[float(row[name]) for name in names] for row in rows])


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_predictions_in_another_encoding_and_without_names(selbo: Run, tmp_path: Path, stream: str) -> None:
    probs = probabilities()
    rows = pl.DataFrame({"text": ["Süd"] * ROWS, "spam": probs[:, 0], "ham": probs[:, 1]})
    rows.write_csv(tmp_path / "plain.csv")
    (tmp_path / "bare.csv").write_bytes(rows.write_csv(include_header=False).encode("cp1252"))
    fractions = ("--class-fractions", "0.3,0.7", stream)
    plain = selbo(tmp_path / "plain.csv", *fractions, "--out", tmp_path / "a.csv")
    bare = selbo(tmp_path / "bare.csv", *fractions, "--no-header", "--out", tmp_path / "b.csv")
    assert (plain.code, bare.code) == (0, 0)
    assert "note: the file is not text in UTF-8: it is read as Windows-1252" in bare.err
    one, other = read(tmp_path / "a.csv"), read(tmp_path / "b.csv")
    assert other[0]["column_1"] == "Süd"
    np.testing.assert_allclose(of_classes(other, "column_2", "column_3"), of_classes(one, "spam", "ham"))
    swapped = selbo(tmp_path / "bare.csv", "--class-fractions", "0.7,0.3", stream, "--no-header", "--columns", "3,2")
    assert swapped.code == 0
    assert read_text(swapped.out) == other
    lost = selbo(tmp_path / "bare.csv", *fractions, "--no-header", "--labels", 4)
    assert lost.code == 2
    assert "there is no column 'column_4' in bare.csv" in lost.err
    assert "with `--no-header`, columns are called by position, column_1 to column_3" in " ".join(lost.err.split())


STATED = ("--accuracy", 0.85, "--class-fractions", "ham=0.7,spam=0.3")


def test_help_has_an_example_and_fits_a_terminal() -> None:
    result = CliRunner().invoke(app, ["calibrate", "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert result.exit_code == 0
    assert "Example: selbo calibrate " in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_the_table_that_is_written(selbo: Run, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("an earlier result")
    shown = selbo(table, *STATED, "--out", out)
    assert shown.code == 0, shown.err
    before, after = read(table), read(out)
    assert [list(row) for row in after] == [list(row) for row in before]
    for name in ("id", "text", "truth"):
        assert [row[name] for row in after] == [row[name] for row in before]
    log_probs = torch.from_numpy(of_classes(before, "spam", "ham")).log()
    same = calibrate_to_belief(log_probs, accuracy=0.85, class_fractions=[0.3, 0.7])
    assert of_classes(after, "spam", "ham") == pytest.approx(same(log_probs).exp().numpy(), abs=1e-7)
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "probabilities are read from the columns 'spam', 'ham'; columns of numbers that are left" in shown.err
    assert f"wrote 200 predictions to {out}" in shown.err
    said = " ".join(shown.out.split())
    error = 1.96 * same.log_temperature_error
    low, high = same.temperature * np.exp(-error), same.temperature * np.exp(error)
    assert f"Temperature {same.temperature:.3g} (95 % interval {low:.3g} to {high:.3g})" in said
    assert f"accuracy, % {100 * same.accuracy_before:.1f} {100 * same.accuracy:.1f} 85.0" in said
    half = 1.96 * same.offset_errors[0]
    fractions = f"{100 * same.class_fractions_before[0]:.1f} {100 * same.class_fractions[0]:.1f} 30.0"
    assert f"spam, % {fractions} {same.offsets[0]:.2f} ± {half:.2f}" in said


def test_fractions_in_order_and_one_by_one(selbo: Run, table: Path) -> None:
    outputs = [
        selbo(table, *stated).out
        for stated in (
            ("--class-fractions", "spam=0.3,ham=0.7"),
            ("--class-fractions", "0.3,0.7"),
            ("--class-fraction", "ham=0.7", "--class-fraction", "spam=0.3"),
        )
    ]
    assert outputs[0] == outputs[1] == outputs[2]
    assert outputs[0].startswith("id,text,spam,ham,truth\n")


def test_csv_on_the_output_stream_and_all_else_on_the_other(selbo: Run, table: Path) -> None:
    shown = selbo(table, "--accuracy", 0.85)
    found = list(csv.DictReader(io.StringIO(shown.out)))
    assert len(found) == ROWS
    assert of_classes(found, "spam", "ham").max(1).mean() == pytest.approx(0.85, abs=0.01)
    assert "Temperature" in shown.err
    assert "No prediction changes its answer" in shown.err


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("kind", ["probabilities", "log-probabilities", "logits"])
def test_formats_and_kinds_give_the_same(selbo: Run, table: Path, tmp_path: Path, suffix: str, kind: str) -> None:
    frame = pl.read_csv(table)
    probs = probabilities()
    values = {"probabilities": probs, "log-probabilities": np.log(probs), "logits": np.log(probs) + 5}[kind]
    frame = frame.with_columns(spam=pl.Series(values[:, 0]), ham=pl.Series(values[:, 1]))
    path, out = tmp_path / f"table.{suffix}", tmp_path / f"out.{suffix}"
    (frame.write_parquet if suffix == "parquet" else frame.write_ndjson)(path)
    shown = selbo(path, *STATED, "--out", out)
    assert shown.code == 0, shown.err
    assert f"{kind} are read from the columns 'spam', 'ham'" in shown.err
    found = pl.read_parquet(out) if suffix == "parquet" else pl.read_ndjson(out)
    assert found.drop("spam", "ham").equals(frame.drop("spam", "ham"))
    assert found.columns == frame.columns
    assert selbo(table, *STATED, "--out", tmp_path / "out.csv").code == 0
    expected = of_classes(read(tmp_path / "out.csv"), "spam", "ham")
    assert found.select("spam", "ham").to_numpy() == pytest.approx(expected, abs=1e-6)
    assert selbo(path, *STATED, "--out", tmp_path / "again.csv").code == 0
    assert of_classes(read(tmp_path / "again.csv"), "spam", "ham") == pytest.approx(expected, abs=1e-6)


def test_log_probabilities_of_some_answers_only(selbo: Run, tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    logs = np.log(0.8 * probabilities())
    path.write_text("".join(f'{{"yes": {a}, "no": {b}}}\n' for a, b in logs.tolist()), encoding="utf-8")
    shown = selbo(path, "--accuracy", 0.85)
    assert shown.code == 0
    assert "rows of log-probabilities sum to 0.8, so they are normalised" in shown.err


def test_labels_enter_as_likelihood(selbo: Run, table: Path) -> None:
    def mean_confidence(*options: object) -> float:
        shown = selbo(table, *options)
        assert shown.code == 0, shown.err
        return float(of_classes(list(csv.DictReader(io.StringIO(shown.out))), "spam", "ham").max(1).mean())

    alone = mean_confidence("--accuracy", 0.8, "--concentration", 20)
    with_labels = mean_confidence("--accuracy", 0.8, "--concentration", 20, "--labels", "truth")
    assert with_labels > alone + 0.02  # all labels are the answers
    assert mean_confidence("--labels", "truth") > with_labels


def test_what_selbo_predict_wrote_stays_consistent(selbo: Run, tmp_path: Path) -> None:
    probs = probabilities()
    names = np.array(["spam", "ham"])
    columns = {"predicted_class": names[probs.argmax(1)], "p_spam": probs[:, 0], "p_ham": probs[:, 1]}
    more = {"entropy": np.zeros(ROWS), "mutual_information": np.full(ROWS, 0.125)}
    pl.DataFrame({**columns, **more}).write_parquet(tmp_path / "p.parquet")
    shown = selbo(tmp_path / "p.parquet", "--class-fractions", "spam=0.6,ham=0.4", "--out", tmp_path / "q.parquet")
    assert shown.code == 0, shown.err
    found = pl.read_parquet(tmp_path / "q.parquet")
    after = found.select("p_spam", "p_ham").to_numpy()
    assert after.mean(0) == pytest.approx([0.6, 0.4], abs=1e-4)
    assert found["predicted_class"].to_list() == names[after.argmax(1)].tolist()
    changed = int((after.argmax(1) != probs.argmax(1)).sum())
    assert changed > 0
    assert f"{changed} of 200 predictions change their answer" in " ".join(shown.out.split())
    assert found["entropy"].to_numpy() == pytest.approx(-(after * np.log(after)).sum(1))
    assert set(found["mutual_information"]) == {0.125}


def test_a_saved_correction_is_applied_to_other_rows(selbo: Run, table: Path, tmp_path: Path) -> None:
    saved = tmp_path / "c.json"
    assert selbo(table, *STATED, "--out", tmp_path / "out.csv", "--save", saved).code == 0
    other = tmp_path / "other.csv"  # columns in another order, with the prefix
    probs = probabilities(300)[200:]
    pl.DataFrame({"p_ham": probs[:, 1], "p_spam": probs[:, 0]}).write_csv(other)
    shown = selbo(other, "--load", saved)
    assert shown.code == 0, shown.err
    found = of_classes(list(csv.DictReader(io.StringIO(shown.out))), "p_spam", "p_ham")
    expected = load_calibration(saved).calibration(torch.from_numpy(probs).log()).exp().numpy()
    assert found == pytest.approx(expected, abs=1e-7)
    again = selbo(table, "--load", saved, "--out", tmp_path / "again.csv")
    assert again.code == 0
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "`--accuracy`, `--class-fractions`, `--groups` or `--labels` must be given: nothing is stated"),
        (("--accuracy", 85), "`--accuracy` must lie strictly between 0.5 and 1"),
        (("--accuracy", 0.9, "--concentration", 0), "`--concentration` must be a finite number greater than 0"),
        (("--class-fractions", "0.5,0.6"), "`--class-fractions` must "),
        (("--class-fractions", "0.2,0.3,0.5"), "`--class-fractions` must hold 2 numbers, for 'spam', 'ham', but holds"),
        (("--class-fractions", "a=0.5,ham=0.5"), "`--class-fractions` must name the classes 'spam', 'ham', but names"),
        (("--class-fractions", "x"), "`--class-fractions` must be numbers such as"),
        (("--accuracy", 0.99, "--class-fractions", "0.99,0.01"), "`--accuracy` of 0.99 cannot be reached"),
        (
            ("--accuracy", 0.9, "--columns", "spam"),
            "`--columns` must be all that are probabilities together in predictions.csv, 'spam', 'ham', but only",
        ),
        (("--accuracy", 0.9, "--classes", "ham,spam"), "`--classes` names those of a single column, but the columns"),
        (("--accuracy", 0.9, "--columns", "spam,text"), "`--columns` must hold numbers, but 'text'"),
        (
            ("--accuracy", 0.9, "--columns", "spam,hma"),
            "there is no column 'hma' in predictions.csv: did you mean 'ham'",
        ),
        (("--accuracy", 0.9, "--input", "odds"), "`--input` must be probabilities, log-probabilities or logits"),
        (("--accuracy", 0.9, "--input", "log-probabilities"), "must hold log-probabilities, at most 0"),
        (("--accuracy", 0.9, "--labels", "text"), "`--labels` must be classes or empty, but one is 'a, b'"),
        (("--accuracy", 0.9, "--labels", "none"), "there is no column 'none'"),
        (("--accuracy", 0.9, "--load", "c.json"), "`--load` applies a correction as it is, so `--accuracy` cannot"),
        (("--load", "c.json"), "the calibration 'c.json' is not there"),
        (("--accuracy", 0.9, "--save", "c.csv"), "`--save` must be a file that ends in .json"),
    ],
)
def test_bad_options_are_one_sentence_and_nothing_is_written(
    selbo: Run, table: Path, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    before = sorted(tmp_path.iterdir())
    shown = selbo(table, *options, "--out", tmp_path / "out.csv")
    assert (shown.code, shown.out) == (2, "")
    (error,) = (line for line in shown.err.splitlines() if not line.startswith("selbo: note: "))
    assert error.startswith("selbo: error: ")
    assert message in error
    assert sorted(tmp_path.iterdir()) == before


def test_outputs_that_are_refused(selbo: Run, table: Path, tmp_path: Path) -> None:
    content = table.read_bytes()
    for out, more, message in (
        (table, (), "`--out` must be a different file from the input table"),
        (tmp_path / "o.parquet", (), "`--out` must be - or a file that ends in .csv, but got"),
        (tmp_path, (), "`--out` must be - or a file"),
        (tmp_path / "none" / "o.csv", (), "`--out` must be in a folder that exists"),
        (tmp_path / "o.csv", ("--save", tmp_path / "none" / "c.json"), "`--save` must be in a folder that exists"),
    ):
        shown = selbo(table, "--accuracy", 0.9, "--out", out, *more)
        assert (shown.code, shown.out) == (2, "")
        assert message in shown.err
    assert table.read_bytes() == content
    assert sorted(each.name for each in tmp_path.iterdir()) == ["predictions.csv"]


# --- groups ---


def counted(tmp_path: Path, *, wrong: int | None = None) -> tuple[Path, Path]:
    """Overconfident predictions of 1600 rows in 80 days, and the counts of each day, one of which may be wrong."""
    generator = np.random.default_rng(5)
    logit = generator.normal(-1, 2, 1600)
    spam = generator.random(1600) < 1 / (1 + np.exp(-logit))
    said = 1 / (1 + np.exp(-(3 * logit + 1)))
    day = np.repeat(np.arange(80), 20)
    counts = np.bincount(day, spam).astype(int)
    if wrong is not None:
        counts[wrong] = 20 - counts[wrong]
    names = [f"day {k}" for k in range(80)]
    predictions = pl.DataFrame({"day": [names[k] for k in day], "p_ham": 1 - said, "p_spam": said})
    predictions.write_csv(tmp_path / "rows.csv")
    pl.DataFrame({"day": names, "spam": counts, "ham": 20 - counts}).write_csv(tmp_path / "days.csv")
    return tmp_path / "rows.csv", tmp_path / "days.csv"


def test_counts_of_groups_calibrate(selbo: Run, tmp_path: Path) -> None:
    rows, days = counted(tmp_path)
    out, saved = tmp_path / "out.csv", tmp_path / "c.json"
    shown = selbo(rows, "--groups", "day", "--group-fractions", days, "--out", out, "--save", saved)
    assert shown.code == 0, shown.err
    assert "the result is as good as the statement" in " ".join(shown.out.split())
    assert "Groups 0 of 80 contradict what is stated about them after the correction" in " ".join(shown.out.split())
    table = {row["day"]: {"spam": int(row["spam"]) / 20, "ham": int(row["ham"]) / 20} for row in read(days)}
    given = of_classes(read(rows), "p_ham", "p_spam")
    same = BeliefCalibrator().fit(
        given,
        groups=[row["day"] for row in read(rows)],
        group_fractions={day: [each["ham"], each["spam"]] for day, each in table.items()},
    )
    assert of_classes(read(out), "p_ham", "p_spam") == pytest.approx(same.predict_proba(given), abs=1e-6)
    found = load_calibration(saved).calibration
    assert found.temperature == pytest.approx(3.0, rel=0.35)
    assert found.offsets[0] - found.offsets[1] == pytest.approx(1 / 3, abs=0.35)
    again = selbo(rows, "--load", saved, "--out", tmp_path / "again.csv")
    assert again.code == 0
    assert read(tmp_path / "again.csv") == read(out)
    both = selbo(rows, "--groups", "day", "--group-fractions", days, "--accuracy", 0.8, "--out", out)
    assert both.code == 0
    assert "accuracy, % " in " ".join(both.out.split())


def test_a_column_of_the_numbers_of_rows_changes_nothing(selbo: Run, tmp_path: Path) -> None:
    """As a precision, it would be that of a sample of this size."""
    rows, days = counted(tmp_path)
    table = read(days)
    pl.DataFrame([{**row, "count": 20} for row in table]).write_csv(tmp_path / "counted.csv")
    pl.DataFrame([{**row, "count": 21} for row in table]).write_csv(tmp_path / "sampled.csv")
    shown = [
        selbo(rows, "--groups", "day", "--group-fractions", tmp_path / name)
        for name in (days, "counted.csv", "sampled.csv")
    ]
    assert [each.code for each in shown] == [0, 0, 0]
    assert shown[0].out == shown[1].out != shown[2].out


def test_groups_of_other_rows_are_doubted(selbo: Run, tmp_path: Path) -> None:
    rows, days = counted(tmp_path)
    table = read(days)
    moved = [{**row, "day": table[k - 1]["day"]} for k, row in enumerate(table)]
    pl.DataFrame(moved).write_csv(days)
    shown = selbo(rows, "--groups", "day", "--group-fractions", days, "--out", tmp_path / "out.csv")
    assert shown.code == 0
    said = "say hardly more than the class fractions, so check that the groups are about these rows"
    assert said in " ".join(shown.out.split())


def test_few_groups_are_doubted(selbo: Run, tmp_path: Path) -> None:
    rows, days = counted(tmp_path)
    pl.read_csv(rows).head(200).write_csv(rows)
    pl.read_csv(days).head(10).write_csv(days)
    shown = selbo(rows, "--groups", "day", "--group-fractions", days, "--out", tmp_path / "out.csv")
    assert "few groups, here 10, say little about confidence" in " ".join(shown.out.split())


def test_a_group_that_contradicts_its_counts_is_doubted(selbo: Run, tmp_path: Path) -> None:
    rows, days = counted(tmp_path)
    small = int(np.argmin([int(row["spam"]) for row in read(days)]))
    counted(tmp_path, wrong=small)
    shown = selbo(rows, "--groups", "day", "--group-fractions", days, "--out", tmp_path / "out.csv")
    assert shown.code == 0
    assert "1 of 80 groups contradict what is stated about them, so check these" in " ".join(shown.out.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--groups", "day"), "`--groups` and `--group-fractions` must be given together"),
        (("--accuracy", 0.8, "--group-concentration", 9), "`--group-concentration` is about `--group-fractions`"),
        (("--groups", "dya", "--group-fractions", "days.csv"), "there is no column 'dya' in rows.csv: did you mean"),
        (("--groups", "day", "--group-fractions", "none.csv"), "`--group-fractions` must be a file, but 'none.csv'"),
        (
            ("--groups", "day", "--group-fractions", "days.csv", "--class-fractions", "spam=0.3"),
            "`--class-fractions` and `--group-fractions` state the same, but both are given",
        ),
        (
            ("--groups", "day", "--group-fractions", "days.csv", "--load", "c.json"),
            "`--load` applies a correction as it is, so `--groups` cannot be given with it",
        ),
        (
            ("--groups", "day", "--group-fractions", "days.csv", "--stream"),
            "`--groups` need the whole file, but it is read in parts: pass --no-stream",
        ),
        (
            ("--groups", "day", "--group-fractions", "other.csv"),
            "other.csv must have one column per class, 'ham', 'spam', but has 'ham', 'offer', 'spam'",
        ),
        (
            ("--groups", "day", "--group-fractions", "days.csv", "--out", "days.csv"),
            "`--out` must be another file than `--group-fractions`, but is the same",
        ),
    ],
)
def test_bad_options_about_groups_are_one_sentence_and_nothing_is_written(
    selbo: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[object, ...], message: str
) -> None:
    counted(tmp_path)
    monkeypatch.chdir(tmp_path)
    days = read(Path("days.csv"))
    pl.DataFrame([{**row, "offer": "1"} for row in days]).write_csv("other.csv")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    shown = selbo("rows.csv", *(() if "--out" in options else ("--out", "out.csv")), *options)
    assert (shown.code, shown.out) == (2, "")
    (error,) = (line for line in shown.err.splitlines() if not line.startswith("selbo: note: "))
    assert message in error
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


# --- a single score ---


def in_format(frame: pl.DataFrame, path: Path) -> Path:
    write = {".csv": frame.write_csv, ".parquet": frame.write_parquet, ".jsonl": frame.write_ndjson}[path.suffix]
    write(path)
    return path


def from_format(path: Path) -> pl.DataFrame:
    return {".csv": pl.read_csv, ".parquet": pl.read_parquet, ".jsonl": pl.read_ndjson}[path.suffix](path)


def scored(kind: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The same predictions as one column and as two, with labels of 0 and 1 and by name."""
    fraud, fine = probabilities().T
    values = {
        "probabilities": (fine, fraud, fraud),
        "log-probabilities": (np.log(fine), np.log(fraud), np.log(fraud)),
        "logits": (np.log(fine), np.log(fraud), np.log(fraud) - np.log(fine)),
    }
    negative, positive, score = values[kind]
    known = [int(p > 0.4) if k % 4 == 0 else None for k, p in enumerate(fraud)]
    names = [None if each is None else ("not fraud", "fraud")[each] for each in known]
    ids = {"id": [f"c{k}" for k in range(ROWS)]}
    one = pl.DataFrame({**ids, "p_fraud": score, "truth": known})
    two = pl.DataFrame({**ids, "p_not fraud": negative, "p_fraud": positive, "truth": names})
    return one, two


@pytest.mark.parametrize("kind", ["probabilities", "log-probabilities", "logits"])
@pytest.mark.parametrize(
    ("suffix", "stream"),
    [
        (".csv", ("--no-stream",)),
        (".csv", ("--stream",)),
        (".parquet", ("--no-stream",)),
        (".parquet", ("--stream",)),
        (".jsonl", ()),
    ],
)
def test_a_single_score_is_corrected_as_two_columns(
    selbo: Run, tmp_path: Path, suffix: str, stream: tuple[str, ...], kind: str
) -> None:
    one, two = scored(kind)
    paths = in_format(one, tmp_path / f"one{suffix}"), in_format(two, tmp_path / f"two{suffix}")
    outs = tmp_path / f"out1{suffix}", tmp_path / f"out2{suffix}"
    stated = ("--accuracy", 0.85, "--class-fractions", "fraud=0.3", "--labels", "truth", "--input", kind, *stream)
    shown = [selbo(path, *stated, "--out", out) for path, out in zip(paths, outs, strict=True)]
    assert [each.code for each in shown] == [0, 0], shown
    assert shown[0].out == shown[1].out
    assert f"{kind} of 'fraud' against 'not fraud' are read from the column 'p_fraud'" in shown[0].err
    found, expected = map(from_format, outs)
    assert found.columns == one.columns
    assert found.drop("p_fraud").equals(one.drop("p_fraud"))
    np.testing.assert_allclose(found["p_fraud"].to_numpy(), expected["p_fraud"].to_numpy(), rtol=0, atol=1e-12)


def test_a_single_score_takes_fractions_in_order_and_names_of_both_classes(selbo: Run, tmp_path: Path) -> None:
    path = in_format(scored("probabilities")[0], tmp_path / "scores.csv")
    stated = (
        ("--class-fractions", "0.7,0.3"),
        ("--class-fractions", "not fraud=0.7"),
        ("--class-fraction", "fraud=0.3"),
        ("--class-fractions", "fine=0.7,fraud=0.3", "--classes", "fine,fraud"),
        ("--class-fractions", "0.7,0.3", "--columns", "p_fraud"),
    )
    outputs = {selbo(path, *each).out for each in stated}
    (output,) = outputs
    assert of_classes(read_text(output), "p_fraud").mean() == pytest.approx(0.3, abs=1e-3)


def test_a_correction_of_a_single_score_is_saved_and_loaded(selbo: Run, tmp_path: Path) -> None:
    one, two = scored("probabilities")
    one = one.rename({"p_fraud": "score"})
    first, second = in_format(one, tmp_path / "one.csv"), in_format(two, tmp_path / "two.csv")
    for number, names in enumerate(((), ("--classes", "not fraud,fraud"))):
        saved = tmp_path / f"{number}.json"
        fitted = selbo(first, "--class-fractions", "0.7,0.3", *names, "--save", saved)
        again = selbo(first, "--load", saved, *names)
        assert (fitted.code, again.code) == (0, 0)
        assert again.out == fitted.out
    assert load_calibration(saved).classes == ("not fraud", "fraud")
    both = selbo(second, "--load", saved)
    np.testing.assert_allclose(
        of_classes(read_text(both.out), "p_fraud"), of_classes(read_text(again.out), "score"), rtol=0, atol=1e-12
    )
    lost = selbo(first, "--load", saved)
    assert lost.code == 2
    assert "there is no column for the class 'not fraud', which the calibration was fitted to" in lost.err


def test_the_report_of_a_single_score_shows_both_classes(selbo: Run, tmp_path: Path) -> None:
    path = in_format(scored("probabilities")[0], tmp_path / "scores.csv")
    shown = selbo(
        path, "--class-fractions", "fraud=0.3", "--out", tmp_path / "o.csv", "--report", tmp_path / "page.html"
    )
    assert shown.code == 0, shown.err
    text = html.unescape((tmp_path / "page.html").read_text(encoding="utf-8"))
    for place in (text, shown.out):
        assert "not fraud, %" in place
        assert "70.0" in place
        assert "30.0" in place


def test_columns_of_others_beside_a_single_score_stay(selbo: Run, tmp_path: Path) -> None:
    """Also a predicted class: only `selbo predict` writes one that is known to follow from the probabilities."""
    frame = scored("probabilities")[0].with_columns(predicted_class=pl.lit("0"), entropy=pl.lit(1))
    path = in_format(frame, tmp_path / "scores.csv")
    shown = selbo(path, "--class-fractions", "fraud=0.3", "--out", tmp_path / "o.csv")
    assert shown.code == 0, shown.err
    assert from_format(tmp_path / "o.csv").drop("p_fraud").equals(from_format(path).drop("p_fraud"))


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (lambda p: -p - 1, (), "`--input` must be stated: the single column has values of -2 to -1"),
        (lambda p: 100 * p, (), "which may be logits, percentages or no predictions"),
        (lambda p: 100 * p, ("--input", "probabilities"), "the column 'score' must hold probabilities, at most 1"),
        (
            lambda p: p,
            ("--class-fractions", "0.3"),
            "`--class-fractions` must hold 2 numbers, for 'not score', 'score'",
        ),
        (
            lambda p: p,
            ("--class-fractions", "fraud=0.3"),
            "must name the classes 'not score', 'score', but names 'fraud'",
        ),
        (lambda p: p, ("--labels", "name"), "`--labels` must be 'not score', 'score', 0, 1 or empty, but one is 'x'"),
        (lambda p: p, ("--classes", "fraud"), "`--classes` must be two names, with the class of the score last"),
        (lambda p: p, ("--columns", "score,amount"), "`--input` must be stated, or `--columns`: the predictions"),
    ],
)
def test_what_is_wrong_with_a_single_score_is_one_sentence(
    selbo: Run, tmp_path: Path, scores: Callable[[np.ndarray], np.ndarray], options: tuple[object, ...], message: str
) -> None:
    columns = {"name": ["x"] * ROWS, "score": scores(probabilities()[:, 0]), "amount": np.arange(ROWS) % 2}
    path = in_format(pl.DataFrame(columns), tmp_path / "scores.csv")
    shown = selbo(path, "--accuracy", 0.85, *options, "--out", tmp_path / "out.csv")
    assert (shown.code, shown.out) == (2, "")
    (error,) = (line for line in shown.err.splitlines() if not line.startswith("selbo: note: "))
    assert message in error
    assert not (tmp_path / "out.csv").exists()


# --- what to doubt ---


def saved_with(*, accuracy: float | None, class_fractions: tuple[float, ...] | None, error: float) -> SavedCalibration:
    two = (0.5, 0.5)
    fitted = BeliefCalibration(2.0 if error else 1.0, (0.0, 0.0), 1e-3, 0.8, two, 0.8, two, error, (0.0, 0.0), 500)
    return SavedCalibration(("ham", "spam"), fitted, accuracy, class_fractions)


def effect_with(accuracy: tuple[float, float], spam: tuple[float, float], *, changed: int, rows: int) -> Effect:
    fractions = ([1 - spam[0], spam[0]], [1 - spam[1], spam[1]])
    return Effect(np.full((rows, 2), 0.5), accuracy, fractions, changed, np.full(rows, 0.5))


@pytest.mark.parametrize(
    ("stated", "claims", "fitted", "sentence"),
    [
        (
            (0.8, None),
            ((0.99, 0.8), (0.5, 0.5)),
            True,
            "uncorrected, they claim an accuracy of 99.0 % where 80.0 % was stated",
        ),
        ((0.8, None), ((0.99, 0.8), (0.5, 0.5)), False, "the result is as good as the statement"),
        ((0.8, None), ((0.9, 0.6), (0.5, 0.5)), False, "corrected, they claim an accuracy of 60.0 % where 80.0 %"),
        ((0.8, (0.5, 0.5)), ((0.85, 0.8), (0.1, 0.5)), True, "differ from those stated by 40 points, so check that"),
        ((0.8, None), ((0.85, 0.75), (0.5, 0.5)), True, "corrected, they claim an accuracy of 75.0 % and not 80.0 %"),
        ((None, None), ((0.85, 0.8), (0.5, 0.5)), True, "the result is as good as the labels"),
        ((0.8, (0.1, 0.9)), ((0.85, 0.8), (0.9, 0.9)), True, "always answering 'spam' would be right as often"),
        ((None, (0.5, 0.5)), ((0.85, 0.8), (0.5, 0.5)), True, "no accuracy was stated, so overconfidence is not"),
        ((0.8, None), ((0.85, 0.8), (0.5, 0.5)), True, "the result is as good as the statement"),
    ],
)
def test_what_to_doubt(
    stated: tuple[float | None, tuple[float, ...] | None],
    claims: tuple[tuple[float, float], tuple[float, float]],
    fitted: bool,
    sentence: str,
) -> None:
    saved = saved_with(accuracy=stated[0], class_fractions=stated[1], error=0.0 if stated[1] and not stated[0] else 0.1)
    text = doubt(saved, effect_with(*claims, changed=0, rows=500), fitted=fitted)
    assert sentence in text
    assert text.startswith("No prediction changes its answer; ")
    assert text.count(".") - text.count(".0 %") == 1


@pytest.mark.parametrize(
    ("right", "sentence"),
    [
        (80, "the result is as good as the statement, which 100 labels do not contradict."),
        (50, "100 labels contradict the stated accuracy, so correct the statement."),
    ],
)
def test_labels_answer_a_doubt(selbo: Run, tmp_path: Path, right: int, sentence: str) -> None:
    """Without them, predictions that claim 99 % are a reason to check the statement on a few labels."""
    rows = np.arange(400)
    label = np.where(rows >= 100, "", np.where(rows < right, "spam", "ham"))
    columns = {"spam": 0.98 + 0.015 * (rows % 2), "ham": 0.02 - 0.015 * (rows % 2), "truth": label}
    pl.DataFrame(columns).write_csv(tmp_path / "p.csv")
    options = (tmp_path / "p.csv", "--accuracy", 0.8, "--concentration", 1e5, "--out", tmp_path / "out.csv")
    without, shown = selbo(*options), selbo(*options, "--labels", "truth")
    assert "check the statement on a few labels" in " ".join(without.out.split())
    assert sentence in " ".join(shown.out.split())
    assert "check the statement" not in " ".join(shown.out.split())


def test_changed_answers_and_few_rows_are_doubted() -> None:
    saved = saved_with(accuracy=0.8, class_fractions=None, error=0.1)
    text = doubt(saved, effect_with((0.8, 0.8), (0.5, 0.5), changed=3, rows=20), fitted=True)
    assert text.startswith(
        "3 of 20 predictions change their answer, and the stated accuracy is that of the answers bef"
    )
    assert "20 rows are few" in text


def test_many_and_long_classes_fit_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    classes = tuple(f"class \x1b {k} " + "long " * 20 for k in range(40))
    log_probs = np.log(np.random.default_rng(0).dirichlet(np.full(40, 0.2), 100) + 1e-9)
    fitted = calibrate_to_belief(torch.from_numpy(log_probs), accuracy=0.5, class_fractions=[1 / 40] * 40)
    saved = SavedCalibration(classes, fitted, 0.5, (1 / 40,) * 40)
    effect = measure_effect(saved, classes, log_probs)
    console().print(effect_table(saved, effect))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("20 more classes" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_the_report(selbo: Run, table: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    shown = selbo(table, *STATED, "--out", tmp_path / "out.csv", "--report", page)
    assert shown.code == 0, shown.err
    assert f"wrote a report to {page}" in shown.err
    text = page.read_text(encoding="utf-8")
    assert "<title>Calibration of predictions.csv</title>" in text
    said = " ".join(shown.out.split())
    assert said[said.index("Doubt ") + 6 : said.index(" predictions claim")] in html.unescape(text)
    shown = selbo(table, *STATED, "--out", tmp_path / "out2.csv", "--report", tmp_path / "none" / "r.html")
    assert "`--report` must be in a folder that exists" in shown.err
    assert not (tmp_path / "out2.csv").exists()


def test_half_a_surrogate_pair_survives(selbo: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"t": "\\ud800é", "a": 0.9, "b": 0.1}\n{"t": "é", "a": 0.2, "b": 0.8}\n', encoding="utf-8")
    assert selbo(path, "--accuracy", 0.7, "--out", tmp_path / "o.jsonl").code == 0
    lines = (tmp_path / "o.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["t"] for line in lines] == ["\ud800é", "é"]
    assert "é" in lines[1]


def test_an_error_about_a_class_names_it(selbo: Run, tmp_path: Path) -> None:
    """Answers that are nearly all the first class, which is stated to be everything and yet wrong half of the time."""
    generator = np.random.default_rng(65)
    logits = generator.normal(size=(200, 2)) + np.array([2.0, 0.0])
    path = tmp_path / "logits.csv"
    pl.DataFrame({"ham": logits[:, 0], "spam": logits[:, 1]}).write_csv(path)
    options = ("--accuracy", 0.51, "--class-fractions", "ham=0.999,spam=0.001")
    shown = selbo(path, *options)
    assert shown.code == 2
    assert "`--class-fractions` cannot be reached: class 'ham' is stated to be 0.999 of the inputs" in shown.err
