"""Cases of tables: rows to train on and to test on, or a few labels and many unlabelled rows."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from selbo.random import generator_for
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.keel import keel_table
from selbo_lab.studies.run_spec import DataSpec

TRAIN_SHARE: Final = 0.6
MOST_TO_TRAIN: Final = 1000
MOST_TO_TEST: Final = 6000
LARGE_TABLES: Final = {"letter": 16_000, "magic": 6000}
"""Largest number of training rows, where it is another."""

FEWEST_PER_CLASS: Final = 2
"""A class with fewer training rows is left out."""

SMOKE_TABLE_ROWS: Final = 120
SMOKE_TABLE_FEATURES: Final = 3


@dataclass(frozen=True)
class TableCase:
    """Data of a case.

    Attributes:
        train: Labelled rows.
        test: Test rows.
        unlabelled: Rows of the target domain whose labels are not known; None if there is one domain.
        stated: Class fractions that are true in the target domain; those of the test rows if there is one domain.
    """

    train: LabelledData
    test: LabelledData
    unlabelled: LabelledData | None
    stated: tuple[float, ...]

    @property
    def label_fractions(self) -> tuple[float, ...]:
        """Class fractions of the labelled rows."""
        return tuple(each / len(self.train) for each in self.train.class_counts)


@lru_cache(maxsize=8)
def table_case(data: DataSpec, seed: int) -> TableCase:
    """The rows of a run. They depend on the data and the seed, never on the method."""
    whole = _generated_table() if data.generated else keel_table(data.table)
    return _few_labels(data, whole, seed) if data.labels else _one_domain(data, whole, seed)


def _one_domain(data: DataSpec, whole: LabelledData, seed: int) -> TableCase:
    order = torch.randperm(len(whole), generator=generator_for(seed, "table"))
    most = LARGE_TABLES.get(data.table, MOST_TO_TRAIN)
    large = data.table == "letter"  # whose usual split is 16 000 to 4000
    count = most if large and not data.generated else min(int(TRAIN_SHARE * len(whole)), most)
    present = whole.labels[order[:count]].bincount(minlength=whole.num_classes) >= FEWEST_PER_CLASS
    train, test = (_with_classes(whole.rows(rows), present) for rows in (order[:count], order[count:][:MOST_TO_TEST]))
    shares = (test.labels.bincount(minlength=test.num_classes).double() / len(test)).tolist()
    return TableCase(train, test, None, tuple(shares))


def _with_classes(rows: LabelledData, present: Tensor) -> LabelledData:
    """The rows of some classes, with labels from 0 on."""
    kept = rows.rows(present[rows.labels].nonzero().squeeze(1))
    names = tuple(name for name, there in zip(rows.class_names, present.tolist(), strict=True) if there)
    return replace(kept, labels=(present.cumsum(0) - 1)[kept.labels], class_names=names)


def _few_labels(data: DataSpec, whole: LabelledData, seed: int) -> TableCase:
    """Labels with some class fractions, unlabelled and test rows with others; class 1 is the rarer class."""
    if whole.num_classes != 2:
        raise ValueError(f"`table` must have two classes, but {data.table!r} has {whole.num_classes}")
    counts = whole.labels.bincount()
    if counts[1] > counts[0]:
        whole = replace(whole, labels=1 - whole.labels, class_names=whole.class_names[::-1])
    generator = generator_for(seed, "few labels")
    by_class = [
        each[torch.randperm(len(each), generator=generator)]
        for each in ((whole.labels == k).nonzero().squeeze(1) for k in range(2))
    ]
    rare = round(data.labels * data.label_fractions[1])
    labelled = (data.labels - rare, rare)
    left = [len(rows) - count for rows, count in zip(by_class, labelled, strict=True)]
    size = min(data.unlabelled, *(int(n / 2 / share) for n, share in zip(left, data.use_fractions, strict=True)))
    each = round(size * data.use_fractions[1])
    sizes = (size - each, each)
    starts = ((0, 0), labelled, tuple(a + b for a, b in zip(labelled, sizes, strict=True)))
    train, unlabelled, test = (
        torch.cat([rows[start[k] :][: count[k]] for k, rows in enumerate(by_class)])
        for start, count in zip(starts, (labelled, sizes, sizes), strict=True)
    )
    return TableCase(whole.rows(train), whole.rows(test), whole.rows(unlabelled), data.use_fractions)


def _generated_table() -> LabelledData:
    generator = generator_for(0, "generated table")
    labels = torch.arange(SMOKE_TABLE_ROWS) % 2
    inputs = torch.randn(SMOKE_TABLE_ROWS, SMOKE_TABLE_FEATURES, generator=generator) + labels[:, None]
    return LabelledData(
        name="generated table",
        inputs=inputs,
        labels=labels,
        class_names=("0", "1"),
        source="random numbers, for a trial of the machinery",
        licence="none needed",
    )
