"""Spellings of dates in text, and dates as numbers: days, month, weekday and hour."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from selbo.tabular.table import Numbers

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
EPOCH: Final = datetime(1970, 1, 1)

_TIME = (
    r"(?:(?:\s*T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?"
    r"\s*(?P<half>[ap]\.?m\.?)?\s*(?:Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?)?"
)
_MONTH = rf"(?P<name>{'|'.join(MONTHS)})[a-z]*\.?"
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?"
DATE_FORMS: Final = tuple(
    re.compile(f"{_WEEKDAY}{form}{_TIME}", re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})",
        r"(?P<first>\d{1,2})(?P<mark>[-/.])(?P<second_part>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})",
        rf"(?P<day>\d{{1,2}})[\s.-]*{_MONTH}[\s,-]*(?P<year>\d{{4}}|\d{{2}})",
        rf"{_MONTH}[\s-]*(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<year>\d{{4}})",
        rf"{_MONTH}[\s,-]*(?P<year>\d{{4}})",
        r"(?P<year>\d{4})-(?P<month>\d{2})",
    )
)
"""Year, month and day; day and month in either order; with the name of the month; a month."""

TURN_OF_CENTURY: Final = 69
"""Years of two digits from this one on are in the twentieth century, as in the C library."""

DATE_PARTS: Final[dict[str, Callable[[datetime], float]]] = {
    "day": lambda date: (date - EPOCH) / timedelta(days=1),
    "month": lambda date: date.month,
    "weekday": lambda date: date.weekday(),
    "hour": lambda date: date.hour + date.minute / 60,
}
"""Numbers of a date: days since the first of January 1970, month, weekday and hour."""


def parse_date(text: str, *, day_first: bool = False) -> datetime | None:
    """A date in one of the usual spellings, with or without a time, or None. Time zones are ignored.

    Args:
        text: The text.
        day_first: Whether the day comes before the month, where both are numbers and the year comes last.

    Example:
        >>> [
        ...     str(parse_date(each))
        ...     for each in ("2020-03-01", "3/1/2020 4:30 pm", "1 March 2020", "soon")
        ... ]
        ['2020-03-01 00:00:00', '2020-03-01 16:30:00', '2020-03-01 00:00:00', 'None']
        >>> str(parse_date("03.01.20", day_first=True))
        '2020-01-03 00:00:00'
    """
    if not any(each.isdigit() for each in text[:40]):
        return None
    for form in DATE_FORMS:
        if found := form.fullmatch(text.strip()):
            return _date(found.groupdict(), day_first=day_first)
    return None


def _date(parts: dict[str, str | None], *, day_first: bool) -> datetime | None:
    year = int(parts["year"] or 0)
    if len(parts["year"] or "") == 2:
        year += 1900 if year >= TURN_OF_CENTURY else 2000
    if parts.get("first") is not None:
        ends = int(parts["first"] or 0), int(parts["second_part"] or 0)
        day, month = ends if day_first else ends[::-1]
    else:
        day = int(parts.get("day") or 1)
        name = parts.get("name")
        month = int(parts.get("month") or 0) if name is None else 1 + MONTHS.index(name.lower())
    hour = int(parts["hour"] or 0)
    if parts["half"] is not None:
        hour = hour % 12 + (12 if parts["half"].lower().startswith("p") else 0)
    try:
        return datetime(year, month, day, hour, int(parts["minute"] or 0), int(parts["second"] or 0))
    except ValueError:
        return None


def day_comes_first(texts: Iterable[str]) -> bool:
    """Whether days come before months: as most dates allow; if they do not tell, where points or dashes separate.

    Example:
        >>> day_comes_first(["3/12/2020", "3/13/2020"]), day_comes_first(["3.12.2020"])
        (False, True)
    """
    marks, first, second = [], 0, 0
    for text in texts:
        if found := DATE_FORMS[1].fullmatch(text.strip()):
            marks.append(found["mark"])
            first += int(found["first"]) > 12
            second += int(found["second_part"]) > 12
    return first > second if first != second else bool(marks) and marks.count("/") * 2 < len(marks)


def dates_as_numbers(dates: Iterable[datetime | None], parts: Iterable[str]) -> Numbers:
    """Numbers of dates, shape (rows, parts); NaN where there is no date."""
    chosen = [DATE_PARTS[part] for part in parts]
    return np.array(
        [[np.nan] * len(chosen) if date is None else [part(date) for part in chosen] for date in dates],
        dtype=np.float64,
    ).reshape(-1, len(chosen))
