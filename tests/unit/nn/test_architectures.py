"""The networks of the paper (VGG11 at a quarter of its width), a ResNet and a transformer: every operation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal
from unit.nn.nets import Transformer, resnet

from selbo import models
from selbo.nn import describe, load, mean_network, save, to_bayesian
from selbo.nn.gaussian import draw_noise, gaussians
from selbo.posteriors import MeanField, forward_samples, kl_divergence

DRAWS = 2
PRIOR_STD = 0.7


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def real(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=source(1))


NETS: dict[str, tuple[Callable[[], nn.Module], Tensor, int, int]] = {
    # network, inputs, classes, weights that get a posterior
    "mlp": (lambda: models.MLP((768, 128, 2), generator=source()), real(3, 768), 2, 98_690),
    "lenet": (lambda: models.LeNet(2, generator=source()), real(3, 1, 28, 28), 2, 43_746),
    "convnet": (lambda: models.ConvNet(2, generator=source()), real(3, 1, 28, 28), 2, 233_586),
    "vgg11": (lambda: models.VGG11(10, width=0.25, generator=source()), real(2, 3, 32, 32), 10, 1_769_066),
    "resnet": (resnet, real(3, 2, 6, 7), 3, 955),
    "transformer": (Transformer, torch.randint(11, (3, 5), generator=source(1)), 3, 1_115),
}


@pytest.fixture(scope="module", params=NETS)
def built(request: pytest.FixtureRequest) -> tuple[nn.Module, nn.Module, Tensor, int, int]:
    """Network, Bayesian network, inputs, classes, number of weights; built once, in evaluation mode."""
    make, inputs, classes, size = NETS[request.param]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make().eval()
    return net, to_bayesian(net, prior_std=PRIOR_STD, init_std=0.05), inputs, classes, size


Built = tuple[nn.Module, nn.Module, Tensor, int, int]


def test_conversion_and_description(built: Built) -> None:
    net, bnn, inputs, _, size = built
    parameters = gaussians(bnn)
    assert sum(each.mean.numel() for each in parameters) == size
    with torch.no_grad():
        torch.testing.assert_close(bnn(inputs), net(inputs), rtol=1e-4, atol=1e-5)
    norms = sum(parameter.numel() for parameter in net.parameters()) - size
    assert describe(bnn).splitlines()[-1].split() == ["all", str(size), str(norms)]


def test_one_pass_is_a_loop_over_draws(built: Built) -> None:
    _, bnn, inputs, classes, _ = built
    parameters = gaussians(bnn)
    noise = draw_noise(parameters, DRAWS, source())
    with torch.no_grad():
        logits = forward_samples(bnn, inputs, DRAWS, generator=source())
        assert logits.shape == (DRAWS, len(inputs), classes)
        loop = torch.cat([MeanField(bnn).forward_noise(inputs, row[None]) for row in noise])
    scale = logits.abs().max().item()
    torch.testing.assert_close(logits, loop, rtol=0, atol=1e-4 * scale)
    assert (logits[0] - logits[1]).abs().max() > 1e-3 * scale


def test_kl_divergence(built: Built) -> None:
    _, bnn, *_ = built
    with torch.no_grad():
        terms = [
            torch.distributions.kl_divergence(
                Normal(each.mean, each.std, validate_args=False), Normal(0.0, PRIOR_STD)
            ).sum(dtype=torch.float64)
            for each in gaussians(bnn)
        ]
        torch.testing.assert_close(kl_divergence(bnn).double(), torch.stack(terms).sum(), rtol=1e-5, atol=0)


def test_the_mean_network_is_the_original(built: Built) -> None:
    net, bnn, inputs, *_ = built
    back = mean_network(bnn)
    expected, got = net.state_dict(), back.state_dict()
    assert list(got) == list(expected)
    assert all(torch.equal(got[key], expected[key]) for key in expected)
    with torch.no_grad():
        assert torch.equal(back(inputs), net(inputs))


def test_a_round_trip_through_a_file(built: Built, tmp_path: Path) -> None:
    net, bnn, *_ = built
    path = save(bnn, tmp_path / "net.safetensors")
    other = load(to_bayesian(net), path)
    expected, got = bnn.state_dict(), other.state_dict()
    assert list(got) == list(expected)
    assert all(torch.equal(got[key], expected[key]) for key in expected)


def test_gradients_reach_every_mean_and_spread(built: Built) -> None:
    _, bnn, inputs, *_ = built
    bnn.zero_grad()
    direction = real(DRAWS, len(inputs), 1)
    logits = forward_samples(bnn, inputs, DRAWS, generator=source())
    (logits.log_softmax(-1) * direction).sum().backward()
    for each in gaussians(bnn):
        for parameter in (each.mean, each.rho):
            assert parameter.grad.isfinite().all()
            assert parameter.grad.abs().max() > 0
    bnn.zero_grad()
