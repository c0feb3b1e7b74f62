"""Fives and threes, on tiny files in the formats of MNIST and MNIST-C."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from selbo_lab.data import mnist, store
from selbo_lab.data.store import MissingData

TRAIN, TEST = 400, 60
RNG_SEED = 7


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


class Tiny:
    """A store with a small MNIST: image i of a part has i, in two bytes, in its first pixels."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.digits = {}
        generator = np.random.default_rng(RNG_SEED)
        (root / "mnist").mkdir(parents=True)
        for part, count in (("train", TRAIN), ("t10k", TEST)):
            digits = generator.permutation(np.arange(count) % 10).astype(np.uint8)
            images = generator.integers(0, 256, (count, 28, 28)).astype(np.uint8)
            images[:, 0, 0], images[:, 0, 1] = np.divmod(np.arange(count), 256)
            packed, plain = mnist.images_name(part), mnist.labels_name(part).removesuffix(".gz")
            (root / "mnist" / packed).write_bytes(gzip.compress(idx(images)))
            (root / "mnist" / plain).write_bytes(idx(digits))  # one packed, one not
            self.digits[part] = torch.from_numpy(digits.astype(np.int64))

    def write_c(self, corruption: str, digits: torch.Tensor, dtype: type = np.int64) -> np.ndarray:
        images = np.random.default_rng(RNG_SEED + 1).integers(0, 256, (TEST, 28, 28, 1)).astype(np.uint8)
        for name, array in (
            (mnist.mnist_c_file(corruption), images),
            (mnist.c_labels_name(corruption), digits.numpy().astype(dtype)),
        ):
            path = self.root / "mnist-c" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, array)
        return images


def origin(images: torch.Tensor) -> torch.Tensor:
    """Which image of the part each was."""
    return images[:, 0, 0, 0].long() * 256 + images[:, 0, 0, 1].long()


@pytest.fixture
def tiny(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    monkeypatch.setattr(mnist, "TRAIN_SIZE", TRAIN)
    monkeypatch.setattr(mnist, "MNIST_TEST_SIZE", TEST)
    return Tiny(data_root)


def test_five_is_class_0_and_three_class_1(tiny: Tiny) -> None:
    data = mnist.mnist35("test")
    assert data.class_names == ("5", "3")
    digits = tiny.digits["t10k"]
    rows = origin(data.inputs)
    assert torch.equal(rows, ((digits == 5) | (digits == 3)).nonzero().squeeze(1)), "in the order of MNIST"
    assert torch.equal(data.labels, (digits[rows] == 3).long())
    assert data.class_counts == (6, 6)
    assert data.inputs.shape == (12, 1, 28, 28)


def test_train_and_validation_share_no_image(tiny: Tiny) -> None:
    train, val = mnist.mnist35("train"), mnist.mnist35("val")
    assert (len(train), len(val)) == (64, 16), "of 80 fives and threes"
    assert set(origin(train.inputs).tolist()).isdisjoint(origin(val.inputs).tolist())
    for part in (train, val):
        assert torch.equal(part.labels, (tiny.digits["train"][origin(part.inputs)] == 3).long())


def test_training_images_are_drawn_with_a_seed_and_nested(tiny: Tiny) -> None:
    small, large = (mnist.mnist35("train", train_size=size, seed=1) for size in (10, 40))
    assert len(small) == 10
    assert torch.equal(small.inputs, large.inputs[:10])
    assert len(origin(large.inputs).unique()) == 40
    assert not torch.equal(small.inputs, mnist.mnist35("train", train_size=10, seed=2).inputs)
    assert "10 drawn with seed 1" in small.name


def test_the_validation_part_is_the_same_for_all(tiny: Tiny) -> None:
    assert mnist.mnist35("val", seed=1).checksum == mnist.mnist35("val", seed=2, train_size=5).checksum


@pytest.mark.parametrize("size", [0, 65, 1.5])
def test_a_size_that_cannot_be_is_refused(tiny: Tiny, size: int) -> None:
    with pytest.raises(ValueError, match="`train_size` must be"):
        mnist.mnist35("train", train_size=size)


def test_all_ten_digits(tiny: Tiny) -> None:
    data = mnist.mnist()
    assert torch.equal(data.labels, tiny.digits["t10k"])
    assert data.class_counts == (6,) * 10


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="`part` must be one of"):
        mnist.mnist35("dev")


