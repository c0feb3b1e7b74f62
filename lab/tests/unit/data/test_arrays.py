"""Arrays of numpy's formats: mapped, checked, and never unpickled."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from selbo_lab.data.arrays import open_npy, read_npz


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.mark,)


def stored(folder: Path, array: object, *, allow_pickle: bool = False, more: bytes = b"") -> Path:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)  # type: ignore[arg-type]
    path = folder / "array.npy"
    path.write_bytes(buffer.getvalue() + more)
    return path


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_mapped(tmp_path: Path, order: str) -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    array = open_npy(stored(tmp_path, np.asarray(values, order=order)), shape=(2, 3, 4), kinds="B")  # type: ignore[call-overload]
    assert isinstance(array, np.memmap)
    np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3), dtype=np.uint8), r"bytes of shape \(3, 2\), but got uint8 of shape \(2, 3\)"),
        (np.zeros((3, 2), dtype=np.int8), "but got int8"),
        (np.zeros((3, 2), dtype=np.float32), "but got float32"),
    ],
)
def test_shape_and_type_are_checked(tmp_path: Path, array: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_npy(stored(tmp_path, array), shape=(3, 2), kinds="B")


def test_whole_numbers_of_any_size_may_be_labels(tmp_path: Path) -> None:
    for dtype in (np.uint8, np.int32, np.int64):
        assert open_npy(stored(tmp_path, np.arange(3, dtype=dtype)), shape=(3,), kinds="iu").tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"numbers of kind i or u .* but got float64"):
        open_npy(stored(tmp_path, np.zeros(3)), shape=(3,), kinds="iu")


def test_what_needs_unpickling_is_refused_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    objects = np.array([Bomb(mark), None], dtype=object)
    with pytest.raises(ValueError, match="is refused: it holds Python objects, which would have to be unpickled"):
        open_npy(stored(tmp_path, objects, allow_pickle=True), shape=(2,), kinds="iu")
    np.savez(tmp_path / "objects.npz", allow_pickle=True, x=objects)
    with pytest.raises(ValueError, match="Python objects, which would have to be unpickled"):
        read_npz(tmp_path / "objects.npz", ["x"])
    assert not mark.exists()


def test_a_bare_pickle_is_refused(tmp_path: Path) -> None:
    import pickle

    mark, path = tmp_path / "mark", tmp_path / "bare.npy"
    path.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(ValueError, match=r"must be a \.npy file, but does not begin as one"):
        open_npy(path, shape=(2,), kinds="iu")
    with pytest.raises(ValueError, match=r"must be an \.npz file"):
        read_npz(path, ["x"])
    assert not mark.exists()


def test_a_damaged_array_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, np.arange(1000, dtype=np.uint8))
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:40], whole[:7], whole[:6] + b"\x09" + whole[7:], whole[:20] + b"?" * 40):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot be read as a \.npy file"):
            open_npy(path, shape=(1000,), kinds="B")
    path.write_bytes(whole + b"x")
    with pytest.raises(ValueError, match=r"bytes after its end: expected 1128 bytes, but got 1129"):
        open_npy(path, shape=(1000,), kinds="B")


def test_arrays_are_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "two.npz"
    np.savez(path, a=np.ones(2), b=np.zeros(3))
    assert set(read_npz(path, ["a"])) == {"a"}
    assert set(read_npz(path, ["a"], optional=["b", "c"])) == {"a", "b"}
    with pytest.raises(ValueError, match="there must be the arrays a, c, but got no c"):
        read_npz(path, ["a", "c"])


def test_a_damaged_collection_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.npz"
    np.savez(path, a=np.arange(1000))
    whole = path.read_bytes()
    for content in (whole[:-30], whole[:200] + b"\xff" * 100 + whole[300:], b"", whole[:100]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"\.npz file"):
            read_npz(path, ["a"])


def test_a_member_that_is_no_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"no array")
    with pytest.raises(ValueError, match=r"cannot be read as an \.npz file"):
        read_npz(path, ["x"])
