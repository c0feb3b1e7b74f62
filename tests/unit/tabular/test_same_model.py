"""The same statement about the same rows gives the same model through `SummaryClassifier` and `selbo train`."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import selbo
from selbo.cli.main import main
from selbo.cli.train import train
from selbo.tabular import saved_model
from selbo.tabular.preprocessing import fit_preprocessing, label_names
from selbo.tabular.splits import split
from selbo.tabular.table import read_table

QUICK = {"steps": 12, "hidden": (16,), "learning_rate": 0.01, "num_samples": 16}
OPTIONS = ["--steps", "12", "--hidden", "16", "--learning-rate", "0.01", "--num-samples", "16", "--val-fraction", "0.1"]


def patients(rows: int, seed: int, share: float) -> pl.DataFrame:
    """Numbers on different scales, categories, one of them rare, and a target that depends on them."""
    draws = np.random.default_rng(seed)
    ill = draws.random(rows) < share
    return pl.DataFrame(
        {
            "age": draws.normal(50 + 10 * ill, 12).round(1),
            "dose": draws.integers(0, 500, rows) * 1e3,
            "site": draws.choice(["north", "south", "east", "rare"], rows, p=[0.4, 0.3, 0.28, 0.02]),
            "smoker": draws.random(rows) < 0.2 + 0.5 * ill,
            "ill": np.where(ill, "yes", "no"),
        }
    )


def by_hand(data: Path, unlabelled: Path | None, seed: int, **stated: object) -> np.ndarray:
    """Probabilities of all rows, by the estimator that is handed the matrix of the training rows."""
    table = read_table(data)
    names = np.array(label_names(table, "ill"))
    rows = split(names.tolist(), test_fraction=0.2, val_fraction=0.1, seed=seed).train
    preprocessing, _ = fit_preprocessing(table, target="ill", rows=rows)
    X, _ = preprocessing.transform(table)
    more = None if unlabelled is None else preprocessing.transform(read_table(unlabelled))[0]
    classifier = selbo.SummaryClassifier(**{**QUICK, **stated}, random_state=seed)
    return classifier.fit(X[rows], names[rows], X_unlabelled=more).predict_proba(X)


STATEMENTS = [
    ({"accuracy": 0.9}, ["--accuracy", "0.9"], False),
    ({"class_fractions": {"no": 0.7, "yes": 0.3}}, ["--class-fractions", "yes=0.3,no=0.7"], False),
    (
        {"accuracy": 0.9, "class_fractions": [0.6, 0.4], "concentration": 30.0},
        ["--accuracy", "0.9", "--class-fractions", "0.6,0.4", "--concentration", "30"],
        False,
    ),
    ({"class_fractions": [0.3, 0.7]}, ["--class-fraction", "no=0.3", "--class-fraction", "yes=0.7"], True),
    (
        {"class_fractions": [0.3, 0.7], "fraction_uncertainty": 0.2, "method": "plain_summary"},
        ["--class-fractions", "0.3,0.7", "--fraction-uncertainty", "0.2", "--method", "plain_summary"],
        True,
    ),
    ({"accuracy": 0.9, "class_fractions": [0.3, 0.7]}, ["--accuracy", "0.9", "--class-fractions", "0.3,0.7"], True),
    ({}, [], False),
    ({"method": "evidential"}, ["--method", "evidential"], False),
    (
        {"accuracy": 0.9, "posterior": "natural_gradient"},
        ["--accuracy", "0.9", "--posterior", "natural_gradient"],
        False,
    ),
]


@pytest.mark.parametrize(("stated", "options", "elsewhere"), STATEMENTS, ids=lambda each: str(each)[:40])
def test_estimator_and_command_give_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: dict[str, object], options: list[str], *, elsewhere: bool
) -> None:
    monkeypatch.setattr("selbo.report.page.write_page", lambda _, path: path.write_text("report"))  # it takes seconds
    data, clinic, out = tmp_path / "data.csv", tmp_path / "clinic.csv", tmp_path / "model"
    patients(140, 0, 0.35).write_csv(data)
    patients(60, 1, 0.7).drop("ill").write_csv(clinic)
    options = [*options, *(["--unlabelled", str(clinic)] if elsewhere else [])]
    command = ["selbo", "train", str(data), "--target", "ill", "--seed", "3", "--out", str(out), *OPTIONS, *options]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code
    model = saved_model.load_model(out)
    found = model.predict(model.preprocessing.transform(read_table(data))[0], num_samples=16)
    expected = by_hand(data, clinic if elsewhere else None, 3, **stated)
    np.testing.assert_allclose(found.probs.numpy(), expected, rtol=1e-12)
    shifted = json.loads((out / "model.json").read_text())["classifier"]["label_shift"]
    assert (shifted is not None) == elsewhere


def test_the_defaults_of_the_command_are_those_of_the_estimator() -> None:
    options = {name: each.default for name, each in inspect.signature(train).parameters.items()}
    settings = selbo.SummaryClassifier().get_params()
    shared = {name for name in settings if name in options}
    assert len(shared) == 16
    assert {name: options[name] for name in shared - {"hidden"}} == {
        name: settings[name] for name in shared - {"hidden"}
    }
    assert options["hidden"] == ",".join(map(str, settings["hidden"]))
