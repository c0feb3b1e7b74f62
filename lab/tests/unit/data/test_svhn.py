"""SVHN's MATLAB file, made by scipy: axes, the digit 0, and files that are something else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from selbo_lab.data import cifar, svhn

COUNT = 12


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (32, 32, 3, COUNT)).astype(np.uint8)


@pytest.fixture
def digits() -> np.ndarray:
    return (np.arange(COUNT)[:, None] % 10 + 1).astype(np.uint8)


def written(folder: Path, content: dict[str, object], **options: object) -> Path:
    path = folder / "test_32x32.mat"
    scipy.io.savemat(path, content, **options)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("packed", [True, False])
def test_axes_and_the_digit_0(tmp_path: Path, pixels: np.ndarray, digits: np.ndarray, packed: bool) -> None:
    images, labels = svhn.read_mat(
        written(tmp_path, {"X": pixels, "y": digits, "note": "x"}, do_compression=packed), count=COUNT
    )
    assert images.shape == (COUNT, 3, 32, 32)
    assert images[7, 2, 4, 9] == pixels[4, 9, 2, 7]
    assert labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert labels.dtype == torch.int64


def test_the_test_part(
    data_root: Path, monkeypatch: pytest.MonkeyPatch, pixels: np.ndarray, digits: np.ndarray
) -> None:
    monkeypatch.setattr(svhn, "SVHN_TEST_SIZE", COUNT)
    (data_root / "svhn").mkdir(parents=True)
    written(data_root / "svhn", {"X": pixels, "y": digits.astype(float)})
    data = svhn.svhn()
    assert data.class_counts == (1, 2, 2, 1, 1, 1, 1, 1, 1, 1)
    assert data.normalisation == cifar.CIFAR_NORMALISATION
    with pytest.raises(ValueError, match="`part` must be one of"):
        svhn.svhn("train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": None}, "there must be an array 'X' of shape"),
        ({"y": None}, "there must be an array 'y' of shape"),
        ({"X": np.zeros((32, 32, 3, COUNT + 1), np.uint8)}, r"\(32, 32, 3, 12\), but got shape \(32, 32, 3, 13\)"),
        ({"X": np.zeros((COUNT, 32, 32, 3), np.uint8)}, "there must be an array 'X'"),
        ({"X": np.zeros((32, 32, 3, COUNT))}, "'X' must hold bytes, but got double"),
        ({"y": np.zeros((COUNT, 1))}, "whole numbers from 1 to 10, the last for 0, but got float64 from 0.0 to 0.0"),
        ({"y": np.full((COUNT, 1), 11)}, "but got int64 from 11 to 11"),
        ({"y": np.full((COUNT, 1), 1.5)}, "whole numbers from 1 to 10"),
        ({"y": np.full((COUNT, 1), np.nan)}, "whole numbers from 1 to 10"),
        ({"y": np.array([["a"]] * COUNT, dtype=object)}, "'y' must hold numbers, but got cell"),
        ({"y": np.full((COUNT, 1), 1j)}, "but got complex128"),
    ],
)
def test_other_content_is_refused(
    tmp_path: Path, pixels: np.ndarray, digits: np.ndarray, change: dict[str, object], message: str
) -> None:
    content = {name: value for name, value in {"X": pixels, "y": digits, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        svhn.read_mat(written(tmp_path, content), count=COUNT)


def test_a_struct_is_refused(tmp_path: Path, digits: np.ndarray) -> None:
    with pytest.raises(ValueError, match="there must be an array 'X'"):
        svhn.read_mat(written(tmp_path, {"X": {"field": 1}, "y": digits}), count=COUNT)


def test_damaged_files_are_refused(tmp_path: Path, pixels: np.ndarray, digits: np.ndarray) -> None:
    path = written(tmp_path, {"X": pixels, "y": digits}, do_compression=True)
    whole = path.read_bytes()
    broken = [whole[: len(whole) // 2], whole[:100], b"", b"no matlab " * 100, whole[:500] + bytes(400) + whole[900:]]
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read as SVHN's MATLAB file"):
            svhn.read_mat(path, count=COUNT)


def test_format_73_is_named(tmp_path: Path) -> None:
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n" + bytes(600))
    with pytest.raises(ValueError, match=r"in format 7\.3 \(HDF5\)"):
        svhn.read_mat(path, count=COUNT)
