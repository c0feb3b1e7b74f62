"""Problems of a table and of what is stated about it, collected, so that all of them are reported at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

Found = TypeVar("Found")


class ProblemsError(ValueError):
    """Several problems, one sentence each.

    Attributes:
        problems: The sentences.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("\n".join(self.problems))


class Problems:
    """Collects the problems that several steps find.

    Example:
        >>> problems = Problems()
        >>> with problems.collecting():
        ...     raise ValueError("the first")
        >>> problems.add("the second")
        >>> try:
        ...     problems.stop()
        ... except ValueError as error:
        ...     print(error)
        the first
        the second
    """

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, *problems: str) -> None:
        """Add sentences."""
        self.found += problems

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect a `ValueError` of the block instead of raising it. What the block assigns may then be missing."""
        try:
            yield
        except ValueError as error:
            self._collect(error)

    def attempt(self, function: Callable[..., Found], *arguments: Any, **options: Any) -> Found | None:
        """Call a function; None if it raises a `ValueError`, which is collected."""
        try:
            return function(*arguments, **options)
        except ValueError as error:
            self._collect(error)
            return None

    def _collect(self, error: ValueError) -> None:
        self.add(*(error.problems if isinstance(error, ProblemsError) else (str(error),)))

    def stop(self) -> None:
        """Raise all problems, if there are any."""
        if self.found:
            raise ProblemsError(self.found)
