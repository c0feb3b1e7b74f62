"""Where runs are looked at: what a board of curves and pictures has to offer, and how a summary is put on it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from selbo.integrations.monitor import Seen

Figure = Any
"""Of matplotlib, which is not needed unless a figure is asked for."""

Draw = Callable[[Seen], Figure]


class Board(Protocol):
    """A place that keeps numbers and pictures by step."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Add a point to each curve."""

    def histogram(self, name: str, seen: Seen, step: int) -> None:
        """Add the masses of the regions, of the predictions and of the belief."""

    def figure(self, name: str, figure: Figure, step: int) -> None:
        """Add a figure of matplotlib."""


def show(boards: Iterable[Board], name: str, seen: Seen, step: int, *, draw: Draw | None = None) -> None:
    """Put a histogram and the belief it is held against on boards, and a figure of both if it can be drawn."""
    figure = None if draw is None else draw(seen)
    for board in boards:
        board.histogram(name, seen, step)
        if figure is not None:
            board.figure(f"{name}/figure", figure, step)
