"""The state of a monitor: rows are counted once, labels when they come, and damage is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from selbo import BeliefMonitor
from selbo.evaluation.belief_calibration import UNLABELLED
from selbo.tabular.saved_monitor import (
    MonitoredBelief,
    SavedMonitor,
    load_monitor,
    read_belief,
    reference_counts,
    save_monitor,
)

CLASSES = ("ham", "spam")
BELIEF = MonitoredBelief(CLASSES, accuracy=0.9, class_fractions=(0.7, 0.3), concentration=50.0)


def stream(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(count, 2))
    return logits - np.log(np.exp(logits).sum(1, keepdims=True)), generator.integers(0, 2, count)


def batches(count: int, size: int = 7) -> dict[str, np.ndarray]:
    return {str(start): np.arange(start, min(start + size, count)) for start in range(0, count, size)}


def test_everything_is_counted_as_the_monitor_counts() -> None:
    log_probs, labels = stream(50)
    labels[::3] = UNLABELLED
    after, rows, new = SavedMonitor(BELIEF).add("a.csv", log_probs, labels, batches(50))
    there = labels != UNLABELLED
    monitor = BeliefMonitor(accuracy=0.9, class_fractions=(0.7, 0.3), concentration=50.0)
    monitor.update(log_probs[there], labels[there])
    assert (rows, new) == (50, there.sum())
    assert after.state().evidence == pytest.approx(monitor.state().evidence)
    assert after.state().num_predictions == 50
    assert len(after.batches) == 8
    assert sum(each.num_checked for each in after.batches) == there.sum()
    right = (log_probs.argmax(1) == labels)[there].sum()
    assert sum(each.num_correct for each in after.batches) == right
    assert after.batches[-1].total == pytest.approx(after.state().total)


def test_a_file_that_grows_is_counted_once() -> None:
    log_probs, labels = stream(50)
    part, *_ = SavedMonitor(BELIEF).add("a.csv", log_probs[:30], labels[:30], batches(30))
    grown, rows, new = part.add("a.csv", log_probs, labels, batches(50))
    whole, *_ = SavedMonitor(BELIEF).add("a.csv", log_probs, labels, batches(50))
    assert (rows, new) == (20, 20)
    assert grown.state().evidence == pytest.approx(whole.state().evidence)
    for name in ("a.csv", "copy.csv"):  # the same rows again, under another name too
        again, rows, new = grown.add(name, log_probs, labels, batches(50))
        assert (rows, new) == (0, 0)
        assert again.state() == grown.state()
    other, rows, _ = grown.add("a.csv", *stream(20, seed=1), batches(20))  # the name is used for new rows
    assert rows == 20
    assert other.state().num_predictions == 70


def test_labels_may_come_later_and_count_once() -> None:
    log_probs, labels = stream(40)
    none, some = np.full(40, UNLABELLED), np.where(np.arange(40) % 2, labels, UNLABELLED)
    saved, _, new = SavedMonitor(BELIEF).add("a.csv", log_probs, none, batches(40))
    assert new == 0
    assert saved.state().total == pytest.approx(1)
    for known, expected in ((some, 20), (labels, 20), (labels, 0), (none, 0), (labels, 0)):
        saved, rows, new = saved.add("a.csv", log_probs, known, batches(40))
        assert (rows, new) == (0, expected)
    at_once, *_ = SavedMonitor(BELIEF).add("a.csv", log_probs, labels, batches(40))
    assert saved.state().evidence == pytest.approx(at_once.state().evidence)
    assert saved.state().num_predictions == 40
    assert saved.batches[-1].name == "late labels, a.csv"


def test_a_reference_is_a_claim_about_predictions() -> None:
    reference, _ = stream(2000, seed=2)
    counts = reference_counts(reference)
    assert sum(counts) == 2000
    score = np.exp(reference[:, 1])
    assert counts == tuple(np.histogram(score, np.linspace(0, 1, 11))[0])
    belief = MonitoredBelief(CLASSES, reference=counts)
    alike, unlike = stream(1000, seed=3)[0], np.log(np.tile([0.05, 0.95], (300, 1)))
    none = np.full(1000, UNLABELLED)
    calm, *_ = SavedMonitor(belief).add("a", alike, none, batches(1000, 100))
    assert calm.state().evidence["predictions"] < 1
    alarmed, *_ = calm.add("b", unlike, none[:300], batches(300))
    assert alarmed.state().alarm


def test_the_state_survives_its_file(tmp_path: Path) -> None:
    log_probs, labels = stream(45)
    labels[:9] = UNLABELLED
    belief = MonitoredBelief(CLASSES, 0.9, (0.7, 0.3), float("inf"), reference_counts(stream(100, 5)[0]), 0.05)
    saved, *_ = SavedMonitor(belief).add("a ü.csv", log_probs, labels, batches(45))
    save_monitor(saved, tmp_path / "state.json")
    again = load_monitor(tmp_path / "state.json")
    assert again.belief == belief
    assert again.state() == saved.state()
    assert again.batches == saved.batches
    assert again.add("a ü.csv", log_probs, labels, batches(45))[1:] == (0, 0)
    content = json.loads((tmp_path / "state.json").read_text())
    for damage in ({"seen": {}}, {"files": {"a": {"rows": 3, "sha256": "", "labelled": "eA=="}}}, {"belief": {}}):
        (tmp_path / "state.json").write_text(json.dumps({**content, **damage}))
        with pytest.raises(ValueError, match="is damaged: restore it from a copy"):
            load_monitor(tmp_path / "state.json")
    (tmp_path / "state.json").write_text(json.dumps({**content, "format": "selbo-monitor-9"}))
    with pytest.raises(ValueError, match="written by another version"):
        load_monitor(tmp_path / "state.json")


def test_beliefs_are_read_by_name_or_in_order(tmp_path: Path) -> None:
    path = tmp_path / "belief.json"
    path.write_text('{"accuracy": 0.9, "class_fractions": {"spam": 0.3, "ham": 0.7}, "concentration": 80}')
    found = read_belief(path, CLASSES)
    assert (found.accuracy, found.class_fractions, found.concentration) == (0.9, (0.7, 0.3), 80)
    path.write_text('{"class_fractions": [0.6, 0.4]}')
    assert read_belief(path, CLASSES).class_fractions == (0.6, 0.4)
    path.write_text('{"class_fractions": {"spam": 0.25}}')  # the other class has the rest
    assert read_belief(path, CLASSES).class_fractions == (0.75, 0.25)
    for text, message in (
        ("[]", "must hold an accuracy or class_fractions"),
        ("{", "cannot be read"),
        ('{"concentration": 9}', "must hold an accuracy or class_fractions"),
        ('{"accuracy": 90}', "`accuracy` must lie strictly between 0 and 1"),
        ('{"class_fractions": {"eggs": 0.7}}', "must name the classes 'ham', 'spam'"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_belief(path, CLASSES)
    with pytest.raises(ValueError, match="is not there"):
        read_belief(tmp_path / "none.json", CLASSES)
