"""SST-2 as embedded sentences, one vector per sentence, with or without noise."""

import os

import torch

from selbo.checks import non_negative, one_of
from selbo.random import generator_for
from selbo_lab.data import embeddings
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.sentences import SENTIMENTS, SST_LICENCE, check_counts
from selbo_lab.data.splits import PARTS


def sst(part: str, *, embedding: str | None = None, noise: float = 0.0, seed: int = 0) -> LabelledData:
    """Embedded sentences of SST-2.

    Args:
        part: "train" (6920), "val" (872) or "test" (1821).
        embedding: Name of the encoder, or of the file, if the store holds embeddings by several.
        noise: Weight of the noise, from 0 to 1: see `with_noise`.
        seed: Seed for the noise.

    Returns:
        Features (N, D) of type float32; D is 768 for the usual encoders.
    """
    one_of("part", part, PARTS)
    chosen = embeddings.choose(embeddings.list_embeddings(), embedding)
    vectors, labels = embeddings.read_embeddings(chosen.path)[part]
    check_counts(labels, part, os.fspath(chosen.path))
    data = LabelledData(
        name=f"sst {part}",
        inputs=vectors,
        labels=labels,
        class_names=SENTIMENTS,
        source=f"SST-2, sentences embedded in {chosen.dimension} dimensions by {chosen.encoder}",
        licence=SST_LICENCE,
    )
    return with_noise(data, noise, seed=seed)


def with_noise(data: LabelledData, weight: float, *, seed: int) -> LabelledData:
    r"""Features mixed with noise: $(1 - g) e + g n$, where $e$ are the features, $g$ the weight, $n$ standard normal.

    The noise depends on the seed and the name of the data, not on the weight, so that curves over $g$ are smooth. The
    variance is not preserved: from $v$ it becomes $(1 - g)^2 v + g^2$.

    Args:
        data: Features (N, D).
        weight: From 0, which leaves the data as they are, to 1.
        seed: Seed for the noise.
    """
    if not 0 <= non_negative("noise", weight) <= 1:
        raise ValueError(f"`noise` must be a number from 0 to 1, but got {weight!r}")
    if weight == 0:
        return data
    if not data.inputs.is_floating_point():
        raise ValueError(f"`data` must be a floating-point tensor, but got dtype {data.inputs.dtype}")
    drawn = torch.randn(data.inputs.shape, generator=generator_for(seed, "noise", data.name), dtype=torch.float32)
    mixed = (1 - weight) * data.inputs + weight * drawn.to(data.inputs)
    return data.with_inputs(
        mixed,
        name=f"{data.name}, noise {weight:g} with seed {seed}",
        source=f"{data.source}; normal noise mixed in with weight {weight:g}",
    )
