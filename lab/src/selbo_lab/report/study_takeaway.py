"""The conclusion of a study in a sentence or two per track, by the rule of `selbo.report.takeaway`."""

from collections.abc import Iterable, Mapping, Sequence

from selbo.report import RELATIONS, UNKNOWN, first_names, joined, metric_label, relation, shown_difference
from selbo_lab.report import studies
from selbo_lab.report.columns import CORRUPTED, MetricColumn
from selbo_lab.report.study_tables import TRACK_TITLES
from selbo_lab.run.records import CLEAN, USE, MethodRuns, StudyComparison, StudyResults


def study_takeaways(results: StudyResults) -> list[tuple[str, str]]:
    """Name and conclusion of each track of a study with results.

    Args:
        results: Results of a study, from `selbo_lab.schedule.runner.gather`.
    """
    found = [(TRACK_TITLES[track], _of_track(results, track)) for track in results.tracks]
    return [(name, text) for name, text in found if text]


def _of_track(results: StudyResults, track: str) -> str:
    cases, sentences = results.of_track(track), []
    corrupted = [MetricColumn(CORRUPTED, "nll", up_to=top) for top in studies.noise_ranges(cases[0])]
    for column in (MetricColumn(USE, "nll"), MetricColumn(CLEAN, "nll"), *corrupted):
        there = [each for each in cases if studies.measured(each, column)]
        if column.place == CLEAN and any(each.has_target_domain for each in there):
            continue  # the target domain is what matters there
        if there:
            sentences.append(_of_column(there, column, seeds=len(results.seeds)))
    agreed = _agreement(cases)
    return " ".join(filter(None, [*sentences, agreed]))


def _of_column(cases: Sequence[StudyComparison], column: MetricColumn, *, seeds: int) -> str:
    """Compare the focus, or the only method besides the reference, with the others; else all with the reference."""
    if seeds < 2:
        return f"{_column(cases, column)}: one seed, so that no difference can be distinguished from chance."
    reference = cases[0].reference
    others = [name for name in cases[0].titles if name != reference]
    focus = cases[0].focus or (others[0] if len(others) == 1 else reference)
    if focus == reference:
        return _variants_sentence(cases, column)
    return _focus_sentence(cases, column, focus)


def _column(cases: Sequence[StudyComparison], column: MetricColumn) -> str:
    """What a column is called: clean only where there are corrupted test sets beside it."""
    corrupted = any(studies.measured(each, MetricColumn(CORRUPTED, column.metric)) for each in cases)
    where = " on the clean test set" if corrupted else " on the test set"
    if column.place == USE:
        where = " on the target domain"
    elif column.place == CORRUPTED and len(studies.noise_ranges(cases[0])) < 2:
        where = " on corrupted test sets"
    elif column.place == CORRUPTED:
        where = f" under noise up to {studies.tested_noise_levels(cases[0])[-1]:g}"
        where = where if column.up_to is None else f" under noise up to {column.up_to:g}, as in the paper"
    return metric_label(column.metric) + where


def _methods(case: StudyComparison) -> dict[str, MethodRuns]:
    return {method.name: method for method in case.methods}


def _count(found: Iterable[str]) -> dict[str, int]:
    listed = list(found)
    return {each: listed.count(each) for each in (*RELATIONS, UNKNOWN)}


def _focus_sentence(cases: Sequence[StudyComparison], column: MetricColumn, name: str) -> str:
    """A method against the reference, and against all others."""
    metric, reference = column.metric, cases[0].reference
    titles = cases[0].titles
    against = {
        key: [
            studies.paired(_methods(case)[name], _methods(case)[key], column) for case in cases if key in _methods(case)
        ]
        for key in titles
        if key != name
    }
    what, ours, theirs = _column(cases, column), titles[name], titles[reference]
    first = against[reference]
    if len(first) == 1:
        told = f"{what}: {ours} is {relation(metric, first[0])} {theirs}, {shown_difference(metric, first[0])}"
    else:
        told = f"{what}: {ours} is {_in_cases(_count(relation(metric, each) for each in first), theirs)}"
    if len(against) == 1:
        return f"{told}."
    others = {key: [relation(metric, each) for each in found] for key, found in against.items()}
    if len(first) == 1:
        return f"{told}. {_among({titles[key]: found[0] for key, found in others.items()})}"
    del others[reference]
    better = [titles[key] for key, found in others.items() if found.count("behind") > found.count("ahead of")]
    told_better = f"More often ahead of it than behind: {joined(better)}."
    return f"{told}. {told_better if better else 'No other method is more often ahead of it than behind.'}"


def _in_cases(counts: Mapping[str, int], other: str) -> str:
    total = sum(counts.values())
    parts = [f"ahead of {other} in {counts['ahead of']} of {total} cases", f"level in {counts['level with']}"]
    parts.append(f"behind in {counts['behind']}")
    if counts[UNKNOWN]:
        parts.append(f"not comparable in {counts[UNKNOWN]}, for lack of runs")
    return joined(parts)


def _among(relations: Mapping[str, str]) -> str:
    """Number of other methods that a method is ahead of, and the names of the rest."""
    groups = {each: [title for title, found in relations.items() if found == each] for each in (*RELATIONS, UNKNOWN)}
    parts = [f"ahead of {len(groups['ahead of'])}"]
    for each in ("level with", "behind", UNKNOWN):
        names = groups[each]
        if names or each == "behind":
            parts.append(f"{each} {len(names)}" + (f" ({first_names(names)})" if names else ""))
    return f"Of the {len(relations)} other methods it is {joined(parts)}."


def _variants_sentence(cases: Sequence[StudyComparison], column: MetricColumn) -> str:
    """Number and names of the methods that are ahead of the reference."""
    metric, reference = column.metric, cases[0].reference
    what, title = _column(cases, column), cases[0].titles[reference]
    found: dict[str, list[str]] = {}
    for case in cases:
        methods = _methods(case)
        for key, method in methods.items():
            if key != reference and reference in methods:
                each = relation(metric, studies.paired(method, methods[reference], column))
                found.setdefault(method.title, []).append(each)
    counts = _count(each for relations in found.values() for each in relations)
    if not sum(counts.values()):
        return ""
    ahead = [name for name, relations in found.items() if "ahead of" in relations]
    parts = [f"{counts['ahead of']} {'are' if counts['ahead of'] != 1 else 'is'} ahead of {title}"]
    parts[0] += f" ({first_names(ahead)})" if ahead else ""
    parts += [f"{counts[each]} {word}" for each, word in (("level with", "level"), ("behind", "behind"))]
    parts += [f"{counts[UNKNOWN]} not comparable, for lack of runs"] if counts[UNKNOWN] else []
    of = f"{len(found)} other methods"
    if len(cases) > 1:
        of = f"{sum(counts.values())} comparisons ({of}, {len(cases)} cases)"
    return f"{what}: of {of}, {joined(parts)}."


def _agreement(cases: Sequence[StudyComparison]) -> str:
    """How many values of the paper lie within reach of ours."""
    overlaps = [each for case in cases for each in studies.overlaps(case)]
    comparable = [each for each in overlaps if each is not None]
    if not comparable:
        return ""
    apart = any(studies.overlaps(case, evidential=True) for case in cases)
    less = ", evidential learning left out" if apart else ""
    return (
        f"Of {len(overlaps)} values of the paper{less}, {len(comparable)} can be compared; with {sum(comparable)} of "
        "these our 95 % intervals overlap."
    )
