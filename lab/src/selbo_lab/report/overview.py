"""All cases of a study at a glance: where a method is ahead of the reference, where behind, and how it ranks."""

from collections.abc import Sequence
from typing import Final

from selbo.report import SAME, Difference, direction, mean_and_error, metric_label, signed
from selbo_lab.report import studies
from selbo_lab.report.studies import Plain, split
from selbo_lab.report.study_outcomes import cost_of_wrong_fractions, primary_outcome, stated_exactly
from selbo_lab.report.study_tables import TRACKS, Entry, Head, Table, below
from selbo_lab.report.target_domain import has_use

FEWEST: Final = 3
"""Cases that are worth an overview."""


def overview(results: Plain, track: str) -> Table | None:
    """A row for each method, over all cases of a track; None if there are few cases, or none with results.

    Args:
        results: Of a study, as `selbo_lab.schedule.runner.gather` gives them.
        track: ``published`` or ``selbo``.
    """
    cases, column = cases_of(results, track)
    if not cases:
        return None
    names = [method["name"] for method in cases[0]["methods"]]
    titles = {method["name"]: method["title"] for method in cases[0]["methods"]}
    reference, focus = cases[0]["reference"], cases[0].get("focus")
    ranks = [_ranks(each, column) for each in cases]
    rows, raw = [], []
    for name in names:
        found = differences(cases, name, reference, column)
        ahead, behind = _counts(found, column)
        means = [each.mean for each in found if each.mean is not None]
        placed = [each[name] for each in ranks if name in each]
        rank = mean_and_error(placed)[0] if placed else None
        is_reference = name == reference
        entries = [
            Entry(titles[name]),
            Entry("–" if is_reference else str(ahead)),
            Entry("–" if is_reference else str(behind)),
            Entry("–" if is_reference or not means else signed(split(column)[1], mean_and_error(means)[0])),
        ]
        numbers = (
            {"study": results["study"], "track": track, "method": name, "column": column, "cases": len(cases)}
            | {"ahead": ahead, "behind": behind, "rank": rank}
            | {"difference": mean_and_error(means)[0] if means else None}
        )
        if focus:
            before, after = _counts(differences(cases, name, focus, column), column)
            entries += [Entry("–" if name == focus else str(count)) for count in (before, after)]
            numbers |= {"focus": focus, "ahead_of_focus": before, "behind_focus": after}
        rows.append([*entries, Entry("–" if rank is None else f"{rank:.1f}")])
        raw.append(numbers)
    best = min((row["rank"] for row in raw if row["rank"] is not None), default=None)
    for row, numbers in zip(rows, raw, strict=True):
        if best is not None and numbers["rank"] == best:
            row[-1] = row[-1]._replace(mark="best")
    corrupted = any(studies.measured(each, "corrupted.nll") for each in cases)
    where = "on the clean test set" if corrupted else "on the test set"
    where = "in the target domain" if column.startswith("use") else where
    against = f"against {titles[reference]}"
    heads = [Head("method"), Head("ahead", against), Head("behind", against), Head("mean difference", against)]
    if focus:
        heads += [Head(word, f"against {titles[focus]}") for word in ("ahead", "behind")]
    return Table(
        "overview",
        f"{results['title']}, {TRACKS[track]}: all cases",
        [*heads, Head("mean rank ↓")],
        rows,
        "l" + "r" * len(heads),
        [
            f"{metric_label(split(column)[1])} {where}, {len(cases)} cases. Ahead and behind: in how many the 95 % "
            f"interval of the paired difference leaves out 0.",
            "Mean difference: over the cases. Mean rank: among all methods, 1 is the lowest NLL.",
            *below(results, {"methods": [method for each in cases for method in each["methods"]]}),
        ],
        raw,
    )


def tables_over_cases(results: Plain, track: str) -> list[Table]:
    """All tables of a track that are about several cases at once."""
    made = (build(results, track) for build in (primary_outcome, cost_of_wrong_fractions, overview))
    return [table for table in made if table is not None]


def cases_of(results: Plain, track: str) -> tuple[list[Plain], str]:
    """The comparisons of a track that have results, none if they are few, and the column to hold them by.

    That is the NLL in the target domain, or on the clean test set if there is only one domain. Cases that differ only
    in what is stated about them count once, as stated exactly.
    """
    cases = [each for each in results["comparisons"] if each["track"] == track and stated_exactly(each)]
    column = "use.nll" if all(has_use(each) for each in cases) else "clean.nll"
    cases = [each for each in cases if studies.measured(each, column)]
    return cases if len(cases) >= FEWEST else [], column


def tracks_with_cases(results: Plain) -> list[str]:
    """Tracks with so many cases that they have an overview, as a table and as a figure."""
    tracks = dict.fromkeys(each["track"] for each in results["comparisons"])
    return [track for track in tracks if cases_of(results, track)[0]]


def differences(cases: Sequence[Plain], name: str, other: str, column: str) -> list[Difference]:
    """One method less another, in each case."""
    by_name = [{method["name"]: method for method in case["methods"]} for case in cases]
    return [studies.paired(case[name], case[other], column) for case in by_name]


def _counts(found: Sequence[Difference], column: str) -> tuple[int, int]:
    """In how many cases the first method is clearly better, and in how many clearly worse."""
    gains = [direction(split(column)[1]) * (each.mean or 0.0) for each in found if each.clear]
    return sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)


def _ranks(case: Plain, column: str) -> dict[str, float]:
    """Place of each method whose runs are all there, by its mean; those that are the same share their places."""
    from scipy.stats import rankdata

    found = studies.cells(case, column)
    whole = {name: each.mean for name, each in found.items() if each.mean is not None and each.runs == each.seeds}
    sign = direction(split(column)[1])
    places = rankdata([round(-sign * mean / SAME) for mean in whole.values()])
    return dict(zip(whole, places.tolist(), strict=True))
