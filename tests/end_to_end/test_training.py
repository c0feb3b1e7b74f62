"""Every objective trains, and every network of the paper is trained by every objective."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from unit.training.toys import OBJECTIVES, Rows, blobs, network

import selbo
from selbo.training import Optimizer, Validation

N = 96
PLAIN_SGD = Optimizer("sgd", momentum=0.0)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_loss_falls(name, seed):
    bayesian, objective = OBJECTIVES[name]
    net = network(seed=seed, bayesian=bayesian)
    train = blobs(N, seed=seed)
    result = selbo.fit(net, objective(N, 3), train, steps=80, batch_size=32, learning_rate=0.02, seed=seed)
    first, last = result.curve[:8, 0].mean(), result.curve[-8:, 0].mean()
    assert result.curve.isfinite().all()
    assert last < first
    assert all(parameter.isfinite().all() for parameter in net.parameters())


WRAPPINGS = {
    "tensors": lambda pair: pair,
    "TensorDataset": lambda pair: TensorDataset(*pair),
    "Dataset": lambda pair: Rows(*pair),
    "DataLoader": lambda pair: DataLoader(TensorDataset(*pair), batch_size=32, shuffle=True),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_network_learns_from_any_kind_of_data(wrapping, seed):
    net = network(seed=seed)
    train, val = (WRAPPINGS[wrapping](blobs(count, seed=seed + count)) for count in (N, 50))
    result = selbo.fit(
        net,
        selbo.CrossEntropy(N),
        train,
        val,
        epochs=30,
        batch_size=32,
        learning_rate=0.03,
        seed=seed,
        validation=Validation(select="best"),
    )
    assert result.val_nll is not None
    assert result.val_nll < 0.8 < torch.tensor(3.0).log()
    inputs, labels = blobs(50, seed=seed + 50)
    assert (net.eval()(inputs).argmax(1) == labels).double().mean() > 0.65


NETWORKS = {
    "MLP": (lambda generator: selbo.models.MLP((20, 16, 3), dropout=0.1, generator=generator), (20,), 3),
    "LeNet": (lambda generator: selbo.models.LeNet(generator=generator), (1, 28, 28), 2),
    "ConvNet": (lambda generator: selbo.models.ConvNet(generator=generator), (1, 28, 28), 2),
}


def train_one(net: nn.Module, name: str, shape: tuple[int, ...], classes: int, **settings: object) -> None:
    count = 4
    before = [parameter.detach().clone() for parameter in net.parameters()]
    settings = {"steps": 2, "batch_size": count, "augment": "crop_and_flip" if len(shape) == 3 else None, **settings}
    result = selbo.fit(net, OBJECTIVES[name][1](count, classes), blobs(count, shape=shape, classes=classes), **settings)
    assert result.curve.isfinite().all()
    # every weight has moved, but for biases in front of a BatchNorm, whose gradient is zero
    moved = [not torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True)]
    assert sum(moved) >= len(moved) / 2


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("kind", NETWORKS)
def test_every_network_is_trained_by_every_objective(kind, name):
    build, shape, classes = NETWORKS[kind]
    net = build(torch.Generator().manual_seed(0))
    if OBJECTIVES[name][0]:
        net = selbo.to_bayesian(net)
    train_one(net, name, shape, classes, num_samples=2 if kind == "MLP" else 1)


@pytest.fixture(scope="module")
def vgg() -> dict[bool, nn.Module]:
    """One of each kind, with a narrow head to save time, trained on by one objective after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selbo.models.vgg, "HEAD_WIDTH", 32)
        plain = selbo.models.VGG11(generator=torch.Generator().manual_seed(0))
    return {False: plain, True: selbo.to_bayesian(plain)}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_vgg11_is_trained_by_every_objective(name, vgg):
    bayesian = OBJECTIVES[name][0]
    train_one(vgg[bayesian], name, (3, 32, 32), 10, steps=1, optimizer=PLAIN_SGD, learning_rate=1e-4)


def test_vgg11_in_full_size():
    net = selbo.to_bayesian(selbo.models.VGG11(generator=torch.Generator().manual_seed(0)))
    train_one(net, "Summary ELBO", (3, 32, 32), 10, steps=1, optimizer=PLAIN_SGD, learning_rate=1e-4)
