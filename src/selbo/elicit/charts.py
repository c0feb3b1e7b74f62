"""Data of the charts of the page: densities, heat maps, samples. The browser only draws them."""

import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from selbo._numerics import FloatArray
from selbo.plots.dirichlet import dirichlet_samples
from selbo.plots.simplex import (
    DENSITY_LIMITS,
    HEIGHT,
    boundaries,
    from_plane,
    log_density,
    region_notes,
    relative_density,
    to_plane,
)
from selbo.random import generator_for
from selbo.summary._dirichlet import max_tails
from selbo.summary.beliefs import Belief
from selbo.summary.partitions import ConfidenceBins, Partition, ScoreBins

SCORE_CELLS: Final = 200
"""Number of cells of the density of the score: about one per pixel or two."""

SIMPLEX_CELLS: Final = 240
"""Pixels of the heat map per side of the triangle."""

CONFIDENCE_CELLS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Bin edges of confidence for many classes; above one half the masses are sums of Beta tails, hence exact."""

NUM_DRAWS: Final = 8
INTERVAL: Final = (0.05, 0.95)
"""Quantiles that contain nine of ten samples."""


def build_picture(belief: Belief, partition: Partition, s0: FloatArray, names: list[str]) -> dict[str, Any] | None:
    """The chart above the bars: scores of two classes, the simplex of three, confidence for more."""
    if partition.num_classes == 2:
        return scores_picture(belief, partition, s0, names)
    if partition.num_classes == 3:
        return simplex_picture(belief, partition, s0, names)
    parameters = belief.dirichlet(partition.num_classes)
    return None if parameters is None else confidence_picture(parameters)


def scores_picture(belief: Belief, partition: Partition, s0: FloatArray, names: list[str]) -> dict[str, Any]:
    """Density of the score relative to the uniform distribution, per cell, and the region boundaries."""
    edges = np.arange(1, SCORE_CELLS) / SCORE_CELLS
    parameters = belief.dirichlet(2)
    if parameters is None:
        middles = (np.arange(SCORE_CELLS) + 0.5) / SCORE_CELLS
        density = relative_density(partition, s0, np.stack([1 - middles, middles], -1))
    else:
        density = ScoreBins(edges.tolist()).dirichlet_masses(parameters) * SCORE_CELLS
    return {"kind": "scores", "density": density.tolist(), "cuts": score_cuts(partition), "title": names[1]}


def score_cuts(partition: Partition) -> list[float]:
    """Scores at which one region ends and another begins."""
    return sorted({float(score) for score in boundaries(partition)[:, 0, 1]})


def simplex_picture(belief: Belief, partition: Partition, s0: FloatArray, names: list[str]) -> dict[str, Any]:
    """A heat map of the triangle as bytes, with the boundaries and masses of the regions."""
    columns, rows = SIMPLEX_CELLS, round(SIMPLEX_CELLS * HEIGHT)
    x = (np.arange(columns) + 0.5) / columns
    y = (rows - np.arange(rows) - 0.5) / rows * HEIGHT  # from the top, as pixels are counted
    inside = np.clip(from_plane(np.stack(np.meshgrid(x, y), axis=-1)), 0.5 / columns, None)
    probs = inside / inside.sum(-1, keepdims=True)
    logs = log_density(belief, probs, partition)
    low, high = np.log(DENSITY_LIMITS)
    shades = np.round(255 * np.clip((logs - low) / (high - low), 0, 1)).astype(np.uint8)
    return {
        "kind": "simplex",
        "columns": columns,
        "rows": rows,
        "shades": base64.b64encode(shades.tobytes()).decode("ascii"),
        "limits": list(DENSITY_LIMITS),
        "height": HEIGHT,
        "lines": to_plane(boundaries(partition)).tolist(),
        "names": names,
        **_notes(partition, s0, names),
    }


def _notes(partition: Partition, s0: FloatArray, names: list[str]) -> dict[str, Any]:
    """Masses next to the corners of the triangle, and texts inside it with their positions."""
    notes = region_notes(partition, s0, names)
    inside = [(*to_plane(probs).tolist(), text) for probs, text in notes.inside]
    return {"corners": notes.corners, "inside": [list(each) for each in inside]}


def confidence_picture(parameters: FloatArray) -> dict[str, Any]:
    """Distribution of the confidence, over all classes."""
    return {
        "kind": "confidence",
        "labels": ConfidenceBins(CONFIDENCE_CELLS, len(parameters)).spoken_labels(),
        "masses": confidence_masses(parameters, CONFIDENCE_CELLS).tolist(),
    }


def confidence_masses(parameters: FloatArray, edges: Sequence[float]) -> FloatArray:
    """Share of predictions whose largest probability lies between edges of at least one half."""
    return np.clip(max_tails(parameters, np.array(edges)).masses(), 0.0, 1.0)


def sample_histograms(s0: FloatArray, concentration: float, seed: int) -> list[list[float]]:
    """Histograms sampled from the Dirichlet process around s0."""
    generator = generator_for(seed, "elicit")
    drawn: list[list[float]] = dirichlet_samples(concentration * s0, NUM_DRAWS, generator=generator).tolist()
    return drawn


def compute_intervals(s0: FloatArray, concentration: float) -> tuple[FloatArray, FloatArray]:
    """Intervals of the region masses in nine of ten samples: quantiles of Beta(alpha s0, alpha (1 - s0))."""
    from scipy.special import betaincinv

    low, high = (betaincinv(concentration * s0, concentration * (1 - s0), quantile) for quantile in INTERVAL)
    return np.asarray(low), np.asarray(high)
