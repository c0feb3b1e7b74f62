"""Batches from tensors on the device or from a DataLoader; the batch of a step depends only on seed and step."""

import hashlib
from collections.abc import Iterator, Sequence, Sized
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, TensorDataset

from selbo import _checks
from selbo.objectives.objective import check_batch, check_weights
from selbo.objectives.unlabelled import Assigned
from selbo.random import derive, generator_for

Data: TypeAlias = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor] | Dataset[Any] | DataLoader[Any]

CHECKSUM_ENTRIES = 1 << 20
"""Approximate number of evenly spaced input entries in the checksum of a data set."""


class Batch(NamedTuple):
    """Inputs (B, ...) and labels (B,)."""

    inputs: Tensor
    labels: Tensor


class WeightedBatch(NamedTuple):
    """Inputs (B, ...), labels (B,) and weights (B,)."""

    inputs: Tensor
    labels: Tensor
    weights: Tensor


class TensorBatches:
    """A data set held on the device, shuffled each epoch; an incomplete last batch is dropped.

    Args:
        inputs: Shape (N, ...).
        labels: Shape (N,).
        batch_size: B over all processes. A smaller data set is one batch, cut to a multiple of the processes.
        seed: Seed for the order.
        shard: Rank and number of processes; each process takes its part of every batch.
        weights: Relative weight per example, shape (N,); divided by their mean.
    """

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        *,
        batch_size: int,
        seed: int,
        shard: tuple[int, int] = (0, 1),
        weights: Tensor | None = None,
    ) -> None:
        check_batch(inputs, labels)
        self.inputs, self.labels, self.seed = inputs, labels.long(), seed
        self.weights = None if weights is None else weights / weights.mean()
        self.rank, self.world = shard
        count = len(labels)
        self.batch_size = batch_size if batch_size <= count else count - count % self.world
        if self.batch_size % self.world or self.batch_size == 0:
            raise ValueError(
                f"`batch_size` must be a multiple of the number of processes, but got {self.batch_size} "
                f"for {self.world}"
            )
        self.per_epoch = len(labels) // self.batch_size

    def order(self, epoch: int) -> Tensor:
        """Row indices of this process for each batch of an epoch: (batches, B / processes), on the CPU."""
        rows = torch.randperm(len(self.labels), generator=generator_for(self.seed, "order", epoch))
        whole = rows[: self.per_epoch * self.batch_size].reshape(self.per_epoch, self.batch_size)
        return whole.chunk(self.world, 1)[self.rank].contiguous()

    def from_step(self, step: int) -> Iterator[Batch | WeightedBatch]:
        """Endless iterator over batches, starting at a step."""
        while True:
            epoch, position = divmod(step, self.per_epoch)
            for rows in self.order(epoch)[position:].to(self.inputs.device):
                batch = Batch(self.inputs[rows], self.labels[rows])
                yield batch if self.weights is None else WeightedBatch(*batch, self.weights[rows])
                step += 1

    def sample(self, most: int) -> Batch | WeightedBatch:
        """A random sample of at most ``most`` examples with positive weight."""
        rows = torch.randperm(len(self.labels), generator=generator_for(self.seed, "sample")).to(self.labels.device)
        if self.weights is None:
            rows = rows[:most]
            return Batch(self.inputs[rows], self.labels[rows])
        rows = rows[self.weights[rows] > 0][:most]
        return WeightedBatch(self.inputs[rows], self.labels[rows], self.weights[rows])

    def not_finite(self) -> str:
        """Description of the first inputs that are not finite; empty if all are finite."""
        return rows_not_finite(self.inputs)

    def checksum(self) -> str:
        """Checksum of the labels and an evenly spaced sample of the inputs, to match a checkpoint with its data."""
        return checksum(self.inputs, self.labels, self.weights)


class UnlabelledBatches:
    """Unlabelled inputs of the summaries: each set is held on the device, with its own batches and its own order.

    Args:
        assigned: The sets, and which of them each summary uses; at least one set.
        batch_size: Batch size of each set, over all processes; a smaller set is one batch.
        device: Device of the sets.
        seed: Seed for the orders.
        shard: Rank and number of processes.
    """

    def __init__(
        self, assigned: Assigned, *, batch_size: int, device: torch.device, seed: int, shard: tuple[int, int] = (0, 1)
    ) -> None:
        self.which, self.sets = assigned.which, []
        for index, tensor in enumerate(assigned.tensors):
            there = tensor.to(device)
            no_labels = torch.zeros(len(there), dtype=torch.long, device=device)
            purpose = ("unlabelled", index) if index else ("unlabelled",)
            own = derive(seed, *purpose)
            self.sets.append(TensorBatches(there, no_labels, batch_size=batch_size, seed=own, shard=shard))

    def from_step(self, step: int) -> Iterator[Assigned]:
        """Endless iterator over batches, starting at a step."""
        for batches in zip(*(each.from_step(step) for each in self.sets), strict=True):
            yield Assigned(tuple(batch.inputs for batch in batches), self.which)

    def not_finite(self) -> str:
        """Description of the first inputs that are not finite; empty if all are finite."""
        return next(filter(None, (rows_not_finite(each.inputs) for each in self.sets)), "")

    def describe(self) -> list[Any]:
        """Batch sizes, assignment and checksums, to match a checkpoint with its data."""
        return [[each.batch_size for each in self.sets], list(self.which), [each.checksum() for each in self.sets]]


