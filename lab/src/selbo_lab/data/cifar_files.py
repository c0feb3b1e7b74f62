"""The raw files of CIFAR-10, binary version, and of CIFAR-10-C."""

import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo_lab.data import store
from selbo_lab.data.arrays import open_npy
from selbo_lab.data.corruptions import cifar as corruptions
from selbo_lab.data.store import Download, RawFile, Source

CIFAR_CLASSES: Final = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

RECORDS: Final = 10_000
"""Number of records per file."""

RECORD_BYTES: Final = 1 + 3 * 32 * 32
"""A label, then the red, the green and the blue pixels, row by row."""

TRAIN_FILES: Final = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
CIFAR_TEST_FILE: Final = "test_batch.bin"

CIFAR_LICENCE: Final = "none stated (A. Krizhevsky, V. Nair and G. Hinton); its authors ask to cite Krizhevsky (2009)"


# --- CIFAR-10 ---


def read_batch(path: Path) -> tuple[Tensor, Tensor]:
    """One file of the binary version: images (N, 3, 32, 32) of bytes and labels (N,).

    Raises:
        ValueError: If it does not hold exactly the records that a file has, or a label is not of the ten.
    """
    size, expected = path.stat().st_size, RECORDS * RECORD_BYTES
    if size != expected:
        whole = "" if size % RECORD_BYTES == 0 else f", which is no multiple of {RECORD_BYTES}"
        raise ValueError(
            f"{os.fspath(path)!r} must hold {RECORDS} records of {RECORD_BYTES} bytes, {expected} in all, "
            f"but got {size}{whole}"
        )
    records = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).reshape(RECORDS, RECORD_BYTES)
    labels = records[:, 0].long()
    if int(labels.max()) >= len(CIFAR_CLASSES):
        raise ValueError(
            f"{os.fspath(path)!r} must hold labels from 0 to {len(CIFAR_CLASSES) - 1}, but the largest is "
            f"{int(labels.max())}: it may be another file, such as CIFAR-100's"
        )
    return records[:, 1:].reshape(RECORDS, 3, 32, 32), labels


def _check_batch(path: Path) -> None:
    read_batch(path)


_DIGESTS: Final = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
"""SHA-256; the archive's is published, these were taken from its files."""

CIFAR10: Final = Source(
    name="cifar10",
    files=tuple(
        RawFile(name, digest=f"sha256:{digest}", size=RECORDS * RECORD_BYTES, check=_check_batch)
        for name, digest in _DIGESTS.items()
    ),
    downloads=(
        Download(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",  # MD5 there: c32a1d4ab5d03f1284b67883e8d87530
            digest="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            size=170_052_171,
            gives=tuple(_DIGESTS),
        ),
    ),
    title="CIFAR-10, photographs, binary version",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    licence=CIFAR_LICENCE,
)


# --- CIFAR-10-C ---

LABELS_FILE: Final = "labels.npy"

CIFAR_C_LICENCE: Final = (
    "CC BY 4.0 (D. Hendrycks and T. Dietterich), as stated on Zenodo; the images derive from CIFAR-10"
)


def cifar_c_file(corruption: str) -> str:
    """Name of the file of a corruption."""
    return f"{corruption}.npy"


def _rows_in_all() -> int:
    return len(corruptions.SEVERITIES) * RECORDS


def open_c_images(path: Path) -> NDArray[Any]:
    """The images of one corruption, all severities one after the other, mapped: (50 000, 32, 32, 3).

    Raises:
        ValueError: If it is no such file.
    """
    return open_npy(path, shape=(_rows_in_all(), 32, 32, 3), kinds="B")


def read_c_labels(path: Path) -> Tensor:
    """Labels of one severity, shape (10 000,): the file holds them once for each, all the same.

    Raises:
        ValueError: If it does not, or the classes are not equally frequent as in CIFAR-10's test part.
    """
    stored = torch.from_numpy(np.array(open_npy(path, shape=(_rows_in_all(),), kinds="iu"), dtype=np.int64))
    each = stored.reshape(len(corruptions.SEVERITIES), -1)
    if not bool((each == each[0]).all()):
        raise ValueError(f"{os.fspath(path)!r} must hold the same labels for each severity, but they differ")
    if int(stored.min()) < 0 or int(stored.max()) >= len(CIFAR_CLASSES):
        raise ValueError(
            f"{os.fspath(path)!r} must hold labels from 0 to 9, but got {int(stored.min())} to {int(stored.max())}"
        )
    counts = each[0].bincount(minlength=len(CIFAR_CLASSES))
    if int(counts.min()) != int(counts.max()):
        raise ValueError(
            f"{os.fspath(path)!r} must hold each class equally often, as CIFAR-10's test part does, but got "
            f"{counts.tolist()}"
        )
    return each[0].clone()


def _check_c_images(path: Path) -> None:
    open_c_images(path)


def _check_c_labels(path: Path) -> None:
    labels = read_c_labels(path)
    if not store.present(CIFAR10, [CIFAR_TEST_FILE]):
        return
    if not torch.equal(labels, read_batch(store.locate(CIFAR10, CIFAR_TEST_FILE))[1]):
        raise ValueError(f"{os.fspath(path)!r} must hold the labels of CIFAR-10's test part, but differs from them")


CIFAR10_C: Final = Source(
    name="cifar10-c",
    files=(
        *(RawFile(cifar_c_file(name), check=_check_c_images) for name in corruptions.CIFAR_CORRUPTIONS),
        RawFile(LABELS_FILE, check=_check_c_labels),
    ),
    downloads=(
        Download(
            "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",  # MD5 there: 56bf5dcef84df0e2308c6dcbcbbd8499
            digest="sha256:c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7",
            size=2_918_471_680,
            gives=(*map(cifar_c_file, corruptions.CIFAR_CORRUPTIONS), LABELS_FILE),
        ),
    ),
    title="CIFAR-10-C, corrupted photographs",
    homepage="https://zenodo.org/records/2535967",
    licence=CIFAR_C_LICENCE,
)
