r"""Monitoring of a stream of predictions: does it contradict a belief, with false alarms bounded over all time?

A claim says how cases are distributed over a few regions: shells of the simplex, right and wrong answers, classes. If
the masses $p$ of the regions are distributed as $\mathrm{Dir}(\alpha s_0)$, which is what a belief with a concentration
states, then counts $n$ of independent cases have the Dirichlet-multinomial probability $P_{\alpha s_0}(n)$. The
evidence against the claim is the ratio

$$E_t = P_{1/2}(n_t) \,/\, P_{\alpha s_0}(n_t)$$

to the probability under a vague distribution of the masses. As long as the claim holds, $E_t$ is a martingale of mean
1, and by Ville's inequality it ever exceeds $1/\delta$ with probability at most $\delta$, however long and however
often one looks. Evidence against several claims is averaged, which keeps the bound.

**Restarts.** After many cases that agree with the claim, it takes as many others until $n_t$ shows a change. So
evidence may also begin with a later batch $j$: $E_{j,t}$ has the counts from batch $j$ on, and is a martingale, too.
With weights $w_j = 1 / (j (j + 1))$, which sum to 1, $w_j E_{j,t}$ ever exceeds $1/\delta$ with probability at most
$w_j \delta$, and any of them with probability at most $\delta$. The largest of them is the evidence. Some starts are
dropped as they grow old, whatever was seen, so that the work per batch grows with the logarithm of their number.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from selbo import _checks
from selbo.evaluation.belief_calibration import UNLABELLED
from selbo.metrics.inputs import Array, as_class_labels, log_probs_table, on_host
from selbo.summary._dirichlet import log_dirichlet_multinomial
from selbo.summary.likelihood import DEFAULT_CONCENTRATION, SummaryLikelihood

VAGUE: Final = 0.5
"""Parameter of the Dirichlet distribution of the alternative, per region."""

STARTS_PER_OCTAVE: Final = 16
"""Number of batches that evidence may begin with, for ages between n and 2n batches."""


@dataclass(frozen=True)
class MonitorState:
    """What a `BeliefMonitor` has seen.

    Attributes:
        num_predictions: Number of predictions.
        num_labels: Number of them with a label.
        evidence: Evidence against each claim now; 1 means none, 100 that the stream is a hundred times more probable
            if the claim does not hold.
        total: Evidence against all claims together, their mean.
        largest: Largest total so far.
        alarm: Whether the largest total ever exceeded 1 / delta: the belief is contradicted.
        start: Number of the batch that the evidence begins with, 1 for the whole stream; with restarts, a later one
            tells about when the stream changed.
    """

    num_predictions: int
    num_labels: int
    evidence: Mapping[str, float]
    total: float
    largest: float
    alarm: bool
    start: int = 1


class BeliefMonitor:
    """Feed batches of predictions, and labels when available; an alarm tells that the stream contradicts the belief.

    Args:
        summary: Belief about the predictions, as a summary with its concentration; needs no labels.
        accuracy: Share of right answers, to be checked against labels.
        class_fractions: Class fractions, to be checked against labels.
        concentration: Number of observations behind accuracy and class fractions; infinite for exact ones.
        delta: Probability of a false alarm over all time.
        restarts: Whether evidence may also begin with a later batch. A change after a long good stretch is found much
            earlier; evidence of the whole stream counts half.

    Example:
        >>> monitor = BeliefMonitor(accuracy=0.95, delta=0.01)
        >>> right, wrong = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.1, 0.9]]).log()
        >>> for day in range(10):  # eight of ten answers are right
        ...     state = monitor.update(
        ...         torch.cat([right] * 8 + [wrong] * 2), torch.zeros(10, dtype=torch.long)
        ...     )
        >>> state.num_labels, state.alarm
        (100, True)
    """

    def __init__(
        self,
        summary: SummaryLikelihood | None = None,
        *,
        accuracy: float | None = None,
        class_fractions: Sequence[float] | None = None,
        concentration: float = DEFAULT_CONCENTRATION,
        delta: float = 0.01,
        restarts: bool = False,
    ) -> None:
        if summary is None and accuracy is None and class_fractions is None:
            raise ValueError("`summary`, `accuracy` or `class_fractions` must be given: there is nothing to monitor")
        self.delta = _checks.fraction("delta", delta, low=0.0, high=1.0)
        self.summary = summary
        if not concentration > 0:
            raise ValueError(f"`concentration` must be a number greater than 0, but got {concentration!r}")
        self._claims: dict[str, tuple[Tensor, float]] = {}
        if summary is not None:
            self._claims["predictions"] = summary.s0.double().cpu(), float(summary.concentration)
        if accuracy is not None:
            right = _checks.fraction("accuracy", accuracy, low=0.0, high=1.0)
            self._claims["accuracy"] = torch.tensor([right, 1 - right], dtype=torch.float64), concentration
        if class_fractions is not None:
            stated = torch.tensor(_checks.simplex("class_fractions", class_fractions), dtype=torch.float64)
            self._claims["class fractions"] = stated, concentration
        self._counts = {name: torch.zeros_like(masses) for name, (masses, _) in self._claims.items()}
        self.restarts = restarts
        self._starts = [1]
        self._before = {name: [torch.zeros_like(masses)] for name, (masses, _) in self._claims.items()}
        self._num_batches = self._num_predictions = self._num_labels = 0
        self._largest = 0.0
        self.history: list[MonitorState] = []
        """The state after each batch."""

    def update(self, log_probs: Array, labels: Array | None = None, *, labels_only: bool = False) -> MonitorState:
        """Add a batch.

        Args:
            log_probs: Log-probabilities of the predictions, shape (B, K).
            labels: Their classes, shape (B,), if they are known; -1 where one is not.
            labels_only: Whether the predictions were added before, and their labels come now.
        """
        rows = log_probs_table(log_probs)
        if "class fractions" in self._counts and rows.shape[1] != len(self._counts["class fractions"]):
            raise ValueError(
                f"`log_probs` must have one column for each of the {len(self._counts['class fractions'])} "
                f"`class_fractions`, but got {rows.shape[1]}"
            )
        given = torch.full((len(rows),), UNLABELLED) if labels is None else on_host("labels", labels)
        there = given != UNLABELLED
        known = as_class_labels(torch.where(there, given, 0), rows)[there]
        self._begin_batch()
        if not labels_only:
            if self.summary is not None:
                _count(self._counts["predictions"], self.summary.partition.assign(rows.to(self.summary.s0.device)))
            self._num_predictions += len(rows)
        if "accuracy" in self._counts:
            _count(self._counts["accuracy"], (rows.argmax(-1)[there] != known).long())
        if "class fractions" in self._counts:
            _count(self._counts["class fractions"], known)
        self._num_labels += len(known)
        self.history.append(self.state())
        return self.history[-1]

    def _begin_batch(self) -> None:
        """Count the batch and, with restarts, let evidence begin with it; too many old starts are dropped."""
        self._num_batches += 1
        if not self.restarts or self._num_batches == 1:
            return
        kept = [k for k, start in enumerate(self._starts) if _is_kept(start, self._num_batches - start)]
        self._starts = [*(self._starts[k] for k in kept), self._num_batches]
        for name, before in self._before.items():
            self._before[name] = [*(before[k] for k in kept), self._counts[name].clone()]

    def state(self) -> MonitorState:
        """The evidence so far."""
        logs = {
            name: log_evidence(self._counts[name] - torch.stack(self._before[name]), *claim).tolist()
            for name, claim in self._claims.items()
        }
        weights = [1 / (start * (start + 1)) if self.restarts else 1.0 for start in self._starts]
        found = [{name: weight * _exp(each[k]) for name, each in logs.items()} for k, weight in enumerate(weights)]
        totals = [math.fsum(each.values()) / len(each) for each in found]
        best = max(range(len(totals)), key=totals.__getitem__)
        self._largest = max(self._largest, totals[best])
        return MonitorState(
            num_predictions=self._num_predictions,
            num_labels=self._num_labels,
            evidence=found[best],
            total=totals[best],
            largest=self._largest,
            alarm=self._largest >= 1 / self.delta,
            start=self._starts[best],
        )

    @property
    def counts(self) -> dict[str, tuple[float, ...]]:
        """Number of cases in each region of each claim so far: of right and of wrong answers, of each class."""
        return {name: tuple(each.tolist()) for name, each in self._counts.items()}

    def to_dict(self) -> dict[str, Any]:
        """Counts so far as JSON values, for `restore`."""
        counts = {name: list(each) for name, each in self.counts.items()}
        seen = {"num_predictions": self._num_predictions, "num_labels": self._num_labels}
        found = {"counts": counts, "largest": self._largest, **seen}
        if self.restarts:
            before = {name: [each.tolist() for each in starts] for name, starts in self._before.items()}
            found |= {"num_batches": self._num_batches, "starts": list(self._starts), "before": before}
        return found

    def restore(self, data: Mapping[str, Any]) -> MonitorState:
        """Resume from `to_dict` of a monitor with the same claims.

        Raises:
            ValueError: If its claims are others.
        """
        sizes = {name: len(each) for name, each in data["counts"].items()}
        if sizes != {name: len(each) for name, each in self._counts.items()}:
            raise ValueError(f"`data` must be of a monitor of the claims {list(self._counts)}, but is of {list(sizes)}")
        if ("starts" in data) != self.restarts:
            raise ValueError(f"`data` must be of a monitor with restarts={self.restarts}, but is of another")
        if self.restarts:
            self._num_batches, self._starts = int(data["num_batches"]), [int(each) for each in data["starts"]]
            self._before = {
                name: [torch.tensor(each, dtype=torch.float64) for each in data["before"][name]] for name in sizes
            }
        self._counts = {name: torch.tensor(each, dtype=torch.float64) for name, each in data["counts"].items()}
        self._largest, self._num_predictions = float(data["largest"]), int(data["num_predictions"])
        self._num_labels = int(data["num_labels"])
        return self.state()


def log_evidence(counts: Tensor, masses: Tensor, concentration: float) -> Tensor:
    """Log of the evidence against a claim: (..., R), (R,) -> (...).

    Args:
        counts: Number of cases in each region.
        masses: Masses that are claimed.
        concentration: Number of observations behind the claim; infinite for an exact one.
    """
    vague = torch.full_like(masses, VAGUE)
    if math.isinf(concentration):
        exact: Tensor = torch.special.xlogy(counts, masses).sum(-1)
        return log_dirichlet_multinomial(counts, vague) - exact
    return log_dirichlet_multinomial(counts, vague) - log_dirichlet_multinomial(counts, concentration * masses)


def _is_kept(start: int, age: int) -> bool:
    """Whether evidence still begins with a batch: every 2^k-th one, for ages of at least 2^k times the octave."""
    stride: int = 1 << max(0, (age // STARTS_PER_OCTAVE).bit_length() - 1)
    return (start - 1) % stride == 0


def _count(counts: Tensor, regions: Tensor) -> None:
    counts += torch.bincount(regions.cpu(), minlength=len(counts)).double()


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
