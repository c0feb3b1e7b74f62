"""All data sets by name, with their loaders and raw files."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from selbo.checks import one_of
from selbo_lab.data import (
    acquire,
    adult,
    breast_cancer,
    census,
    cifar,
    digits,
    embeddings,
    fashion,
    keel,
    magic,
    mnist,
    sst,
    store,
    svhn,
    voters,
    zero_shot,
)
from selbo_lab.data.cifar_files import CIFAR10, CIFAR10_C
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.sentences import SST
from selbo_lab.data.splits import PARTS
from selbo_lab.data.store import Source
from selbo_lab.data.tables import TABLE_PARTS, TableWithGroups

SOURCES: Final[dict[str, Source]] = {
    source.name: source
    for source in (
        *(mnist.MNIST, mnist.MNIST_C, fashion.FASHION, fashion.FASHION_TRAIN),
        *(CIFAR10, CIFAR10_C, svhn.SVHN, SST),
        *(voters.VOTERS, adult.ADULT, census.CENSUS, magic.MAGIC, keel.KEEL),
    )
}


@dataclass(frozen=True)
class DataSet:
    """A data set.

    Attributes:
        name: Name to load it by.
        title: Description in one line.
        parts: Available parts.
        loader: Takes the part and options, or only options if there is only a corrupted test part.
        sources: Required raw files.
        optional: Raw files that are used if present.
        licence: Known terms of use.
    """

    name: str
    title: str
    parts: tuple[str, ...]
    loader: Callable[..., LabelledData]
    sources: tuple[Source, ...]
    optional: tuple[Source, ...] = ()
    licence: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options of `load_set`."""
        return tuple(name for name in inspect.signature(self.loader).parameters if name != "part")

    @property
    def present(self) -> bool:
        """Whether the required raw files are in the store."""
        return all(store.present(source) for source in self.sources)


def _set(
    name: str,
    title: str,
    parts: tuple[str, ...],
    loader: Callable[..., LabelledData],
    *sources: Source,
    optional: tuple[Source, ...] = (),
    licence: str = "",
) -> DataSet:
    stated = licence or "; ".join(f"{each.name}: {each.licence}" for each in (*sources, *optional))
    return DataSet(name, title, parts, loader, sources, optional, stated)


SETS: Final[dict[str, DataSet]] = {
    each.name: each
    for each in (
        _set(
            "digits",
            "handwritten digits of 8 x 8 pixels, which come with scikit-learn",
            PARTS,
            digits.digits,
            licence=digits.DIGITS_LICENCE,
        ),
        _set(
            "breast-cancer",
            "tumours described by 30 numbers, which come with scikit-learn",
            PARTS,
            breast_cancer.breast_cancer,
            licence=breast_cancer.BREAST_CANCER_LICENCE,
        ),
        _set("mnist", "handwritten digits, unlike CIFAR-10", ("test",), mnist.mnist, mnist.MNIST),
        _set("mnist35", "fives against threes of MNIST", PARTS, mnist.mnist35, mnist.MNIST),
        _set(
            "mnist35-c",
            "its test part with 15 corruptions",
            ("test",),
            mnist.mnist35_c,
            mnist.MNIST,
            optional=(mnist.MNIST_C,),
        ),
        _set("fashion", "articles of clothing, unlike digits", ("test",), fashion.fashion, fashion.FASHION),
        _set(
            "fashion-train",
            "articles of clothing, to train on",
            TABLE_PARTS,
            fashion.fashion_train,
            fashion.FASHION,
            fashion.FASHION_TRAIN,
        ),
        _set("cifar10", "photographs in ten classes", PARTS, cifar.cifar10, CIFAR10),
        _set(
            "cifar10-c",
            "its test part with 19 corruptions at 5 severities",
            ("test",),
            cifar.cifar10_c,
            CIFAR10,
            optional=(CIFAR10_C,),
        ),
        _set("cifar10-im", "CIFAR-10 with rare classes", PARTS, cifar.cifar10_im, CIFAR10),
        _set(
            "cifar10-im-c",
            "its test part with 19 corruptions at 5 severities",
            ("test",),
            cifar.cifar10_im_c,
            CIFAR10,
            optional=(CIFAR10_C,),
        ),
        _set("svhn", "house numbers, unlike CIFAR-10", ("test",), svhn.svhn, svhn.SVHN),
        _set("sst", "sentences of film reviews, embedded", PARTS, sst.sst, SST),
        _set("sst-zero-shot", "their zero-shot scores", PARTS, zero_shot.sst_zero_shot, SST),
        _set("voters", "people and their vote in 2016, by state", TABLE_PARTS, voters.voters, voters.VOTERS),
        _set("adult", "people and their income, by education and occupation", TABLE_PARTS, adult.adult, adult.ADULT),
        _set("census", "people and their income, of whom few are rich", TABLE_PARTS, census.census, census.CENSUS),
        _set("magic", "showers of particles in a telescope", TABLE_PARTS, magic.magic, magic.MAGIC),
        _set("keel", "thirty tables with 2 to 26 classes, chosen by `table`", TABLE_PARTS, keel.keel, keel.KEEL),
    )
}

