"""Edges, distances and equalisation of the drops of spatter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from selbo.random import generator_for
from selbo_lab.data.corruptions import liquid


def test_distances_are_scipys(seed: int) -> None:
    points = torch.rand(6, 17, 13, generator=generator_for(seed, "points")) < 0.03
    points[0] = False
    found = liquid.distance_to(points, most=9.0)
    assert found.shape == points.shape
    for image in range(1, 6):
        if points[image].any():
            expected = ndimage.distance_transform_edt(~points[image].numpy()).clip(max=9)
            np.testing.assert_allclose(found[image].numpy(), expected, rtol=1e-6)
    assert found[0].unique().tolist() == [9.0]


def test_edges_lie_on_the_side_of_a_square() -> None:
    images = torch.zeros(2, 20, 20)
    images[0, 5:13, 6:15] = 200
    images[1] = torch.arange(20) * 5.0  # a slope of 40 in all: below both thresholds
    edges = liquid.canny(images, 50, 150)
    assert not edges[1].any()
    distance = torch.full((20, 20), 9)
    distance[4:14, 5:16] = 1
    distance[6:12, 7:14] = 9
    assert (distance[edges[0]] == 1).all()
    assert 25 < edges[0].sum() < 45  # thin: the square is 34 around


def test_weak_edges_count_where_they_touch_a_strong_one() -> None:
    images = torch.zeros(2, 16, 16)
    images[0, :8, 8:], images[0, 8:, 8:] = 100, 25  # a strong step that goes on as a weak one
    images[1, :, 8:] = 25
    edges = liquid.canny(images, 50, 150)
    assert edges[0, 12].any()
    assert not edges[1].any()


def test_equalised_levels_fill_the_range_in_order(seed: int) -> None:
    levels = torch.randint(3, 21, (4, 16, 16), generator=generator_for(seed, "levels")).float()
    levels[3] = 7
    found = liquid.equalised(levels)
    assert found[:3].amin((1, 2)).tolist() == [0] * 3
    assert found[:3].amax((1, 2)).tolist() == [255] * 3
    assert (found[3] == 7).all()
    order = levels[0].flatten().argsort(stable=True)
    assert (found[0].flatten()[order].diff() >= 0).all()
    below = (levels[0] == 10).sum() + ((levels[0] > levels[0].min()) & (levels[0] < 10)).sum()
    expected = 255 * below / (256 - (levels[0] == levels[0].min()).sum())
    assert found[0][levels[0] == 10].unique().tolist() == pytest.approx([expected.round().item()])
