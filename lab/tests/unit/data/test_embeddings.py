"""Embeddings: made with a stand-in for sentence-transformers, brought along, chosen, and refused."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from selbo_lab.data import embeddings, sentences, sst, zero_shot
from selbo_lab.data.store import MissingData

COUNTS = {"train": (12, 8), "val": (2, 1), "test": (1, 3)}


def texts_of(part: str) -> list[str]:
    negative, positive = COUNTS[part]
    return [f"{part} sentence {i}" for i in range(negative + positive)]


def labels_of(part: str) -> np.ndarray:
    negative, positive = COUNTS[part]
    return np.random.default_rng(9).permutation([0] * negative + [1] * positive).astype(np.uint8)


@pytest.fixture
def folder(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that expects few sentences, and has them."""
    monkeypatch.setattr(sentences, "COUNTS", COUNTS)
    (data_root / "sst").mkdir(parents=True)
    for part, name in sentences.SENTENCE_FILES.items():
        lines = [f"{label}\t{text}\n" for label, text in zip(labels_of(part), texts_of(part), strict=True)]
        (data_root / "sst" / name).write_text("".join(lines))
    return data_root / "sst"


def arrays_of(dimension: int = 4, dtype: type = np.float32) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    return {
        f"{kind}_{suffix}": (
            labels_of(part) if kind == "y" else generator.normal(size=(sum(COUNTS[part]), dimension)).astype(dtype)
        )
        for part, suffix in embeddings.SUFFIXES.items()
        for kind in "xy"
    }


def stored(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


class FakeEncoder:
    """The vector of a text: its length, the number of its model, and what it was called with."""

    made: list[tuple[str, str | None]] = []  # noqa: RUF012  (reset by the fixture)
    calls: list[int] = []  # noqa: RUF012

    def __init__(self, model: str, device: str | None = None) -> None:
        self.made.append((model, device))
        self.model = model

    def encode(
        self, texts: list[str], *, batch_size: int, convert_to_numpy: bool, show_progress_bar: bool
    ) -> np.ndarray:
        assert convert_to_numpy
        assert not show_progress_bar
        self.calls.append(len(texts))
        return np.array([[len(text), sum(map(ord, text)), batch_size] for text in texts], dtype=np.float32)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeEncoder]:
    FakeEncoder.made, FakeEncoder.calls = [], []
    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = FakeEncoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return FakeEncoder


# --- made ---


def test_sentences_are_embedded_in_their_order(folder: Path, fake: type[FakeEncoder]) -> None:
    reports: list[tuple[int, int]] = []
    path = embeddings.embed_sst("some/model", batch_size=2, device="cpu", progress=lambda *r: reports.append(r))
    assert path.parent == folder / "embeddings"
    assert fake.made == [("some/model", "cpu")]
    for part in ("train", "val", "test"):
        data = sst.sst(part)
        expected = [[len(text), sum(map(ord, text)), 2] for text in texts_of(part)]
        np.testing.assert_array_equal(data.inputs.numpy(), expected)
        np.testing.assert_array_equal(data.labels.numpy(), labels_of(part))
        assert "by some/model" in data.source
    assert reports == [(16, 27), (20, 27), (23, 27), (27, 27)]


def test_zero_shot_scores_are_cosines_with_descriptions_of_the_classes(folder: Path, fake: type[FakeEncoder]) -> None:
    path = zero_shot.score_sst("some/model", batch_size=2)
    assert path.parent == folder / "zero-shot"
    assert embeddings.list_embeddings() == []  # other studies must not mistake them for embeddings

    def vector(text: str) -> np.ndarray:
        encoder = fake("some/model")
        found = encoder.encode([text], batch_size=2, convert_to_numpy=True, show_progress_bar=False)[0].astype(float)
        return found / np.sqrt((found**2).sum())

    classes = [np.mean([vector(each) for each in zero_shot.PROMPTS[name]], 0) for name in ("negative", "positive")]
    data = zero_shot.sst_zero_shot("test")
    for text, logits in zip(texts_of("test"), data.inputs.numpy(), strict=True):
        cosines = [vector(text) @ each / np.sqrt((each**2).sum()) for each in classes]
        np.testing.assert_allclose(logits, 100 * np.array(cosines), rtol=1e-5)
    np.testing.assert_array_equal(data.labels.numpy(), labels_of("test"))
    zero_shot.score_sst("other/model", batch_size=3)
    with pytest.raises(ValueError, match="must hold one file of scores, but holds 2"):
        zero_shot.sst_zero_shot("test")


