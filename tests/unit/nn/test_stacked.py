"""Convolutions with many kernels: every way of computing them gives the same, with the same gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selbo.nn import stacked
from selbo.nn.stacked import convolution, convolve

F64 = torch.float64


def random(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def made(make: object) -> nn.Module:
    with torch.random.fork_rng():
        return make().double()


LAYERS = {
    "plain": lambda: nn.Conv2d(2, 3, 3),
    "strides and padding": lambda: nn.Conv2d(5, 3, (3, 2), stride=(2, 1), padding=(1, 2)),
    "no bias": lambda: nn.Conv2d(5, 3, 2, bias=False),
    "groups": lambda: nn.Conv2d(4, 6, 2, groups=2),
    "dilation": lambda: nn.Conv2d(2, 3, 2, dilation=(1, 2)),
    "same": lambda: nn.Conv2d(2, 3, 3, padding="same"),
    "one dimension": lambda: nn.Conv1d(2, 3, 3, padding=1),
    "three dimensions": lambda: nn.Conv3d(2, 3, 2, stride=2),
}


def by_hand(layer: nn.Module, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    function = (F.conv1d, F.conv2d, F.conv3d)[inputs.ndim - 3]
    return function(inputs, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_values_and_gradients(name: str, shared: bool, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "SMALL_CONVOLUTION", 2**22 if small else 0)
    layer, draws, rows = made(LAYERS[name]), 3, 2
    if shared and layer.groups > 1:
        pytest.skip("layers with groups do not take this way")
    positions = (6, 5, 4)[: layer.weight.ndim - 2]
    inputs = random(rows if shared else draws * rows, layer.in_channels, *positions).requires_grad_()
    weights = {"weight": random(draws, *layer.weight.shape, seed=1).requires_grad_()}
    if layer.bias is not None:
        weights["bias"] = random(draws, *layer.bias.shape, seed=2).requires_grad_()
    blocks = [inputs] * draws if shared else inputs.chunk(draws)
    parts = [
        by_hand(layer, block, weights["weight"][s], weights["bias"][s] if "bias" in weights else None)
        for s, block in enumerate(blocks)
    ]
    expected, leaves = torch.cat(parts), [inputs, *weights.values()]
    got = convolution(layer, inputs, weights, draws, shared=shared)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    direction = random(*expected.shape, seed=3)
    for one, two in zip(
        torch.autograd.grad(got, leaves, direction), torch.autograd.grad(expected, leaves, direction), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-11)
    with torch.no_grad():
        torch.testing.assert_close(
            convolution(layer, inputs, weights, draws, shared=shared), expected, rtol=0, atol=1e-12
        )


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # torch's own use of it
def test_second_and_forward_derivatives() -> None:
    layer = made(lambda: nn.Conv2d(2, 2, 2, stride=2, padding=1))
    inputs, weight, bias = random(1, 2, 3, 2).requires_grad_(), layer.weight, layer.bias
    with torch.random.fork_rng():
        assert torch.autograd.gradgradcheck(lambda *args: convolve(layer, *args), (inputs, weight, bias))
    assert torch.autograd.gradcheck(lambda *args: convolve(layer, *args), (inputs, weight, bias), check_forward_ad=True)
    _, slope = torch.func.jvp(lambda x: convolve(layer, x, weight, bias), (inputs,), (inputs,))
    torch.testing.assert_close(slope, by_hand(layer, inputs, weight, None), rtol=0, atol=1e-12)
    many = torch.stack([weight.detach(), 2 * weight.detach()])
    got = torch.func.vmap(lambda each: convolve(layer, inputs, each, bias))(many)
    torch.testing.assert_close(got[1], by_hand(layer, inputs, many[1], bias), rtol=0, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_in_any_layout(channels: int) -> None:
    """Channels-last images, and those whose strides only look like it, have a gradient too."""
    with torch.random.fork_rng():
        layer = nn.Conv2d(channels, 4, 3, padding=1).double()
    images = random(5, 7, 6, channels).permute(0, 3, 1, 2)
    weight = random(4, channels, 3, 3, seed=1).requires_grad_()
    (ours,) = torch.autograd.grad(convolve(layer, images, weight, None).square().sum(), weight)
    (theirs,) = torch.autograd.grad(F.conv2d(images.contiguous(), weight, padding=1).square().sum(), weight)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_draws_in_the_channels_keep_the_layout(layout: torch.memory_format) -> None:
    outputs = random(5, 3 * 4, 6, 7).contiguous(memory_format=layout)
    rows = stacked._channels_to_rows(outputs, 3)
    assert rows.is_contiguous(memory_format=layout)
    torch.testing.assert_close(rows, torch.cat(outputs.split(4, dim=1)), rtol=0, atol=0)
