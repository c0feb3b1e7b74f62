"""`selbo train`, `predict`, `evaluate` and `calibrate` on tables that are read in parts: results as in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import selbo
from command_line import Run, run_command
from selbo.estimator.settings import NETWORK_BASE
from selbo.tabular import chunks, saved_model, streamed_calibration, streamed_classifier, streaming
from selbo.tabular.job import Job
from selbo.tabular.streaming import prepare_streamed
from selbo.tabular.table import read_table
from selbo.tabular.task import prepare
from selbo.training.stored import RowStore

QUICK = ["--steps", 30, "--hidden", 6, "--num-samples", 4, "--batch-size", 64]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr("selbo.report.page.write_page", lambda _, path: path.write_text("report"))  # it takes seconds
    return run_command(monkeypatch, capsys)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some dozen parts of a table."""
    monkeypatch.setattr(chunks, "BYTES_PER_CHUNK", 2000)
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 37)


def patients(rows: int = 600, seed: int = 0) -> pl.DataFrame:
    draws = np.random.default_rng(seed)
    ill = draws.random(rows) < 0.4
    age = np.where(draws.random(rows) < 0.1, np.nan, (50 + 15 * ill + draws.normal(0, 8, rows)).round(1))
    return pl.DataFrame(
        {
            "patient": [f"p{k}" for k in draws.permutation(rows)],
            "age": pl.Series(age).fill_nan(None),
            "site": draws.choice(["a", "b", "1", "2, north"], rows),
            "admitted": [f"{1 + k % 28:02d}.{1 + k % 12:02d}.2021" for k in range(rows)],
            "bill": [f"${1000 + 37 * k % 5000:,}" for k in range(rows)],
            "true": draws.choice(["True", "False"], rows),
            "unit": ["mg"] * rows,
            "ill": np.where(ill, "yes", "no"),
        }
    )


def write(frame: pl.DataFrame, path: Path) -> Path:
    (frame.write_csv if path.suffix == ".csv" else frame.write_parquet)(path)
    return path


def job_of(path: Path, **options: object) -> Job:
    settings = {name: options.pop(name) for name in ("accuracy", "class_fractions", "method") if name in options}
    classifier = selbo.SummaryClassifier(
        **{"steps": 30, "hidden": (6,), "num_samples": 4, "batch_size": 64, "random_state": 0, **settings},
        base=NETWORK_BASE,
        unlabelled_label=False,
    )
    return Job(path, "ill", classifier, stream=True, **options)


def task_of(job: Job, folder: Path) -> streaming.StreamedTask:
    return prepare_streamed(job, folder, job.identity())


