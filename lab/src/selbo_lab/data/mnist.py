"""Fives against threes of MNIST, from the original idx files, and the same with the corruptions of MNIST-C."""

from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from selbo.checks import one_of
from selbo_lab.data import store
from selbo_lab.data.arrays import open_npy
from selbo_lab.data.corruptions import mnist as corruptions
from selbo_lab.data.dataset import LabelledData, Normalisation
from selbo_lab.data.idx import read_images, read_labels
from selbo_lab.data.splits import ORIGINS, PARTS, draw, random_split
from selbo_lab.data.store import Download, RawFile, Source

TRAIN_SIZE: Final = 60_000
MNIST_TEST_SIZE: Final = 10_000
NUM_DIGITS: Final = 10

DIGITS: Final = (5, 3)
"""The digit of class 0 and that of class 1, as in the paper."""

VALIDATION_SHARE: Final = 0.2
"""Share of the fives and threes of the training part that is held out for validation."""

MNIST_SPLIT_SEED: Final = 0
"""Seed of the validation split: the same for all training images, so that all runs use the same validation images."""

MNIST_NORMALISATION: Final = Normalisation(mean=(0.1307,), std=(0.3081,))
"""Mean and standard deviation of the pixels of all 60 000 training images."""

MNIST_LICENCE: Final = "CC BY-SA 3.0 (Y. LeCun and C. Cortes), as its distributors state; it derives from NIST data"
MNIST_C_LICENCE: Final = "CC BY 4.0 (N. Mu and J. Gilmer), as stated on Zenodo; the images derive from MNIST"

# --- raw files ---


def images_name(part: str) -> str:
    """Name of the idx file of images; ``part`` is "train" or "t10k"."""
    return f"{part}-images-idx3-ubyte.gz"


def labels_name(part: str) -> str:
    """Name of the idx file of labels; ``part`` is "train" or "t10k"."""
    return f"{part}-labels-idx1-ubyte.gz"


def idx_files(
    part: str, count: int, *, images: tuple[int, str, str], labels: tuple[int, str, str]
) -> tuple[RawFile, RawFile]:
    """Images and labels of one part; of each the size, and the SHA-256 packed and unpacked."""
    return (
        RawFile(
            images_name(part),
            digest=f"sha256:{images[1]}",
            size=images[0],
            unpacked_digest=f"sha256:{images[2]}",
            check=partial(_check_images, count=count),
        ),
        RawFile(
            labels_name(part),
            digest=f"sha256:{labels[1]}",
            size=labels[0],
            unpacked_digest=f"sha256:{labels[2]}",
            check=partial(_check_labels, count=count),
        ),
    )


def _check_images(path: Path, *, count: int) -> None:
    read_images(path, count=count)


def _check_labels(path: Path, *, count: int) -> None:
    read_labels(path, count=count, num_classes=NUM_DIGITS)


def build_downloads(files: tuple[RawFile, ...], *addresses: str) -> tuple[Download, ...]:
    """One download per file, from folders that hold the files under their names."""
    return tuple(
        Download(
            f"{addresses[0]}/{file.name}",
            digest=file.digest,
            size=file.size,
            gives=(file.name,),
            mirrors=tuple(f"{address}/{file.name}" for address in addresses[1:]),
        )
        for file in files
    )


