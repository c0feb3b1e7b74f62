"""Data for the figures and the page of a study: labels, conditions, means over seeds."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selbo.report import is_percent, mean_and_error
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.studies import mean_of_all, value
from selbo_lab.run.records import CLEAN, MethodRuns, StudyComparison

Points: TypeAlias = NDArray[np.float64]

SWEEPS: Final = {"prior_std": "prior standard deviation", "concentration": "concentration α"}
"""Settings that a study may vary, with their axis labels."""


class Point(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: Mean over the runs that have a value; NaN if none has.
        error: Standard error of the mean; 0 for fewer than two runs.
        runs: Number of runs that have a value.
    """

    mean: float
    error: float
    runs: int


class Corruptions(NamedTuple):
    """The corrupted conditions of a comparison.

    Attributes:
        levels: Conditions along one axis, by level, the clean one first; empty if there is no such axis.
        kinds: Conditions of each kind of corruption.
        severities: Conditions of each severity, if kinds have several.
    """

    levels: dict[float, str]
    kinds: dict[str, list[str]]
    severities: dict[int, list[str]]


class Sweep(NamedTuple):
    """Methods that differ in one setting.

    Attributes:
        setting: Name of the setting in the recipe.
        label: Label of the axis.
        methods: Value of the setting and the method, by value.
        without: Methods that do not have the setting.
    """

    setting: str
    label: str
    methods: list[tuple[float, MethodRuns]]
    without: list[MethodRuns]


def build_titles(comparison: StudyComparison) -> dict[str, str]:
    """Titles of the methods by name, all different."""
    titles = list(comparison.titles.values())
    return {
        name: title if titles.count(title) == 1 else f"{title} ({name})" for name, title in comparison.titles.items()
    }


def over_seeds(values: Iterable[float | None]) -> Point:
    """Mean and standard error of the values that are not None.

    Example:
        >>> over_seeds([1.0, None, 2.0])
        Point(mean=1.5, error=0.5, runs=2)
    """
    found = [each for each in values if each is not None]
    if not found:
        return Point(math.nan, 0.0, 0)
    mean, error = mean_and_error(found)
    return Point(mean, error or 0.0, len(found))


def point(method: MethodRuns, metric: str, conditions: Sequence[str] = (CLEAN,), of_class: int | None = None) -> Point:
    """A metric of a method over its seeds, as the mean over conditions; a run needs a value in every condition."""
    columns = [MetricColumn(name, metric, of_class=of_class) for name in conditions]
    return over_seeds(mean_of_all(value(run, column) for column in columns) for run in method.tested)


def find_scale(metric: str) -> float:
    """Display factor of a metric."""
    return 100.0 if is_percent(metric) else 1.0


def sort_corruptions(comparison: StudyComparison) -> Corruptions:
    """Corrupted conditions, sorted into levels of one axis, or into kinds and severities.

    The name holds the kind and its severity, such as ``fog 3``.
    """
    known = {name: each.level for run in comparison.tested for name, each in run.corrupted.items()}
    levels = {level: name for name, level in known.items() if level is not None}
    kinds: dict[str, list[str]] = {}
    severities: dict[int, list[str]] = {}
    for name in (name for name, level in known.items() if level is None):
        match = re.fullmatch(r"(.+) (\d+)", name)
        kinds.setdefault(match[1] if match else name, []).append(name)
        if match:
            severities.setdefault(int(match[2]), []).append(name)
    return Corruptions(
        {0.0: CLEAN, **dict(sorted(levels.items()))} if levels else {},
        kinds,
        dict(sorted(severities.items())) if len(severities) > 1 else {},
    )


def ood_title(name: str) -> str:
    """Title of an out-of-distribution data set, from its name in a stored run."""
    for short, title in (("fashion test", "FashionMNIST"), ("mnist test", "MNIST"), ("svhn test", "SVHN")):
        name = name.replace(short, f"test images of {title}") if name.startswith(short) else name
    return name.replace(", as cifar", " in the form of CIFAR-10's")


def ood_sets(comparison: StudyComparison) -> dict[str, str]:
    """Out-of-distribution data sets with stored entropies, and their titles."""
    return {
        name: ood_title(each.name or name)
        for run in comparison.tested
        for name, each in run.ood.items()
        if each.entropy is not None and each.entropy.outside is not None
    }


def find_sweep(comparison: StudyComparison) -> Sweep | None:
    """The setting that a comparison varies: methods of one objective with at least three of its values."""
    for setting, label in SWEEPS.items():
        with_it = [m for m in comparison.methods if setting != "concentration" or m.recipe.belief]
        values = {float(getattr(method.recipe, setting)) for method in with_it}
        if (
            len(values) < 3
            or min(values) <= 0
            or len(values) < len(with_it)
            or len({m.recipe.objective for m in with_it}) > 1
        ):
            continue
        if setting == "concentration" and with_it[0].recipe.per_example:
            label = "concentration α / N"
        methods = sorted(((float(getattr(m.recipe, setting)), m) for m in with_it), key=lambda each: each[0])
        return Sweep(setting, label, methods, [m for m in comparison.methods if m not in with_it])
    return None
