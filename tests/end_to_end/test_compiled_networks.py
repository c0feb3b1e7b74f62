"""Compiled networks and samples: one graph, and the numbers of eager ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from unit.nn.nets import BATCH, bayesian, noise_for

from selbo.models import MLP, ConvNet, LeNet, ResNet20
from selbo.nn.gaussian import gaussians
from selbo.nn.layers import VariationalLayer
from selbo.posteriors import MeanField, forward_samples


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_compiled_without_breaks(name: str) -> None:
    net, bnn, inputs = bayesian(name)
    bnn.eval()
    noise = noise_for(net)
    torch.compiler.reset()
    with torch.random.fork_rng():
        compiled = torch.compile(
            lambda x, noise: MeanField(bnn).forward_noise(x, noise), fullgraph=True, backend="aot_eager"
        )
        got = compiled(inputs, noise)
    torch.testing.assert_close(got, MeanField(bnn).forward_noise(inputs, noise), rtol=0, atol=1e-10)
    assert all(each.sampled is None for each in bnn.modules() if isinstance(each, VariationalLayer))


def test_compiled_with_its_own_noise() -> None:
    _, bnn, inputs = bayesian("mlp")
    torch.compiler.reset()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        compiled = torch.compile(lambda x: forward_samples(bnn, x, 3), fullgraph=True, backend="aot_eager")
        one, two = compiled(inputs), compiled(inputs)
    assert one.shape == (3, BATCH, 3)
    assert (one - two).abs().max() > 1e-3
    one.sum().backward()
    assert all(each.rho.grad is not None for each in gaussians(bnn))


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (partial(MLP, (12, 7, 5, 3), dropout=0.3), (3, 2, 2)),
        (LeNet, (1, 28, 28)),
        (ConvNet, (1, 28, 28)),
        (partial(ResNet20, width=0.25), (3, 32, 32)),
    ],
    ids=["mlp", "lenet", "convnet", "resnet20"],
)
def test_compiles_as_one_graph(build: Callable[..., nn.Module], shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    net = build(generator=generator).eval()
    torch.compiler.reset()
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    for batch in (3, 5):
        images = torch.randn(batch, *shape, generator=generator)
        torch.testing.assert_close(compiled(images), net(images))


def test_a_step_compiles_without_breaks() -> None:
    _, bnn, inputs = bayesian("mlp")
    posterior = MeanField(bnn)
    noise = posterior.draw_noise(3, torch.Generator().manual_seed(0))

    def step(x: Tensor, z: Tensor) -> Tensor:
        with posterior.once():
            return posterior.forward_noise(x, z).square().mean() + posterior.kl_divergence()

    torch.compiler.reset()
    with torch.random.fork_rng():
        got = torch.compile(step, fullgraph=True, backend="aot_eager")(inputs, noise)
    expected = step(inputs, noise)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)
    parameters = list(bnn.parameters())
    ours, theirs = (torch.autograd.grad(each, parameters, materialize_grads=True) for each in (got, expected))
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-14)
