"""A monitor in a file: what is claimed, what was counted, and which rows of which files were counted.

A file of predictions may grow, and labels may come later than predictions: rows that were counted before are known by
their predictions, and are not counted again. The state is a value; it is written only after everything went well.
"""

import base64
import hashlib
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selbo import _checks
from selbo.evaluation.belief_calibration import UNLABELLED
from selbo.evaluation.monitor import BeliefMonitor, MonitorState
from selbo.presets import partition_for
from selbo.summary.beliefs import Masses
from selbo.summary.estimation import JEFFREYS, EstimatedBelief
from selbo.summary.likelihood import DEFAULT_CONCENTRATION, SummaryLikelihood
from selbo.tabular.json_files import OtherVersionError, read_json, write_json
from selbo.tabular.predictions import in_order

MONITOR_FORMAT: Final = "selbo-monitor-1"

MOST_FILES: Final = 1000
MOST_BATCHES: Final = 5000
"""Number of files and of batches that are remembered."""


@dataclass(frozen=True)
class MonitoredBelief:
    """What is claimed about a stream of predictions.

    Attributes:
        classes: Names of the classes.
        accuracy: Share of right answers; None if nothing is claimed about it.
        class_fractions: Fraction of each class; None if nothing is claimed about them.
        concentration: Number of observations behind these two.
        reference: Number of reference predictions in each region of `selbo.presets.partition_for`, which the stream
            should look like; None if there is no reference.
        delta: Probability of a false alarm over all time.
        restarts: Whether evidence may also begin with a later batch.
    """

    classes: tuple[str, ...]
    accuracy: float | None = None
    class_fractions: tuple[float, ...] | None = None
    concentration: float = DEFAULT_CONCENTRATION
    reference: tuple[int, ...] | None = None
    delta: float = 0.01
    restarts: bool = False

    def monitor(self) -> BeliefMonitor:
        """A monitor that has seen nothing."""
        summary = None
        if self.reference is not None:
            counts = np.array(self.reference) + JEFFREYS
            partition = partition_for(len(self.classes))
            masses = Masses((counts / counts.sum()).tolist())
            summary = SummaryLikelihood(partition, masses, concentration=float(counts.sum()))
        return BeliefMonitor(
            summary,
            accuracy=self.accuracy,
            class_fractions=self.class_fractions,
            concentration=self.concentration,
            delta=self.delta,
            restarts=self.restarts,
        )

    @property
    def needs_labels(self) -> bool:
        """Whether a claim is checked against labels."""
        return self.accuracy is not None or self.class_fractions is not None


def reference_counts(log_probs: NDArray[np.float64]) -> tuple[int, ...]:
    """Number of predictions in each region, for `MonitoredBelief.reference`."""
    import torch

    partition = partition_for(log_probs.shape[1])
    regions = partition.assign(torch.from_numpy(log_probs))
    return tuple(torch.bincount(regions, minlength=partition.num_regions).tolist())


def read_belief(path: Path, classes: Sequence[str]) -> EstimatedBelief:
    """Read a belief from JSON: accuracy, class_fractions by name or in the order of the classes, concentration.

    That is what `EstimatedBelief.to_dict` returns, or what somebody writes by hand.

    Raises:
        ValueError: If it is not such a file.
    """
    import json

    if not path.is_file():
        raise ValueError(f"`belief` must be a .json file, but {os.fspath(path)!r} is not there")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"`belief` must be a .json file, but {os.fspath(path)!r} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"`belief` must hold an accuracy or class_fractions, but {os.fspath(path)!r} does not")
    fractions = content.get("class_fractions")
    if isinstance(fractions, dict):
        content = {**content, "class_fractions": in_order(fractions, classes)}
    try:
        found = EstimatedBelief.from_dict({"concentration": DEFAULT_CONCENTRATION, **content})
    except (ValueError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)!r} holds no belief: {error}") from None
    if found.accuracy is None and found.class_fractions is None:
        raise ValueError(f"`belief` must hold an accuracy or class_fractions, but {os.fspath(path)!r} does not")
    return found


class MonitoredBatch(NamedTuple):
    """What is remembered of a batch.

    Attributes:
        name: Its name, such as a day.
        num_predictions: Predictions so far.
        num_labels: Labels so far.
        num_correct: Right answers among the labels of this batch.
        num_checked: Labels of this batch.
        evidence: Evidence against each claim after it.
        total: Evidence against all claims together.
    """

    name: str
    num_predictions: int
    num_labels: int
    num_correct: int
    num_checked: int
    evidence: Mapping[str, float]
    total: float


