"""The data of a run: its parts, corrupted test sets one at a time, and out-of-distribution inputs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final, NamedTuple

import torch
from torch import Tensor

from selbo.random import generator_for
from selbo_lab.data import catalogue, cifar, mnist, sst, store
from selbo_lab.data.cifar_files import CIFAR10_C
from selbo_lab.data.corruptions import cifar as cifar_corruptions
from selbo_lab.data.corruptions import mnist as mnist_corruptions
from selbo_lab.data.dataset import LabelledData
from selbo_lab.data.imbalance import imbalanced_indices
from selbo_lab.run.corrupted_cache import Making, kept
from selbo_lab.run.domains import CORRUPTION_SEED, NOISE_SEED, corrupted_parts, split_places
from selbo_lab.studies.run_spec import DataSpec, EvaluationSpec

SMOKE_TRAIN: Final = 64
SMOKE_TEST: Final = 32
SHAPES: Final = {
    "sst": (768,),
    "sst-zero-shot": (2,),
    "mnist35": (1, 28, 28),
    "cifar10": (3, 32, 32),
    "cifar10-im": (3, 32, 32),
    "digits": (64,),
    "breast-cancer": (30,),
    "adult": (8,),
    "magic": (8,),
    "fashion-train": (1, 28, 28),
}
"""Input shapes of the data sets that studies train on."""

TEN_CLASSES: Final = ("cifar10", "cifar10-im", "digits", "fashion-train")
"""Data sets with ten classes; the others have two."""

SPLIT_BY_SEED: Final = ("digits", "breast-cancer", *catalogue.TABLES)
"""Data sets without published parts, which are split again for every seed if there is a target domain."""

WITHOUT_VALIDATION: Final = ("fashion-train", *catalogue.TABLES)
"""Data sets without a validation part, for which some training rows are used if there is a target domain."""

VAL_SHARE: Final = 0.2
"""Share of these rows."""

MADE_BY_AN_ENCODER: Final = ("sst", "sst-zero-shot")
"""Data sets that an encoder made from raw files, which are not needed any more."""


class Condition(NamedTuple):
    """A corrupted test set: its name, the level of its corruption if there is one, and its examples."""

    name: str
    level: float | None
    data: LabelledData


@dataclass(frozen=True)
class RunTask:
    """The data of a run, on the CPU.

    Attributes:
        train: Training data.
        val: Validation data.
        test: Test data of the source domain.
        corrupted: Corrupted test sets, generated one at a time.
        foreign: Out-of-distribution inputs, by name.
        use: Test data of the target domain, if there is one.
        unlabelled: Unlabelled inputs of the target domain.
    """

    train: LabelledData
    val: LabelledData
    test: LabelledData
    corrupted: Callable[[], Iterator[Condition]]
    foreign: dict[str, LabelledData]
    use: LabelledData | None = None
    unlabelled: LabelledData | None = None


def build_task(data: DataSpec, evaluation: EvaluationSpec, *, seed: int) -> RunTask:
    """The data of a run. Random choices depend on the data and the seed, never on the method."""
    if data.labels:
        return _two_places(data, seed)
    drawn = data.generated or data.name == "mnist35"  # the parts of other sets are the same for all seeds
    parts = {part: _part(data, part, seed if drawn else 0) for part in ("train", "val", "test")}
    names = [*evaluation.ood, *(name for name in evaluation.ood_if_present if data.generated or _present(name))]
    foreign = {name: _foreign(name, data) for name in names} if evaluation.test else {}
    return RunTask(**parts, corrupted=lambda: corrupted_test_sets(data, evaluation, parts["test"]), foreign=foreign)


def require_files(data: DataSpec, evaluation: EvaluationSpec) -> None:
    """Check that the raw files a run needs are in the store.

    Raises:
        MissingData: If a file is missing; the message names the command to get it.
    """
    if data.generated:
        return
    names = [data.name, *(evaluation.ood if evaluation.test else ())]
    if data.name in MADE_BY_AN_ENCODER:  # what an encoder made suffices
        _part(data, "test", 0)
        del names[0]
    for source in dict.fromkeys(source for name in names for source in catalogue.SETS[name].sources):
        if not store.present(source):
            raise store.MissingData(store.what_to_type(source))


@lru_cache(maxsize=8)
def _two_places(data: DataSpec, seed: int) -> RunTask:
    whole = DataSpec(data.name, encoder=data.encoder, generated=data.generated, normalised=data.normalised)
    split = seed if data.name in SPLIT_BY_SEED or data.generated else 0
    parts = split_places(data, *(_part(whole, part, split) for part in ("train", "val", "test")), seed=seed)
    return RunTask(**parts._asdict(), corrupted=lambda: iter(()), foreign={})


@lru_cache(maxsize=8)
def _part(data: DataSpec, part: str, seed: int) -> LabelledData:
    return _as_asked(data, _read_part(data, part, seed))


def _as_asked(data: DataSpec, found: LabelledData) -> LabelledData:
    """A data set, without pixel normalisation if the run says so."""
    return found if data.normalised else replace(found, normalisation=None)


def _read_part(data: DataSpec, part: str, seed: int) -> LabelledData:
    if data.generated:
        return generated(data.name, part, seed=seed if part == "train" else 0)
    if data.name == "mnist35":
        return mnist.mnist35(part, train_size=data.train_size or None, seed=seed)
    if data.name == "sst":
        return sst.sst(part, embedding=data.encoder or None)
    if data.name in WITHOUT_VALIDATION and part != "test":
        split = {"seed": seed} if data.name in catalogue.TABLES else {}
        rows = catalogue.load_set(data.name, "train", **split)
        cut = round(VAL_SHARE * len(rows))
        return rows.rows(range(cut) if part == "val" else range(cut, len(rows)), name=f"{rows.name}, {part}")
    if data.name in SPLIT_BY_SEED:
        return catalogue.load_set(data.name, part, seed=seed)
    return catalogue.load_set(data.name, part)


def _present(name: str) -> bool:
    return catalogue.SETS[name].present


@lru_cache(maxsize=4)
def _foreign(name: str, data: DataSpec) -> LabelledData:
    return _as_asked(data, _read_foreign(name, data))


def _read_foreign(name: str, data: DataSpec) -> LabelledData:
    if data.generated:
        return generated(data.name, "foreign", seed=0)
    if name in {"mnist", "fashion"} and data.name.startswith("cifar10"):
        return cifar.as_cifar(catalogue.load_set(name, "test"))
    return catalogue.load_set(name, "test")


@dataclass(frozen=True)
class GeneratedSet:
    """A corrupted set generated by selbo.

    Attributes:
        suite: ``mnist-c`` or ``cifar10-c``; the imbalanced suite uses rows of the latter.
        corruption: Name of the corruption.
        severity: Severity, for the corruptions of CIFAR-10.
    """

    suite: str
    corruption: str
    severity: int = 0

    @property
    def name(self) -> str:
        """A name that identifies its images."""
        if self.suite == "mnist-c":
            return f"mnist35-c-{self.corruption}-{CORRUPTION_SEED}"
        return f"cifar10-c-{self.corruption}-{self.severity}-{CORRUPTION_SEED}"

    def make(self) -> Tensor:
        """Generate the images."""
        if self.suite == "mnist-c":
            return mnist.mnist35_c(self.corruption, seed=CORRUPTION_SEED, origin="generated").inputs
        return cifar.cifar10_c(self.corruption, self.severity, seed=CORRUPTION_SEED, origin="generated").inputs

    def images(self) -> Tensor:
        """The images from the cache, generated if missing."""
        return kept(self.name, self.make)


def generated_sets(data: DataSpec, evaluation: EvaluationSpec) -> Sequence[Making]:
    """The corrupted image sets that a run has to generate, without official ones; some may be cached."""
    if data.labels:
        return corrupted_parts(data)
    if data.generated or not evaluation.test:
        return []
    if evaluation.suite == "mnist-c" and not store.present(mnist.MNIST_C):
        return [GeneratedSet("mnist-c", name) for name in evaluation.corruptions or mnist_corruptions.MNIST_CORRUPTIONS]
    if evaluation.suite in {"cifar10-c", "cifar10-im-c"} and not store.present(CIFAR10_C):
        return [
            GeneratedSet("cifar10-c", name, severity)
            for name in evaluation.corruptions or cifar_corruptions.CIFAR_CORRUPTIONS
            for severity in evaluation.severities or cifar_corruptions.SEVERITIES
        ]
    return []


def corrupted_test_sets(data: DataSpec, evaluation: EvaluationSpec, test: LabelledData) -> Iterator[Condition]:
    """The corrupted test sets of a suite; none if the run does not use test data."""
    if not evaluation.test or not evaluation.suite:
        return
    if evaluation.suite == "noise":
        for level in evaluation.levels:
            yield Condition(f"noise {level:g}", level, sst.with_noise(test, level, seed=NOISE_SEED))
    elif evaluation.suite == "mnist-c":
        for name in evaluation.corruptions or mnist_corruptions.MNIST_CORRUPTIONS:
            yield Condition(name, None, _corrupted_mnist(data, name, test))
    else:
        for name in evaluation.corruptions or cifar_corruptions.CIFAR_CORRUPTIONS:
            for severity in evaluation.severities or cifar_corruptions.SEVERITIES:
                yield Condition(f"{name} {severity}", None, _corrupted_cifar(data, name, severity, test))


def _corrupted_mnist(data: DataSpec, name: str, test: LabelledData) -> LabelledData:
    if data.generated:
        return _corrupted_trial(test, name, 0)
    if store.present(mnist.MNIST_C):
        return _as_asked(data, mnist.mnist35_c(name, origin="official"))
    made = GeneratedSet("mnist-c", name).images()
    return test.with_inputs(made, name=f"{test.name}, {name}", source=f"{test.source}; {name} generated by selbo")


def _corrupted_cifar(data: DataSpec, name: str, severity: int, test: LabelledData) -> LabelledData:
    if data.generated:
        return _corrupted_trial(test, name, severity)
    rare = data.name == "cifar10-im"
    if store.present(CIFAR10_C):
        return _as_asked(data, (cifar.cifar10_im_c if rare else cifar.cifar10_c)(name, severity, origin="official"))
    made = GeneratedSet("cifar10-c", name, severity).images()
    rows = _rare_rows() if rare else slice(None)
    where = f"{name} {severity}"
    return test.with_inputs(
        made[rows], name=f"{test.name}, {where}", source=f"{test.source}; {where} generated by selbo"
    )


@cache
def _rare_rows() -> Tensor:
    """Rows of CIFAR-10's test part in its imbalanced variant."""
    return imbalanced_indices(catalogue.load_set("cifar10", "test").labels, cifar.IMBALANCE)


