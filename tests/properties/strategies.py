"""Any partition, any belief, any batch of predictions, for Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

import selbo

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
SPACES = ("logit", "probability")


@st.composite
def increasing(draw: st.DrawFn, low: float, high: float, *, gap: float = 0.0) -> list[float]:
    """Up to five numbers strictly between two bounds; neighbours, and the bounds, are at least `gap` apart."""
    open_ends = {"exclude_min": True, "exclude_max": True}
    some = draw(st.lists(st.floats(low + gap, high - gap, **open_ends), min_size=1, max_size=5, unique=True))
    kept: list[float] = []
    for value in sorted(some):
        if not kept or value - kept[-1] > gap:
            kept.append(value)
    return kept


SLOPE_FACTORS = st.none() | st.floats(0.1, 1e4)


@st.composite
def score_bins(draw: st.DrawFn, *, gap: float = 0.0) -> selbo.ScoreBins:
    space = draw(st.sampled_from(SPACES))
    return selbo.ScoreBins(draw(increasing(0, 1, gap=gap)), space=space, slope_factor=draw(SLOPE_FACTORS))


@st.composite
def corner_shells(draw: st.DrawFn, *, gap: float = 0.0) -> selbo.CornerShells:
    classes, space = draw(st.integers(2, 6)), draw(st.sampled_from(SPACES))
    return selbo.CornerShells(classes, draw(increasing(0.5, 1, gap=gap)), space=space, slope_factor=draw(SLOPE_FACTORS))


@st.composite
def class_regions(draw: st.DrawFn, *, gap: float = 0.0) -> selbo.ClassRegions:
    return selbo.ClassRegions(draw(st.integers(2, 6)), temperature=draw(st.floats(0.01, 100)))


@st.composite
def confidence_bins(draw: st.DrawFn, *, gap: float = 0.0) -> selbo.ConfidenceBins:
    """With a `gap`, edges of at least one half: below it, some masses are integrals that may be refused."""
    classes, space = draw(st.integers(2, 6)), draw(st.sampled_from(SPACES))
    edges = draw(increasing(0.5 if gap else 1 / classes, 1, gap=gap))
    return selbo.ConfidenceBins(edges, classes, space=space, slope_factor=draw(SLOPE_FACTORS))


def partitions(*, gap: float = 0.0) -> st.SearchStrategy[selbo.Partition]:
    """Any partition; with a `gap` no region is narrower."""
    kinds = (score_bins, corner_shells, class_regions, confidence_bins)
    return st.one_of(*[kind(gap=gap) for kind in kinds])


@st.composite
def log_probs(
    draw: st.DrawFn,
    num_classes: int,
    *,
    dtypes: Sequence[torch.dtype] = DTYPES,
    scale: float = 300.0,
    samples: bool = True,
    impossible: bool = True,
) -> Tensor:
    """Predictions from undecided to certain, (S, B, K) or (B, K); some classes may have probability 0."""
    shape = (*draw(st.sampled_from([(), (1,), (3,)]) if samples else st.just(())), draw(st.integers(1, 8)), num_classes)
    width = draw(st.sampled_from([0.1, 3.0, scale]))
    logits = torch.from_numpy(draw(arrays(np.float64, shape, elements=st.floats(-1, 1)))) * width
    if impossible and draw(st.booleans()):
        closed = torch.from_numpy(draw(arrays(np.bool_, shape)))
        logits = logits.masked_fill(closed & (logits < logits.amax(-1, keepdim=True)), -torch.inf)
    return logits.log_softmax(-1).to(draw(st.sampled_from(dtypes)))


@st.composite
def simplex(draw: st.DrawFn, size: int, *, smallest: float = 1e-3) -> list[float]:
    """Positive numbers that sum to one."""
    parts = draw(st.lists(st.floats(smallest, 1.0), min_size=size, max_size=size))
    total = sum(parts)
    return [part / total for part in parts]


@st.composite
def beliefs(draw: st.DrawFn, partition: selbo.Partition) -> selbo.Belief:
    """Any belief about a partition, with moderate parameters."""
    classes = partition.num_classes
    parameters = st.floats(0.05, 20)
    choices = [
        st.just(selbo.Uniform()),
        st.builds(selbo.Dirichlet, st.lists(parameters, min_size=classes, max_size=classes)),
        st.builds(selbo.Masses, simplex(partition.num_regions), uncertainty=st.sampled_from([0.0, 0.05])),
        st.builds(selbo.Empirical, log_probs(classes, dtypes=(torch.float64,)), smoothing=st.floats(0.01, 10)),
    ]
    if classes == 2:
        choices.append(st.builds(selbo.Beta, parameters, parameters))
        choices.append(st.builds(selbo.expect, st.floats(0.6, 0.97), simplex(2, smallest=0.2)))
    return draw(st.one_of(*choices))
