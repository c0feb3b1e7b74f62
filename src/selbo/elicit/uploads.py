"""Parses pasted label counts, and uploaded scores of an earlier model as CSV."""

import csv
import io
import math
import re
from typing import Any, Final

import numpy as np
import torch

from selbo._numerics import FloatArray
from selbo.elicit.refused import RefusedError
from selbo.elicit.state import LONGEST_NAME, MOST_CLASSES, State, build_partition
from selbo.summary.beliefs import Empirical

ROUNDED_SUM_TOLERANCE: Final = 0.02
"""Tolerance of the sum of a row of probabilities, often rounded to two decimals; they are then normalised."""

NUMBER: Final = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
PAIR: Final = re.compile(rf"(?:(?P<name>.*?)[\s,;:=|]+)?(?P<count>{NUMBER})")
ENDS_WITH_NUMBER: Final = re.compile(rf"(?P<stem>.*?)[\s,;:=|]+(?P<number>{NUMBER})")
"""A name such as “class 0”, or the first part of a count such as 62,5 or 1 234."""

THOUSANDS: Final = re.compile(r"\d{1,3}[\s,]\d{3}")
DECIMALS: Final = re.compile(r"\d+,\d+")
LONGEST_COUNT_LINE: Final = 200
"""Maximum length of a line of pasted counts."""

FOOTNOTE: Final = re.compile(r"(?:Name|dtype|Length):.*")
"""A last line that pandas prints below its counts."""

HEADING: Final = re.compile(
    r"counts?|numbers?|n|freq|frequency|frequencies|totals?|sizes?|cases|samples|rows|examples|support|"
    r"shares?|fractions?|proportions?|percent|percentages?",
    re.IGNORECASE,
)
"""Last words of a heading; any other line without a count is a class whose count is missing."""


# --- label counts ---


def read_counts(text: str) -> dict[str, Any]:
    r"""Class names and fractions from pasted counts.

    One class a line, ``healthy 812`` with any separator; bare numbers; or one line with several of either.

    Example:
        >>> read_counts("healthy: 75\nill: 25")
        {'names': ['healthy', 'ill'], 'fractions': [0.75, 0.25], 'total': 100.0}
    """
    items = [item for line in text.splitlines() for item in _items(line, alone=len(text.strip().splitlines()) == 1)]
    lines = [item for item in items if item]
    items = [item for item in lines if not FOOTNOTE.fullmatch(item)]
    if items and _is_heading(items[0], footnote=len(items) < len(lines)):
        items = items[1:]
    if not any(character.isdigit() for item in items for character in item):
        items = []
    if len(items) < 2:
        raise RefusedError(
            "Paste at least two counts, one class per line, such as “healthy 812” and “ill 203”.", "counts"
        )
    if len(items) > MOST_CLASSES:
        raise RefusedError(
            f"This page takes up to {MOST_CLASSES} classes, but {len(items)} counts were pasted.", "counts"
        )
    names, counts = zip(*(_pair(item) for item in items), strict=True)
    _refuse_two_readings(items, names)
    total = sum(counts)
    if not math.isfinite(total):
        raise RefusedError("The counts are too large to be added.", "counts")
    return {
        "names": [name.strip("\"'") for name in names] if all(names) else [],
        "fractions": [count / total for count in counts],
        "total": total,
    }


def _items(line: str, *, alone: bool) -> list[str]:
    if not alone:
        return [_bare(line)]
    inner = _bare(line.removeprefix("Counter"))
    if re.fullmatch(rf"{NUMBER}(?:[\s,;]+{NUMBER})*", inner):
        signs = {(sign.strip(), sign[-1].isspace()) for sign in re.findall(r"[\s,;]+", inner)}
        if len(signs) > 1:  # 62,5 37,5 or 1,234, 5,678
            raise _two_readings(inner)
        return re.split(r"[\s,;]+", inner)
    return [_bare(part) for part in re.split(r"[,;]", inner)]


def _bare(text: str) -> str:
    return text.strip().strip("{}()[]").strip().rstrip(",;").strip()


