"""Monitors summaries in other training loops, over the batches of all processes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import torch
from torch import Tensor, nn

from selbo.summary.grouped import GroupedSummary
from selbo.summary.likelihood import SummaryLikelihood, normalise_counts
from selbo.training.distributed import announced_processes, number_of_processes, sum_over_processes

Reduction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of the predictions against the belief.

    Attributes:
        histogram: Region masses of the predictions, mean over weight samples, shape (R,), float64, on the CPU.
        s0: Region masses of the belief, in the same form.
        log_summary: Log-likelihood of the summary, mean over samples and batches; None if it was not computed.
    """

    histogram: Tensor
    s0: Tensor
    log_summary: float | None = None

    @property
    def distance(self) -> float:
        """Total variation distance: the share of predictions that would have to move to another region."""
        return float((self.histogram - self.s0).abs().sum() / 2)

    def scalars(self, name: str = "summary") -> dict[str, float]:
        """Numbers for a log: ``log_summary`` and ``summary_distance``, if the summary has the name ``summary``."""
        distance = {f"{name}_distance": self.distance}
        return distance if self.log_summary is None else {f"log_{name}": self.log_summary, **distance}


class SummaryMonitor:
    """Monitors the summaries of a network during training, for a loop other than `selbo.fit`.

    While it is open it does two things, both only for summaries in training mode. First, with several processes
    (torch.distributed, as in DDP and FSDP2) it sums the histogram over the batches of all of them, and so those of the
    groups of a `selbo.GroupedSummary`. The gradient, which is averaged over processes, is then that of one process with
    the whole batch; otherwise each process would compare its own part of the batch with the belief. Summaries that
    already have ``reductions`` are not summed again. Second, it accumulates histograms and values until `take` is
    called, without synchronising with the device; not those of groups.

    Args:
        module: Module that holds the summaries: a network, an objective, a LightningModule, or a summary itself.
        gather: Sum over processes; if False, each process uses its own part of the batch.

    Example:
        >>> from selbo.summary.beliefs import Beta
        >>> from selbo.summary.partitions import ScoreBins
        >>> summary = SummaryLikelihood(ScoreBins.equal(4), Beta(2, 2), concentration=100.0)
        >>> with SummaryMonitor(summary) as monitor:
        ...     log_likelihood = summary(torch.full((8, 2), 0.5).log())
        >>> snapshot = monitor.take()["summary"]
        >>> snapshot.log_summary == float(log_likelihood), f"{snapshot.distance:.2f}"
        (True, '0.31')
    """

    def __init__(self, module: nn.Module, *, gather: bool = True) -> None:
        places = {place: each for place, each in module.named_modules() if isinstance(each, SummaryLikelihood)}
        names = [f"summary/{each.name}" if each.name else place for place, each in places.items()]
        found = dict(zip(names if len(set(names)) == len(names) else places, places.values(), strict=True))
        grouped = [each for each in module.modules() if isinstance(each, GroupedSummary)]
        if not found and not grouped:
            raise ValueError(
                f"`module` must hold a selbo.SummaryLikelihood as an attribute, but {type(module).__name__} has none"
            )
        self.summaries = {"summary": next(iter(found.values()))} if len(found) == 1 else found
        self.gather = gather
        # only where they are needed: a reduction changes how sums by group are kept
        several = gather and max(number_of_processes(), announced_processes()) > 1
        self._grouped = [(each, partial(self._sum_groups, each)) for each in grouped if several and not each.reductions]
        for summary, reduction in self._grouped:
            summary.reductions.append(reduction)
        self._counts: dict[str, Tensor] = {}
        self._values: dict[str, tuple[Tensor, int]] = {}
        self._reductions: dict[str, Reduction] = {}
        self._hooks = []
        for name, each in self.summaries.items():
            self._reductions[name] = partial(self._count, name)
            each.reductions.append(self._reductions[name])
            self._hooks.append(each.register_forward_hook(partial(self._value, name)))

    def __enter__(self) -> "SummaryMonitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Restore the summaries, independently of other monitors; `take` still returns earlier batches."""
        for name, reduction in self._reductions.items():
            if reduction in self.summaries[name].reductions:
                self.summaries[name].reductions.remove(reduction)
        for summary, reduction in self._grouped:
            summary.reductions.remove(reduction)
        for hook in self._hooks:
            hook.remove()
        self._reductions, self._hooks, self._grouped = {}, [], []

    def take(self) -> dict[str, Snapshot]:
        """Snapshots since the last call, by name: ``summary``; for several, ``summary/NAME`` or their module paths.

        Synchronises with the device, but not with other processes. Summaries that were not evaluated are left out.
        """
        snapshots = {}
        for name, counts in self._counts.items():
            total, number = self._values.get(name, (None, 0))
            snapshots[name] = Snapshot(
                histogram=normalise_counts(counts).double().cpu(),
                s0=self.summaries[name].s0.detach().double().cpu(),
                log_summary=None if total is None else float(total) / number,
            )
        self._counts, self._values = {}, {}
        return snapshots

    def _count(self, name: str, counts: Tensor) -> Tensor:
        """One of the ``reductions``: (..., R) -> (..., R), over all processes unless another one already did so."""
        summary = self.summaries[name]
        if not summary.training:
            return counts
        if self.gather and summary.reductions[0] is self._reductions[name] and number_of_processes() > 1:
            counts = sum_over_processes(counts)
        one = counts.detach().reshape(-1, counts.shape[-1]).mean(0)
        self._counts[name] = self._counts[name] + one if name in self._counts else one
        return counts

    @staticmethod
    def _sum_groups(summary: GroupedSummary, sums: Tensor) -> Tensor:
        """One of the ``reductions``: sums by group, (..., G, columns) -> (..., G, columns), over all processes."""
        return sum_over_processes(sums) if summary.training and number_of_processes() > 1 else sums

    def _value(self, name: str, summary: nn.Module, arguments: object, value: Tensor) -> None:
        if summary.training:
            total, number = self._values.get(name, (torch.zeros_like(value.detach().mean()), 0))
            self._values[name] = (total + value.detach().mean(), number + 1)
