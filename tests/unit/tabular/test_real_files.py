"""`selbo train` on tables as they are: rows without label, rows to test on, identifiers, few labels, and baselines."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import selbo
from command_line import Run, run_command
from selbo.cli import output
from selbo.report.page import render_page
from selbo.results import MethodResult
from selbo.tabular import baselines, saved_model, training_results, workflow
from selbo.tabular.job import Job
from selbo.tabular.metrics import TrainingMetrics
from selbo.tabular.problems import ProblemsError
from selbo.tabular.table import read_table
from selbo.tabular.task import prepare

QUICK = {"steps": 10, "hidden": (4,), "num_samples": 4, "random_state": 0, "unlabelled_label": False}
OPTIONS = ["--steps", 10, "--hidden", 4, "--num-samples", 4]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr("selbo.report.page.write_page", lambda _, path: path.write_text("report"))  # it takes seconds
    return run_command(monkeypatch, capsys)


def patients(rows: int = 120, seed: int = 0) -> pl.DataFrame:
    """A file as it comes: an identifier, gaps, dates, prices, free text and a constant."""
    draws = np.random.default_rng(seed)
    ill = draws.random(rows) < 0.3
    age = [
        f"{value:.1f}" if keep else "NA"
        for value, keep in zip(50 + 10 * ill + draws.normal(0, 8, rows), draws.random(rows) < 0.9, strict=True)
    ]
    return pl.DataFrame(
        {
            "patient_id": draws.permutation(rows) + 1000,
            "age": age,
            "admitted": [f"{1 + i % 28:02d}.{1 + i % 12:02d}.2021" for i in range(rows)],
            "bill": [f"${1000 + 37 * i % 5000:,}" for i in range(rows)],
            "remark": [f"seen by {i}" for i in range(rows)],
            "unit": ["mg"] * rows,
            "ill": np.where(ill, "yes", "no"),
        }
    )


def job_of(folder: Path, frame: pl.DataFrame, **options: object) -> Job:
    frame.write_csv(folder / "patients.csv")
    settings = {name: options.pop(name) for name in ("accuracy", "class_fractions", "method") if name in options}
    classifier = selbo.SummaryClassifier(**{**QUICK, **settings})
    return Job(folder / "patients.csv", "ill", classifier, **options)


def trained(job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr("selbo.report.page.write_page", lambda _, path: path.write_text("report"))
    folder.mkdir()
    workflow.train_model(prepare(job), job, folder, identity=job.identity(), progress=False)
    return json.loads((folder / "metrics.json").read_text())


# --- a table as it comes ---


@pytest.mark.slow
def test_a_file_with_everything_trains_at_the_first_try(run: Run, tmp_path: Path) -> None:
    patients().write_csv(tmp_path / "patients.csv")
    shown = run("train", tmp_path / "patients.csv", "--target", "ill", *OPTIONS, "--out", tmp_path / "model")
    assert shown.code == 0
    notes = [line.removeprefix("selbo: note: ") for line in shown.err.splitlines()]
    assert notes[:5] == [
        "columns that identify rows are left out: 'patient_id', 'remark' (--keep uses one all the same)",
        "columns with only one value are left out: 'unit'",
        "dates are used as numbers (day, month, weekday, hour): 'admitted' (day first)",
        "column 'bill' is read as numbers: '$1,000' as 1000",
        "missing values are imputed, and an indicator is added: 'age' (8)",
    ]
    assert len(notes) == len(set(notes)) == 7
    stored = json.loads((tmp_path / "model" / "metrics.json").read_text())["notes"]
    assert stored[:5] == notes[:5]
    assert all(len(line) <= 80 for line in shown.out.splitlines() if not line.startswith("Report"))
    new = patients(5, seed=1).drop("ill").with_columns(age=pl.lit("?"), bill=pl.Series(["$1", "", "2", "3,000", "4"]))
    new.write_csv(tmp_path / "new.csv")
    predicted = run("predict", tmp_path / "model", tmp_path / "new.csv")
    assert predicted.code == 0
    assert predicted.err == "selbo: note: missing values in columns that had none in training are imputed: 'bill' (1)\n"
    assert len(predicted.out.splitlines()) == 6


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_files_of_spreadsheets_and_without_names(run: Run, tmp_path: Path, stream: str) -> None:
    """Windows-1252 with a repeated name to train on, UTF-16 to predict and evaluate, and both without names."""
    frame = patients().select("age", "admitted", ward=pl.lit("Süd"), ill="ill")
    frame = frame.with_columns(ward=pl.Series(["Süd", "Nord", "Straße"] * 40), ill=pl.Series(["ja", "nö"] * 60))
    rows = frame.write_csv(include_header=False)
    for name, encoding, header in (("old", "cp1252", "age,day,age,ill\n"), ("new", "utf-16", "age,day,age,ill\n")):
        (tmp_path / f"{name}.csv").write_bytes((header + rows).encode(encoding))
        (tmp_path / f"{name}-bare.csv").write_bytes(rows.encode(encoding))
    probabilities = []
    for kind, target, more in (("", "ill", ()), ("-bare", "4", ("--no-header",))):
        model = tmp_path / f"model{kind}"
        command = ("train", tmp_path / f"old{kind}.csv", "--target", target, stream, *OPTIONS, *more)
        shown = run(*command, "--base", "network", "--out", model)
        assert shown.code == 0, shown.err
        notes = [line.removeprefix("selbo: note: ") for line in shown.err.splitlines()]
        assert notes[0] == "the file is not text in UTF-8: it is read as Windows-1252"
        assert ("columns of the same name are renamed: 'age_2'" in notes) == (not more)
        shown = run("predict", model, tmp_path / f"new{kind}.csv", stream, "--num-samples", 4, *more)
        assert shown.code == 0, shown.err
        assert "Windows-1252" not in shown.err
        assert shown.out.splitlines()[0].startswith("predicted_class,p_ja,p_nö,")
        probabilities.append(pl.read_csv(io.StringIO(shown.out))["p_ja"].to_list())
        shown = run("evaluate", model, tmp_path / f"new{kind}.csv", stream, "--json", "--num-samples", 4, *more)
        assert json.loads(shown.out)["metrics"]["num_examples"] == 120
    bare = ("--no-header", "--num-samples", 4)
    shown = run("predict", tmp_path / "model-bare", tmp_path / "new-bare.csv", stream, "--id", "1", *bare)
    assert shown.out.startswith("column_1,predicted_class,")
    by = ("--by", "03", "--target", "column_4")
    shown = run("evaluate", tmp_path / "model-bare", tmp_path / "new-bare.csv", stream, *by, *bare)
    assert "column_3" in shown.out
    assert "Straße" in shown.out
    assert len(probabilities[0]) == len(probabilities[1]) == 120
    np.testing.assert_allclose(*probabilities, rtol=1e-6)


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_names_that_mislead_are_one_sentence(run: Run, tmp_path: Path, stream: str) -> None:
    rows = patients().select("age", "ill", again="ill").write_csv(include_header=False)
    (tmp_path / "twice.csv").write_text("age,ill,ill\n" + rows)
    shown = run("train", tmp_path / "twice.csv", "--target", "ill", stream, "--out", tmp_path / "model")
    assert shown.code == 2
    assert shown.err == (
        "selbo: error: twice.csv has the column 'ill', the target, more than once: remove all but one\n"
    )
    (tmp_path / "bare.csv").write_text("1.5,2.5,yes\n2.5,1.5,no\n" * 40)
    shown = run("train", tmp_path / "bare.csv", "--target", "ill", stream, "--out", tmp_path / "model")
    assert shown.code == 2
    assert "its first line looks like data: pass `--no-header` if it has no names" in shown.err
    for drop, target, wrong in (("2", "ill", "ill"), ("9", "3", "column_9"), ("2", "0", "column_0")):
        options = ("--target", target, "--drop", drop, "--no-header", stream, "--out", tmp_path / "model")
        shown = run("train", tmp_path / "bare.csv", *options)
        assert shown.code == 2
        assert f"there is no column '{wrong}' in bare.csv" in shown.err
        assert "with `--no-header`, columns are called by position, column_1 to column_3" in shown.err


def test_all_problems_are_one_message(run: Run, tmp_path: Path) -> None:
    patients().write_csv(tmp_path / "patients.csv")
    patients().drop("age", "ill").write_csv(tmp_path / "other.csv")
    command = ["train", tmp_path / "patients.csv", "--target", "ill", "--out", tmp_path / "model"]
    shown = run(*command, "--unlabelled", tmp_path / "gone.csv", "--test", tmp_path / "too.csv", "--drop", "wat")
    assert shown.code == 2
    assert shown.err.splitlines() == [
        f"selbo: error: `{option}` must be a file, but '{tmp_path}/{name}.csv' is not there"
        for option, name in (("--unlabelled", "gone"), ("--test", "too"))
    ]
    shown = run(*command, "--drop", "wat", "--id", "name", "--class-fractions", "sick=0.3,well=0.7")
    assert shown.code == 2
    assert not (tmp_path / "model").exists()
    errors = [line.removeprefix("selbo: error: ") for line in shown.err.splitlines()]
    assert [error.split(":")[0] for error in errors] == [
        "there is no column 'wat' in patients.csv",
        "there is no column 'name' in patients.csv",
        "`--class-fractions` must name the classes ['no', 'yes'], but names ['sick', 'well']",
    ]
    job = job_of(tmp_path, patients(), unlabelled=tmp_path / "other.csv", test=tmp_path / "other.csv")
    with pytest.raises(ProblemsError) as error:
        prepare(job)
    assert [each.split(":")[0] for each in error.value.problems] == [
        "other.csv must have the columns of the training data, but has no 'age'",
        "there is no column 'ill' in other.csv",
    ]


# --- rows without label ---


def test_rows_without_label_are_what_a_belief_is_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = patients(150).with_columns(ill=pl.Series([*patients(150)["ill"][:90], *[""] * 30, *["NA"] * 30]))
    job = job_of(tmp_path, frame, class_fractions={"no": 0.5, "yes": 0.5})
    task = prepare(job)
    assert (len(task.train[1]), len(task.test[1]), len(task.unlabelled)) == (72, 18, 60)
    assert "60 rows of patients.csv without label are used: what is stated is about them" in task.notes
    assert task.words.startswith("Of the cases without label, no makes up 50 %")
    found = trained(job, tmp_path / "model", monkeypatch)
    assert found["rows"] == {"train": 72, "val": 0, "test": 18, "unlabelled": 60}
    assert job.classifier.n_unlabelled_ == 60
    assert job.classifier.label_shift_ is not None
    other = job_of(tmp_path, frame, class_fractions=[0.5, 0.5], unlabelled=tmp_path / "more.csv")
    patients(60, seed=4).drop("ill").write_csv(tmp_path / "more.csv")
    assert any("left out, as `unlabelled` names others" in note for note in prepare(other).notes)


@pytest.mark.parametrize(
    ("gaps", "settings", "why"),
    [
        (60, {}, "60 rows of patients.csv without label are left out, as nothing is stated about them"),
        (60, {"accuracy": 0.9, "method": "plain"}, "without label are left out, as nothing is stated"),
        (49, {"accuracy": 0.9}, "49 rows of patients.csv without label are left out: a belief about them needs 50"),
        (1, {"accuracy": 0.9}, "1 row of patients.csv without label is left out: a belief"),
    ],
)
def test_rows_without_label_that_are_left_out(tmp_path: Path, gaps: int, settings: dict[str, object], why: str) -> None:
    labels = patients(150)["ill"].to_list()
    frame = patients(150).with_columns(ill=pl.Series([*labels[:-gaps], *[None] * gaps]))
    task = prepare(job_of(tmp_path, frame, **settings))
    assert task.unlabelled is None
    assert any(why in note for note in task.notes)
    assert len(task.train[1]) + len(task.val[1]) + len(task.test[1]) == 150 - gaps


# --- parts ---


@pytest.mark.parametrize(("rows", "val"), [(50, 0), (199, 0), (200, 20), (400, 40)])
def test_few_labels_are_not_validated_on(tmp_path: Path, rows: int, val: int) -> None:
    draws = np.random.default_rng(0)
    frame = pl.DataFrame({"x": draws.normal(size=rows), "ill": ["no", "yes"] * (rows // 2) + ["no"] * (rows % 2)})
    task = prepare(job_of(tmp_path, frame))
    assert abs(len(task.val[1]) - val) <= 1
    said = [note for note in task.notes if "none are held out to validate" in note]
    assert bool(said) == (val == 0)
    for share in (0.0, 0.1):
        task = prepare(job_of(tmp_path, frame, val_fraction=share))
        assert abs(len(task.val[1]) - share * rows) <= 2
        assert not any("none are held out" in note for note in task.notes)


def test_without_validation_there_is_no_temperature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, patients(50), accuracy=0.8)
    found = trained(job, tmp_path / "model", monkeypatch)
    assert found["rows"] == {"train": 40, "val": 0, "test": 10}
    assert (found["temperature"], found["calibrated"], found["validation"]) == (None, None, None)
    assert found["metrics"]["num_examples"] == 10
    none = job_of(tmp_path, patients(50), accuracy=0.8, test_fraction=0.0)
    assert trained(none, tmp_path / "untested", monkeypatch)["metrics"] == {}
    assert not (tmp_path / "untested" / "test_predictions.csv").exists()


def test_rare_classes_are_used_for_training(tmp_path: Path) -> None:
    labels = ["no"] * 50 + ["yes"] * 48 + ["maybe"] * 2
    frame = patients(100).with_columns(ill=pl.Series(labels))
    task = prepare(job_of(tmp_path, frame))
    assert task.preprocessing.classes == ("maybe", "no", "yes")
    assert [int((part[1] == 0).sum()) for part in (task.train, task.val, task.test)] == [2, 0, 0]
    assert "classes with fewer than 3 rows are used for training only: 'maybe'" in task.notes


# --- rows to test on, identifiers ---


def test_another_table_to_test_on(run: Run, tmp_path: Path) -> None:
    patients(60).write_csv(tmp_path / "train.csv")
    other = patients(40, seed=3).with_columns(ill=pl.Series([None, *patients(40, seed=3)["ill"][1:]]))
    other.write_csv(tmp_path / "test.csv")
    command = ["train", tmp_path / "train.csv", "--target", "ill", *OPTIONS, "--id", "patient_id"]
    shown = run(*command, "--test", tmp_path / "test.csv", "--out", tmp_path / "model")
    assert shown.code == 0
    assert "60 to train, 39 to test on" in shown.out
    assert "selbo: note: test.csv: 1 row without label is left out\n" in shown.err
    saved = pl.read_csv(tmp_path / "model" / "test_predictions.csv")
    assert saved.columns[:5] == ["row", "patient_id", "true_class", "predicted_class", "p_no"]
    assert saved["row"].to_list() == list(range(2, 41))
    assert saved["patient_id"].to_list() == other["patient_id"].to_list()[1:]
    assert saved["true_class"].to_list() == other["ill"].to_list()[1:]
    run("predict", tmp_path / "model", tmp_path / "test.csv", "--num-samples", 4, "--out", tmp_path / "p.csv")
    predicted = pl.read_csv(tmp_path / "p.csv")
    assert predicted.columns[0] == "patient_id"
    np.testing.assert_allclose(predicted["p_yes"][1:], saved["p_yes"], rtol=1e-7)
    assert predicted["patient_id"].to_list() == other["patient_id"].to_list()
    evaluated = run("evaluate", tmp_path / "model", tmp_path / "test.csv", "--json", "--num-samples", 4)
    stored = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert json.loads(evaluated.out)["metrics"]["nll"] == pytest.approx(stored["metrics"]["nll"], rel=1e-12)
    assert "selbo: note: 1 row without label is left out" in evaluated.err
    again = run(*command, "--test", tmp_path / "test.csv", "--out", tmp_path / "model")
    assert "already trained" in again.err
    refused = run(*command, "--out", tmp_path / "model")
    assert (refused.code, "trained with --test" in refused.err) == (2, True)
    both = run(*command, "--test", tmp_path / "test.csv", "--test-fraction", 0.2, "--out", tmp_path / "both")
    assert both.err == "selbo: error: `--test` and `--test-fraction` cannot both be given: choose one\n"


def test_identifiers_of_predictions(run: Run, tmp_path: Path) -> None:
    patients(60).with_row_index("", offset=1).write_csv(tmp_path / "train.csv")
    run("train", tmp_path / "train.csv", "--target", "ill", *OPTIONS, "--out", tmp_path / "model")
    assert (tmp_path / "model" / "test_predictions.csv").read_text().startswith("row,true_class,predicted_class,p_no,")
    assert run("predict", tmp_path / "model", tmp_path / "train.csv").out.startswith("predicted_class,p_no,")
    chosen = run("predict", tmp_path / "model", tmp_path / "train.csv", "--id", "remark")
    assert chosen.out.splitlines()[1].startswith("seen by 0,")
    assert "identif" not in chosen.err
    missing = run("predict", tmp_path / "model", tmp_path / "train.csv", "--id", "nobody")
    assert (missing.code, "there is no column 'nobody' in train.csv" in missing.err) == (2, True)
    run("train", tmp_path / "train.csv", "--target", "ill", *OPTIONS, "--id", "patient_id", "--out", tmp_path / "ids")
    patients(3).drop("patient_id").write_csv(tmp_path / "new.csv")
    shown = run("predict", tmp_path / "ids", tmp_path / "new.csv")
    assert shown.code == 0
    assert "there is no column 'patient_id', which identified rows in training: predictions have none" in shown.err


# --- baselines ---


def test_baselines_are_those_of_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, patients(300), class_fractions=[0.5, 0.5])
    found = trained(job, tmp_path / "model", monkeypatch)
    task = prepare(job)
    names = [each["method"] for each in found["baselines"]]
    assert names == ["Summary ELBO", baselines.LOGISTIC, baselines.CORRECTED, baselines.FREQUENCIES]
    assert found["baselines"][0]["metrics"]["nll"] == pytest.approx(found["metrics"]["nll"])
    X, X_test = (job.classifier.scale_(part[0]).numpy() for part in (task.train, task.test))
    y, y_test = task.train[1].numpy(), task.test[1].numpy()
    probs = LogisticRegression(max_iter=300).fit(X, y).predict_proba(X_test)
    share = (np.bincount(y) + 0.5) / (len(y) + 1)
    corrected = probs / share / (probs / share).sum(1, keepdims=True)
    rows = np.arange(len(y_test))
    for each, expected in zip(
        found["baselines"][1:], (probs, corrected, np.tile(share, (len(y_test), 1))), strict=True
    ):
        losses = -np.log(expected[rows, y_test])
        assert each["metrics"]["nll"] == pytest.approx(losses.mean(), rel=1e-6)
        assert each["metrics"]["accuracy"] == pytest.approx((expected.argmax(1) == y_test).mean())
        error = losses.std(ddof=1) / len(losses) ** 0.5
        assert each["intervals"]["nll"] == pytest.approx(
            [losses.mean() - 1.96 * error, losses.mean() + 1.96 * error], rel=1e-3
        )
        assert each["nll_difference"] == pytest.approx(losses.mean() - found["metrics"]["nll"], abs=1e-6)
        low, high = each["nll_difference_interval"]
        assert low < each["nll_difference"] < high


def test_a_prior_correction_is_shown_where_it_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out rows are of the domain of the labels, those of another table may be of the one that is stated."""
    patients(80, seed=3).drop("ill").write_csv(tmp_path / "clinic.csv")
    patients(50, seed=4).write_csv(tmp_path / "test.csv")
    stated = {"class_fractions": [0.5, 0.5], "unlabelled": tmp_path / "clinic.csv"}
    here = trained(job_of(tmp_path, patients(), **stated), tmp_path / "here", monkeypatch)
    assert [each["method"] for each in here["baselines"]] == ["Summary ELBO", baselines.LOGISTIC, baselines.FREQUENCIES]
    there = trained(job_of(tmp_path, patients(), **stated, test=tmp_path / "test.csv"), tmp_path / "there", monkeypatch)
    assert baselines.CORRECTED in [each["method"] for each in there["baselines"]]
    model = saved_model.load_model(tmp_path / "there")
    table = read_table(tmp_path / "test.csv")
    seen = model.predict(model.preprocessing.transform(table)[0], num_samples=4)
    saved = pl.read_csv(tmp_path / "there" / "test_predictions.csv")
    np.testing.assert_allclose(saved["p_yes"], seen.probs[:, 1].numpy(), rtol=1e-6)


