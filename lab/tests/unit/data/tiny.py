"""A source of three tiny files, as they are published and as users may hold them."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

from selbo_lab.data.store import Download, RawFile, Source

IDX = b"\0\0\x08\x01" + b"labels" * 20
FILES = {"train.bin": b"train" * 300, "deep/test.bin": b"test" * 200, "labels-ubyte.gz": gzip.compress(IDX, mtime=0)}
MEMBERS = {"release/train.bin": FILES["train.bin"], "release/deep/test.bin": FILES["deep/test.bin"]}


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def not_bad(path: Path) -> None:
    if b"bad" in path.read_bytes():
        raise ValueError(f"{path.name} must not be bad")


def tar_bytes(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(stream.getvalue(), mtime=0)


def zip_bytes(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


ARCHIVE = tar_bytes(MEMBERS)


def tiny(address: str = "https://tiny.invalid", archive: bytes = ARCHIVE) -> Source:
    """Two files in an archive, one by itself."""
    raws = [RawFile(name, digest=sha256(content), size=len(content)) for name, content in FILES.items()]
    raws[2] = RawFile(raws[2].name, raws[2].digest, raws[2].size, unpacked_digest=sha256(IDX))
    return Source(
        name="tiny",
        files=tuple(raws),
        downloads=(
            Download(f"{address}/tiny.tar.gz", sha256(archive), len(archive), ("train.bin", "deep/test.bin")),
            Download(f"{address}/labels-ubyte.gz", raws[2].digest, raws[2].size, ("labels-ubyte.gz",)),
        ),
        title="three tiny files",
        homepage=address,
        licence="none",
    )


def served(archive: bytes = ARCHIVE) -> dict[str, bytes]:
    """What a server of the source has."""
    return {"/tiny.tar.gz": archive, "/labels-ubyte.gz": FILES["labels-ubyte.gz"]}


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder, locks aside."""
    paths = [path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder
