"""Predictions of a frozen model from an uploaded CSV file, corrected to what is stated about them, without labels."""

import csv
import io
import shlex
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from selbo._numerics import FloatArray
from selbo.elicit.captions import amount, share
from selbo.elicit.refused import RefusedError
from selbo.elicit.state import MOST_CLASSES, read_state
from selbo.elicit.uploads import ROUNDED_SUM_TOLERANCE
from selbo.evaluation.belief_calibration import BeliefCalibration, UnreachableFractionError, fit_to_belief
from selbo.evaluation.statement_doubts import FAR
from selbo.presets import below_guessing

COLUMN_PREFIX: Final = "p_"
"""What `selbo predict` writes before the name of a class."""

HISTOGRAM_BINS: Final = 10

FEW_UPLOADED: Final = 100
"""Number of rows below which their means are rough."""

MOST_TABLE_CLASSES: Final = 20


class Predictions(NamedTuple):
    """A file of predictions.

    Attributes:
        heading: Names of the columns; empty if the file has no heading.
        rows: All cells.
        columns: Indices of the columns with probabilities: one per class, or one with those of the second class.
        classes: Names of the classes.
        probs: Probabilities, shape (n, K).
        separator: Sign between the cells.
    """

    heading: list[str]
    rows: list[list[str]]
    columns: list[int]
    classes: list[str]
    probs: FloatArray
    separator: str


def calibrate_file(content: bytes, stated: object) -> dict[str, Any]:
    """Correct the predictions of a file.

    Args:
        content: The file: CSV with commas, semicolons or tabs.
        stated: ``accuracy``; ``fractions``, one per class or None; ``concentration`` or None; ``name`` of the file.

    Returns:
        Sentences, warnings, a table and a histogram of the predictions before and after, the corrected file, and the
        command that writes it.
    """
    if not isinstance(stated, Mapping):
        raise RefusedError("The state of the page must be an object with named entries.")
    file = read_predictions_file(content)
    count = len(file.classes)
    known = {key: stated.get(key) for key in ("accuracy", "fractions", "concentration")}
    state = read_state({**known, "classes": count, "names": file.classes, "regions": "classes"})
    with np.errstate(divide="ignore"):
        log_probs = np.log(file.probs)
    calibration = _fit(log_probs, file.classes, state.accuracy, state.fractions, state.concentration)
    after = calibration(log_probs).exp().numpy()
    after = after / after.sum(1, keepdims=True)
    changed = int((after.argmax(1) != file.probs.argmax(1)).sum())
    name = stated.get("name")
    return {
        "classes": file.classes,
        "claims": _claims(calibration, state.accuracy, len(after), changed),
        "warnings": _warnings(calibration, state.accuracy, state.fractions, file.classes),
        "rows": _rows(calibration, state.accuracy, state.fractions, file.classes),
        "histogram": _histogram(file.probs, after, file.classes),
        "csv": _written(file, after),
        "copies": {"calibrate": _command(file, state.accuracy, state.fractions, state.concentration, name)},
    }


def _fit(
    log_probs: FloatArray,
    classes: list[str],
    accuracy: float,
    fractions: tuple[float, ...] | None,
    concentration: float | None,
) -> BeliefCalibration:
    try:
        return fit_to_belief(
            log_probs, accuracy=accuracy, class_fractions=fractions, concentration=concentration
        ).calibration
    except UnreachableFractionError as error:
        raise RefusedError(_on_the_page(error.naming(f"“{classes[error.index]}”")), "fractions") from None
    except ValueError as error:
        raise RefusedError(_on_the_page(str(error)), "accuracy") from None


def _on_the_page(message: str) -> str:
    plain = message.replace("`class_fractions`", "These shares").replace("`accuracy`", "An accuracy").replace("`", "")
    return f"{plain[:1].upper()}{plain[1:]}."


# --- reading ---


