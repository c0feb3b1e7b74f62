"""Wisconsin breast cancer: tumours described by thirty features, benign or malignant; part of scikit-learn."""

from typing import Final

import torch

from selbo.checks import one_of
from selbo.tabular import split
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.digits import PART_SHARE
from selbo_lab.data.splits import PARTS

TUMOUR_CLASSES: Final = ("benign", "malignant")
BREAST_CANCER_LICENCE: Final = (
    "CC BY 4.0 (W. Wolberg, O. Mangasarian, N. Street and W. Street), as the UCI repository states"
)


def breast_cancer(part: str, *, seed: int = 0) -> LabelledData:
    """The 569 tumours: three fifths of each class for training, one for validation, one for testing.

    Args:
        part: "train", "val" or "test".
        seed: Seed for the split; the same for all compared methods.

    Returns:
        Features (N, 30) of type float32, not standardised; class 1 is malignant.
    """
    one_of("part", part, PARTS)
    from sklearn.datasets import load_breast_cancer

    features, benign = load_breast_cancer(return_X_y=True)
    labels = 1 - benign
    rows = getattr(split(labels, test_fraction=PART_SHARE, val_fraction=PART_SHARE, seed=seed), part)
    return LabelledData(
        name=f"breast-cancer {part}, split with seed {seed}",
        inputs=torch.tensor(features[rows]).float(),
        labels=torch.tensor(labels[rows]).long(),
        class_names=TUMOUR_CLASSES,
        source="scikit-learn, load_breast_cancer: UCI's Breast Cancer Wisconsin (Diagnostic)",
        licence=BREAST_CANCER_LICENCE,
    )
