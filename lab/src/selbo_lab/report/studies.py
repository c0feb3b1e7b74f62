"""Statistics of a study: means over seeds with what is missing, paired differences, and the paper's values beside ours.

A study is plain data: comparisons, each with methods, each with one run a seed. A column is named by what was tested
and by a metric: ``clean.nll``, ``corrupted.nll`` (the mean over all corrupted conditions of a run), ``corrupted ≤
0.5.nll`` (over those up to this level of noise), ``fog 3.nll`` (one condition), ``use.nll`` (at the place of use),
``ood.svhn.auroc``. No run is dropped: a value from fewer runs than there are seeds says why.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from selbo.report import Difference, Value, around, difference_of, direction, marked, mean_and_error, t_quantile
from selbo_lab.report.target_domain import has_use, one_place

Plain = Mapping[str, Any]

CLEAN: Final = ("nll", "accuracy", "auroc", "ece")
CORRUPTED: Final = ("nll", "accuracy", "ece")
FOREIGN: Final = ("entropy_in", "entropy_out", "entropy_difference", "auroc")
RARE: Final = ("f1_micro", "f1_macro")
AT_USE: Final = ("nll", "accuracy", "ece", "f1_macro")
"""Metrics of the tables: clean test set, corrupted ones, inputs from elsewhere, rare classes, a place of use."""

RECALL: Final = "recall "
"""What the metrics of single classes begin with; the number of the class follows."""

CORRUPTED_PLACE: Final = "corrupted"
UP_TO: Final = f"{CORRUPTED_PLACE} ≤ "
"""Places that are means: over all corrupted conditions, and over those up to a level, which follows."""

EVIDENTIAL: Final = "evidential"
"""The objective that is counted by itself beside the paper; see `overlaps`."""

NORMAL_QUANTILE: Final = 1.96
"""Half width of a 95 % interval in standard errors, for the paper's values, whose number of runs is not certain."""

ROUNDING: Final = 0.0005
"""Half of the last printed digit of the paper's tables; a standard error printed as 0.000 is not 0."""


class Cell(NamedTuple):
    """A metric of a method over the seeds; where `note` is not None it must be shown with the mean.

    Attributes:
        mean: Over the runs that have a value; None if none has.
        error: Standard error of the mean (ddof 1); None for fewer than two runs.
        runs: How many runs have a value.
        seeds: How many runs there should be.
        diverged: Runs that did not come to an end.
        missing: Runs that are not there.
        undefined: Runs that ended, but have no finite value here.
        best: Whether no other method has a better mean.
        close: Whether it is not the best, but its mean lies within one standard error of the best, that of the best.
    """

    mean: float | None
    error: float | None
    runs: int
    seeds: int
    diverged: int = 0
    missing: int = 0
    undefined: int = 0
    best: bool = False
    close: bool = False

    @property
    def value(self) -> Value:
        """The same without the counts of what is missing."""
        return Value(self.mean, self.error, self.runs, self.best, self.close)

    @property
    def complete(self) -> bool:
        """Whether every seed has a value."""
        return self.runs == self.seeds

    @property
    def note(self) -> str | None:
        """Why runs are not in the mean, such as ``2 of 5 diverged``; None if all are."""
        counts = {"diverged": self.diverged, "missing": self.missing, "without a finite value": self.undefined}
        return ", ".join(f"{count} of {self.seeds} {why}" for why, count in counts.items() if count) or None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, from Student's t; None for fewer than two runs."""
        if self.mean is None or self.error is None:
            return None
        return around(self.mean, t_quantile(self.runs - 1) * self.error)


class AgainstPaper(NamedTuple):
    """Our value beside the paper's.

    Attributes:
        difference: Ours less the paper's; None if they cannot be compared.
        overlap: Whether the 95 % intervals overlap; None if that cannot be said.
        reason: Why something is None.
    """

    difference: float | None
    overlap: bool | None
    reason: str | None = None


# --- columns and values ---


