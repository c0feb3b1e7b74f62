"""Class imbalance: thins out classes to given ratios, by index and reproducibly."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from selbo.checks import fraction, positive, whole
from selbo.random import generator_for
from selbo_lab.data.dataset import LabelledData


def geometric_ratios(num_classes: int, factor: float = 0.5, *, repeat_last: bool = True) -> tuple[float, ...]:
    """Ratios that fall from class to class: 1, f, f², …; the last class is as rare as the one before it, or rarer.

    Args:
        num_classes: At least 2.
        factor: Ratio of each class to the one before it, above 0 and below 1.
        repeat_last: Whether the last two classes share a ratio, as in the imbalanced CIFAR-10 of the paper.

    Returns:
        One ratio per class.

    Example:
        >>> geometric_ratios(4)
        (1.0, 0.5, 0.25, 0.25)
    """
    whole("num_classes", num_classes, at_least=2)
    fraction("factor", factor, low=0, high=1)
    powers = [factor**k for k in range(num_classes)]
    if repeat_last:
        powers[-1] = powers[-2]
    return tuple(map(float, powers))


def imbalanced_indices(labels: Tensor, ratios: Sequence[float], *, seed: int | None = None) -> Tensor:
    """Which examples stay when each class is thinned out to its ratio.

    Of class k with n examples, ``round(ratio * n)`` stay, halves to even. Without a seed these are the first ones by
    index, with one they are drawn. Applied to the labels of a test set, the same indices thin out every corrupted
    version of its images.

    Args:
        labels: Shape (N,), type int64, from 0 to K - 1.
        ratios: For each of the K classes, the share of its examples that stays; above 0 and at most 1.
        seed: Seed for the choice; None takes the first examples of each class.

    Returns:
        Indices into ``labels``, increasing, on its device.
    """
    shares = _ratios(ratios)
    if labels.ndim != 1 or labels.dtype != torch.int64:
        raise ValueError(f"`labels` must have shape (N,) and type int64, but got {tuple(labels.shape)}, {labels.dtype}")
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < len(shares)):
        raise ValueError(
            f"`labels` must lie between 0 and {len(shares) - 1}, as there are {len(shares)} ratios, "
            f"but got {int(labels.min())} to {int(labels.max())}"
        )
    kept = []
    for k, share in enumerate(shares):
        rows = (labels == k).nonzero().squeeze(1)
        count = round(share * len(rows))
        if count == 0:
            raise ValueError(
                f"`ratios` must leave an example of each class, but {share:g} of {len(rows)} of class {k} is 0"
            )
        if seed is not None:
            order = torch.randperm(len(rows), generator=generator_for(seed, "imbalance", k))
            rows = rows[order.to(rows.device)]
        kept.append(rows[:count])
    return torch.cat(kept).sort().values


def imbalanced(data: LabelledData, ratios: Sequence[float], *, seed: int | None = None) -> LabelledData:
    """Data with rarer classes: see `imbalanced_indices`.

    Args:
        data: Any set.
        ratios: For each class, the share of its examples that stays; above 0 and at most 1.
        seed: Seed for the choice; None takes the first examples of each class.

    Returns:
        The examples that stay, in their order. The name and the source say what was done.
    """
    if len(ratios) != data.num_classes:
        raise ValueError(f"`ratios` must hold {data.num_classes} numbers, one per class, but got {len(ratios)}")
    chosen = data.rows(imbalanced_indices(data.labels, ratios, seed=seed), name=f"{data.name}, imbalanced")
    which = "the first by index" if seed is None else f"drawn with seed {seed}"
    shares = ", ".join(f"{share:.4g}" for share in ratios)
    return replace(chosen, source=f"{data.source}; of each class a share of {shares} was kept, {which}")


def class_fractions(ratios: Sequence[float], balanced_sizes: Sequence[float] | None = None) -> tuple[float, ...]:
    """Share of each class in a population thinned out to these ratios, to build a belief from.

    This is prior knowledge about the population: it follows from the ratios and uses no labels. The counts of a finite
    set differ slightly, due to rounding and splitting.

    Args:
        ratios: For each class, the share of its examples that stays; above 0 and at most 1.
        balanced_sizes: Sizes of the classes before, up to a factor; None means that they were equal.

    Returns:
        One number per class; they sum to 1.

    Example:
        >>> class_fractions((1, 0.5, 0.25, 0.25))
        (0.5, 0.25, 0.125, 0.125)
    """
    shares = _ratios(ratios)
    sizes = (1.0,) * len(shares) if balanced_sizes is None else tuple(balanced_sizes)
    if len(sizes) != len(shares):
        raise ValueError(f"`balanced_sizes` must hold {len(shares)} numbers, as `ratios` does, but got {len(sizes)}")
    weights = [share * positive("balanced_sizes", size) for share, size in zip(shares, sizes, strict=True)]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def _ratios(ratios: Sequence[float]) -> tuple[float, ...]:
    shares = tuple(positive("ratios", ratio) for ratio in ratios)
    if len(shares) < 2 or max(shares) > 1:
        raise ValueError(f"`ratios` must hold at least 2 numbers, each above 0 and at most 1, but got {list(shares)}")
    return shares
