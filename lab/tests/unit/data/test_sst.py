"""SST-2: tab-separated files, Stanford's trees, and noise."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from selbo_lab.data import embeddings, sentences, sst
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.store import MissingData

COUNTS = {"train": (2, 3), "val": (1, 2), "test": (2, 1)}


@pytest.fixture
def small(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that expects few sentences."""
    monkeypatch.setattr(sentences, "COUNTS", COUNTS)
    (data_root / "sst").mkdir(parents=True)
    return data_root / "sst"


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "train.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# --- tab-separated files ---


def test_quotes_and_odd_blanks_are_part_of_a_sentence(tmp_path: Path) -> None:
    texts, labels = sentences.read_tsv(written(tmp_path, '1\ta "quoted" one\n0\tcrème\u2028brûlée\x85 .\r\n'))
    assert texts == ('a "quoted" one', "crème\u2028brûlée\x85 .")
    assert labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label\tsentence\n1\tgood\n", "without a header, but line 1 is 'label"),
        ("1\tgood\n2\tbad\n", "line 2 is '2"),
        ("1\tgood\n0 bad\n", "line 2 is '0 bad'"),
        ("1\tgood\n0\t \n", "line 2 is"),
        ("1\tgood\n0\tbad\tmore\n", "line 2 is"),
        ("1\tgood\n\n0\tbad\n", "line 2 is ''"),
        ("1\tgood\n0\tba", "is cut short: its last line has no end"),
        (b"1\tcr\xe8me\n", "must be text in UTF-8, but is not at byte 4"),
    ],
)
def test_a_line_that_is_not_right_is_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sentences.read_tsv(written(tmp_path, content))


def test_a_flood_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "MOST_TEXT_BYTES", 10)
    with pytest.raises(ValueError, match="must be a file of sentences, but has 11 bytes"):
        sentences.read_tsv(written(tmp_path, "1\taaaaaaaa\n"))


def test_sentences_of_a_part(small: Path) -> None:
    (small / "dev.tsv").write_text("0\tno\n1\tyes\n1\tyes yes\n")
    texts, labels = sentences.sst_sentences("val")
    assert texts == ("no", "yes", "yes yes")
    assert labels.tolist() == [0, 1, 1]
    (small / "dev.tsv").write_text("0\tno\n1\tyes\n0\tyes yes\n")
    with pytest.raises(ValueError, match="1 negative and 2 positive sentences, but got 2 and 1"):
        sentences.sst_sentences("val")
    with pytest.raises(MissingData, match="selbo data get sst"):
        sentences.sst_sentences("train")


# --- trees ---


@pytest.mark.parametrize(
    ("tree", "text", "label"),
    [
        ("(3 (2 (2 The) (2 Rock)) (4 (3 (2 is) (4 great)) (2 .)))", "the rock is great .", 1),
        ("(0 Awful)", "awful", 0),
        ("(1 (2 -LRB-) (1 (2 8\xa01\\/2) (1 dull)))", "-lrb- 8\xa01\\/2 dull", 0),
        ("(2 (2 So) (2 so))", "so so", None),
        ("(4 (4 Crème) (2 brûlée))", "crème brûlée", 1),
    ],
)
def test_words_and_sentiment_of_a_tree(tree: str, text: str, label: int | None) -> None:
    assert sentences.sentence_of_tree(tree) == (text, label)


@pytest.mark.parametrize(
    "tree", ["", "(3 )", "(3 (2 A)", "(3 (2 A)))", "3 A", "(5 A)", "(3 A) x", "A", ")3 A(", "(3 (2 A) stray)"]
)
def test_what_is_no_tree_is_refused(tree: str) -> None:
    with pytest.raises(ValueError, match="there must be a tree"):
        sentences.sentence_of_tree(tree)


def archive_of(folder: Path, **parts: str) -> Path:
    path = folder / "trees.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(f"trees/{name}.txt", text)
    return path


TREES = {
    "train": "(0 A)\n(1 B)\n(2 (2 neither) (2 one))\n(3 C)\n(4 (2 D) (4 d))\n(4 E)\n",
    "dev": "(0 F)\n(3 G)\n(3 H)",
    "test": "(0 I)\n(2 x)\n(1 J)\n(3 K)\n",
}