def test_a_class_without_training_rows_has_a_probability() -> None:
    generator = torch.Generator().manual_seed(0)
    X, y = torch.randn(40, 2, generator=generator, dtype=torch.float64), torch.arange(40) % 2
    found = baselines.baseline_log_probs((X, y), X, num_classes=3, class_fractions=[0.4, 0.4, 0.2], seed=0)
    for each in found.values():
        assert torch.isfinite(each).all()
        torch.testing.assert_close(each.exp().sum(1), torch.ones(40, dtype=torch.float64))
    alone = baselines.baseline_log_probs((X, 0 * y), X, num_classes=2, class_fractions=None, seed=0)
    assert list(alone) == [baselines.FREQUENCIES]


def test_the_report_shows_baselines_and_notes(tmp_path: Path) -> None:
    job = job_of(tmp_path, patients(), accuracy=0.8)
    task = prepare(job)
    job.classifier.fit(**task.arguments())
    seen = training_results.Predicted(None, job.classifier.posterior_predictive(task.test[0]))
    metrics = TrainingMetrics(
        **vars(training_results.test_metrics(task, seen)),
        rows=training_results.row_counts(task),
        features=3,
        method="summary_elbo",
        belief=task.words,
        warnings=(),
        contradictions=(),
        shortfall=None,
        validation=None,
        notes=("columns <b> & more are left out",),
        baselines=training_results.evaluate_baselines(task, job, seen.test),
    )
    page = render_page(training_results.build_results(task, job, seen, metrics, seconds=1.0))
    assert "How the data were read" in page
    assert "columns &lt;b&gt; &amp; more are left out" in page
    assert "Is it better than simple baselines?" in page
    for name in (baselines.LOGISTIC, baselines.FREQUENCIES):
        assert f'<th scope="row">{name}</th>' in page
    assert "No rows were held out to validate: no temperature was fitted." in page


