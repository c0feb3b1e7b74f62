"""Generated corruptions beside the published files, where these are present: the change of the pixels, and its effect.

Random numbers differ, so images cannot be compared one by one. Over the test set the mean and the spread of the change
must agree, and a network must lose the same accuracy. Frost has other textures; only its accuracy is looked at, with
more room.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from unit.data.conftest import RealData

import selbo
from selbo_lab.data import load_set, mnist
from selbo_lab.data.cifar_files import CIFAR10, CIFAR10_C
from selbo_lab.data.corruptions import cifar as cifar_corruptions
from selbo_lab.data.corruptions import mnist as mnist_corruptions
from selbo_lab.data.dataset import LabelledData

SHARE = 0.1
"""Of the spread of the change, by which mean and spread may differ."""

LEVELS = 1.0
"""Grey levels by which they may differ besides."""

ACCURACY = 0.04
FROST_ACCURACY = 0.15


class Change(NamedTuple):
    """Mean and standard deviation over all pixels of what a corruption adds, in grey levels."""

    mean: float
    spread: float


def change(clean: Tensor, corrupted: Tensor) -> Change:
    added = corrupted.float() - clean.float()
    return Change(added.mean().item(), added.std().item())


def agree(one: Change, other: Change) -> bool:
    room = LEVELS + SHARE * max(one.spread, other.spread)
    return abs(one.mean - other.mean) <= room and abs(one.spread - other.spread) <= room


@lru_cache(maxsize=1)
def judge_of_digits() -> Callable[[LabelledData], float]:
    generator = torch.Generator().manual_seed(0)
    return trained(
        selbo.models.LeNet(2, generator=generator),
        load_set("mnist35", "train", train_size=1000),
        steps=100,
        batch_size=64,
    )


@lru_cache(maxsize=1)
def judge_of_photographs() -> Callable[[LabelledData], float]:
    generator = torch.Generator().manual_seed(0)
    network = selbo.models.VGG11(10, width=0.125, generator=generator)
    return trained(network, load_set("cifar10", "train").rows(range(20_000)), steps=800)


def trained(
    network: torch.nn.Module, data: LabelledData, *, steps: int, batch_size: int = 128
) -> Callable[[LabelledData], float]:
    """Accuracy by a network that was trained on clean images."""
    selbo.fit(network, selbo.CrossEntropy(len(data)), data.tensors(), steps=steps, batch_size=batch_size, callbacks=())

    def accuracy(shown: LabelledData) -> float:
        found = selbo.predict(network, shown.network_inputs(), 1, generator=torch.Generator().manual_seed(0))
        return (found.classes == shown.labels).double().mean().item()

    return accuracy


@pytest.mark.parametrize("corruption", mnist_corruptions.MNIST_CORRUPTIONS)
def test_digits_beside_the_published_files(real_data: RealData, corruption: str) -> None:
    real_data.needs(mnist.MNIST)
    real_data.needs(mnist.MNIST_C)
    clean = load_set("mnist35", "test")
    sets = [load_set("mnist35-c", "test", corruption=corruption, origin=origin) for origin in ("official", "generated")]
    found = [change(clean.inputs, each.inputs) for each in sets]
    assert agree(*found), found
    judge = judge_of_digits()
    assert judge(sets[0]) == pytest.approx(judge(sets[1]), abs=ACCURACY)


@pytest.mark.parametrize("severity", cifar_corruptions.SEVERITIES)
@pytest.mark.parametrize("corruption", cifar_corruptions.CIFAR_CORRUPTIONS)
def test_photographs_beside_the_published_files(real_data: RealData, corruption: str, severity: int) -> None:
    real_data.needs(CIFAR10)
    real_data.needs(CIFAR10_C)
    clean = load_set("cifar10", "test")
    sets = [
        load_set("cifar10-c", "test", corruption=corruption, severity=severity, origin=origin)
        for origin in ("official", "generated")
    ]
    found = [change(clean.inputs, each.inputs) for each in sets]
    assert corruption == "frost" or agree(*found), found
    judge = judge_of_photographs()
    room = FROST_ACCURACY if corruption == "frost" else ACCURACY
    assert judge(sets[0]) == pytest.approx(judge(sets[1]), abs=room)


@pytest.mark.parametrize("corruption", ["gaussian_noise", "fog", "motion_blur", "spatter", "brightness"])
def test_the_comparison_tells_severities_apart_and_not_seeds(real_data: RealData, corruption: str) -> None:
    real_data.needs(CIFAR10)
    clean = load_set("cifar10", "test").rows(range(1500))
    strong, again = (
        change(clean.inputs, cifar_corruptions.corrupt_cifar(clean.inputs, corruption, 5, seed=seed)) for seed in (0, 1)
    )
    weak = change(clean.inputs, cifar_corruptions.corrupt_cifar(clean.inputs, corruption, 1, seed=2))
    assert agree(strong, again), (strong, again)
    assert not agree(strong, weak), (strong, weak)


def test_the_judge_of_digits_sees_corruptions(real_data: RealData) -> None:
    real_data.needs(mnist.MNIST)
    judge = judge_of_digits()
    clean = load_set("mnist35", "test")
    one, other = (load_set("mnist35-c", "test", corruption="stripe", seed=seed, origin="generated") for seed in (0, 1))
    assert judge(clean) > 0.95
    assert judge(one) == pytest.approx(judge(other), abs=ACCURACY)
    assert judge(one) < judge(clean) - ACCURACY
