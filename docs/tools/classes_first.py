"""Lets the page of a module open with what is used: classes first, then functions, then constants."""

from __future__ import annotations

from typing import Any

import griffe

BEHIND = 1_000_000
"""Lines; mkdocstrings shows members in the order of their lines."""


class ClassesFirst(griffe.Extension):
    """An extension of griffe, which reads the source for mkdocstrings."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        for member in mod.members.values():
            if not member.is_alias and member.lineno is not None:
                member.lineno += BEHIND * (member.is_function + 2 * member.is_attribute)
