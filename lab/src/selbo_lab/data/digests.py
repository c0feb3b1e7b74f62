"""Digests of files, written with the name of the method: ``sha256:…``."""

import hashlib
from pathlib import Path
from typing import Final

BLOCK: Final = 1 << 20
"""Bytes that are read at once."""


def digest_of(path: Path, method: str) -> str:
    """Digest of a file by a method such as ``md5``, as ``md5:…``; the file is never in memory whole."""
    found = hashlib.new(method, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return f"{method}:{found.hexdigest()}"


def mismatch(path: Path, digest: str | None, size: int | None = None) -> str | None:
    """What came and what was expected, if a file is not the one with this digest and size; else None."""
    came = path.stat().st_size
    if size is not None and came != size:
        return f"it has {came} bytes, not {size}"
    if digest is None:
        return None
    found = digest_of(path, digest.partition(":")[0])
    return None if found == digest.lower() else f"its digest is {found}, not {digest}"


def readable(size: int) -> str:
    """A number of bytes for people, such as ``162 MiB``."""
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 999.5:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.3g} {unit}"
