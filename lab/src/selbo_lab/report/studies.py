"""Statistics of a study: means over seeds with missing runs, paired differences, and comparison with the paper.

No run is dropped silently: a value from fewer runs than seeds states why.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from selbo.report import Difference, Value, around, compute_difference, direction, marked, mean_and_error, t_quantile
from selbo_lab.report.columns import CORRUPTED, MetricColumn
from selbo_lab.run.records import CLEAN, USE, MethodRuns, Run, RunMeasurement, StudyComparison, Tried
from selbo_lab.studies.paper import PaperValues

CLEAN_METRICS: Final = ("nll", "accuracy", "auroc", "ece")
CORRUPTED_METRICS: Final = ("nll", "accuracy", "ece")
FOREIGN: Final = ("entropy_in", "entropy_out", "entropy_difference", "auroc")
F1_METRICS: Final = ("f1_micro", "f1_macro")
TARGET_METRICS: Final = ("nll", "accuracy", "ece", "f1_macro")
"""Metrics of the tables: clean and corrupted test sets, OOD inputs, rare classes, target domain."""

EVIDENTIAL: Final = "evidential"
"""The objective that is counted separately in comparisons with the paper; see `overlaps`."""

PAPER_QUANTILE: Final = 1.96
"""Half width of a 95 % interval in standard errors, for the paper's values, whose number of runs is not certain."""

PRINTED_ROUNDING: Final = 0.0005
"""Half of the last printed digit of the paper's tables; a standard error printed as 0.000 is not 0."""


class Cell(NamedTuple):
    """A metric of a method over the seeds; show `note` with the mean if it is not None.

    Attributes:
        mean: Mean over the runs that have a value; None if none has.
        error: Standard error of the mean (ddof 1); None for fewer than two runs.
        runs: Number of runs that have a value.
        seeds: Expected number of runs.
        diverged: Number of runs that diverged.
        missing: Number of missing runs.
        undefined: Number of finished runs without a finite value.
        best: Whether no other method has a better mean.
        close: Whether it is not the best, but within one standard error of the best mean.
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
        """The value without the counts of missing runs."""
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
    """Our value compared with the paper's.

    Attributes:
        difference: Our value minus the paper's; None if they are not comparable.
        overlap: Whether the 95 % intervals overlap; None if unknown.
        reason: Why a value is None.
    """

    difference: float | None
    overlap: bool | None
    reason: str | None = None


# --- columns and values ---


def find_columns(comparison: StudyComparison) -> list[MetricColumn]:
    """Columns of the tables that any run of a comparison has, in display order."""
    rare = F1_METRICS if comparison.classes else ()  # accuracy alone hides rare classes
    foreign = dict.fromkeys(name for run in _ended(comparison) for name in run.ood)
    wanted = [
        *(MetricColumn(CLEAN, metric) for metric in (*CLEAN_METRICS, *rare)),
        *(
            MetricColumn(CORRUPTED, m, up_to=top)
            for top in noise_ranges(comparison)
            for m in (*CORRUPTED_METRICS, *rare)
        ),
        *(MetricColumn(name, metric, ood=True) for name in foreign for metric in FOREIGN),
    ]
    if comparison.has_target_domain:
        places = (USE,) if comparison.one_domain else (USE, CLEAN)
        wanted = [MetricColumn(place, metric) for place in places for metric in TARGET_METRICS]
    return [column for column in wanted if measured(comparison, column)]


def all_columns(comparison: StudyComparison) -> list[MetricColumn]:
    """The columns of the tables, then every other metric that any run has."""
    ended = _ended(comparison)
    metrics = dict.fromkeys(name for run in ended for each in run.conditions.values() for name in each.metrics)
    places = [
        MetricColumn(CLEAN, ""),
        MetricColumn(USE, ""),
        *(MetricColumn(CORRUPTED, "", up_to=t) for t in noise_ranges(comparison)),
    ]
    others = [replace(place, metric=metric) for place in places for metric in metrics if metric != "num_examples"]
    foreign = dict.fromkeys(
        MetricColumn(name, metric, ood=True)
        for run in ended
        for name, found in run.ood.items()
        for metric, number in found.metrics.items()
        if number is not None
    )
    shown = find_columns(comparison)
    return [*shown, *(each for each in (*others, *foreign) if each not in shown and measured(comparison, each))]


def tested_noise_levels(comparison: StudyComparison) -> list[float]:
    """Levels of noise that any run was tested at, without the clean test set."""
    found = {each.level for run in _ended(comparison) for each in run.corrupted.values()}
    return sorted(level for level in found if level is not None)


def noise_ranges(comparison: StudyComparison) -> tuple[float | None, ...]:
    """Ranges of noise for the means in tables: first up to the paper's strongest noise, then all of it (None).

    The paper's range, ``paper_noise``, is separate only if more was measured.
    """
    levels, top = tested_noise_levels(comparison), comparison.paper_noise
    return (top, None) if levels and 0 < top < levels[-1] else (None,)


def value(run: Run | None, column: MetricColumn, scaled: bool = False) -> float | None:
    """A number of one run; None if the run is missing, diverged, or has no number there.

    Args:
        run: A run; None if it is missing.
        column: The column; a mean over corrupted conditions needs a number in every one.
        scaled: Whether to use the value after temperature scaling.
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


