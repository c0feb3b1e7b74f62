"""Corrections of frozen classifiers."""

import pytest
import torch
from torch import Tensor

from selbo import Prediction
from selbo.evaluation import calibrate
from selbo.metrics import entropy
from selbo_lab.data.dataset import LabelledData
from selbo_lab.run.frozen import CorrectedLogProbs, frozen_correction
from selbo_lab.studies.run_spec import Recipe


def prediction(log_probs: Tensor) -> Prediction:
    total = entropy(log_probs=log_probs)
    return Prediction(log_probs.exp(), log_probs, total, total, torch.zeros_like(total))


def cases(count: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Labels with a share of class 1, and log-probabilities for equal classes, four times too sure."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.rand(count, generator=generator) < share).long()
    scores = 2 * (2 * labels - 1 + torch.randn(count, generator=generator, dtype=torch.float64))
    return torch.stack([-2 * scores, 2 * scores], -1).log_softmax(-1), labels


def corrected(
    share: float = 0.5, *, false_labels: bool = False, **recipe: object
) -> tuple[CorrectedLogProbs, Tensor, Tensor]:
    rows, labels = cases(4000, share, 1)
    labels = 1 - labels if false_labels else labels
    val, val_labels = cases(4000, 0.5, 2)
    train = LabelledData("train", torch.zeros(100, 1), torch.arange(100) % 2, ("a", "b"), "random", "none")
    found = frozen_correction(
        Recipe("logistic", **recipe),  # type: ignore[arg-type]
        fractions=(1 - share, share),
        train=train,
        val=prediction(val),
        val_labels=val_labels,
        pool=prediction(rows),
        pool_labels=labels,
        seed=0,
    )
    return found, rows, labels


def nll(log_probs: Tensor, labels: Tensor) -> float:
    return -log_probs[torch.arange(len(labels)), labels].mean().item()


def test_a_stated_accuracy_is_the_mean_confidence_and_as_good_as_labels() -> None:
    stated, rows, labels = corrected(correction="belief", states_accuracy=True)
    right = (rows.argmax(-1) == labels).double().mean().item()
    assert stated(rows).exp().amax(-1).mean().item() == pytest.approx(right, abs=2e-3)
    off, _, _ = corrected(correction="belief", states_accuracy=True, accuracy_off=-0.05)
    assert off(rows).exp().amax(-1).mean().item() == pytest.approx(right - 0.05, abs=2e-3)
    best = calibrate.scale(rows, calibrate.temperature(rows, labels))
    assert nll(stated(rows), labels) < nll(best, labels) + 0.002 < nll(rows, labels) - 0.05


@pytest.mark.parametrize("how", ["belief", "rlls", "bcts", "isotonic"])
def test_label_shift_is_corrected(how: str) -> None:
    stated = {"states_accuracy": True, "states_fractions": True} if how == "belief" else {}
    found, rows, labels = corrected(0.1, correction=how, target_labels=1000, **stated)
    after = found(rows)
    assert after.exp().sum(-1).sub(1).abs().max() < 1e-6
    assert after.exp()[:, 1].mean().item() == pytest.approx(0.1, abs=0.03)
    assert nll(after, labels) < nll(rows, labels) - 0.3


def test_equal_class_fractions_are_batch_calibration() -> None:
    found, rows, _ = corrected(0.1, correction="batch")
    assert found(rows).exp().mean(0).tolist() == pytest.approx([0.5, 0.5], abs=1e-3)


def test_as_many_labels_are_used_as_the_recipe_says() -> None:
    some, rows, _ = corrected(correction="temperature", target_labels=20)
    every, _, labels = corrected(correction="temperature", target_labels=4000)
    assert torch.allclose(every(rows), calibrate.scale(rows, calibrate.temperature(rows, labels)))
    assert not torch.allclose(some(rows), every(rows))


def test_a_temperature_of_the_source_domain_reads_nothing_of_the_target_domain() -> None:
    found, rows, _ = corrected(0.1, correction="source-temperature")
    val, val_labels = cases(4000, 0.5, 2)
    assert torch.allclose(found(rows), calibrate.scale(rows, calibrate.temperature(val, val_labels)))
    other, _, _ = corrected(0.9, correction="source-temperature")
    assert torch.equal(other(rows), found(rows))


def test_statements_that_contradict_each_other_change_nothing() -> None:
    found, rows, _ = corrected(0.1, correction="belief", states_accuracy=True, states_fractions=True, accuracy_off=0.5)
    assert torch.equal(found(rows), rows)


def test_lascal_is_a_temperature_and_reads_no_label_of_the_target_domain() -> None:
    found, rows, _ = corrected(0.3, correction="lascal")
    ratio = (found(rows)[:, 1] - found(rows)[:, 0]) / (rows[:, 1] - rows[:, 0])
    assert ratio.std() < 1e-6 < abs(ratio.mean() - 1)
    blind, _, _ = corrected(0.3, correction="lascal", false_labels=True)
    assert torch.equal(blind(rows), found(rows))
