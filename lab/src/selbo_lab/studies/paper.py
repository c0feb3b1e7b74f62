"""Values reported in the paper: means and standard errors, and why some are not comparable with ours."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from selbo.results import Record


@dataclass(frozen=True, kw_only=True)
class PaperMethod(Record):
    """A row of the paper.

    Attributes:
        values: Mean and standard error by column.
        not_comparable: Why the row (``all``) or a part of it (``clean``, ``corrupted``, ``ood``) is not comparable with
            ours.
    """

    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    not_comparable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PaperValues(Record):
    """Rows of the paper by method, and a caveat about all of them."""

    caveat: str = ""
    methods: Mapping[str, PaperMethod] = field(default_factory=dict)

    @classmethod
    def reshaped(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Collect the methods, which files store next to the caveat."""
        methods = {key: value for key, value in data.items() if key != "caveat"}
        return {"caveat": data.get("caveat", ""), "methods": methods}
