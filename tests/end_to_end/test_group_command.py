"""`selbo train` on class fractions of groups: the model that comes out, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import selbo
from selbo.cli.main import main
from selbo.estimator import classifier as classifier_module
from selbo.tabular import saved_model
from selbo.tabular.groups import GroupSource, known_labels, read_groups
from selbo.tabular.preprocessing import fit_preprocessing
from selbo.tabular.splits import split_groups
from selbo.tabular.table import read_table


def write_people(folder: Path, *, labels: int | None = None, towns: int = 12, size: int = 40) -> None:
    """People of towns, their vote in the first rows, new people with votes, and the votes of the towns."""
    draws = np.random.default_rng(3)
    town = np.arange(2 * towns * size) % towns
    X = draws.normal(size=(towns, 2))[town] + draws.normal(size=(len(town), 2))
    yes = draws.random(len(town)) < 1 / (1 + np.exp(2 * X[:, 1] - 2 * X[:, 0]))
    names = np.array([f"town {k}" for k in range(towns)])[town]
    votes = np.where(yes, "yes", "no")
    half = towns * size
    people = pl.DataFrame({"a": X[:half, 0], "b": X[:half, 1], "town": names[:half]})
    if labels is not None:
        people = people.with_columns(
            vote=pl.Series([str(v) if k < labels else None for k, v in enumerate(votes[:half])])
        )
    people.write_csv(folder / "people.csv")
    pl.DataFrame({"a": X[half:, 0], "b": X[half:, 1], "vote": votes[half:]}).write_csv(folder / "new.csv")
    shares = [yes[:half][town[:half] == k].mean() for k in range(towns)]
    pl.DataFrame(
        {"town": [f"town {k}" for k in range(towns)], "yes": shares, "no": [1 - each for each in shares]}
    ).write_csv(folder / "votes.csv")


OPTIONS = ["--steps", "150", "--hidden", "8", "--learning-rate", "0.02", "--num-samples", "8"]
QUICK = [*OPTIONS, "--steps", "20"]
"""For what does not depend on a network that has learned."""
GROUPS = ["--groups", "town", "--group-fractions", "votes.csv"]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The command in a folder, as a function that returns code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["selbo", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return int(left.value.code or 0), shown.out, " ".join(shown.err.split())

    return run


def test_a_model_of_groups_alone_predicts_individuals_without_the_column_of_groups(
    tmp_path: Path, command: Any
) -> None:
    write_people(tmp_path)
    code, out, err = command("train", "people.csv", *GROUPS, *OPTIONS, "--out", "model")
    assert (code, err) == (0, "")
    assert "384 to train, 96 to test on; 480 without labels" in out
    assert "Predictions for 96 held-out rows of 12 groups miss the stated fractions by" in out
    report = (tmp_path / "model" / "report.html").read_text()
    assert "Do the predictions agree with the stated fractions?" in report
    assert "error of group fractions, %" in report
    assert "There are no labels to test on" in report
    assert not (tmp_path / "model" / "test_predictions.csv").exists()
    code, out, err = command("predict", "model", "new.csv", "--out", "predicted.csv")
    assert code == 0
    found = (pl.read_csv("predicted.csv")["predicted_class"] == pl.read_csv("new.csv")["vote"]).mean()
    assert found > 0.75
    code, out, _ = command("evaluate", "model", "new.csv", "--target", "vote", "--json")
    assert json.loads(out)["metrics"]["accuracy"] == pytest.approx(found)
    code, _, err = command("evaluate", "model", "new.csv")
    assert code != 0
    assert "`--target` must name the column with the classes, as the model was trained without labels" in err
    # the same job does nothing, another one is refused
    assert "already trained" in command("train", "people.csv", *GROUPS, *OPTIONS, "--out", "model")[2]
    code, _, err = command("train", "people.csv", *GROUPS, *OPTIONS, "--out", "model", "--group-concentration", "7")
    assert "trained with --group-concentration none, not 7.0" in err
    pl.read_csv("votes.csv").reverse().write_csv("votes.csv")
    assert (
        "trained with other fractions of groups"
        in command("train", "people.csv", *GROUPS, *OPTIONS, "--out", "model")[2]
    )


def test_estimator_and_command_give_the_same_model(tmp_path: Path, command: Any) -> None:
    write_people(tmp_path, labels=80)
    more = ["--accuracy", "0.8", "--group-concentration", "20", "--target", "vote"]
    assert command("train", "people.csv", *GROUPS, *QUICK, *more, "--out", "model")[0] == 0
    assert command("predict", "model", "people.csv", "--out", "predicted.csv", "--num-samples", "8")[0] == 0
    found = pl.read_csv("predicted.csv").select("p_no", "p_yes").to_numpy()
    table = read_table("people.csv")
    stated, towns = read_groups(GroupSource("town", Path("votes.csv")), table)
    labels = known_labels(table, "vote", stated)
    rows = split_groups(towns, labels, test_fraction=0.2, val_fraction=0, seed=0).train
    preprocessing, _ = fit_preprocessing(table, target="vote", rows=rows, groups=stated)
    X, _ = preprocessing.transform(table)
    assert preprocessing.columns == ("a", "b")
    classifier = selbo.SummaryClassifier(
        accuracy=0.8, steps=20, hidden=(8,), learning_rate=0.02, num_samples=8, random_state=0
    ).fit(
        X[rows],
        np.array(["no", "yes", None], dtype=object)[labels[rows]],
        groups=[towns[row] for row in rows],
        group_fractions={name: dict(zip(("no", "yes"), row, strict=True)) for name, row in stated.fractions.items()},
        group_concentration=20.0,
    )
    np.testing.assert_allclose(found, classifier.predict_proba(X), atol=1e-7)
    assert classifier.calibration_ is not None
    temperature = f"After training, a temperature of {classifier.calibration_.temperature:.2g} met the accuracy."
    assert saved_model.finished(Path("model")).belief.endswith(temperature)


def test_the_estimated_concentration_is_said_and_used(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifier_module, "GROUP_CONCENTRATIONS", (5.0,))
    write_people(tmp_path)
    options = ["people.csv", *GROUPS, *QUICK, "--kl-weight", "0.1"]
    code, out, _ = command("train", *options, "--group-concentration", "auto", "--out", "model")
    assert code == 0
    assert "with a concentration that held-out groups decide" in " ".join(out.split())
    estimated = saved_model.finished(tmp_path / "model")
    assert estimated.belief.endswith("The estimated concentration is 5.")
    assert command("train", *options, "--group-concentration", "5", "--out", "model5")[0] == 0
    assert estimated.stated_groups == saved_model.finished(tmp_path / "model5").stated_groups  # intervals, too


@pytest.mark.parametrize(("posterior", "expected"), [("mean_field", 100), ("natural_gradient", 40)])
def test_training_and_report_have_the_concentration_of_the_whole_table(
    tmp_path: Path, command: Any, posterior: str, expected: float
) -> None:
    """Fractions were counted among 40 rows per town, 32 of which are trained on."""
    write_people(tmp_path)
    options = ["people.csv", *GROUPS, *QUICK, "--kl-weight", "0.1", "--learning-rate", "0.01", "--posterior", posterior]
    assert command("train", *options, "--out", "model")[0] == 0
    found = saved_model.finished(tmp_path / "model")
    assert found.belief.endswith(f"with a concentration of {expected}.")
    table = read_table("people.csv")
    stated, towns = read_groups(GroupSource("town", Path("votes.csv")), table)
    X = np.stack([table["a"].numbers, table["b"].numbers], 1)
    in_python = selbo.SummaryClassifier(posterior=posterior).statement(X, **stated.arguments(towns)).groups
    assert in_python is not None
    assert in_python.concentration.tolist() == [expected] * 12
    expected_intervals = selbo.check_groups(in_python, torch.arange(12), log_probs=torch.full((12, 2), 0.5).log())
    assert found.stated_groups is not None
    for each, other in zip(found.stated_groups.groups, expected_intervals, strict=True):
        assert each.stated_interval == other.claimed_interval


def test_without_an_output_folder_one_is_named_after_the_table(tmp_path: Path, command: Any) -> None:
    write_people(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "people.csv").rename(tmp_path / "data" / "people.csv")
    given = ["train", "data/people.csv", *GROUPS, *QUICK, "--kl-weight", "0.1"]
    code, out, err = command(*given)
    assert code == 0
    assert "note: the output folder is people-model, because `--out` is not given" in err
    assert "Report: people-model/report.html" in out
    assert saved_model.is_complete(tmp_path / "people-model")
    assert "people-model is already trained with these settings" in command(*given)[2]
    code, _, err = command(*given, "--seed", "1")
    assert (code, "'people-model' holds a model trained with --seed 0, not 1" in err) == (2, True)
    for path in (tmp_path / "people-model").iterdir():
        path.unlink()
    (tmp_path / "people-model" / "notes.txt").write_text("mine")
    code, _, err = command(*given)
    assert code == 2
    assert "`--out` must be a new folder, an empty one, or one of selbo train, but 'people-model' holds" in err
    assert (tmp_path / "people-model" / "notes.txt").read_text() == "mine"


def test_a_wrong_fraction_is_found_by_all_rows(tmp_path: Path, command: Any) -> None:
    """Of 40 rows per town eight are held out, too few for it."""
    write_people(tmp_path)
    votes = pl.read_csv("votes.csv")
    wrong = votes["town"][int(votes["yes"].arg_min())]  # its share is below .2
    right = pl.col("town") != wrong
    votes.with_columns(
        yes=pl.when(right).then("yes").otherwise(0.95), no=pl.when(right).then("no").otherwise(0.05)
    ).write_csv("votes.csv")
    options = [*GROUPS, *OPTIONS, "--hidden", "2", "--kl-weight", "0.1", "--group-concentration", "1000"]
    assert command("train", "people.csv", *options, "--out", "model")[0] == 0
    found = saved_model.finished(tmp_path / "model").stated_groups
    assert found is not None
    assert found.held_out
    assert found.contradicted[0].name == wrong
    assert found.contradicted[0].rows == 8


def test_the_headline_counts_the_groups_that_were_trained_on(tmp_path: Path, command: Any) -> None:
    """Of ten small towns, two are held out, and none of the rows of the others."""
    write_people(tmp_path, size=19, towns=10)
    assert command("train", "people.csv", *GROUPS, *QUICK, "--kl-weight", "0.1", "--out", "model")[0] == 0
    report = " ".join((tmp_path / "model" / "report.html").read_text(encoding="utf-8").split())
    assert "The class fractions of 8 groups (town) are as stated" in report
    assert "Learned from the class fractions of 8 groups (town) and no label. Predictions for 38 held-out" in report


def test_the_rows_of_the_whole_table_decide_what_is_too_precise(tmp_path: Path, command: Any) -> None:
    """The shares of towns of 40 are whole numbers of rows, though not of the 32 that are trained on."""
    write_people(tmp_path)
    options = ["people.csv", *GROUPS, *QUICK, "--kl-weight", "0.1", "--group-concentration", "5000"]
    code, _, err = command("train", *options, "--out", "model")
    assert code == 0
    assert "precisely" not in err
    assert "whole number" not in err


def test_the_chosen_weight_of_the_kl_divergence_is_said_and_used(tmp_path: Path, command: Any) -> None:
    write_people(tmp_path)
    code, out, _ = command("train", "people.csv", *GROUPS, *QUICK, "--out", "model")
    assert code == 0
    model = saved_model.finished(tmp_path / "model")
    said = re.search(r"Held-out groups chose the weight (\S+) of the KL divergence\.$", model.belief)
    assert said is not None
    assert said[0] in " ".join(out.split())
    assert said[0] in (tmp_path / "model" / "report.html").read_text(encoding="utf-8")
    assert command("train", "people.csv", *GROUPS, *QUICK, "--kl-weight", said[1], "--out", "same")[0] == 0
    same = saved_model.finished(tmp_path / "same")
    assert same.stated_groups == model.stated_groups
    assert "KL divergence" not in same.belief


def test_labels_are_tested_on_if_there_are_enough(tmp_path: Path, command: Any) -> None:
    write_people(tmp_path, labels=20)
    _, out, err = command("train", "people.csv", "--target", "vote", *GROUPS, *QUICK, "--out", "few")
    assert "all 20 labels are used for training: with 50 or more, some would be held out" in err
    assert "accuracy" not in out
    write_people(tmp_path, labels=200)
    _, out, _ = command("train", "people.csv", "--target", "vote", *GROUPS, *QUICK, "--out", "many")
    assert "accuracy, %" in out
    metrics = saved_model.finished(tmp_path / "many")
    assert metrics.metrics["num_examples"] == 40
    assert metrics.rows.test == 40 + 60  # labelled ones, and a fifth of each group's 23 or 24 others
    assert metrics.stated_groups is not None
    assert len(metrics.stated_groups.groups) == 12
    assert metrics.validation is not None
    assert command("evaluate", "many", "new.csv")[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--groups", "town"], "`--groups` and `--group-fractions` must be given together"),
        (["--group-fractions", "votes.csv"], "`--groups` and `--group-fractions` must be given together"),
        (["--target", "a", "--group-concentration", "3"], "`--group-concentration` is about `--group-fractions`"),
        ([], "missing option '--target', which names the column with the classes, or '--groups'"),
        (
            ["--groups", "twon", "--group-fractions", "votes.csv"],
            "no column 'twon' in people.csv: did you mean 'town'?",
        ),
        (
            ["--groups", "town", "--group-fractions", "no.csv"],
            "`--group-fractions` must be a file, but 'no.csv' is not there",
        ),
        ([*GROUPS, "--method", "elbo"], "`--groups` is for a method with a summary"),
        ([*GROUPS, "--unlabelled", "new.csv"], "`--unlabelled` cannot be given together with `--groups`"),
        ([*GROUPS, "--group-concentration", "-1"], "`--group-concentration` must be a finite number greater than 0"),
        (
            [*GROUPS, "--group-concentration", "high"],
            "`--group-concentration` must be a number or auto, but got 'high'",
        ),
        ([*GROUPS, "--target", "b"], "the labels in 'b' must be the classes of votes.csv"),
        ([*GROUPS, "--drop", "a", "--drop", "b"], "there is no column to predict the classes from"),
    ],
)
def test_what_the_command_refuses(tmp_path: Path, command: Any, options: list[str], message: str) -> None:
    write_people(tmp_path)
    code, _, err = command("train", "people.csv", *options, "--out", "model")
    assert code != 0
    assert message in err
