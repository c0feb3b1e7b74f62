"""Statistics of a study: means over seeds with what is missing, paired differences, and the paper's values beside ours.

No run is dropped: a value from fewer runs than there are seeds says why.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from selbo.report import Difference, Value, around, difference_of, direction, marked, mean_and_error, t_quantile
from selbo_lab.report.columns import CORRUPTED, Column
from selbo_lab.run.records import CLEAN, USE, MethodRuns, Run, RunMeasurement, StudyComparison, Tried
from selbo_lab.studies.paper import PaperValues

CLEAN_METRICS: Final = ("nll", "accuracy", "auroc", "ece")
CORRUPTED_METRICS: Final = ("nll", "accuracy", "ece")
FOREIGN: Final = ("entropy_in", "entropy_out", "entropy_difference", "auroc")
RARE: Final = ("f1_micro", "f1_macro")
AT_USE: Final = ("nll", "accuracy", "ece", "f1_macro")
"""Metrics of the tables: clean test set, corrupted ones, inputs from elsewhere, rare classes, a place of use."""

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


def columns_of(comparison: StudyComparison) -> list[Column]:
    """Columns of the tables that any run of a comparison has, in the order in which they are shown."""
    rare = RARE if comparison.classes else ()  # there accuracy does not tell all
    foreign = dict.fromkeys(name for run in _ended(comparison) for name in run.ood)
    wanted = [
        *(Column(CLEAN, metric) for metric in (*CLEAN_METRICS, *rare)),
        *(Column(CORRUPTED, m, up_to=top) for top in noise_ranges(comparison) for m in (*CORRUPTED_METRICS, *rare)),
        *(Column(name, metric, ood=True) for name in foreign for metric in FOREIGN),
    ]
    if comparison.has_target_domain:
        places = (USE,) if comparison.one_domain else (USE, CLEAN)
        wanted = [Column(place, metric) for place in places for metric in AT_USE]
    return [column for column in wanted if measured(comparison, column)]


def all_columns(comparison: StudyComparison) -> list[Column]:
    """Those of the tables first, then every other metric that any run has."""
    ended = _ended(comparison)
    metrics = dict.fromkeys(name for run in ended for each in run.conditions.values() for name in each.metrics)
    places = [Column(CLEAN, ""), Column(USE, ""), *(Column(CORRUPTED, "", up_to=t) for t in noise_ranges(comparison))]
    others = [replace(place, metric=metric) for place in places for metric in metrics if metric != "num_examples"]
    foreign = dict.fromkeys(
        Column(name, metric, ood=True)
        for run in ended
        for name, found in run.ood.items()
        for metric, number in found.metrics.items()
        if number is not None
    )
    shown = columns_of(comparison)
    return [*shown, *(each for each in (*others, *foreign) if each not in shown and measured(comparison, each))]


def noise_levels(comparison: StudyComparison) -> list[float]:
    """Levels of noise that any run was tested at, without the clean test set."""
    found = {each.level for run in _ended(comparison) for each in run.corrupted.values()}
    return sorted(level for level in found if level is not None)


def noise_ranges(comparison: StudyComparison) -> tuple[float | None, ...]:
    """Ranges of noise that tables show means over: all of it, None, and before it up to that which the paper shows.

    The paper's range, ``paper_noise``, stands by itself only where more was measured.
    """
    levels, top = noise_levels(comparison), comparison.paper_noise
    return (top, None) if levels and 0 < top < levels[-1] else (None,)


def value(run: Run | None, column: Column, scaled: bool = False) -> float | None:
    """A number of one run; None if the run is missing, diverged, or has no number there.

    Args:
        run: Of a method; None for a run that is not there.
        column: A mean over corrupted conditions needs a number in every one.
        scaled: Whether after temperature scaling.
    """
    if run is None or not run.finished:
        return None
    if column.ood:
        found = run.ood.get(column.place)
        return None if found is None else ((found.scaled if scaled else found.metrics) or {}).get(column.metric)
    if column.place != CORRUPTED:
        condition = run.conditions.get(column.place)
        return None if condition is None else _measure(condition, column, scaled)
    conditions = list(run.corrupted.values())
    if (top := column.up_to) is not None:
        conditions = [each for each in conditions if each.level is not None and each.level <= top]
    return mean_of_all(_measure(each, column, scaled) for each in conditions)


def _measure(condition: RunMeasurement, column: Column, scaled: bool) -> float | None:
    if column.of_class is None:
        return condition.value(column.metric, scaled=scaled)
    recall = condition.recall or ()  # the same with and without temperature scaling
    return recall[column.of_class] if column.of_class < len(recall) else None


def mean_of_all(numbers: Iterable[float | None]) -> float | None:
    """The mean; None if there are no numbers, or one is missing."""
    listed = list(numbers)
    known = [number for number in listed if number is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(listed) else None


def _ended(comparison: StudyComparison) -> list[Run]:
    return [run for run in comparison.there if run.finished]


def measured(comparison: StudyComparison, column: Column) -> bool:
    """Whether any run has a number there."""
    return any(value(run, column) is not None for run in _ended(comparison))


# --- over seeds ---


def cell(method: MethodRuns, column: Column, scaled: bool = False) -> Cell:
    """A column of one method over the seeds, without a mark."""
    return _cell(method.runs, lambda run: value(run, column, scaled=scaled))


def cells(comparison: StudyComparison, column: Column, scaled: bool = False) -> dict[str, Cell]:
    """A column of all methods, by name, the best marked.

    A method with a run that is missing or diverged cannot be the best: a mean over the runs that went well is not
    comparable.
    """
    return mean_cells(comparison, [column], scaled)


def mean_cells(comparison: StudyComparison, columns: Sequence[Column], scaled: bool = False) -> dict[str, Cell]:
    """The mean of some columns of one metric, of all methods, the best marked; a run needs a value in every one."""

    def mean(run: Run) -> float | None:
        return mean_of_all(value(run, column, scaled=scaled) for column in columns)

    found = {method.name: _cell(method.runs, mean) for method in comparison.methods}
    seeds = max((each.seeds for each in found.values()), default=0)
    values = {name: each.value for name, each in found.items()}
    judged = marked(values, sign=direction(columns[0].metric), num_seeds=seeds)
    return {name: each._replace(best=judged[name].best, close=judged[name].close) for name, each in found.items()}


def timings(comparison: StudyComparison) -> dict[str, Cell]:
    """Seconds of training a run, by method; of one that was cut off and went on, all of them together."""
    return {method.name: _cell(method.runs, lambda run: run.training_seconds) for method in comparison.methods}


def _cell(runs: Sequence[Run | None], number: Callable[[Run], float | None]) -> Cell:
    there = [run for run in runs if run is not None]
    diverged = sum(not run.finished for run in there)
    known = [found for run in there if (found := number(run)) is not None]
    mean, error = mean_and_error(known) if known else (None, None)
    undefined = len(there) - diverged - len(known)
    return Cell(mean, error, len(known), len(runs), diverged, len(runs) - len(there), undefined)


def paired(
    method: MethodRuns,
    reference: MethodRuns,
    column: Column,
    scaled: bool = False,
    *,
    reference_scaled: bool | None = None,
) -> Difference:
    """A method less the reference, seed by seed.

    Args:
        method: Whose runs are in the order of the seeds.
        reference: With the same seeds.
        column: Which.
        scaled: Whether after temperature scaling, of both.
        reference_scaled: Whether of the reference, if that is not the same.
    """
    other = scaled if reference_scaled is None else reference_scaled
    both = [
        (value(ours, column, scaled=scaled), value(theirs, column, scaled=other))
        for ours, theirs in zip(method.runs, reference.runs, strict=True)
    ]
    return difference_of([a - b for a, b in both if a is not None and b is not None], seeds=len(both))


# --- beside the paper ---


def published(paper: PaperValues, method: str) -> dict[Column, tuple[float, float]]:
    """Means and standard errors that the paper reports of a method."""
    found = paper.methods.get(method)
    return {Column.parse(name): (mean, error) for name, (mean, error) in (found.values if found else {}).items()}


def not_comparable(paper: PaperValues, method: str, column: Column) -> str | None:
    """Why a number of the paper is not what ours measures; None if it is."""
    found = paper.methods.get(method)
    reasons = found.not_comparable if found else {}
    return reasons.get("all") or reasons.get(column.part)


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


def overlaps(
    comparison: StudyComparison, *, evidential: bool = False, paper: PaperValues | None = None
) -> list[bool | None]:
    """For each value of the paper whether the intervals overlap; None where that cannot be said.

    Evidential learning is left out, or counted by itself: some of its runs die, and an interval over such runs is so
    wide that it overlaps with nearly anything.

    Args:
        comparison: Of a study.
        evidential: Whether to count evidential learning alone, in the place of all others.
        paper: Values of the paper, if not those of the comparison.
    """
    told = comparison.paper if paper is None else paper
    return [
        against_paper(cell(method, column), theirs, not_comparable(told, method.name, column)).overlap
        for method in comparison.methods
        if is_evidential(method) == evidential
        for column, theirs in published(told, method.name).items()
    ]


def is_evidential(method: MethodRuns) -> bool:
    """Whether a method is evidential learning."""
    return method.recipe.objective == EVIDENTIAL


def one_class_runs(method: MethodRuns) -> int:
    """How many runs of a method call every clean test input the same class, and so end at chance accuracy."""
    recalls = [run.conditions[CLEAN].recall or () for run in method.there if run.conditions]
    return sum(sum(bool(each) for each in recall) == 1 for recall in recalls)


# --- what was tried ---


class Tuned(NamedTuple):
    """Validation NLL of the chosen settings, the lowest and the highest of all tried, and how many failed."""

    chosen: float | None
    low: float | None
    high: float | None
    failed: int


def tuned(method: MethodRuns) -> Tuned:
    """What the tuning runs of a method found; a run without a finite NLL is one that failed."""
    known = [each.val_nll for each in method.tried if each.val_nll is not None]
    chosen = [each.val_nll for each in method.tried if is_chosen(method, each)]
    low, high = min(known, default=None), max(known, default=None)
    return Tuned(chosen[0] if chosen else None, low, high, len(method.tried) - len(known))


def is_chosen(method: MethodRuns, tried: Tried) -> bool:
    """Whether this was chosen among what was tried."""
    return all(tried.settings[name] == setting for name, setting in method.chosen.items())
