"""Monitoring of a stream: false alarms over all time by simulation, evidence by sequential prediction."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from selbo import BeliefMonitor, ConfidenceBins, Masses, SummaryLikelihood
from selbo.evaluation.monitor import log_evidence


def test_the_evidence_is_the_ratio_of_sequential_predictions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    masses, alpha = np.array([0.5, 0.3, 0.2]), 30.0
    counts, log_ratio = np.zeros(3), 0.0
    for region in generator.integers(0, 3, size=50):
        vague = (counts[region] + 0.5) / (counts.sum() + 1.5)
        claimed = (counts[region] + alpha * masses[region]) / (counts.sum() + alpha)
        log_ratio += math.log(vague / claimed)
        counts[region] += 1
    found = log_evidence(torch.from_numpy(counts), torch.from_numpy(masses), alpha)
    assert found.item() == pytest.approx(log_ratio)


def stream(seed: int, rows: int, *, right: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (rows,), generator=generator)
    answers = torch.where(torch.rand(rows, generator=generator) < right, labels, 1 - labels)
    return torch.where(torch.nn.functional.one_hot(answers, 2) > 0, 0.9, 0.1).log(), labels


def test_a_false_accuracy_is_found_and_a_true_one_is_not(seed: int) -> None:
    for right, found in ((0.75, True), (0.95, False)):
        monitor = BeliefMonitor(accuracy=0.95, concentration=1000, delta=1e-4)
        for batch in range(40):
            state = monitor.update(*stream(1000 * seed + batch, 10, right=right))
        assert state.alarm == found
        assert state.num_labels == state.num_predictions == 400
        assert len(monitor.history) == 40
        assert state.largest == max(each.total for each in monitor.history)


def test_predictions_alone_can_contradict_a_summary() -> None:
    summary = SummaryLikelihood(ConfidenceBins((0.8,), num_classes=2), Masses((0.5, 0.5)), concentration=200)
    monitor = BeliefMonitor(summary)
    sure, unsure = torch.tensor([[0.95, 0.05]]).log(), torch.tensor([[0.6, 0.4]]).log()
    state = monitor.update(torch.cat([sure, unsure]).repeat(100, 1))
    assert state.evidence["predictions"] < 1
    assert not state.alarm
    for _ in range(3):
        state = monitor.update(sure.repeat(200, 1))
    assert state.alarm
    assert state.num_labels == 0
    calm = monitor.update(unsure.repeat(3000, 1))
    assert calm.alarm  # an alarm stays


def test_several_claims_are_averaged_and_labels_may_come_later() -> None:
    monitor = BeliefMonitor(accuracy=0.9, class_fractions=[0.5, 0.5])
    log_probs, labels = stream(0, 60, right=0.9)
    assert monitor.update(log_probs).evidence == pytest.approx({"accuracy": 1, "class fractions": 1})
    state = monitor.update(log_probs, labels)
    assert (state.num_predictions, state.num_labels) == (120, 60)
    assert state.total == pytest.approx(sum(state.evidence.values()) / 2)
    wrong = int((log_probs.argmax(-1) != labels).sum())
    counts, masses = (torch.tensor(each, dtype=torch.float64) for each in ([60 - wrong, wrong], [0.9, 0.1]))
    by_hand = log_evidence(counts, masses, 1000.0)
    assert math.log(state.evidence["accuracy"]) == pytest.approx(by_hand.item())


def test_a_monitor_resumes() -> None:
    log_probs, labels = stream(1, 50, right=0.7)
    one, two = (BeliefMonitor(accuracy=0.9, class_fractions=[0.5, 0.5]) for _ in range(2))
    one.update(log_probs, labels)
    two.restore(json.loads(json.dumps(one.to_dict())))
    assert two.update(log_probs, labels) == one.update(log_probs, labels)
    with pytest.raises(ValueError, match="of a monitor of the claims"):
        BeliefMonitor(accuracy=0.9).restore(one.to_dict())


def test_what_cannot_be_monitored_is_refused() -> None:
    with pytest.raises(ValueError, match="there is nothing to monitor"):
        BeliefMonitor()
    with pytest.raises(ValueError, match="`accuracy` must lie"):
        BeliefMonitor(accuracy=1.2)
    with pytest.raises(ValueError, match="`concentration` must be a number greater than 0"):
        BeliefMonitor(accuracy=0.9, concentration=0)
    with pytest.raises(ValueError, match="one column for each of the 3"):
        BeliefMonitor(class_fractions=[0.2, 0.3, 0.5]).update(*stream(2, 5, right=0.9))


def test_labels_may_be_missing_and_come_alone() -> None:
    log_probs, labels = stream(3, 40, right=0.8)
    some = torch.where(torch.arange(40) % 2 == 0, labels, -1)
    one, two = (BeliefMonitor(accuracy=0.9, class_fractions=[0.5, 0.5]) for _ in range(2))
    one.update(log_probs, some)
    state = one.update(log_probs, torch.where(some == -1, labels, -1), labels_only=True)
    assert state == two.update(log_probs, labels)
    right = float((log_probs.argmax(-1) == labels).sum())
    assert one.counts["accuracy"] == (right, 40 - right)


# --- restarts ---


def evidence_by_hand(batches: list[torch.Tensor], masses: torch.Tensor, concentration: float) -> tuple[float, int]:
    """The largest weighted evidence over all batches that it may begin with, and that batch."""
    found = []
    for start in range(1, len(batches) + 1):
        counts = torch.stack(batches[start - 1 :]).sum(0)
        found.append((log_evidence(counts, masses, concentration).exp().item() / (start * (start + 1)), start))
    return max(found)


def test_with_restarts_the_evidence_is_the_largest_over_all_starts(seed: int) -> None:
    monitor = BeliefMonitor(accuracy=0.9, concentration=100, restarts=True)
    masses, batches = torch.tensor([0.9, 0.1], dtype=torch.float64), list[torch.Tensor]()
    for batch in range(16):  # none is dropped yet
        log_probs, labels = stream(1000 * seed + batch, 15, right=0.9 if batch < 9 else 0.5)
        wrong = int((log_probs.argmax(-1) != labels).sum())
        batches.append(torch.tensor([15.0 - wrong, wrong], dtype=torch.float64))
        state = monitor.update(log_probs, labels)
        total, start = evidence_by_hand(batches, masses, 100.0)
        assert state.total == pytest.approx(total)
        assert state.start == start
    assert 10 <= state.start < 16  # answers change in batch 10


def test_a_change_after_a_good_stretch_is_found_earlier_with_restarts(seed: int) -> None:
    delays: dict[bool, list[int]] = {False: [], True: []}
    for repeat in range(3):
        for restarts, found in delays.items():
            monitor = BeliefMonitor(accuracy=0.92, concentration=300, restarts=restarts)
            for batch in range(200):
                right = 0.92 if batch < 50 else 0.7
                if monitor.update(*stream(1000 * (3 * seed + repeat) + batch, 20, right=right)).alarm:
                    break
            found.append(batch - 49)
    assert sum(delays[True]) < 0.7 * sum(delays[False])
    assert min(delays[True]) > 0


def test_starts_grow_with_the_logarithm_of_the_number_of_batches() -> None:
    monitor = BeliefMonitor(accuracy=0.9, restarts=True)
    rows = stream(0, 1, right=0.9)
    for _ in range(500):
        monitor.update(*rows)
    starts = monitor.to_dict()["starts"]
    assert len(starts) < 120
    assert starts[0] == 1
    ages = [500 - each for each in reversed(starts)]
    assert all(after - before <= max(1, after / 8) for before, after in pairwise(ages))


def test_a_monitor_with_restarts_resumes() -> None:
    one, two = (BeliefMonitor(accuracy=0.9, restarts=True) for _ in range(2))
    for batch in range(40):
        one.update(*stream(batch, 5, right=0.9))
    two.restore(json.loads(json.dumps(one.to_dict())))
    assert two.update(*stream(99, 50, right=0.5)) == one.update(*stream(99, 50, right=0.5))
    with pytest.raises(ValueError, match="with restarts=False"):
        BeliefMonitor(accuracy=0.9).restore(one.to_dict())
