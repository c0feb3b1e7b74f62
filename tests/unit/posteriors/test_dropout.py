"""MC dropout: masks that remove columns of weights, the same for all inputs, and the usual loop in expectation."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from seeded import noise
from torch import Tensor, nn

import selbo
from selbo.posteriors import MCDropout


def network(seed: int = 0, dropout: float = 0.4) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    return selbo.models.MLP((4, 7, 5, 3), dropout=dropout, generator=generator).double()


def inputs(count: int = 6) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_a_sample_is_a_network_without_some_columns() -> None:
    net = network().eval()
    posterior = MCDropout(net)
    seeds = posterior.draw_noise(5, noise())
    found = posterior.forward_noise(inputs(), seeds)
    for seed, logits in zip(seeds[:, 0].tolist(), found, strict=True):
        generator, other = noise(seed), copy.deepcopy(net)
        linear = [each for each in other.modules() if isinstance(each, nn.Linear)]
        for layer in linear[1:]:
            kept = torch.rand(1, layer.in_features, generator=generator) < 0.6
            layer.weight.data = layer.weight.data * kept / 0.6
        torch.testing.assert_close(logits, other(inputs()))
    assert not torch.equal(found[0], found[1])


def test_channels_are_dropped_together_and_batchnorm_is_not_disturbed() -> None:
    with torch.random.fork_rng():
        net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Dropout2d(0.5), nn.Flatten())
    net.train()
    before = {name: each.clone() for name, each in net.state_dict().items()}
    pixels = torch.rand(5, 1, 4, 4, generator=noise())
    posterior = MCDropout(net)
    found = posterior.log_probs(pixels, 3, generator=noise())
    assert found.shape == (3, 5, 32)
    assert all(torch.equal(each, before[name]) for name, each in net.state_dict().items())
    net.eval()
    outputs = posterior.forward_samples(pixels, 3, generator=noise()).unflatten(-1, (8, 4))
    is_off = (outputs == 0).all(-1)
    assert torch.equal(is_off, (outputs == 0).any(-1))
    assert torch.equal(is_off, is_off[:, :1].expand_as(is_off)), "the same for all inputs"
    assert 0 < is_off.double().mean() < 1


@pytest.mark.parametrize("chunk_size", [1, 2, 5])
def test_samples_do_not_depend_on_chunks_and_blocks(chunk_size: int) -> None:
    posterior = MCDropout(network().eval())
    expected = posterior.forward_samples(inputs(), 5, generator=noise())
    assert torch.equal(posterior.forward_samples(inputs(), 5, generator=noise(), chunk_size=chunk_size), expected)
    whole, parts = (selbo.predict(posterior, inputs(), 5, generator=noise(), batch_size=size) for size in (7, 2))
    torch.testing.assert_close(whole.log_probs, parts.log_probs)
    compiled = selbo.predict(posterior, inputs(), 5, generator=noise(), engine="compiled")
    assert torch.equal(compiled.log_probs, whole.log_probs), "it runs eagerly"


def test_samples_can_be_weighted_and_saved(tmp_path: Path) -> None:
    posterior, other = MCDropout(network()), MCDropout(network(1))
    summary = selbo.SummaryLikelihood(selbo.ClassRegions(3), selbo.Masses([0.6, 0.3, 0.1]), 5.0)
    log_probs = posterior.log_probs(inputs(), 8, generator=noise())
    assert 1 <= selbo.belief_weights(log_probs, summary).effective_sample_size < 8
    other.load(posterior.save(tmp_path / "dropout.safetensors"))
    assert torch.equal(other.log_probs(inputs(), 8, generator=noise()), log_probs)


def test_what_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match="must have dropout layers with a probability above 0, but has none"):
        MCDropout(network(dropout=0.0))
    with pytest.raises(ValueError, match="must have no AlphaDropout, but '1' is one"):
        MCDropout(nn.Sequential(nn.Dropout(), nn.AlphaDropout()))
    with pytest.raises(ValueError, match=r"made by selbo\.to_bayesian"):
        MCDropout(selbo.to_bayesian(network()))
    with pytest.raises(ValueError, match="`scale` must be 1 for MCDropout"):
        MCDropout(network()).scale = 2.0
    with pytest.raises(ValueError, match="`estimator` must be 'shared' for MCDropout"):
        MCDropout(network()).forward_samples(inputs(), 2, estimator="local", generator=noise())