def test_trees_become_tab_separated_files(small: Path, tmp_path: Path) -> None:
    sentences.convert_trees(archive_of(tmp_path, **TREES), small)
    assert (small / "train.tsv").read_text() == "0\ta\n0\tb\n1\tc\n1\td d\n1\te\n"
    assert (small / "dev.tsv").read_text() == "0\tf\n1\tg\n1\th\n"
    assert sentences.sst_sentences("test")[0] == ("i", "j", "k")
    for raw in sentences.SST.files:
        assert raw.check is not None
        raw.check(small / raw.name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": "(0 A)\n"}, "2 negative and 3 positive sentences, but got 1 and 0"),
        ({"dev": "(0 F\n(3 G)\n"}, "there must be a tree"),
    ],
)
def test_other_trees_are_refused(small: Path, tmp_path: Path, change: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sentences.convert_trees(archive_of(tmp_path, **{**TREES, **change}), small)


def test_an_archive_without_trees_is_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one file dev\.txt of trees, but got 0"):
        sentences.convert_trees(archive_of(tmp_path, train=TREES["train"], test=TREES["test"]), small)
    (tmp_path / "no.zip").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="is no zip archive"):
        sentences.convert_trees(tmp_path / "no.zip", small)


# --- vectors and noise ---


@pytest.fixture
def vectors(small: Path) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    arrays: dict[str, np.ndarray] = {}
    for part, suffix in embeddings.SUFFIXES.items():
        negative, positive = COUNTS[part]
        arrays[f"x_{suffix}"] = generator.normal(size=(negative + positive, 7)).astype(np.float16)
        arrays[f"y_{suffix}"] = np.array([0] * negative + [1] * positive, dtype=np.uint8)
    np.savez(small / "given.npz", **arrays)
    embeddings.import_embeddings(small / "given.npz", encoder="some/encoder")
    return arrays


def test_vectors_of_a_part(vectors: dict[str, np.ndarray]) -> None:
    data = sst.sst("val")
    np.testing.assert_array_equal(data.inputs.numpy(), vectors["x_dev"].astype(np.float32))
    assert data.inputs.dtype == torch.float32
    assert data.labels.tolist() == [0, 1, 1]
    assert data.class_names == ("negative", "positive")
    assert "7 dimensions by some/encoder" in data.source


def test_noise_is_mixed_in_as_the_paper_says(vectors: dict[str, np.ndarray]) -> None:
    clean, pure = sst.sst("test"), sst.sst("test", noise=1, seed=3)
    for weight in (0.1, 0.5):
        mixed = sst.sst("test", noise=weight, seed=3)
        torch.testing.assert_close(mixed.inputs, (1 - weight) * clean.inputs + weight * pure.inputs)
        assert torch.equal(mixed.labels, clean.labels)
        assert f"weight {weight}" in mixed.source
    assert torch.equal(sst.sst("test", noise=0, seed=3).inputs, clean.inputs)
    assert torch.equal(sst.sst("test", noise=1, seed=3).inputs, pure.inputs), "a seed decides everything"
    assert not torch.equal(sst.sst("test", noise=1, seed=4).inputs, pure.inputs)
    assert vectors["x_test"].shape == pure.inputs.shape


def test_parts_have_noise_of_their_own() -> None:
    one, other = (LabelledData(name, torch.zeros(9, 4), torch.zeros(9).long(), ("a",), "", "") for name in "ab")
    assert not torch.equal(sst.with_noise(one, 1, seed=0).inputs, sst.with_noise(other, 1, seed=0).inputs)


def test_noise_is_standard_normal(seed: int) -> None:
    count = 40_000
    data = LabelledData("x", torch.full((count // 10, 10), 5.0), torch.zeros(count // 10).long(), ("a",), "", "")
    noise = sst.with_noise(data, 1, seed=seed).inputs.double()
    assert abs(noise.mean().item()) < 5 / count**0.5
    assert abs(noise.var().item() - 1) < 5 * (2 / count) ** 0.5
    neighbours = (noise.flatten()[1:] * noise.flatten()[:-1]).mean().item()
    assert abs(neighbours) < 5 / count**0.5


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), "half"])
def test_a_weight_outside_its_range_is_refused(vectors: dict[str, np.ndarray], weight: float) -> None:
    assert vectors
    with pytest.raises(ValueError, match="`noise` must be a"):
        sst.sst("test", noise=weight)


def test_bytes_take_no_noise() -> None:
    data = LabelledData("x", torch.zeros(2, 3).byte(), torch.zeros(2).long(), ("a",), "", "")
    with pytest.raises(ValueError, match="`data` must be a floating-point tensor"):
        sst.with_noise(data, 0.5, seed=0)
