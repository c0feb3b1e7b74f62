"""What a run on a table says of its belief and of its temperature: true sentences, and alarms at their level."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import selbo
from selbo.evaluation.check_belief import SIGNIFICANCE, check_accuracy, check_likelihood, shortfall
from selbo.evaluation.predict import Prediction, at_temperature
from selbo.report import outcomes
from selbo.tabular.evaluation import compute_evaluation, fitted_temperature
from selbo.tabular.job import Job
from selbo.tabular.metrics import RowCounts, TrainingMetrics
from selbo.tabular.preprocessing import Preprocessing
from selbo.tabular.task import Task
from selbo.tabular.training_results import Predicted, belief_checks, in_words, validation_metrics

PREPROCESSING = Preprocessing(target="ill", classes=("no", "yes"), numeric_target=False, inputs=())


def prediction_of(probs: np.ndarray) -> Prediction:
    """Of class 1."""
    table = torch.tensor(np.stack([1 - probs, probs], -1), dtype=torch.float64)
    zeros = torch.zeros(len(table), dtype=torch.float64)
    return Prediction(table, table.log(), zeros, zeros, zeros)


def task_of(val, test, *, accuracy=0.9, fractions=(0.5, 0.5), train=(50, 50), **others) -> Task:
    labels = {"val": torch.as_tensor(val), "test": torch.as_tensor(test)}
    belief = selbo.expect(accuracy, list(fractions))
    return Task(
        name="patients.csv",
        preprocessing=PREPROCESSING,
        train=(np.zeros((sum(train), 1)), torch.repeat_interleave(torch.arange(2), torch.tensor(train))),
        val=(np.zeros((len(val), 1)), labels["val"]),
        test=(np.zeros((len(test), 1)), labels["test"]),
        summaries=[selbo.SummaryLikelihood(selbo.ScoreBins.equal(10), belief, concentration=100.0)],
        words="as stated",
        notes=(),
        **others,
    )


JOB = Job(Path("patients.csv"), "ill", selbo.SummaryClassifier(accuracy=0.9, random_state=0))


def answers(generator, count, reached):
    """Labels, and predictions of them that are right so often."""
    labels = generator.integers(0, 2, count)
    wrong = generator.random(count) >= reached
    return labels, prediction_of(np.where(labels ^ wrong, 0.9, 0.1))


def checked(generator, *, stated, reached, sizes=(40, 80), **others):
    (val, seen_val), (test, seen_test) = (answers(generator, size, reached) for size in sizes)
    task = task_of(val, test, accuracy=stated, **others)
    return belief_checks(task, JOB, Predicted(seen_val, seen_test))


# --- a belief that is too bold ---


def test_a_bold_statement_is_noted(seed):
    generator = np.random.default_rng(seed)
    found = checked(generator, stated=0.98, reached=0.8)
    assert found.contradictions == ()
    assert "of 120 held-out rows are classified correctly (95 % interval " in found.shortfall
    assert (
        "clearly below the stated 98 %: either the statement is too bold or the network falls short of it; in both "
        in (found.shortfall)
    )
    assert json.loads(json.dumps(found)) == [[], found.shortfall]


def test_the_note_names_what_was_reached():
    labels = torch.arange(100) % 2
    verdict = check_accuracy(0.98, torch.arange(100) < 81)
    low, high = stats.binomtest(81, 100).proportion_ci(0.95, "exact")
    assert shortfall(verdict, labels) == (
        f"81.0 % of 100 held-out rows are classified correctly (95 % interval {100 * low:.1f} to {100 * high:.1f} %), "
        "clearly below the stated 98 %: either the statement is too bold or the network falls short of it; in both "
        "cases its probabilities are overconfident, so state about 81 % instead"
    )
    assert "clearly below the stated 93 to 97 %:" in shortfall(
        check_accuracy((0.93, 0.97), torch.arange(100) < 81), labels
    )


@pytest.mark.parametrize("right", [0, 30, 80])
def test_a_network_that_only_guesses_is_not_to_be_stated(right):
    """To state the 5 % of a swapped network would be no help."""
    told = shortfall(check_accuracy(0.98, torch.arange(100) < right), torch.tensor([0] * 80 + [1] * 20))
    assert "no more than the most frequent class alone would give (80.0 %): it is no better than guessing" in told
    assert "instead" not in told


def test_what_is_no_shortfall():
    labels = torch.arange(100) % 2
    for stated, right in ((0.8, 81), (0.85, 81), (0.5, 100)):  # right, nearly right, too modest
        assert shortfall(check_accuracy(stated, torch.arange(100) < right), labels) is None
    harm = check_likelihood(torch.tensor([[0.1, 0.9]] * 100).log(), torch.tensor([[0.9, 0.1]] * 100).log(), 0 * labels)
    assert harm.contradicted
    assert shortfall(harm, labels) is None


@pytest.mark.slow
def test_a_true_statement_is_seldom_noted(seed):
    """Both checks together, at most at their level."""
    generator, stated = np.random.default_rng(seed), [0.75, 0.9, 0.97] * 60
    found = [checked(generator, stated=each, reached=each) for each in stated]
    noted = sum(bool(each.shortfall or each.contradictions) for each in found)
    assert noted <= stats.binom.ppf(1 - 1e-7, len(stated), SIGNIFICANCE)


def test_other_contradictions_stay_what_they_were(seed):
    generator = np.random.default_rng(seed)
    found = checked(generator, stated=0.6, reached=1.0)
    assert found.shortfall is None
    (told,) = found.contradictions
    assert told.startswith("accuracy: contradicted by 120 labels (claimed .600, found 1.000")
    elsewhere = checked(generator, stated=0.98, reached=0.7, unlabelled=np.zeros((3, 1)))
    assert elsewhere == ((), None)  # these rows are not what was spoken of


# --- temperature, in words ---


def metrics_of(task, val, test):
    temperature = fitted_temperature(val, task.val[1])
    return TrainingMetrics(
        **vars(compute_evaluation(test, task.test[1], temperature, PREPROCESSING.classes)),
        rows=RowCounts(train=len(task.train[1]), val=len(task.val[1]), test=len(task.test[1])),
        features=1,
        method="summary_elbo",
        belief=task.words,
        warnings=(),
        **belief_checks(task, JOB, Predicted(val, test))._asdict(),
        validation=validation_metrics(task, val),
    )


def told(labels, probs, *, train=(50, 50)):
    task = task_of(labels, labels, fractions=(2 / 3, 1 / 3), train=train)
    found = metrics_of(task, prediction_of(probs), prediction_of(probs))
    assert found.calibrated["nll"] == pytest.approx(
        outcomes.compute_metrics(at_temperature(prediction_of(probs), found.temperature), task.test[1])["nll"]
    )
    return found, in_words(found).split(" Temperature scaling on")[0]


LABELS = np.arange(60) % 3 // 2  # one in three is of class 1
CONSTANT = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))  # NLL of saying one in three each time


def test_worse_than_a_constant_answer_comes_first():
    """Swapped classes: no temperature helps, and nobody is told that all rows are classified correctly."""
    found, words = told(LABELS, np.where(LABELS == 1, 0.1, 0.9), train=(80, 40))
    assert found.validation.constant_nll == pytest.approx(CONSTANT)
    assert found.validation.nll == pytest.approx(-math.log(0.1))
    assert found.validation.best_temperature == 100
    assert words.endswith(
        "On the 60 validation rows the predictions are worse than a constant prediction: their NLL is 2.303, that of "
        "the class frequencies of the training rows 0.637. No temperature corrects that: the best one is its upper "
        "bound, 100."
    )
    assert 1 < found.temperature < 100


def test_overconfident_predictions_can_be_mended():
    """Worse than a constant answer as they are, but right two times in three."""
    answer = np.where(np.arange(60) % 4 == 3, 1 - LABELS, LABELS)
    found, words = told(LABELS, np.where(answer == 1, 0.9999, 0.0001), train=(80, 40))
    assert "worse than a constant prediction: their NLL is 2.303" in words
    assert "No temperature" not in words
    assert found.calibrated["nll"] < found.metrics["nll"]


def test_rows_that_are_all_classified_correctly_say_so():
    found, words = told(LABELS, np.where(LABELS == 1, 0.8, 0.2))
    assert words.endswith(
        "All 60 validation rows are classified correctly: they do not show how much confidence is too much, and only "
        "its prior bounds the temperature from below."
    )
    assert 0.3 < found.temperature < 1


def test_nothing_odd_is_not_spoken_of():
    probs = np.where(LABELS == 1, 0.8, 0.2)
    probs[:6] = 1 - probs[:6]
    found, _ = told(LABELS, probs)
    assert in_words(found).startswith("Temperature scaling on the 60 validation rows (T = ")


def test_warnings_come_before_all_that():
    found, _ = told(LABELS, np.where(np.arange(60) % 3 == 0, 1 - LABELS, LABELS) * 0.6 + 0.2)
    said = {"contradictions": ("class fractions: contradicted",), "shortfall": "too few"}
    words = in_words(replace(found, **said))
    assert words.startswith(
        "Warning: the held-out rows contradict the stated belief, if it was about such rows: class fractions: "
        "contradicted. Warning: too few. "
    )
