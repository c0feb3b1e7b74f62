"""Training rows in a folder, for data sets larger than memory: written once, and read in blocks, shuffled.

Inputs are stored as float32, or as one byte where they are zeros and ones. An epoch takes blocks of consecutive rows
in random order, some at a time, and shuffles the rows of these: a batch holds rows from several places of the file.
"""

import bisect
import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo.random import generator_for
from selbo.training.batches import (
    CHECKSUM_ENTRIES,
    Batch,
    LoaderBatches,
    TensorBatches,
    checksum,
    rows_not_finite,
)

ROWS_PER_BLOCK: Final = 4096
"""Rows that are read together."""

SHUFFLED_ROWS: Final = 65_536
"""Rows in memory, which are shuffled together: at least so many, less than twice as many, and four batches."""

NUMBERS_FILE: Final = "numbers.f32"
FLAGS_FILE: Final = "flags.u8"
CLASSES_FILE: Final = "labels.i32"


class RowWriter:
    """Writes training rows to a folder, chunk by chunk.

    Args:
        folder: The folder; it must exist.
        flags: Which inputs are zeros and ones.
    """

    def __init__(self, folder: Path, flags: Sequence[bool]) -> None:
        self.flags = np.asarray(flags, dtype=bool)
        self.folder, self.files = folder, list[IO[bytes]]()

    def __enter__(self) -> "RowWriter":
        self.files = [(self.folder / name).open("wb") for name in (NUMBERS_FILE, FLAGS_FILE, CLASSES_FILE)]
        return self

    def write(self, inputs: NDArray[Any], labels: NDArray[Any]) -> None:
        """Append rows: inputs (n, inputs) and their classes (n,)."""
        numbers, flags, classes = self.files
        numbers.write(np.ascontiguousarray(inputs[:, ~self.flags], dtype=np.float32).data)
        flags.write(np.ascontiguousarray(inputs[:, self.flags], dtype=np.uint8).data)
        classes.write(np.ascontiguousarray(labels, dtype=np.int32).data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.files:
            each.close()


class RowStore:
    """Training rows in a folder, as `RowWriter` wrote them; `selbo.fit` takes it as training data.

    Args:
        folder: The folder.
        flags: Which inputs are zeros and ones.
        dtype: Type of the inputs of a batch.
    """

    def __init__(self, folder: Path, flags: Sequence[bool], *, dtype: torch.dtype = torch.float32) -> None:
        self.folder, self.dtype = folder, dtype
        is_flag = np.asarray(flags, dtype=bool)
        self.num_inputs, self.widths = len(is_flag), (int((~is_flag).sum()), int(is_flag.sum()))
        self._order = np.argsort(np.concatenate([np.flatnonzero(~is_flag), np.flatnonzero(is_flag)]))
        self._in_order = bool((self._order == np.arange(len(is_flag))).all())
        self.num_rows = (folder / CLASSES_FILE).stat().st_size // 4
        sizes = ((NUMBERS_FILE, 4 * self.widths[0]), (FLAGS_FILE, self.widths[1]))
        if any((folder / name).stat().st_size != width * self.num_rows for name, width in sizes):
            raise ValueError("the stored training rows are not complete: remove the folder, and train again")

    def labels(self) -> Tensor:
        """Classes of all rows, (N,)."""
        return torch.from_numpy(np.fromfile(self.folder / CLASSES_FILE, dtype=np.int32).astype(np.int64))

    def read(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Inputs (n, inputs) and classes (n,) of consecutive rows."""
        return self._joined(*(self._part(name, kind, width, first, count) for name, kind, width in self._files()))

    def rows(self, places: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Inputs and classes of some rows, anywhere."""
        found = []
        for name, kind, width in self._files():
            shape = (self.num_rows, width)
            whole = np.memmap(self.folder / name, kind, "r", shape=shape) if width else np.empty(shape, kind)
            found.append(np.array(whole[places]))
        return self._joined(*found)

    def _files(self) -> tuple[tuple[str, Any, int], ...]:
        return (
            (NUMBERS_FILE, np.float32, self.widths[0]),
            (FLAGS_FILE, np.uint8, self.widths[1]),
            (CLASSES_FILE, np.int32, 1),
        )

    def _part(self, name: str, kind: Any, width: int, first: int, count: int) -> NDArray[Any]:
        size = np.dtype(kind).itemsize * width
        found = np.fromfile(self.folder / name, kind, count * width, offset=first * size) if width else np.empty(0)
        return found.reshape(-1 if width else min(count, self.num_rows - first), width)

    def _joined(self, numbers: NDArray[Any], flags: NDArray[Any], labels: NDArray[Any]) -> tuple[Tensor, Tensor]:
        if self.widths[1]:
            numbers = np.concatenate([numbers, flags.astype(np.float32)], axis=1)
        inputs = numbers if self._in_order else numbers[:, self._order]
        return torch.from_numpy(inputs).to(self.dtype), torch.from_numpy(labels[:, 0].astype(np.int64))


class StoredBatches:
    """Batches of stored rows: blocks in random order, and rows shuffled within some blocks at a time.

    A store of less than twice `SHUFFLED_ROWS` rows is shuffled as a whole, in the order of `TensorBatches`.

    Args:
        store: The rows.
        batch_size: B. A smaller store is one batch.
        seed: Seed for the order.
        device: Device that batches are moved to.
    """

    def __init__(self, store: RowStore, *, batch_size: int, seed: int, device: torch.device) -> None:
        if store.num_rows == 0:
            raise ValueError("`train` must hold at least one example, but holds none")
        self.store, self.seed, self.device = store, seed, device
        self.batch_size = min(batch_size, store.num_rows)
        rows, blocks = store.num_rows, math.ceil(store.num_rows / ROWS_PER_BLOCK)
        together = math.ceil(max(SHUFFLED_ROWS, 4 * self.batch_size) / ROWS_PER_BLOCK)
        groups = max(1, blocks // together)
        self.starts = [k * blocks // groups for k in range(groups)] + [blocks]
        """First block of each group of blocks that are read together, in the order of an epoch."""
        sizes = [(end - start) * ROWS_PER_BLOCK for start, end in itertools.pairwise(self.starts)]
        sizes[-1] -= blocks * ROWS_PER_BLOCK - rows
        self.ends = list(itertools.accumulate(size // self.batch_size for size in sizes))
        """Number of batches up to the end of each group."""
        self.per_epoch = self.ends[-1]
        self.num_labels = store.num_rows

    def from_step(self, step: int) -> Iterator[Batch]:
        """Endless iterator over batches, starting at a step."""
        while True:
            epoch, position = divmod(step, self.per_epoch)
            group = bisect.bisect_right(self.ends, position)
            before = self.ends[group - 1] if group else 0
            inputs, labels = self._group(epoch, group)
            if self.device.type != "cpu":
                inputs, labels = inputs.to(self.device), labels.to(self.device)
            for k in range(position - before, self.ends[group] - before):
                rows = slice(k * self.batch_size, (k + 1) * self.batch_size)
                yield Batch(inputs[rows], labels[rows])
                step += 1

    def _group(self, epoch: int, group: int) -> tuple[Tensor, Tensor]:
        """Rows of the blocks that are read together, shuffled."""
        if len(self.ends) == 1:
            order = torch.randperm(self.store.num_rows, generator=generator_for(self.seed, "order", epoch))
            inputs, labels = self.store.read(0, self.store.num_rows)
            return inputs[order], labels[order]
        # the last block may be shorter, and stays in the last group, so that all epochs have as many batches
        places = torch.randperm(self.starts[-1] - 1, generator=generator_for(self.seed, "blocks", epoch)).tolist()
        places = [*places, self.starts[-1] - 1][self.starts[group] : self.starts[group + 1]]
        parts = [self.store.read(place * ROWS_PER_BLOCK, ROWS_PER_BLOCK) for place in places]
        inputs, labels = (torch.cat(each) for each in zip(*parts, strict=True))
        order = torch.randperm(len(labels), generator=generator_for(self.seed, "order", epoch, group))
        return inputs[order], labels[order]

    def sample(self, most: int) -> Batch:
        """A random sample of at most ``most`` examples."""
        seed = generator_for(self.seed, "sample").initial_seed()
        count = self.store.num_rows
        rows = np.random.default_rng(seed).choice(count, min(most, count), replace=False)
        inputs, labels = self.store.rows(np.sort(rows))
        return Batch(inputs.to(self.device), labels.to(self.device))

    def not_finite(self) -> str:
        """Description of the first inputs that are not finite; empty if all are finite."""
        for first in range(0, self.store.num_rows, SHUFFLED_ROWS):
            if found := rows_not_finite(self.store.read(first, SHUFFLED_ROWS)[0]):
                return f"the rows from {first} on, {found}"
        return ""

    def checksum(self) -> str:
        """Checksum of the labels and of evenly spaced rows, to match a checkpoint with its data."""
        count = max(1, CHECKSUM_ENTRIES // max(1, self.store.num_inputs))
        rows = np.arange(0, self.store.num_rows, max(1, self.store.num_rows // count))
        inputs, _ = self.store.rows(rows)
        digest = hashlib.sha256(checksum(inputs, self.store.labels()).encode())
        digest.update(repr((self.store.num_rows, self.store.num_inputs)).encode())
        return digest.hexdigest()[:16]


AnyBatches: TypeAlias = TensorBatches | LoaderBatches | StoredBatches
"""Batches of a run, whatever they come from."""