TABLES: Final[dict[str, Callable[[], TableWithGroups]]] = {
    "voters": voters.voters_table,
    "adult": adult.adult_table,
    "census": census.census_table,
    "magic": magic.magic_table,
}
"""Tables with groups, by the name of the set."""


def load_set(name: str, part: str = "train", **options: Any) -> LabelledData:
    """A part of a data set, from the raw files in the store.

    Args:
        name: One of `SETS`.
        part: "train", "val" or "test"; sets for testing only have just the last.
        **options: Further options of the set, such as ``seed``, ``train_size``, ``corruption`` and ``severity``.

    Returns:
        Inputs and labels, with their source and licence.

    Raises:
        MissingData: If the raw files are not in the store; the message names the command to get them.

    Example:
        >>> load_set("digits", "test", seed=0)
        <LabelledData digits test, split with seed 0: 359 examples, 10 classes>
    """
    chosen = SETS[one_of("name", name, SETS)]
    if part not in chosen.parts:
        raise ValueError(f"`part` of {name} must be one of {list(chosen.parts)}, but got {part!r}")
    if unknown := [option for option in options if option not in chosen.options]:
        raise ValueError(f"{name} takes the options {list(chosen.options)}, but got {unknown[0]!r}")
    parameters = inspect.signature(chosen.loader).parameters
    needed = [key for key in chosen.options if parameters[key].default is inspect.Parameter.empty]
    if missing := [key for key in needed if key not in options]:
        raise ValueError(f"{name} needs the option {missing[0]!r}, but got {sorted(options)}")
    given = {"part": part, **options} if "part" in parameters else options
    return chosen.loader(**given)


def find_sources(name: str) -> tuple[Source, ...]:
    """Raw files by the name of a set, optional ones included, or of a source.

    Raises:
        ValueError: If the name is unknown.
    """
    if name in SETS:
        return (*SETS[name].sources, *SETS[name].optional)
    return (SOURCES[one_of("name", name, {*SETS, *SOURCES})],)


def import_set(name: str, path: Path | str, *, encoder: str | None = None) -> list[str]:
    """Import local files into the store, verified by content.

    Args:
        name: Name of a set or of a source. For a corrupted set, the official files are imported.
        path: A folder, an archive or a file; for ``sst`` also an NPZ file of embeddings, or a folder that holds some.
        encoder: Encoder of the embeddings, if their file does not name it.

    Returns:
        Names of the imported files.

    Raises:
        ValueError: If there is nothing to import, or a file is invalid.
    """
    given = Path(path).expanduser()
    sources = find_sources(name)
    if not sources:
        raise ValueError(f"{name} comes with scikit-learn: there is nothing to import")
    vectors = _embeddings_in(given) if sources[-1] is SST else []
    if encoder is not None and not vectors:
        raise ValueError(f"`encoder` is for an NPZ file of embeddings of sst, but got {str(path)!r} for {name}")
    taken: list[str] = []
    if not vectors or (given.is_dir() and _holds_sentences(given)):
        taken += acquire.import_from(sources[-1], given)
    for each in vectors:
        taken.append(f"{embeddings.EMBEDDINGS_FOLDER}/{embeddings.import_embeddings(each, encoder=encoder).name}")
    return taken


def _embeddings_in(path: Path) -> list[Path]:
    return sorted(path.glob("*.npz")) if path.is_dir() else [path] if path.suffix == ".npz" else []


def _holds_sentences(folder: Path) -> bool:
    names = {raw.name for raw in SST.files} | {PurePosixPath(each.url).name for each in SST.downloads}
    return any(file.name in names for file in folder.rglob("*"))
