"""The handwritten digits of scikit-learn, 8 x 8 pixels, made harder by noise and rare classes."""

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from selbo import _checks

NUM_CLASSES: Final = 10
NOISE: Final = 0.3
"""Standard deviation of the noise on every image, with pixels in [0, 1]: some digits become unrecognisable."""

RARITY: Final = 0.8
"""How much rarer each digit is than the one before it: nines are 7.5 times as rare as zeros."""

LEVELS: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Standard deviations of the noise added to corrupted test images."""

PHOTOGRAPH_PATCHES: Final = 600

GREY_LEVELS: Final = 16
"""Largest value of a pixel as scikit-learn stores it."""


@dataclass(frozen=True)
class NoisyDigits:
    """Noisy digits in three parts, with corrupted and out-of-distribution inputs.

    Attributes:
        train: Images (N, 64) and labels (N,).
        val: Images and labels for validation.
        test: Images and labels for testing.
        corrupted: The test images with added noise, by its level.
        photographs: Out-of-distribution inputs: patches of photographs, shape (M, 64).
        class_fractions: Share of each class in the population of all parts.
    """

    train: tuple[Tensor, Tensor]
    val: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    corrupted: dict[float, Tensor]
    photographs: Tensor
    class_fractions: tuple[float, ...]


def noisy_digits(seed: int, *, num_train: int = 300, num_val: int = 150) -> NoisyDigits:
    """Noisy digits, with each class rarer than the one before.

    Args:
        seed: Seed for the split and the noise; the same for all compared methods.
        num_train: Number of training images.
        num_val: Number of validation images; the rest, about 400, is for testing.

    Returns:
        Training, validation, test and corrupted images, and photographs.
    """
    datasets = sklearn_datasets("the digits come")
    images, labels = (torch.tensor(array) for array in datasets.load_digits(return_X_y=True))
    images, labels = images.float() / GREY_LEVELS, labels.long()
    generator = torch.Generator().manual_seed(seed)
    chosen = thin_out(labels, rarity=RARITY, generator=generator)
    _checks.whole("num_train", num_train, at_least=1)
    _checks.whole("num_val", num_val, at_least=1)
    if num_train + num_val >= len(chosen):
        raise ValueError(
            f"`num_train` and `num_val` must leave test images of {len(chosen)}, but got {num_train} and {num_val}"
        )
    images, labels = images[chosen], labels[chosen]
    noisy = images + NOISE * torch.randn(images.shape, generator=generator)
    parts = torch.arange(len(labels)).split([num_train, num_val, len(labels) - num_train - num_val])
    train, val, test = ((noisy[rows], labels[rows]) for rows in parts)
    more = torch.randn(test[0].shape, generator=generator)
    powers = torch.tensor([RARITY**k for k in range(NUM_CLASSES)])
    return NoisyDigits(
        train=train,
        val=val,
        test=test,
        corrupted={level: test[0] + level * more for level in LEVELS},
        photographs=photograph_patches(datasets, generator=generator),
        class_fractions=tuple((powers / powers.sum()).tolist()),
    )


def thin_out(labels: Tensor, *, rarity: float, generator: torch.Generator) -> Tensor:
    """Rows, in random order, such that class k is ``rarity`` times as frequent as class k - 1."""
    order = torch.randperm(len(labels), generator=generator)
    sizes = labels.bincount()
    kept = [order[labels[order] == k][: int(sizes.min() * rarity**k)] for k in range(len(sizes))]
    rows = torch.cat(kept)
    return rows[torch.randperm(len(rows), generator=generator)]


def photograph_patches(datasets: Any, *, generator: torch.Generator) -> Tensor:
    """Patches of 8 x 8 pixels from two photographs, grey, between 0 and 1: (M, 64)."""
    pictures = [torch.tensor(picture).float().mean(-1) / 255 for picture in datasets.load_sample_images().images]
    patches = []
    for picture in pictures:
        small = picture.unfold(0, 8, 8).unfold(1, 8, 8).reshape(-1, 64)
        chosen = torch.randperm(len(small), generator=generator)[: PHOTOGRAPH_PATCHES // len(pictures)]
        patches.append(small[chosen])
    return torch.cat(patches)


def sklearn_datasets(what: str) -> Any:
    """scikit-learn's module of data sets; ``what`` begins the error message if it is missing."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ValueError(f"{what} with scikit-learn: pip install 'selbo[cli]'") from error
    return datasets
