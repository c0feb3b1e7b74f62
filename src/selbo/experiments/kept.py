"""Corrupted sets that were generated once, kept in the store: all runs of a study read the same ones."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from selbo.data import corruptions, store
from selbo.files import replacing

FOLDER: Final = "generated"


@cache
def version() -> str:
    """Digest of the programs that corrupt: a set that another version of them made is not used."""
    digest = hashlib.sha256()
    for path in sorted(Path(corruptions.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]


def kept(name: str, make: Callable[[], Tensor]) -> Tensor:
    """Images of bytes by name, made if they are not there; processes that want the same set wait for the first.

    Args:
        name: What decides them: set, corruption, severity and seed.
        make: Called for images that are not there.
    """
    from filelock import FileLock

    folder = store.root() / FOLDER
    path = folder / f"{name}-{version()}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{path.name}.lock"):
            if not path.exists():
                with replacing(path) as unfinished, unfinished.open("wb") as file:
                    np.save(file, make().numpy(), allow_pickle=False)
    return torch.from_numpy(np.load(path, allow_pickle=False))
