"""Activation checkpointing inside a Bayesian network: the gradient is that without it, for the same noise."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import selbo
from selbo._compile import open_checkpoints
from selbo.nn import to_bayesian
from selbo.nn.layers import Sampled
from selbo.posteriors import MeanField, forward_samples

CLASSES = 3


def run(function: Callable[..., Tensor], *args: Any, on: bool) -> Tensor:
    return checkpoint(function, *args, use_reentrant=False) if on else function(*args)


class Stages(nn.Module):
    """A region from the inputs on, one that uses its layer twice, one within another, and a head outside."""

    def __init__(self, on: bool, *, from_inputs: bool = True) -> None:
        super().__init__()
        self.on, self.from_inputs = on, from_inputs
        self.first, self.shared, self.inner = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = run(lambda x: self.first(x).tanh(), x, on=self.on and self.from_inputs)
        x = run(lambda x: self.shared(self.shared(x).tanh()).sin(), x, on=self.on)
        x = run(lambda x: self.shared(x).tanh(), x, on=self.on)
        x = run(lambda x: run(lambda x: self.inner(x).exp(), x, on=self.on).sin(), x, on=self.on)
        return self.head(x)


class Images(nn.Module):
    """Convolutions, attention and dropout."""

    def __init__(self, on: bool) -> None:
        super().__init__()
        self.on = on
        self.conv, self.drop = nn.Conv2d(1, 4, 3, padding=1), nn.Dropout(0.4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = run(lambda x: self.drop(self.conv(x).tanh()), x, on=self.on)
        x = x.flatten(2).transpose(1, 2)
        x = run(lambda x: self.drop(self.attention(x, x, x)[0].sin()), x, on=self.on)
        return run(self.head, x.mean(1), on=self.on)


INPUTS = {
    Stages: torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(4, 5).sin(),
    Images: torch.linspace(-2, 2, 36, dtype=torch.float64).reshape(4, 1, 3, 3).cos(),
}


def networks(kind: type[nn.Module], seed: int, **options: Any) -> list[nn.Module]:
    """The same network without and with checkpoints."""
    made = []
    for on in (False, True):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            made.append(to_bayesian(kind(on, **options).double(), init_std=0.3))
    return made


def gradients(network: nn.Module, loss: Callable[[nn.Module], Tensor], seed: int) -> list[Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # for dropout, and without a generator for the noise
        value = loss(network)
        torch.manual_seed(seed + 1)  # where the default generator stands in the backward pass does not matter
        value.backward()
    found = [each.grad for each in network.parameters()]
    assert all(each is not None and bool(each.abs().max() > 0) for each in found)
    return [value.detach(), *found]


def assert_same(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-12) -> None:
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("with_generator", [True, False])
@pytest.mark.parametrize("num_samples", [1, 3])
@pytest.mark.parametrize("estimator", ["shared", "local", "flipout"])
@pytest.mark.parametrize("kind", [Stages, Images])
def test_gradients_are_those_without_checkpoints(kind, estimator, num_samples, with_generator, seed):
    def loss(network: nn.Module) -> Tensor:
        noise = torch.Generator().manual_seed(seed) if with_generator else None
        logits = forward_samples(network, INPUTS[kind], num_samples, generator=noise, estimator=estimator)
        return logits.log_softmax(-1)[..., 0].square().sum()

    plain, checkpointed = networks(kind, seed)
    assert_same(gradients(checkpointed, loss, seed), gradients(plain, loss, seed))


def test_passes_that_are_recomputed_later_keep_their_own_samples(seed):
    """Chunks of samples, labelled and unlabelled inputs: several passes come before the one backward pass."""
    summary = selbo.SummaryLikelihood(selbo.ClassRegions(CLASSES), selbo.Masses([0.5, 0.3, 0.2]), 20.0)
    objective = selbo.SummaryELBO(summary, 40, summary_warmup=0)
    labels = torch.tensor([0, 1, 2, 1])

    def loss(network: nn.Module) -> Tensor:
        noise = torch.Generator().manual_seed(seed)
        there = INPUTS[Stages].flip(0) + 1
        terms = objective(network, INPUTS[Stages], labels, 2, unlabelled=there, generator=noise)
        more = forward_samples(network, INPUTS[Stages], 3, generator=noise, chunk_size=1)
        return terms.loss + more.square().sum()

    plain, checkpointed = networks(Stages, seed)
    assert_same(gradients(checkpointed, loss, seed), gradients(plain, loss, seed))


@pytest.mark.parametrize("estimator", ["shared", "local", "flipout"])
def test_under_autocast(estimator, seed):
    """Torch computes again in the same precision; from the inputs on it would multiply in another order."""
    plain, checkpointed = (each.float() for each in networks(Stages, seed, from_inputs=False))

    def loss(network: nn.Module, *, lowered: bool = True) -> Tensor:
        noise = torch.Generator().manual_seed(seed)
        with torch.autocast("cpu", torch.bfloat16, enabled=lowered):
            logits = forward_samples(network, INPUTS[Stages].float(), 2, generator=noise, estimator=estimator)
        return logits.float().square().sum()

    found = gradients(checkpointed, loss, seed)
    assert_same(found, gradients(plain, loss, seed), 1e-6)
    with torch.no_grad():
        assert abs(float(loss(plain, lowered=False) - found[0])) > 1e-5


def test_two_backward_passes_and_a_sequence_of_checkpoints(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = to_bayesian(nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)))
    posterior, inputs = MeanField(layers), INPUTS[Stages].float()
    noise = posterior.draw_noise(2, torch.Generator().manual_seed(seed))
    expected = torch.autograd.grad(posterior.forward_noise(inputs, noise).square().sum(), list(layers.parameters()))
    forward = layers.forward
    layers.forward = lambda x: _in_two(forward, layers, x)  # type: ignore[method-assign]
    loss = posterior.forward_noise(inputs, noise).square().sum()
    for keep in (True, False):
        found = torch.autograd.grad(loss, list(layers.parameters()), retain_graph=keep)
        assert_same(list(found), list(expected), 1e-6)


def _in_two(forward: Callable[[Tensor], Tensor], layers: nn.Sequential, x: Tensor) -> Tensor:
    with torch.no_grad():
        torch.testing.assert_close(forward(x), forward(x))  # a layer may be called outside a checkpoint too
    return checkpoint_sequential(list(layers), 2, x, use_reentrant=False)


def test_training_is_the_same_and_so_are_predictions(seed):
    results = []
    for network in networks(Stages, seed):
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn(32, 5, generator=generator).double()
        labels = torch.randint(CLASSES, (32,), generator=generator)
        selbo.fit(network, selbo.ELBO(32), (inputs, labels), steps=4, batch_size=16, num_samples=2, seed=seed)
        results.append([each.detach() for each in network.parameters()])
    assert_same(results[1], results[0])


@pytest.mark.parametrize("around", [True, False])
def test_samples_are_kept_as_long_as_a_checkpoint_needs_them(around, monkeypatch):
    """Not after the backward pass; and not at all by a checkpoint around the samples, which draws them again."""
    kept = []
    made = Sampled.__new__

    def remembered(kind: type, *args: Any) -> Sampled:
        sampled = made(kind, *args)
        kept.extend(weakref.ref(each) for each in sampled.weights.values())
        return sampled

    network = networks(Stages, 0)[not around]
    monkeypatch.setattr(Sampled, "__new__", remembered)
    with torch.random.fork_rng():
        outer = (lambda *args: checkpoint(*args, use_reentrant=False)) if around else (lambda f, *args: f(*args))
        logits = outer(forward_samples, network, INPUTS[Stages], 2)
        assert kept
        gc.collect()
        assert any(each() is not None for each in kept) != around
        logits.sum().backward()
    gc.collect()
    assert not any(each() is not None for each in kept)


def test_open_checkpoints_are_found_and_other_hooks_stay():
    found = []

    def look(x: Tensor) -> Tensor:
        found.append(open_checkpoints())
        found.append(open_checkpoints())
        return x.sin()

    x = torch.ones(2, requires_grad=True)
    assert open_checkpoints() == []
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = checkpoint(lambda x: checkpoint(look, x, use_reentrant=False).sin(), x, use_reentrant=False)
        assert open_checkpoints() == []
        y.sin()
    assert [len(each) for each in found] == [2, 2]
    assert all(one is two for one, two in zip(found[0], found[1], strict=True))
    assert found[0][0] is not found[0][1]
    assert len(packed) >= 2  # the inputs of the outer checkpoint, and that of the last sine
