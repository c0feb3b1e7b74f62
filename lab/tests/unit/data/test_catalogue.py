"""Loading and importing by name."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

import selbo_lab.data
from selbo_lab.data import catalogue, embeddings, sentences
from selbo_lab.data.catalogue import SETS, SOURCES, find_sources, import_set, load_set
from selbo_lab.data.store import MissingData

NAMES = {
    "voters",
    "fashion-train",
    "adult",
    "census",
    "magic",
    "keel",
    "digits",
    "breast-cancer",
    "mnist",
    "mnist35",
    "mnist35-c",
    "fashion",
    "cifar10",
    "cifar10-c",
    "cifar10-im",
    "cifar10-im-c",
    "svhn",
    "sst",
    "sst-zero-shot",
}


def test_all_sets_are_there_and_say_what_they_are() -> None:
    assert set(SETS) == NAMES
    for name, each in SETS.items():
        assert each.name == name
        assert each.title
        assert len(each.title) <= 72
        assert each.licence
        assert each.parts[-1] == "test"
        assert all(SOURCES[source.name] is source for source in (*each.sources, *each.optional))
    assert {source.name for each in SETS.values() for source in (*each.sources, *each.optional)} == set(SOURCES)


def test_every_source_can_be_downloaded_and_names_its_licence() -> None:
    for name, source in SOURCES.items():
        assert source.name == name
        assert source.licence
        assert {each for download in source.downloads for each in download.gives} == {raw.name for raw in source.files}
        assert all(raw.digest or raw.check for raw in source.files), "every file can be verified"
        for download in source.downloads:
            algorithm, _, digest = (download.digest or "").partition(":")
            assert len(digest) == {"md5": 32, "sha256": 64}[algorithm]


def test_a_set_is_loaded_by_name() -> None:
    data = load_set("digits", "val", seed=3)
    assert data.name == "digits val, split with seed 3"
    assert selbo_lab.data.load_set("digits", "val", seed=3).checksum == data.checksum
    assert SETS["digits"].present


@pytest.mark.parametrize(
    ("name", "part", "options", "message"),
    [
        ("imagenet", "train", {}, "`name` must be one of .*'digits'"),
        ("digits", "dev", {}, r"`part` of digits must be one of \['train', 'val', 'test'\], but got 'dev'"),
        ("fashion", "train", {}, r"`part` of fashion must be one of \['test'\], but got 'train'"),
        ("digits", "train", {"size": 3}, r"digits takes the options \['seed'\], but got 'size'"),
        ("cifar10-c", "test", {"corruption": "fog"}, "cifar10-c needs the option 'severity'"),
    ],
)
def test_what_a_set_does_not_have_is_refused(name: str, part: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_set(name, part, **options)


@pytest.mark.parametrize("name", sorted(NAMES - {"digits", "breast-cancer"}))
def test_without_files_one_sentence_says_what_to_type(data_root: Path, name: str) -> None:
    options = {"corruption": "fog", "severity": 1}
    chosen = {key: value for key, value in options.items() if key in SETS[name].options}
    assert not SETS[name].present
    with pytest.raises(MissingData, match="selbo data ") as caught:
        load_set(name, "test", **chosen)
    assert str(data_root) in str(caught.value)


def test_sources_by_the_name_of_a_set_or_of_themselves() -> None:
    assert [each.name for each in find_sources("mnist35")] == ["mnist"]
    assert [each.name for each in find_sources("cifar10-im-c")] == ["cifar10", "cifar10-c"]
    assert [each.name for each in find_sources("mnist-c")] == ["mnist-c"]
    assert find_sources("digits") == ()
    with pytest.raises(ValueError, match="`name` must be one of"):
        find_sources("imagenet")


# --- importing ---


@pytest.fixture
def few(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that expects one sentence of each kind in each part."""
    monkeypatch.setattr(sentences, "COUNTS", {"train": (1, 1), "val": (1, 1), "test": (1, 1)})
    return data_root


def vectors(path: Path) -> Path:
    arrays = {f"x_{part}": np.ones((2, 3), dtype=np.float32) for part in ("train", "dev", "test")}
    np.savez(path, **arrays, **{f"y_{part}": np.array([0, 1]) for part in ("train", "dev", "test")})
    return path


def texts(folder: Path) -> None:
    for part in ("train", "dev", "test"):
        (folder / f"{part}.tsv").write_text("0\tno\n1\tyes\n")


def test_sentences_and_vectors_are_imported_from_one_folder(few: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    texts(given)
    vectors(given / "vectors.npz")
    taken = import_set("sst", given, encoder="mine")
    assert sorted(taken)[:1] == ["dev.tsv"]
    assert len(taken) == 4
    assert [each.encoder for each in embeddings.list_embeddings()] == ["mine"]
    assert (few / "sst" / "train.tsv").is_file()
    assert load_set("sst", "val").inputs.shape == (2, 3)


def test_vectors_alone_or_sentences_alone(few: Path, tmp_path: Path) -> None:
    (taken,) = import_set("sst", vectors(tmp_path / "vectors.npz"))
    assert taken.startswith("embeddings/vectors-")
    assert not (few / "sst" / "train.tsv").exists()
    folder = tmp_path / "texts"
    folder.mkdir()
    texts(folder)
    assert sorted(import_set("sst", folder)) == ["dev.tsv", "test.tsv", "train.tsv"]


def test_a_wrong_file_is_refused_and_nothing_is_left(data_root: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "t10k-labels-idx1-ubyte.gz"
    wrong.write_bytes(gzip.compress(struct.pack(">2I", 0x801, 3) + b"\x01\x02\x03"))
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte"):
        import_set("mnist35", wrong)
    assert not [path for path in data_root.rglob("*") if "t10k" in path.name]


def test_the_official_files_of_a_corrupted_set_are_meant(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(catalogue.acquire, "import_from", lambda source, path: asked.append(source.name) or [])
    for name in ("mnist35", "mnist35-c", "cifar10-im", "cifar10-im-c", "mnist-c"):
        import_set(name, tmp_path)
    assert asked == ["mnist", "mnist-c", "cifar10", "cifar10-c", "mnist-c"]
    assert not data_root.exists()


def test_what_cannot_be_imported(data_root: Path, tmp_path: Path) -> None:
    assert not data_root.exists()
    with pytest.raises(ValueError, match="comes with scikit-learn"):
        import_set("digits", tmp_path)
    with pytest.raises(ValueError, match="`encoder` is for an NPZ file"):
        import_set("mnist", tmp_path, encoder="mine")
