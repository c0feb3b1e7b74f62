"""Number formats in text, to explain why a column of numbers is read as text."""

import re
from collections.abc import Iterable
from typing import Final

from selbo.tabular.table import MISSING_WORDS

WITH_COMMA: Final = re.compile(r"[+-]?\d+([.,]\d+)*([eE][+-]?\d+)?")
"""Digits with commas or points between them; with a comma, a number in some countries."""


def is_number(text: str) -> bool:
    """Whether a text is a number with no separator but a decimal point."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def has_comma(text: str) -> bool:
    """Whether a text is a number with a decimal comma or with commas between thousands."""
    return "," in text and WITH_COMMA.fullmatch(text) is not None


def is_missing(text: str) -> bool:
    """Whether a text is a word for a missing value."""
    return text.lower() in MISSING_WORDS


def first_odd(texts: Iterable[str]) -> str | None:
    """The first text that is not a number, or None; a word for a missing value only if there is no other.

    Example:
        >>> first_odd(["1", "NA", "unknown"]), first_odd(["1", "NA"]), first_odd(["1", "2"])
        ('unknown', 'NA', None)
    """
    odd = [text for text in texts if not is_number(text)]
    return next((text for text in odd if not is_missing(text)), odd[0] if odd else None)


def why_not_numbers(texts: Iterable[str]) -> str | None:
    """Explain why a column is text although most of its distinct values are numbers, with commas or without; or None.

    Example:
        >>> why_not_numbers(["1", "2", "unknown"]), why_not_numbers(["red", "2"])
        ("it has numbers, but 'unknown' is none", None)
        >>> why_not_numbers(["1,5", "2,0"])
        "it has numbers with a comma, such as '1,5'"
    """
    different = list(dict.fromkeys(texts))
    commas = [text for text in different if has_comma(text)]
    numbers = sum(is_number(text) for text in different) + len(commas)
    odd = first_odd(different)
    if odd is None or 2 * numbers <= len(different):
        return None
    return f"it has numbers with a comma, such as {commas[0]!r}" if commas else f"it has numbers, but {odd!r} is none"
