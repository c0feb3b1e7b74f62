"""Handwritten digits of 8 x 8 pixels, which come with scikit-learn."""

from typing import Final

import torch

from selbo.checks import one_of
from selbo.tabular import split
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.splits import PARTS

NUM_DIGIT_CLASSES: Final = 10

LARGEST_GREY: Final = 16
"""Largest value of a pixel as scikit-learn stores it."""

DIGITS_LICENCE: Final = "CC BY 4.0 (E. Alpaydin and C. Kaynak), as the UCI repository states"

PART_SHARE: Final = 0.2
"""Share of each class for validation, and the same for testing."""


def digits(part: str, *, seed: int = 0) -> LabelledData:
    """The 1797 digits: three fifths of each class for training, one for validation, one for testing.

    Args:
        part: "train", "val" or "test".
        seed: Seed for the split; the same for all compared methods.

    Returns:
        Features (N, 64) of type float32 between 0 and 1, the pixels row by row.
    """
    one_of("part", part, PARTS)
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rows = getattr(split(labels, test_fraction=PART_SHARE, val_fraction=PART_SHARE, seed=seed), part)
    return LabelledData(
        name=f"digits {part}, split with seed {seed}",
        inputs=torch.tensor(images[rows]).float() / LARGEST_GREY,
        labels=torch.tensor(labels[rows]).long(),
        class_names=tuple(map(str, range(NUM_DIGIT_CLASSES))),
        source="scikit-learn, load_digits: the test part of UCI's Optical Recognition of Handwritten Digits",
        licence=DIGITS_LICENCE,
    )
