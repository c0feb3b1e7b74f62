"""The idx format, whole, packed, cut short, and not idx at all."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch

from selbo_lab.data.idx import read_images, read_labels

IMAGES = bytes(range(2 * 3 * 4))


def images_file(magic: int = 0x803, sizes: tuple[int, ...] = (2, 3, 4), payload: bytes = IMAGES) -> bytes:
    return struct.pack(f">I{len(sizes)}I", magic, *sizes) + payload


def labels_file(labels: bytes, magic: int = 0x801) -> bytes:
    return struct.pack(">II", magic, len(labels)) + labels


def written(folder: Path, content: bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_images_are_read_row_by_row(tmp_path: Path, pack: object) -> None:
    images = read_images(written(tmp_path, pack(images_file())), count=2, size=(3, 4))  # type: ignore[operator]
    assert images.dtype == torch.uint8
    assert images.shape == (2, 1, 3, 4)
    assert images[1, 0, 2].tolist() == [20, 21, 22, 23]


@pytest.mark.parametrize("name", ["labels.gz", "labels"])
def test_the_content_decides_whether_it_is_packed(tmp_path: Path, name: str) -> None:
    packed = written(tmp_path, gzip.compress(labels_file(b"\x03\x00\x09")), name)
    assert read_labels(packed, count=3, num_classes=10).tolist() == [3, 0, 9]
    assert read_labels(packed, count=3, num_classes=10).dtype == torch.int64


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            images_file(magic=0x801),
            r"idx file of images with the magic number 0x00000803, but got labels \(0x00000801\)",
        ),
        (images_file(magic=0x1F000803), "but got 0x1f000803"),
        (b"\x00\x00", "but got 2 bytes in all"),
        (b"", "but got 0 bytes in all"),
        (images_file(sizes=(2, 4, 3)), "images of shape 2 x 3 x 4, but its header says 2 x 4 x 3"),
        (images_file(sizes=(2**32 - 1,) * 3), "but its header says 4294967295 x"),
        (images_file()[:-1], "is cut short: expected 40 bytes, but got 39"),
        (images_file()[:10], "is cut short: expected 40 bytes, but got 10"),
        (images_file() + b"x", "has bytes after its end: expected 40 bytes, but got more"),
        (gzip.compress(images_file(), mtime=0)[:-9], "cannot be unpacked"),
        (gzip.compress(images_file(), mtime=0)[:20] + b"\xff" * 30, "cannot be unpacked"),
        (b"\x1f\x8b nonsense", "cannot be unpacked"),
        (gzip.compress(images_file() + bytes(10**6), mtime=0), "has bytes after its end"),
    ],
)
def test_what_is_not_the_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_images(written(tmp_path, content), count=2, size=(3, 4))


def test_images_are_not_labels(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"magic number 0x00000801, but got images"):
        read_labels(written(tmp_path, images_file()), count=2, num_classes=10)


def test_labels_beyond_the_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="labels from 0 to 9, but the largest is 10"):
        read_labels(written(tmp_path, labels_file(b"\x01\x0a")), count=2, num_classes=10)


def test_a_packed_flood_is_not_unpacked(tmp_path: Path) -> None:
    """A hundred million zeros in a small file: only as much is unpacked as a right file would hold."""
    flood = gzip.compress(images_file() + bytes(10**8), compresslevel=1)
    import tracemalloc

    path = written(tmp_path, flood)
    tracemalloc.start()
    with pytest.raises(ValueError, match="bytes after its end"):
        read_images(path, count=2, size=(3, 4))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**7
