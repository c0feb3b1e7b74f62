"""Digests of files, written with the name of the method: ``sha256:…``."""

from pathlib import Path
from typing import Final

BLOCK: Final = 1 << 20
"""Bytes that are read at once."""


def mismatch(path: Path, digest: str | None, size: int | None = None) -> str | None:
    """What came and what was expected, if a file is not the one with this digest and size; else None."""
    came = path.stat().st_size
    if size is not None and came != size:
        return f"it has {came} bytes, not {size}"
    if digest is None:
        return None
    import pooch

    method = digest.partition(":")[0]
    found = f"{method}:{pooch.file_hash(path, method)}"
    return None if found == digest.lower() else f"its digest is {found}, not {digest}"


def readable(size: int) -> str:
    """A number of bytes for people, such as ``162 MiB``."""
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 999.5:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.3g} {unit}"