@dataclass(frozen=True)
class SavedMonitor:
    """The state of a monitor between two files.

    Attributes:
        belief: What is claimed.
        seen: Counts so far, of `BeliefMonitor.to_dict`; None at the beginning.
        files: Rows that were counted, by name of the file.
        batches: What is remembered of each batch.
    """

    belief: MonitoredBelief
    seen: Mapping[str, Any] | None = None
    files: Mapping[str, "CountedRows"] = field(default_factory=dict)
    batches: tuple[MonitoredBatch, ...] = ()

    def state(self) -> MonitorState:
        """The evidence so far."""
        return self.restored().state()

    def batch_that_begins(self, state: MonitorState) -> str | None:
        """Name of the batch that the evidence begins with; None if that is the first, or forgotten."""
        since = 0 if self.seen is None or state.start == 1 else self.seen["num_batches"] - state.start + 1
        return self.batches[-since].name if 0 < since <= len(self.batches) else None

    def restored(self) -> BeliefMonitor:
        """The monitor, with everything counted so far."""
        monitor = self.belief.monitor()
        if self.seen is not None:
            monitor.restore(self.seen)
        return monitor

    def add(
        self,
        name: str,
        log_probs: NDArray[np.float64],
        labels: NDArray[np.int64],
        batches: Mapping[str, NDArray[np.int64]],
    ) -> tuple["SavedMonitor", int, int]:
        """Count what is new in a file.

        Args:
            name: Name of the file. Its first rows may have been counted before.
            log_probs: Log-probabilities, shape (n, K).
            labels: Classes, shape (n,), -1 where there is none.
            batches: Rows of each batch, by its name.

        Returns:
            The state afterwards, the number of new predictions, and the number of new labels.
        """
        before = self._counted_before(name, log_probs)
        late = np.flatnonzero(~before.labelled & (labels[: before.rows] != UNLABELLED))
        monitor, remembered = self.restored(), list(self.batches)

        def feed(title: str, rows: NDArray[np.int64], *, labels_only: bool) -> None:
            state = monitor.update(log_probs[rows], labels[rows], labels_only=labels_only)
            checked = rows[labels[rows] != UNLABELLED]
            correct = int((log_probs[checked].argmax(1) == labels[checked]).sum())
            seen = (state.num_predictions, state.num_labels, correct, len(checked))
            remembered.append(MonitoredBatch(title, *seen, dict(state.evidence), state.total))

        if len(late):
            feed(f"late labels, {name}", late, labels_only=True)
        for title, rows in batches.items():
            if len(new := rows[rows >= before.rows]):
                feed(title, new, labels_only=False)
        rest = {key: each for key, each in self.files.items() if key != name}
        counted = CountedRows(len(log_probs), digest_rows(log_probs), labels != UNLABELLED)
        counted.labelled[: before.rows] |= before.labelled
        files = dict(list({**rest, name: counted}.items())[-MOST_FILES:])
        after = replace(self, seen=monitor.to_dict(), files=files, batches=tuple(remembered[-MOST_BATCHES:]))
        new_labels = monitor.to_dict()["num_labels"] - (0 if self.seen is None else int(self.seen["num_labels"]))
        return after, len(log_probs) - before.rows, new_labels

    def _counted_before(self, name: str, log_probs: NDArray[np.float64]) -> "CountedRows":
        """The rows of a file that were counted: those of its name, or of another file with the same content."""
        known = self.files.get(name)
        if known is not None and known.rows <= len(log_probs) and known.digest == digest_rows(log_probs[: known.rows]):
            return known
        digest = digest_rows(log_probs)
        same = (each for each in self.files.values() if each.digest == digest and each.rows == len(log_probs))
        return next(same, CountedRows(0, "", np.zeros(0, dtype=bool)))


class CountedRows(NamedTuple):
    """Rows of a file that were counted: how many, a digest of their predictions, and which had a label."""

    rows: int
    digest: str
    labelled: NDArray[np.bool_]


def digest_rows(log_probs: NDArray[np.float64]) -> str:
    """SHA-256 of predictions, to nine digits."""
    return hashlib.sha256(np.round(np.exp(log_probs), 9).tobytes()).hexdigest()


def save_monitor(saved: SavedMonitor, path: Path) -> None:
    """Write the state as JSON, atomically."""
    belief = saved.belief
    content = {
        "format": MONITOR_FORMAT,
        "belief": {
            "classes": list(belief.classes),
            "accuracy": belief.accuracy,
            "class_fractions": None if belief.class_fractions is None else list(belief.class_fractions),
            "concentration": None if math.isinf(belief.concentration) else belief.concentration,
            "reference": None if belief.reference is None else list(belief.reference),
            "delta": belief.delta,
            "restarts": belief.restarts,
        },
        "seen": saved.seen,
        "files": {
            name: {"rows": each.rows, "sha256": each.digest, "labelled": _packed(each.labelled)}
            for name, each in saved.files.items()
        },
        "batches": [each._asdict() for each in saved.batches],
    }
    write_json(path, content)


def load_monitor(path: Path) -> SavedMonitor:
    """Read a state that `save_monitor` wrote.

    Raises:
        ValueError: If it is not such a file, or damaged.
    """
    try:
        content = read_json(path, kind=MONITOR_FORMAT)
    except OtherVersionError:
        raise ValueError(
            f"{os.fspath(path)!r} was written by another version of selbo: use another state file"
        ) from None
    try:
        saved = _from_json(content)
        saved.restored()
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError, zlib.error) as error:
        raise ValueError(
            f"{os.fspath(path)!r} is damaged: restore it from a copy, or use another state file"
        ) from error
    return saved


def _from_json(content: Mapping[str, Any]) -> SavedMonitor:
    stated = content["belief"]
    fractions, reference, concentration = stated["class_fractions"], stated["reference"], stated["concentration"]
    belief = MonitoredBelief(
        classes=tuple(str(name) for name in stated["classes"]),
        accuracy=stated["accuracy"],
        class_fractions=None if fractions is None else _checks.simplex("class_fractions", fractions),
        concentration=math.inf if concentration is None else _checks.positive("concentration", concentration),
        reference=None if reference is None else tuple(int(each) for each in reference),
        delta=stated["delta"],
        restarts=bool(stated.get("restarts", False)),  # older files have none
    )
    files = {
        str(name): CountedRows(int(each["rows"]), str(each["sha256"]), _unpacked(each["labelled"], int(each["rows"])))
        for name, each in content["files"].items()
    }
    return SavedMonitor(belief, content["seen"], files, tuple(MonitoredBatch(**each) for each in content["batches"]))


def _packed(flags: NDArray[np.bool_]) -> str:
    return base64.b64encode(zlib.compress(np.packbits(flags).tobytes(), 9)).decode("ascii")


def _unpacked(text: str, count: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    if len(packed) != -(-count // 8):
        raise ValueError("the flags do not fit the rows")
    return np.unpackbits(packed, count=count).astype(bool)
