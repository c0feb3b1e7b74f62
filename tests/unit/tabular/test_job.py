"""What a training job states, in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import selbo
from selbo.tabular.job import Job, describe_statement

JOB = Job(Path("patients.csv"), "ill", selbo.SummaryClassifier(accuracy=0.9, random_state=0))


@pytest.mark.parametrize(
    ("stated", "clinic", "words"),
    [
        ({}, None, "Of all cases, no makes up 70 % and yes 30 % (as in the training rows)."),
        (
            {"accuracy": 0.9},
            None,
            "About 90 % of all cases can be decided correctly; no makes up 70 % and yes 30 % (as in ",
        ),
        (
            {"class_fractions": [0.8, 0.2]},
            "clinic.csv",
            "Of the cases in clinic.csv, no makes up 80 % and yes 20 % (as ",
        ),
        ({"class_fractions": {"no": 0.8, "yes": 0.2}}, "clinic.csv", "(as stated, give or take 5)."),
        ({"class_fractions": [0.8, 0.2], "accuracy": 0.9}, "clinic.csv", "no makes up 80 % and yes 20 % (as stated)."),
        ({"class_fractions": [0.8, 0.2], "fraction_uncertainty": 0.1}, None, "(as stated, give or take 10)."),
    ],
)
def test_a_statement_in_words(stated, clinic, words):
    job = Job(Path("a.csv"), "ill", selbo.SummaryClassifier(**stated), clinic and Path(clinic))
    X, y = np.arange(10.0)[:, None], ["no"] * 7 + ["yes"] * 3
    found = job.classifier.statement(X, y, X_unlabelled=clinic and X)
    assert words in describe_statement(job, found, ["no", "yes"])


def test_many_classes_are_not_all_named():
    classes = ["b,x", "a,y", "c=d", "0.5", "e"]
    found = selbo.estimator.Statement([0.3, 0.25, 0.25, 0.02, 0.18], 0.0, [])
    assert describe_statement(JOB, found, classes).endswith(
        "; the most frequent class, b,x, makes up 30 % and the rarest, class 0.5, 2 % (as in the training rows)."
    )
