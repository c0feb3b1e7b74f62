"""Parts of the results of a study that its figures and its page draw from: labels, conditions, means over seeds."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from selbo.plots import axis_of
from selbo.report import Results, is_percent, mean_and_error
from selbo_lab.report.studies import value

Array: TypeAlias = NDArray[np.float64]

CLEAN: Final = "clean"
USE: Final = "use"

LONGEST_LABEL: Final = 24
"""Characters that fit over a panel; a method with a longer title is called by its name in figures."""

SWEEPS: Final = {"prior_std": "prior standard deviation", "concentration": "concentration α"}
"""Settings that a study may go through, and what their axis says."""

Metrics = Mapping[str, float | None]


class Point(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: Over the runs that have a value; NaN if none has.
        error: Standard error of the mean; 0 for fewer than two runs, where none can be stated.
        runs: How many have a value.
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
        setting: Name in the recipe.
        label: Of the axis.
        methods: Value of the setting and the method, by value.
        without: Methods that do not have the setting.
    """

    setting: str
    label: str
    methods: list[tuple[float, Results]]
    without: list[Results]


def titles_of(comparison: Results) -> dict[str, str]:
    """Titles of the methods by name, all different."""
    titles = [method["title"] for method in comparison["methods"]]
    return {
        method["name"]: method["title"]
        if titles.count(method["title"]) == 1
        else f"{method['title']} ({method['name']})"
        for method in comparison["methods"]
    }


def labels_of(comparison: Results) -> dict[str, str]:
    """What figures call the methods, by name: the title, or the name where the title is long."""
    titles = titles_of(comparison)
    short = {name: title if len(title) <= LONGEST_LABEL else name for name, title in titles.items()}
    return short if len(set(short.values())) == len(short) else titles


IGNORE_BELIEFS: Final = frozenset({"elbo", "label_smoothing", "evidential"})
"""Objectives without a summary: a belief in their recipe, which all methods of a study share, was not told to them."""


def told_belief(run: Results) -> Results | None:
    """The belief that a run was trained with, or None."""
    objective = run.get("spec", {}).get("recipe", {}).get("objective")
    told: Results | None = (run.get("histogram") or {}).get("belief")
    return None if objective in IGNORE_BELIEFS else told


def finished(method: Results) -> list[Results]:
    """Runs of a method that were trained and tested."""
    return [run for run in method["runs"] if run is not None and run["status"] == "finished" and run.get("conditions")]


def over_seeds(values: Iterable[float | None]) -> Point:
    """Mean and standard error of the values that there are.

    Example:
        >>> over_seeds([1.0, None, 2.0])
        Point(mean=1.5, error=0.5, runs=2)
    """
    found = [each for each in values if each is not None]
    if not found:
        return Point(math.nan, 0.0, 0)
    mean, error = mean_and_error(found)
    return Point(mean, error or 0.0, len(found))


def point(method: Results, metric: str, conditions: Sequence[str] = (CLEAN,)) -> Point:
    """A metric of a method over its seeds, as the mean over conditions; a run that lacks one of them has no value."""
    return over_seeds(_mean([value(run, f"{name}.{metric}") for name in conditions]) for run in finished(method))


def _mean(values: Sequence[float | None]) -> float | None:
    found = [each for each in values if each is not None]
    return math.fsum(found) / len(found) if found and len(found) == len(values) else None


def scale_of(metric: str) -> float:
    """By what a metric is multiplied to be shown."""
    return 100.0 if is_percent(metric) else 1.0


def corruptions_of(comparison: Results) -> Corruptions:
    """Corrupted conditions, sorted into levels of one axis, or into kinds and severities.

    A kind and its severity stand in the name, such as ``fog 3``.
    """
    runs = [run for method in comparison["methods"] for run in finished(method)]
    known = {
        name: entry.get("level")
        for run in runs
        for name, entry in run["conditions"].items()
        if name not in {CLEAN, USE}
    }
    levels = {float(level): name for name, level in known.items() if level is not None}
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


def ood_sets(comparison: Results) -> dict[str, str]:
    """Sets of inputs from elsewhere for which entropies were kept, and their titles."""
    runs = [run for method in comparison["methods"] for run in finished(method)]
    return {
        name: str(entry.get("name") or name)
        for run in runs
        for name, entry in run["ood"].items()
        if (entry.get("entropy") or {}).get("out") is not None
    }


