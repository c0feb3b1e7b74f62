"""The digits of scikit-learn as a data set like the others."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits

from selbo_lab.data.digits import digits


def test_parts_make_up_the_whole_class_by_class() -> None:
    parts = [digits(part) for part in ("train", "val", "test")]
    images, labels = (torch.tensor(each) for each in load_digits(return_X_y=True))
    assert sum(map(len, parts)) == len(labels) == 1797
    rows = torch.cat([part.inputs for part in parts])
    together = torch.cat([rows * 16, torch.cat([part.labels for part in parts])[:, None]], dim=1)
    original = torch.cat([images.float(), labels[:, None].float()], dim=1)
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, original.tolist())), "each image with its label"
    for k, size in enumerate(labels.bincount().tolist()):
        assert [part.class_counts[k] for part in parts[1:]] == [round(size / 5)] * 2


def test_pixels_lie_between_zero_and_one() -> None:
    data = digits("train")
    assert data.inputs.shape[1:] == (64,)
    assert data.inputs.dtype == torch.float32
    assert (data.inputs.min(), data.inputs.max()) == (0, 1)
    assert torch.equal(data.network_inputs(), data.inputs)


def test_a_seed_decides_the_parts() -> None:
    assert digits("test", seed=1).checksum == digits("test", seed=1).checksum != digits("test", seed=2).checksum
