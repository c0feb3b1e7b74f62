"""Show the section `Example:` of a docstring as code, as `Examples:` is; griffe knows only the plural."""

from __future__ import annotations

import re
from typing import Any

import griffe

SINGULAR = re.compile(r"^([ \t]*)Example:[ \t]*$", re.MULTILINE)


class ExampleSections(griffe.Extension):
    """An extension of griffe, which reads the docstrings for mkdocstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = SINGULAR.sub(r"\1Examples:", obj.docstring.value)