def sweep_of(comparison: Results) -> Sweep | None:
    """The setting that a comparison goes through: methods of one objective with at least three of its values."""
    for setting, label in SWEEPS.items():
        with_it = [m for m in comparison["methods"] if setting != "concentration" or m["recipe"].get("belief")]
        values = {float(method["recipe"][setting]) for method in with_it}
        if (
            len(values) < 3
            or min(values) <= 0
            or len(values) < len(with_it)
            or len({m["recipe"]["objective"] for m in with_it}) > 1
        ):
            continue
        if setting == "concentration" and with_it[0]["recipe"].get("per_example"):
            label = "concentration α / N"
        methods = sorted(((float(m["recipe"][setting]), m) for m in with_it), key=lambda each: each[0])
        return Sweep(setting, label, methods, [m for m in comparison["methods"] if m not in with_it])
    return None


def class_names_in(regions: Sequence[str]) -> list[str]:
    """Names of the classes from the labels of shells, which stand in the same order in every shell.

    Example:
        >>> class_names_in(["cat > .9", "dog > .9", "cat .5–.9", "dog .5–.9", "centre"])
        ['cat', 'dog']
    """
    match = re.fullmatch(r"(.+) ([<>≤] \S+|\S+–\S+)", regions[0])
    if match is None:
        return [""]
    shell = f" {match[2]}"
    return [label.removesuffix(shell) for label in regions if label.endswith(shell)]


def as_comparison(comparison: Results, *, ood: str | None = None) -> dict[str, Any]:
    """A comparison of a study as `selbo.report.comparison.checked` wants it, without beliefs, which methods differ in.

    A method without a finished run stays, with a run that has no value, so that the others keep their colours.

    Args:
        comparison: Of a study.
        ood: Which set of inputs from elsewhere; the first if not given.
    """
    labels, sets = labels_of(comparison), ood_sets(comparison)
    ood = ood if ood is not None else next(iter(sets), None)
    runs: list[dict[str, Any]] = []
    for method in comparison["methods"]:
        name = labels[method["name"]]
        found = [
            _plain_run(run, name, i, ood)
            for i, run in enumerate(method["runs"])
            if run is not None and run["status"] == "finished" and run.get("conditions")
        ]
        runs += found or [
            {"method": name, "seed": 0, "conditions": {CLEAN: {"level": 0.0, "metrics": {}}}, "seconds": 0.0}
        ]
    tested = [run for method in comparison["methods"] for run in finished(method)]
    sizes = next((run["sizes"] for run in tested), {"train": 1, "test": 1})
    classes = next((len(run["conditions"][CLEAN]["recall"]) for run in tested), 2)
    made = next((run["made_by"] for run in tested), {"selbo": "–", "python": "–", "torch": "–", "machine": "–"})
    return {
        "title": comparison["title"],
        "description": f"{comparison['title']}, track {comparison['track']}",
        "task": {
            "num_train": sizes["train"],
            "num_test": sizes["test"],
            "num_classes": classes,
            "class_names": [f"class {k}" for k in range(classes)],
            "class_counts": [0] * classes,
        },
        "belief": None,
        "methods": list(labels.values()),
        "names": {label: name for name, label in labels.items()},
        "seeds": list(range(max(len(method["runs"]) for method in comparison["methods"]))),
        "clean": CLEAN,
        "corruption": "noise level" if corruptions_of(comparison).levels else None,
        "ood_name": sets.get(ood or ""),
        "runs": runs,
        "made_by": {
            "command": "selbo reproduce",
            "seconds": math.fsum(run["seconds"] for run in runs),
            **{key: str(made[key]) for key in ("selbo", "python", "torch", "machine")},
        },
    }


def _plain_run(run: Results, method: str, seed: int, ood: str | None) -> dict[str, Any]:
    foreign = run["ood"].get(ood) if ood else None
    return {
        "method": method,
        "seed": seed,
        "conditions": {
            name: {"level": 0.0 if name == CLEAN else entry.get("level"), "metrics": entry["metrics"]}
            for name, entry in run["conditions"].items()
        },
        "histogram": None,
        "reliability": run.get("reliability"),
        "entropy": foreign and foreign.get("entropy"),
        "ood": {
            key: value
            for key, value in (foreign or {}).items()
            if value is None or (isinstance(value, int | float) and math.isfinite(value))
        },
        "seconds": float(run["seconds"]["all"]),
    }


def interval_edges(regions: Sequence[str]) -> np.ndarray | None:
    """Edges of regions that are intervals of the score, from their labels; None if they are not.

    Example:
        >>> interval_edges(["≤ .3", ".3–.9", "> .9"])
        array([0. , 0.3, 0.9, 1. ])
    """
    axis, ends = axis_of(regions, class_names_in(regions))
    if ends or not axis.ordered:
        return None
    return np.array([float(label or 0) for label in axis.labels])
