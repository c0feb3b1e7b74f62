"""Corrupted sets that were generated once, kept in the store: all runs of a study read the same ones."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from functools import cache
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor

from selbo.training import pool_of
from selbo_lab.data import corruptions, store
from selbo_lab.files import replacing

FOLDER: Final = "generated"


@cache
def version() -> str:
    """Digest of the programs that corrupt: a set that another version of them made is not used."""
    digest = hashlib.sha256()
    for path in sorted(Path(corruptions.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]


class Making(Protocol):
    """A set that can be made, here or in another process."""

    @property
    def name(self) -> str:
        """What decides its images."""

    def make(self) -> Tensor:
        """The images."""


def path_of(name: str) -> Path:
    """Where a set is kept, or would be."""
    return store.root() / FOLDER / f"{name}-{version()}.npy"


def kept(name: str, make: Callable[[], Tensor]) -> Tensor:
    """Images of bytes by name, made if they are not there; processes that want the same set wait for the first.

    Args:
        name: What decides them: set, corruption, severity and seed.
        make: Called for images that are not there.
    """
    from filelock import FileLock

    path = path_of(name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            if not path.exists():
                with replacing(path) as unfinished, unfinished.open("wb") as file:
                    np.save(file, make().numpy(), allow_pickle=False)
    return torch.from_numpy(np.load(path, allow_pickle=False))


def make_missing(sets: Sequence[Making], *, processes: int, told: Callable[[int, int], object]) -> None:
    """Make those sets that are not there, several at a time; they are the same as made when they are first asked for.

    Args:
        sets: All that will be needed.
        processes: How many at a time.
        told: Called with how many of the missing ones are made, and how many there are: at the start, and after each.
    """
    missing = [each for each in {each.name: each for each in sets}.values() if not path_of(each.name).exists()]
    if not missing:
        return
    told(0, len(missing))
    with pool_of(min(processes, len(missing))) as pool:
        futures = [pool.submit(_make, each) for each in missing]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                told(done, len(missing))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _make(each: Making) -> None:
    torch.set_num_threads(1)  # as a run on a CPU does
    kept(each.name, each.make)
