"""Sentences as vectors: made by a sentence encoder or brought along, and kept in the store as NPZ files."""

import hashlib
import importlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selbo.checks import whole
from selbo.files import replacing
from selbo_lab.data import store
from selbo_lab.data.arrays import read_npz
from selbo_lab.data.sentences import SST, check_counts, sst_sentences

EMBEDDINGS_FOLDER: Final = "embeddings"

SUFFIXES: Final = {"train": "train", "val": "dev", "test": "test"}
"""How the arrays of each part end: ``x_train``, ``y_train``, ``x_dev``, …"""

ARRAYS: Final = tuple(f"{kind}_{suffix}" for suffix in SUFFIXES.values() for kind in "xy")

ENCODER: Final = "encoder"
"""Array with the name of the encoder, one string."""

CHUNK_BATCHES: Final = 8
"""Batches between two reports of progress; within them the encoder sorts sentences by length."""

HASH_LETTERS: Final = 16

Encode = Callable[..., NDArray[np.float32]]
"""Turns sentences into vectors."""


@dataclass(frozen=True)
class Embeddings:
    """A file of embeddings in the store.

    Attributes:
        path: Where it is.
        encoder: What made it.
        dimension: Of the vectors.
        dtype: Type the vectors are stored in.
    """

    path: Path
    encoder: str
    dimension: int
    dtype: str


def embeddings_folder() -> Path:
    """Folder of the embeddings of SST-2."""
    return store.folder(SST) / EMBEDDINGS_FOLDER


# --- reading ---