def test_missing_files_say_what_to_type(data_root: Path) -> None:
    with pytest.raises(MissingData, match="selbo data get mnist"):
        mnist.mnist35("train")


# --- corrupted ---


@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_official_rows_follow_their_labels(tiny: Tiny, dtype: type) -> None:
    images = tiny.write_c("fog", tiny.digits["t10k"], dtype)
    data, clean = mnist.mnist35_c("fog"), mnist.mnist35("test")
    assert torch.equal(data.labels, clean.labels)
    rows = origin(clean.inputs).numpy()
    np.testing.assert_array_equal(data.inputs.numpy()[:, 0], images[rows][..., 0])
    assert "official files" in data.source
    assert data.normalisation == clean.normalisation


def test_generated_where_there_are_no_official_files(tiny: Tiny) -> None:
    tiny.write_c("fog", tiny.digits["t10k"])
    data, clean = mnist.mnist35_c("shear", seed=3), mnist.mnist35("test")
    assert "generated by selbo" in data.source
    assert torch.equal(data.labels, clean.labels)
    assert torch.equal(data.inputs, mnist.corruptions.corrupt_mnist(clean.inputs, "shear", seed=3))
    assert "generated" in mnist.mnist35_c("fog", origin="generated").source
    with pytest.raises(MissingData, match="mnist-c"):
        mnist.mnist35_c("shear", origin="official")


def test_an_unknown_corruption_or_origin_is_refused() -> None:
    with pytest.raises(ValueError, match="`corruption` must be one of"):
        mnist.mnist35_c("rain")
    with pytest.raises(ValueError, match="`origin` must be one of"):
        mnist.mnist35_c("fog", origin="elsewhere")


def faults(tiny: Tiny, name: str) -> str:
    raw = next(raw for raw in mnist.MNIST_C.files if raw.name == name)
    assert raw.check is not None
    with pytest.raises(ValueError, match="must hold") as caught:
        raw.check(tiny.root / "mnist-c" / name)
    return str(caught.value)


def test_labels_in_another_order_are_refused(tiny: Tiny) -> None:
    tiny.write_c("fog", tiny.digits["t10k"].flip(0))
    assert "must hold the labels of MNIST's test part" in faults(tiny, mnist.c_labels_name("fog"))


def test_labels_of_something_else_are_refused(tiny: Tiny) -> None:
    tiny.write_c("fog", tiny.digits["t10k"] + 1)
    assert "labels from 0 to 9, but got 1 to 10" in faults(tiny, mnist.c_labels_name("fog"))


def test_images_of_another_shape_are_refused(tiny: Tiny) -> None:
    tiny.write_c("fog", tiny.digits["t10k"])
    path = tiny.root / "mnist-c" / mnist.mnist_c_file("fog")
    np.save(path, np.load(path)[..., 0])
    assert "(60, 28, 28)" in faults(tiny, mnist.mnist_c_file("fog"))


# --- sources ---


def test_the_sources_name_every_file_once() -> None:
    for source in (mnist.MNIST, mnist.MNIST_C):
        names = [raw.name for raw in source.files]
        assert len(set(names)) == len(names)
        assert sorted(name for each in source.downloads for name in each.gives) == sorted(names)
    assert len(mnist.MNIST_C.files) == 2 * 15


def test_checks_of_the_real_sizes_are_in_the_source(tmp_path: Path) -> None:
    small = tmp_path / mnist.labels_name("t10k")
    small.write_bytes(gzip.compress(idx(np.zeros(10, dtype=np.uint8))))
    raw = next(raw for raw in mnist.MNIST.files if raw.name == small.name)
    assert raw.check is not None
    with pytest.raises(ValueError, match="10000"):
        raw.check(small)
    assert store.fault(raw, small) is not None
