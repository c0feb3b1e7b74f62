"""Zero-shot scores of the sentences of SST-2: a sentence encoder compares them with descriptions of the two classes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from selbo.checks import one_of, whole
from selbo_lab.data import embeddings, store
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.sentences import SENTIMENTS, SST, SST_LICENCE, check_counts, sst_sentences
from selbo_lab.data.splits import PARTS

ZERO_SHOT_FOLDER: Final = "zero-shot"

PROMPTS: Final = {
    "negative": ("a negative review", "a negative film review", "The film is bad.", "I did not like this film."),
    "positive": ("a positive review", "a positive film review", "The film is good.", "I liked this film."),
}
"""Descriptions of each class; they were fixed before any score was seen."""

LOGIT_SCALE: Final = 100.0
"""Factor on cosines, which gives logits; that of CLIP."""


def zero_shot_folder() -> Path:
    """Folder of the zero-shot scores of SST-2."""
    return store.folder(SST) / ZERO_SHOT_FOLDER


def zero_shot_files() -> list[Path]:
    """Files with zero-shot scores in the store."""
    return sorted(each for each in zero_shot_folder().glob("*.npz") if not each.name.startswith("."))


def sst_zero_shot(part: str) -> LabelledData:
    """Logits of the classes of SST-2 sentences, by an encoder that has seen none of its labels.

    Args:
        part: "train" (6920), "val" (872) or "test" (1821).

    Returns:
        Logits (N, 2) of type float32 as inputs; a classifier that returns its inputs is the zero-shot classifier.
    """
    one_of("part", part, PARTS)
    stored = zero_shot_files()
    if not stored:
        raise store.MissingData(
            f"there are no zero-shot scores of sst in {store.root()}: "
            "'selbo data embed sst --zero-shot --model NAME' makes them"
        )
    if len(stored) > 1:
        raise ValueError(f"{zero_shot_folder()} must hold one file of scores, but holds {len(stored)}")
    logits, labels = embeddings.read_embeddings(stored[0])[part]
    if logits.shape[1] != len(SENTIMENTS):
        raise ValueError(f"{os.fspath(stored[0])!r} must hold two logits per sentence, but has {logits.shape[1]}")
    check_counts(labels, part, os.fspath(stored[0]))
    return LabelledData(
        name=f"sst-zero-shot {part}",
        inputs=logits,
        labels=labels,
        class_names=SENTIMENTS,
        source=f"SST-2, compared with descriptions of its classes by {stored[0].stem}",
        licence=SST_LICENCE,
    )


def score_sst(
    model: str,
    *,
    batch_size: int = 64,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Score the sentences of SST-2 with a sentence encoder, without labels, and keep the result.

    The logit of a class is `LOGIT_SCALE` times the cosine of the sentence and the class: the mean of its embedded
    `PROMPTS`, each of length one.

    Args:
        model: Name on the hub, or a folder.
        batch_size: Sentences encoded at a time.
        device: Where to encode; None leaves the choice to sentence-transformers.
        progress: Called with the number of sentences done and of all.

    Returns:
        The NPZ file in the store.
    """
    whole("batch_size", batch_size, at_least=1)
    sentences = {part: sst_sentences(part) for part in PARTS}
    total, done = sum(len(texts) for texts, _ in sentences.values()), 0
    encode = embeddings.load_encoder(model, batch_size=batch_size, device=device)
    classes = [_of_length_one(_of_length_one(encode(PROMPTS[name])).mean(0)) for name in SENTIMENTS]
    arrays: dict[str, NDArray[Any]] = {}
    for part, (texts, labels) in sentences.items():
        suffix = embeddings.SUFFIXES[part]
        arrays[f"x_{suffix}"] = (LOGIT_SCALE * _of_length_one(encode(texts)) @ np.stack(classes, 1)).astype(np.float32)
        arrays[f"y_{suffix}"] = labels.numpy().astype(np.uint8)
        done += len(texts)
        if progress is not None:
            progress(done, total)
    return embeddings.write_arrays(arrays, model, folder=zero_shot_folder())


def _of_length_one(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    found: NDArray[np.float64] = wide / np.linalg.norm(wide, axis=-1, keepdims=True)
    return found