@lru_cache(maxsize=32)
def _corrupted_trial(test: LabelledData, name: str, severity: int) -> LabelledData:
    if severity:
        changed = cifar_corruptions.corrupt_cifar(test.inputs, name, severity, seed=CORRUPTION_SEED)
    else:
        changed = mnist_corruptions.corrupt_mnist(test.inputs, name, seed=CORRUPTION_SEED)
    return test.with_inputs(changed, name=f"{test.name}, {name} {severity or ''}".rstrip())


def generated(name: str, part: str, *, seed: int) -> LabelledData:
    """Tiny random data with the shape of a data set; the classes are barely separable."""
    shape = SHAPES[name]
    num_classes = 10 if name in TEN_CLASSES else 2
    count = SMOKE_TRAIN if part == "train" else SMOKE_TEST
    generator = generator_for(seed, "generated", name, part)
    labels = torch.arange(count) % num_classes
    centres = torch.rand((num_classes, *shape), generator=generator_for(0, "generated", name))
    values = (0.5 * centres[labels] + 0.5 * torch.rand((count, *shape), generator=generator)).clamp(0, 1)
    if part == "foreign":
        values = 1 - values
    inputs = values if len(shape) == 1 else (255 * values).to(torch.uint8)
    return LabelledData(
        name=f"generated data in the shape of {name}, {part}",
        inputs=inputs,
        labels=labels,
        class_names=tuple(str(k) for k in range(num_classes)),
        source="random numbers, for a trial of the machinery",
        licence="none needed",
    )
