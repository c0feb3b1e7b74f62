"""FashionMNIST on a tiny file, and grey images in the form of CIFAR-10's."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from selbo_lab.data import cifar, fashion, mnist
from selbo_lab.data.dataset import LabelledData


@pytest.fixture
def images(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.setattr(fashion, "FASHION_TEST_SIZE", 20)
    pixels = np.random.default_rng(3).integers(0, 256, (20, 28, 28)).astype(np.uint8)
    folder = data_root / "fashion"
    folder.mkdir(parents=True)
    (folder / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 20, 28, 28) + pixels.tobytes())
    (folder / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 20) + bytes(i % 10 for i in range(20)))
    return pixels


def test_the_test_part(images: np.ndarray) -> None:
    data = fashion.fashion()
    np.testing.assert_array_equal(data.inputs.numpy()[:, 0], images)
    assert data.labels.tolist() == [i % 10 for i in range(20)]
    assert data.class_names[9] == "ankle boot"
    assert data.normalisation == mnist.MNIST_NORMALISATION, "that of the networks it is shown to"


def test_there_is_no_other_part() -> None:
    with pytest.raises(ValueError, match="`part` must be one of"):
        fashion.fashion("train")


def test_grey_images_in_the_form_of_cifar(images: np.ndarray) -> None:
    data = cifar.as_cifar(fashion.fashion())
    assert data.inputs.shape == (20, 3, 32, 32)
    for channel in range(3):
        np.testing.assert_array_equal(data.inputs.numpy()[:, channel, 2:-2, 2:-2], images)
    border = data.inputs.clone()
    border[..., 2:-2, 2:-2] = 0
    assert border.sum() == 0
    assert data.normalisation == cifar.CIFAR_NORMALISATION
    assert "as cifar" in data.name
    assert "padded to 32 x 32 pixels and repeated over three channels" in data.source


def test_images_of_another_size_are_refused() -> None:
    small = LabelledData("x", torch.zeros(2, 3, 28, 28).byte(), torch.zeros(2).long(), ("a",), "", "")
    with pytest.raises(ValueError, match=r"images of shape \(1, 28, 28\), but got \(3, 28, 28\)"):
        cifar.as_cifar(small)


@pytest.mark.usefixtures("images")
def test_the_training_part(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion, "FASHION_TRAIN_SIZE", 30)
    folder = data_root / "fashion-train"
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(4).integers(0, 256, (30, 28, 28)).astype(np.uint8)
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 30, 28, 28) + pixels.tobytes())
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 30) + bytes(i % 10 for i in range(30)))
    train = fashion.fashion_train("train")
    np.testing.assert_array_equal(train.inputs.numpy()[:, 0], pixels)
    assert train.labels.tolist() == [i % 10 for i in range(30)]
    assert fashion.fashion_train("test").checksum == fashion.fashion().checksum