def read_predictions_file(content: bytes) -> Predictions:
    r"""Find the probabilities in a CSV file: columns that `selbo predict` writes, or those that sum to 1 in every row.

    Example:
        >>> read_predictions_file(b"id,ham,spam\n7,0.9,0.1\n8,0.2,0.8\n").classes
        ['ham', 'spam']
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _refused("The file is not text in UTF-8: save the predictions as CSV.") from None
    lines = text.split("\n", 2)[:2]  # a name may hold a comma too
    separator = max(",;\t", key=lambda mark: min((line.count(mark) for line in lines if line), default=0))
    try:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise _refused(f"The file cannot be read as CSV: {error}.") from None
    heading = [cell.strip() for cell in rows[0]] if rows and _numbers(rows[0], separator) is None else []
    rows = rows[1:] if heading else rows
    if not rows:
        raise _refused("The file holds no predictions: one row each is expected.")
    width = len(heading or rows[0])
    if odd := next((row for row in rows if len(row) != width), None):
        raise _refused(f"Every row must have {width} cells, but one has {len(odd)}: {_cut(separator.join(odd))}.")
    found = {k: values for k in range(width) if (values := _numbers([row[k] for row in rows], separator)) is not None}
    columns = _probability_columns(heading, found)
    values = np.stack([found[k] for k in columns], 1)
    names = [heading[k] if heading else f"class {i}" for i, k in enumerate(columns)]
    if all(name.startswith(COLUMN_PREFIX) and len(name) > len(COLUMN_PREFIX) for name in names):
        names = [name.removeprefix(COLUMN_PREFIX) for name in names]
    if len(columns) == 1:
        name = names[0] if heading else "yes"
        return Predictions(heading, rows, columns, [f"not {name}", name], np.hstack([1 - values, values]), separator)
    return Predictions(heading, rows, columns, names, values / values.sum(1, keepdims=True), separator)


def _numbers(cells: list[str], separator: str) -> FloatArray | None:
    """Cells as numbers; None if one is none."""
    try:
        values = np.array([float(cell.replace(",", ".") if separator != "," else cell) for cell in cells])
    except ValueError:
        return None
    return values if bool(np.isfinite(values).all()) else None


def _probability_columns(heading: list[str], found: dict[int, FloatArray]) -> list[int]:
    """Columns of numbers that are probabilities of the classes; ids, flags and other numbers are left alone."""
    inside = [k for k, values in found.items() if bool(((values >= 0) & (values <= 1)).all())]
    fractions = [k for k in inside if bool((found[k] % 1 > 0).any())]
    prefixed = [
        k for k in inside if heading and heading[k].startswith(COLUMN_PREFIX) and len(heading[k]) > len(COLUMN_PREFIX)
    ]
    for columns in (prefixed, inside, fractions):
        if 2 <= len(columns) <= MOST_CLASSES:
            sums = np.sum([found[k] for k in columns], 0)
            if bool((np.abs(sums - 1) <= ROUNDED_SUM_TOLERANCE).all()):
                return columns
    if len(fractions) == 1:
        return fractions
    raise _refused(
        f"The file must have one column per class, up to {MOST_CLASSES}, with probabilities that sum to 1 in every "
        "row, or a single column of probabilities, but has neither. The command selbo calibrate also takes logits, and "
        "names of columns."
    )


def _refused(message: str) -> RefusedError:
    return RefusedError(message, "predictions")


def _cut(text: str) -> str:
    return ascii(text) if len(text) <= 40 else f"{text[:40]!a}…"


# --- what is shown ---


def _claims(calibration: BeliefCalibration, accuracy: float, count: int, changed: int) -> list[str]:
    before, after = calibration.accuracy_before, calibration.accuracy
    if abs(before - accuracy) < 5e-4:
        found = f"The predictions claim to be right in {share(before)} of cases, as you say."
    else:
        how = "too sure" if before > accuracy else "not sure enough"
        found = (
            f"The model is {how}: its predictions claim to be right in {share(before)} of cases, and you say "
            f"{share(accuracy)}. Corrected, they claim {share(after)}."
        )
    if changed:
        answers = (
            f"{amount(changed)} of {amount(count)} predictions now name another class. How often the model is right is "
            "about its answers before."
        )
    else:
        answers = f"None of the {amount(count)} predictions names another class than before."
    return [found, answers, f"All logits are divided by {calibration.temperature:.3g}, the temperature."]


def _warnings(
    calibration: BeliefCalibration, accuracy: float, fractions: tuple[float, ...] | None, classes: list[str]
) -> list[str]:
    found = []
    if fractions is not None and (text := below_guessing(accuracy, fractions, classes)):
        found.append(text)
    if abs(calibration.accuracy_before - accuracy) > FAR:
        found.append("The stated accuracy is far from what the predictions claim: check it on a few labelled cases.")
    shift = (
        0.0 if fractions is None else float(np.abs(np.subtract(fractions, calibration.class_fractions_before)).max())
    )
    if shift > FAR:
        found.append("Your shares are far from those that the predictions claim: are they about these rows?")
    if calibration.num_inputs < FEW_UPLOADED:
        found.append(f"{calibration.num_inputs} rows are few, so their mean may be off by chance.")
    return found


def _rows(
    calibration: BeliefCalibration, accuracy: float, fractions: tuple[float, ...] | None, classes: list[str]
) -> list[list[Any]]:
    """Name of a claim, its value before, after and as stated."""
    before, after = calibration.class_fractions_before, calibration.class_fractions
    stated = fractions or (None,) * len(classes)
    listed = sorted(sorted(range(len(classes)), key=lambda k: -abs(after[k] - before[k]))[:MOST_TABLE_CLASSES])
    return [
        ["right answers", calibration.accuracy_before, calibration.accuracy, accuracy],
        *([f"share of “{classes[k]}”", before[k], after[k], stated[k]] for k in listed),
    ]


def _histogram(before: FloatArray, after: FloatArray, classes: list[str]) -> dict[str, Any]:
    """Shares in equal bins: of the probability of the second of two classes, else of the largest probability."""
    two = len(classes) == 2
    edges = np.linspace(0, 1, HISTOGRAM_BINS + 1)
    values = [each[:, 1] if two else each.max(1) for each in (before, after)]
    first = 0 if two else int(HISTOGRAM_BINS / len(classes))
    shares = [(np.histogram(each.clip(0, 1), edges)[0] / len(each))[first:].tolist() for each in values]
    return {
        "before": shares[0],
        "after": shares[1],
        "ends": [f"{100 * edge:g}" for edge in edges[first:].round(3)],
        "title": f"probability of {classes[1]}, %" if two else "largest probability, %",
    }


def _written(file: Predictions, probs: FloatArray) -> str:
    """The file with corrected probabilities and everything else as it was."""
    kept = probs[:, 1:] if len(file.columns) == 1 else probs
    comma = file.separator != "," and any("," in row[k] for row in file.rows for k in file.columns)
    out = io.StringIO()
    writer = csv.writer(out, delimiter=file.separator, lineterminator="\n")
    if file.heading:
        writer.writerow(file.heading)
    place = {k: i for i, k in enumerate(file.columns)}
    for row, values in zip(file.rows, kept.tolist(), strict=True):
        texts = [f"{value:.8g}".replace(".", "," if comma else ".") for value in values]
        writer.writerow([texts[place[k]] if k in place else cell for k, cell in enumerate(row)])
    return out.getvalue()


def _command(
    file: Predictions, accuracy: float, fractions: tuple[float, ...] | None, concentration: float | None, name: object
) -> dict[str, str]:
    names = [file.heading[k] if file.heading else str(k + 1) for k in file.columns]
    path = name if isinstance(name, str) and name.isprintable() and name.lower().endswith(".csv") else "predictions.csv"
    words = ["selbo", "calibrate", f"./{path}" if path.startswith("-") else path, "--accuracy", f"{accuracy!r}"]
    if file.heading:
        for each, fraction in zip(file.classes, fractions or (), strict=False):
            words += ["--class-fraction", f"{each}={fraction!r}"]
    else:
        words.append("--no-header")
        words += [] if fractions is None else ["--class-fractions", ",".join(map(repr, fractions))]
    if concentration is not None:
        words += ["--concentration", f"{concentration:g}"]
    if not any("," in each for each in names):
        words += ["--columns", ",".join(names)]
    return {"text": f"{shlex.join([*words, '--out', 'calibrated.csv'])}\n", "note": ""}
