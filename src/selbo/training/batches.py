"""Batches from tensors on the device or from a DataLoader; the batch of a step depends only on seed and step."""

import hashlib
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, TensorDataset

from selbo import _checks
from selbo.objectives.objective import MISSING_LABEL, check_batch, check_inputs, check_weights
from selbo.objectives.unlabelled import Assigned, Grouped, UnlabelledSet, check_group_index
from selbo.random import derive, generator_for
from selbo.training.groups import group_order

Data: TypeAlias = (
    Tensor | tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, Tensor] | Dataset[Any] | DataLoader[Any]
)

CHECKSUM_ENTRIES = 1 << 20
"""Approximate number of evenly spaced input entries in the checksum of a data set."""


class Batch(NamedTuple):
    """Examples of a step.

    Attributes:
        inputs: Shape (B, ...).
        labels: Classes, shape (B,), -1 where none is known; None if no example of the data set has a label.
        weights: Weight per example, shape (B,); None for equal weights.
        groups: Group of each example, shape (B,), -1 for none; None if there are no groups.
    """

    inputs: Tensor
    labels: Tensor | None
    weights: Tensor | None = None
    groups: Tensor | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """A batch of the results of a function of each tensor."""
        return Batch(*(None if each is None else function(each) for each in self))  # type: ignore[arg-type]


class TensorBatches:
    """A data set held on the device, shuffled each epoch; an incomplete last batch is dropped.

    Args:
        inputs: Shape (N, ...).
        labels: Shape (N,), -1 where none is known; None without labels.
        batch_size: B over all processes. A smaller data set is one batch, cut to a multiple of the processes.
        seed: Seed for the order.
        shard: Rank and number of processes; each process takes its part of every batch.
        weights: Relative weight per example, shape (N,); divided by their mean.
        groups: Group of each example, shape (N,); -1 for none.
        rows_per_group: Number of examples of a group that stay together, see `group_order`; if None, the order ignores
            groups.
    """

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor | None,
        *,
        batch_size: int,
        seed: int,
        shard: tuple[int, int] = (0, 1),
        weights: Tensor | None = None,
        groups: Tensor | None = None,
        rows_per_group: int | None = None,
    ) -> None:
        check_examples(inputs, labels)
        check_group_index(groups, inputs)
        if labels is not None:
            labels = labels.long()
            labels = None if bool((labels == MISSING_LABEL).all()) else labels
        self.data = Batch(
            inputs,
            labels,
            None if weights is None else weights / weights.mean(),
            None if groups is None else groups.long(),
        )
        self.inputs, self.seed, self.rows_per_group = inputs, seed, rows_per_group
        self._groups_on_cpu = None if groups is None or rows_per_group is None else groups.long().cpu()
        self.rank, self.world = shard
        count = len(inputs)
        self.batch_size = batch_size if batch_size <= count else count - count % self.world
        if self.batch_size % self.world or self.batch_size == 0:
            raise ValueError(
                f"`batch_size` must be a multiple of the number of processes, but got {self.batch_size} "
                f"for {self.world}"
            )
        self.per_epoch = count // self.batch_size

    @property
    def num_labels(self) -> int:
        """Number of examples with a label."""
        return count_labels(self.data)

    def order(self, epoch: int) -> Tensor:
        """Row indices of this process for each batch of an epoch: (batches, B / processes), on the CPU."""
        generator = generator_for(self.seed, "order", epoch)
        if self._groups_on_cpu is None or self.rows_per_group is None:
            rows = torch.randperm(len(self.inputs), generator=generator)
        else:
            rows = group_order(self._groups_on_cpu, self.rows_per_group, generator=generator)
        whole = rows[: self.per_epoch * self.batch_size].reshape(self.per_epoch, self.batch_size)
        return whole.chunk(self.world, 1)[self.rank].contiguous()

    def from_step(self, step: int) -> Iterator[Batch]:
        """Endless iterator over batches, starting at a step."""
        while True:
            epoch, position = divmod(step, self.per_epoch)
            for rows in self.order(epoch)[position:].to(self.inputs.device):
                yield self.data.map(lambda each, rows=rows: each[rows])  # type: ignore[misc]
                step += 1

    def sample(self, most: int) -> Batch:
        """A random sample of at most ``most`` labelled examples with positive weight."""
        _, labels, weights, _ = self.data
        device = self.inputs.device
        rows = torch.randperm(len(self.inputs), generator=generator_for(self.seed, "sample")).to(device)
        if labels is not None:
            rows = rows[labels[rows] != MISSING_LABEL]
        if weights is not None:
            rows = rows[weights[rows] > 0]
        rows = rows[:most]
        return self.data.map(lambda each: each[rows])

    def not_finite(self) -> str:
        """Description of the first inputs that are not finite; empty if all are finite."""
        return rows_not_finite(self.inputs)

    def checksum(self) -> str:
        """Checksum of the labels and an evenly spaced sample of the inputs, to match a checkpoint with its data."""
        return checksum(*self.data)


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
        self,
        assigned: Assigned,
        *,
        batch_size: int,
        device: torch.device,
        seed: int,
        shard: tuple[int, int] = (0, 1),
        rows_per_group: int | None = None,
    ) -> None:
        self.which, self.sets = assigned.which, []
        for index, (inputs, groups) in enumerate(zip(assigned.inputs(), assigned.groups(), strict=True)):
            purpose = ("unlabelled", index) if index else ("unlabelled",)
            self.sets.append(
                TensorBatches(
                    inputs.to(device),
                    None,
                    batch_size=batch_size,
                    seed=derive(seed, *purpose),
                    shard=shard,
                    groups=None if groups is None else groups.to(device),
                    rows_per_group=rows_per_group,
                )
            )

    def from_step(self, step: int) -> Iterator[Assigned]:
        """Endless iterator over batches, starting at a step."""
        for batches in zip(*(each.from_step(step) for each in self.sets), strict=True):
            yield Assigned(tuple(as_set(batch.inputs, batch.groups) for batch in batches), self.which)

    def not_finite(self) -> str:
        """Description of the first inputs that are not finite; empty if all are finite."""
        return next(filter(None, (rows_not_finite(each.inputs) for each in self.sets)), "")

    def describe(self) -> list[Any]:
        """Batch sizes, assignment and checksums, to match a checkpoint with its data."""
        return [[each.batch_size for each in self.sets], list(self.which), [each.checksum() for each in self.sets]]


