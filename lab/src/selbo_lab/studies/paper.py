"""What the paper reports: means and standard errors, and why some of them are not what ours measure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from selbo.results import Record


@dataclass(frozen=True, kw_only=True)
class PaperMethod(Record):
    """A row of the paper.

    Attributes:
        values: Mean and standard error by column.
        not_comparable: Why the row (``all``) or a part of it (``clean``, ``corrupted``, ``ood``) is not what ours
            measures.
    """

    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    not_comparable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PaperValues(Record):
    """Rows of the paper by method, and what a reader should know about all of them."""

    caveat: str = ""
    methods: Mapping[str, PaperMethod] = field(default_factory=dict)

    @classmethod
    def reshaped(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """In files the methods stand beside the caveat."""
        methods = {key: value for key, value in data.items() if key != "caveat"}
        return {"caveat": data.get("caveat", ""), "methods": methods}
