"""Dotted lines and zigzags: every picture is one of those that the published definition allows, redrawn here."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from selbo_lab.data.corruptions.mnist_lines import dotted_lines, zigzags

Points = list[tuple[float, float]]
"""Column and row of each."""


def drawn(points: Points) -> np.ndarray:
    """Column by column: the light of a piece falls with the vertical distance from it."""
    picture = np.zeros((28, 28))
    for (left, top), (right, bottom) in itertools.pairwise(points):
        for column in range(math.floor(left), min(math.ceil(right), 28)):
            middle = top + (bottom - top) * (column - left) / (right - left)
            for row in range(28):
                rest = 1 - abs(row - middle) / 2.3
                picture[row, column] += max(0.0, 1 + math.log(rest)) if rest > 0 else 0.0
    return picture.clip(0, 1)


def dots(start: int, end: int) -> np.ndarray:
    picture = drawn([(0, start), (27, end)])
    for column in range(28):
        if column % 4 < 2:
            picture[:, column] = 0
    return picture


def zigzag(start: int, drift: int) -> np.ndarray:
    """From column 2 to column 25: teeth of 2 pixels to either side, 4 pixels apart, turned with the line."""
    angle = math.atan2(drift, 23)
    length = math.hypot(drift, 23)
    points: Points = [(0, 0), (2, 2), (6, -2), (10, 2), (14, -2), (18, 2), (22, -2), (length, -1 / (length - 20))]
    turned = [
        (2 + x * math.cos(angle) - y * math.sin(angle), start + x * math.sin(angle) + y * math.cos(angle))
        for x, y in points
    ]
    return drawn(turned)


@pytest.mark.parametrize(("draw", "second"), [("dots", range(27)), ("zigzags", range(-5, 5))])
def test_each_picture_is_one_of_those_allowed(draw: str, second: range, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    pictures = (dotted_lines if draw == "dots" else zigzags)(120, 28, generator).double()
    cases = [(first, other) for first in range(27) for other in second]
    allowed = torch.tensor(np.stack([(dots if draw == "dots" else zigzag)(*case) for case in cases]))
    gaps = torch.cdist(pictures.flatten(1), allowed.flatten(1), p=math.inf)
    distance, nearest = gaps.min(1)
    assert distance.max() < 1e-4
    firsts, others = zip(*(cases[i] for i in nearest.tolist()), strict=True)
    assert len(set(firsts)) > 15
    assert len(set(others)) > 0.6 * len(second)
    assert pictures.max() <= 1
    assert pictures.amax((1, 2)).min() > 0.4, "no picture is without a line"
