"""Source and target domain: labels come from the first, unlabelled inputs from the second.

All parts are drawn from one data set: labelled examples and unlabelled inputs from disjoint subsets of its training
part, and both test sets from its test part. The selection depends only on the data and the seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from selbo.random import generator_for
from selbo_lab.data import catalogue
from selbo_lab.data.corruptions import cifar as cifar_corruptions
from selbo_lab.data.corruptions import mnist as mnist_corruptions
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.sst import with_noise
from selbo_lab.run.corrupted_cache import kept
from selbo_lab.studies.run_spec import DataSpec

NOISE_SEED: Final = 0
CORRUPTION_SEED: Final = 0
TEST_SEED: Final = 0
"""Seeds for noise, corruptions and test examples: the same for all methods and all seeds of a run."""

LEAST_PREVALENCE: Final = 0.001
"""Smallest class fraction of a target domain that is drawn from the simplex."""

LARGEST_SAMPLE: Final = 1000
"""Number of unlabelled inputs, and of test inputs, of such a domain, if there are so many."""

SMALLEST_SPREAD: Final = 1e-3
"""Minimum standard deviation used to standardise, for features that hardly vary."""


class Places(NamedTuple):
    """Parts of the source and the target domain.

    Attributes:
        train: Labelled examples of the source domain.
        val: Validation examples of the source domain.
        test: Test examples of the source domain.
        use: Test examples of the target domain.
        unlabelled: Inputs of the target domain; their labels are stored but must not be used.
    """

    train: LabelledData
    val: LabelledData
    test: LabelledData
    use: LabelledData
    unlabelled: LabelledData


def split_places(data: DataSpec, train: LabelledData, val: LabelledData, test: LabelledData, *, seed: int) -> Places:
    """The parts of a case.

    Args:
        data: Settings of the case.
        train: The whole training part of the data set.
        val: Its validation part.
        test: Its test part.
        seed: Seed for the choice of labelled examples, unlabelled inputs and validation examples.
    """
    if data.standardised:
        train, val, test = (_standardised(each, by=train) for each in (train, val, test))
    order = torch.randperm(len(train), generator=generator_for(seed, "labelled"))
    labelled = order[draw_rows(train.labels[order], data.label_fractions, data.labels, exactly=True)]
    rest = order[~torch.isin(order, labelled)]
    if data.random_pool:
        pool = rest[random_rows(train.labels[rest], data.use_fractions, data.unlabelled, seed=seed)]
    else:
        pool = rest[draw_rows(train.labels[rest], data.use_fractions, data.unlabelled)]
    return Places(
        train=train.rows(labelled, name=f"{train.name}, {len(labelled)} labelled with seed {seed}"),
        val=_part(val, data.label_fractions, data.val_size, seed=seed),
        test=_part(test, data.label_fractions, 0, seed=TEST_SEED),
        use=_part(at_use(data, test, "test"), data.use_fractions, 0, seed=TEST_SEED),
        unlabelled=at_use(data, train, "train").rows(pool, name=f"{train.name}, {len(pool)} without labels"),
    )


def _part(data: LabelledData, fractions: Sequence[float], size: int, *, seed: int) -> LabelledData:
    order = torch.randperm(len(data), generator=generator_for(seed, "part", len(data)))
    rows = order[draw_rows(data.labels[order], fractions, size)]
    return data.rows(rows.sort().values)


# --- class fractions ---


def draw_rows(labels: Tensor, fractions: Sequence[float], size: int, *, exactly: bool = False) -> Tensor:
    """The first rows with the requested class fractions, in their order.

    Args:
        labels: Labels in random order.
        fractions: Class fractions; those of the labels if empty.
        size: Number of rows; if 0, or if there are not enough, as many as have these fractions.
        exactly: Whether fewer rows than ``size`` are an error.
    """
    if not fractions:
        most = len(labels)
        counts = None
    else:
        sizes = torch.bincount(labels, minlength=len(fractions))
        if len(sizes) > len(fractions):
            raise ValueError(f"fractions must be given for {len(sizes)} classes, but got {len(fractions)}")
        most = int(min(float(n) / share for n, share in zip(sizes.tolist(), fractions, strict=True)) + 1e-9)
        counts = round_counts(fractions, min(size or most, most))
        while any(
            count > n for count, n in zip(counts, sizes.tolist(), strict=True)
        ):  # rounded up beyond the available rows
            most -= 1
            counts = round_counts(fractions, min(size or most, most))
    if exactly and size > most:
        raise ValueError(f"`labels` must be at most {most} to have the requested class fractions, but got {size}")
    if counts is None:
        return torch.arange(min(size or most, most))
    chosen = [(labels == k).nonzero().squeeze(1)[:count] for k, count in enumerate(counts)]
    return torch.cat(chosen).sort().values


def random_rows(labels: Tensor, fractions: Sequence[float], size: int, *, seed: int) -> Tensor:
    """Rows whose classes are sampled independently with these probabilities, in their order; each row at most once.

    Args:
        labels: Labels in random order.
        fractions: Probabilities of the classes; positive.
        size: Number of rows; if 0, or if a class may not have enough rows, as many as all classes support.
        seed: Seed for the samples.
    """
    sizes = torch.bincount(labels, minlength=len(fractions))
    most = int(min(float(n) / share for n, share in zip(sizes.tolist(), fractions, strict=True)))
    draws = torch.multinomial(
        torch.tensor(fractions), min(size or most, most), replacement=True, generator=generator_for(seed, "pool")
    )
    counts = torch.bincount(draws, minlength=len(fractions)).minimum(sizes).tolist()
    chosen = [(labels == k).nonzero().squeeze(1)[:count] for k, count in enumerate(counts)]
    return torch.cat(chosen).sort().values


def uniform_prevalences(num_classes: int, count: int, *, seed: int) -> list[tuple[float, ...]]:
    """Class fractions drawn uniformly from the simplex, the protocol of QuaPy's `UPP`; at least `LEAST_PREVALENCE`."""
    draws = torch.rand(count, num_classes, generator=generator_for(seed, "prevalences"), dtype=torch.float64)
    spacings = -torch.log1p(-draws)
    found = (spacings / spacings.sum(-1, keepdim=True)).clamp(min=LEAST_PREVALENCE)
    return [tuple(each) for each in (found / found.sum(-1, keepdim=True)).tolist()]


