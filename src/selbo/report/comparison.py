"""Results of a comparison: what they must hold, and means over seeds with their standard errors.

Results are a plain dictionary that survives JSON; `checked` says in one sentence what is wrong with it. Tables, figures
and the page are made from it alone, so that drawing again never trains again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from selbo import _checks
from selbo.plots.histograms import masses

Results = Mapping[str, Any]

LOWER_IS_BETTER: Final = frozenset({"nll", "ece", "brier", "fpr95"})
HIGHER_IS_BETTER: Final = frozenset(
    {"accuracy", "auroc", "auprc", "f1", "f1_macro", "f1_micro", "entropy_difference", "balanced_accuracy", "recall"}
)
"""Metrics with a direction; a metric in neither has no best value."""

HEADLINE: Final = ("nll", "accuracy", "ece")
HEADLINE_NOISY: Final = ("nll", "ece")
HEADLINE_OOD: Final = ("auroc",)
"""Columns of the short table: on the clean test set, at the highest noise level, out of distribution."""


class Value(NamedTuple):
    """One cell of a table.

    Attributes:
        mean: Over the runs that have the metric; None if none has.
        error: Standard error of the mean, from the deviations between runs (ddof 1); None for fewer than two runs.
        runs: How many runs have the metric.
        best: Whether no other method has a better mean.
        close: Whether it is not the best, but its mean lies within one standard error of the best, that of the best.
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
        metric: Its name in the results.
        values: One a method, in the order of the methods.
    """

    group: str
    metric: str
    values: dict[str, Value]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error of the mean; None in place of the error if there is only one value.

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


def summarise(results: Results, condition: str, metrics: Sequence[str] = HEADLINE) -> list[Row]:
    """Mean and standard error of each method under one condition, with the best ones marked.

    A method takes part in the choice of the best only if every seed has a value: a mean over the runs that went well
    is not comparable. Where there is one method only, nothing is marked.

    Args:
        results: What a comparison found; see `checked`.
        condition: A key of ``conditions``, such as the name of the clean test set.
        metrics: Which ones.

    Returns:
        One row a method, in the order of ``methods``.
    """
    known = [name for name, _ in conditions(checked(results))]
    _checks.one_of("condition", condition, known)

    def value(run: Results, metric: str) -> float | None:
        found = run["conditions"].get(condition, {"metrics": {}})["metrics"].get(metric)
        return None if found is None else float(found)

    return _rows(results, metrics, value)


def summarise_ood(results: Results, metrics: Sequence[str] = HEADLINE_OOD) -> list[Row]:
    """The same for the metrics of inputs from elsewhere, which stand under ``ood`` in a run."""

    def value(run: Results, metric: str) -> float | None:
        found = (run.get("ood") or {}).get(metric)
        return None if found is None else float(found)

    return _rows(checked(results), metrics, value)


def _rows(results: Results, metrics: Sequence[str], value: Callable[[Results, str], float | None]) -> list[Row]:
    columns = {metric: _column(results, metric, value) for metric in metrics}
    return [Row(method, {m: columns[m][method] for m in metrics}) for method in results["methods"]]


def _column(results: Results, metric: str, value: Callable[[Results, str], float | None]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for method in results["methods"]:
        numbers = [v for run in runs_of(results, method) if (v := value(run, metric)) is not None]
        mean, error = mean_and_error(numbers) if numbers else (None, None)
        found[method] = Value(mean, error, len(numbers))
    return marked(found, sign=direction(metric), num_seeds=len(results["seeds"]))


def family(metric: str) -> str:
    """A metric without the class that it is of.

    Example:
        >>> family("recall 3"), family("nll")
        ('recall', 'nll')
    """
    return metric.partition(" ")[0]


def direction(metric: str) -> int:
    """1 if larger is better, -1 if smaller is, 0 if neither."""
    return int(family(metric) in HIGHER_IS_BETTER) - int(family(metric) in LOWER_IS_BETTER)


def marked(values: dict[str, Value], *, sign: int, num_seeds: int) -> dict[str, Value]:
    """The same values, the best of them and those within its standard error marked; none that lacks a run."""
    means = {name: v.mean for name, v in values.items() if v.mean is not None and v.runs == num_seeds}
    if sign == 0 or len(values) < 2 or not means:
        return values
    best = max(means.values(), key=lambda mean: sign * mean)
    reach = max(values[name].error or 0.0 for name, mean in means.items() if mean == best)
    return {
        name: v._replace(best=means[name] == best, close=0 < abs(means[name] - best) <= reach) if name in means else v
        for name, v in values.items()
    }


def headline(results: Results) -> list[Column]:
    """The columns of the short table, those without any value left out."""
    rows = {"clean": summarise(results, results["clean"], HEADLINE), "ood": summarise_ood(results, HEADLINE_OOD)}
    if noisy := noisiest(results):
        rows["noisy"] = summarise(results, noisy[0], HEADLINE_NOISY)
    columns = [
        Column(group, metric, {row.method: row.values[metric] for row in rows[group]})
        for group in ("clean", "noisy", "ood")
        for metric in (rows[group][0].values if group in rows else ())
    ]
    return [column for column in columns if any(v.runs for v in column.values.values())]


# --- parts of the results ---


def runs_of(results: Results, method: str) -> list[Results]:
    """The runs of one method, in the order of the seeds."""
    runs = [run for run in results["runs"] if run["method"] == method]
    return sorted(runs, key=lambda run: results["seeds"].index(run["seed"]))


def conditions(results: Results) -> list[tuple[str, float | None]]:
    """Names and levels of all conditions: the clean one first, then those with a level, by level, then the others."""
    levels = {name: entry.get("level") for run in results["runs"] for name, entry in run["conditions"].items()}
    clean = results["clean"]

    def place(name: str) -> tuple[bool, float]:
        level = levels[name]
        return name != clean, math.inf if level is None else level

    return [(name, levels[name]) for name in sorted(levels, key=place)]


def noise_levels(results: Results) -> list[tuple[str, float]]:
    """Conditions along the corruption axis, by level; the clean one is at level 0 if it states none.

    Empty if there is no such axis, or nothing on it but the clean condition.
    """
    if results.get("corruption") is None:
        return []
    clean = results["clean"]
    leveled = [
        (name, 0.0 if level is None else level) for name, level in conditions(results) if _leveled(name, level, clean)
    ]
    return sorted(leveled, key=lambda each: each[1]) if len(leveled) > 1 else []


def _leveled(name: str, level: float | None, clean: str) -> bool:
    return level is not None or name == clean


def noisiest(results: Results) -> tuple[str, float] | None:
    """Name and level of the condition furthest along the corruption axis."""
    levels = noise_levels(results)
    return levels[-1] if levels else None


def clean_name(results: Results) -> str:
    """What the test set is called: clean only where there are corrupted ones beside it."""
    return "clean test set" if noise_levels(results) else "test set"


def metrics_of(results: Results, condition: str) -> list[str]:
    """Metrics that any run has under a condition, in the order in which they appear."""
    found = (run["conditions"].get(condition, {"metrics": {}})["metrics"] for run in results["runs"])
    return list(dict.fromkeys(name for metrics in found for name, value in metrics.items() if value is not None))


# --- what results must hold ---


def checked(results: Results) -> Results:
    """The same results, if they hold what a report needs; otherwise a ValueError that names the key.

    Keys beyond those are allowed, and ``None`` stands for what was not measured.
    """
    _mapping("results", results)
    for key in ("title", "description", "clean"):
        _text(key, _need(results, key))
    for key in ("takeaway", "conclusion", "focus", "corruption", "ood_name"):
        if results.get(key) is not None:
            _text(key, results[key])
    methods = _names("methods", _need(results, "methods"))
    seeds = [_checks.whole("seeds", seed, at_least=0) for seed in _list("seeds", _need(results, "seeds"))]
    if not methods or not seeds or len(set(methods)) < len(methods) or len(set(seeds)) < len(seeds):
        raise ValueError(
            f"`methods` and `seeds` must each hold different entries, at least one, but got {methods}, {seeds}"
        )
    _check_task(_mapping("task", _need(results, "task")))
    made_by = _mapping("made_by", _need(results, "made_by"))
    for key in ("command", "selbo", "python", "torch", "machine"):
        _text(f"made_by.{key}", _need(made_by, key, "made_by"))
    _checks.non_negative("made_by.seconds", _need(made_by, "seconds", "made_by"))
    num_regions = _check_belief(results["belief"]) if results.get("belief") is not None else None
    runs = _list("runs", _need(results, "runs"))
    for i, run in enumerate(runs):
        _check_run(f"runs[{i}]", _mapping(f"runs[{i}]", run), results=results, num_regions=num_regions)
    pairs = [(run["method"], run["seed"]) for run in runs]
    if repeated := [pair for pair in pairs if pairs.count(pair) > 1]:
        raise ValueError(f"`runs` must hold one run a method and seed, but got several of {repeated[0]}")
    if missing := [method for method in methods if method not in {method for method, _ in pairs}]:
        raise ValueError(f"`runs` must hold at least one run of every method, but got none of {missing[0]!r}")
    _check_agreement(runs)
    return results


def _check_task(task: Results) -> None:
    for key in ("num_train", "num_test"):
        _checks.whole(f"task.{key}", _need(task, key, "task"), at_least=1)
    classes = _checks.whole("task.num_classes", _need(task, "num_classes", "task"), at_least=2)
    for key, entries in (
        ("class_names", _names("task.class_names", _need(task, "class_names", "task"))),
        ("class_counts", _list("task.class_counts", _need(task, "class_counts", "task"))),
    ):
        if len(entries) != classes:
            raise ValueError(f"`task.{key}` must hold {classes} entries, one a class, but got {len(entries)}")
    for count in task["class_counts"]:
        _checks.whole("task.class_counts", count, at_least=0)


def _check_belief(belief: Any) -> int:
    _mapping("belief", belief)
    for key in ("words", "partition"):
        _text(f"belief.{key}", _need(belief, key, "belief"))
    regions = _names("belief.regions", _need(belief, "regions", "belief"))
    masses("belief.s0", _list("belief.s0", _need(belief, "s0", "belief")), num_regions=len(regions))
    _checks.positive("belief.concentration", _need(belief, "concentration", "belief"))
    return len(regions)


def _check_run(name: str, run: Results, *, results: Results, num_regions: int | None) -> None:
    for key, known in (("method", results["methods"]), ("seed", results["seeds"])):
        if _need(run, key, name) not in known:
            raise ValueError(f"`{name}.{key}` must be one of {list(known)}, but got {run[key]!r}")
    measured = _mapping(f"{name}.conditions", _need(run, "conditions", name))
    _need(measured, results["clean"], f"{name}.conditions")
    for key, entry in measured.items():
        where = f"{name}.conditions.{key}"
        if _mapping(where, entry).get("level") is not None:
            _finite(f"{where}.level", entry["level"])
        _check_metrics(f"{where}.metrics", _need(entry, "metrics", where))
    if run.get("ood") is not None:
        _check_metrics(f"{name}.ood", run["ood"])
    _checks.non_negative(f"{name}.seconds", _need(run, "seconds", name))
    if run.get("histogram") is not None:
        if num_regions is None:
            raise ValueError(f"`{name}.histogram` must be None where `belief` is None, but got {run['histogram']!r}")
        masses(f"{name}.histogram", _list(f"{name}.histogram", run["histogram"]), num_regions=num_regions)
    if run.get("per_class") is not None or run.get("confusion") is not None:
        _check_classes(name, run, classes=results["task"]["class_names"])
    if run.get("reliability") is not None:
        _check_reliability(f"{name}.reliability", _mapping(f"{name}.reliability", run["reliability"]))
    if run.get("entropy") is not None:
        _check_entropy(f"{name}.entropy", _mapping(f"{name}.entropy", run["entropy"]))


def _check_metrics(name: str, metrics: Any) -> None:
    for key, value in _mapping(name, metrics).items():
        if value is not None:
            _finite(f"{name}.{key}", value)


def _check_classes(name: str, run: Results, *, classes: Sequence[str]) -> None:
    """Scores by class are there for every class, and the confusion speaks of these classes."""
    scores = _list(f"{name}.per_class", _need(run, "per_class", name))
    found = [_need(_mapping(f"{name}.per_class", each), "class", f"{name}.per_class") for each in scores]
    if found != list(classes):
        raise ValueError(f"`{name}.per_class` must hold one entry per class, in their order, but has {found}")
    for each in scores:
        for key in ("rows", "predicted", "correct"):
            _checks.whole(f"{name}.per_class.{key}", _need(each, key, f"{name}.per_class"), at_least=0)
        for key in ("recall", "precision"):
            if _need(each, key, f"{name}.per_class") is not None:
                ends = _list(f"{name}.per_class.{key}_interval", _need(each, f"{key}_interval", f"{name}.per_class"))
                low, high = (_finite(f"{name}.per_class.{key}_interval", end) for end in ends)
                if not 0 <= low <= _finite(f"{name}.per_class.{key}", each[key]) <= high <= 1:
                    raise ValueError(
                        f"`{name}.per_class.{key}` must lie in its interval, between 0 and 1, but got {each}"
                    )
    for pair in _list(f"{name}.confusion", _need(run, "confusion", name)):
        for key in ("true", "predicted"):
            if _need(_mapping(f"{name}.confusion", pair), key, f"{name}.confusion") not in classes:
                raise ValueError(f"`{name}.confusion.{key}` must be one of {list(classes)}, but got {pair[key]!r}")
        _checks.whole(f"{name}.confusion.rows", _need(pair, "rows", f"{name}.confusion"), at_least=1)


def _check_reliability(name: str, bins: Results) -> None:
    counts = _counts(f"{name}.count", _need(bins, "count", name))
    for key in ("confidence", "accuracy"):
        values = _list(f"{name}.{key}", _need(bins, key, name))
        if len(values) != len(counts):
            raise ValueError(f"`{name}.{key}` must hold {len(counts)} entries, one a bin, but got {len(values)}")
        for value, count in zip(values, counts, strict=True):
            if count and not 0 <= _finite(f"{name}.{key}", value) <= 1:
                raise ValueError(f"`{name}.{key}` must lie between 0 and 1, but got {value!r}")


def _check_entropy(name: str, entropy: Results) -> None:
    edges = [_finite(f"{name}.edges", edge) for edge in _list(f"{name}.edges", _need(entropy, "edges", name))]
    if len(edges) < 2 or any(b <= a for a, b in pairwise(edges)):
        raise ValueError(f"`{name}.edges` must be at least two increasing numbers, but got {edges}")
    for key in ("in", "out"):
        if key == "in" or entropy.get(key) is not None:
            counts = _counts(f"{name}.{key}", _need(entropy, key, name))
            if len(counts) != len(edges) - 1 or not sum(counts):
                raise ValueError(
                    f"`{name}.{key}` must hold {len(edges) - 1} counts, not all of them 0, but got {counts}"
                )


def _check_agreement(runs: Sequence[Results]) -> None:
    """Levels of conditions, bins and edges are the same in all runs, or means over seeds would mix different things."""
    levels: dict[str, float | None] = {}
    for i, run in enumerate(runs):
        for name, entry in run["conditions"].items():
            if levels.setdefault(name, entry.get("level")) != entry.get("level"):
                raise ValueError(
                    f"`runs[{i}].conditions.{name}.level` must be the same in all runs, {levels[name]!r}, "
                    f"but got {entry.get('level')!r}"
                )
    for key, part in (("entropy", "edges"), ("reliability", "count")):
        given = [(i, run[key][part]) for i, run in enumerate(runs) if run.get(key) is not None]
        for i, values in given:
            same = len(values) == len(given[0][1]) if part == "count" else list(values) == list(given[0][1])
            if not same:
                raise ValueError(
                    f"`runs[{i}].{key}.{part}` must have the same bins as in the other runs, but has others"
                )


def _need(holder: Results, key: str, name: str = "") -> Any:
    if key not in holder:
        raise ValueError(
            f"`{f'{name}.' if name else ''}{key}` must be given, but the keys are {sorted(map(str, holder))}"
        )
    return holder[key]


def _mapping(name: str, value: Any) -> Results:
    if not isinstance(value, Mapping):
        raise ValueError(f"`{name}` must be a dictionary, but got {value!r}")
    return value


def _list(name: str, value: Any) -> Sequence[Any]:
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise ValueError(f"`{name}` must be a list, but got {value!r}")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"`{name}` must be a text that is not empty, but got {value!r}")
    return value


def _names(name: str, values: Any) -> list[str]:
    return [_text(name, value) for value in _list(name, values)]


def _finite(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"`{name}` must be a finite number, but got {value!r}")
    return float(value)


def _counts(name: str, values: Any) -> list[int]:
    return [_checks.whole(name, value, at_least=0) for value in _list(name, values)]
