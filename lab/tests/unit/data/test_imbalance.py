"""Rare classes: counts, order, draws, the sizes of the paper's imbalanced CIFAR-10, and the fractions of a belief."""

from __future__ import annotations

import pytest
import torch

from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.imbalance import class_fractions, geometric_ratios, imbalanced, imbalanced_indices

CIFAR_SPLITS = {
    "train": [4512, 4488, 4468, 4529, 4529, 4486, 4493, 4500, 4496, 4499],
    "val": [488, 512, 532, 471, 471, 514, 507, 500, 504, 501],
    "test": [1000] * 10,
}
"""Class sizes of CIFAR-10 whose training part is split with `torch.randperm` and seed 42."""

PUBLISHED_COUNTS = {
    "train": [4512, 2244, 1117, 566, 283, 140, 70, 35, 18, 18],  # 9003
    "val": [488, 256, 133, 59, 29, 16, 8, 4, 2, 2],  # 997
    "test": [1000, 500, 250, 125, 62, 31, 16, 8, 4, 4],  # 2000
}


def labels_of(sizes: list[int], seed: int) -> torch.Tensor:
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


def data_of(labels: torch.Tensor, classes: int) -> LabelledData:
    return LabelledData(
        name="rows",
        inputs=torch.arange(len(labels)).float()[:, None],
        labels=labels,
        class_names=tuple(f"class {k}" for k in range(classes)),
        source="made by hand",
        licence="none needed",
    )


def test_geometric_ratios_halve_from_class_to_class() -> None:
    assert geometric_ratios(10) == (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256, 1 / 256)
    assert geometric_ratios(3, 0.1, repeat_last=False) == pytest.approx((1, 0.1, 0.01))


@pytest.mark.parametrize("part", CIFAR_SPLITS)
def test_class_sizes_of_cifar_give_the_published_counts(part: str, seed: int) -> None:
    labels = labels_of(CIFAR_SPLITS[part], seed)
    chosen = imbalanced_indices(labels, geometric_ratios(10))
    assert labels[chosen].bincount().tolist() == PUBLISHED_COUNTS[part]


def test_the_first_rows_of_each_class_stay_in_their_order() -> None:
    labels = torch.tensor([2, 0, 1, 1, 0, 2, 0, 1, 2, 0, 1, 2])
    chosen = imbalanced_indices(labels, (1, 0.5, 0.25))
    assert chosen.tolist() == [0, 1, 2, 3, 4, 6, 9]


@pytest.mark.parametrize(("size", "kept"), [(3, 2), (5, 2), (7, 4), (9, 4)])
def test_halves_are_rounded_to_even(size: int, kept: int) -> None:
    labels = torch.tensor([0, 0] + [1] * size)
    assert labels[imbalanced_indices(labels, (1, 0.5))].sum() == kept


def test_a_seed_draws_the_rows_and_nothing_else(seed: int) -> None:
    labels = labels_of([60, 60, 60], seed)
    ratios = (1, 0.5, 0.25)
    first, drawn = imbalanced_indices(labels, ratios), imbalanced_indices(labels, ratios, seed=seed)
    assert torch.equal(drawn, imbalanced_indices(labels, ratios, seed=seed))
    assert not torch.equal(drawn, imbalanced_indices(labels, ratios, seed=seed + 1))
    assert not torch.equal(drawn, first)
    assert labels[drawn].bincount().tolist() == labels[first].bincount().tolist() == [60, 30, 15]
    assert (drawn.diff() > 0).all(), "in the order of the rows, each once"


def test_draws_of_two_classes_are_unrelated(seed: int) -> None:
    labels = torch.arange(2).repeat(200)  # classes alternate
    drawn = imbalanced_indices(labels, (0.5, 0.5), seed=seed)
    zeros, ones = drawn[labels[drawn] == 0] // 2, drawn[labels[drawn] == 1] // 2
    assert len(zeros) == len(ones) == 100
    assert not torch.equal(zeros, ones)


def test_inputs_and_labels_stay_together() -> None:
    labels = torch.tensor([1, 0, 1, 0, 1, 1])
    data = imbalanced(data_of(labels, 2), (1, 0.5))
    assert data.inputs.squeeze(1).tolist() == [0, 1, 2, 3]
    assert data.labels.tolist() == [1, 0, 1, 0]
    assert data.class_counts == (2, 2)
    assert data.name == "rows, imbalanced"
    assert "share of 1, 0.5 was kept, the first by index" in data.source
    assert "drawn with seed 3" in imbalanced(data_of(labels, 2), (1, 0.5), seed=3).source


def test_fractions_follow_from_the_ratios_alone() -> None:
    assert class_fractions((1, 0.5, 0.25, 0.25)) == (0.5, 0.25, 0.125, 0.125)
    assert class_fractions((1, 0.5), (1000, 500)) == pytest.approx((0.8, 0.2))
    fractions = class_fractions(geometric_ratios(10))
    assert sum(fractions) == pytest.approx(1, abs=1e-15)
    assert fractions == pytest.approx([count / 2000 for count in PUBLISHED_COUNTS["test"]], abs=3e-4)  # rounding


LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("ratios", "message"),
    [
        ((1, 0.5), "`labels` must lie between 0 and 1, as there are 2 ratios, but got 0 to 2"),
        ((1, 1, 1, 1), "1 of 0 of class 3 is 0"),
        ((1, 0.5, 0), "`ratios` must be a finite number greater than 0"),
        ((1, 0.5, -0.5), "`ratios` must be a finite number greater than 0"),
        ((1, 1.5, 1), "`ratios` must hold at least 2 numbers, each above 0 and at most 1"),
        ((1, 0.5, 0.1), "`ratios` must leave an example of each class, but 0.1 of 2 of class 2 is 0"),
        ((), "`ratios` must hold at least 2 numbers"),
    ],
)
def test_bad_ratios_are_refused(ratios: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        imbalanced_indices(LABELS, ratios)


def test_bad_labels_sizes_and_factors_are_refused() -> None:
    with pytest.raises(ValueError, match="`labels` must have shape"):
        imbalanced_indices(LABELS.float(), (1, 1, 1))
    with pytest.raises(ValueError, match="`labels` must lie between 0 and 2"):
        imbalanced_indices(LABELS - 1, (1, 1, 1))
    with pytest.raises(ValueError, match="`ratios` must hold 3 numbers, one per class, but got 2"):
        imbalanced(data_of(LABELS, 3), (1, 1))
    with pytest.raises(ValueError, match="`balanced_sizes` must hold 2 numbers"):
        class_fractions((1, 0.5), (1, 1, 1))
    with pytest.raises(ValueError, match="`balanced_sizes` must be a finite number greater than 0"):
        class_fractions((1, 0.5), (1, 0))
    with pytest.raises(ValueError, match="`factor` must lie strictly between 0 and 1"):
        geometric_ratios(10, 1)
    with pytest.raises(ValueError, match="`num_classes` must be a whole number of at least 2"):
        geometric_ratios(1)