def test_what_is_said_about_baselines() -> None:
    from selbo.report.outcomes import baseline_takeaway

    def result(name: str, difference: float | None, ends: tuple[float, float] | None) -> MethodResult:
        metrics = {"nll": 0.5, "accuracy": 0.8}
        return MethodResult(
            name=name,
            metrics=metrics,
            intervals={"nll": (0.4, 0.6), "accuracy": (0.7, 0.9)},
            nll_difference=difference,
            nll_difference_interval=ends,
        )

    found = [result("ours", None, None), result("a", 0.1, (0.05, 0.15)), result("b-c", -0.1, (-0.2, 0.1))]
    found.append(result("c", -0.3, (-0.4, -0.2)))
    assert baseline_takeaway(found) == (
        "ours by NLL: better than a (+0.100 [+0.050, +0.150]); no clear difference from b-c (−0.100 [−0.200, +0.100]); "
        "worse than c (−0.300 [−0.400, −0.200])."
    )
    with pytest.raises(ValueError, match=r"`intervals.nll_difference` must be two increasing numbers"):
        result("d", 0.1, (0.2, 0.1))


# --- a terminal ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_messages_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    output.note("columns that identify rows are left out: " + ", ".join(repr(f"column {i}") for i in range(12)))
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) > 2
    assert lines[0].startswith("selbo: note: columns that")
    assert all(line.startswith("  ") for line in lines[1:])
    monkeypatch.setattr(sys, "stderr", plain := io.StringIO())
    output.note("word " * 60)
    assert plain.getvalue().count("\n") == 1
