"""Data sets, read from their sources; nothing is downloaded at import, and nothing is unpickled."""

from selbo_lab.data.catalogue import SETS, load_set
from selbo_lab.data.cifar import as_cifar, corrupted_sets
from selbo_lab.data.dataset import LabelledData, Normalisation
from selbo_lab.data.embeddings import embed_sst, import_embeddings
from selbo_lab.data.imbalance import class_fractions, geometric_ratios, imbalanced, imbalanced_indices
from selbo_lab.data.sentences import sst_sentences
from selbo_lab.data.sst import with_noise
from selbo_lab.data.store import MissingData

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
    "load_set",
    "sst_sentences",
    "with_noise",
]