def _is_heading(item: str, *, footnote: bool) -> bool:
    """Whether a first line is a heading: “class count”, or the name of a column above counts as pandas prints them."""
    words = re.split(r"[\s,;:=|]+", item)
    if any(character.isdigit() for character in item):
        return False
    return HEADING.fullmatch(words[-1].strip("\"'")) is not None or (footnote and len(words) == 1)


def _refuse_two_readings(items: list[str], names: tuple[str, ...]) -> None:
    """No count may be half in a name: 62,5 and 1 234 look like “class 0,60” and “class 0 60”, which have one stem."""
    if any(names) and not all(names):
        raise RefusedError(
            "Either every count has the name of a class or none has, but one without is "
            f"{_shown(items[names.index('')])}.",
            "counts",
        )
    ends = [ENDS_WITH_NUMBER.fullmatch(name) for name in names]
    stems = {None if end is None else end["stem"] for end in ends}
    if any(ends) and (len(stems) > 1 or len(set(names)) < len(names)):
        raise _two_readings(next(item for item, end in zip(items, ends, strict=True) if end))
    if all(name.isdecimal() for name in names) and any(names):
        decimals = math.fsum(float(item.replace(",", ".")) for item in items if DECIMALS.fullmatch(item))
        numbered = sorted(map(int, names)) in [list(range(first, first + len(names))) for first in (0, 1)]
        if (
            len(set(names)) < len(names)
            or any(abs(decimals - whole) <= ROUNDED_SUM_TOLERANCE * whole for whole in (1, 100))
            or (all(THOUSANDS.fullmatch(item) for item in items) and not numbered)
        ):
            raise _two_readings(items[0])


def _two_readings(item: str) -> RefusedError:
    return RefusedError(
        f"Counts must be written such as 62.5 or 1234, without separators, but {_shown(item)} can be read in two ways: "
        "put a name that ends with a number in quotes.",
        "counts",
    )


def _pair(item: str) -> tuple[str, float]:
    found = PAIR.fullmatch(item) if len(item) <= LONGEST_COUNT_LINE else None
    if found is None:
        raise RefusedError(
            f"Each line must end with a count such as 1234, without separators, but one is {_shown(item)}.", "counts"
        )
    count = float(found["count"])
    if not 0 < count < math.inf:
        raise RefusedError(
            f"Every count must be above 0, but one line is {_shown(item)}: leave the class out.", "counts"
        )
    return (found["name"] or "").strip(), count


# --- scores ---


def count_scores(content: bytes, state: State) -> dict[str, Any]:
    """Masses of the regions in the scores of an earlier model.

    Args:
        content: A CSV file, one prediction a row: the probability of class 1, or one probability a class.
        state: Number of classes and regions.

    Returns:
        ``masses``, smoothed as `selbo.Empirical` does; ``rows``; ``claimed``, the mean of the largest probabilities;
        ``predicted``, how often each class is predicted.
    """
    probs = read_scores(content, state.classes)
    masses = Empirical(torch.from_numpy(probs).log()).masses(build_partition(state))
    predicted = np.bincount(probs.argmax(-1), minlength=state.classes) / len(probs)
    return {
        "masses": masses.tolist(),
        "rows": len(probs),
        "claimed": float(probs.max(-1).mean()),
        "predicted": predicted.tolist(),
    }


