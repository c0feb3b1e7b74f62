"""The command line on small tables: train, predict, evaluate; interrupted runs; every kind of bad input."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris

from command_line import Run, run_command
from forked_python import Forked, run_forked, start_forked
from selbo import decide
from selbo.elicit.answer import answer
from selbo.tabular import task, workflow
from selbo.tabular.splits import split

ROWS = 120
LEFT = ["metrics.json", "model.json", "model.safetensors", "preprocessing.json", "report.html", "settings.json"]
FINISHED = [*LEFT, "test_predictions.csv", "train.jsonl"]


@pytest.fixture
def selbo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return run_command(monkeypatch, capsys)


def patients(count: int = ROWS) -> pl.DataFrame:
    """Numbers, text and truth, and a target that depends on them; one column is constant."""
    draws = np.random.default_rng(5)
    age, dose = draws.normal(50, 15, count).round(1), draws.integers(0, 5, count)
    site = draws.choice(["north", "south", "east"], count)
    ill = (age - 50) / 15 + dose - 2 + (site == "north") + draws.normal(0, 0.5, count) > 0.5
    return pl.DataFrame(
        {
            "age": age,
            "dose": dose,
            "site": site,
            "smoker": draws.random(count) < 0.3,
            "unit": ["mg"] * count,
            "ill": np.where(ill, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "patients.csv"
    patients().write_csv(path)
    return path


@pytest.fixture(scope="module")
def clinic(table: Path) -> Path:
    """Rows without labels."""
    path = table.with_name("clinic.csv")
    patients(80).drop("ill").write_csv(path)
    return path


def quick(table: Path, out: Path, *more: object) -> list[object]:
    settings = ["--steps", 40, "--learning-rate", 0.01, "--val-fraction", 0.1]
    return ["train", table, "--target", "ill", "--accuracy", "0.9", *settings, "--out", out, *more]


@pytest.fixture(scope="module")
def model(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, trained by the command in a process of its own."""
    out = tmp_path_factory.mktemp("trained") / "model"
    done = run_forked("selbo", *map(str, quick(table, out)), COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert "Belief   About 90 % of all cases can be decided correctly; no makes up" in done.stdout
    assert "(as in the training rows)" in " ".join(done.stdout.split())
    assert "84 to train, 12 to validate, 24 to test on" in done.stdout
    assert "columns with only one value are left out: 'unit'" in done.stderr
    assert all(len(line) <= 80 or line.startswith("Report: ") for line in done.stdout.splitlines())
    return out


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that says nothing: drawing takes seconds, and the report has tests of its own."""
    monkeypatch.setattr("selbo.report.page.write_page", lambda _, path: path.write_text("report"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads wait for each other where processors are busy, and these networks are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def listing(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


# --- what training leaves ---


def test_a_belief_that_the_data_contradict(selbo: Run, table: Path, tmp_path: Path, one_thread: None) -> None:
    wrong = ["--class-fractions", "no=0.02,yes=0.98", "--concentration", 500]
    shown = selbo(*quick(table, tmp_path / "wrong", *wrong))
    assert shown.code == 0
    said = (
        "the held-out rows contradict the stated belief, if it was about such rows: class fractions: contradicted by 36"
    )
    assert said in shown.err
    (found,) = json.loads((tmp_path / "wrong" / "metrics.json").read_text())["contradictions"]
    assert found in shown.err
    assert f"Warning: {said}" in (tmp_path / "wrong" / "report.html").read_text()
    assert said in selbo(*quick(table, tmp_path / "wrong", *wrong)).err  # and again when it only looks


@pytest.mark.usefixtures("one_thread")
def test_a_belief_that_is_too_bold(selbo: Run, tmp_path: Path) -> None:
    """Four of five cases can be decided; 98 % is stated."""
    draws = np.random.default_rng(0)
    label = draws.integers(0, 2, 400)
    rows = pl.DataFrame({"a": draws.normal(label * 1.7, 1), "b": draws.normal(size=400), "ill": label})
    rows.write_csv(tmp_path / "hard.csv")
    told = {}
    for stated in ("0.98", "0.8"):
        out = tmp_path / stated
        command = quick(tmp_path / "hard.csv", out, "--accuracy", stated, "--concentration", 30)
        shown = selbo(*command)
        assert shown.code == 0, shown.err
        told[stated] = json.loads((out / "metrics.json").read_text())["shortfall"]
        assert ("held-out rows are classified correctly" in shown.err) == (stated == "0.98")
        assert ("held-out rows are classified correctly" in (out / "report.html").read_text()) == (stated == "0.98")
        if stated == "0.98":
            assert f"selbo: note: {told[stated]}" in shown.err
            assert f"Warning: {told[stated]}" in (out / "report.html").read_text()
            assert told[stated] in selbo(*command).err  # and again when it only looks
    assert "of 120 held-out rows" in told["0.98"]
    assert "clearly below the stated 98 %: either the statement is too bold or the network falls short" in told["0.98"]
    assert told["0.8"] is None


@pytest.mark.usefixtures("one_thread")
def test_a_belief_about_rows_without_labels(selbo: Run, table: Path, clinic: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fractions = ["--class-fractions", "no=0.2,yes=0.8", "--concentration", 500]
    shown = selbo(*quick(table, out, "--unlabelled", clinic, *fractions))
    assert shown.code == 0, shown.err
    said = " ".join(shown.out.split())
    assert "84 to train, 12 to validate, 24 to test on; 80 without labels" in said
    belief = (
        "About 90 % of the cases in clinic.csv can be decided correctly; no makes up 20 % and yes 80 % (as stated)."
    )
    assert belief in said
    assert "contradict" not in shown.err  # the validation rows are not what was spoken of
    metrics = json.loads((out / "metrics.json").read_text())
    assert (metrics["rows"]["unlabelled"], metrics["belief"], metrics["contradictions"]) == (80, belief, [])
    manifest = json.loads((out / "model.json").read_text())
    assert {key: manifest["unlabelled"][key] for key in ("name", "rows")} == {"name": "clinic.csv", "rows": 80}
    assert manifest["classifier"]["label_shift"]["after"] == [0.2, 0.8]
    assert 0.1 < manifest["classifier"]["label_shift"]["before"][1] < 0.6
    without = json.loads((model / "model.json").read_text())
    assert (without["unlabelled"], without["classifier"]["label_shift"]) == (None, None)
    page = (out / "report.html").read_text()
    assert "the belief, however, is about the 80 rows of clinic.csv, and compared with them" in page
    assert belief in page
    predicted = selbo("predict", out, clinic)
    share = np.mean([float(row["p_yes"]) for row in csv.DictReader(io.StringIO(predicted.out))])
    before = selbo("predict", model, clinic)
    assert share > np.mean([float(row["p_yes"]) for row in csv.DictReader(io.StringIO(before.out))]) + 0.1


@pytest.mark.usefixtures("no_report", "one_thread")
def test_rows_without_labels_are_part_of_what_was_asked_for(
    selbo: Run, table: Path, clinic: Path, model: Path, tmp_path: Path
) -> None:
    out, other, labelled = tmp_path / "out", tmp_path / "other.csv", tmp_path / "labelled.csv"
    assert selbo(*quick(table, out, "--unlabelled", clinic)).code == 0
    assert "already trained with these settings" in selbo(*quick(table, out, "--unlabelled", clinic)).err
    patients(80).drop("ill").head(70).write_csv(other)
    for folder, more, message in (
        (out, [], "a model trained with --unlabelled: choose another folder"),
        (out, ["--unlabelled", other], "a model trained with other unlabelled rows: choose another folder"),
        (model, ["--unlabelled", clinic], "a model trained without --unlabelled: choose another folder"),
    ):
        shown = selbo(*quick(table, folder, *more))
        assert shown.code == 2
        assert message in shown.err
    patients(80).with_columns(ill=pl.lit("nobody knows"), more=1).write_csv(labelled)
    shown = selbo(*quick(table, tmp_path / "again", "--unlabelled", labelled))
    assert "labelled.csv: columns unknown to the model are ignored: 'more'" in shown.err
    same = "model.safetensors"
    assert (tmp_path / "again" / same).read_bytes() == (out / same).read_bytes() != (model / same).read_bytes()


def test_predictions_are_calibrated_to_what_is_known(selbo: Run, model: Path, clinic: Path, tmp_path: Path) -> None:
    predicted, saved = tmp_path / "predicted.csv", tmp_path / "correction.json"
    assert selbo("predict", model, clinic, "--out", predicted).code == 0
    stated = ["--accuracy", "0.8", "--class-fractions", "no=0.6,yes=0.4"]
    command = ["calibrate", predicted.name, *stated, "--save", saved.name, "--out", "calibrated.csv"]
    done = run_forked("selbo", *command, folder=tmp_path, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    before, after = pl.read_csv(predicted), pl.read_csv(tmp_path / "calibrated.csv")
    assert after.columns == before.columns
    probs = after.select("p_no", "p_yes").to_numpy()
    answers = before.select("p_no", "p_yes").to_numpy().argmax(1)
    assert probs.mean(0) == pytest.approx([0.6, 0.4], abs=0.02)
    assert probs[np.arange(len(probs)), answers].mean() == pytest.approx(0.8, abs=0.02)
    assert after["predicted_class"].to_list() == [["no", "yes"][k] for k in probs.argmax(1)]
    assert after["mutual_information"].equals(before["mutual_information"])
    again = selbo("calibrate", predicted, "--load", saved)
    assert again.code == 0
    assert again.out == (tmp_path / "calibrated.csv").read_text()


def test_the_folder_of_a_model(model: Path) -> None:
    assert listing(model) == FINISHED
    manifest = json.loads((model / "model.json").read_text())
    assert manifest["classifier"]["settings"]["method"] == "summary_elbo"
    assert manifest["classes"] == ["no", "yes"]
    assert len(manifest["classifier"]["mean"]) == 7
    metrics = json.loads((model / "metrics.json").read_text())
    assert metrics["rows"] == {"train": 84, "val": 12, "test": 24}
    assert metrics["metrics"]["num_examples"] == 24
    assert metrics["contradictions"] == []
    assert metrics["metrics"]["accuracy"] > 0.6
    assert metrics["calibrated"] is None or metrics["calibrated"]["accuracy"] == metrics["metrics"]["accuracy"]
    report = (model / "report.html").read_text()
    assert "Do the predictions look like the belief?" in report
    assert "Can the stated confidence be trusted?" in report
    no, yes = metrics["per_class"]
    assert [each["class"] for each in (no, yes)] == ["no", "yes"]
    assert [each["recall"] for each in (no, yes)] == metrics["metrics"]["recall"]
    assert no["rows"] + yes["rows"] == no["predicted"] + yes["predicted"] == 24
    assert (no["correct"] + yes["correct"]) / 24 == metrics["metrics"]["accuracy"]
    assert yes["recall_interval"][0] < yes["recall"] <= yes["recall_interval"][1]
    assert sum(each["rows"] for each in metrics["confusion"]) == 24
    for heading in ("How well is each class recognised?", "Which classes are mistaken for which?"):
        assert f"<h2>{heading}</h2>" in report
    assert "probability of class yes" in report
    assert "clean test set" not in report
    top = report[: report.index("<h2>")]
    assert f"Right on {100 * metrics['metrics']['accuracy']:.1f} % of the 24 test rows" in top
    (record,) = [json.loads(line) for line in (model / "train.jsonl").read_text().splitlines()]
    assert record["step"] == 40
    assert record["val_nll"] > 0


def test_a_finished_folder_is_left_as_it_is(
    selbo: Run, table: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: (model / name).stat().st_mtime_ns for name in listing(model)}
    for module, work in ((task, "prepare"), (workflow, "train_model")):
        monkeypatch.setattr(module, work, lambda *_, **__: pytest.fail("it does the work again"))
    shown = selbo(*quick(table, model))
    assert shown.code == 0
    assert "is already trained with these settings" in shown.err
    assert "NLL" in shown.out
    assert before == {name: (model / name).stat().st_mtime_ns for name in listing(model)}


@pytest.mark.usefixtures("no_report", "one_thread")
def test_other_settings_need_overwrite(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    shown = selbo(*quick(table, folder, "--seed", "1"))
    assert shown.code == 2
    assert "holds a model trained with --seed 0, not 1: choose another folder, or replace it" in shown.err
    shown = selbo(*quick(table, folder, "--accuracy", "7", "--overwrite"))
    assert shown.code == 2
    assert selbo("predict", folder, table).code == 0  # bad input has not cost the old model
    shown = selbo(*quick(table, folder, "--method", "plain", "--overwrite"))
    assert shown.code == 0
    assert "the method plain does not use the belief" in shown.err
    assert listing(folder) == FINISHED
    assert json.loads((folder / "metrics.json").read_text())["method"] == "plain"
    assert selbo("predict", folder, table).code == 0


@pytest.mark.usefixtures("no_report", "one_thread")
def test_a_file_that_was_removed_is_made_again(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    (folder / "metrics.json").unlink()
    assert selbo(*quick(table, folder)).code == 0
    for name in ("metrics.json", "model.safetensors", "model.json", "preprocessing.json"):
        assert (folder / name).read_bytes() == (model / name).read_bytes()


# --- predictions ---


def test_predictions(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    shown = selbo("predict", model, table)
    assert shown.code == 0
    assert shown.err == ""
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert list(rows[0]) == ["predicted_class", "p_no", "p_yes", "entropy", "mutual_information"]
    assert len(rows) == ROWS
    for row in rows:
        no, yes = float(row["p_no"]), float(row["p_yes"])
        assert no + yes == pytest.approx(1, abs=1e-5)
        assert row["predicted_class"] == ("yes" if yes > no else "no")
        assert float(row["entropy"]) == pytest.approx(-no * np.log(no) - yes * np.log(yes), abs=1e-4)
        assert 0 <= float(row["mutual_information"]) <= float(row["entropy"])
    right = np.mean([row["predicted_class"] == truth for row, truth in zip(rows, patients()["ill"], strict=True)])
    assert right > 0.7

    # the same without the target, in another format, to a file
    patients().drop("ill").write_parquet(tmp_path / "new.parquet")
    shown = selbo("predict", model, tmp_path / "new.parquet", "--out", tmp_path / "p.parquet")
    assert (shown.code, shown.out) == (0, "")
    assert f"wrote {ROWS} predictions to" in shown.err
    found = pl.read_parquet(tmp_path / "p.parquet")
    np.testing.assert_allclose(found["p_yes"], [float(row["p_yes"]) for row in rows], rtol=1e-6)


def test_draws_and_seed_of_predictions(selbo: Run, table: Path, model: Path) -> None:
    first, other, again = (selbo("predict", model, table, "--num-samples", 3, "--seed", seed).out for seed in (1, 2, 1))
    assert first == again != other


def test_calibrated_predictions_have_the_temperature(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    manifest = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**manifest, "temperature": 2.0}))

    def odds(text: str) -> np.ndarray:
        rows = list(csv.DictReader(io.StringIO(text)))
        return np.array([np.log(float(row["p_yes"]) / float(row["p_no"])) for row in rows])

    plain, scaled = selbo("predict", folder, table), selbo("predict", folder, table, "--calibrated")
    np.testing.assert_allclose(odds(scaled.out), odds(plain.out) / 2, rtol=1e-3, atol=1e-4)
    (folder / "model.json").write_text(json.dumps({**manifest, "temperature": None}))
    without = selbo("predict", folder, table, "--calibrated")
    assert without.out == plain.out
    assert "no temperature was fitted" in without.err


def test_unseen_categories_and_other_columns_are_said(selbo: Run, model: Path, tmp_path: Path) -> None:
    frame = patients(4).with_columns(pl.Series("site", ["west", "north", "west", "east"]), pl.lit(1).alias("shoe"))
    frame.write_csv(tmp_path / "new.csv")
    shown = selbo("predict", model, tmp_path / "new.csv")
    assert shown.code == 0
    assert len(shown.out.splitlines()) == 5
    assert "selbo: note: columns unknown to the model are ignored: 'shoe'" in shown.err
    assert "column 'site' has values not seen in training, 'west', in 2 rows" in shown.err


def test_only_the_columns_of_the_model_are_parsed(
    selbo: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = patients()
    more = pl.DataFrame({f"more {i}": ["x"] * ROWS for i in range(300)})
    pl.concat([more, frame], how="horizontal").write_csv(tmp_path / "new.csv")
    parsed, real = [], pl.read_csv

    def read(path: Path, **how: object) -> pl.DataFrame:
        found = real(path, **how)
        parsed.extend([found.columns] if len(found) else [])
        return found

    monkeypatch.setattr(pl, "read_csv", read)
    shown = selbo("predict", model, tmp_path / "new.csv")
    assert shown.code == 0
    assert "columns unknown to the model are ignored: 'more 0', 'more 1'" in shown.err
    assert len(shown.out.splitlines()) == 1 + ROWS
    assert selbo("evaluate", model, tmp_path / "new.csv").code == 0
    inputs = ["age", "dose", "site", "smoker"]
    assert parsed == [inputs, [*inputs, "ill"]]


def answers(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are answered, and the confidence of each row."""
    rows = list(csv.DictReader(io.StringIO(text)))
    confidence = np.array([max(float(row["p_no"]), float(row["p_yes"])) for row in rows])
    return np.array([row["predicted_class"] != "" for row in rows]), confidence


def test_a_largest_risk_leaves_uncertain_rows_unanswered(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    shown = selbo("predict", model, table, "--max-risk", 0.05)
    given, confidence = answers(shown.out)
    assert 0 < given.sum() < ROWS
    assert confidence[given].min() > confidence[~given].max()
    assert (1 - confidence[given]).mean() <= 0.05
    assert f"{given.sum()} of {ROWS} rows are answered, those with a confidence of at least" in shown.err
    assert "wrong if the probabilities are calibrated" in shown.err
    plain = list(csv.DictReader(io.StringIO(selbo("predict", model, table).out)))
    some = list(csv.DictReader(io.StringIO(shown.out)))
    assert [row["predicted_class"] for row in plain] != [row["predicted_class"] for row in some]
    assert [row["p_yes"] for row in plain] == [row["p_yes"] for row in some]
    selbo("predict", model, table, "--max-risk", 0.05, "--out", tmp_path / "p.parquet")
    assert pl.read_parquet(tmp_path / "p.parquet")["predicted_class"].is_not_null().to_list() == given.tolist()
    # a calibration keeps them unanswered
    (tmp_path / "p.csv").write_text(shown.out)
    again = selbo("calibrate", tmp_path / "p.csv", "--class-fractions", "no=0.4,yes=0.6")
    assert again.code == 0
    np.testing.assert_array_equal(answers(again.out)[0], given)


def test_labelled_rows_show_that_a_risk_is_kept(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    patients(600)[ROWS:].write_csv(tmp_path / "labelled.csv")
    options = ("--max-risk", 0.2, "--labelled", tmp_path / "labelled.csv", "--confidence", 0.9)
    shown = selbo("predict", model, table, *options)
    given, confidence = answers(shown.out)
    labelled = selbo("predict", model, tmp_path / "labelled.csv")
    rows = list(csv.DictReader(io.StringIO(labelled.out)))
    probs = torch.tensor([[float(row["p_no"]), float(row["p_yes"])] for row in rows], dtype=torch.float64)
    labels = torch.tensor([int(each == "yes") for each in patients(600)[ROWS:]["ill"]])
    rule = decide.abstain(probs / probs.sum(1, keepdim=True), max_risk=0.2, labels=labels, delta=0.1)
    np.testing.assert_array_equal(given, confidence >= rule.threshold - 1e-7)
    assert "at most 20 % of such answers are wrong, with 90 % confidence" in shown.err
    none = selbo("predict", model, table, "--max-risk", 0.001, *options[2:])
    assert not answers(none.out)[0].any()
    assert "the labelled rows cannot show that at most 0.1 % of the answers are wrong" in none.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-risk", 5), "`--max-risk` must lie strictly between 0 and 1"),
        (("--labelled", "TABLE"), "`--labelled` is for `--max-risk`, which is not given"),
        (("--max-risk", 0.1, "--confidence", 0.9), "`--confidence` is for `--labelled`, which is not given"),
        (("--max-risk", 0.1, "--labelled", "TABLE"), "but it is the training file"),
        (("--max-risk", 0.1, "--labelled", "OTHER", "--confidence", 95), "`--confidence` must lie strictly between"),
        (("--max-risk", 0.1, "--labelled", "none.csv"), "'none.csv' is not there"),
    ],
)
def test_bad_risks(selbo: Run, table: Path, model: Path, options: tuple[object, ...], message: str) -> None:
    other = table.with_name("other.csv")
    patients(30).write_csv(other)
    files = {"TABLE": table, "OTHER": other}
    shown = selbo("predict", model, table, *(files.get(str(each), each) for each in options))
    assert (shown.code, shown.out) == (2, "")
    assert message in shown.err


def test_evaluation(selbo: Run, table: Path, model: Path) -> None:
    shown = selbo("evaluate", model, table)
    assert shown.code == 0
    assert "accuracy, %" in shown.out
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    assert "evaluated on the training file; metrics are optimistic" in shown.err
    as_json = json.loads(selbo("evaluate", model, table, "--json").out)
    assert as_json["metrics"]["num_examples"] == ROWS
    assert as_json["metrics"]["accuracy"] > 0.7
    assert as_json["classes"] == ["no", "yes"]


def test_evaluation_by_group(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    frame = patients().with_columns(ward=pl.Series(["a b", "c", None, "c"] * (ROWS // 4)))
    frame.write_csv(tmp_path / "wards.csv")
    page = tmp_path / "page.html"
    shown = selbo("evaluate", model, tmp_path / "wards.csv", "--by", "ward", "--report", page)
    assert shown.code == 0
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    assert "The accuracy is lowest in" in shown.out
    text = page.read_text(encoding="utf-8")
    assert "Is it as good in every group?" in text
    assert '<th scope="row">(missing)</th><td>30</td>' in text
    found = json.loads(selbo("evaluate", model, tmp_path / "wards.csv", "--by", "ward", "--json").out)
    assert [(each["group"], each["rows"]) for each in found["groups"]] == [("(missing)", 30), ("a b", 30), ("c", 60)]
    frame.filter(pl.col("ward") == "c").write_csv(tmp_path / "c.csv")
    alone = json.loads(selbo("evaluate", model, tmp_path / "c.csv", "--json").out)["metrics"]
    for name in ("nll", "accuracy", "ece", "brier"):
        assert found["groups"][2]["metrics"][name] == pytest.approx(alone[name], rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--by", "wart"), "there is no column 'wart' in wards.csv: did you mean 'ward'?"),
        (("--by", "age"), "`--by` must be a column with at most 100 different values, but 'age' has"),
        (("--report", "page.txt"), "`--report` must be a file that ends in .html"),
    ],
)
def test_bad_groups(selbo: Run, model: Path, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    patients(200).with_columns(ward=pl.lit("a")).write_csv(tmp_path / "wards.csv")
    shown = selbo("evaluate", model, tmp_path / "wards.csv", *options)
    assert shown.code == 2
    assert message in shown.err


def test_the_metrics_of_training_are_those_of_the_test_rows(
    selbo: Run, table: Path, model: Path, tmp_path: Path
) -> None:
    labels = patients()["ill"].to_list()
    rows = split(labels, test_fraction=0.2, val_fraction=0.1, seed=0).test
    patients()[rows.tolist()].write_csv(tmp_path / "test.csv")
    found = json.loads(selbo("evaluate", model, tmp_path / "test.csv", "--json").out)
    expected = json.loads((model / "metrics.json").read_text())
    for name, value in expected["metrics"].items():
        assert found["metrics"][name] == pytest.approx(value, rel=1e-5), name
    assert found["temperature"] == expected["temperature"]


# --- other formats, classes and methods ---


def test_iris_as_npz_with_class_fractions_alone(selbo: Run, tmp_path: Path) -> None:
    flowers = load_iris()
    np.savez(tmp_path / "iris.npz", x=flowers.data, species=flowers.target)
    out = tmp_path / "m"
    arguments = ["--target", "species", "--class-fractions", "2=0.5,0=0.2,1=0.3", "--steps", 30, "--out", out]
    shown = selbo("train", tmp_path / "iris.npz", *arguments, "--hidden", "16,8")
    assert shown.code == 0, shown.err
    words = " ".join(shown.out.split())
    assert "Of all cases, class 0 makes up 20 %, class 1 makes up 30 % and class 2 50 % (as stated)." in words
    assert json.loads((out / "model.json").read_text())["classifier"]["settings"]["hidden"] == [16, 8]
    assert "ClassRegions" in (out / "report.html").read_text()
    assert json.loads(selbo("evaluate", out, tmp_path / "iris.npz", "--json").out)["metrics"]["num_examples"] == 150


@pytest.mark.usefixtures("no_report", "one_thread")
@pytest.mark.parametrize(
    ("first", "second"),
    [("b,x", "a,y"), ("b=0.3", "a=0.7"), ("b 'x'", 'a "y" $z'), ("-b", "--a")],
)
def test_the_command_that_the_elicitation_page_writes(selbo: Run, tmp_path: Path, first: str, second: str) -> None:
    """Each class has the fraction that was stated of it, whatever its name and its place in the alphabet."""
    names = {"no": first, "yes": second}
    patients().with_columns(pl.col("ill").replace_strict(names)).write_csv(tmp_path / "named.csv")
    said = {"names": [first, second], "fractions": [0.8, 0.2], "accuracy": 0.9}
    text = answer("belief", said)["copies"]["command"]["text"]
    words = {"data.csv": tmp_path / "named.csv", "label": "ill", "model": tmp_path / "m"}
    program, *arguments = [words.get(word, word) for word in shlex.split(text)]
    assert program == "selbo"
    shown = selbo(*arguments, "--steps", 2)
    assert shown.code == 0, shown.err
    fractions = json.loads((tmp_path / "m" / "settings.json").read_text())["settings"]["class_fractions"]
    assert fractions == {first: 0.8, second: 0.2}
    metrics = json.loads((tmp_path / "m" / "metrics.json").read_text())
    parts = re.fullmatch(r".*correctly; (.*) makes up (.*) % and (.*) (.*) % \(as stated\)\.", metrics["belief"])
    assert parts is not None
    assert metrics["classes"] == [second, first]
    assert (float(parts[2]), float(parts[4])) == (20, 80)


@pytest.mark.usefixtures("no_report", "one_thread")
def test_class_fractions_of_names_with_commas(selbo: Run, tmp_path: Path) -> None:
    """Stated one by one, in another order than the classes have; the same command again resumes, in any order."""
    names = {"no": "b,x = 1", "yes": 'a,y\'s "z"'}
    patients().with_columns(pl.col("ill").replace_strict(names)).write_csv(tmp_path / "named.csv")
    fractions = ["--class-fraction", "b,x = 1=0.8", "--class-fraction", 'a,y\'s "z"=0.2']
    command = quick(tmp_path / "named.csv", tmp_path / "m")
    shown = selbo(*command, *fractions)
    assert shown.code == 0, shown.err
    assert 'a,y\'s "z" makes up 20 % and class b,x = 1 80 % (as stated).' in " ".join(shown.out.split())
    before = (tmp_path / "m" / "model.safetensors").read_bytes()
    again = selbo(*command, *fractions[2:], *fractions[:2])
    assert again.code == 0, again.err
    assert "is already trained with these settings" in again.err
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == before
    other = selbo(*command, "--class-fraction", "b,x = 1=0.7", "--class-fraction", 'a,y\'s "z"=0.3')
    assert other.code == 2
    assert 'a model trained with --class-fractions b,x = 1=0.8, a,y\'s "z"=0.2, not b,x = 1=0.7' in other.err


def test_breast_cancer_as_parquet_without_a_belief(selbo: Run, tmp_path: Path) -> None:
    cells = load_breast_cancer()
    columns = {name: cells.data[:, i] for i, name in enumerate(cells.feature_names)}
    pl.DataFrame({**columns, "benign": cells.target == 1}).write_parquet(tmp_path / "cells.parquet")
    out = tmp_path / "m"
    arguments = ["--target", "benign", "--drop", "mean area", "--drop", "mean radius", "--steps", 60, "--out", out]
    shown = selbo("train", tmp_path / "cells.parquet", *arguments)
    assert shown.code == 0, shown.err
    assert "no prior knowledge given: pass `--accuracy` or `--class-fractions` to state some" in shown.err
    assert "Belief   Of all cases, false makes up 37.3 % and true 62.7 % (as in the training" in shown.out
    metrics = json.loads((out / "metrics.json").read_text())
    assert (metrics["method"], metrics["features"]) == ("summary_elbo", 28)
    assert metrics["metrics"]["accuracy"] > 0.85
    evaluated = selbo("evaluate", out, tmp_path / "cells.parquet", "--json")
    assert json.loads(evaluated.out)["classes"] == ["false", "true"]


@pytest.mark.parametrize("method", ["plain_summary", "label_smoothing", "evidential"])
def test_plain_networks(selbo: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr("selbo.report.page.write_page", lambda _, path: path.write_text("report"))  # it takes seconds
    out = tmp_path / "m"
    assert selbo(*quick(table, out, "--method", method, "--class-fractions", "0.4,0.6")).code == 0
    assert listing(out) == FINISHED
    tested = json.loads((out / "metrics.json").read_text())
    rows = list(csv.DictReader(io.StringIO(selbo("predict", out, table).out)))
    assert len(rows) == ROWS
    doubt = {float(row["mutual_information"]) > 1e-6 for row in rows}
    assert doubt == ({True} if method == "evidential" else {False})
    assert tested["method"] == method


# --- names that mean something to a terminal or a spreadsheet ---


@pytest.mark.usefixtures("no_report", "one_thread")
def test_names_neither_steer_the_terminal_nor_change_in_the_predictions(selbo: Run, tmp_path: Path) -> None:
    names = ["=HYPERLINK(1)", "\x1b[31mred\x1b[0m", "two\nlines"]
    frame = patients().with_columns(pl.Series("ill", [names[i % 3] for i in range(ROWS)]), pl.lit(1).alias("\x1b[2J"))
    data, out = tmp_path / "new\x1b[1m.csv", tmp_path / "model\x1b[7m"
    frame.write_csv(data)
    runs = [
        selbo("train", data, "--target", "ill", "--class-fractions", "0.2,0.3,0.5", "--steps", 2, "--out", out),
        selbo("evaluate", out, data),
        selbo("predict", out, data, "--out", tmp_path / "p.csv"),
        selbo("predict", out, data, "--out", tmp_path / "p.parquet"),
    ]
    for shown in runs:
        assert shown.code == 0, shown.err
        assert "\x1b" not in shown.out + shown.err
    assert r"3: \x1b[31mred\x1b[0m, =HYPERLINK(1), two\nlines" in " ".join(runs[0].out.split())
    assert "note: a spreadsheet may interpret these classes as formulas: '=HYPERLINK(1)'" in runs[2].err
    assert "spreadsheet" not in runs[3].err
    for found in (pl.read_csv(tmp_path / "p.csv"), pl.read_parquet(tmp_path / "p.parquet")):
        assert set(found["predicted_class"]) <= set(names)
        assert found.columns[1:4] == [f"p_{name}" for name in sorted(names)]
    shown = selbo("train", data, "--target", "\x1b[5m", "--out", tmp_path / "other")
    assert shown.code == 2
    assert "\x1b" not in shown.err


@pytest.mark.usefixtures("no_report", "one_thread")
def test_negative_labels_stay_numbers(selbo: Run, tmp_path: Path) -> None:
    frame = patients().with_columns(pl.Series("ill", [(-1, 1)[i % 2] for i in range(ROWS)]))
    frame.write_csv(tmp_path / "new.csv")
    assert selbo("train", tmp_path / "new.csv", "--target", "ill", "--steps", 2, "--out", tmp_path / "m").code == 0
    shown = selbo("predict", tmp_path / "m", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert "spreadsheet" not in shown.err
    assert pl.read_csv(tmp_path / "p.csv")["predicted_class"].dtype == pl.Int64


# --- interrupted ---

EAGER = """
from selbo.estimator import classifier
classifier.CHECKPOINT_SECONDS = 0.0
from selbo.cli.main import main
main()
"""


def stop_in_the_midst(arguments: list[object], out: Path, how: signal.Signals) -> Forked:
    """Start training in another process, and send a signal once there is a new checkpoint."""
    checkpoint, program = out / "checkpoint.safetensors", out.parent / "eager.py"
    program.write_text(EAGER, encoding="utf-8")
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
    training = start_forked(program, *map(str, arguments), COLUMNS="80")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and training.process.is_alive():
        if checkpoint.exists() and checkpoint.stat().st_mtime_ns != before:
            break
        time.sleep(0.01)
    os.kill(training.process.pid, how)
    return training


@pytest.mark.usefixtures("no_report", "one_thread")
def test_a_killed_run_goes_on_and_ends_the_same(selbo: Run, table: Path, clinic: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    settings = ["--steps", 400, "--unlabelled", clinic]
    assert selbo(*quick(table, whole, *settings)).code == 0

    ended = stop_in_the_midst(quick(table, broken, *settings), broken, signal.SIGINT).wait(300)
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1] == "selbo: error: interrupted; run the same command again to resume"

    ended = stop_in_the_midst(quick(table, broken, *settings), broken, signal.SIGKILL).wait(300)
    assert ended.returncode == -signal.SIGKILL
    assert not (broken / "model.json").exists()
    shown = selbo("predict", broken, table)
    assert shown.code == 2
    assert "is not finished: run the same selbo train command again to resume" in shown.err
    shown = selbo(*quick(table, broken, *settings, "--steps", 500))
    assert shown.code == 2
    assert "holds an unfinished run trained with --steps 400, not 500" in shown.err

    (broken / ".report.html-x7").mkdir()  # what a kill may leave behind
    (broken / ".metrics.json.part").write_text("{")
    shown = selbo(*quick(table, broken, *settings))
    assert shown.code == 0
    assert "resuming from the checkpoint" in shown.err
    assert listing(broken) == FINISHED
    for name in FINISHED:
        if name != "report.html":  # which says how long it took
            assert (broken / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs a process that can be paused")
def test_two_processes_do_not_train_into_one_folder(selbo: Run, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    settings = ["--steps", 400]
    training = stop_in_the_midst(quick(table, out, *settings), out, signal.SIGSTOP)
    try:
        for more in ([], ["--overwrite"], ["--seed", 1, "--overwrite"]):
            shown = selbo(*quick(table, out, *settings, *more))
            assert shown.code == 2
            assert f"selbo: error: another selbo train is writing to '{out}'" in shown.err
            assert shown.err.count("\n") == 1
            assert shown.out == ""
        shown = selbo("predict", out, table)
        assert shown.code == 2
        assert "is not finished" in shown.err
    finally:
        os.kill(training.process.pid, signal.SIGCONT)
        ended = training.wait(300)
    assert ended.returncode == 0, ended.stderr
    assert listing(out) == FINISHED
    steps = [json.loads(line)["step"] for line in (out / "train.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert selbo("predict", out, table).code == 0


@pytest.mark.usefixtures("no_report", "one_thread")
def test_a_damaged_checkpoint(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "model.json").unlink()  # as if it had been stopped
    (broken / "checkpoint.safetensors").write_bytes(b"damaged")
    shown = selbo(*quick(table, broken))
    assert shown.code == 2
    assert (
        "is damaged, and training cannot resume from it: remove the file, or start again with --overwrite" in shown.err
    )
    assert (broken / "checkpoint.safetensors").read_bytes() == b"damaged"
    shown = selbo(*quick(table, broken, "--overwrite"))
    assert shown.code == 0
    assert "resuming" not in shown.err
    assert listing(broken) == FINISHED
    assert (broken / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


@pytest.mark.usefixtures("no_report", "one_thread")
def test_an_accuracy_no_better_than_guessing_is_pointed_out(selbo: Run, table: Path, tmp_path: Path) -> None:
    few = ["train", table, "--target", "ill", "--steps", 2, "--accuracy"]
    shown = selbo(*few, "0.6", "--class-fractions", "no=0.9,yes=0.1", "--out", tmp_path / "a")
    assert shown.code == 0
    assert "note: Always saying “no” would be right in 90 % of cases, which is no less than the expected" in shown.err
    rare = pl.concat([patients().filter(pl.col("ill") == "no"), patients().filter(pl.col("ill") == "yes").head(12)])
    rare.write_csv(tmp_path / "rare.csv")
    shown = selbo("train", tmp_path / "rare.csv", *few[2:], "0.7", "--out", tmp_path / "b")
    assert shown.code == 0
    assert "Always saying “no”" in shown.err
    shown = selbo(*few, "0.91", "--class-fractions", "no=0.9,yes=0.1", "--out", tmp_path / "c")
    assert "Always saying" not in shown.err


# --- bad input: one sentence, exit code 2, nothing written ---


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target", "il"], "there is no column 'il' in patients.csv: did you mean 'ill'?"),
        (["--target", "age"], "different numbers in 120 rows, as in regression"),
        (["--target", "unit"], "at least 2 classes, but all of 'unit' is 'mg'"),
        (["--drop", "sit"], "no column 'sit' in patients.csv: did you mean 'site'?"),
        (["--accuracy", "0.4"], "`--accuracy` must lie strictly between 0.5 and 1"),
        (["--accuracy", "1"], "`--accuracy` must lie strictly between 0.5 and 1"),
        (["--class-fractions", "0.5,0.3,0.2"], "must hold 2 numbers, for ['no', 'yes'], but holds 3"),
        (["--class-fractions", "0.5,0.3"], "`--class-fractions` must sum to 1"),
        (["--class-fractions", "0.5;0.5"], "must be numbers such as 0.3 or yes=0.3, but '0.5;0.5' is none"),
        (["--class-fractions", "ja=0.5,no=0.5"], "must name the classes ['no', 'yes'], but names ['ja', 'no']"),
        (["--class-fractions", "no=1"], "must name the classes ['no', 'yes'], but names ['no']"),
        (["--class-fractions", "no=0.5,yes=0.5,no=0.5"], "must name every class once"),
        (["--class-fraction", "no=0.5"], "`--class-fractions` must name the classes ['no', 'yes'], but names ['no']"),
        (["--class-fraction", "no=0.5", "--class-fraction", "no=0.5"], "must name every class once"),
        (["--class-fraction", "0.5,0.5"], "`--class-fraction` must be numbers such as 0.3 or yes=0.3"),
        (["--fraction-uncertainty", "0.1"], "`--fraction-uncertainty` is about `--class-fractions`, but none are"),
        (["--seed", "4294967296"], "invalid value for '--seed'"),
        (
            ["--class-fraction", "no=0.5", "--class-fractions", "0.5,0.5"],
            "`--class-fraction` cannot be given together with `--class-fractions`",
        ),
        (["--concentration", "0"], "`--concentration` must be a finite number greater than 0"),
        (["--method", "magic"], "`--method` must be one of"),
        (["--hidden", "64,x"], "`--hidden` must be whole numbers above 0"),
        (["--learning-rate", "0"], "`--learning-rate` must be a finite number greater than 0"),
        (["--test-fraction", "0.95"], "must leave rows to train on"),
        (["--device", "cuda:77"], "`--device`"),
    ],
)
def test_bad_arguments_of_train(selbo: Run, table: Path, tmp_path: Path, more: list[str], message: str) -> None:
    if "--device" in more and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    shown = selbo(*quick(table, tmp_path / "out", *more))
    assert shown.code == 2
    assert shown.out == ""
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.csv", None, "is not there"),
        ("data.txt", "x", "must be a file that ends in .csv or .parquet or .npz"),
        ("data.csv", "", "is empty"),
        ("data.csv", "x,ill\n" + "1,\n2,\n3,NA\n" * 4, "'ill' has no value in 12"),
        ("data.csv", "x,ill\n" + "1,a\n2,b\n" * 2, "at least 3 rows"),
        ("data.csv", "x,ill\n" + "".join(f"n{i},{'ab'[i % 2]}\n" for i in range(20)), "(--keep uses one all the same)"),
    ],
)
def test_bad_data_of_train(selbo: Run, tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    shown = selbo(*quick(tmp_path / name, tmp_path / "out"))
    assert shown.code == 2
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        (None, [], "clinic.csv' is not there"),
        ("", [], "is empty"),
        ("age,dose,site,smoker\n", [], "clinic.csv"),
        ("age,dose,place,smoker\n50,2,north,true\n", [], "clinic.csv must have the columns of the training data"),
        (
            "age,dose,site,smoker\n50,2,north,true\n",
            ["--method", "plain"],
            "`--unlabelled` is for a method with a summary, which uses it, but",
        ),
    ],
)
def test_bad_rows_without_labels(
    selbo: Run, table: Path, tmp_path: Path, *, content: str | None, more: list[str], message: str
) -> None:
    if content is not None:
        (tmp_path / "clinic.csv").write_text(content)
    shown = selbo(*quick(table, tmp_path / "out", "--unlabelled", tmp_path / "clinic.csv", *more))
    assert shown.code == 2
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def full_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A disk on which everything fits but one file."""
    real = os.fsync

    def sync(number: int) -> None:
        if Path(f"/proc/self/fd/{number}").readlink().name == f".{name}.part":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(number)

    monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs names of open files")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("method", ["elbo", "plain"])
@pytest.mark.parametrize("name", [*FINISHED, "checkpoint.safetensors"])
def test_a_file_that_does_not_fit_is_named(
    selbo: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str, method: str
) -> None:
    monkeypatch.setattr("selbo.report.page.render_page", lambda _: "report")  # drawing takes seconds
    out = tmp_path / "out"
    command = ["train", table, "--target", "ill", "--steps", 2, "--method", method, "--out", out]
    with monkeypatch.context() as patch:
        full_disk(patch, name)
        shown = selbo(*command)
    assert shown.code == 1
    assert shown.err.splitlines()[-1] == f"selbo: error: {out / name}: no space left on device"
    assert [each for each in listing(out) if each.startswith(".")] == []
    assert selbo(*command).code == 0  # once there is room
    assert listing(out) == FINISHED


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs names of open files")
@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predictions_that_do_not_fit_are_named(
    selbo: Run, table: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str
) -> None:
    full_disk(monkeypatch, name)
    shown = selbo("predict", model, table, "--out", tmp_path / name)
    assert shown.code == 1
    assert shown.err == f"selbo: error: {tmp_path / name}: no space left on device\n"
    assert listing(tmp_path) == []


def test_folders_that_are_refused(selbo: Run, table: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.html").write_text("precious")
    shown = selbo(*quick(table, tmp_path / "mine", "--overwrite"))
    assert shown.code == 2
    assert "must be a new folder, an empty one, or one of selbo train, but" in shown.err
    assert (tmp_path / "mine" / "report.html").read_text() == "precious"
    (tmp_path / "file").touch()
    assert selbo(*quick(table, tmp_path / "file")).code == 2
    shown = selbo(*quick(table, tmp_path / "file" / "inside"))
    assert shown.code == 2
    assert "cannot be made: not a directory" in shown.err


def test_models_that_are_refused(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    for folder, message in (
        (tmp_path / "gone", "is not there"),
        (tmp_path, "has no model.json: train with selbo train"),
    ):
        for command in ("predict", "evaluate"):
            shown = selbo(command, folder, table)
            assert shown.code == 2
            assert message in shown.err
    changed = tmp_path / "changed"
    shutil.copytree(model, changed)
    (changed / "model.safetensors").write_bytes(b"another model")
    shown = selbo("predict", changed, table)
    assert shown.code == 2
    assert "was changed or belongs to another model" in shown.err
    (changed / "model.json").write_text('{"name": "not ours"}')
    shown = selbo("predict", changed, table)
    assert shown.code == 2
    assert "is not a file of selbo" in shown.err


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (patients().drop("age"), "has no 'age'"),
        (patients().with_columns(pl.lit("old").alias("age")), "'age' must hold numbers as in training"),
    ],
)
def test_bad_data_of_predict(selbo: Run, model: Path, tmp_path: Path, frame: pl.DataFrame, message: str) -> None:
    frame.write_csv(tmp_path / "new.csv")
    shown = selbo("predict", model, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert shown.code == 2
    assert message in shown.err
    assert "--drop" not in shown.err  # which predict does not have
    assert not (tmp_path / "p.csv").exists()


def test_one_empty_cell_does_not_stop_predictions(selbo: Run, model: Path, tmp_path: Path) -> None:
    frame = patients()[:5].with_columns(pl.Series("dose", [1, None, 2, 0, 3]))
    frame.write_csv(tmp_path / "new.csv")
    shown = selbo("predict", model, tmp_path / "new.csv")
    assert shown.code == 0
    assert shown.err == ("selbo: note: missing values in columns that had none in training are imputed: 'dose' (1)\n")
    assert len(shown.out.splitlines()) == 6


def test_predictions_never_replace_the_table(selbo: Run, table: Path, model: Path, tmp_path: Path) -> None:
    new, link = tmp_path / "new.csv", tmp_path / "link.csv"
    shutil.copy(table, new)
    link.symlink_to(new)
    before = new.read_bytes()
    for out in (new, link, tmp_path / ".." / tmp_path.name / "new.csv"):
        shown = selbo("predict", model, new, "--out", out)
        assert shown.code == 2
        assert "`--out` must be a different file from the input table" in shown.err
    assert new.read_bytes() == before
    assert link.is_symlink()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (patients().drop("ill"), "there is no column 'ill' in new.csv"),
        (patients().with_columns(pl.lit("maybe").alias("ill")), "labels not seen in training, 'maybe', in 120 rows"),
    ],
)
def test_bad_data_of_evaluate(selbo: Run, model: Path, tmp_path: Path, frame: pl.DataFrame, message: str) -> None:
    frame.write_csv(tmp_path / "new.csv")
    shown = selbo("evaluate", model, tmp_path / "new.csv")
    assert shown.code == 2
    assert message in shown.err