def as_set(inputs: Tensor, groups: Tensor | None) -> UnlabelledSet:
    """Unlabelled inputs, with their groups if they are known."""
    return inputs if groups is None else Grouped(inputs, groups)


class LoaderBatches:
    """Batches from a DataLoader, seeded at the start of each epoch, so that a run can resume within one.

    Args:
        loader: Loader that yields (inputs, labels), or (inputs, labels, groups).
        device: Device that batches are moved to.
        seed: Seed for the order.
        whole_only: Skip a smaller last batch.
    """

    num_labels: int | None = None  # not known without a pass over the data

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
            if sum(count_labels(each) for each in batches) >= most:
                break
        whole = concatenate(batches)
        assert whole.labels is not None
        known = whole.labels != MISSING_LABEL
        return whole if bool(known.all()) else whole.map(lambda each: each[known])

    def not_finite(self) -> str:
        """Description of the first inputs of an epoch that are not finite; empty if all are finite."""
        for index, item in enumerate(one_pass(self.loader, seed=self.seed, epoch=0)):
            if found := rows_not_finite(_to_batch("train", item, self.device).inputs):
                return f"batch {index}, {found}"
        return ""

    def checksum(self) -> str:
        """Number of batches, and checksum of the first one."""
        batch = _to_batch("train", next(one_pass(self.loader, seed=self.seed, epoch=0)), self.device)
        return f"{self.per_epoch} x {checksum(*batch)}"


def concatenate(batches: Sequence[Batch]) -> Batch:
    """The examples of several batches of one kind."""
    columns = zip(*batches, strict=True)
    return Batch(*(None if each[0] is None else torch.cat(each) for each in columns))  # type: ignore[arg-type]


def count_labels(batch: Batch) -> int:
    """Number of examples with a label."""
    return 0 if batch.labels is None else int((batch.labels != MISSING_LABEL).sum())


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
    tensors = isinstance(item, Sequence) and all(isinstance(each, Tensor) for each in item)
    if not tensors or len(item) not in (2, 3) or (len(item) == 3 and item[2].is_floating_point()):
        found = f"{len(item)} things" if isinstance(item, Sequence) and len(item) != 2 else type(item).__name__
        raise ValueError(
            f"`{name}` must give pairs of tensors, inputs and labels, but gave {found}; to use weights, pass tensors "
            "instead of a loader; a third tensor of whole numbers holds groups"
        )
    inputs, labels, *groups = item
    check_batch(inputs, labels)
    for each in groups:
        check_group_index(each, inputs)
    batch = Batch(inputs, labels.long(), None, groups[0].long() if groups else None)
    return batch.map(lambda each: each.to(device, non_blocking=True))


