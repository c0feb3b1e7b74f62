"""Cases with groups: training rows, the group of each, what is stated about the groups, and a few labels."""

from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np
import torch
from torch import Tensor

from selbo import elicit_concentration
from selbo.random import derive, generator_for
from selbo_lab.data import catalogue
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.tables import GroupCodes, TableWithGroups, split_rows
from selbo_lab.run.tasks import generated
from selbo_lab.studies.run_spec import DataSpec

RANDOM_BAGS: Final = "random"
"""Groups that are random bags."""

UNEVEN_BAGS: Final = "uneven"
"""Groups that are bags whose class fractions are drawn uniformly from the simplex."""

EMBEDDED: Final = ("sst",)
"""Data sets of embeddings, which are standardised and scaled."""

SQUARED_LENGTH: Final = 10.0
"""Mean squared length of embeddings, about that of the features of the tables: the same precisions suit both."""

WITHOUT_GROUP: Final = -1

NEAREST_TO_CERTAIN: Final = 0.005
"""Stated fractions are at least so far from 0 and 1 after errors have been added."""

MIDDLE: Final = 0.1
"""Concentrations follow from a deviation as if fractions were at least so far from 0 and 1."""

PER_DEVIATION: Final = NormalDist().inv_cdf(0.975)
"""Half the width of a 95 % interval, in standard deviations."""

EXACT_PER_ROW: Final = 100.0
"""Concentration of fractions without an error, per row: with 16 rows, a standard deviation of .2 rows at most."""

SMOKE_ROWS: Final = 120
SMOKE_GROUPS: Final = 6
SMOKE_GROUP_FEATURES: Final = 3


@dataclass(frozen=True)
class GroupCase:
    """Data of a case. Labels of training rows may be used where ``labelled`` says so, but by the method that has all.

    Attributes:
        train: Training rows.
        groups: Group of each of them, shape (N,); -1 for none.
        names: Names of the groups.
        fractions: Stated class fractions, shape (G, K).
        concentration: Concentration of each of them, as their stated precision says, shape (G,).
        labelled: Training rows whose labels are known, shape (L,).
        test: Test rows.
        test_groups: Group of each of them; -1 for none.
    """

    train: LabelledData
    groups: Tensor
    names: tuple[str, ...]
    fractions: Tensor
    concentration: Tensor
    labelled: Tensor
    test: LabelledData
    test_groups: Tensor

    @property
    def sizes(self) -> Tensor:
        """Number of training rows of each group, shape (G,)."""
        return torch.bincount(self.groups[self.groups >= 0], minlength=len(self.fractions))

    @property
    def overall(self) -> Tensor:
        """Class fractions of all groups together, as stated, shape (K,)."""
        found = (self.sizes.double().unsqueeze(1) * self.fractions).sum(0)
        return found / found.sum()


@lru_cache(maxsize=4)
def group_case(data: DataSpec, seed: int) -> GroupCase:
    """The data of a case. Random choices depend on the data and the seed, never on the method."""
    train, test, codes, test_codes, table = _rows_and_groups(data, seed)
    known = codes[codes >= 0]
    sizes = torch.bincount(known)
    kept = (sizes >= max(1, data.least_group)).nonzero().squeeze(1)
    place = torch.full((max(int(codes.max()), int(test_codes.max())) + 2,), WITHOUT_GROUP)
    place[kept] = torch.arange(len(kept))
    groups, test_groups = place[codes], place[test_codes]  # the last place is that of -1
    if data.official:
        assert table is not None
        counted = table.stated[data.groups][kept]
    else:
        counted = _counted(train, groups, len(kept))
    fractions = _with_noise(counted, data.fraction_noise, seed)
    sizes = sizes[kept].double()
    labelled = torch.randperm(len(train), generator=generator_for(seed, "few labels"))[: data.few_labels]
    names = tuple(f"bag {i}" for i in range(len(kept)))
    if table is not None and data.groups != RANDOM_BAGS:
        every = table.groups(data.groups).names
        names = tuple(every[i] for i in kept.tolist())
    return GroupCase(
        train=train,
        groups=groups,
        names=names,
        fractions=fractions,
        concentration=_strengths(fractions, sizes, data),
        labelled=labelled,
        test=test,
        test_groups=test_groups,
    )


def _rows_and_groups(
    data: DataSpec, seed: int
) -> tuple[LabelledData, LabelledData, Tensor, Tensor, TableWithGroups | None]:
    """Training and test rows, the groups of both, and the table that they come from."""
    if data.name not in catalogue.TABLES:  # images and embeddings, whose parts are published
        if data.generated:
            train, test = (generated(data.name, part, seed=seed) for part in ("train", "test"))
        else:
            train, test = (catalogue.load_set(data.name, part) for part in ("train", "test"))
        if data.name in EMBEDDED:
            train, test = _scaled(train, test)
        order = torch.randperm(len(train), generator=generator_for(seed, "bags"))[: data.train_size or None]
        train = train.rows(order)
        if data.groups == UNEVEN_BAGS:
            return train, test, uneven_bags(train.labels, data.group_size, seed=seed), _none(test), None
        return train, test, torch.arange(len(order)) // data.group_size, _none(test), None
    table = _generated_table(data) if data.generated else catalogue.TABLES[data.name]()
    rows, held_out = split_rows(len(table.rows), seed=seed)
    rows = rows[: data.train_size or None]
    train = table.rows.rows(rows, name=f"{table.rows.name} train, seed {seed}")
    test = table.rows.rows(held_out, name=f"{table.rows.name} test, seed {seed}")
    if data.groups == RANDOM_BAGS:
        return train, test, torch.arange(len(rows)) // data.group_size, _none(test), table
    codes = table.groups(data.groups).codes
    return train, test, codes[rows], codes[held_out], table


