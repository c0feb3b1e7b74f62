"""Columns of tables: a test condition and a metric."""

from dataclasses import dataclass, replace
from typing import Final

CORRUPTED: Final = "corrupted"
"""The mean over the corrupted conditions of a run."""

UP_TO: Final = f"{CORRUPTED} ≤ "
OOD: Final = "ood."
RECALL: Final = "recall "
"""Prefixes of names with more information: a level of noise, a set of inputs, a class."""


@dataclass(frozen=True)
class MetricColumn:
    """A column; `str` gives its name in files, such as ``clean.nll``.

    Attributes:
        place: ``clean``, ``use`` (the target domain), ``corrupted``, one condition such as ``fog 3``, or the name of a
            set of out-of-distribution inputs.
        metric: Name of the metric in the results.
        ood: Whether the place is a set of out-of-distribution inputs.
        up_to: For ``corrupted``: the mean is over conditions up to this level of noise only.
        of_class: For recall: the class.
    """

    place: str
    metric: str
    ood: bool = False
    up_to: float | None = None
    of_class: int | None = None

    @classmethod
    def parse(cls, name: str) -> "MetricColumn":
        """A column by its name in files.

        Example:
            >>> (
            ...     MetricColumn.parse("corrupted ≤ 0.5.nll").up_to,
            ...     MetricColumn.parse("ood.svhn.auroc").place,
            ... )
            (0.5, 'svhn')
        """
        place, _, metric = name.rpartition(".")
        if not (place and metric):
            raise ValueError(f"`column` must be a place and a metric with a dot between, but got {name!r}")
        column = cls(place, metric)
        if metric.startswith(RECALL):
            column = replace(column, metric="recall", of_class=int(metric.removeprefix(RECALL)))
        if place.startswith(UP_TO):
            return replace(column, place=CORRUPTED, up_to=float(place.removeprefix(UP_TO)))
        return replace(column, place=place.removeprefix(OOD), ood=True) if place.startswith(OOD) else column

    def __str__(self) -> str:
        place = f"{OOD}{self.place}" if self.ood else self.place
        if self.up_to is not None:
            place = f"{UP_TO}{self.up_to:g}"
        return f"{place}.{self.metric}" if self.of_class is None else f"{place}.{RECALL}{self.of_class}"

    @property
    def part(self) -> str:
        """``clean``, ``use``, ``corrupted``, ``ood`` or the name of a condition."""
        return "ood" if self.ood else self.place

    @property
    def whole_range(self) -> "MetricColumn":
        """The column without its limit on the level of noise."""
        return replace(self, up_to=None)
