"""What regions tell of confidence and class holds for predictions that fall into them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from selbo.summary.partitions import ClassRegions, ConfidenceBins, CornerShells, ScoreBins
from selbo.summary.ranges import accuracy_range, class_ranges, confidence_ranges, predicted_class


@pytest.mark.parametrize(
    "partition",
    [ScoreBins([0.1, 0.45, 0.7]), CornerShells(4, [0.6, 0.9]), ClassRegions(3), ConfidenceBins([0.4, 0.8], 5)],
    ids=lambda partition: type(partition).__name__,
)
def test_what_a_histogram_allows_holds_for_predictions(partition: object, seed: int) -> None:
    """Accuracy and classes of random predictions lie in the ranges of their own histogram."""
    draws = np.random.default_rng(seed)
    probs = torch.from_numpy(draws.dirichlet(np.full(partition.num_classes, 0.5), 500))
    regions = partition.assign(probs.log()).numpy()
    top = probs.max(-1).values.numpy()
    ranges = confidence_ranges(partition)
    assert (ranges[regions, 0] <= top + 1e-12).all()
    assert (top <= ranges[regions, 1] + 1e-12).all()
    s0 = np.bincount(regions, minlength=partition.num_regions) / 500
    low, high = accuracy_range(partition, s0)
    assert low <= top.mean() <= high
    predicted = np.bincount(probs.argmax(-1).numpy(), minlength=partition.num_classes) / 500
    allowed = class_ranges(partition, s0)
    assert (allowed[:, 0] <= predicted + 1e-12).all()
    assert (predicted <= allowed[:, 1] + 1e-12).all()


def test_an_edge_at_one_half_is_one_whatever_its_last_digit() -> None:
    assert predicted_class(ScoreBins([0.1, 1 - 0.4999999999999999])) == [0, 0, 1]
    assert predicted_class(ScoreBins([0.1, 0.6])) == [0, None, 1]
