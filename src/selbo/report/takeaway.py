"""The conclusion of a report in a sentence or two, computed from its numbers, whichever way they fall.

A method is ahead of another, or behind, where the 95 % interval of the paired difference leaves out 0; else the two are
level. Nothing is said of a difference that a single seed shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from selbo.report import studies
from selbo.report.comparison import Results, clean_name, direction, noisiest, runs_of, summarise
from selbo.report.labels import number
from selbo.report.places import has_use
from selbo.report.studies import Difference, Plain, split
from selbo.report.study_tables import TRACKS, signed
from selbo.report.tables import is_percent, metric_label

METRICS: Final = ("nll", "ece")
"""What a conclusion is about: how probable the labels are, and whether the confidence is right."""

RULE: Final = (
    "Level: the 95 % interval of the paired difference (Student's t, over {seeds} seeds) holds 0; ahead and behind: it "
    "does not."
)

ONE_SEED: Final = "One seed: no difference between the methods can be told from chance."

MOST_NAMES: Final = 3
"""Methods that are named; of more, only the number is told."""

VERDICTS: Final = ("ahead of", "level with", "behind")
UNKNOWN: Final = "not comparable with"


def verdict(metric: str, found: Difference) -> str:
    """What a difference says: one of `VERDICTS`, or that a run or the interval is missing."""
    if found.low is None or found.pairs < found.seeds:
        return UNKNOWN
    if not found.clear:
        return "level with"
    return "ahead of" if direction(metric) * (found.mean or 0.0) > 0 else "behind"


def shown_difference(metric: str, found: Difference) -> str:
    """A difference with its interval.

    Example:
        >>> shown_difference("nll", Difference(-0.02, 0.002, -0.03, -0.01, 3, 3))
        'difference −0.020 [−0.030, −0.010]'
    """
    if found.mean is None:
        return "no difference can be formed"
    ends = (
        ""
        if found.low is None or found.high is None
        else f" [{signed(metric, found.low)}, {signed(metric, found.high)}]"
    )
    return f"difference {signed(metric, found.mean)}{' points' if is_percent(metric) else ''}{ends}"


def _listed(words: Sequence[str]) -> str:
    """Words with commas and an "and".

    Example:
        >>> _listed(["a", "b", "c"])
        'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


# --- a comparison ---


def takeaway(results: Results) -> str:
    """The conclusion of a comparison, as paragraphs and a list; empty if there is one method.

    Results may state it themselves, as ``takeaway``. Else the method in ``focus`` is compared with the best other one,
    or the methods with the best of them.
    """
    if results.get("takeaway"):
        return str(results["takeaway"])
    if len(results["methods"]) < 2:
        return ""
    if len(results["seeds"]) < 2:
        return ONE_SEED
    places = {f"on the {clean_name(results)}": results["clean"]}
    if noisy := noisiest(results):
        places[f"at {results['corruption']} {number(noisy[1])}"] = noisy[0]
    focus = results.get("focus")
    known = focus is not None and focus in results["methods"]
    parts = _of_focus(results, str(focus), places) if known else _of_best(results, places)
    return "\n\n".join([*parts, RULE.format(seeds=len(results["seeds"]))]) if parts else ""


def difference(results: Results, condition: str, metric: str, method: str, other: str) -> Difference:
    """A method less another, seed by seed."""

    def values(name: str) -> dict[int, float]:
        runs = ((run["seed"], run["conditions"].get(condition)) for run in runs_of(results, name))
        found = {seed: (entry or {"metrics": {}})["metrics"].get(metric) for seed, entry in runs}
        return {seed: float(value) for seed, value in found.items() if value is not None}

    ours, theirs = values(method), values(other)
    pairs = [ours[seed] - theirs[seed] for seed in results["seeds"] if seed in ours and seed in theirs]
    return studies.difference_of(pairs, seeds=len(results["seeds"]))


def _means(results: Results, condition: str, metric: str) -> dict[str, float]:
    rows = summarise(results, condition, [metric])
    complete = {row.method: row.values[metric] for row in rows if row.values[metric].runs == len(results["seeds"])}
    return {method: value.mean for method, value in complete.items() if value.mean is not None}


def _best(means: Mapping[str, float], metric: str) -> str:
    return max(means, key=lambda method: direction(metric) * means[method])