def check_examples(inputs: Tensor, labels: Tensor | None) -> None:
    """Validate shapes and types of a data set, with or without labels."""
    if labels is None:
        check_inputs(inputs)
    else:
        check_batch(inputs, labels)


def as_tensors(name: str, data: Any) -> Batch | None:
    """Inputs, labels and weights if ``data`` is tensors or a TensorDataset; otherwise None."""
    if isinstance(data, TensorDataset):
        data = data.tensors if len(data.tensors) > 1 else (*data.tensors, None)
    if isinstance(data, Tensor):
        data = (data, None)
    if isinstance(data, (tuple, list)):
        tensors = [isinstance(each, Tensor) or (place == 1 and each is None) for place, each in enumerate(data)]
        if len(data) not in (2, 3) or not all(tensors):
            raise ValueError(
                f"`{name}` must be a pair of tensors, inputs and labels, or with weights three, but got {len(data)} "
                "objects"
            )
        check_examples(data[0], data[1])
        if len(data) == 3:
            check_weights(data[2], data[0])
            if not bool((data[2].isfinite() & (data[2] >= 0)).all()) or not bool((data[2] > 0).any()):
                raise ValueError(f"the weights of `{name}` must be finite, at least 0 and not all 0")
        return Batch(*data)
    return None


def make_batches(
    data: Data,
    *,
    batch_size: int,
    device: torch.device,
    seed: int,
    whole_only: bool,
    shard: tuple[int, int] = (0, 1),
    groups: Tensor | None = None,
    rows_per_group: int | None = None,
) -> TensorBatches | LoaderBatches:
    """Build batches from the arguments ``train`` and ``groups`` of `fit`."""
    _checks.whole("batch_size", batch_size, at_least=1)
    tensors = as_tensors("train", data)
    if tensors is not None:
        check_group_index(groups, tensors.inputs)
        inputs, labels, weights, own = tensors._replace(groups=groups).map(lambda each: each.to(device))
        return TensorBatches(
            inputs,
            labels,
            batch_size=batch_size,
            seed=seed,
            shard=shard,
            weights=weights,
            groups=own,
            rows_per_group=rows_per_group,
        )
    if groups is not None:
        raise ValueError("`groups` must be given with `train` as tensors; a DataLoader gives (inputs, labels, groups)")
    if shard[1] > 1:
        raise ValueError("`train` must be tensors or a TensorDataset to train with several processes")
    if isinstance(data, DataLoader):
        return LoaderBatches(data, device=device, seed=seed, whole_only=whole_only)
    if isinstance(data, Dataset):
        loader: DataLoader[Any] = DataLoader(data, batch_size=batch_size, shuffle=True)
        return LoaderBatches(loader, device=device, seed=seed, whole_only=whole_only)
    raise ValueError(f"`train` must be (inputs, labels), a Dataset or a DataLoader, but got {type(data).__name__}")


def whole_set(name: str, data: Data, *, device: torch.device, seed: int, needs_labels: bool = True) -> Batch:
    """Load a whole data set as one batch, for validation; its examples need labels unless stated otherwise."""
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
        tensors = concatenate(batches)
    if tensors.labels is None and needs_labels:
        raise ValueError(f"`{name}` must have labels, but has none")
    labels = None if tensors.labels is None else tensors.labels.long()
    return tensors._replace(labels=labels).map(lambda each: each.to(device))


def checksum(inputs: Tensor, labels: Tensor | None, weights: Tensor | None = None, groups: Tensor | None = None) -> str:
    """Checksum of a data set, 16 hexadecimal digits: labels, weights, groups and an evenly spaced sample of inputs."""
    flat = inputs.detach().reshape(-1)
    sample = flat[:: max(1, flat.numel() // CHECKSUM_ENTRIES)]
    digest = hashlib.sha256(repr((tuple(inputs.shape), str(inputs.dtype))).encode())
    digest.update(sample.double().cpu().numpy().tobytes())
    if labels is not None:
        digest.update(labels.detach().long().cpu().numpy().tobytes())
    if weights is not None:
        digest.update(weights.detach().double().cpu().numpy().tobytes())
    if groups is not None:
        digest.update(groups.detach().long().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
