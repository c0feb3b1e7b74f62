"""Tables that answer one question over all cases of a study: its primary outcome, and the cost of wrong fractions."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from selbo.report import Difference, compute_difference, signed
from selbo_lab.report import studies
from selbo_lab.report.bootstrap import SAMPLES, bootstrap_differences, holm
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.study_tables import TRACK_TITLES, Entry, Head, StudyTable, below
from selbo_lab.run.records import USE, StudyComparison, StudyResults
from selbo_lab.studies.run_spec import DataSpec

COLUMN: Final = MetricColumn(USE, "nll")
OFFSETS: Final = (0.05, 0.10, 0.20)
"""Errors of the stated class fractions."""


# --- primary outcome ---


def primary_outcome(results: StudyResults, track: str) -> StudyTable | None:
    """The method in focus against all others, over seeds, test examples and cases; None without scores of examples.

    Args:
        results: Results of a study, from `selbo_lab.schedule.runner.gather`.
        track: Name of the track.
    """
    cases = results.of_track(track)
    if not cases or not all(each.focus and each.evaluation.items for each in cases):
        return None
    focus, titles = cases[0].focus, cases[0].titles
    scores = {name: [_items(each, name) for each in cases] for name in titles}
    if any(found is None for every in scores.values() for found in every):
        return None
    others = [name for name in titles if name != focus]
    found = bootstrap_differences(scores[focus], {name: scores[name] for name in others})  # type: ignore[arg-type,misc]
    clear = dict(zip(others, holm([found[name].p_value for name in others]), strict=True))
    rows, raw = [], []
    for name, title in titles.items():
        nll = float(np.mean([np.mean(each) for each in scores[name]]))  # type: ignore[arg-type]
        entries, numbers = [Entry(title, method=name), Entry(f"{nll:.3f}")], {"method": name, "nll": nll}
        if name == focus:
            entries += [Entry("–")] * 3
        else:
            each = found[name]
            scaled = _difference(_over(cases, focus, scaled=True) - _over(cases, name, scaled=True))
            interval = f"{signed('nll', each.low)} to {signed('nll', each.high)}"
            mark = ("better" if each.mean < 0 else "worse") if clear[name] else ""
            entries += [Entry(signed("nll", each.mean), mark), Entry(interval), _with_interval(scaled)]
            numbers |= {"difference": each.mean, "low": each.low, "high": each.high, "p_value": each.p_value}
            numbers |= {
                "holm": clear[name],
                "scaled": scaled.mean,
                "scaled_low": scaled.low,
                "scaled_high": scaled.high,
            }
        rows.append(entries)
        raw.append({"study": results.study, "track": track, **numbers})
    less = f"{titles[focus]} less this"
    return StudyTable(
        "primary",
        f"{results.title}, {TRACK_TITLES[track]}",
        "",
        [
            Head("method"),
            Head("NLL ↓"),
            Head("difference", less),
            Head("95 % interval", less),
            Head("temperature scaling on both", less),
        ],
        rows,
        "lrrrr",
        [
            f"Means over {len(cases)} cases. Intervals: {SAMPLES} bootstrap samples of seeds and, independently, of "
            f"test examples; with temperature scaling Student's t over seeds.",
            "Bold: clear after Holm's correction over the rows.",
            *below(results, [run for each in cases for run in each.runs]),
        ],
        raw,
    )


def _items(case: StudyComparison, name: str) -> np.ndarray | None:
    """Scores of all test examples, (seeds, examples); None if a run does not have them."""
    tested = [None if run is None else run.conditions.get(USE) for run in case.method(name).runs]
    found = [each.items for each in tested if each is not None and each.items is not None]
    return np.array(found) if len(found) == len(tested) else None


# --- class fractions that are stated wrongly ---


def cost_of_wrong_fractions(results: StudyResults, track: str) -> StudyTable | None:
    """Cost of wrongly stated class fractions for each method; None if the study has none.

    The cost is the NLL minus that with exact fractions and the same seed: the mean over cases, and over signs in each.

    Args:
        results: Results of a study, from `selbo_lab.schedule.runner.gather`.
        track: Name of the track.
    """
    groups: dict[DataSpec, list[StudyComparison]] = defaultdict(list)
    for each in results.of_track(track):
        groups[replace(each.data, fractions_off=0.0, random_pool=False, unlabelled=0)].append(each)
    if not any(each.data.fractions_off for group in groups.values() for each in group):
        return None
    exact = [next(each for each in group if stated_exactly(each)) for group in groups.values()]
    reference, titles = exact[0].reference, exact[0].titles
    rows, raw = [], []
    for name, title in titles.items():
        nll = _over(exact, name)
        gain = _difference(_over(exact, reference) - nll)
        numbers: dict[str, Any] = {"method": name, "nll": float(np.mean(nll)), "gain": gain.mean}
        entries = [Entry(title, method=name), Entry(f"{np.mean(nll):.3f}")]
        entries.append(Entry("–" if name == reference else signed("nll", gain.mean or 0.0)))
        for kind in (*OFFSETS, None):
            costs = []
            for group, true in zip(groups.values(), exact, strict=True):
                wrong = [each for each in group if _kind(each) == kind]
                if wrong:
                    costs.append(np.mean([_nll(each, name) for each in wrong], axis=0) - _nll(true, name))
            cost = _difference(np.mean(costs, axis=0) if costs else np.full_like(nll, np.nan))
            entries.append(_with_interval(cost))
            key = "random_pool" if kind is None else f"off_{kind:.2f}"
            numbers |= {key: cost.mean, f"{key}_low": cost.low, f"{key}_high": cost.high}
        rows.append(entries)
        raw.append({"study": results.study, "track": track, **numbers})
    words = [*(f"{each:.2f} off".removeprefix("0") for each in OFFSETS), "pool drawn at random"]
    return StudyTable(
        "wrong-fractions",
        f"{results.title}, {TRACK_TITLES[track]}",
        "",
        [
            Head("method"),
            Head("NLL ↓", "stated exactly"),
            Head(f"gain over {titles[reference]} ↑", "stated exactly"),
            *(Head(word, "cost ↓") for word in words),
        ],
        rows,
        "l" + "r" * 6,
        [
            f"Means over {len(exact)} cases, intervals over seeds (Student's t). "
            "Cost: NLL less that with exact fractions.",
            *below(results, [run for each in results.comparisons for run in each.runs]),
        ],
        raw,
    )


def stated_exactly(comparison: StudyComparison) -> bool:
    """Whether the stated class fractions are exact, and the pool has them exactly."""
    return _kind(comparison) == 0


def _kind(comparison: StudyComparison) -> float | None:
    """Error of the stated fractions; None for a random pool."""
    return None if comparison.data.random_pool else abs(comparison.data.fractions_off)


def _nll(comparison: StudyComparison, name: str, *, scaled: bool = False) -> np.ndarray:
    """NLL by seed; NaN if missing."""
    found = [studies.value(run, COLUMN, scaled) for run in comparison.method(name).runs]
    return np.array([np.nan if each is None else each for each in found])


def _over(cases: Sequence[StudyComparison], name: str, *, scaled: bool = False) -> np.ndarray:
    """Mean NLL over cases, by seed."""
    found: np.ndarray = np.mean([_nll(each, name, scaled=scaled) for each in cases], axis=0)
    return found


def _difference(gaps: np.ndarray) -> Difference:
    """Mean and interval of one number per seed, without missing ones."""
    return compute_difference([each for each in gaps.tolist() if np.isfinite(each)], seeds=len(gaps))


def _with_interval(found: Difference) -> Entry:
    if found.mean is None or found.low is None or found.high is None:
        return Entry("–")
    mean, low, high = (signed("nll", each) for each in (found.mean, found.low, found.high))
    return Entry(mean, note=f"({low} to {high})")
