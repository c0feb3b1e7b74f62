"""The interface of loggers for curves, histograms and figures, and how a summary is logged."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from selbo.integrations.monitor import Seen

Figure = Any
"""A matplotlib figure; matplotlib is needed only if a figure is requested."""

Draw = Callable[[Seen], Figure]


class Board(Protocol):
    """A logger of numbers and figures by step."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each curve."""

    def histogram(self, name: str, seen: Seen, step: int) -> None:
        """Add the masses of the regions, of the predictions and of the belief."""

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Add a matplotlib figure."""


def log_snapshot(boards: Iterable[Board], name: str, seen: Seen, step: int, *, draw: Draw | None = None) -> None:
    """Log a histogram and the belief to all loggers, and a figure of both if ``draw`` is given."""
    figure = None if draw is None else draw(seen)
    for board in boards:
        board.histogram(name, seen, step)
        if figure is not None:
            board.figure(f"{name}/figure", figure, step)
