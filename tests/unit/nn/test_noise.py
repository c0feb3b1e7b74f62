"""Noise: decided by the generator alone, whatever the number of rows at a time and of threads."""

from __future__ import annotations

import multiprocessing

import pytest
import torch
from torch import Tensor

from selbo.nn import noise
from selbo.nn.noise import BLOCK, SHORTEST_ROW, THREADED, standard_normal

CPU = torch.device("cpu")
SIZES = (1, 15, 16, SHORTEST_ROW - 1, SHORTEST_ROW, BLOCK, BLOCK + 1, 2 * BLOCK + 77)


@pytest.fixture(autouse=True, params=["numpy", "torch"])
def source_of_numbers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an ARM, and as elsewhere."""
    monkeypatch.setattr(noise, "IS_ARM", request.param == "numpy")


def draw(rows: int, size: int, source: torch.Generator | int | None = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(source) if isinstance(source, int) else source
    return standard_normal(rows, size, dtype=dtype, device=CPU, generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
def test_rows_do_not_depend_on_how_many_are_drawn_at_a_time(size: int, dtype: torch.dtype) -> None:
    one, two = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    whole = draw(5, size, one, dtype)
    assert whole.shape == (5, size)
    assert whole.dtype == dtype
    parts = torch.cat([draw(rows, size, two, dtype) for rows in (1, 3, 1)])
    assert torch.equal(whole, parts)
    assert torch.equal(one.get_state(), two.get_state())
    assert torch.equal(whole, draw(5, size, 3, dtype)), "the same state, the same numbers"
    assert not torch.equal(whole, draw(5, size, 4, dtype))
    assert len(whole.unique()) > 0.99 * whole.numel(), "no number twice, but for the few values of float32"


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_the_number_of_threads_changes_nothing(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = draw(3, 2 * BLOCK + 77)
    assert expected.numel() > THREADED, "large enough for threads"
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert torch.equal(draw(3, 2 * BLOCK + 77), expected)
    monkeypatch.setattr(noise, "THREADED", 0)
    assert torch.equal(draw(3, 2 * BLOCK + 77), expected)
    assert torch.equal(draw(1, SHORTEST_ROW), draw(3, SHORTEST_ROW)[:1])


def test_every_number_is_written() -> None:
    """Also the last one of a row that is no multiple of the block."""
    for size in SIZES:
        many = torch.stack([draw(2, size, seed) for seed in range(3)])
        assert many.isfinite().all()
        assert (many.abs() < 7).all()
        assert (many != 0).any(0).all()
        assert (many[0] != many[1]).any(0).all()


def test_without_a_generator_torch_s_own_decides() -> None:
    for size in (20, BLOCK + 5):
        with torch.random.fork_rng():
            torch.manual_seed(8)
            own, next_own = draw(2, size, None), draw(2, size, None)
        source = torch.Generator().manual_seed(8)
        assert torch.equal(own, draw(2, size, source))
        assert torch.equal(next_own, draw(2, size, source))
        assert not torch.equal(own, next_own)


def test_short_rows_and_other_types_are_torch_s_normal_numbers() -> None:
    source = torch.Generator().manual_seed(3)
    assert torch.equal(draw(1, 100)[0], torch.randn(100, generator=source))
    half = draw(2, BLOCK + 5, dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert abs(half.float().std() - 1) < 0.02
    source = torch.Generator().manual_seed(3)
    assert torch.equal(half[0], torch.empty(BLOCK + 5, dtype=torch.bfloat16).normal_(generator=source))


def test_a_default_device_is_not_used() -> None:
    expected = draw(2, BLOCK + 5)
    with torch.device("meta"):
        assert torch.equal(draw(2, BLOCK + 5), expected)


def test_large_noise_can_be_compiled() -> None:
    torch._dynamo.reset()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        compiled = torch.compile(lambda: draw(2, BLOCK + 5, None), fullgraph=True, backend="aot_eager")
        one, two = compiled(), compiled()
    assert one.shape == (2, BLOCK + 5)
    assert not torch.equal(one, two)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_forked_process_draws_the_same_after_its_parent_did() -> None:
    expected = draw(3, 2 * BLOCK + 77)  # threads have been used before the fork
    context = multiprocessing.get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    # summed by numpy: torch's own threads do not survive a fork
    child = context.Process(target=lambda: writer.send(draw(3, 2 * BLOCK + 77).numpy().sum().item()))
    child.start()
    assert reader.poll(60)
    assert reader.recv() == expected.numpy().sum().item()
    child.join(60)
    assert child.exitcode == 0
