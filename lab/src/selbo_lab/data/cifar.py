"""CIFAR-10, whole or with rare classes, and its test part with the corruptions of CIFAR-10-C, official or generated."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F

from selbo.checks import one_of
from selbo_lab.data import cifar_files, store
from selbo_lab.data.cifar_files import (
    CIFAR10,
    CIFAR10_C,
    CIFAR_C_LICENCE,
    CIFAR_CLASSES,
    CIFAR_LICENCE,
    LABELS_FILE,
    cifar_c_file,
)
from selbo_lab.data.corruptions import cifar as corruptions
from selbo_lab.data.dataset import LabelledData, Normalisation
from selbo_lab.data.imbalance import geometric_ratios, imbalanced
from selbo_lab.data.splits import ORIGINS, PARTS, random_split

VALIDATION_SIZE: Final = 5_000

CIFAR_SPLIT_SEED: Final = 42
"""Seed of the validation split, as in the paper's experiments."""

CIFAR_NORMALISATION: Final = Normalisation(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
"""Mean and standard deviation of the pixels of the 50 000 training images, by channel."""

IMBALANCE: Final = geometric_ratios(len(CIFAR_CLASSES))
"""Share of each class that the imbalanced version keeps: 1, 1/2, 1/4, …, 1/256, 1/256."""


def cifar10(part: str, *, seed: int = CIFAR_SPLIT_SEED) -> LabelledData:
    """CIFAR-10: 45 000 images for training, 5 000 for validation, 10 000 for testing.

    Args:
        part: "train", "val" or "test".
        seed: Seed for the choice of validation images; the default is that of the paper's experiments.

    Returns:
        Images (N, 3, 32, 32) of bytes.
    """
    one_of("part", part, PARTS)
    names = (cifar_files.CIFAR_TEST_FILE,) if part == "test" else cifar_files.TRAIN_FILES
    batches = [cifar_files.read_batch(store.locate(CIFAR10, name)) for name in names]
    images, labels = (torch.cat(tensors) for tensors in zip(*batches, strict=True))
    name = f"cifar10 {part}"
    if part != "test":
        train, val = random_split(len(labels), VALIDATION_SIZE, seed=seed)
        rows = train if part == "train" else val
        images, labels = images[rows], labels[rows]
        name += f", split with seed {seed}"
    return LabelledData(
        name=name,
        inputs=images,
        labels=labels,
        class_names=CIFAR_CLASSES,
        source="CIFAR-10, binary version",
        licence=CIFAR_LICENCE,
        normalisation=CIFAR_NORMALISATION,
    )


def cifar10_im(part: str, *, seed: int = CIFAR_SPLIT_SEED) -> LabelledData:
    """CIFAR-10 with rare classes: each is half as frequent as the one before it, and the last two are equally rare.

    Each part is thinned out separately and keeps the first images of each class: 9003 for training, 997 for validation
    and 2000 for testing, with the default seed. `selbo_lab.data.class_fractions(IMBALANCE)` gives the class fractions
    for a belief.

    Args:
        part: "train", "val" or "test".
        seed: Seed for the choice of validation images, before thinning.

    Returns:
        Images (N, 3, 32, 32) of bytes.
    """
    whole = cifar10(part, seed=seed)
    return replace(imbalanced(whole, IMBALANCE), name=whole.name.replace("cifar10", "cifar10-im", 1))


# --- corrupted ---


def cifar10_c(
    corruption: str, severity: int, *, seed: int = 0, origin: str = "auto", device: torch.device | str = "cpu"
) -> LabelledData:
    """The test part of CIFAR-10 with a corruption.

    Args:
        corruption: One of the nineteen.
        severity: From 1 to 5.
        seed: Seed for a generated corruption.
        origin: "official" reads the published files, "generated" corrupts CIFAR-10's test images here, and "auto" reads
            the published file of this corruption if it is in the store, and generates it if not.
        device: Device that generates it, and that it is returned on.

    Returns:
        Images (10 000, 3, 32, 32) of bytes, in the order of CIFAR-10's test part; `source` says which of the two they
        are.
    """
    official = _is_official(corruption, severity, origin)
    if official:
        return _official(corruption, severity).to(device)
    return _generated(cifar10("test").to(device), corruption, severity, seed)


def cifar10_im_c(
    corruption: str, severity: int, *, seed: int = 0, origin: str = "auto", device: torch.device | str = "cpu"
) -> LabelledData:
    """The test part of `cifar10_im` with a corruption.

    All test images are corrupted; the rows kept are those of the clean set.

    Args:
        corruption: One of the nineteen.
        severity: From 1 to 5.
        seed: Seed for a generated corruption.
        origin: As for `cifar10_c`.
        device: Device that generates it, and that it is returned on.

    Returns:
        Images (2000, 3, 32, 32) of bytes.
    """
    return _thinned(cifar10_c(corruption, severity, seed=seed, origin=origin, device=device))


def corrupted_sets(
    names: Sequence[str] | None = None,
    severities: Sequence[int] | None = None,
    *,
    imbalance: bool = False,
    seed: int = 0,
    origin: str = "auto",
    device: torch.device | str = "cpu",
) -> Iterator[tuple[str, int, LabelledData]]:
    """Corrupted test sets one after the other; only one is held in memory.

    Args:
        names: Corruptions; None takes all nineteen.
        severities: None takes all five.
        imbalance: Whether to thin each out as `cifar10_im_c` does.
        seed: Seed for generated corruptions.
        origin: As for `cifar10_c`.
        device: Device that generates them, and that they are returned on.

    Yields:
        Corruption, severity and the set.
    """
    chosen = [
        (name, severity, _is_official(name, severity, origin))
        for name in (corruptions.CIFAR_CORRUPTIONS if names is None else names)
        for severity in (corruptions.SEVERITIES if severities is None else severities)
    ]
    clean = None if all(official for *_, official in chosen) else cifar10("test").to(device)
    for name, severity, official in chosen:
        if official or clean is None:
            data = _official(name, severity).to(device)
        else:
            data = _generated(clean, name, severity, seed)
        yield name, severity, (_thinned(data) if imbalance else data)
        del data  # before the next one is made


def _is_official(corruption: str, severity: int, origin: str) -> bool:
    one_of("corruption", corruption, corruptions.CIFAR_CORRUPTIONS)
    one_of("origin", origin, ORIGINS)
    if severity not in corruptions.SEVERITIES:
        raise ValueError(f"`severity` must be one of {list(corruptions.SEVERITIES)}, but got {severity!r}")
    files = [cifar_c_file(corruption), LABELS_FILE]
    return origin == "official" or (origin == "auto" and store.present(CIFAR10_C, files))


def _official(corruption: str, severity: int) -> LabelledData:
    stored = cifar_files.open_c_images(store.locate(CIFAR10_C, cifar_c_file(corruption)))
    start = cifar_files.RECORDS * (severity - 1)
    images = torch.from_numpy(np.array(stored[start : start + cifar_files.RECORDS]))
    return LabelledData(
        name=f"cifar10-c {corruption} {severity}",
        inputs=images.permute(0, 3, 1, 2).contiguous(),
        labels=cifar_files.read_c_labels(store.locate(CIFAR10_C, LABELS_FILE)),
        class_names=CIFAR_CLASSES,
        source=f"CIFAR-10-C, official files, {corruption} at severity {severity}",
        licence=CIFAR_C_LICENCE,
        normalisation=CIFAR_NORMALISATION,
    )


def _generated(clean: LabelledData, corruption: str, severity: int, seed: int) -> LabelledData:
    return clean.with_inputs(
        corruptions.corrupt_cifar(clean.inputs, corruption, severity, seed=seed),
        name=f"cifar10-c {corruption} {severity}, generated with seed {seed}",
        source=f"{clean.source}; {corruption} of CIFAR-10-C at severity {severity} generated by selbo, not the "
        "official files",
    )


def _thinned(data: LabelledData) -> LabelledData:
    return replace(imbalanced(data, IMBALANCE), name=data.name.replace("cifar10-c", "cifar10-im-c", 1))


# --- a stand-in ---


def as_cifar(data: LabelledData) -> LabelledData:
    """Grey images of 28 x 28 pixels in the format of CIFAR-10, as inputs of networks trained on it.

    They get a border of two black pixels and three equal channels. A substitute if SVHN is not available; name and
    source say so, because results are not comparable with those for SVHN.

    Args:
        data: MNIST or FashionMNIST, images (N, 1, 28, 28) of bytes.

    Returns:
        Images (N, 3, 32, 32) of bytes, normalised as CIFAR-10 is.
    """
    if tuple(data.inputs.shape[1:]) != (1, 28, 28):
        raise ValueError(f"`data` must hold images of shape (1, 28, 28), but got {tuple(data.inputs.shape[1:])}")
    return LabelledData(
        name=f"{data.name}, as cifar",
        inputs=F.pad(data.inputs, (2, 2, 2, 2)).repeat(1, 3, 1, 1),
        labels=data.labels,
        class_names=data.class_names,
        source=f"{data.source}; padded to 32 x 32 pixels and repeated over three channels",
        licence=data.licence,
        normalisation=CIFAR_NORMALISATION,
    )
