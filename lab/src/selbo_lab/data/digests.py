"""Digests of files, written with the name of the method: ``sha256:…``."""

from pathlib import Path
from typing import Final

BYTES_PER_READ: Final = 1 << 20
"""Bytes per read."""


def mismatch(path: Path, digest: str | None, size: int | None = None) -> str | None:
    """The found and the expected value if a file does not have this digest and size; else None."""
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
    """A human-readable number of bytes, such as ``162 MiB``."""
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 999.5:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.3g} {unit}"
