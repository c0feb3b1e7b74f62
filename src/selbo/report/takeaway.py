"""The conclusion of a comparison in a sentence or two, computed from its numbers.

A method is ahead of another, or behind, if the 95 % interval of the paired difference excludes 0; otherwise the two are
level. A single seed allows no conclusion.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from selbo.plots.labels import number
from selbo.report.comparison import clean_name, direction, noisiest, summarise
from selbo.report.differences import Difference, compute_difference
from selbo.report.tables import is_percent, metric_label, signed
from selbo.results import Comparison

CONCLUSION_METRICS: Final = ("nll", "ece")
"""Metrics of a conclusion: the likelihood of the labels, and the calibration."""

RULE: Final = (
    "Level: the 95 % interval of the paired difference (Student's t, over {seeds} seeds) holds 0; ahead and behind: it "
    "does not."
)

ONE_SEED: Final = "One seed: no difference between the methods can be distinguished from chance."

MOST_NAMES: Final = 3
"""Maximum number of named methods; the others are counted."""

RELATIONS: Final = ("ahead of", "level with", "behind")
UNKNOWN: Final = "not comparable with"


def relation(metric: str, found: Difference) -> str:
    """Words for a difference: one of `RELATIONS`, or `UNKNOWN` if a run or the interval is missing."""
    if found.low is None or found.pairs < found.seeds:
        return UNKNOWN
    if not found.clear:
        return "level with"
    return "ahead of" if direction(metric) * (found.mean or 0.0) > 0 else "behind"


def shown_difference(metric: str, found: Difference) -> str:
    """Format a difference with its interval.

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


def joined(words: Sequence[str]) -> str:
    """Join words with commas and an "and".

    Example:
        >>> joined(["a", "b", "c"])
        'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def takeaway(results: Comparison) -> str:
    """The conclusion of a comparison, as paragraphs and a list; empty if there is one method.

    Uses ``takeaway`` of the results if they have one. Otherwise compares the method in ``focus`` with the best other
    method or, without a focus, all methods with the best of them.
    """
    if results.takeaway:
        return results.takeaway
    if len(results.methods) < 2:
        return ""
    if len(results.seeds) < 2:
        return ONE_SEED
    places = {f"on the {clean_name(results)}": results.clean}
    if noisy := noisiest(results):
        places[f"at {results.corruption} {number(noisy[1])}"] = noisy[0]
    known = results.focus is not None and results.focus in results.methods
    parts = _of_focus(results, str(results.focus), places) if known else _of_best(results, places)
    return "\n\n".join([*parts, RULE.format(seeds=len(results.seeds))]) if parts else ""


def difference(results: Comparison, condition: str, metric: str, method: str, other: str) -> Difference:
    """Paired difference between a method and another, by seed."""

    def values(name: str) -> dict[int, float]:
        found = {run.seed: run.value(condition, metric) for run in results.of_method(name)}
        return {seed: value for seed, value in found.items() if value is not None}

    ours, theirs = values(method), values(other)
    pairs = [ours[seed] - theirs[seed] for seed in results.seeds if seed in ours and seed in theirs]
    return compute_difference(pairs, seeds=len(results.seeds))


def _means(results: Comparison, condition: str, metric: str) -> dict[str, float]:
    rows = summarise(results, condition, [metric])
    complete = {row.method: row.values[metric] for row in rows if row.values[metric].runs == len(results.seeds)}
    return {method: value.mean for method, value in complete.items() if value.mean is not None}


def _best(means: Mapping[str, float], metric: str) -> str:
    return max(means, key=lambda method: direction(metric) * means[method])


def _of_focus(results: Comparison, focus: str, places: Mapping[str, str]) -> list[str]:
    """The method in focus against the best of the others, for each condition and metric."""
    short, long = [], []
    for where, condition in places.items():
        relations: dict[str, str] = {}
        for metric in CONCLUSION_METRICS:
            means = _means(results, condition, metric)
            others = {method: mean for method, mean in means.items() if method != focus}
            if focus not in means or not others:
                continue
            baseline = _best(others, metric)
            found = difference(results, condition, metric, focus, baseline)
            label = metric_label(metric, unit=False)
            relations[label] = relation(metric, found)
            ours, theirs = (_shown(metric, each) for each in (means[focus], means[baseline]))
            long.append(f"- {label} {where}: {ours} against {theirs} of {baseline}, {shown_difference(metric, found)}")
        if relations:
            short.append(f"{where} it is {_by_metric(relations)}")
    if not short:
        return []
    return [f"{focus} against the best other method of each column: {'; '.join(short)}.", "\n".join(long)]


def _by_metric(relations: Mapping[str, str]) -> str:
    """Example: ``ahead in NLL, level in ECE``."""
    words = {"ahead of": "ahead", "level with": "level", "behind": "behind", UNKNOWN: "not comparable"}
    groups: dict[str, list[str]] = {}
    for label, each in relations.items():
        groups.setdefault(words[each], []).append(label)
    return ", ".join(f"{word} in {joined(labels)}" for word, labels in groups.items())


def _shown(metric: str, mean: float) -> str:
    return f"{100 * mean:.1f} %" if is_percent(metric) else f"{mean:.3f}"


def _of_best(results: Comparison, places: Mapping[str, str]) -> list[str]:
    """The method with the lowest NLL, and those that are not clearly worse."""
    sentences = []
    for where, condition in places.items():
        means = _means(results, condition, "nll")
        if len(means) < 2:
            continue
        best = _best(means, "nll")
        others = [method for method in means if method != best]
        level = [m for m in others if relation("nll", difference(results, condition, "nll", best, m)) != "ahead of"]
        told = f"level with it: {first_names(level)}" if level else "ahead of all others"
        sentences.append(f"Lowest NLL {where}: {best}, {means[best]:.3f}; {told}.")
    return [" ".join(sentences)] if sentences else []


def first_names(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = len(names) - MOST_NAMES
    return joined([*names[:MOST_NAMES], f"{more} more"] if more > 0 else names)
