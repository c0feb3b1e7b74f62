"""A calibration in a file: the correction, the classes it is for, and what was stated."""

import math
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from selbo.evaluation.belief_calibration import BeliefCalibration
from selbo.tabular.json_files import OtherVersionError, read_json, write_json

CALIBRATION_FORMAT: Final = "selbo-calibration-1"


@dataclass(frozen=True)
class SavedCalibration:
    """A correction of the predictions of one classifier.

    Attributes:
        classes: Names of the classes, in the order of the offsets.
        calibration: The correction.
        accuracy: Accuracy that was stated; None if none was.
        class_fractions: Class fractions that were stated, in the order of the classes; None if none were.
    """

    classes: tuple[str, ...]
    calibration: BeliefCalibration
    accuracy: float | None = None
    class_fractions: tuple[float, ...] | None = None


def save_calibration(saved: SavedCalibration, path: Path) -> None:
    """Write a calibration as JSON, atomically."""
    stated = None if saved.class_fractions is None else dict(zip(saved.classes, saved.class_fractions, strict=True))
    content = {
        "format": CALIBRATION_FORMAT,
        "classes": list(saved.classes),
        "stated": {"accuracy": saved.accuracy, "class_fractions": stated},
        "calibration": saved.calibration.to_dict(),
    }
    write_json(path, content)


def load_calibration(path: Path) -> SavedCalibration:
    """Read a calibration that `save_calibration` wrote.

    Raises:
        ValueError: If it is not such a file, or damaged.
    """
    if not path.exists():
        raise ValueError(f"the calibration {os.fspath(path)!r} is not there")
    try:
        content = read_json(path, kind=CALIBRATION_FORMAT)
    except OtherVersionError:
        raise ValueError(f"{os.fspath(path)!r} was written by another version of selbo: calibrate again") from None
    try:
        return _from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{os.fspath(path)!r} is damaged: write it again with selbo calibrate --save") from error


def _from_json(content: dict[str, Any]) -> SavedCalibration:
    classes, found, stated = content["classes"], content["calibration"], content["stated"]
    if not (isinstance(classes, list) and len(set(classes)) == len(classes) > 1):
        raise ValueError("the classes are not a list of names")
    per_class = ("offsets", "class_fractions", "class_fractions_before", "offset_errors")
    values: dict[str, Any] = {
        each.name: [float(value) for value in found[each.name]] if each.name in per_class else float(found[each.name])
        for each in fields(BeliefCalibration)
    }
    numbers = [value for each in values.values() for value in (each if isinstance(each, list) else [each])]
    if any(len(values[name]) != len(classes) for name in per_class) or not all(map(math.isfinite, numbers)):
        raise ValueError("there must be one finite number per class")
    if not (values["temperature"] > 0 and 0 < values["floor"] < 1):
        raise ValueError("the temperature and the floor must be positive")
    accuracy, fractions = stated["accuracy"], stated["class_fractions"]
    return SavedCalibration(
        tuple(str(name) for name in classes),
        BeliefCalibration.from_dict({**values, "num_inputs": int(values["num_inputs"])}),
        None if accuracy is None else float(accuracy),
        None if fractions is None else tuple(float(fractions[name]) for name in classes),
    )
