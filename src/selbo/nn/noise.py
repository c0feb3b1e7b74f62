"""Standard normal noise for weights, row after row; on an ARM by numpy, which is quicker at it there than torch."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import torch
from torch import Tensor

from selbo.nn.stacked import IS_ARM

BLOCK: Final = 2**16
"""Numbers from one stream. Blocks are what threads share out; to start a stream costs as much as 2600 numbers."""

SHORTEST_ROW: Final = 2**12
"""Numbers in a row from which on starting streams pays; below it torch is as quick."""

THREADED: Final = 2**18
"""Numbers from which on threads are started: some two milliseconds of work."""


def standard_normal(
    num_rows: int, row_size: int, *, dtype: torch.dtype, device: torch.device, generator: torch.Generator | None = None
) -> Tensor:
    """Standard normal numbers, shape (num_rows, row_size), decided by the state of the generator alone.

    Row after row: how many rows are drawn at a time changes none of them, and neither does the number of threads.

    Args:
        num_rows: Number of rows.
        row_size: Numbers in each.
        dtype: Of the result.
        device: Of the result.
        generator: Where they come from; torch's own if not given.
    """
    if torch.compiler.is_compiling():  # a graph has no room for rows that are written one by one
        rows = [torch.randn(row_size, generator=generator, dtype=dtype, device=device) for _ in range(num_rows)]
        return torch.stack(rows)
    noise = torch.empty(num_rows, row_size, dtype=dtype, device=device)
    by_numpy = IS_ARM and device.type == "cpu" and dtype in (torch.float32, torch.float64)
    if by_numpy and row_size >= SHORTEST_ROW:
        _fill(noise, generator)
    else:
        for row in noise:
            row.normal_(generator=generator)
    return noise


def _fill(noise: Tensor, generator: torch.Generator | None) -> None:
    """Normal numbers in every row, a block at a time, each block from a stream whose seed the generator gives.

    numpy takes 7.5 ns a float32, torch.randn 20 ns (Neoverse-N1, torch 2.13.0, numpy 2.4.6), and unlike torch's it runs
    in several threads. On an x86 (Xeon, torch 2.11) torch.randn takes 5.5 ns and numpy 14.
    """
    num_rows, row_size = noise.shape
    starts = range(0, row_size, BLOCK)
    seeds = torch.randint(2**63 - 1, (num_rows, len(starts)), generator=generator, device="cpu").tolist()
    values = noise.numpy()
    blocks = deque(
        (seed, values[row, start : start + BLOCK])
        for row, of_row in enumerate(seeds)
        for seed, start in zip(of_row, starts, strict=True)
    )

    def work() -> None:
        while True:
            try:
                seed, block = blocks.popleft()
            except IndexError:  # none left
                return
            np.random.Generator(np.random.SFC64(seed)).standard_normal(out=block, dtype=block.dtype)

    helpers = min(torch.get_num_threads(), len(blocks)) - 1
    if noise.numel() < THREADED or helpers < 1:
        work()
        return
    # a pool for this call alone: a lasting one would not survive a fork
    with ThreadPoolExecutor(helpers) as pool:
        futures = [pool.submit(work) for _ in range(helpers)]
        work()
        for future in futures:
            future.result()