# --- training ---


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_in_parts_becomes_the_task_of_the_whole(tmp_path: Path, ending: str) -> None:
    """All rows are in the sample: the same columns, scale and split, and in the store the same rows."""
    job = job_of(write(patients(), tmp_path / f"t.{ending}"), id_column="patient", accuracy=0.9)
    found, whole = task_of(job, tmp_path / "rows"), prepare(job)
    assert found.preprocessing == whole.preprocessing
    assert found.test_rows == whole.test_rows
    assert found.words == whole.words
    for one, other in ((found.val, whole.val), (found.test, whole.test), (found.train, whole.train)):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    job.classifier.fit(*whole.arguments().values())
    inputs, labels = found.store.read(0, 10**6)
    np.testing.assert_allclose(inputs, job.classifier.scale_(whole.train[0]), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(labels, whole.train[1])
    assert set(whole.notes) <= set(found.notes)
    assert found.num_train == whole.num_train == 420
    assert found.train_counts.tolist() == whole.train_counts.tolist()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("method", ["plain", "summary_elbo"])
def test_the_same_model(run: Run, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain network in single precision agrees to some digits; weight samples are other ones in single precision."""
    if method != "plain":
        monkeypatch.setattr(streamed_classifier.StreamedClassifier, "dtype", torch.float64)
    file = write(patients(), tmp_path / "t.csv")
    arguments = ["train", file, "--target", "ill", "--accuracy", 0.9, "--method", method, "--base", "network", *QUICK]
    assert run(*arguments, "--out", tmp_path / "whole").code == 0
    shown = run(*arguments, "--stream", "--out", tmp_path / "parts")
    assert shown.code == 0
    assert "the table is large, so it is read in parts" in shown.err
    for stage in ("reading", "preprocessing", "training"):
        assert f"{stage} " in shown.err[shown.err.index("rows per second:") :]
    whole, parts = (
        pl.read_csv(tmp_path / name / saved_model.TEST_PREDICTIONS, infer_schema_length=None)
        for name in ("whole", "parts")
    )
    assert parts["row"].to_list() == whole["row"].to_list()
    np.testing.assert_allclose(parts["p_yes"], whole["p_yes"], atol=2e-4)
    assert not (tmp_path / "parts" / saved_model.STORED_ROWS).exists()
    metrics = json.loads((tmp_path / "parts" / saved_model.METRICS).read_text())
    assert metrics["rows"] == {"train": 420, "val": 60, "test": 120}


@pytest.mark.usefixtures("small_parts")
def test_a_natural_gradient_and_unlabelled_rows(run: Run, tmp_path: Path) -> None:
    frame = patients().with_columns(
        pl.when(pl.int_range(pl.len()) % 3 == 0).then(None).otherwise(pl.col("ill")).alias("ill")
    )
    file = write(frame, tmp_path / "t.csv")
    arguments = ["--target", "ill", "--class-fractions", "no=0.6,yes=0.4", "--posterior", "natural_gradient", *QUICK]
    whole = run("train", file, *arguments, "--out", tmp_path / "whole")
    parts = run("train", file, *arguments, "--stream", "--out", tmp_path / "parts")
    assert (whole.code, parts.code) == (0, 0)
    assert "200 rows of t.csv without label are used: what is stated is about them" in parts.err
    one, other = (
        pl.read_csv(tmp_path / name / saved_model.TEST_PREDICTIONS, infer_schema_length=None)
        for name in ("whole", "parts")
    )
    np.testing.assert_allclose(one["p_yes"], other["p_yes"], atol=2e-4)


@pytest.mark.usefixtures("small_parts")
def test_a_sample_decides_on_columns_and_all_rows_are_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(streaming, "MOST_ROWS_HELD_OUT", 40)
    file = write(patients(), tmp_path / "t.csv")
    found = task_of(job_of(file), tmp_path / "rows")
    assert (len(found.val[1]), len(found.test[1]), found.num_train) == (40, 40, 520)
    assert len(found.train[1]) < 100
    labels = (read_table(file)["ill"].texts()).count("yes")
    assert int(found.train_counts[1] + found.val[1].sum() + found.test[1].sum()) == labels
    assert any("a random sample of 100 rows decides" in note for note in found.notes)
    assert any("40 rows are held out to test on, and no more" in note for note in found.notes)
    assert len({*found.test_rows.numbers}) == 40


def test_one_pass_over_the_rows_if_no_steps_are_given(run: Run, tmp_path: Path) -> None:
    rows = patients(3000).select("age", "ill").with_columns(pl.col("age").fill_null(50))
    file = write(rows, tmp_path / "t.csv")
    network = ["--batch-size", 1, "--method", "plain", "--hidden", 2]
    shown = run("train", file, "--target", "ill", *network, "--stream", "--out", tmp_path / "m")
    assert shown.code == 0
    assert "2100 steps are 1 passes over the training rows" in shown.err
    settings = json.loads((tmp_path / "m" / saved_model.MANIFEST).read_text())["classifier"]["settings"]
    assert (settings["steps"], settings["base"]) == (2100, "network")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--base", "pool"], "`--base` must be 'network' for a streamed table, but is 'pool'"),
        (["--target", "age"], "the target must be a column of classes, but 'age' has"),
        (["--target", "unit"], "the target must have at least 2 classes, but all of 'unit' is 'mg'"),
        (["--target", "Ill"], "there is no column 'Ill' in t.csv: did you mean 'ill'?"),
        (["--drop", "none"], "there is no column 'none' in t.csv"),
        (["--class-fractions", "a=0.5,b=0.5"], "`--class-fractions` must name the classes"),
    ],
)
def test_mistakes_are_named(run: Run, tmp_path: Path, options: list[str], words: str) -> None:
    file = write(patients(), tmp_path / "t.csv")
    options = options if "--target" in options else ["--target", "ill", *options]
    shown = run("train", file, *options, "--stream", "--out", tmp_path / "m")
    assert shown.code == 2
    assert words in " ".join(shown.err.split())


def test_groups_need_the_whole_table(run: Run, tmp_path: Path) -> None:
    file = write(patients(), tmp_path / "t.csv")
    (tmp_path / "g.csv").write_text("site,no,yes\na,0.5,0.5\nb,0.6,0.4\n")
    stated = ["--groups", "site", "--group-fractions", tmp_path / "g.csv"]
    shown = run("train", file, *stated, "--stream", "--out", tmp_path / "m")
    assert shown.code == 2
    assert "`--groups` needs the whole table in memory" in shown.err


def test_a_target_with_too_many_values_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MOST_LABEL_TEXTS", 20)
    job = job_of(write(patients().with_columns(ill="patient"), tmp_path / "t.csv"))
    with pytest.raises(ValueError, match="but 'ill' has more than 20 different values"):
        task_of(job, tmp_path / "rows")


# --- interrupted ---


class KilledError(BaseException):
    """The end of a process, as far as this test can have one."""


@pytest.mark.usefixtures("small_parts")
def test_a_killed_run_resumes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while reading, preprocessing and training: the same model as of a run that was not."""
    file = write(patients(), tmp_path / "t.csv")
    arguments = ["train", file, "--target", "ill", "--method", "plain", *QUICK[2:], "--steps", 300, "--stream"]
    assert run(*arguments, "--out", tmp_path / "whole").code == 0
    monkeypatch.setattr(streamed_classifier, "CHECKPOINT_SECONDS", 0.0)
    again, calls = [*arguments, "--out", tmp_path / "killed"], []

    def killing(work: Callable[..., object], at: int) -> Callable[..., object]:
        def counted(*given: object) -> object:
            calls.append(1)
            if len(calls) == at:
                raise KilledError
            return work(*given)

        return counted

    for owner, name, at in ((chunks.KindScan, "add", 7), (streaming.Encoder, "__call__", 7), (RowStore, "read", 12)):
        assert not (tmp_path / "killed" / saved_model.STORED_ROWS / streaming.TASK_FILE).exists()
        calls.clear()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, killing(getattr(owner, name), at))
            with pytest.raises(KilledError):
                run(*again)
    assert (tmp_path / "killed" / saved_model.CHECKPOINT).exists()
    monkeypatch.setattr(streaming, "_scan", lambda *_: pytest.fail("it reads the table again"))
    shown = run(*again)
    assert shown.code == 0
    assert "resuming from the checkpoint" in shown.err
    for name in (saved_model.WEIGHTS, saved_model.PREPROCESSING, saved_model.TEST_PREDICTIONS, saved_model.METRICS):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert not (tmp_path / "killed" / saved_model.STORED_ROWS).exists()
    shown = run(*again)
    assert "is already trained with these settings" in shown.err


def test_stored_rows_of_another_job_are_replaced(tmp_path: Path) -> None:
    first = task_of(job_of(write(patients(), tmp_path / "t.csv")), tmp_path / "rows")
    other = task_of(job_of(write(patients(500), tmp_path / "t.csv")), tmp_path / "rows")
    assert (first.num_train, other.num_train) == (420, 350)
    assert RowStore(tmp_path / "rows", streaming.find_flags(other.preprocessing, other.scale)).num_rows == 350


# --- predictions ---


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from selbo.tabular import workflow

    folder = tmp_path_factory.mktemp("model")
    job = job_of(write(patients(), folder / "train.csv"), id_column="patient")
    whole = prepare(job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("selbo.report.page.write_page", lambda _, path: path.write_text("report"))
        (folder / "m").mkdir()
        workflow.train_model(whole, job, folder / "m", identity=job.identity(), progress=False)
    return folder / "m"


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("options", [[], ["--max-risk", 0.48], ["--calibrated"]])
def test_predictions_are_those_of_the_whole(
    run: Run, tmp_path: Path, model: Path, ending: str, options: list[object]
) -> None:
    file = write(patients(300, seed=1).with_columns(extra=pl.lit(1)), tmp_path / f"new.{ending}")
    told = []
    for how in ("--stream", "--no-stream"):
        shown = run("predict", model, file, *options, how, "--out", tmp_path / f"{how}.{ending}")
        assert shown.code == 0
        told.append({line for line in shown.err.splitlines() if "rows per second" not in line and "wrote" not in line})
    assert told[0] == told[1]
    read = pl.read_csv if ending == "csv" else pl.read_parquet
    one, other = (read(tmp_path / f"{how}.{ending}") for how in ("--stream", "--no-stream"))
    assert one.columns == other.columns
    assert one.columns[0] == "patient"
    assert one.select(pl.col(pl.String)).equals(other.select(pl.col(pl.String)))
    for name in ("p_no", "p_yes", "entropy", "mutual_information"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("small_parts")
def test_predictions_on_the_output_stream(run: Run, tmp_path: Path, model: Path) -> None:
    file = write(patients(100, seed=1), tmp_path / "new.csv")
    whole, parts = (run("predict", model, file, how).out for how in ("--no-stream", "--stream"))
    assert parts.splitlines()[0] == whole.splitlines()[0]
    assert [line.split(",")[:2] for line in parts.splitlines()] == [line.split(",")[:2] for line in whole.splitlines()]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_evaluation_is_that_of_the_whole(run: Run, tmp_path: Path, model: Path, ending: str) -> None:
    frame = patients(300, seed=1).with_columns(
        pl.when(pl.int_range(pl.len()) % 50 == 3).then(None).otherwise(pl.col("ill")).alias("ill"),
        pl.lit("2021-01-02").alias("admitted"),
    )
    file = write(frame, tmp_path / f"new.{ending}")
    one, other = (run("evaluate", model, file, "--by", "site", "--json", how) for how in ("--stream", "--no-stream"))
    assert (one.code, other.code) == (0, 0)
    assert one.err == other.err
    assert "6 rows without label are left out" in one.err
    _compare(json.loads(one.out), json.loads(other.out))


def _compare(one: object, other: object) -> None:
    """Equal up to rounding."""
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            _compare(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            _compare(*pair)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12)
    else:
        assert one == other


@pytest.mark.usefixtures("small_parts")
def test_many_predictions_are_kept_in_single_precision(
    run: Run, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from selbo.tabular import streamed_predictions

    monkeypatch.setattr(streamed_predictions, "EXACT_CELLS", 1000)
    file = write(patients(300, seed=1), tmp_path / "new.csv")
    one, other = (json.loads(run("evaluate", model, file, "--json", how).out) for how in ("--stream", "--no-stream"))
    assert one["metrics"]["accuracy"] == other["metrics"]["accuracy"]
    assert one["metrics"]["nll"] == pytest.approx(other["metrics"]["nll"], rel=1e-6)


@pytest.mark.usefixtures("small_parts")
def test_a_label_that_training_did_not_have_is_found_with_its_rows(run: Run, tmp_path: Path, model: Path) -> None:
    frame = patients(300, seed=1).with_columns(
        pl.when(pl.int_range(pl.len()) == 250).then(pl.lit("perhaps")).otherwise(pl.col("ill")).alias("ill")
    )
    shown = run("evaluate", model, write(frame, tmp_path / "new.parquet"), "--stream")
    assert shown.code == 2
    said = " ".join(shown.err.split())
    assert "rows 223 to 259: column 'ill' has labels not seen in training, 'perhaps', in 1 row" in said


@pytest.mark.usefixtures("small_parts")
def test_values_that_cannot_be_read_are_counted_over_all_parts(run: Run, tmp_path: Path, model: Path) -> None:
    """A part may hold only such values in a column; most of all rows must not."""
    frame = patients(300, seed=1).with_columns(
        pl.when(pl.int_range(pl.len()) < 90).then(pl.lit("abc")).otherwise(pl.col("age").cast(pl.String)).alias("age")
    )
    file = write(frame, tmp_path / "new.csv")
    whole, parts = (
        run("predict", model, file, how, "--out", tmp_path / "p.csv") for how in ("--no-stream", "--stream")
    )
    assert (whole.code, parts.code) == (0, 0)
    assert "'age' ('abc' in 90 rows)" in parts.err
    assert parts.err.splitlines()[0] == whole.err.splitlines()[0]
    file = write(frame.with_columns(age=pl.lit("abc")), tmp_path / "bad.csv")
    shown = run("predict", model, file, "--stream", "--out", tmp_path / "bad_out.csv")
    assert shown.code == 2
    assert "column 'age' must hold numbers as in training, but bad.csv has 'abc' in it" in shown.err
    assert not (tmp_path / "bad_out.csv").exists()


# --- calibration ---


def scores(rows: int = 300, seed: int = 0) -> pl.DataFrame:
    probs = np.random.default_rng(seed).beta(2, 1, rows)
    names = {"id": [f"r{k}" for k in range(rows)], "p_no": 1 - probs, "p_yes": probs}
    return pl.DataFrame({**names, "label": ["yes" if k % 7 == 0 else "" for k in range(rows)]})


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("absent", [[], ["p_no"]], ids=["two columns", "a single score"])
def test_a_calibration_is_that_of_the_whole(run: Run, tmp_path: Path, ending: str, absent: list[str]) -> None:
    file = write(scores().drop(absent), tmp_path / f"p.{ending}")
    stated = ["--accuracy", 0.7, "--class-fractions", "yes=0.6", "--labels", "label"]
    told = []
    for how in ("--stream", "--no-stream"):
        out, correction = tmp_path / f"{how}.{ending}", tmp_path / f"{how[2:]}.json"
        shown = run("calibrate", file, *stated, how, "--out", out, "--save", correction)
        assert shown.code == 0
        told.append(shown.out)
    assert told[0] == told[1]
    assert (tmp_path / "stream.json").read_bytes() == (tmp_path / "no-stream.json").read_bytes()
    read = pl.read_csv if ending == "csv" else pl.read_parquet
    assert read(tmp_path / f"--stream.{ending}").equals(read(tmp_path / f"--no-stream.{ending}"))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("abc", "the column 'p_yes' must hold numbers, but row 271 has 'abc'"),
        ("", "the column 'p_yes' must have a number in every row, but row 271 has none"),
        ("-0.5", "the column 'p_yes' must hold probabilities, at least 0, but row 271 has -0.5"),
    ],
)
def test_a_bad_value_is_named_with_its_row(run: Run, tmp_path: Path, value: str, words: str) -> None:
    frame = scores().with_columns(
        p_yes=pl.when(pl.int_range(pl.len()) == 270).then(pl.lit(value)).otherwise(pl.col("p_yes").cast(pl.String))
    )
    file = write(frame, tmp_path / "p.csv")
    shown = run(
        "calibrate", file, "--accuracy", 0.7, "--input", "probabilities", "--stream", "--out", tmp_path / "o.csv"
    )
    assert shown.code == 2
    assert words in " ".join(shown.err.split())
    assert not (tmp_path / "o.csv").exists()


def test_a_correction_is_fitted_to_a_part_of_many_rows(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_calibration, "MOST_FITTED", 400)
    file = write(scores(), tmp_path / "p.csv")
    shown = run("calibrate", file, "--accuracy", 0.7, "--stream", "--out", tmp_path / "o.csv")
    assert shown.code == 0
    assert "the correction is fitted to 200 of 300 rows, chosen at random, and applied to all" in shown.err
    assert len(pl.read_csv(tmp_path / "o.csv")) == 300
    labels = np.full(300, -1)
    labels[[3, 150, 299]] = 0
    rows = streamed_calibration.rows_to_fit(np.zeros((300, 2)), labels)
    assert {3, 150, 299} <= set(rows.tolist())
    assert 200 <= len(rows) <= 203
    assert len(np.unique(rows)) == len(rows)


def test_json_lines_are_read_as_a_whole(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"no": 0.1, "yes": 0.9}\n{"no": 0.6, "yes": 0.4}\n')
    shown = run("calibrate", tmp_path / "p.jsonl", "--accuracy", 0.7, "--stream")
    assert shown.code == 2
    assert "`--stream` is for .csv and .parquet files" in shown.err
