"""Rows that are held out class by class."""

from __future__ import annotations

import pytest
import torch

from selbo.training.stratified import stratified_split


def test_every_class_has_its_share_and_keeps_a_row(seed: int) -> None:
    labels = torch.tensor([0] * 20 + [1] * 10 + [2] * 2 + [3])[torch.randperm(33, generator=_generator(seed))]
    kept, held_out = stratified_split(labels, 0.3, seed=seed)
    assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(33))
    assert labels[held_out].bincount(minlength=4).tolist() == [6, 3, 1, 0]
    again = stratified_split(labels, 0.3, seed=seed)
    assert torch.equal(again[1], held_out)
    assert not torch.equal(stratified_split(labels, 0.3, seed=seed + 1)[1], held_out)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_at_least_one_row_is_held_out() -> None:
    kept, held_out = stratified_split(torch.tensor([1, 0, 0, 2]), 0.01, seed=0)
    assert len(kept) == 3
    assert held_out.item() in {1, 2}
    kept, held_out = stratified_split(torch.tensor([0, 0, 1, 1]), 0.99, seed=0)
    assert len(kept) == len(held_out) == 2


def test_what_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="at least one class must have 2 rows"):
        stratified_split(torch.tensor([0, 1, 2]), 0.5, seed=0)
    with pytest.raises(ValueError, match="`fraction` must lie strictly between 0 and 1"):
        stratified_split(torch.tensor([0, 0]), 1.0, seed=0)
