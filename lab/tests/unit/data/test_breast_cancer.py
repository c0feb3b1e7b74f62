"""The tumours of scikit-learn as a data set like the others."""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer

from selbo_lab.data.breast_cancer import breast_cancer


def test_parts_make_up_the_whole_class_by_class() -> None:
    parts = [breast_cancer(part) for part in ("train", "val", "test")]
    original = load_breast_cancer()
    features, malignant = torch.tensor(original.data).float(), torch.tensor(original.target == 0).float()
    together = torch.cat([torch.cat([part.inputs, part.labels[:, None].float()], 1) for part in parts])
    expected = torch.cat([features, malignant[:, None]], 1)
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, expected.tolist())), "each tumour with its class"
    assert [part.class_counts for part in parts] == [(215, 128), (71, 42), (71, 42)]
    assert parts[0].class_names[1] == original.target_names[0] == "malignant"


def test_a_seed_decides_the_parts() -> None:
    one, again, other = (breast_cancer("test", seed=seed).checksum for seed in (1, 1, 2))
    assert one == again != other
