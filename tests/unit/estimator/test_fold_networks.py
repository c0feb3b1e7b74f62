"""Networks of folds: their derivatives, their optimiser, and which rows each of them sees."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from selbo.estimator import fold_networks
from selbo.estimator.fold_networks import NETWORK_DECAY, Networks, StepByStep, fit_networks


def random_networks(folds: int = 3, features: int = 4, classes: int = 3) -> tuple[Networks, torch.Generator]:
    generator = torch.Generator().manual_seed(0)
    module = Networks(folds, features, classes, generator)
    with torch.no_grad():
        for each in module.parameters():
            each += 0.3 * torch.randn(each.shape, generator=generator)
    return module, generator


def batch(generator: torch.Generator, folds: int = 3, rows: int = 20) -> tuple[torch.Tensor, ...]:
    inputs = torch.randn(folds, rows, 4, generator=generator)
    labels = torch.randint(0, 3, (folds, rows), generator=generator)
    return inputs, labels, torch.rand(folds, rows, generator=generator)


def with_ones(inputs: torch.Tensor) -> torch.Tensor:
    return torch.cat([inputs, torch.ones(*inputs.shape[:-1], 1)], -1)


def loss_of(module: Networks, inputs: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    losses = F.cross_entropy(module.logits(inputs).flatten(0, 1), labels.flatten(), reduction="none")
    return losses @ weights.flatten()


def test_steps_are_those_of_adamw_with_automatic_differentiation() -> None:
    module, generator = random_networks()
    reference, _ = random_networks()
    optimizer = torch.optim.AdamW(reference.parameters(), 0.02, weight_decay=NETWORK_DECAY)
    training = StepByStep(module)
    for _ in range(5):
        inputs, labels, weights = batch(generator)
        training.differentiate(with_ones(inputs), labels, weights)
        training.step(0.02)
        optimizer.zero_grad()
        loss_of(reference, inputs, labels, weights).backward()
        optimizer.step()
    training.store(training.weights)
    for mine, theirs in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_a_network_learns_from_its_own_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that differ in one fold change every network but the one that does not see it."""
    monkeypatch.setattr(fold_networks, "NETWORK_EPOCHS", (1, 1))
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    labels, ones = torch.arange(60) % 2, torch.ones(60, dtype=torch.float64)
    of_row = torch.arange(60) // 20
    folds = [((of_row != k).nonzero()[:, 0], (of_row == k).nonzero()[:, 0]) for k in range(3)]
    other = torch.where(of_row == 1, 1 - labels, labels)
    first, second = (
        fit_networks(inputs, each, ones, 2, folds, generator=torch.Generator().manual_seed(1))
        for each in (labels, other)
    )
    same = [bool(torch.equal(first.module.first[k], second.module.first[k])) for k in range(3)]
    assert same == [False, True, False]
    torch.testing.assert_close(first.held_out[of_row == 1], second.held_out[of_row == 1])
    by_fold = first.module.logits(inputs.expand(3, -1, -1)).double().log_softmax(-1)
    torch.testing.assert_close(first.held_out, by_fold[of_row, torch.arange(60)], atol=1e-6, rtol=1e-5)


def test_held_out_labels_choose_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out labels are the opposite of the others: every epoch makes them less likely, and the first is kept."""
    monkeypatch.setattr(fold_networks, "NETWORK_EPOCHS", (30, 30))
    inputs = torch.randn(80, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = (inputs[:, 0] > 0).long()
    flipped = torch.where(torch.arange(80) < 60, labels, 1 - labels)
    folds = [(torch.arange(60), torch.arange(60, 80))]

    def fitted(answers: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(80, dtype=torch.float64)
        found = fit_networks(inputs, answers, ones, 2, folds, generator=torch.Generator().manual_seed(1))
        return found.held_out[60:].gather(1, labels[60:, None]).exp()

    assert float(fitted(flipped).mean()) < 0.6
    assert float(fitted(labels).mean()) > 0.9