def columns_of(comparison: Plain) -> list[str]:
    """Columns of the tables that any run of a comparison has, in the order in which they are shown."""
    rare = RARE if comparison.get("classes") else ()  # there accuracy does not tell all
    foreign = list(dict.fromkeys(name for run in _ended(comparison) for name in run.get("ood") or {}))
    wanted = [
        *(f"clean.{metric}" for metric in (*CLEAN, *rare)),
        *(f"{place}.{metric}" for place in corrupted_places(comparison) for metric in (*CORRUPTED, *rare)),
        *(f"ood.{name}.{metric}" for name in foreign for metric in FOREIGN),
    ]
    if has_use(comparison):
        places = ("use",) if one_place(comparison) else ("use", "clean")
        wanted = [f"{place}.{metric}" for place in places for metric in AT_USE]
    return [column for column in wanted if measured(comparison, column)]


def all_columns(comparison: Plain) -> list[str]:
    """Those of the tables first, then every other metric that any run has."""
    metrics = dict.fromkeys(
        name
        for run in _ended(comparison)
        for condition in run.get("conditions", {}).values()
        for name in condition["metrics"]
    )
    places = ("clean", "use", *corrupted_places(comparison))
    others = [f"{place}.{metric}" for place in places for metric in metrics if metric != "num_examples"]
    foreign = dict.fromkeys(
        f"ood.{name}.{metric}"
        for run in _ended(comparison)
        for name, found in (run.get("ood") or {}).items()
        for metric, number in found.items()
        if isinstance(number, int | float)
    )
    shown = columns_of(comparison)
    return [*shown, *(each for each in (*others, *foreign) if each not in shown and measured(comparison, each))]


def noise_levels(comparison: Plain) -> list[float]:
    """Levels of noise that any run was tested at, without the clean test set."""
    found = {
        entry.get("level")
        for run in _ended(comparison)
        for name, entry in run.get("conditions", {}).items()
        if name not in {"clean", "use"}
    }
    return sorted(level for level in found if level is not None)


def corrupted_places(comparison: Plain) -> tuple[str, ...]:
    """Means over corrupted conditions that tables show: over all, and before it up to the noise that the paper shows.

    The paper's range, ``paper_noise``, stands by itself only where more was measured.
    """
    levels, top = noise_levels(comparison), comparison.get("paper_noise") or 0.0
    return (f"{UP_TO}{top:g}", CORRUPTED_PLACE) if levels and 0 < top < levels[-1] else (CORRUPTED_PLACE,)


def whole_range(column: str) -> str:
    """The column of the mean over all corrupted conditions for one up to a level; any other as it is.

    Example:
        >>> whole_range("corrupted ≤ 0.5.nll"), whole_range("clean.nll")
        ('corrupted.nll', 'clean.nll')
    """
    place, metric = split(column)
    return f"{CORRUPTED_PLACE}.{metric}" if place.startswith(UP_TO) else column


def split(column: str) -> tuple[str, str]:
    """What was tested, and the metric.

    Example:
        >>> split("ood.svhn.auroc"), split("noise 0.1.nll")
        (('ood.svhn', 'auroc'), ('noise 0.1', 'nll'))
    """
    place, dot, metric = column.rpartition(".")
    if not (place and dot and metric):
        raise ValueError(f"`column` must be a place and a metric with a dot between, but got {column!r}")
    return place, metric


