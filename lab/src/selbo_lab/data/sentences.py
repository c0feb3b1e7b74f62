"""Positive and negative sentences of film reviews, SST-2: from tab-separated files or from Stanford's parse trees."""

import os
import re
import zipfile
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

import torch
from torch import Tensor

from selbo.checks import one_of
from selbo.files import replacing
from selbo_lab.data import store
from selbo_lab.data.splits import PARTS
from selbo_lab.data.store import Download, RawFile, Source

SENTIMENTS: Final = ("negative", "positive")

SENTENCE_FILES: Final = {"train": "train.tsv", "val": "dev.tsv", "test": "test.tsv"}

COUNTS: Final = {"train": (3310, 3610), "val": (428, 444), "test": (912, 909)}
"""Negative and positive sentences of each part, once the neutral ones are left out."""

SST_LICENCE: Final = "none stated (R. Socher et al.); the sentences are from reviews on Rotten Tomatoes"

MOST_TEXT_BYTES: Final = 64 * 2**20
"""Maximum size of a file of sentences or trees; the published ones have less than 3 MB."""

LEAF: Final = re.compile(r"\(([0-4]) ([^() ]+)\)")
"""A word with its sentiment; a space is the only separator, as words may hold other blanks."""

NEUTRAL: Final = 2


# --- tab-separated files ---


def read_tsv(path: Path) -> tuple[tuple[str, ...], Tensor]:
    """Texts and labels of a file with ``label<TAB>text`` on each line, in UTF-8, without quoting and without a header.

    Raises:
        ValueError: If a line is not of that form, which the sentence names.
    """
    name = os.fspath(path)
    if path.stat().st_size > MOST_TEXT_BYTES:
        raise ValueError(f"{name!r} must be a file of sentences, but has {path.stat().st_size} bytes")
    try:
        content = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name!r} must be text in UTF-8, but is not at byte {error.start}") from None
    lines = content.split("\n")
    if lines[-1]:
        raise ValueError(f"{name!r} is cut short: its last line has no end")
    texts, labels = [], []
    for number, line in enumerate(lines[:-1], start=1):
        label, tab, text = line.removesuffix("\r").partition("\t")
        if label not in {"0", "1"} or not tab or not text.strip() or "\t" in text:
            raise ValueError(
                f"{name!r} must hold 0 or 1, a tab and a sentence on each line, without a header, but line {number} is "
                f"{line[:40]!r}"
            )
        texts.append(text)
        labels.append(int(label))
    return tuple(texts), torch.tensor(labels, dtype=torch.int64)


def check_counts(labels: Tensor, part: str, name: str) -> None:
    """Reject labels whose counts per class differ from those of the part."""
    found = tuple(labels.bincount(minlength=2).tolist())
    if found != COUNTS[part]:
        raise ValueError(
            f"{name!r} must hold {COUNTS[part][0]} negative and {COUNTS[part][1]} positive sentences, but got "
            f"{found[0]} and {found[1]}"
        )


def _check(path: Path, *, part: str) -> None:
    check_counts(read_tsv(path)[1], part, os.fspath(path))


# --- Stanford's trees ---


def sentence_of_tree(tree: str) -> tuple[str, int | None]:
    """The words of a parse tree in lower case, joined by spaces, and 1 for positive, 0 for negative, None for neutral.

    Raises:
        ValueError: If it is no tree.

    Example:
        >>> sentence_of_tree("(4 (2 A) (4 (3 lovely) (2 film)))")
        ('a lovely film', 1)
    """
    words = [word for _, word in LEAF.findall(tree)]
    skeleton = LEAF.sub("", tree)
    depth = 0
    for mark in skeleton:
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if depth < 0:
            break
    if not words or depth or not re.fullmatch(r"[0-4() ]*", skeleton) or not re.match(r"\([0-4] ", tree):
        raise ValueError(f"there must be a tree such as '(3 (2 A) (3 film))', but got {tree[:40]!r}")
    sentiment = int(tree[1])
    text = " ".join(words).lower()
    return text, (None if sentiment == NEUTRAL else int(sentiment > NEUTRAL))


def convert_trees(archive: Path, folder: Path) -> None:
    """Write the tab-separated files from Stanford's archive of trees, neutral sentences left out.

    Raises:
        ValueError: If the archive does not hold the trees, or not as many as it should.
    """
    name = os.fspath(archive)
    if not zipfile.is_zipfile(archive):
        raise ValueError(f"{name!r} must be the zip archive of trees, but is no zip archive")
    for part, file in SENTENCE_FILES.items():
        pairs = [sentence_of_tree(line) for line in _trees(archive, file.replace(".tsv", ".txt"))]
        kept = [(text, label) for text, label in pairs if label is not None]
        check_counts(torch.tensor([label for _, label in kept], dtype=torch.int64), part, name)
        with replacing(folder / file) as path:
            path.write_bytes("".join(f"{label}\t{text}\n" for text, label in kept).encode())


def _trees(archive: Path, member: str) -> list[str]:
    """Lines of a member, found by its file name and read in memory: no path of the archive is used for writing."""
    name = os.fspath(archive)
    try:
        with zipfile.ZipFile(archive) as content:
            found = [info for info in content.infolist() if PurePosixPath(info.filename).name == member]
            if len(found) != 1 or found[0].file_size > MOST_TEXT_BYTES:
                raise ValueError(f"there must be one file {member} of trees, but got {len(found)}")  # noqa: TRY301
            with content.open(found[0]) as stream:
                text = stream.read(MOST_TEXT_BYTES).decode("utf-8")
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{name!r} cannot be read as the archive of trees: {error}") from error
    return [line.removesuffix("\r") for line in text.split("\n") if line.strip()]


SST: Final = Source(
    name="sst",
    files=tuple(RawFile(file, check=partial(_check, part=part)) for part, file in SENTENCE_FILES.items()),
    downloads=(
        Download(
            "https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",
            digest="sha256:5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
            size=789_539,
            gives=tuple(SENTENCE_FILES.values()),
        ),
    ),
    title="SST-2, sentences of film reviews",
    homepage="https://nlp.stanford.edu/sentiment/",
    licence=SST_LICENCE,
    convert=convert_trees,
)


# --- loaders ---


def sst_sentences(part: str) -> tuple[tuple[str, ...], Tensor]:
    """Texts and labels of a part, "train", "val" or "test"; 0 is negative, 1 is positive."""
    one_of("part", part, PARTS)
    path = store.locate(SST, SENTENCE_FILES[part])
    texts, labels = read_tsv(path)
    check_counts(labels, part, os.fspath(path))
    return texts, labels
