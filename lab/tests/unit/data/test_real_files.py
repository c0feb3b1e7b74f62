"""The real files, where they are: sizes, class counts and statistics as published and as the paper used them."""

from __future__ import annotations

from typing import Protocol

import pytest
import torch

from selbo_lab.data import cifar, embeddings, fashion, mnist, sst, store, svhn
from selbo_lab.data.catalogue import SOURCES, load_set
from selbo_lab.data.cifar_files import CIFAR10, CIFAR10_C
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.imbalance import imbalanced_indices
from selbo_lab.data.sentences import SST, sst_sentences
from selbo_lab.data.store import Source


class RealData(Protocol):
    def needs(self, source: Source) -> None: ...


def pixel_statistics(*parts: LabelledData) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of each channel, from counts of the 256 levels, so exact and small."""
    levels = torch.arange(256, dtype=torch.float64) / 255
    channels = parts[0].inputs.shape[1]
    counts = torch.stack(
        [sum(part.inputs[:, c].flatten().long().bincount(minlength=256) for part in parts) for c in range(channels)]
    ).double()
    weights = counts / counts.sum(1, keepdim=True)
    mean = weights @ levels
    return mean, (weights @ levels**2 - mean**2).sqrt()


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_what_is_there_is_as_published(real_data: RealData, name: str) -> None:
    real_data.needs(SOURCES[name])
    assert [verdict for verdict in store.verify_files(SOURCES[name]) if verdict.state != "ok"] == []


# --- MNIST ---


def test_fives_and_threes(real_data: RealData) -> None:
    real_data.needs(mnist.MNIST)
    test = load_set("mnist35", "test")
    assert (len(test), test.class_counts) == (1902, (892, 1010))
    assert len(load_set("mnist35", "train", train_size=1000)) == 1000
    train, val = load_set("mnist35", "train", train_size=8000), load_set("mnist35", "val")
    assert (len(train), len(val)) == (8000, 2310)
    whole = load_set("mnist35", "train")
    assert len(whole) == 9242
    together = tuple(a + b for a, b in zip(whole.class_counts, val.class_counts, strict=True))
    assert together == (5421, 6131)


def test_the_constants_of_mnist(real_data: RealData) -> None:
    real_data.needs(mnist.MNIST)
    images, digits = mnist.read_part("train")
    mean, std = pixel_statistics(LabelledData("all", images, digits, tuple("0123456789"), "", ""))
    assert mean.item() == pytest.approx(mnist.MNIST_NORMALISATION.mean[0], abs=5e-5)
    assert std.item() == pytest.approx(mnist.MNIST_NORMALISATION.std[0], abs=5e-5)


def test_digits_are_drawn_white_on_black_and_upright(real_data: RealData) -> None:
    """The mean one fills a column of the image, with nothing above it: rows are rows, and ink is high."""
    real_data.needs(mnist.MNIST)
    data = mnist.mnist("test")
    ones = data.inputs[data.labels == 1].double().mean((0, 1))
    assert ones[4:24].sum(1).min() > 5 * ones[:2].sum(1).max() + 1, "a one is a column, not a row"
    assert data.class_counts == (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def test_a_corrupted_set(real_data: RealData) -> None:
    real_data.needs(mnist.MNIST)
    clean, shifted = (
        load_set("mnist35", "test"),
        load_set("mnist35-c", "test", corruption="translate", origin="generated"),
    )
    assert torch.equal(shifted.labels, clean.labels)
    assert shifted.checksum != clean.checksum


@pytest.mark.parametrize("corruption", ["fog", "zigzag"])
def test_official_corrupted_digits(real_data: RealData, corruption: str) -> None:
    real_data.needs(mnist.MNIST_C)
    data = load_set("mnist35-c", "test", corruption=corruption, origin="official")
    assert (len(data), data.class_counts) == (1902, (892, 1010))


def test_fashion(real_data: RealData) -> None:
    real_data.needs(fashion.FASHION)
    data = load_set("fashion", "test")
    assert data.class_counts == (1000,) * 10
    assert cifar.as_cifar(data).inputs.shape == (10_000, 3, 32, 32)


# --- CIFAR-10 ---


def test_parts_of_cifar10(real_data: RealData) -> None:
    real_data.needs(CIFAR10)
    train, val, test = (load_set("cifar10", part) for part in ("train", "val", "test"))
    assert train.class_counts == (4512, 4488, 4468, 4529, 4529, 4486, 4493, 4500, 4496, 4499)
    assert val.class_counts == (488, 512, 532, 471, 471, 514, 507, 500, 504, 501)
    assert test.class_counts == (1000,) * 10
    assert [len(part) for part in (train, val, test)] == [45_000, 5_000, 10_000]
    mean, std = pixel_statistics(train, val)
    assert mean.tolist() == pytest.approx(cifar.CIFAR_NORMALISATION.mean, abs=5.1e-5)
    assert std.tolist() == pytest.approx(cifar.CIFAR_NORMALISATION.std, abs=5.1e-5)
    assert test.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]


def test_imbalanced_cifar10(real_data: RealData) -> None:
    real_data.needs(CIFAR10)
    expected = {
        "train": (4512, 2244, 1117, 566, 283, 140, 70, 35, 18, 18),
        "val": (488, 256, 133, 59, 29, 16, 8, 4, 2, 2),
        "test": (1000, 500, 250, 125, 62, 31, 16, 8, 4, 4),
    }
    for part, counts in expected.items():
        assert load_set("cifar10-im", part).class_counts == counts


def test_the_corrupted_imbalanced_set_is_right(real_data: RealData) -> None:
    real_data.needs(CIFAR10)
    whole = load_set("cifar10-c", "test", corruption="brightness", severity=2, origin="generated")
    clean = load_set("cifar10-im", "test")
    corrupted = load_set("cifar10-im-c", "test", corruption="brightness", severity=2, origin="generated")
    assert torch.equal(corrupted.labels, clean.labels)
    assert torch.equal(corrupted.inputs, whole.inputs[imbalanced_indices(whole.labels, cifar.IMBALANCE)])
    assert len(corrupted.inputs.flatten(1).unique(dim=0)) > 1990, "not ten images repeated"
    brighter = corrupted.inputs.float().mean((1, 2, 3)) - clean.inputs.float().mean((1, 2, 3))
    assert (brighter > 0).float().mean() > 0.99, "each is its own image, made brighter"


def test_official_corrupted_photographs(real_data: RealData) -> None:
    real_data.needs(CIFAR10_C)
    data = load_set("cifar10-c", "test", corruption="fog", severity=5, origin="official")
    assert data.class_counts == (1000,) * 10


def test_svhn(real_data: RealData) -> None:
    real_data.needs(svhn.SVHN)
    data = load_set("svhn", "test")
    assert data.class_counts == (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)


# --- SST-2 ---


def test_sentences(real_data: RealData) -> None:
    real_data.needs(SST)
    for part, counts in (("train", (3310, 3610)), ("val", (428, 444)), ("test", (912, 909))):
        texts, labels = sst_sentences(part)
        assert tuple(labels.bincount().tolist()) == counts
        assert len(texts) == sum(counts)
        assert all(text == text.lower() for text in texts)


def test_embedded_sentences(real_data: RealData) -> None:
    real_data.needs(SST)
    found = embeddings.list_embeddings()
    if not found:
        pytest.skip("the store holds no embeddings of sst")
    for part, count in (("train", 6920), ("val", 872), ("test", 1821)):
        data = sst.sst(part, embedding=found[0].path.name)
        assert data.inputs.shape == (count, found[0].dimension)
        assert torch.equal(data.labels, sst_sentences(part)[1])


def test_vectors_tell_the_classes_apart(real_data: RealData) -> None:
    """Nearest of the two class means: far above chance if rows and labels belong together.

    Not standardised: a dimension may be constant, as two are in float16, and would be divided by zero.
    """
    real_data.needs(SST)
    found = embeddings.list_embeddings()
    if not found:
        pytest.skip("the store holds no embeddings of sst")
    train, test = (sst.sst(part, embedding=found[0].path.name) for part in ("train", "test"))
    centres = torch.stack([train.inputs[train.labels == k].mean(0) for k in (0, 1)])
    distances = torch.cdist(test.inputs, centres)
    assert distances.isfinite().all()
    accuracy = (distances.argmin(1) == test.labels).float().mean().item()
    assert accuracy > 0.8  # .882 with all-mpnet-base-v2; .5 if labels and rows did not match


def test_the_standard_deviation_of_embeddings(real_data: RealData) -> None:
    """Of which docs/explanation/deviations.md speaks: noise of standard deviation 1 is large beside it."""
    real_data.needs(SST)
    found = [each for each in embeddings.list_embeddings() if "all-mpnet-base-v2" in each.encoder]
    if not found:
        pytest.skip("the store holds no embeddings of sst by all-mpnet-base-v2")
    spread = sst.sst("train", embedding=found[0].path.name).inputs.std(0).mean().item()
    assert spread == pytest.approx(0.085, abs=5e-4)
    for gamma, ratio in ((0.1, 0.76), (0.5, 0.085)):
        assert (1 - gamma) * spread / gamma == pytest.approx(ratio, abs=5e-3)