# The packed files have the published MD5 sums f68b3c2d…, d53e105e…, 9fb629c4… and ec29112d….
_FILES: Final = (
    *idx_files(
        "train",
        TRAIN_SIZE,
        images=(
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        labels=(
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
    ),
    *idx_files(
        "t10k",
        MNIST_TEST_SIZE,
        images=(
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        labels=(
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
)

MNIST: Final = Source(
    name="mnist",
    files=_FILES,
    downloads=build_downloads(
        _FILES,
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    title="MNIST, handwritten digits",
    homepage="http://yann.lecun.com/exdb/mnist/",
    licence=MNIST_LICENCE,
)


def mnist_c_file(corruption: str) -> str:
    """Name of the file with the test images of a corruption."""
    return f"mnist_c/{corruption}/test_images.npy"


def c_labels_name(corruption: str) -> str:
    """Name of the file with the test labels of a corruption."""
    return f"mnist_c/{corruption}/test_labels.npy"


def _check_c_images(path: Path) -> None:
    open_npy(path, shape=(MNIST_TEST_SIZE, 28, 28, 1), kinds="B")


def _check_c_labels(path: Path) -> None:
    labels = _read_c_labels(path)
    if store.present(MNIST, [labels_name("t10k")]) and not torch.equal(labels, _read_digits("t10k", MNIST_TEST_SIZE)):
        raise ValueError(f"'{path}' must hold the labels of MNIST's test part, but differs from them")


def _read_c_labels(path: Path) -> Tensor:
    labels = torch.from_numpy(np.array(open_npy(path, shape=(MNIST_TEST_SIZE,), kinds="iu"), dtype=np.int64))
    if int(labels.min()) < 0 or int(labels.max()) >= NUM_DIGITS:
        raise ValueError(f"'{path}' must hold labels from 0 to 9, but got {int(labels.min())} to {int(labels.max())}")
    return labels


_C_FILES: Final = tuple(
    file
    for name in corruptions.MNIST_CORRUPTIONS
    for file in (
        RawFile(mnist_c_file(name), check=_check_c_images),
        RawFile(c_labels_name(name), check=_check_c_labels),
    )
)

MNIST_C: Final = Source(
    name="mnist-c",
    files=_C_FILES,
    downloads=(
        Download(
            "https://zenodo.org/records/3239543/files/mnist_c.zip",
            digest="md5:4b34b33045869ee6d424616cd3a65da3",
            size=None,
            gives=tuple(file.name for file in _C_FILES),
        ),
    ),
    title="MNIST-C, corrupted digits",
    homepage="https://zenodo.org/records/3239543",
    licence=MNIST_C_LICENCE,
)


# --- loaders ---


def read_part(part: str) -> tuple[Tensor, Tensor]:
    """All ten digits: images (N, 1, 28, 28) of bytes and labels (N,); ``part`` is "train" or "t10k"."""
    count = TRAIN_SIZE if part == "train" else MNIST_TEST_SIZE
    return read_images(store.locate(MNIST, images_name(part)), count=count), _read_digits(part, count)


def _read_digits(part: str, count: int) -> Tensor:
    return read_labels(store.locate(MNIST, labels_name(part)), count=count, num_classes=NUM_DIGITS)


def mnist(part: str = "test") -> LabelledData:
    """All ten digits of MNIST's test part, as out-of-distribution inputs.

    Args:
        part: "test" only.

    Returns:
        Images (10 000, 1, 28, 28) of bytes.
    """
    one_of("part", part, ("test",))
    images, digits = read_part("t10k")
    return LabelledData(
        name="mnist test",
        inputs=images,
        labels=digits,
        class_names=tuple(map(str, range(NUM_DIGITS))),
        source="MNIST, original idx files",
        licence=MNIST_LICENCE,
        normalisation=MNIST_NORMALISATION,
    )


def _rows_of_two(digits: Tensor) -> Tensor:
    """Rows of fives and threes, in their order."""
    return ((digits == DIGITS[0]) | (digits == DIGITS[1])).nonzero().squeeze(1)


def _two_digits(
    name: str, images: Tensor, digits: Tensor, *, source: str, licence: str = MNIST_LICENCE
) -> LabelledData:
    return LabelledData(
        name=name,
        inputs=images.contiguous(),
        labels=(digits == DIGITS[1]).long(),
        class_names=tuple(map(str, DIGITS)),
        source=source,
        licence=licence,
        normalisation=MNIST_NORMALISATION,
    )


def mnist35(part: str, *, train_size: int | None = None, seed: int = 0) -> LabelledData:
    """Fives (class 0) and threes (class 1) of MNIST.

    A fifth of the fives and threes of MNIST's training part is held out for validation, always the same images.
    Training images are drawn from the rest with a seed; a smaller set is the beginning of a larger one with the same
    seed.

    Args:
        part: "train", "val" or "test"; the last is all of MNIST's test part, 892 fives and 1010 threes.
        train_size: Number of training images, 1000 or 8000 in the paper; None takes all 9242.
        seed: Seed for the choice of training images; the same for all compared methods.

    Returns:
        Images (N, 1, 28, 28) of bytes.
    """
    one_of("part", part, PARTS)
    images, digits = read_part("t10k" if part == "test" else "train")
    rows = _rows_of_two(digits)
    name = f"mnist35 {part}"
    if part != "test":
        train, val = random_split(len(rows), round(VALIDATION_SHARE * len(rows)), seed=MNIST_SPLIT_SEED)
        if part == "train":
            train = draw(train, train_size, seed=seed, purpose="mnist35 train")
            name += f", {len(train)} drawn with seed {seed}"
        rows = rows[train if part == "train" else val]
    return _two_digits(name, images[rows], digits[rows], source="MNIST, original idx files; digits 5 and 3 only")


def mnist35_c(corruption: str, *, seed: int = 0, origin: str = "auto") -> LabelledData:
    """The test part of `mnist35` with a corruption of MNIST-C.

    Args:
        corruption: One of the fifteen.
        seed: Seed for a generated corruption.
        origin: "official" reads the published files, "generated" corrupts MNIST's test images here, and "auto" reads
            the published files of this corruption if they are in the store, and generates it if not.

    Returns:
        Images (1902, 1, 28, 28) of bytes; the source says which of the two they are.
    """
    one_of("corruption", corruption, corruptions.MNIST_CORRUPTIONS)
    one_of("origin", origin, ORIGINS)
    files = [mnist_c_file(corruption), c_labels_name(corruption)]
    if origin == "official" or (origin == "auto" and store.present(MNIST_C, files)):
        stored = open_npy(store.locate(MNIST_C, files[0]), shape=(MNIST_TEST_SIZE, 28, 28, 1), kinds="B")
        digits = _read_c_labels(store.locate(MNIST_C, files[1]))
        rows = _rows_of_two(digits)
        images = torch.from_numpy(np.array(stored[rows.numpy()])).permute(0, 3, 1, 2)
        return _two_digits(
            f"mnist35-c {corruption}",
            images,
            digits[rows],
            source=f"MNIST-C, official files, {corruption}; digits 5 and 3 of the test part",
            licence=MNIST_C_LICENCE,
        )
    clean = mnist35("test")
    return clean.with_inputs(
        corruptions.corrupt_mnist(clean.inputs, corruption, seed=seed),
        name=f"mnist35-c {corruption}, generated with seed {seed}",
        source=f"{clean.source}; {corruption} of MNIST-C generated by selbo, not the official files",
    )
