"""Compiled predictions: the draws and numbers of eager ones, one piece of code for many networks, a way back."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from selbo.evaluation.predict import predict
from selbo.models import ConvNet
from selbo.nn import compiled, stacked, to_bayesian
from selbo.objectives import Evidential
from selbo.posteriors import forward_samples

DRAWS = 3


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Shapes of the inputs of every version that is compiled, by a compiler that leaves the code as it is."""
    shapes: list[tuple[int, ...]] = []

    def backend(graph: torch.fx.GraphModule, given: list[Tensor]) -> Callable[..., object]:
        shapes.extend(tuple(each.shape) for each in given if each.shape[1:] == (2, 4, 4))
        return graph.forward

    monkeypatch.setattr(compiled, "BACKEND", backend)
    torch.compiler.reset()
    yield shapes
    torch.compiler.reset()


def network(seed: int, *, bayesian: bool = True, width: int = 5) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(2, width, 3),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(4 * width, 3),
        ).double()
        norm = net[1]
        assert isinstance(norm, nn.BatchNorm2d)
        assert norm.running_mean is not None
        norm.running_mean.normal_()
    return to_bayesian(net, init_std=0.3) if bayesian else net


def images(count: int = 11) -> Tensor:
    return torch.randn(count, 2, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def noise() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("bayesian", [False, True])
@pytest.mark.parametrize("batch_size", [4, 11, 16])
def test_the_numbers_are_those_of_eager_predictions(
    bayesian: bool, batch_size: int, compiles: list[tuple[int, ...]]
) -> None:
    net = network(0, bayesian=bayesian).train()
    one, other = noise(), noise()
    eager = predict(net, images(), DRAWS, generator=one, batch_size=batch_size)
    found = predict(net, images(), DRAWS, generator=other, batch_size=batch_size, engine="compiled")
    for name, values in vars(eager).items():
        torch.testing.assert_close(getattr(found, name), values, rtol=1e-10, atol=1e-12)
    assert torch.equal(one.get_state(), other.get_state())
    assert all(module.training for module in net.modules())
    assert not found.probs.requires_grad
    assert [shape[0] for shape in compiles] == [batch_size]  # one shape, the last block filled up


@pytest.mark.slow
def test_networks_of_an_architecture_share_the_code(compiles: list[tuple[int, ...]]) -> None:
    probs = []
    for seed in range(3):  # each is gone before the next comes
        net = network(seed)
        probs += [
            predict(net, images(count), DRAWS, generator=noise(), batch_size=4, engine="compiled").probs
            for count in (8, 3, 11)
        ]
        del net
        gc.collect()
    assert len(compiles) == 1
    for seed in range(3):  # with weights of their own all the same
        eager = predict(network(seed), images(8), DRAWS, generator=noise()).probs
        torch.testing.assert_close(probs[3 * seed], eager, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_many_architectures_are_all_compiled(compiles: list[tuple[int, ...]]) -> None:
    for width in range(2, 12):
        net = network(0, bayesian=False, width=width)
        predict(net, images(4), generator=noise(), batch_size=4, engine="compiled")
    assert len(compiles) == 10  # torch's own limit is 8


def test_a_function_keeps_more_versions_than_torch_would(compiles: list[tuple[int, ...]]) -> None:
    class Weighted:
        weight = 0.0

        def times(self, values: Tensor) -> Tensor:
            return self.weight * values

    for i in range(10):
        each = Weighted()
        each.weight = 0.5 + i
        quick = compiled.compile_function(each.times, backend=compiled.BACKEND)
        assert torch.equal(quick(images(1)), (0.5 + i) * images(1))
    assert len(compiles) == 10


def test_a_loader_sets_the_shape_by_its_first_batch(compiles: list[tuple[int, ...]]) -> None:
    loader = DataLoader(TensorDataset(images()), batch_size=4, generator=torch.Generator())
    found = predict(network(0), loader, DRAWS, generator=noise(), engine="compiled")
    eager = predict(network(0), images(), DRAWS, generator=noise())
    torch.testing.assert_close(found.probs, eager.probs, rtol=1e-10, atol=1e-12)
    assert [shape[0] for shape in compiles] == [4]


def test_evidence(compiles: list[tuple[int, ...]]) -> None:
    net, objective = network(0, bayesian=False), Evidential(9)
    found = predict(net, images(), objective=objective, generator=noise(), batch_size=4, engine="compiled")
    eager = predict(net, images(), objective=objective, generator=noise())
    torch.testing.assert_close(found.mutual_information, eager.mutual_information, rtol=1e-9, atol=1e-12)
    assert len(compiles) == 1


@pytest.mark.parametrize("bayesian", [False, True])
def test_half_precision(bayesian: bool, compiles: list[tuple[int, ...]]) -> None:
    net, given = network(0, bayesian=bayesian).float(), images().float()
    settings = {"generator": noise(), "batch_size": 4, "precision": "bf16"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*mkldnn")  # which some processors lack half precision for
        found = predict(net, given, DRAWS, **{**settings, "generator": noise()}, engine="compiled")
        eager = predict(net, given, DRAWS, **settings)
    assert found.probs.dtype == torch.float32
    torch.testing.assert_close(found.probs, eager.probs, rtol=0, atol=0.02)
    assert not torch.equal(found.probs, predict(net, given, DRAWS, generator=noise()).probs)
    assert len(compiles) == 1


def test_images_lie_channels_last() -> None:
    assert compiled.channels_last(images()).is_contiguous(memory_format=torch.channels_last)
    vectors = torch.ones(3, 2)
    assert compiled.channels_last(vectors) is vectors


@pytest.mark.parametrize("padded", [False, True])
def test_convolutional_networks_keep_images_channels_last(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """BatchNorm of a GPU is slow in the other layout."""
    monkeypatch.setattr(stacked, "SMALL_CONVOLUTION", 0)
    net = to_bayesian(ConvNet(2, padded=padded, generator=noise())).to(memory_format=torch.channels_last)
    seen: list[bool] = []
    for each in net.modules():
        if isinstance(each, nn.BatchNorm2d | nn.MaxPool2d):
            each.register_forward_pre_hook(
                lambda _, given: seen.append(given[0].is_contiguous(memory_format=torch.channels_last))
            )
    given = compiled.channels_last(torch.rand(6, 1, 28, 28, generator=noise()))
    forward_samples(net, given, DRAWS, generator=noise())
    assert seen == [True] * (8 if padded else 7)


# --- a compiler that fails ---


def test_a_network_that_cannot_be_compiled_predicts_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def backend(*_: object) -> Callable[..., object]:
        tried.append(1)
        raise RuntimeError("no compiler here\nand much more")

    monkeypatch.setattr(compiled, "BACKEND", backend)
    torch.compiler.reset()
    net = network(0)
    eager = predict(net, images(), DRAWS, generator=noise(), batch_size=4)
    with pytest.warns(UserWarning, match="could not be compiled, so it predicts eagerly.*no compiler here") as told:
        found = predict(net, images(), DRAWS, generator=noise(), batch_size=4, engine="compiled")
    assert len(told) == 1
    assert torch.equal(found.probs, eager.probs)
    again = predict(net, images(), DRAWS, generator=noise(), batch_size=4, engine="compiled")  # and no warning
    assert torch.equal(again.probs, eager.probs)
    assert len(tried) == 1
    torch.compiler.reset()


def test_what_is_wrong_with_the_inputs_is_said_as_ever(compiles: list[tuple[int, ...]]) -> None:
    with pytest.raises(RuntimeError, match=r"tensor|channels"):  # by the processor
        predict(network(0), torch.ones(3, 1, 4, 4, dtype=torch.float64), generator=noise(), engine="compiled")
    with pytest.raises(ValueError, match=r"`inputs` must be a batch of at least one"):
        predict(network(0), images(0), generator=noise(), engine="compiled")
    with pytest.raises(ValueError, match=r"`model` must return logits of shape \(B, K\)"):
        predict(nn.Flatten(0), images(), generator=noise(), engine="compiled")
    with pytest.raises(ValueError, match=r"`engine` must be one of \['compiled', 'eager'\], but got 'quick'"):
        predict(network(0), images(), generator=noise(), engine="quick")