def test_what_was_made_is_not_made_again(folder: Path, fake: type[FakeEncoder]) -> None:
    first = embeddings.embed_sst("some/model")
    reports: list[tuple[int, int]] = []
    assert embeddings.embed_sst("some/model", progress=lambda *r: reports.append(r)) == first
    assert len(fake.made) == 1
    assert reports == [(27, 27)]
    assert embeddings.embed_sst("other/model") != first
    text = (folder / "test.tsv").read_text()
    (folder / "test.tsv").write_text(text.replace("sentence 2", "phrase 2"))
    assert embeddings.embed_sst("some/model") not in {first}
    assert len(fake.made) == 3


def test_a_local_model_is_known_by_its_content(folder: Path, fake: type[FakeEncoder], tmp_path: Path) -> None:
    assert folder.is_dir()
    model = tmp_path / "my model"
    (model / "deep").mkdir(parents=True)
    (model / "deep" / "weights.bin").write_bytes(b"1234")
    first = embeddings.embed_sst(str(model))
    assert embeddings.embed_sst(str(model)) == first
    assert first.name.startswith("my-model-")
    (model / "deep" / "weights.bin").write_bytes(b"1235")
    assert embeddings.embed_sst(str(model)) != first
    assert len(fake.made) == 2


def test_numbers_that_are_none_are_not_kept(
    folder: Path, fake: type[FakeEncoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "encode", lambda self, texts, **_: np.full((len(texts), 2), np.nan))
    with pytest.raises(ValueError, match="must hold finite numbers"):
        embeddings.embed_sst("some/model")
    assert list((folder / "embeddings").iterdir()) == []


def test_the_package_is_named_where_it_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.is_dir()
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'selbo-lab\[embed\]'"):
        embeddings.embed_sst("some/model")


def test_sentences_are_needed(data_root: Path, fake: type[FakeEncoder]) -> None:
    assert not data_root.exists()
    with pytest.raises(MissingData, match="selbo data get sst"):
        embeddings.embed_sst("some/model")
    assert fake.made == []


# --- brought along ---


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_file_is_kept_in_the_type_it_has(folder: Path, tmp_path: Path, dtype: type) -> None:
    arrays = arrays_of(dtype=dtype)
    path = embeddings.import_embeddings(stored(tmp_path / "mine.npz", arrays), encoder="an encoder")
    assert path.parent == folder / "embeddings"
    (found,) = embeddings.list_embeddings()
    assert (found.path, found.encoder, found.dimension, found.dtype) == (path, "an encoder", 4, np.dtype(dtype).name)
    np.testing.assert_array_equal(sst.sst("train").inputs.numpy(), arrays["x_train"].astype(np.float32))


def test_the_encoder_is_that_of_the_call_or_the_file_or_its_name(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    named = {**arrays_of(), "encoder": np.array("inside")}
    for arrays, given, expected in ((named, None, "inside"), (named, "said", "said"), (arrays_of(), None, "mine")):
        embeddings.import_embeddings(stored(tmp_path / "mine.npz", arrays), encoder=given)
        (found,) = embeddings.list_embeddings()  # the same vectors under another name take the place of the first
        assert found.encoder == expected


def test_without_sentences_the_counts_are_checked(folder: Path, tmp_path: Path) -> None:
    for name in sentences.SENTENCE_FILES.values():
        (folder / name).unlink()
    embeddings.import_embeddings(stored(tmp_path / "mine.npz", arrays_of()))
    wrong = arrays_of()
    wrong["y_dev"] = 1 - wrong["y_dev"]
    with pytest.raises(ValueError, match="2 negative and 1 positive sentences, but got 1 and 2"):
        embeddings.import_embeddings(stored(tmp_path / "mine.npz", wrong))


def with_value(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed[1, 2] = value
    return changed


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("y_train", lambda a: a[::-1], "must hold the labels of the sentences in the store, but 'y_train' differs"),
        ("y_train", lambda a: a.astype(float), "20 whole numbers in 'y_train', but got float64"),
        ("y_train", lambda a: a[:-1], "20 whole numbers in 'y_train'"),
        ("y_test", lambda a: a + 1, "labels 0 and 1, but got 1 to 2"),
        ("x_test", lambda a: with_value(a, np.nan), "finite numbers, but 1 of 'x_test' are NaN or infinite"),
        ("x_test", lambda a: with_value(a, np.inf), "finite numbers, but 1 of 'x_test'"),
        ("x_test", lambda a: a[:, :3], r"vectors of one length, but got \[3, 4\]"),
        ("x_test", lambda a: a[..., None], "floating-point vectors in 'x_test'"),
        ("x_test", lambda a: a.astype(int), "floating-point vectors in 'x_test', one per row, but got int64"),
        ("x_test", lambda a: a.astype(object), "cannot be read as an .npz file: it holds Python objects"),
        ("x_test", lambda a: a[:, :0], "floating-point vectors"),
    ],
)
def test_other_arrays_are_refused(folder: Path, tmp_path: Path, name: str, change: object, message: str) -> None:
    arrays = arrays_of()
    arrays[name] = change(arrays[name])  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        embeddings.import_embeddings(stored(tmp_path / "mine.npz", arrays))
    assert not (folder / "embeddings").exists()


def test_a_missing_array_is_named(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    arrays = arrays_of()
    del arrays["x_dev"]
    with pytest.raises(ValueError, match="but got no x_dev"):
        embeddings.import_embeddings(stored(tmp_path / "mine.npz", arrays))
    with pytest.raises(FileNotFoundError, match="there is none at"):
        embeddings.import_embeddings(tmp_path / "nowhere.npz")


# --- chosen ---


def test_the_only_one_or_the_one_named(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    with pytest.raises(MissingData, match=r"'selbo data import sst FILE\.npz'.*'selbo data embed sst --model NAME'"):
        sst.sst("test")
    first = embeddings.import_embeddings(stored(tmp_path / "a.npz", arrays_of(4)), encoder="small")
    assert "by small" in sst.sst("test").source
    embeddings.import_embeddings(stored(tmp_path / "b.npz", arrays_of(6)), encoder="large")
    assert sst.sst("test", embedding="small").inputs.shape == (4, 4)
    assert sst.sst("test", embedding="large").inputs.shape == (4, 6)
    assert sst.sst("test", embedding=first.stem).inputs.shape == (4, 4)
    with pytest.raises(ValueError, match=r"one of the embeddings in the store, \['large', 'small'\], but got none"):
        sst.sst("test")
    with pytest.raises(ValueError, match=r"`embedding` must name one of .* but got 'huge'"):
        sst.sst("test", embedding="huge")


def test_two_of_one_name_are_told_apart_by_file(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    for dimension in (4, 6):
        path = embeddings.import_embeddings(stored(tmp_path / "a.npz", arrays_of(dimension)), encoder="same")
    with pytest.raises(ValueError, match=path.stem):
        sst.sst("test", embedding="same")
    assert sst.sst("test", embedding=path.name).inputs.shape == (4, 6)


def test_a_damaged_file_in_the_store_is_refused(folder: Path, tmp_path: Path) -> None:
    assert folder.is_dir()
    path = embeddings.import_embeddings(stored(tmp_path / "a.npz", arrays_of()), encoder="one")
    arrays = arrays_of()
    arrays["x_train"][0, 0] = np.inf
    stored(path, arrays)
    with pytest.raises(ValueError, match="must hold finite numbers"):
        sst.sst("test")