def _measure(condition: RunMeasurement, column: MetricColumn, scaled: bool) -> float | None:
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


def measured(comparison: StudyComparison, column: MetricColumn) -> bool:
    """Whether any run has a number there."""
    return any(value(run, column) is not None for run in _ended(comparison))


# --- over seeds ---


def cell(method: MethodRuns, column: MetricColumn, scaled: bool = False) -> Cell:
    """A column of one method over the seeds, without marking the best."""
    return _cell(method.runs, lambda run: value(run, column, scaled=scaled))


def cells(comparison: StudyComparison, column: MetricColumn, scaled: bool = False) -> dict[str, Cell]:
    """A column of all methods, by name, with the best marked.

    A method with a missing or diverged run cannot be the best: a mean over the successful runs is not comparable.
    """
    return mean_cells(comparison, [column], scaled)


def mean_cells(comparison: StudyComparison, columns: Sequence[MetricColumn], scaled: bool = False) -> dict[str, Cell]:
    """Mean over columns of one metric, for all methods, the best marked; a run needs a value in every column."""

    def mean(run: Run) -> float | None:
        return mean_of_all(value(run, column, scaled=scaled) for column in columns)

    found = {method.name: _cell(method.runs, mean) for method in comparison.methods}
    seeds = max((each.seeds for each in found.values()), default=0)
    values = {name: each.value for name, each in found.items()}
    judged = marked(values, sign=direction(columns[0].metric), num_seeds=seeds)
    return {name: each._replace(best=judged[name].best, close=judged[name].close) for name, each in found.items()}


def timings(comparison: StudyComparison) -> dict[str, Cell]:
    """Training time per run in seconds, by method; for a resumed run, the total."""
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
    column: MetricColumn,
    scaled: bool = False,
    *,
    reference_scaled: bool | None = None,
) -> Difference:
    """Paired difference between a method and the reference, by seed.

    Args:
        method: A method, with its runs in the order of the seeds.
        reference: The reference, with the same seeds.
        column: The column.
        scaled: Whether to use values after temperature scaling, for both.
        reference_scaled: The same for the reference, if different.
    """
    other = scaled if reference_scaled is None else reference_scaled
    both = [
        (value(ours, column, scaled=scaled), value(theirs, column, scaled=other))
        for ours, theirs in zip(method.runs, reference.runs, strict=True)
    ]
    return compute_difference([a - b for a, b in both if a is not None and b is not None], seeds=len(both))


# --- beside the paper ---


def published(paper: PaperValues, method: str) -> dict[MetricColumn, tuple[float, float]]:
    """Means and standard errors that the paper reports for a method."""
    found = paper.methods.get(method)
    return {MetricColumn.parse(name): (mean, error) for name, (mean, error) in (found.values if found else {}).items()}


def not_comparable(paper: PaperValues, method: str, column: MetricColumn) -> str | None:
    """Why a number of the paper is not comparable with ours; None if it is."""
    found = paper.methods.get(method)
    reasons = found.not_comparable if found else {}
    return reasons.get("all") or reasons.get(column.part)


def against_paper(ours: Cell, paper: tuple[float, float], reason: str | None = None) -> AgainstPaper:
    """Our value minus the paper's, and whether the 95 % intervals overlap.

    Our interval uses Student's t with one degree of freedom less than runs. The paper's is its mean ± 1.96 times its
    published standard error, both widened by half of the last printed digit, because they are rounded.

    Args:
        ours: A cell of the same column.
        paper: Mean and standard error.
        reason: Why they are not comparable, or None; see `not_comparable`.
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
    low, high = around(mean, PAPER_QUANTILE * (error + PRINTED_ROUNDING) + PRINTED_ROUNDING)
    return AgainstPaper(difference, ours.interval[0] <= high and low <= ours.interval[1])


def overlaps(
    comparison: StudyComparison, *, evidential: bool = False, paper: PaperValues | None = None
) -> list[bool | None]:
    """Whether the intervals overlap, for each value of the paper; None if unknown.

    Evidential learning is left out, or counted separately: some of its runs collapse, and an interval over such runs is
    so wide that it overlaps with nearly anything.

    Args:
        comparison: A comparison of a study.
        evidential: Whether to count only evidential learning, instead of all other methods.
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
    """Number of runs of a method that predict the same class for every clean test input."""
    recalls = [run.conditions[CLEAN].recall or () for run in method.there if run.conditions]
    return sum(sum(bool(each) for each in recall) == 1 for recall in recalls)


# --- what was tried ---


class Tuned(NamedTuple):
    """Validation NLL of the chosen settings, the lowest and highest of all candidates, and how many have none."""

    chosen: float | None
    low: float | None
    high: float | None
    unknown: int


def tuned(method: MethodRuns) -> Tuned:
    """Results of the tuning runs of a method; one that diverged or is missing has no NLL."""
    known = [each.val_nll for each in method.tried if each.val_nll is not None]
    chosen = [each.val_nll for each in method.tried if is_chosen(method, each)]
    low, high = min(known, default=None), max(known, default=None)
    return Tuned(chosen[0] if chosen else None, low, high, len(method.tried) - len(known))


def is_chosen(method: MethodRuns, tried: Tried) -> bool:
    """Whether these candidate settings were chosen."""
    return all(tried.settings[name] == setting for name, setting in method.chosen.items())
