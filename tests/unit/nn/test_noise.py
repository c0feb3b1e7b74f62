"""Noise of the weights: decided by the generator alone, however many samples are drawn at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from selbo.nn.gaussian import GaussianParameter, draw_noise

CHUNK = 16  # torch turns so many uniform numbers at a time into normal ones
SIZES = (1, CHUNK - 1, CHUNK, CHUNK + 1, 100_003)


def posteriors(size: int, dtype: torch.dtype = torch.float32) -> list[GaussianParameter]:
    """Two tensors of weights, `size` numbers together; of one number, the first is empty."""
    parts = (size // 3, size - size // 3)
    return [GaussianParameter(torch.zeros(part, dtype=dtype), torch.ones(part, dtype=dtype), 1.0) for part in parts]


def draw(rows: int, size: int, source: torch.Generator | int | None = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(source) if isinstance(source, int) else source
    return draw_noise(posteriors(size, dtype), rows, generator)


def box_muller(seed: int, size: int) -> np.ndarray:
    """What a seed means: Mersenne Twister, 24 bits each, chunks of 16; an incomplete last chunk is drawn again."""
    uniform = np.random.RandomState(seed).randint(0, 2**32, size + CHUNK, dtype=np.uint32)
    uniform = (uniform & (2**24 - 1)) / 2**24
    last = uniform[size:] if size % CHUNK else uniform[size - CHUNK : size]
    chunks = np.concatenate([uniform[: size - size % CHUNK], last]).reshape(-1, 2, CHUNK // 2)
    radius, angle = np.sqrt(-2 * np.log1p(-chunks[:, 0])), 2 * np.pi * chunks[:, 1]
    normal = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1, CHUNK)
    return np.concatenate([normal[:-1].ravel()[: size - CHUNK], normal[-1]])


@pytest.mark.parametrize("size", [16, 17, 4095, 4096, 70_000])
def test_a_seed_means_the_same_numbers_on_every_processor(size: int) -> None:
    """Against numpy, whatever the processor: small and large networks alike."""
    np.testing.assert_allclose(draw(1, size, 11)[0].numpy(), box_muller(11, size), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", SIZES)
def test_rows_do_not_depend_on_how_many_are_drawn_at_a_time(size: int, dtype: torch.dtype) -> None:
    one, two = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    whole = draw(5, size, one, dtype)
    assert whole.shape == (5, size)
    assert whole.dtype == dtype
    parts = torch.cat([draw(rows, size, two, dtype) for rows in (1, 3, 1)])
    assert torch.equal(whole, parts)
    assert torch.equal(one.get_state(), two.get_state())
    assert not torch.equal(whole, draw(5, size, 4, dtype))
    if dtype != torch.bfloat16:
        assert len(whole.unique()) > 0.99 * whole.numel(), "no number twice, but for the few values of float32"


@pytest.mark.parametrize("size", SIZES)
def test_every_number_is_written(size: int) -> None:
    """Also the last one of a row that is no multiple of the chunk."""
    many = torch.stack([draw(2, size, seed) for seed in range(3)])
    assert many.isfinite().all()
    assert (many.abs() < 7).all()
    assert (many != 0).any(0).all()
    assert (many[0] != many[1]).any(0).all()


@pytest.mark.parametrize("size", [20, 100_003])
def test_without_a_generator_torch_s_own_decides(size: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(8)
        own, next_own = draw(2, size, None), draw(2, size, None)
    source = torch.Generator().manual_seed(8)
    assert torch.equal(own, draw(2, size, source))
    assert torch.equal(next_own, draw(2, size, source))
    assert not torch.equal(own, next_own)


def test_a_default_device_is_not_used() -> None:
    expected, weights, generator = draw(2, 21, 3), posteriors(21), torch.Generator().manual_seed(3)
    with torch.device("meta"):
        assert torch.equal(draw_noise(weights, 2, generator), expected)


def test_large_noise_can_be_compiled() -> None:
    torch.compiler.reset()
    weights = posteriors(100_003)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        compiled = torch.compile(lambda: draw_noise(weights, 2, None), fullgraph=True, backend="aot_eager")
        one, two = compiled(), compiled()
    assert one.shape == (2, 100_003)
    assert not torch.equal(one, two)


def test_posteriors_of_two_types_are_refused() -> None:
    with pytest.raises(ValueError, match="on one device and of one type"):
        draw_noise([*posteriors(20), *posteriors(20, torch.float64)], 1, None)
