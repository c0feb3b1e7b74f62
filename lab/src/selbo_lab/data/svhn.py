"""House numbers of the test part of SVHN, out-of-distribution inputs for networks trained on CIFAR-10."""

import os
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo.checks import one_of
from selbo_lab.data import cifar, store
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.store import Download, RawFile, Source

SVHN_TEST_SIZE: Final = 26_032
SVHN_TEST_FILE: Final = "test_32x32.mat"

ZERO: Final = 10
"""How the file writes the digit 0, as MATLAB counts from 1."""

PLAIN: Final = frozenset(("double", "single", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))))
"""Purely numeric types of MATLAB."""


def read_mat(path: Path, *, count: int) -> tuple[Tensor, Tensor]:
    """Images (count, 3, 32, 32) of bytes and digits (count,) of a MATLAB file in format 5.

    Raises:
        ValueError: If it is no such file, is damaged, or holds anything but numbers under the names that are read.
    """
    name = os.fspath(path)
    shapes = {"X": (32, 32, 3, count), "y": (count, 1)}
    arrays = _load(path, shapes)
    images, labels = arrays["X"], arrays["y"].reshape(-1)
    if labels.dtype.kind not in "iuf" or not np.isin(labels, range(1, ZERO + 1)).all():
        raise ValueError(
            f"{name!r} must hold digits as whole numbers from 1 to {ZERO}, the last for 0, but got "
            f"{labels.dtype} from {labels.min()} to {labels.max()}"
        )
    pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1)))
    return pixels, torch.from_numpy(labels.astype(np.int64) % ZERO)


def _load(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Arrays of the shapes expected; names, types and shapes are looked at before anything is read."""
    from scipy.io import loadmat, whosmat
    from scipy.io.matlab import MatReadError

    name = os.fspath(path)
    try:
        found = {each: (shape, kind) for each, shape, kind in whosmat(path, appendmat=False)}
        for each, shape in shapes.items():
            if each not in found or found[each][0] != shape:
                came = f"shape {found[each][0]}" if each in found else f"only {sorted(found)}"
                raise ValueError(f"there must be an array {each!r} of shape {shape}, but got {came}")  # noqa: TRY301
            if found[each][1] not in ({"uint8"} if each == "X" else PLAIN):
                wanted = "bytes" if each == "X" else "numbers"
                raise ValueError(f"{each!r} must hold {wanted}, but got {found[each][1]}")  # noqa: TRY301
        return {key: np.asarray(value) for key, value in _values(loadmat(path, variable_names=list(shapes))).items()}
    except NotImplementedError:
        raise ValueError(f"{name!r} must be a MATLAB file in format 5, but is in format 7.3 (HDF5)") from None
    except (
        MatReadError,
        ValueError,
        TypeError,
        OSError,
        EOFError,
        KeyError,
        IndexError,
        OverflowError,
        zlib.error,
    ) as error:
        raise ValueError(f"{name!r} cannot be read as SVHN's MATLAB file: {error}") from error


def _values(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if not key.startswith("__")}


def _check(path: Path) -> None:
    read_mat(path, count=SVHN_TEST_SIZE)


SVHN: Final = Source(
    name="svhn",
    files=(
        RawFile(
            SVHN_TEST_FILE,
            digest="sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            size=64_275_384,
            check=_check,
        ),
    ),
    downloads=(
        Download(
            f"http://ufldl.stanford.edu/housenumbers/{SVHN_TEST_FILE}",  # MD5: eb5a983be6a315427106f1b164d9cef3
            digest="sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            size=64_275_384,
            gives=(SVHN_TEST_FILE,),
        ),
    ),
    title="SVHN, house numbers, test part",
    homepage="http://ufldl.stanford.edu/housenumbers/",
    licence="for non-commercial use only, as its homepage says (Y. Netzer et al.)",
)


def svhn(part: str = "test") -> LabelledData:
    """SVHN's cropped test images, normalised as CIFAR-10 is, because they are shown to networks trained on that.

    Args:
        part: "test" only.

    Returns:
        Images (26 032, 3, 32, 32) of bytes; class k is the digit k.
    """
    one_of("part", part, ("test",))
    images, digits = read_mat(store.locate(SVHN, SVHN_TEST_FILE), count=SVHN_TEST_SIZE)
    return LabelledData(
        name="svhn test",
        inputs=images,
        labels=digits,
        class_names=tuple(map(str, range(10))),
        source="SVHN, cropped digits, test_32x32.mat",
        licence=SVHN.licence,
        normalisation=cifar.CIFAR_NORMALISATION,
    )
