"""What people paste and upload: label counts, and the scores of an earlier model as CSV."""

import csv
import io
import math
import re
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from selbo.elicit.state import LONGEST_NAME, MOST_CLASSES, RefusedError, State, partition_of
from selbo.summary.beliefs import Empirical

Array = NDArray[np.float64]

SUM_TOLERANCE: Final = 0.02
"""How far the probabilities of a row may sum from one, often written with two decimals; they are then normalised."""

NUMBER: Final = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
PAIR: Final = re.compile(rf"(?:(?P<name>.*?)[\s,;:=|]+)?(?P<count>{NUMBER})")
THOUSANDS: Final = re.compile(r".*\D\s\d{1,3}(?:,\d{3})+")
LONGEST_LINE: Final = 200
"""Of pasted counts; longer ones are something else."""

FOOTNOTE: Final = re.compile(r"(?:Name|dtype|Length):.*")
"""A last line that pandas prints below its counts."""


# --- label counts ---


def read_counts(text: str) -> dict[str, Any]:
    r"""Class names and fractions from pasted counts.

    One class a line, ``healthy 812`` with any separator; bare numbers; or one line with several of either.

    Example:
        >>> read_counts("healthy: 75\nill: 25")
        {'names': ['healthy', 'ill'], 'fractions': [0.75, 0.25], 'total': 100.0}
    """
    items = [item for line in text.splitlines() for item in _items(line, alone=len(text.strip().splitlines()) == 1)]
    items = [item for item in items if item and not FOOTNOTE.fullmatch(item)]
    if items and not any(character.isdigit() for character in items[0]):
        items = items[1:]  # a heading
    if len(items) < 2:
        raise RefusedError(
            "Paste at least two counts, one class a line, such as “healthy 812” and “ill 203”.", "counts"
        )
    if len(items) > MOST_CLASSES:
        raise RefusedError(
            f"This page takes up to {MOST_CLASSES} classes, but {len(items)} counts were pasted.", "counts"
        )
    names, counts = zip(*(_pair(item) for item in items), strict=True)
    total = sum(counts)
    if not math.isfinite(total):
        raise RefusedError("The counts are too large to be added.", "counts")
    return {
        "names": list(names) if all(names) else [],
        "fractions": [count / total for count in counts],
        "total": total,
    }


def _items(line: str, *, alone: bool) -> list[str]:
    if not alone:
        return [_bare(line)]
    inner = _bare(line.removeprefix("Counter"))
    if re.fullmatch(rf"{NUMBER}(?:[\s,;]+{NUMBER})*", inner):
        return re.split(r"[\s,;]+", inner)
    return [_bare(part) for part in re.split(r"[,;]", inner)]


def _bare(text: str) -> str:
    return text.strip().strip("{}()[]").strip().rstrip(",;").strip()


def _pair(item: str) -> tuple[str, float]:
    found = PAIR.fullmatch(item) if len(item) <= LONGEST_LINE else None
    if found is None or THOUSANDS.fullmatch(item):
        raise RefusedError(
            f"Each line must end with a count such as 1234, without separators, but one is {_shown(item)}.", "counts"
        )
    count = float(found["count"])
    if not 0 < count < math.inf:
        raise RefusedError(
            f"Every count must be above 0, but one line is {_shown(item)}: leave the class out.", "counts"
        )
    return (found["name"] or "").strip().strip("\"'"), count


# --- scores ---


def count_scores(content: bytes, state: State) -> dict[str, Any]:
    """Masses of the regions in the scores of an earlier model.

    Args:
        content: A CSV file, one prediction a row: the probability of class 1, or one probability a class.
        state: Number of classes and regions.

    Returns:
        ``masses``, smoothed as `selbo.Empirical` does; ``rows``; ``claimed``, the mean of the largest probabilities;
        ``fractions``, how often each class is predicted.
    """
    probs = read_scores(content, state.classes)
    masses = Empirical(torch.from_numpy(probs).log()).masses(partition_of(state))
    predicted = np.bincount(probs.argmax(-1), minlength=state.classes) / len(probs)
    return {
        "masses": masses.tolist(),
        "rows": len(probs),
        "claimed": float(probs.max(-1).mean()),
        "fractions": predicted.tolist(),
    }


def read_scores(content: bytes, num_classes: int) -> Array:
    """Probabilities from CSV: commas, semicolons or tabs, with a heading or without; shape (rows, K)."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedError("The file is not text in UTF-8: save the scores as CSV.", "file") from None
    if "\0" in text:
        raise RefusedError("The file is not a CSV file: it holds characters that no text has.", "file")
    start = text[:4096]
    separator = next((sign for sign in ";\t," if sign in start), ",")
    try:
        rows = [
            (line, row)
            for line, row in enumerate(csv.reader(io.StringIO(text), delimiter=separator), start=1)
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise RefusedError(f"The file cannot be read as CSV: {error}.", "file") from None
    decimal_comma = separator != ","
    if rows and any(_value(cell, decimal_comma) is None for cell in rows[0][1]):
        rows = rows[1:]  # a heading
    if not rows:
        raise RefusedError("The file holds no predictions: one row each is expected.", "file")
    width = len(rows[0][1])
    if width != num_classes and not (width == 1 and num_classes == 2):
        columns = "1 column" if width == 1 else f"{width} columns"
        wanted = "one column, the probability of class 1, or two" if num_classes == 2 else f"{num_classes} columns"
        raise RefusedError(
            f"The file has {columns}, but for {num_classes} classes there must be {wanted}: change the number of "
            "classes, or leave out columns that are no probabilities.",
            "file",
        )
    values = np.array([_probabilities(line, row, width, decimal_comma) for line, row in rows])
    if width == 1:
        return np.concatenate([1 - values, values], axis=1)
    sums = values.sum(-1, keepdims=True)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst, 0] - 1) > SUM_TOLERANCE:
        raise RefusedError(
            f"The probabilities of each row must sum to 1, but those of line {rows[worst][0]} sum to "
            f"{sums[worst, 0]:.4g}.",
            "file",
        )
    return np.asarray(values / sums)


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