def rows_with(labels: Tensor, fractions: Sequence[float], size: int, *, generator: torch.Generator) -> Tensor:
    """Random rows with these class fractions; with replacement where a class has too few rows.

    Args:
        labels: Labels of all rows, of every class.
        fractions: Class fractions.
        size: Number of rows.
        generator: Source of the choice.
    """
    chosen = []
    for k, count in enumerate(round_counts(fractions, size)):
        there = (labels == k).nonzero().squeeze(1)
        if count and not len(there):
            raise ValueError(f"`labels` must hold class {k} to sample it, but do not")
        if count <= len(there):
            picked = torch.randperm(len(there), generator=generator)[:count]
        else:
            picked = torch.randint(len(there), (count,), generator=generator)
        chosen.append(there[picked])
    return torch.cat(chosen)


def round_counts(fractions: Sequence[float], size: int) -> list[int]:
    """Integers in these proportions that sum to ``size``, by the largest-remainder method.

    Example:
        >>> round_counts([0.9, 0.1], 25), round_counts([0.5, 0.3, 0.2], 4)
        ([23, 2], [2, 1, 1])
    """
    exact = [size * share for share in fractions]
    counts = [int(each + 1e-9) for each in exact]
    order = sorted(range(len(exact)), key=lambda k: counts[k] - exact[k])
    for k in order[: size - sum(counts)]:
        counts[k] += 1
    return counts


# --- inputs of the target domain ---


def at_use(data: DataSpec, part: LabelledData, name: str) -> LabelledData:
    """A whole part with the inputs of the target domain; ``name`` is the name of the part."""
    if data.use_noise:
        return with_noise(part, data.use_noise, seed=NOISE_SEED)
    if not data.use_corruption:
        return part
    made = CorruptedPart(data.name, name, data.use_corruption)
    images = made.corrupted(part.inputs) if data.generated else kept(made.name, made.make)
    return part.with_inputs(images, name=f"{part.name}, {data.use_corruption}")


@dataclass(frozen=True)
class CorruptedPart:
    """A part of an image data set, corrupted by the code of selbo, for training and test images alike.

    Attributes:
        data: Name of the data set.
        part: ``train`` or ``test``.
        corruption: Name of the corruption, followed by its severity if it has one.
    """

    data: str
    part: str
    corruption: str

    @property
    def name(self) -> str:
        """A name that identifies its images."""
        return f"{self.data}-{self.part}-{self.corruption.replace(' ', '-')}-{CORRUPTION_SEED}"

    def make(self) -> Tensor:
        """Generate the images."""
        return self.corrupted(catalogue.load_set(self.data, self.part).inputs)

    def corrupted(self, images: Tensor) -> Tensor:
        """Images as they are in the target domain."""
        kind, _, severity = self.corruption.partition(" ")
        if severity:
            return cifar_corruptions.corrupt_cifar(images, kind, int(severity), seed=CORRUPTION_SEED)
        return mnist_corruptions.corrupt_mnist(images, kind, seed=CORRUPTION_SEED)


def corrupted_parts(data: DataSpec) -> list[CorruptedPart]:
    """The corrupted parts that a run of a case needs."""
    if data.generated or not data.use_corruption:
        return []
    return [CorruptedPart(data.name, part, data.use_corruption) for part in ("train", "test")]


def _standardised(data: LabelledData, *, by: LabelledData) -> LabelledData:
    """Standardise features by the mean and standard deviation of another part."""
    spread = by.inputs.std(0).clamp(min=SMALLEST_SPREAD)
    return data.with_inputs((data.inputs - by.inputs.mean(0)) / spread, name=f"{data.name}, standardised")