class LoaderBatches:
    """Batches from a DataLoader, seeded at the start of each epoch, so that a run can resume within one.

    Args:
        loader: Loader that yields (inputs, labels).
        device: Device that batches are moved to.
        seed: Seed for the order.
        whole_only: Skip a smaller last batch.
    """

    def __init__(self, loader: "DataLoader[Any]", *, device: torch.device, seed: int, whole_only: bool) -> None:
        self.loader, self.device, self.seed, self.whole_only = loader, device, seed, whole_only
        try:
            self.per_epoch = len(loader)
        except TypeError as error:
            raise ValueError("`train` must be a DataLoader of known length, but this one streams") from error
        self.batch_size, rows, drops = _sizes(loader)
        size = self.batch_size
        if whole_only and not drops and size is not None and rows is not None and rows > size and rows % size:
            self.per_epoch -= 1
        if self.per_epoch == 0:
            raise ValueError("`train` must give at least one batch per epoch, but the DataLoader gives none")

    def from_step(self, step: int) -> Iterator[Batch]:
        """Endless iterator over batches, starting at a step."""
        while True:
            epoch, position = divmod(step, self.per_epoch)
            for index, item in enumerate(one_pass(self.loader, seed=self.seed, epoch=epoch)):
                if index >= position:
                    yield _to_batch("train", item, self.device)
                    step += 1
                if index + 1 == self.per_epoch:
                    break
            if step < (epoch + 1) * self.per_epoch:
                raise ValueError(
                    f"`train` must give {self.per_epoch} batches per epoch, which is its length, but it gave fewer"
                )

    def sample(self, most: int) -> Batch:
        """The first batches of an epoch, until they hold at least ``most`` examples."""
        batches: list[Batch] = []
        for item in one_pass(self.loader, seed=self.seed, epoch=0):
            batches.append(_to_batch("train", item, self.device))
            if sum(len(each.labels) for each in batches) >= most:
                break
        return Batch(torch.cat([each.inputs for each in batches]), torch.cat([each.labels for each in batches]))

    def not_finite(self) -> str:
        """Description of the first inputs of an epoch that are not finite; empty if all are finite."""
        for index, item in enumerate(one_pass(self.loader, seed=self.seed, epoch=0)):
            if found := rows_not_finite(_to_batch("train", item, self.device).inputs):
                return f"batch {index}, {found}"
        return ""

    def checksum(self) -> str:
        """Number of batches, and checksum of the first one."""
        batch = _to_batch("train", next(one_pass(self.loader, seed=self.seed, epoch=0)), self.device)
        return f"{self.per_epoch} x {checksum(batch.inputs, batch.labels)}"


def rows_not_finite(inputs: Tensor) -> str:
    """Description of the rows that hold NaN or infinity; empty if there are none."""
    if not inputs.is_floating_point():
        return ""
    bad = (~inputs.isfinite()).flatten(1).any(1) if inputs.ndim > 1 else ~inputs.isfinite()
    count = int(bad.sum())
    return f"row {int(bad.nonzero()[0, 0])} ({count} of {len(bad)} rows)" if count else ""


def _sizes(loader: "DataLoader[Any]") -> tuple[int | None, int | None, bool]:
    """Batch size and rows per epoch, where a loader provides them, and whether it drops an incomplete last batch."""
    sampler = loader.batch_sampler
    if isinstance(sampler, BatchSampler):
        size, source, drops = sampler.batch_size, sampler.sampler, sampler.drop_last
        return size, len(source) if isinstance(source, Sized) else None, drops
    dataset = loader.dataset
    return loader.batch_size, len(dataset) if isinstance(dataset, Sized) else None, loader.drop_last


