"""Scores of a test set stored with a run: their histogram, and a map of the examples."""

from typing import Final

import torch

from selbo import Prediction
from selbo_lab.data.dataset import LabelledData
from selbo_lab.run.records import ScoreMap

SCORE_BINS: Final = 50
"""Number of bins of the stored score histogram."""


def score_histogram(prediction: Prediction) -> tuple[int, ...]:
    """Counts of the scores in fifty bins: probability of class 1 for two classes, else the confidence."""
    probs = prediction.probs
    scores = probs[:, 1] if probs.shape[-1] == 2 else probs.amax(-1)
    places = (scores.double() * SCORE_BINS).long().clamp(0, SCORE_BINS - 1)
    return tuple(torch.bincount(places, minlength=SCORE_BINS).tolist())


def build_map(test: LabelledData, prediction: Prediction) -> ScoreMap:
    """The test set in two dimensions, with the score of each example, for plots of the decision surface."""
    places = _places(test.checksum, test)
    scores = prediction.probs[:, 1] if prediction.probs.shape[-1] == 2 else prediction.probs.amax(-1)
    return ScoreMap(
        places=tuple((round(x, 2), round(y, 2)) for x, y in places),
        scores=tuple(round(score, 4) for score in scores.tolist()),
        labels=tuple(test.labels.tolist()),
    )


_PLACES: dict[str, list[list[float]]] = {}


def _places(checksum: str, test: LabelledData) -> list[list[float]]:
    if checksum not in _PLACES:
        from sklearn.manifold import TSNE

        flat = test.network_inputs().flatten(1).numpy()
        perplexity = min(30.0, (len(flat) - 1) / 4)
        found = TSNE(init="pca", perplexity=perplexity, random_state=0, n_jobs=1).fit_transform(flat)
        _PLACES[checksum] = found.tolist()
    return _PLACES[checksum]
