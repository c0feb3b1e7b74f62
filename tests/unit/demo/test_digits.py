"""Noisy digits: sizes, rarity, noise, and that a seed decides everything."""

from __future__ import annotations

import pytest
import torch

from selbo.demo.digits import LEVELS, NOISE, NUM_CLASSES, PHOTOGRAPH_PATCHES, RARITY, noisy_digits, thin_out


def test_parts_have_the_sizes_asked_for_and_share_the_rarity() -> None:
    digits = noisy_digits(3, num_train=200, num_val=50)
    assert [len(part[1]) for part in (digits.train, digits.val)] == [200, 50]
    assert digits.train[0].shape == (200, 64)
    assert digits.photographs.shape == (PHOTOGRAPH_PATCHES, 64)
    counts = torch.cat([digits.train[1], digits.val[1], digits.test[1]]).bincount(minlength=NUM_CLASSES)
    ratios = counts[1:] / counts[:-1]
    assert (ratios - RARITY).abs().max() < 0.03, "each class is 0.8 times as frequent as the one before"
    fractions = torch.tensor(digits.class_fractions)
    assert fractions.sum().item() == pytest.approx(1)
    assert (counts / counts.sum() - fractions).abs().max() < 0.01


def test_a_seed_decides_everything() -> None:
    one, same, other = noisy_digits(1), noisy_digits(1), noisy_digits(2)
    assert torch.equal(one.train[0], same.train[0])
    assert torch.equal(one.corrupted[0.5], same.corrupted[0.5])
    assert torch.equal(one.photographs, same.photographs)
    assert not torch.equal(one.train[0], other.train[0])


def test_corruption_adds_noise_of_the_stated_size_to_the_test_images() -> None:
    digits = noisy_digits(0)
    assert tuple(digits.corrupted) == LEVELS
    for level, images in digits.corrupted.items():
        added = images - digits.test[0]
        assert added.std().item() == pytest.approx(level, rel=0.03)  # 20 000 pixels
        assert abs(added.mean().item()) < 0.03 * level


def test_noise_on_every_image() -> None:
    """Most pixels of a clean digit are exactly 0; what is seen there is the noise alone, half of it below."""
    images = noisy_digits(0).train[0]
    border = images[:, 0]  # the upper left pixel of a digit is always empty
    assert border.std().item() == pytest.approx(NOISE, rel=0.25)
    assert 0.3 < (border < 0).float().mean().item() < 0.7


def test_photographs_are_grey_pixels() -> None:
    patches = noisy_digits(0).photographs
    assert patches.min() >= 0
    assert patches.max() <= 1
    assert patches.std() > 0.1


def test_rows_are_kept_by_index_and_once() -> None:
    labels = torch.tensor([0] * 50 + [1] * 40 + [2] * 60)
    rows = thin_out(labels, rarity=0.5, generator=torch.Generator().manual_seed(0))
    assert labels[rows].bincount().tolist() == [40, 20, 10]
    assert len(rows.unique()) == len(rows)


def test_something_must_be_left_to_test_on() -> None:
    with pytest.raises(ValueError, match="must leave test images"):
        noisy_digits(0, num_train=700, num_val=500)
