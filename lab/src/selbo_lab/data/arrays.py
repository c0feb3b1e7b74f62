"""Reads arrays in the .npy and .npz formats without executing any code in a file."""

import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

NPY_MAGIC: Final = b"\x93NUMPY"

NEEDS_PICKLE: Final = "it holds Python objects, which would have to be unpickled, and unpickling can run any program"

MOST_BYTES: Final = 2**30
"""Maximum bytes of an unpacked array in an .npz file, against decompression bombs."""


def open_npy(path: Path, *, shape: tuple[int, ...], kinds: str) -> NDArray[Any]:
    """A memory-mapped array of one file: only the rows that are used are read.

    Args:
        path: A .npy file.
        shape: Required shape.
        kinds: Letters of the allowed types: ``u`` and ``i`` for integers, ``f`` for floating point; ``B`` for bytes
            only.

    Raises:
        ValueError: If it is not a whole .npy file of that shape and type, or needs unpickling.
    """
    name = os.fspath(path)
    with path.open("rb") as file:
        if file.read(len(NPY_MAGIC)) != NPY_MAGIC:
            raise ValueError(f"{name!r} must be a .npy file, but does not begin as one")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        if "Python objects" in str(error) or "allow_pickle" in str(error):
            raise ValueError(f"{name!r} is refused: {NEEDS_PICKLE}") from None
        raise ValueError(f"{name!r} cannot be read as a .npy file: {_first_line(error)}") from error
    except (OSError, EOFError, SyntaxError) as error:
        raise ValueError(f"{name!r} cannot be read as a .npy file: {_first_line(error)}") from error
    if array.dtype.hasobject:
        raise ValueError(f"{name!r} is refused: {NEEDS_PICKLE}")
    if array.shape != shape or not _is_of(array, kinds):
        wanted = "bytes" if kinds == "B" else f"numbers of kind {' or '.join(kinds)}"
        raise ValueError(f"{name!r} must hold {wanted} of shape {shape}, but got {array.dtype} of shape {array.shape}")
    offset = int(getattr(array, "offset", 0))
    expected = offset + math.prod(shape) * array.dtype.itemsize
    if path.stat().st_size != expected:
        raise ValueError(f"{name!r} has bytes after its end: expected {expected} bytes, but got {path.stat().st_size}")
    return array


def _is_of(array: NDArray[Any], kinds: str) -> bool:
    return array.dtype == np.uint8 if kinds == "B" else array.dtype.kind in kinds


def read_npz(path: Path, names: Sequence[str], *, optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file by name.

    Args:
        path: The file.
        names: Required arrays.
        optional: Optional arrays; others are not read.

    Raises:
        ValueError: If it is damaged, an array is missing, or one needs unpickling.
    """
    shown = os.fspath(path)
    found: dict[str, NDArray[Any]] = {}
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{shown!r} must be an .npz file, but is none")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if missing := [name for name in names if name not in arrays.files]:
                raise ValueError(  # noqa: TRY301
                    f"there must be the arrays {', '.join(names)}, but got no {', '.join(missing)}"
                )
            for name in (*names, *optional):
                if name not in arrays.files:
                    continue
                if arrays.zip.getinfo(f"{name}.npy").file_size > MOST_BYTES:
                    raise ValueError(f"{name!r} has more than {MOST_BYTES} bytes")  # noqa: TRY301
                found[name] = arrays[name]
                if not isinstance(found[name], np.ndarray):
                    raise ValueError(f"{name!r} is no array")  # noqa: TRY301
    except (ValueError, OSError, EOFError, SyntaxError, KeyError, zipfile.BadZipFile, NotImplementedError) as error:
        reason = NEEDS_PICKLE if "allow_pickle" in str(error) else _first_line(error)
        raise ValueError(f"{shown!r} cannot be read as an .npz file: {reason}") from error
    return found


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
