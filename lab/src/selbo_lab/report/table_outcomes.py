"""Tables over all cases of a study of tables: ranks, largest distances, and what statements change."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

import numpy as np

from selbo.report import signed
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.ranks import RANKED, bootstrap_interval, compute_ranks
from selbo_lab.report.study_tables import TRACK_TITLES, Entry, Head, StudyTable, below
from selbo_lab.run.records import CLEAN, USE, MethodRuns, StudyComparison, StudyResults

STANDARDS: Final = ("logistic-cv", "forest-calibrated")
"""Methods that none should be far behind of."""


def table_outcome(results: StudyResults, track: str) -> StudyTable | None:
    """The outcome of a study of tables; None if the study is about something else.

    Without a target domain: mean ranks among methods without a statement, the largest distance to the better of two
    standard methods, CPU seconds, and the mean difference that a statement makes. With one: mean ranks and mean NLL
    by stated fraction.

    Args:
        results: Results of a study, from `selbo_lab.schedule.runner.gather`.
        track: Name of the track.
    """
    cases = [each for each in results.of_track(track) if each.data.table and each.tested]
    if not cases:
        return None
    return _by_statement(results, track, cases) if cases[0].has_target_domain else _ranked(results, track, cases)


def _ranked(results: StudyResults, track: str, cases: Sequence[StudyComparison]) -> StudyTable:
    stating = {method.name for method in cases[0].methods if _states(method)}
    ranks = {metric: [compute_ranks(case, MetricColumn(CLEAN, metric), stating) for case in cases] for metric in RANKED}
    rows, raw = [], []
    for method in cases[0].methods:
        entries, numbers = _start(results, track, method)
        for metric, places in ranks.items():
            entries.append(_rank(places, method.name, metric, numbers))
        nll = [_mean(case, method.name, CLEAN, "nll") for case in cases]
        distances = {
            case.title: own - best
            for case, own in zip(cases, nll, strict=True)
            if own is not None and (best := _best(case)) is not None
        }
        worst = max(distances, key=distances.__getitem__, default="")
        entries.append(Entry(signed("nll", distances[worst]), note=f"({worst})") if worst else Entry("–"))
        cpu = [run.seconds.cpu for case in cases for run in case.method(method.name).tested if run.seconds.cpu]
        entries.append(Entry(f"{np.median(cpu):.1f}" if cpu else "–"))
        other = cases[0].focus
        gaps = _gaps(cases, method.name, other) if method.name in stating else []
        entries.append(_difference(gaps, numbers))
        numbers |= {"worst_distance": distances.get(worst), "worst": worst, "cpu": float(np.median(cpu)) if cpu else ""}
        rows.append(entries)
        raw.append(numbers)
    _mark_best(rows, 2)
    return StudyTable(
        "outcome",
        f"{results.title}, {TRACK_TITLES[track]}",
        "outcome",
        [
            Head("method"),
            Head("by NLL ↓", "mean rank"),
            Head("by ECE ↓", "mean rank"),
            Head("largest NLL above the better standard ↓"),
            Head("CPU seconds ↓"),
            Head("NLL less that without the statement ↓"),
        ],
        rows,
        "lrrrrr",
        [
            f"Over {len(cases)} tables; ranks are among the {max(map(len, ranks['nll']))} methods without a "
            "statement that were run, 1 is the lowest. Intervals of 95 %: bootstrap over tables.",
            "Standards: logistic regression with the chosen C, and the calibrated forest. "
            "CPU seconds of training: median.",
            *below(results, [run for each in cases for run in each.runs]),
        ],
        raw,
    )


def _by_statement(results: StudyResults, track: str, cases: Sequence[StudyComparison]) -> StudyTable:
    offs = list(dict.fromkeys(method.recipe.fractions_off for method in cases[0].methods))
    alike = {off: [method for method in cases[0].methods if method.recipe.fractions_off == off] for off in offs}
    rare = cases[0].data.use_fractions[-1]
    ranks = {
        off: [
            compute_ranks(case, MetricColumn(USE, "nll"), {m.name for m in case.methods} - {m.name for m in alike[off]})
            for case in cases
        ]
        for off in offs
    }
    rows, raw = [], []
    for method in alike[0.0]:
        entries, numbers = _start(results, track, method)
        same = {off: _same(method, others) for off, others in alike.items()}
        for off in offs:
            name, key = same[off], f"stated_{rare - off:.2f}"
            entries.append(_rank(ranks[off], name, key, numbers) if name else Entry("–"))
        for off in offs:
            name = same[off]
            nll = [_mean(case, name, USE, "nll") for case in cases] if name else []
            known = [each for each in nll if each is not None]
            entries.append(Entry(f"{fmean(known):.3f}" if known else "–"))
            numbers[f"nll_{rare - off:.2f}"] = fmean(known) if known else ""
        rows.append(entries)
        raw.append(numbers)
    _mark_best(rows, 2 * len(offs))
    return StudyTable(
        "outcome",
        f"{results.title}, {TRACK_TITLES[track]}",
        "outcome",
        [
            Head("method"),
            *(Head(f"{100 * (rare - off):.0f} % stated", "mean rank by NLL ↓") for off in offs),
            *(Head(f"{100 * (rare - off):.0f} % stated", "NLL ↓") for off in offs),
        ],
        rows,
        "l" + "r" * 2 * len(offs),
        [
            f"Over {len(cases)} cases; {100 * rare:.0f} % is true; 1 is the lowest rank. "
            "Intervals of 95 %: bootstrap over cases.",
            *below(results, [run for each in cases for run in each.runs]),
        ],
        raw,
    )


def _same(method: MethodRuns, others: Sequence[MethodRuns]) -> str:
    """The name of the same method with another statement; empty if there is none."""
    alike = (each.name for each in others if replace(each.recipe, fractions_off=0.0) == method.recipe)
    return next(alike, "")


def _start(results: StudyResults, track: str, method: MethodRuns) -> tuple[list[Entry], dict[str, Any]]:
    return [Entry(method.title, method=method.name)], {
        "study": results.study,
        "track": track,
        "method": method.name,
    }


def _rank(places: Sequence[dict[str, float]], name: str, key: str, numbers: dict[str, Any]) -> Entry:
    own = np.array([each[name] for each in places if name in each])
    if not len(own):
        return Entry("–")
    low, high = bootstrap_interval(own)
    numbers |= {f"rank_{key}": float(own.mean()), f"rank_{key}_low": low, f"rank_{key}_high": high}
    return Entry(f"{own.mean():.1f}", note=f"({low:.1f} to {high:.1f})")


def _difference(gaps: Sequence[float], numbers: dict[str, Any]) -> Entry:
    if not gaps:
        return Entry("–")
    low, high = bootstrap_interval(np.array(gaps))
    numbers |= {"difference": fmean(gaps), "difference_low": low, "difference_high": high}
    return Entry(signed("nll", fmean(gaps)), note=f"({signed('nll', low)} to {signed('nll', high)})")


def _gaps(cases: Sequence[StudyComparison], name: str, other: str) -> list[float]:
    pairs = [(_mean(case, name, CLEAN, "nll"), _mean(case, other, CLEAN, "nll")) for case in cases]
    return [one - two for one, two in pairs if one is not None and two is not None]


def _best(case: StudyComparison) -> float | None:
    found = [_mean(case, name, CLEAN, "nll") for name in STANDARDS if name in case.titles]
    known = [each for each in found if each is not None]
    return min(known) if len(known) == len(STANDARDS) else None


def _mean(case: StudyComparison, name: str, place: str, metric: str) -> float | None:
    """Mean over seeds; None if a run is missing."""
    runs = case.method(name).runs
    found = [run.conditions[place].value(metric) for run in runs if run is not None and run.tested]
    known = [each for each in found if each is not None]
    return fmean(known) if known and len(known) == len(runs) else None


def _states(method: MethodRuns) -> bool:
    recipe = method.recipe
    return recipe.states_accuracy or recipe.states_fractions or recipe.states_label_fractions


def _mark_best(rows: list[list[Entry]], columns: int) -> None:
    for place in range(1, columns + 1):
        known = [float(row[place].value) for row in rows if row[place].value != "–"]
        for row in rows:
            if known and row[place].value != "–" and float(row[place].value) == min(known):
                row[place] = row[place]._replace(mark="best")
