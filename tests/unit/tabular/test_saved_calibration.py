"""A calibration in a file: what is read is what was written, and a damaged file is one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from selbo.evaluation.belief_calibration import calibrate_to_belief
from selbo.tabular.saved_calibration import SavedCalibration, load_calibration, save_calibration

LOG_PROBS = torch.tensor([[0.99, 0.01], [0.02, 0.98], [0.97, 0.03]]).double().log()


def saved() -> SavedCalibration:
    stated = {"accuracy": 0.8, "class_fractions": (0.6, 0.4)}
    return SavedCalibration(("é", "spam"), calibrate_to_belief(LOG_PROBS, **stated), **stated)


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    save_calibration(saved(), tmp_path / "c.json")
    found = load_calibration(tmp_path / "c.json")
    assert found == saved()
    assert torch.equal(found.calibration(LOG_PROBS), saved().calibration(LOG_PROBS))


def change(*path: str, to: object) -> Callable[[dict[str, Any]], None]:
    def changed(content: dict[str, Any]) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = to

    return changed


@pytest.mark.parametrize(
    "damage",
    [
        change("classes", to=["a"]),
        change("classes", to=["a", "a"]),
        change("classes", to=None),
        change("stated", to=[]),
        change("stated", "class_fractions", to={"é": 0.6}),
        change("calibration", to={}),
        change("calibration", "temperature", to=0),
        change("calibration", "temperature", to="hot"),
        change("calibration", "offsets", to=[0.0]),
        change("calibration", "offsets", to=[0.0, float("nan")]),
        change("calibration", "floor", to=-1),
    ],
)
def test_damaged_files(damage: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    save_calibration(saved(), path)
    content = json.loads(path.read_text(encoding="utf-8"))
    damage(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=r"c\.json' is damaged: write it again with selbo calibrate --save"):
        load_calibration(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "selbo-model-2"}', "is not a file of selbo with the format 'selbo-calibration-1'"),
        ('{"format": "selbo-calibration-9"}', "was written by another version of selbo: calibrate again"),
        ("{", "cannot be read"),
    ],
)
def test_other_files(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_calibration(tmp_path / "c.json")
    with pytest.raises(ValueError, match="is not there"):
        load_calibration(tmp_path / "d.json")