def read_embeddings(path: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Vectors, shape (N, D), type float32, and labels, shape (N,), of each part.

    Raises:
        ValueError: If an array is missing, of the wrong shape or type, holds NaN or infinity, or needs unpickling.
    """
    arrays = _checked(path)
    return {
        part: (
            torch.from_numpy(arrays[f"x_{suffix}"].astype(np.float32)),
            torch.from_numpy(arrays[f"y_{suffix}"].astype(np.int64)),
        )
        for part, suffix in SUFFIXES.items()
    }


def _checked(path: Path) -> dict[str, NDArray[Any]]:
    name = os.fspath(path)
    arrays = read_npz(path, ARRAYS, optional=[ENCODER])
    widths = set()
    for suffix in SUFFIXES.values():
        vectors, labels = arrays[f"x_{suffix}"], arrays[f"y_{suffix}"]
        if vectors.ndim != 2 or vectors.dtype not in (np.float16, np.float32, np.float64) or 0 in vectors.shape:
            raise ValueError(
                f"{name!r} must hold floating-point vectors in 'x_{suffix}', one per row, but got {vectors.dtype} of "
                f"shape {vectors.shape}"
            )
        if labels.shape != vectors.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError(
                f"{name!r} must hold {len(vectors)} whole numbers in 'y_{suffix}', but got {labels.dtype} of shape "
                f"{labels.shape}"
            )
        if labels.min() < 0 or labels.max() > 1:
            raise ValueError(f"{name!r} must hold labels 0 and 1, but got {labels.min()} to {labels.max()}")
        if bad := int((~np.isfinite(vectors)).sum()):
            raise ValueError(f"{name!r} must hold finite numbers, but {bad} of 'x_{suffix}' are NaN or infinite")
        widths.add(vectors.shape[1])
    if len(widths) > 1:
        raise ValueError(f"{name!r} must hold vectors of one length, but got {sorted(widths)}")
    return arrays


def _encoder_in(arrays: dict[str, NDArray[Any]]) -> str | None:
    stored = arrays.get(ENCODER)
    if stored is None or stored.dtype.kind != "U" or stored.size != 1:
        return None
    return str(stored.reshape(-1)[0]) or None


def list_embeddings() -> list[Embeddings]:
    """The embeddings in the store, by name."""
    found = []
    for path in sorted(embeddings_folder().glob("*.npz")):
        if path.name.startswith("."):
            continue
        arrays = read_npz(path, ["x_test"], optional=[ENCODER])
        vectors = arrays["x_test"]
        found.append(Embeddings(path, _encoder_in(arrays) or path.stem, vectors.shape[-1], str(vectors.dtype)))
    return found


def choose(stored: Sequence[Embeddings], name: str | None) -> Embeddings:
    """The only embeddings, or those of this encoder or file.

    Raises:
        MissingData: There are none; the sentence says what to type.
        ValueError: None has this name, or several might be meant.
    """
    if not stored:
        raise store.MissingData(
            f"there are no embeddings of sst in {store.root()}: 'selbo data import sst FILE.npz' takes those you have, "
            "'selbo data embed sst --model NAME' makes them"
        )
    matching = [each for each in stored if name is None or name in {each.encoder, each.path.name, each.path.stem}]
    if len(matching) == 1:
        return matching[0]
    encoders = sorted({each.encoder for each in stored})
    known = encoders if len(encoders) == len(stored) else sorted(each.path.stem for each in stored)
    came = "none" if name is None else repr(name)
    raise ValueError(f"`embedding` must name one of the embeddings in the store, {known}, but got {came}")


# --- writing ---


def import_embeddings(path: Path | str, *, encoder: str | None = None) -> Path:
    """Take a file of embeddings into the store, checked, in the type it has.

    Labels must be those of the sentences if these are in the store; if not, as many of each class as SST-2 has.

    Args:
        path: An NPZ file with ``x_train, y_train, x_dev, y_dev, x_test, y_test``, x one vector a row, and perhaps
            ``encoder``, one string.
        encoder: What made it, if the file does not say; its name without the suffix if neither does.

    Returns:
        Where it is kept.
    """
    given = Path(path)
    if not given.is_file():
        raise FileNotFoundError(f"`path` must be an NPZ file, but there is none at {os.fspath(path)!r}")
    arrays = _checked(given)
    known = store.present(SST)
    for part, suffix in SUFFIXES.items():
        labels = torch.from_numpy(arrays[f"y_{suffix}"].astype(np.int64))
        check_counts(labels, part, os.fspath(given))
        if known and not torch.equal(labels, sst_sentences(part)[1]):
            raise ValueError(
                f"{os.fspath(given)!r} must hold the labels of the sentences in the store, but 'y_{suffix}' differs"
            )
    name = encoder or _encoder_in(arrays) or given.stem
    return write_arrays({each: arrays[each] for each in ARRAYS}, name)


def write_arrays(arrays: dict[str, NDArray[Any]], encoder: str, *, folder: Path | None = None) -> Path:
    """Write arrays that an encoder made, in a file that is named after it and after their content.

    Args:
        arrays: All of `ARRAYS`.
        encoder: What made them.
        folder: Folder in the store; that of the embeddings if not given.
    """
    digest = hashlib.sha256(b"import")
    for each in ARRAYS:
        digest.update(repr((each, arrays[each].dtype.str, arrays[each].shape)).encode())
        digest.update(np.ascontiguousarray(arrays[each]).data)
    return _write(arrays, encoder, digest.hexdigest(), folder)


def embed_sst(
    model: str,
    *,
    batch_size: int = 64,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Embed the sentences of SST-2 with a sentence encoder, and keep the result.

    What was made before from the same sentences with the same model is not made again. A model in a folder is known by
    the content of its files, one on the hub by its name alone.

    Args:
        model: Name on the hub, or a folder.
        batch_size: Sentences encoded at a time.
        device: Where to encode; None leaves the choice to sentence-transformers.
        progress: Called with the number of sentences done and of all.

    Returns:
        The NPZ file in the store.
    """
    whole("batch_size", batch_size, at_least=1)
    sentences = {part: sst_sentences(part) for part in SUFFIXES}
    digest = _key(model, sentences)
    path = _path(model, digest)
    total = sum(len(texts) for texts, _ in sentences.values())
    if path.is_file():
        if progress is not None:
            progress(total, total)
        return path
    encode = load_encoder(model, batch_size=batch_size, device=device)
    arrays: dict[str, NDArray[Any]] = {}
    done = 0
    for part, (texts, labels) in sentences.items():

        def count(some: int, before: int = done) -> None:
            if progress is not None:
                progress(before + some, total)

        arrays[f"x_{SUFFIXES[part]}"] = encode(texts, count)
        arrays[f"y_{SUFFIXES[part]}"] = labels.numpy().astype(np.uint8)
        done += len(texts)
    return _write(arrays, model, digest)


def load_encoder(model: str, *, batch_size: int = 64, device: str | None = None) -> Encode:
    """Load a sentence encoder; it takes sentences, and a listener for the number of those done, and returns vectors.

    Args:
        model: Name on the hub, or a folder.
        batch_size: Sentences encoded at a time.
        device: Where to encode; None leaves the choice to sentence-transformers.
    """
    try:
        sentence_transformers = importlib.import_module("sentence_transformers")
    except ImportError:
        raise ModuleNotFoundError(
            "embedding sentences needs the package sentence-transformers: pip install 'selbo-lab[embed]'"
        ) from None
    encoder = sentence_transformers.SentenceTransformer(model, device=device)

    def encode(texts: Sequence[str], told: Callable[[int], None] = lambda _: None) -> NDArray[np.float32]:
        pieces = []
        for start in range(0, len(texts), CHUNK_BATCHES * batch_size):
            some = list(texts[start : start + CHUNK_BATCHES * batch_size])
            vectors = encoder.encode(some, batch_size=batch_size, convert_to_numpy=True, show_progress_bar=False)
            pieces.append(np.asarray(vectors, dtype=np.float32))
            told(start + len(some))
        return np.concatenate(pieces)

    return encode


def _key(model: str, sentences: dict[str, tuple[tuple[str, ...], Tensor]]) -> str:
    """Hash of the sentences, of the model's name, and of the files of a model in a folder."""
    digest = hashlib.sha256(repr(("embed", model)).encode())
    for part, (texts, labels) in sentences.items():
        digest.update(repr((part, texts, labels.tolist())).encode())
    place = Path(model)
    if place.is_dir():
        for file in sorted(each for each in place.rglob("*") if each.is_file()):
            digest.update(repr(file.relative_to(place).as_posix()).encode())
            with file.open("rb") as stream:
                while block := stream.read(2**20):
                    digest.update(block)
    return digest.hexdigest()


def _path(encoder: str, digest: str, folder: Path | None = None) -> Path:
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(encoder).name).strip("-.") or "encoder"
    return (folder or embeddings_folder()) / f"{slug}-{digest[:HASH_LETTERS]}.npz"


def _write(arrays: dict[str, NDArray[Any]], encoder: str, digest: str, folder: Path | None = None) -> Path:
    path = _path(encoder, digest, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        with unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays, **{ENCODER: np.array(encoder)})
        _checked(unfinished)
    for other in set(path.parent.glob(f"*-{digest[:HASH_LETTERS]}.npz")) - {path}:
        other.unlink(missing_ok=True)  # the same vectors under the name that the encoder had before
    return path
