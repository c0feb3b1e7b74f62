"""Data sets, read from their sources; nothing is downloaded at import, and nothing is unpickled."""

from selbo.data.catalogue import SETS, load
from selbo.data.cifar import as_cifar, corrupted_sets
from selbo.data.dataset import LabelledData, Normalisation
from selbo.data.embeddings import embed_sst, import_embeddings
from selbo.data.imbalance import class_fractions, geometric_ratios, imbalanced, imbalanced_indices
from selbo.data.sentences import sst_sentences
from selbo.data.sst import with_noise
from selbo.data.store import MissingData

__all__ = [
    "SETS",
    "LabelledData",
    "MissingData",
    "Normalisation",
    "as_cifar",
    "class_fractions",
    "corrupted_sets",
    "embed_sst",
    "geometric_ratios",
    "imbalanced",
    "imbalanced_indices",
    "import_embeddings",
    "load",
    "sst_sentences",
    "with_noise",
]
