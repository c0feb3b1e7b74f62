"""Ranks of methods over several cases."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from selbo.report import SAME, direction
from selbo_lab.report import studies
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.study_tables import TRACK_TITLES, Entry, Head, StudyTable, below
from selbo_lab.run.records import CLEAN, MethodRuns, StudyComparison, StudyResults

RANK_SAMPLES: Final = 10_000
RANKED: Final = ("nll", "ece")
"""Metrics that methods for groups are ranked by."""


def compute_ranks(case: StudyComparison, column: MetricColumn, leave_out: Collection[str] = ()) -> dict[str, float]:
    """Rank of each method with complete runs, by its mean; equal means share their ranks."""
    from scipy.stats import rankdata

    found = studies.cells(case, column)
    whole = {
        name: each.mean
        for name, each in found.items()
        if each.mean is not None and each.runs == each.seeds and name not in leave_out
    }
    sign = direction(column.metric)
    places = rankdata([float(round(-sign * mean / SAME)) for mean in whole.values()])  # may exceed 64 bits
    return dict(zip(whole, places.tolist(), strict=True))


def counted_once(cases: Sequence[StudyComparison]) -> list[StudyComparison]:
    """The cases without those that differ from an earlier one only in the stated precision of its fractions.

    Methods that take no precision have the same results in both.
    """
    kept: list[StudyComparison] = []
    for case in cases:
        if not any(_same_but_for_precision(case, earlier) for earlier in kept):
            kept.append(case)
    return kept


def _same_but_for_precision(case: StudyComparison, other: StudyComparison) -> bool:
    ours, theirs = (replace(each.data, stated_deviation=0.0, stated_concentration=0.0) for each in (case, other))
    return case.data != other.data and (ours, case.model) == (theirs, other.model)


def group_ranks(results: StudyResults, track: str, among: Collection[str] = ()) -> StudyTable | None:
    """Mean ranks of methods for groups by NLL and ECE; None if the study has one case or is about something else.

    A method that has all labels, and accuracies that are stated wrongly, are left out.

    Args:
        results: Results of a study, from `selbo_lab.schedule.runner.gather`.
        track: Name of the track.
        among: Names of the methods to rank; all of them if empty.
    """
    cases = counted_once([each for each in results.of_track(track) if each.data.groups and each.tested])
    if len(cases) < 2:  # the mean of one rank is the rank
        return None
    compared = [method for method in cases[0].methods if _is_ranked(method, among)]
    others = {method.name for method in cases[0].methods} - {method.name for method in compared}
    by_metric = {
        metric: [compute_ranks(case, MetricColumn(CLEAN, metric), others) for case in cases] for metric in RANKED
    }
    best: dict[str, float] = {}
    rows, raw = [], []
    for method in compared:
        numbers: dict[str, Any] = {"study": results.study, "track": track, "method": method.name, "cases": len(cases)}
        entries = [Entry(method.title, method=method.name)]
        for metric, ranks in by_metric.items():
            own = np.array([each[method.name] for each in ranks if method.name in each])
            if not len(own):
                entries.append(Entry("–"))
                continue
            low, high = bootstrap_interval(own)
            mean = float(own.mean())
            best[metric] = min(best.get(metric, mean), mean)
            entries.append(Entry(f"{mean:.1f}", note=f"({low:.1f} to {high:.1f})"))
            numbers |= {f"rank_{metric}": mean, f"rank_{metric}_low": low, f"rank_{metric}_high": high}
        rows.append(entries)
        raw.append(numbers)
    for row, numbers in zip(rows, raw, strict=True):
        for place, metric in enumerate(RANKED, start=1):
            if numbers.get(f"rank_{metric}") == best.get(metric):
                row[place] = row[place]._replace(mark="best")
    return StudyTable(
        "ranks",
        f"{results.title}, {TRACK_TITLES[track]}",
        "mean ranks",
        [Head("method"), Head("by NLL ↓"), Head("by ECE ↓")],
        rows,
        "lrr",
        [
            f"Among {len(compared)} methods, over {len(cases)} cases; 1 is the lowest.",
            "Intervals of 95 %: bootstrap over cases.",
            *below(results, [run for each in cases for run in each.runs]),
        ],
        raw,
    )


def bootstrap_interval(values: np.ndarray, *, samples: int = RANK_SAMPLES, seed: int = 0) -> tuple[float, float]:
    """Quantiles of 2.5 and 97.5 % of the mean of values that are drawn with replacement."""
    generator = np.random.default_rng(seed)
    means = values[generator.integers(len(values), size=(samples, len(values)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975)).tolist()
    return low, high


def _is_ranked(method: MethodRuns, among: Collection[str]) -> bool:
    if among:
        return method.name in among
    return method.recipe.objective != "all_labels" and not method.recipe.accuracy_off
