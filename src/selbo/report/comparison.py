"""Means and standard errors over the seeds of a comparison, and its conditions in order."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from selbo import _checks
from selbo.results import Comparison, Metrics, Outcome

LOWER_IS_BETTER: Final = frozenset({"nll", "ece", "brier", "fpr95", "aurc", "group_error"})
HIGHER_IS_BETTER: Final = frozenset(
    {"accuracy", "auroc", "auprc", "f1", "f1_macro", "f1_micro", "entropy_difference", "balanced_accuracy", "recall"}
)
"""Metrics with a direction; other metrics have no best value."""

HEADLINE: Final = ("nll", "accuracy", "ece")
HEADLINE_NOISY: Final = ("nll", "ece")
HEADLINE_OOD: Final = ("auroc",)
"""Columns of the short table: on the clean test set, at the highest noise level, out of distribution."""


class Value(NamedTuple):
    """One cell of a table.

    Attributes:
        mean: Mean over the runs that have the metric; None if none has.
        error: Standard error of the mean, from the deviations between runs (ddof 1); None for fewer than two runs.
        runs: Number of runs that have the metric.
        best: Whether no other method has a better mean.
        close: Whether it is not the best, but within one standard error of the best mean.
    """

    mean: float | None
    error: float | None
    runs: int
    best: bool = False
    close: bool = False


class Row(NamedTuple):
    """One method: its name, and a value for each metric."""

    method: str
    values: dict[str, Value]


class Column(NamedTuple):
    """One metric under one condition, for all methods.

    Attributes:
        group: ``clean``, ``noisy`` or ``ood``.
        metric: Name of the metric in the results.
        values: One value per method, in the order of the methods.
    """

    group: str
    metric: str
    values: dict[str, Value]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error of the mean; the error is None if there is only one value.

    Example:
        >>> mean_and_error([1.0, 2.0, 6.0])
        (3.0, 1.5275)
        >>> mean_and_error([0.25])
        (0.25, None)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def summarise(results: Comparison, condition: str, metrics: Sequence[str] = HEADLINE) -> list[Row]:
    """Mean and standard error of each method under one condition, with the best ones marked.

    Only methods with a value for every seed can be the best: a mean over the successful runs is not comparable. With a
    single method nothing is marked.

    Args:
        results: Results of a comparison.
        condition: A key of ``conditions``, such as the name of the clean test set.
        metrics: Metrics to summarise.

    Returns:
        One row per method, in the order of ``methods``.
    """
    _checks.one_of("condition", condition, [name for name, _ in conditions(results)])
    return _rows(results, metrics, lambda run, metric: run.value(condition, metric))


def summarise_ood(results: Comparison, metrics: Sequence[str] = HEADLINE_OOD) -> list[Row]:
    """Mean and standard error of each method for the metrics of out-of-distribution detection."""
    return _rows(results, metrics, lambda run, metric: (run.ood or {}).get(metric))


def _rows(results: Comparison, metrics: Sequence[str], value: Callable[[Outcome, str], float | None]) -> list[Row]:
    columns = {metric: _column(results, metric, value) for metric in metrics}
    return [Row(method, {m: columns[m][method] for m in metrics}) for method in results.methods]


def _column(results: Comparison, metric: str, value: Callable[[Outcome, str], float | None]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for method in results.methods:
        numbers = [v for run in results.of_method(method) if (v := value(run, metric)) is not None]
        mean, error = mean_and_error(numbers) if numbers else (None, None)
        found[method] = Value(mean, error, len(numbers))
    return marked(found, sign=direction(metric), num_seeds=len(results.seeds))


def direction(metric: str) -> int:
    """1 if larger values are better, -1 if smaller ones are, 0 if neither."""
    return int(metric in HIGHER_IS_BETTER) - int(metric in LOWER_IS_BETTER)


def marked(values: dict[str, Value], *, sign: int, num_seeds: int) -> dict[str, Value]:
    """Mark the best value and those within its standard error; values with missing runs are not marked."""
    means = {name: v.mean for name, v in values.items() if v.mean is not None and v.runs == num_seeds}
    if sign == 0 or len(values) < 2 or not means:
        return values
    best = max(means.values(), key=lambda mean: sign * mean)
    reach = max(values[name].error or 0.0 for name, mean in means.items() if mean == best)
    return {
        name: v._replace(best=means[name] == best, close=0 < abs(means[name] - best) <= reach) if name in means else v
        for name, v in values.items()
    }


def headline(results: Comparison) -> list[Column]:
    """The columns of the short table, without empty ones."""
    rows = {"clean": summarise(results, results.clean, HEADLINE), "ood": summarise_ood(results, HEADLINE_OOD)}
    if noisy := noisiest(results):
        rows["noisy"] = summarise(results, noisy[0], HEADLINE_NOISY)
    columns = [
        Column(group, metric, {row.method: row.values[metric] for row in rows[group]})
        for group in ("clean", "noisy", "ood")
        for metric in (rows[group][0].values if group in rows else ())
    ]
    return [column for column in columns if any(v.runs for v in column.values.values())]


# --- parts of the results ---


def conditions(results: Comparison) -> list[tuple[str, float | None]]:
    """Names and levels of all conditions: the clean one first, then those with a level, by level, then the others."""
    levels = {name: each.level for run in results.runs for name, each in run.conditions.items()}

    def place(name: str) -> tuple[bool, float]:
        level = levels[name]
        return name != results.clean, math.inf if level is None else level

    return [(name, levels[name]) for name in sorted(levels, key=place)]


def noise_levels(results: Comparison) -> list[tuple[str, float]]:
    """Conditions along the corruption axis, by level; the clean one has level 0 by default.

    Empty if there is no such axis, or only the clean condition.
    """
    if results.corruption is None:
        return []
    every = [(name, 0.0 if name == results.clean and level is None else level) for name, level in conditions(results)]
    leveled = [(name, level) for name, level in every if level is not None]
    return sorted(leveled, key=lambda each: each[1]) if len(leveled) > 1 else []


def noisiest(results: Comparison) -> tuple[str, float] | None:
    """Name and level of the condition furthest along the corruption axis."""
    levels = noise_levels(results)
    return levels[-1] if levels else None


def clean_name(results: Comparison) -> str:
    """Name of the test set: clean only if there are corrupted ones."""
    return "clean test set" if noise_levels(results) else "test set"


def metric_names(results: Comparison, condition: str) -> list[str]:
    """Metrics that any run has under a condition, in the order in which they appear."""
    return _named(run.conditions[condition].metrics for run in results.runs if condition in run.conditions)


def ood_metrics(results: Comparison) -> list[str]:
    """Metrics of out-of-distribution detection that any run has."""
    return _named(run.ood or {} for run in results.runs)


def _named(found: Iterable[Metrics]) -> list[str]:
    return list(dict.fromkeys(name for metrics in found for name, value in metrics.items() if value is not None))