def one_pass(loader: "DataLoader[Any]", *, seed: int, epoch: int) -> Iterator[Any]:
    """Yield the items of a loader for one epoch, seeding torch for sampler and transforms by seed, epoch and batch.

    Each batch is seeded separately, so it is the same whether or not training happened before it.
    """
    samplers = (loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None), loader.batch_sampler)
    for own in {getattr(each, "generator", None) for each in samplers}:
        if own is not None:
            own.manual_seed(derive(seed, "order", epoch))
    iterator: Iterator[Any] | None = None
    index = 0
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(seed, "order", epoch, index))
            try:
                iterator = iter(loader) if iterator is None else iterator
                item = next(iterator)
            except StopIteration:
                return
        yield item
        index += 1


def _to_batch(name: str, item: Any, device: torch.device) -> Batch:
    if not isinstance(item, Sequence) or len(item) != 2 or not all(isinstance(each, Tensor) for each in item):
        found = f"{len(item)} things" if isinstance(item, Sequence) and len(item) != 2 else type(item).__name__
        raise ValueError(
            f"`{name}` must give pairs of tensors, inputs and labels, but gave {found}; to use weights, pass tensors "
            "instead of a loader"
        )
    inputs, labels = item
    check_batch(inputs, labels)
    return Batch(inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True).long())


def as_tensors(name: str, data: Any) -> Batch | WeightedBatch | None:
    """Inputs, labels and weights if ``data`` is two or three tensors or a TensorDataset; otherwise None."""
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, (tuple, list)):
        if len(data) not in (2, 3) or not all(isinstance(each, Tensor) for each in data):
            raise ValueError(
                f"`{name}` must be a pair of tensors, inputs and labels, or with weights three, but got {len(data)} "
                "objects"
            )
        check_batch(data[0], data[1])
        if len(data) == 3:
            check_weights(data[2], data[1])
            if not bool((data[2].isfinite() & (data[2] >= 0)).all()) or not bool((data[2] > 0).any()):
                raise ValueError(f"the weights of `{name}` must be finite, at least 0 and not all 0")
            return WeightedBatch(*data)
        return Batch(*data)
    return None


def make_batches(
    data: Data, *, batch_size: int, device: torch.device, seed: int, whole_only: bool, shard: tuple[int, int] = (0, 1)
) -> TensorBatches | LoaderBatches:
    """Build batches from the ``train`` argument of `fit`."""
    _checks.whole("batch_size", batch_size, at_least=1)
    tensors = as_tensors("train", data)
    if tensors is not None:
        inputs, labels, *weights = (each.to(device) for each in tensors)
        return TensorBatches(
            inputs, labels, batch_size=batch_size, seed=seed, shard=shard, weights=weights[0] if weights else None
        )
    if shard[1] > 1:
        raise ValueError("`train` must be tensors or a TensorDataset to train with several processes")
    if isinstance(data, DataLoader):
        return LoaderBatches(data, device=device, seed=seed, whole_only=whole_only)
    if isinstance(data, Dataset):
        loader: DataLoader[Any] = DataLoader(data, batch_size=batch_size, shuffle=True)
        return LoaderBatches(loader, device=device, seed=seed, whole_only=whole_only)
    raise ValueError(f"`train` must be (inputs, labels), a Dataset or a DataLoader, but got {type(data).__name__}")


def whole_set(name: str, data: Data, *, device: torch.device, seed: int) -> Batch | WeightedBatch:
    """Load a whole data set as one batch, for validation."""
    tensors = as_tensors(name, data)
    if tensors is None:
        if not isinstance(data, (Dataset, DataLoader)):
            raise ValueError(
                f"`{name}` must be (inputs, labels), a Dataset or a DataLoader, but got {type(data).__name__}"
            )
        loader = data if isinstance(data, DataLoader) else DataLoader(data, batch_size=1024)
        batches = [_to_batch(name, item, torch.device("cpu")) for item in one_pass(loader, seed=seed, epoch=0)]
        if not batches:
            raise ValueError(f"`{name}` must hold at least one example, but holds none")
        tensors = Batch(torch.cat([each.inputs for each in batches]), torch.cat([each.labels for each in batches]))
    there = Batch(tensors.inputs.to(device), tensors.labels.to(device).long())
    return WeightedBatch(*there, tensors.weights.to(device)) if isinstance(tensors, WeightedBatch) else there


def checksum(inputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> str:
    """Checksum of a data set, 16 hexadecimal digits, from labels, weights and an evenly spaced sample of the inputs."""
    flat = inputs.detach().reshape(-1)
    sample = flat[:: max(1, flat.numel() // CHECKSUM_ENTRIES)]
    digest = hashlib.sha256(repr((tuple(inputs.shape), str(inputs.dtype))).encode())
    digest.update(sample.double().cpu().numpy().tobytes())
    digest.update(labels.detach().long().cpu().numpy().tobytes())
    if weights is not None:
        digest.update(weights.detach().double().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
