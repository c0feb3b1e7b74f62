"""Overview of all cases of a study: where a method is ahead of or behind the reference, and its rank."""

from collections.abc import Sequence
from typing import Final

from selbo.report import Difference, direction, mean_and_error, metric_label, signed
from selbo_lab.report import studies
from selbo_lab.report.columns import CORRUPTED, MetricColumn
from selbo_lab.report.ranks import compute_ranks, counted_once, group_ranks
from selbo_lab.report.study_outcomes import cost_of_wrong_fractions, primary_outcome, stated_exactly
from selbo_lab.report.study_tables import TRACK_TITLES, Entry, Head, StudyTable, below
from selbo_lab.report.table_outcomes import table_outcome
from selbo_lab.run.records import CLEAN, USE, StudyComparison, StudyResults

FEWEST: Final = 3
"""Minimum number of cases for an overview."""


def overview(results: StudyResults, track: str) -> StudyTable | None:
    """One row per method, over all cases of a track; None if there are few cases or no results.

    Args:
        results: Results of a study, from `selbo_lab.schedule.runner.gather`.
        track: ``published`` or ``selbo``.
    """
    cases, column = find_cases(results, track)
    if not cases:
        return None
    titles, reference, focus = cases[0].titles, cases[0].reference, cases[0].focus
    placed = [compute_ranks(each, column) for each in cases]
    ranks = {name: _mean([each[name] for each in placed if name in each]) for name in titles}
    best = min((rank for rank in ranks.values() if rank is not None), default=None)
    rows, raw = [], []
    for name, rank in ranks.items():
        found = differences(cases, name, reference, column)
        ahead, behind = _counts(found, column)
        mean, is_reference = _mean([each.mean for each in found if each.mean is not None]), name == reference
        entries = [
            Entry(titles[name], method=name),
            Entry("–" if is_reference else str(ahead)),
            Entry("–" if is_reference else str(behind)),
            Entry("–" if is_reference or mean is None else signed(column.metric, mean)),
        ]
        numbers = (
            {"study": results.study, "track": track, "method": name, "column": str(column), "cases": len(cases)}
            | {"ahead": ahead, "behind": behind, "rank": rank}
            | {"difference": mean}
        )
        if focus:
            before, after = _counts(differences(cases, name, focus, column), column)
            entries += [Entry("–" if name == focus else str(count)) for count in (before, after)]
            numbers |= {"focus": focus, "ahead_of_focus": before, "behind_focus": after}
        rows.append([*entries, Entry("–") if rank is None else Entry(f"{rank:.1f}", "best" if rank == best else "")])
        raw.append(numbers)
    corrupted = any(studies.measured(each, MetricColumn(CORRUPTED, "nll")) for each in cases)
    where = "on the clean test set" if corrupted else "on the test set"
    where = "in the target domain" if column.place == USE else where
    against = f"against {titles[reference]}"
    heads = [Head("method"), Head("ahead", against), Head("behind", against), Head("mean difference", against)]
    if focus:
        heads += [Head(word, f"against {titles[focus]}") for word in ("ahead", "behind")]
    return StudyTable(
        "overview",
        f"{results.title}, {TRACK_TITLES[track]}",
        "all cases",
        [*heads, Head("mean rank ↓")],
        rows,
        "l" + "r" * len(heads),
        [
            f"{metric_label(column.metric)} {where}, {len(cases)} cases. Ahead and behind: in how many the 95 % "
            f"interval of the paired difference leaves out 0.",
            "Mean difference: over the cases. Mean rank: among all methods, 1 is the lowest NLL.",
            *below(results, [run for each in cases for run in each.runs]),
        ],
        raw,
    )


def tables_over_cases(results: StudyResults, track: str) -> list[StudyTable]:
    """All tables of a track over several cases."""
    builders = (primary_outcome, cost_of_wrong_fractions, group_ranks, table_outcome, overview)
    made = (build(results, track) for build in builders)
    return [table for table in made if table is not None]


def find_cases(results: StudyResults, track: str) -> tuple[list[StudyComparison], MetricColumn]:
    """The comparisons of a track that have results, none if they are few, and the column to compare.

    That is the NLL in the target domain, or on the clean test set if there is only one domain. Cases that differ only
    in what is stated about them count once: as stated exactly, or as in the first of them.
    """
    cases = counted_once([each for each in results.of_track(track) if stated_exactly(each)])
    column = MetricColumn(USE if all(each.has_target_domain for each in cases) else CLEAN, "nll")
    cases = [each for each in cases if studies.measured(each, column)]
    return cases if len(cases) >= FEWEST else [], column


def tracks_with_cases(results: StudyResults) -> list[str]:
    """Tracks with enough cases for an overview, as a table and as a figure."""
    return [track for track in results.tracks if find_cases(results, track)[0]]


def differences(cases: Sequence[StudyComparison], name: str, other: str, column: MetricColumn) -> list[Difference]:
    """Difference between two methods in each case."""
    return [studies.paired(case.method(name), case.method(other), column) for case in cases]


def _mean(numbers: Sequence[float]) -> float | None:
    return mean_and_error(numbers)[0] if numbers else None


def _counts(found: Sequence[Difference], column: MetricColumn) -> tuple[int, int]:
    """Number of cases in which the first method is clearly better, and clearly worse."""
    gains = [direction(column.metric) * (each.mean or 0.0) for each in found if each.clear]
    return sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
