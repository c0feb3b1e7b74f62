"""The idx format of MNIST: a magic number, sizes, bytes; packed with gzip or not."""

import gzip
import io
import math
import os
import zlib
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

GZIP_MAGIC: Final = b"\x1f\x8b"
"""First bytes of a packed file; its name is not asked."""

LABELS_MAGIC: Final = 0x00000801
"""Unsigned bytes in one dimension."""

IMAGES_MAGIC: Final = 0x00000803
"""Unsigned bytes in three dimensions."""

KINDS: Final = {LABELS_MAGIC: "labels", IMAGES_MAGIC: "images"}


def read_images(path: Path, *, count: int, size: tuple[int, int] = (28, 28)) -> Tensor:
    """Images of bytes, shape (count, 1, height, width).

    Raises:
        ValueError: If the file is not a whole idx file of that many images of that size, with nothing after it.
    """
    return _read(path, IMAGES_MAGIC, (count, *size)).unsqueeze(1)


def read_labels(path: Path, *, count: int, num_classes: int) -> Tensor:
    """Labels, shape (count,), type int64.

    Raises:
        ValueError: If the file is not a whole idx file of that many labels, with nothing after it, or one is too large.
    """
    labels = _read(path, LABELS_MAGIC, (count,)).long()
    if count and int(labels.max()) >= num_classes:
        raise ValueError(
            f"{os.fspath(path)!r} must hold labels from 0 to {num_classes - 1}, but the largest is {int(labels.max())}"
        )
    return labels


def _read(path: Path, magic: int, shape: tuple[int, ...]) -> Tensor:
    """Bytes of the shape expected; no more is unpacked than such a file holds."""
    header = 4 + 4 * len(shape)
    expected = header + math.prod(shape)
    content = _unpacked(path, limit=expected + 1)
    found = int.from_bytes(content[:4], "big")
    if len(content) < 4 or found != magic:
        came = f"{KINDS[found]} (0x{found:08x})" if found in KINDS else f"0x{found:08x}"
        raise ValueError(
            f"{os.fspath(path)!r} must be an idx file of {KINDS[magic]} with the magic number 0x{magic:08x}, but got "
            + (came if len(content) >= 4 else f"{len(content)} bytes in all")
        )
    sizes = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, min(header, len(content)), 4))
    if len(content) >= header and sizes != shape:
        raise ValueError(
            f"{os.fspath(path)!r} must hold {KINDS[magic]} of shape {_shown(shape)}, but its header says "
            f"{_shown(sizes)}"
        )
    if len(content) != expected:
        what = "is cut short" if len(content) < expected else "has bytes after its end"
        came = f"{len(content)}" if len(content) < expected else "more"
        raise ValueError(f"{os.fspath(path)!r} {what}: expected {expected} bytes, but got {came}")
    return torch.frombuffer(bytearray(content[header:]), dtype=torch.uint8).reshape(shape)


def _unpacked(path: Path, *, limit: int) -> bytes:
    with path.open("rb") as file:
        packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        file.seek(0)
        if not packed:
            return file.read(limit)
        try:
            with gzip.GzipFile(fileobj=io.BufferedReader(file)) as stream:
                return stream.read(limit)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{os.fspath(path)!r} cannot be unpacked: {error}") from error


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
