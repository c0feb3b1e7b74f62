"""Spellings of numbers in text: decimal commas, thousands separators, currencies and percentages."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from selbo.tabular.table import MISSING_WORDS

CURRENCIES: Final = "$€£¥₹₩₽₺₫₪฿"
THOUSANDS_SPACES: Final = " \u00a0\u2009\u202f"
"""Characters between thousands in some countries."""

BODIES: Final = {
    decimal: re.compile(
        rf"(?:[1-9]\d{{0,2}}(?P<mark>[{thousands}'’{THOUSANDS_SPACES}])\d{{3}}(?:(?P=mark)\d{{3}})*(?:[{decimal}]\d*)?"
        rf"|\d+[{decimal}]?|\d*[{decimal}]\d+)(?P<power>[eE][+-]?\d+)?"
    )
    for decimal, thousands in ((".", ","), (",", "."))
}
"""Digits of a number by its decimal mark, with or without marks between thousands."""

AROUND: Final = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[+\-−])?\s*[{CURRENCIES}]?\s*(?P<sign2>[+\-−])?\s*(?P<body>[\d.,].*?)\s*[%{CURRENCIES}]?\s*\)?"
)
"""What stands around the digits: a sign, a currency, a per cent sign, or the brackets of a negative amount."""

MOSTLY: Final = 0.9
"""Share of the values of a column that must be numbers, or dates, for it to be read as such."""


def is_number(text: str) -> bool:
    """Whether a text is a number with no separator but a decimal point."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def is_missing(text: str) -> bool:
    """Whether a text is a word for a missing value."""
    return text.lower() in MISSING_WORDS


def parse_number(text: str, decimal: str = ".") -> float | None:
    """A number in one of the usual spellings, or None. A percentage is a number of points.

    Args:
        text: The text.
        decimal: The decimal mark, a point or a comma; the other one may stand between thousands.

    Example:
        >>> [
        ...     parse_number(text)
        ...     for text in ("$1,234.50", "12.3%", "(1 200)", "-.5e3", "12,5", "many")
        ... ]
        [1234.5, 12.3, -1200.0, -500.0, None, None]
        >>> [parse_number(text, ",") for text in ("12,5", "1.234,5 €", "12.5")]
        [12.5, 1234.5, None]
    """
    found = AROUND.fullmatch(text.strip())
    if found is None or bool(found["open"]) != text.rstrip().endswith(")"):
        return None
    body = BODIES[decimal].fullmatch(found["body"])
    if body is None:
        return None
    digits = found["body"] if body["mark"] is None else found["body"].replace(body["mark"], "")
    value = float(digits.replace(decimal, "."))
    signs = [found["open"], found["sign"] not in {None, "+"}, found["sign2"] not in {None, "+"}]
    return -value if sum(map(bool, signs)) % 2 else value


def decimal_mark(texts: Iterable[str]) -> tuple[str, float]:
    """The decimal mark with which most texts are numbers, and their share; a point if both marks do as well.

    Example:
        >>> decimal_mark(["1,234", "12,000"]), decimal_mark(["1,2", "3"]), decimal_mark(["0,125"])
        (('.', 1.0), (',', 1.0), (',', 1.0))
    """
    given = Counter(texts)
    share = {}
    for mark in BODIES:
        numbers = sum(count for text, count in given.items() if parse_number(text, mark) is not None)
        share[mark] = numbers / max(1, given.total())
    return max(share.items(), key=lambda each: each[1])


def why_not_numbers(texts: Iterable[str]) -> str | None:
    """Explain why a column is text although most of its distinct values are numbers; or None.

    Example:
        >>> why_not_numbers(["1", "2", "unknown"]), why_not_numbers(["red", "2"])
        ("it has numbers, but 'unknown' is none", None)
    """
    different = list(dict.fromkeys(texts))
    mark, share = decimal_mark(different)
    odd = [text for text in different if parse_number(text, mark) is None]
    return f"it has numbers, but {odd[0]!r} is none" if odd and share > 0.5 else None


def without_gaps(texts: Sequence[str | None]) -> list[str | None]:
    """Values of a column of text, None for words for a missing value. ``none`` is a value, and ``-`` beside ``+``.

    Example:
        >>> without_gaps(["a", "NA", "none", "?"]), without_gaps(["+", "-", None])
        (['a', None, 'none', None], ['+', '-', None])
    """
    different = set(texts)
    values = {"-"} if "+" in different else set()
    gaps = {text for text in different if text is not None and is_missing(text) and text.lower() != "none"} - values
    return [None if text in gaps else text for text in texts] if gaps else list(texts)