def _scaled(train: LabelledData, test: LabelledData) -> tuple[LabelledData, LabelledData]:
    """Features standardised by the training part, which needs no labels, and scaled to a mean squared length."""
    std, mean = torch.std_mean(train.inputs, 0)
    varies = std > 0
    factor = (SQUARED_LENGTH / int(varies.sum())) ** 0.5 * varies / torch.where(varies, std, 1.0)
    first, second = (each.with_inputs(factor * (each.inputs - mean), name=each.name) for each in (train, test))
    return first, second


def uneven_bags(labels: Tensor, size: int, *, seed: int) -> Tensor:
    """Bag of each row, -1 for none: bags of one size whose class fractions are drawn uniformly from the simplex.

    Rows of a class go to bags in their order. Bags are made until the rows of a class do not suffice.
    """
    generator = np.random.default_rng(derive(seed, "uneven bags"))
    pools = [(labels == each).nonzero().squeeze(1) for each in range(int(labels.max()) + 1)]
    used, bags = [0] * len(pools), torch.full_like(labels, WITHOUT_GROUP)
    for bag in range(len(labels) // size):
        counts = generator.multinomial(size, generator.dirichlet(np.ones(len(pools)))).tolist()
        if any(first + count > len(pool) for first, count, pool in zip(used, counts, pools, strict=True)):
            break
        for each, pool in enumerate(pools):
            bags[pool[used[each] : used[each] + counts[each]]] = bag
            used[each] += counts[each]
    return bags


def _none(rows: LabelledData) -> Tensor:
    return torch.full((len(rows),), WITHOUT_GROUP)


def _counted(rows: LabelledData, groups: Tensor, count: int) -> Tensor:
    """Class fractions of each group among its rows, (G, K)."""
    there = groups >= 0
    hot = torch.nn.functional.one_hot(rows.labels[there], rows.num_classes).double()
    sums = torch.zeros(count, rows.num_classes, dtype=torch.float64).index_add(0, groups[there], hot)
    return sums / sums.sum(1, keepdim=True)


def _with_noise(fractions: Tensor, deviation: float, seed: int) -> Tensor:
    """Fractions with errors; the errors of two classes are opposite."""
    if not deviation:
        return fractions
    errors = torch.randn(fractions.shape, generator=generator_for(seed, "fractions"), dtype=torch.float64)
    if fractions.shape[1] == 2:
        errors = torch.stack([-errors[:, 1], errors[:, 1]], 1)
    found = (fractions + deviation * errors).clamp(NEAREST_TO_CERTAIN, 1 - NEAREST_TO_CERTAIN)
    return found / found.sum(1, keepdim=True)


def _strengths(fractions: Tensor, sizes: Tensor, data: DataSpec) -> Tensor:
    """Concentration of each group: its size if people were counted, or what is stated if that is less."""
    if data.stated_concentration:
        return sizes.clamp(max=data.stated_concentration)
    if not data.stated_deviation:
        return sizes
    largest = fractions.amax(1).clamp(0.5, 1 - MIDDLE).numpy()
    margin = np.full(len(largest), PER_DEVIATION * data.stated_deviation)
    return torch.from_numpy(elicit_concentration(margin, fraction=largest)).minimum(sizes).clamp(min=1.0)


@lru_cache(maxsize=4)
def _generated_table(data: DataSpec) -> TableWithGroups:
    """A tiny table whose columns are named like those of the data."""
    generator = generator_for(0, "generated groups", data.name)
    codes = torch.arange(SMOKE_ROWS) % SMOKE_GROUPS
    centres = torch.randn(SMOKE_GROUPS, SMOKE_GROUP_FEATURES, generator=generator)
    inputs = centres[codes] + torch.randn(SMOKE_ROWS, SMOKE_GROUP_FEATURES, generator=generator)
    labels = torch.bernoulli((2 * inputs[:, 0]).sigmoid(), generator=generator).long()
    rows = LabelledData(f"generated data instead of {data.name}", inputs, labels, ("0", "1"), "random", "none")
    column = GroupCodes(codes, tuple(f"group {i}" for i in range(SMOKE_GROUPS)))
    shares = torch.linspace(0.2, 0.8, SMOKE_GROUPS, dtype=torch.float64)
    names = [name for name in data.groups.split(" x ") if name != RANDOM_BAGS]
    return TableWithGroups(
        rows, dict.fromkeys(names, column), dict.fromkeys(names, torch.stack([1 - shares, shares], 1))
    )


def with_exact_counts(case: GroupCase, data: DataSpec) -> GroupCase:
    """The case with fractions that are stated without an error, if they were counted among the training rows."""
    if data.official or data.fraction_noise or data.stated_deviation or data.stated_concentration:
        return case
    return replace(case, concentration=EXACT_PER_ROW * case.sizes.double())


def without_groups(case: GroupCase, held_out: Tensor) -> GroupCase:
    """The case without the rows, beliefs and labels of some groups, (G,) bool; groups keep their numbers."""
    return _some_rows(case, ~torch.cat([held_out, torch.tensor([False])])[case.groups])


def with_rows_to_learn_from(case: GroupCase) -> GroupCase:
    """The case without rows that have neither a group nor a label."""
    needed = case.groups >= 0
    needed[case.labelled] = True
    return case if bool(needed.all()) else _some_rows(case, needed)


def _some_rows(case: GroupCase, needed: Tensor) -> GroupCase:
    """The case with some of its training rows, (N,) bool."""
    kept = needed.nonzero().squeeze(1)
    place = torch.full((len(needed),), WITHOUT_GROUP)
    place[kept] = torch.arange(len(kept))
    labelled = place[case.labelled]
    return replace(case, train=case.train.rows(kept), groups=case.groups[kept], labelled=labelled[labelled >= 0])