def value(run: Plain | None, column: str, scaled: bool = False) -> float | None:
    """A number of one run; None if the run is missing, diverged, or has no finite number there.

    Args:
        run: Of a method; None for a run that is not there.
        column: Such as ``clean.nll``; a mean over corrupted conditions needs a finite number in every one.
        scaled: Whether after temperature scaling.
    """
    place, metric = split(column)
    if run is None or run.get("status") != "finished":
        return None
    conditions = run.get("conditions") or {}
    part = "scaled" if scaled else "metrics"
    if place.startswith("ood."):
        found = (run.get("ood") or {}).get(place.removeprefix("ood.")) or {}
        return _finite((found.get("scaled") or {} if scaled else found).get(metric))
    if place != CORRUPTED_PLACE and not place.startswith(UP_TO):
        return _measure(conditions.get(place) or {}, part, metric)
    corrupted = [each for name, each in conditions.items() if name not in {"clean", "use"}]
    if place != CORRUPTED_PLACE:
        top = float(place.removeprefix(UP_TO))
        corrupted = [each for each in corrupted if each.get("level") is not None and each["level"] <= top]
    numbers = [_measure(each, part, metric) for each in corrupted]
    known = [number for number in numbers if number is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(numbers) else None


def _measure(condition: Plain, part: str, metric: str) -> float | None:
    if metric.startswith(RECALL):  # the same with and without temperature scaling
        k, found = int(metric.removeprefix(RECALL)), condition.get("recall") or []
        return _finite(found[k]) if k < len(found) else None
    return _finite((condition.get(part) or {}).get(metric))


def recall(k: int) -> str:
    """The metric of one class, as it stands in the name of a column.

    Example:
        >>> split(f"clean.{recall(3)}")
        ('clean', 'recall 3')
    """
    return f"{RECALL}{k}"


def _finite(number: Any) -> float | None:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        return None
    return float(number)


def _ended(comparison: Plain) -> list[Plain]:
    return [run for method in comparison["methods"] for run in method["runs"] if run and run["status"] == "finished"]


def measured(comparison: Plain, column: str) -> bool:
    """Whether any run has a finite number there."""
    return any(value(run, column) is not None for run in _ended(comparison))


# --- over seeds ---


def cell(method: Plain, column: str, scaled: bool = False) -> Cell:
    """A column of one method over the seeds, without a mark."""
    return _cell(method["runs"], lambda run: value(run, column, scaled=scaled))


def cells(comparison: Plain, column: str, scaled: bool = False) -> dict[str, Cell]:
    """A column of all methods, by name, the best marked.

    A method with a run that is missing or diverged cannot be the best: a mean over the runs that went well is not
    comparable.
    """
    return mean_cells(comparison, [column], scaled)


def mean_cells(comparison: Plain, columns: Sequence[str], scaled: bool = False) -> dict[str, Cell]:
    """The mean of some columns of one metric, of all methods, the best marked; a run needs a value in every one."""

    def mean(run: Plain) -> float | None:
        numbers = [value(run, column, scaled=scaled) for column in columns]
        known = [number for number in numbers if number is not None]
        return math.fsum(known) / len(known) if known and len(known) == len(numbers) else None

    found = {method["name"]: _cell(method["runs"], mean) for method in comparison["methods"]}
    seeds = max((each.seeds for each in found.values()), default=0)
    values = {name: each.value for name, each in found.items()}
    judged = marked(values, sign=direction(split(columns[0])[1]), num_seeds=seeds)
    return {name: each._replace(best=judged[name].best, close=judged[name].close) for name, each in found.items()}


def timings(comparison: Plain) -> dict[str, Cell]:
    """Seconds of training a run, by method; of one that was cut off and went on, all of them together."""

    def seconds(run: Plain) -> float | None:
        took = _finite(run["seconds"].get("training")) if run["status"] == "finished" else None
        return None if took is None else took + run["seconds"].get("earlier", 0.0)

    return {method["name"]: _cell(method["runs"], seconds) for method in comparison["methods"]}


def _cell(runs: Sequence[Plain | None], number: Callable[[Plain], float | None]) -> Cell:
    there = [run for run in runs if run is not None]
    diverged = sum(run["status"] != "finished" for run in there)
    known = [found for run in there if (found := number(run)) is not None]
    mean, error = mean_and_error(known) if known else (None, None)
    undefined = len(there) - diverged - len(known)
    return Cell(mean, error, len(known), len(runs), diverged, len(runs) - len(there), undefined)


def paired(
    method: Plain, reference: Plain, column: str, scaled: bool = False, *, reference_scaled: bool | None = None
) -> Difference:
    """A method less the reference, seed by seed.

    Args:
        method: Whose runs are in the order of the seeds.
        reference: With the same seeds.
        column: Such as ``clean.nll``.
        scaled: Whether after temperature scaling, of both.
        reference_scaled: Whether of the reference, if that is not the same.
    """
    other = scaled if reference_scaled is None else reference_scaled
    both = [
        (value(ours, column, scaled=scaled), value(theirs, column, scaled=other))
        for ours, theirs in zip(method["runs"], reference["runs"], strict=True)
    ]
    return difference_of([a - b for a, b in both if a is not None and b is not None], seeds=len(both))


# --- beside the paper ---


def published(comparison: Plain, method: str, column: str) -> tuple[float, float] | None:
    """Mean and standard error that the paper reports; None if it does not."""
    found = comparison.get("paper", {}).get(method, {}).get("values", {}).get(column)
    return None if found is None else (float(found[0]), float(found[1]))


def not_comparable(comparison: Plain, method: str, column: str) -> str | None:
    """Why a number of the paper is not what ours measures; None if it is."""
    reasons: Plain = comparison.get("paper", {}).get(method, {}).get("not_comparable", {})
    found = reasons.get("all") or reasons.get(column.partition(".")[0])
    return None if found is None else str(found)


def against_paper(ours: Cell, paper: tuple[float, float], reason: str | None = None) -> AgainstPaper:
    """Our value less the paper's, and whether the 95 % intervals overlap.

    Ours is from Student's t with one degree of freedom less than runs. The paper's is its mean ± 1.96 times its
    published standard error, each taken half of the last printed digit further, because they are rounded.

    Args:
        ours: A cell of the same column.
        paper: Mean and standard error.
        reason: Why they cannot be compared, if so; see `not_comparable`.
    """
    mean, error = paper
    if reason is not None:
        return AgainstPaper(None, None, reason)
    if ours.mean is None:
        return AgainstPaper(None, None, ours.note)
    difference = ours.mean - mean
    if not ours.complete:
        return AgainstPaper(difference, None, ours.note)
    if ours.interval is None:
        return AgainstPaper(difference, None, "one run has no interval")
    low, high = around(mean, NORMAL_QUANTILE * (error + ROUNDING) + ROUNDING)
    return AgainstPaper(difference, ours.interval[0] <= high and low <= ours.interval[1])


def overlaps(comparison: Plain, *, evidential: bool = False, paper: Plain | None = None) -> list[bool | None]:
    """For each value of the paper whether the intervals overlap; None where that cannot be said.

    Evidential learning is left out, or counted by itself: some of its runs die, and an interval over such runs is so
    wide that it overlaps with nearly anything.

    Args:
        comparison: Of a study.
        evidential: Whether to count evidential learning alone, in the place of all others.
        paper: Values of the paper by method, if not those of the comparison.
    """
    told = comparison if paper is None else {**comparison, "paper": paper}
    found = []
    for method in comparison["methods"]:
        if is_evidential(method) == evidential:
            for column in (told.get("paper") or {}).get(method["name"], {}).get("values", {}):
                theirs = published(told, method["name"], column)
                assert theirs is not None
                barred = not_comparable(told, method["name"], column)
                found.append(against_paper(cell(method, column), theirs, barred).overlap)
    return found


def is_evidential(method: Plain) -> bool:
    """Whether a method is evidential learning."""
    return bool(method.get("recipe", {}).get("objective") == EVIDENTIAL)


def one_class_runs(method: Plain) -> int:
    """How many runs of a method call every clean test input the same class, and so end at chance accuracy."""
    recalls = [run["conditions"]["clean"].get("recall") or [] for run in method["runs"] if run and "conditions" in run]
    return sum(sum(bool(each) for each in recall) == 1 for recall in recalls)


# --- what was tried ---


class Tuned(NamedTuple):
    """Validation NLL of the chosen settings, the lowest and the highest of all tried, and how many failed."""

    chosen: float | None
    low: float | None
    high: float | None
    failed: int


def tuned(method: Plain) -> Tuned:
    """What the tuning runs of a method found; a run without a finite NLL is one that failed."""
    nll = [_finite(each["val_nll"]) for each in method["tried"]]
    known = [each for each in nll if each is not None]
    chosen = [found for each, found in zip(method["tried"], nll, strict=True) if is_chosen(method, each)]
    low, high = min(known, default=None), max(known, default=None)
    return Tuned(chosen[0] if chosen else None, low, high, len(nll) - len(known))


def is_chosen(method: Plain, tried: Plain) -> bool:
    """Whether this was chosen among what was tried."""
    return all(tried[name] == setting for name, setting in method["chosen"].items())
