"""The interface of loggers for curves, histograms and figures, and how a summary is logged."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from selbo.integrations.monitor import Snapshot

Figure = Any
"""A matplotlib figure; matplotlib is needed only if a figure is requested."""

Draw = Callable[[Snapshot], Figure]


class Logger(Protocol):
    """A logger of numbers and figures by step."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each curve."""

    def histogram(self, name: str, snapshot: Snapshot, step: int) -> None:
        """Add the masses of the regions, of the predictions and of the belief."""

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Add a matplotlib figure."""


def log_snapshot(
    loggers: Iterable[Logger], name: str, snapshot: Snapshot, step: int, *, draw: Draw | None = None
) -> None:
    """Log a histogram and the belief to all loggers, and a figure of both if ``draw`` is given."""
    figure = None if draw is None else draw(snapshot)
    for logger in loggers:
        logger.histogram(name, snapshot, step)
        if figure is not None:
            logger.figure(f"{name}/figure", figure, step)
