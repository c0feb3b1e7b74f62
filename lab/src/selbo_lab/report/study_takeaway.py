"""The conclusion of a study in a sentence or two per track, by the rule of `selbo.report.takeaway`."""

from collections.abc import Iterable, Mapping, Sequence

from selbo.report import UNKNOWN, VERDICTS, first_names, joined, metric_label, shown_difference, verdict
from selbo_lab.report import studies
from selbo_lab.report.studies import Plain, split
from selbo_lab.report.study_tables import TRACKS
from selbo_lab.report.target_domain import has_use


def study_takeaways(results: Plain) -> list[tuple[str, str]]:
    """For each track of a study with results: what it is called, and its conclusion.

    Args:
        results: Of a study, as `selbo_lab.schedule.runner.gather` gives them.
    """
    tracks = dict.fromkeys(each["track"] for each in results["comparisons"])
    found = [(TRACKS[track], _of_track(results, track)) for track in tracks]
    return [(name, text) for name, text in found if text]


def _of_track(results: Plain, track: str) -> str:
    cases = [each for each in results["comparisons"] if each["track"] == track]
    sentences = []
    corrupted = [f"{place}.nll" for place in studies.corrupted_places(cases[0])] if cases else []
    for column in ("use.nll", "clean.nll", *corrupted):
        there = [each for each in cases if studies.measured(each, column)]
        if column == "clean.nll" and any(has_use(each) for each in there):
            continue  # what counts there is the target domain
        if there:
            sentences.append(_of_column(there, column, seeds=len(results["seeds"])))
    agreed = _agreement(cases)
    return " ".join(filter(None, [*sentences, agreed]))


def _of_column(cases: Sequence[Plain], column: str, *, seeds: int) -> str:
    """The method in focus, or the only one beside the reference, against the others; else all against the reference."""
    if seeds < 2:
        return f"{_column(cases, column)}: one seed, so that no difference can be told from chance."
    reference = cases[0]["reference"]
    others = [name for name in _methods(cases[0]) if name != reference]
    focus = cases[0].get("focus") or (others[0] if len(others) == 1 else reference)
    if focus == reference:
        return _variants_sentence(cases, column)
    return _focus_sentence(cases, column, focus)


def _column(cases: Sequence[Plain], column: str) -> str:
    """What a column is called: clean only where there are corrupted test sets beside it."""
    place, metric = split(column)
    corrupted = any(studies.measured(each, f"corrupted.{metric}") for each in cases)
    names = {"use": " on the target domain", "corrupted": " on corrupted test sets"}
    if len(ranges := studies.corrupted_places(cases[0])) > 1:
        top, most = cases[0]["paper_noise"], studies.noise_levels(cases[0])[-1]
        names |= {
            ranges[0]: f" under noise up to {top:g}, as in the paper",
            "corrupted": f" under noise up to {most:g}",
        }
    return metric_label(metric) + names.get(place, " on the clean test set" if corrupted else " on the test set")


def _methods(case: Plain) -> dict[str, Plain]:
    return {method["name"]: method for method in case["methods"]}


def _count(found: Iterable[str]) -> dict[str, int]:
    listed = list(found)
    return {each: listed.count(each) for each in (*VERDICTS, UNKNOWN)}


def _focus_sentence(cases: Sequence[Plain], column: str, name: str) -> str:
    """A method against the reference, and against all others."""
    metric, reference = split(column)[1], cases[0]["reference"]
    titles = {key: method["title"] for key, method in _methods(cases[0]).items()}
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
        told = f"{what}: {ours} is {verdict(metric, first[0])} {theirs}, {shown_difference(metric, first[0])}"
    else:
        told = f"{what}: {ours} is {_in_cases(_count(verdict(metric, each) for each in first), theirs)}"
    if len(against) == 1:
        return f"{told}."
    others = {key: [verdict(metric, each) for each in found] for key, found in against.items()}
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


def _among(verdicts: Mapping[str, str]) -> str:
    """How many of the others a method is ahead of, and which ones it is not."""
    groups = {each: [title for title, found in verdicts.items() if found == each] for each in (*VERDICTS, UNKNOWN)}
    parts = [f"ahead of {len(groups['ahead of'])}"]
    for each in ("level with", "behind", UNKNOWN):
        names = groups[each]
        if names or each == "behind":
            parts.append(f"{each} {len(names)}" + (f" ({first_names(names)})" if names else ""))
    return f"Of the {len(verdicts)} other methods it is {joined(parts)}."


def _variants_sentence(cases: Sequence[Plain], column: str) -> str:
    """How many of the methods are ahead of the reference, and which ones."""
    metric, reference = split(column)[1], cases[0]["reference"]
    what, title = _column(cases, column), _methods(cases[0])[reference]["title"]
    found: dict[str, list[str]] = {}
    for case in cases:
        methods = _methods(case)
        for key, method in methods.items():
            if key != reference and reference in methods:
                each = verdict(metric, studies.paired(method, methods[reference], column))
                found.setdefault(method["title"], []).append(each)
    counts = _count(each for verdicts in found.values() for each in verdicts)
    if not sum(counts.values()):
        return ""
    ahead = [name for name, verdicts in found.items() if "ahead of" in verdicts]
    parts = [f"{counts['ahead of']} {'are' if counts['ahead of'] != 1 else 'is'} ahead of {title}"]
    parts[0] += f" ({first_names(ahead)})" if ahead else ""
    parts += [f"{counts[each]} {word}" for each, word in (("level with", "level"), ("behind", "behind"))]
    parts += [f"{counts[UNKNOWN]} not comparable, for lack of runs"] if counts[UNKNOWN] else []
    of = f"{len(found)} other methods"
    if len(cases) > 1:
        of = f"{sum(counts.values())} comparisons ({of}, {len(cases)} cases)"
    return f"{what}: of {of}, {joined(parts)}."


def _agreement(cases: Sequence[Plain]) -> str:
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