def _of_focus(results: Results, focus: str, places: Mapping[str, str]) -> list[str]:
    """The method in focus against the best of the others, place by place, metric by metric."""
    short, long = [], []
    for where, condition in places.items():
        verdicts: dict[str, str] = {}
        for metric in METRICS:
            means = _means(results, condition, metric)
            others = {method: mean for method, mean in means.items() if method != focus}
            if focus not in means or not others:
                continue
            baseline = _best(others, metric)
            found = difference(results, condition, metric, focus, baseline)
            label = metric_label(metric, unit=False)
            verdicts[label] = verdict(metric, found)
            ours, theirs = (_shown(metric, each) for each in (means[focus], means[baseline]))
            long.append(f"- {label} {where}: {ours} against {theirs} of {baseline}, {shown_difference(metric, found)}")
        if verdicts:
            short.append(f"{where} it is {_by_metric(verdicts)}")
    if not short:
        return []
    return [f"{focus} against the best other method of each column: {'; '.join(short)}.", "\n".join(long)]


def _by_metric(verdicts: Mapping[str, str]) -> str:
    """Example: ``ahead in NLL, level in ECE``."""
    words = {"ahead of": "ahead", "level with": "level", "behind": "behind", UNKNOWN: "not comparable"}
    groups: dict[str, list[str]] = {}
    for label, each in verdicts.items():
        groups.setdefault(words[each], []).append(label)
    return ", ".join(f"{word} in {_listed(labels)}" for word, labels in groups.items())


def _shown(metric: str, mean: float) -> str:
    return f"{100 * mean:.1f} %" if is_percent(metric) else f"{mean:.3f}"


def _of_best(results: Results, places: Mapping[str, str]) -> list[str]:
    """The method with the lowest NLL, and which ones cannot be told from it."""
    sentences = []
    for where, condition in places.items():
        means = _means(results, condition, "nll")
        if len(means) < 2:
            continue
        best = _best(means, "nll")
        others = [method for method in means if method != best]
        level = [m for m in others if verdict("nll", difference(results, condition, "nll", best, m)) != "ahead of"]
        told = f"level with it: {_named(level)}" if level else "ahead of all others"
        sentences.append(f"Lowest NLL {where}: {best}, {means[best]:.3f}; {told}.")
    return [" ".join(sentences)] if sentences else []


def _named(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - MOST_NAMES
    return _listed([*names[:MOST_NAMES], f"{more} more"] if more > 0 else names)


# --- a study ---


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
    told_better = f"More often ahead of it than behind: {_listed(better)}."
    return f"{told}. {told_better if better else 'No other method is more often ahead of it than behind.'}"


def _in_cases(counts: Mapping[str, int], other: str) -> str:
    total = sum(counts.values())
    parts = [f"ahead of {other} in {counts['ahead of']} of {total} cases", f"level in {counts['level with']}"]
    parts.append(f"behind in {counts['behind']}")
    if counts[UNKNOWN]:
        parts.append(f"not comparable in {counts[UNKNOWN]}, for lack of runs")
    return _listed(parts)


def _among(verdicts: Mapping[str, str]) -> str:
    """How many of the others a method is ahead of, and which ones it is not."""
    groups = {each: [title for title, found in verdicts.items() if found == each] for each in (*VERDICTS, UNKNOWN)}
    parts = [f"ahead of {len(groups['ahead of'])}"]
    for each in ("level with", "behind", UNKNOWN):
        names = groups[each]
        if names or each == "behind":
            parts.append(f"{each} {len(names)}" + (f" ({_named(names)})" if names else ""))
    return f"Of the {len(verdicts)} other methods it is {_listed(parts)}."


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
    parts[0] += f" ({_named(ahead)})" if ahead else ""
    parts += [f"{counts[each]} {word}" for each, word in (("level with", "level"), ("behind", "behind"))]
    parts += [f"{counts[UNKNOWN]} not comparable, for lack of runs"] if counts[UNKNOWN] else []
    of = f"{len(found)} other methods"
    if len(cases) > 1:
        of = f"{sum(counts.values())} comparisons ({of}, {len(cases)} cases)"
    return f"{what}: of {of}, {_listed(parts)}."


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
