"""Back to a plain network at the posterior means."""

from __future__ import annotations

import pytest
import torch
from unit.nn.nets import NAMES, bayesian, build

from selbo.nn import mean_network, to_bayesian
from selbo.nn.gaussian import GaussianParameter, gaussians
from selbo.nn.layers import VariationalLayer


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_network_comes_back(name: str) -> None:
    net, bnn, inputs = bayesian(name)
    net.eval(), bnn.eval()
    back = mean_network(bnn)
    assert not any(isinstance(each, VariationalLayer | GaussianParameter) for each in back.modules())
    assert [(n, type(each)) for n, each in back.named_modules()] == [(n, type(each)) for n, each in net.named_modules()]
    assert torch.equal(back(inputs), net(inputs))
    expected, got = net.state_dict(), back.state_dict()
    assert list(got) == list(expected)
    assert all(torch.equal(got[key], expected[key]) for key in expected)
    assert [n for n, _ in back.named_parameters()] == [n for n, _ in net.named_parameters()], "ties are kept"
    assert not any(each.training for each in back.modules())
    net.load_state_dict(got)


@pytest.mark.parametrize("name", ["mlp", "vgg", "transformer", "tied weights"])
def test_it_has_the_means_of_a_trained_network_and_is_independent(name: str) -> None:
    _, bnn, inputs = bayesian(name)
    bnn.eval()
    with torch.no_grad():
        for each in gaussians(bnn):
            each.mean.mul_(0.5).add_(0.1)
            each.rho.add_(3.0)
    expected = bnn(inputs)
    back = mean_network(bnn)
    torch.testing.assert_close(back(inputs), expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        for parameter in back.parameters():
            parameter.zero_()
    assert torch.equal(bnn(inputs), expected)
    again = mean_network(bnn)
    with torch.no_grad():
        for parameter in bnn.parameters():
            parameter.zero_()
    torch.testing.assert_close(again(inputs), expected, rtol=0, atol=1e-12)


def test_tied_weights_are_one_parameter_and_trainable() -> None:
    back = mean_network(bayesian("tied weights")[1])
    assert back.head.weight is back.embed.weight
    shared = mean_network(bayesian("shared layer")[1])
    assert shared.first is shared.second
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in back.parameters())


def test_partly_deterministic_networks() -> None:
    net, inputs = build("mlp")
    back = mean_network(to_bayesian(net, only="4"))
    assert torch.equal(back(inputs), net(inputs))
    assert back[0].weight is not net[0].weight


def test_a_plain_network_is_refused() -> None:
    with pytest.raises(ValueError, match="`bnn` must be a network made by"):
        mean_network(build("mlp")[0])