def read_scores(content: bytes, num_classes: int) -> FloatArray:
    """Probabilities from CSV: commas, semicolons or tabs, with a heading or without; shape (rows, K)."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedError("The file is not text in UTF-8: save the scores as CSV.", "file") from None
    if "\0" in text:
        raise RefusedError("The file is not a CSV file: it holds characters that no text has.", "file")
    start = text[:4096]
    separator = next((sign for sign in ";\t," if sign in start), ",")
    values = read_at_once(text, separator, num_classes)
    if values is None:
        values = read_row_by_row(text, separator, num_classes)
    if values.shape[1] == 1:
        return np.concatenate([1 - values, values], axis=1)
    return np.asarray(values / values.sum(-1, keepdims=True))


def read_at_once(text: str, separator: str, num_classes: int) -> FloatArray | None:
    """The numbers of the file, shape (rows, columns); None if a row is not as expected, or might not be."""
    first, _, others = text.partition("\n")
    if not others.strip() or "\r" in text.replace("\r\n", "\n") or first.count('"') % 2:  # a quotation goes on
        return None
    lines = io.StringIO(text if separator == "," else text.replace(",", "."))
    try:
        cells = [cell.strip() for cell in next(csv.reader([first], delimiter=separator), [])]
        if not any(cells) or cells == [str(k) for k in range(len(cells))]:  # the latter is a heading, or not
            return None
        heading = any(_value(cell, separator != ",") is None for cell in cells)
        values: FloatArray = np.loadtxt(
            lines, delimiter=separator, skiprows=int(heading), comments=None, ndmin=2, quotechar='"'
        )
    except (ValueError, csv.Error):
        return None
    columns = (1, 2) if num_classes == 2 else (num_classes,)
    right = values.shape[1] in columns and bool(((values >= 0) & (values <= 1)).all())
    right = right and (values.shape[1] == 1 or bool((np.abs(values.sum(-1) - 1) <= ROUNDED_SUM_TOLERANCE).all()))
    return values if right else None


def read_row_by_row(text: str, separator: str, num_classes: int) -> FloatArray:
    """The same, but slower: errors name the invalid row and the reason."""
    try:
        rows = [
            (line, row)
            for line, row in enumerate(csv.reader(io.StringIO(text), delimiter=separator), start=1)
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise RefusedError(f"The file cannot be read as CSV: {error}.", "file") from None
    decimal_comma = separator != ","
    if rows and (any(_value(cell, decimal_comma) is None for cell in rows[0][1]) or _is_numbering(rows)):
        rows = rows[1:]  # a heading
    if not rows:
        raise RefusedError("The file holds no predictions: one row each is expected.", "file")
    width = len(rows[0][1])
    if width != num_classes and not (width == 1 and num_classes == 2):
        columns = "1 column" if width == 1 else f"{width} columns"
        wanted = "one column, the probability of class 1, or two" if num_classes == 2 else f"{num_classes} columns"
        raise RefusedError(
            f"The file has {columns}, but for {num_classes} classes there must be {wanted}: change the number of "
            "classes, or leave out columns that are not probabilities.",
            "file",
        )
    values = np.array([_probabilities(line, row, width, decimal_comma) for line, row in rows])
    sums = values.sum(-1)
    worst = int(np.argmax(np.abs(sums - 1)))
    if width > 1 and abs(sums[worst] - 1) > ROUNDED_SUM_TOLERANCE:
        raise RefusedError(
            f"The probabilities of each row must sum to 1, but those of line {rows[worst][0]} sum to "
            f"{sums[worst]:.4g}.",
            "file",
        )
    return values


def _is_numbering(rows: list[tuple[int, list[str]]]) -> bool:
    """Whether the first row is 0, 1, ..., K - 1, the heading that pandas writes above columns without names.

    Up to two columns it could be a prediction too: it is one if another row is written in whole numbers as well.
    """
    (_, first), *others = rows
    if [cell.strip() for cell in first] != [str(k) for k in range(len(first))] or not others:
        return False
    return len(first) > 2 or not any(cell.strip() in ("0", "1") for _, row in others for cell in row)


def _probabilities(line: int, row: list[str], width: int, decimal_comma: bool) -> list[float]:
    if len(row) != width:
        raise RefusedError(f"Every row must have {width} cells, but line {line} has {len(row)}.", "file")
    values = []
    for cell in row:
        value = _value(cell, decimal_comma)
        if value is None or math.isnan(value):
            raise RefusedError(f"Every cell must be a number, but line {line} holds {_shown(cell.strip())}.", "file")
        if not 0 <= value <= 1:
            raise RefusedError(
                f"Probabilities lie between 0 and 1, but line {line} holds {value:g}: logits and percentages must be "
                "turned into probabilities first.",
                "file",
            )
        values.append(value)
    return values


def _value(cell: str, decimal_comma: bool) -> float | None:
    try:
        return float(cell.replace(",", ".") if decimal_comma else cell)
    except ValueError:
        return None


def _shown(text: str) -> str:
    return ascii(text) if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]!a}…"
