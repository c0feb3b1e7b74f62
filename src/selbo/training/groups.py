"""Batches made of groups: the examples of a group, or a part of them, stand together in one batch."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Sampler

from selbo import _checks
from selbo.objectives.unlabelled import check_group_index


def group_order(groups: Tensor, rows_per_group: int, *, generator: torch.Generator | None = None) -> Tensor:
    """A random order of examples in which those of a group stand together: (N,) -> (N,).

    Each group is shuffled and cut into parts of at most ``rows_per_group`` examples, and the parts of all groups are
    shuffled. Examples without a group (-1) are parts of one. Every example occurs once.

    Args:
        groups: Group of each example, shape (N,), on the CPU.
        rows_per_group: Largest number of examples of a group that stand together.
        generator: Source of the order.

    Example:
        >>> groups = torch.tensor([0, 1, 0, 1, 1, 0, 1])
        >>> order = group_order(groups, 2, generator=torch.Generator().manual_seed(0))
        >>> groups[order]
        tensor([1, 1, 1, 1, 0, 0, 0])
    """
    check_group_index(groups, groups)
    count = len(groups)
    shuffled = torch.randperm(count, generator=generator)
    own = groups[shuffled].long()
    order = own.argsort(stable=True)  # groups side by side, each in random order
    own = own[order]
    first = torch.searchsorted(own, own)  # where the group begins
    size = torch.where(own < 0, 1, _checks.whole("rows_per_group", rows_per_group, at_least=1))
    begins = (torch.arange(count) - first) % size == 0
    part = begins.long().cumsum(0) - 1
    place = torch.randperm(int(part[-1]) + 1 if count else 0, generator=generator)[part]
    return shuffled[order[place.argsort(stable=True)]]


class GroupBatchSampler(Sampler[list[int]]):
    """Batches of whole groups, or of parts of large ones, for the ``batch_sampler`` of a DataLoader.

    All batches have the same size, so a group at the end of a batch may continue in the next one; an incomplete last
    batch is dropped. Each epoch has another order. `selbo.fit` does the same for tensors, see its ``rows_per_group``.

    Args:
        groups: Group of each example of the data set, shape (N,); -1 for none.
        batch_size: B.
        rows_per_group: Largest number of examples of a group that stand together, see `group_order`; by default a
            quarter of a batch.
        generator: Source of the orders; torch's default generator if not given.

    Example:
        >>> sampler = GroupBatchSampler(torch.arange(6) // 2, batch_size=4, rows_per_group=2)
        >>> len(sampler)
        1
    """

    def __init__(
        self,
        groups: Tensor,
        batch_size: int,
        rows_per_group: int | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        check_group_index(groups, groups)
        self.groups, self.generator = groups.cpu(), generator
        self.batch_size = _checks.whole("batch_size", batch_size, at_least=1)
        self.rows_per_group = choose_rows_per_group(rows_per_group, batch_size)
        if len(groups) < batch_size:
            raise ValueError(
                f"`batch_size` must be at most the number of examples, {len(groups)}, but got {batch_size}"
            )

    def __len__(self) -> int:
        return len(self.groups) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        order = group_order(self.groups, self.rows_per_group, generator=self.generator)
        for rows in order[: len(self) * self.batch_size].split(self.batch_size):
            yield rows.tolist()


def choose_rows_per_group(given: int | None, batch_size: int) -> int:
    """The number of examples of a group that stand together: the given one, or a quarter of a batch."""
    return max(1, batch_size // 4) if given is None else _checks.whole("rows_per_group", given, at_least=1)
