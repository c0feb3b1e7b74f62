"""Colours of methods are told apart by colour-blind readers too, on both papers of the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

import numpy as np
import pytest

from selbo.plots import methods

SIGHT = {
    "normal": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""What is left of linear sRGB (Machado et al., 2009, severity 1)."""

XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colours: Sequence[str]) -> np.ndarray:
    rgb = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in colours])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def cielab(rgb: np.ndarray) -> np.ndarray:
    xyz = rgb @ XYZ.T / XYZ.sum(1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1)


@pytest.mark.parametrize(("scheme", "paper", "apart"), [(0, "#ffffff", 21), (1, "#15181d", 18)])
def test_colours_of_methods_are_told_apart(scheme: int, paper: str, apart: float) -> None:
    css = resources.files("selbo.report").joinpath("page.css").read_text(encoding="utf-8")
    assert re.findall(r"--paper: (#\w+)", css)[scheme] == paper
    colours = [re.findall(rf"--m{i}: (#\w+)", css)[scheme] for i in range(len(methods.METHOD_COLOURS))]
    if scheme == 0:
        assert colours == list(methods.METHOD_COLOURS)
    rgb, (behind,) = linear(colours), linear([paper]) @ XYZ[1]
    lightness = rgb @ XYZ[1]
    contrast = (np.maximum(lightness, behind) + 0.05) / (np.minimum(lightness, behind) + 0.05)
    assert contrast.min() > 3.3
    for kind, left in SIGHT.items():
        seen = cielab(np.clip(rgb @ np.asarray(left).T, 0, 1))
        distances = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[np.triu_indices(len(seen), 1)]
        assert distances.min() > apart, kind
