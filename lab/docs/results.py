"""Fill pages with what `lab/results` says: for docs/tools/build.py, and `python lab/docs/results.py` for the READMEs.

A page of the documentation has calls such as `{{ table("cifar10 vgg11 selbo", "scores") }}` or
`{{ difference("cifar10 vgg11 selbo summary elbo", "clean.nll") }}`, which are replaced by a table or a number when the
documentation is built. Every study gets a page with all of its tables, `results/STUDY.md`, and figures. Nothing of that
is committed. GitHub shows a README as it is, so there what a call gives stands in the file, between
`<!-- = CALL -->` and `<!-- / -->`; a test compares the two.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import fmean

import numpy as np
from scipy.stats import ttest_rel

from selbo.plots import save_figure
from selbo.report import Difference, compute_difference, direction, is_percent, mean_and_error, signed
from selbo_lab.report import studies as statistics
from selbo_lab.report.bootstrap import holm
from selbo_lab.report.cases import cases_figure
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.overview import differences, find_cases, tables_over_cases, tracks_with_cases
from selbo_lab.report.ranks import bootstrap_interval, group_ranks
from selbo_lab.report.study_data import sort_corruptions
from selbo_lab.report.study_figures import STUDY_FIGURES, available_study_figures
from selbo_lab.report.study_outcomes import cost_of_wrong_fractions, stated_exactly
from selbo_lab.report.study_tables import TRACK_TITLES, StudyTable, build_tables, iter_tables
from selbo_lab.report.table_files import markdown
from selbo_lab.run.records import CLEAN, SHIFTS, USE, MethodRuns, Run, RunCost, StudyComparison, StudyResults
from selbo_lab.run.result_store import Store, studies_in
from selbo_lab.schedule import runner
from selbo_lab.studies import plan
from selbo_lab.studies.paper import PaperValues
from selbo_lab.studies.run_spec import Recipe

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RESULTS = ROOT / "lab" / "results"
READMES = (ROOT / "README.md", RESULTS / "README.md")
CHOICES = ROOT / "benchmarks" / "results" / "choose_by_groups.json"
CACHE = ROOT / ".cache" / "figures"
PICTURES = ("scores", "independent", "sweep", "corruption", "recall")
"""Figures that stand in the pages; the HTML report of a study has all of them."""

MOST_IN_DETAIL = 20
"""Largest number of comparisons of a study of which a page has all tables; of more it has the scores."""

CALL = re.compile(r"\{\{ (\w+\(.*?\)) \}\}", re.DOTALL)
BETWEEN = re.compile(r"\]\(((?:\.\./)*?)\.\./(?:lab/docs/|\.\./docs/)")
"""A link from a page of the library, in any folder, to one of the laboratory, or back, as GitHub needs it."""
KEPT = re.compile(r"(<!-- = (\w+\(.*?\)) -->\n?).*?(\n?<!-- / -->)", re.DOTALL)

IN_WORDS = ("", "one", "two", "three", "four")
"""Numbers of cases as tables in words have them."""

BRACKETS = "{} ({} to {})"
"""A mean and its interval."""

EXCHANGED = {"lenet-1000": "lenet-8000", "lenet-8000": "lenet-1000"}
"""Variants of `mnist35` whose clean rows are probably exchanged in the paper."""

OF_A_SUMMARY = (
    *("partition", "belief", "concentration", "per_example", "form", "pool_draws", "ema_decay"),
    *("summary_inputs", "summary_warmup"),
)
"""Settings that do nothing where there is no belief."""

SETTINGS = {
    "weight_decay": "precision",
    "accuracy_concentration": "concentration of the accuracy",
    "vat_weight": "weight of the consistency",
}
"""Names of the settings of methods for groups."""

WITHOUT_SUMMARY = ("elbo", "label_smoothing", "evidential")
"""Objectives that look at no belief."""


# --- pages ---


def write_pages(folder: Path) -> None:
    """Write the pages of this folder and the page of each study, with its figures, for the documentation."""
    drawing = draw_missing()
    for page in sorted(HERE.rglob("*.md")):
        write(folder / page.relative_to(HERE), page.read_text(encoding="utf-8"))
    for study in studies():
        write(folder / "results" / f"{study}.md", full_page(study))
    if drawing is not None:
        drawing.join()
        if drawing.exitcode:
            raise RuntimeError("the figures of the results could not be drawn: see above")
    for path in (path for study in studies() for path in draw(study)):
        target = folder / "images" / "results" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def write(path: Path, text: str) -> None:
    """Write a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(filled(text), encoding="utf-8")


def filled(text: str) -> str:
    """A page with what its calls give, and links between the two folders of pages as if they were one."""
    return CALL.sub(lambda match: evaluate(match[1]), BETWEEN.sub(lambda match: f"]({match[1]}", text))


def refreshed(text: str) -> str:
    """A README with what its calls give now."""
    return KEPT.sub(lambda match: f"{match[1]}{evaluate(match[2]).rstrip()}{match[3]}", text)


def evaluate(call: str) -> str:
    """What a call in a page gives."""
    try:
        return str(eval(call, {"__builtins__": {}}, CALLS))
    except Exception as error:
        raise ValueError(f"the call {call} of a page fails: {error!r}") from error


# --- what pages can call ---


@cache
def gathered(study: str) -> StudyResults:
    """The results of a study."""
    return runner.gather(RESULTS / study)


def studies() -> list[str]:
    """Names of the studies that have results, in the order of their files."""
    return [folder.name for folder in studies_in(RESULTS)]


def case_of(where: str) -> StudyComparison:
    """A comparison by study, variant and track, such as ``cifar10 vgg11 selbo``."""
    study, variant, track = where.split()
    (found,) = (each for each in gathered(study).of_track(track) if each.variant == variant)
    return found


def runs_of(where: str, name: str) -> list[Run]:
    """The runs of a method, all of which must be there."""
    found = case_of(where).method(name)
    assert len(found.there) == len(found.runs), f"{where} has runs missing"
    return found.there


@cache
def case_tables(where: str) -> list[StudyTable]:
    """All tables of a comparison, by study, variant and track; pages take some of them."""
    return build_tables(gathered(where.split(maxsplit=1)[0]), case_of(where))


@cache
def study_tables(study: str, track: str) -> list[StudyTable]:
    """Tables over all cases of a study. The bootstrap of a primary outcome takes seconds."""
    return tables_over_cases(gathered(study), track)


def table(where: str, name: str, columns: str = "", methods: str = "") -> str:
    """A table of a comparison.

    Args:
        where: Study, variant and track.
        name: Name of the table.
        columns: With columns such as ``NLL,ECE``, only those whose names begin with one of these.
        methods: With methods such as ``elbo,summary``, only their rows, and of the notes the last: what was run.
    """
    (made,) = (each for each in case_tables(where) if each.name == name)
    made = narrowed(made, columns.split(",")) if columns else made
    if methods:
        rows = [row for row in made.rows if row[0].method in methods.split(",")]
        made = made._replace(rows=rows, notes=made.notes[-1:])
    return markdown(made)


def over_cases(study: str, name: str, track: str = "selbo") -> str:
    """A table over all cases of a study: ``overview``, ``primary`` or ``wrong-fractions``."""
    (made,) = (each for each in study_tables(study, track) if each.name == name)
    return markdown(made)


def ranks_among(study: str, methods: str) -> str:
    """Mean ranks of some methods for groups, such as ``belief,proportion``."""
    made = group_ranks(gathered(study), "selbo", methods.split(","))
    assert made is not None, f"{study} is not about groups"
    return markdown(made)


def ahead_of(study: str, one: str, other: str) -> str:
    """In how many cases of a study a method has the lower NLL, and the higher one: ``ahead in 9 and behind in 2``."""
    cases, column = find_cases(gathered(study), "selbo")
    gaps = [each.mean or 0.0 for each in differences(cases, one, other, column) if each.clear]
    return f"ahead in {sum(gap < 0 for gap in gaps)} and behind in {sum(gap > 0 for gap in gaps)} of {len(cases)}"


def stated_and_reached(study: str, method: str) -> str:
    """How the ECE follows the distance between the stated and the reached accuracy, over the cases of a study."""
    cases, _ = find_cases(gathered(study), "selbo")
    means = [
        [fmean(run.conditions[CLEAN].metrics[name] or 0.0 for run in case.method(method).there) for case in cases]
        for name in ("accuracy", "ece")
    ]
    gaps = np.array([case.data.group_accuracy for case in cases]) - means[0]
    found = short(float(np.corrcoef(np.abs(gaps), means[1])[0, 1]), 2, sign=False)
    return f"correlation {found}; {(gaps > 0).sum()} of {len(cases)} are overconfident"


def ranks_with_labels(methods: str) -> str:
    """Mean ranks of some methods over the cases of `groups` and `groups-labels`, where their names have a prefix."""
    alone, few = gathered("groups"), gathered("groups-labels")
    renamed = [
        replace(case, methods=tuple(replace(each, name=each.name.removeprefix("labels-")) for each in case.methods))
        for case in few.comparisons
    ]
    both = replace(alone, title=f"{alone.title}, and a few labels", comparisons=(*alone.comparisons, *renamed))
    made = group_ranks(both, "selbo", methods.split(","))
    assert made is not None
    return markdown(made)


def ends_of_grids(study: str) -> str:
    """In how many cases each method of a study chose the smallest and the largest value of a setting."""
    lines = [
        "| method | setting | values | cases | smallest chosen | largest chosen |",
        "| :--- | :--- | ---: | ---: | ---: | ---: |",
    ]
    cases = gathered(study).comparisons
    for method in cases[0].methods:
        if method.chosen_with:  # its settings are those of another row
            continue
        for name in method.chosen:
            values = sorted({each.settings[name] for each in method.tried})
            chosen = [case.method(method.name).chosen[name] for case in cases]
            cells = (method.title, SETTINGS[name], len(values), len(cases))
            ends = [f"{chosen.count(end)} ({end:g})" for end in (values[0], values[-1])]
            lines.append(f"| {' | '.join(map(str, (*cells, *ends)))} |")
    return "\n".join(lines) + "\n"


@cache
def choices() -> dict[str, list[tuple[str, dict[str, float]]]]:
    """By method, the title of each case and the mean test NLL of each way to choose settings for it."""
    cases = {each.variant: each for each in gathered("groups").comparisons}
    found: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for each in json.loads(CHOICES.read_text(encoding="utf-8"))["runs"]:
        case, test = cases[each["case"]], [fmean(seeds) for seeds in each["test_nll"]]
        nll = {"held-out groups": test[each["precisions"].index(case.method(each["method"]).chosen["weight_decay"])]}
        for labels, shares in each["chosen_by_labels"].items():
            nll[f"{labels} labels"] = sum(a * b for a, b in zip(shares, test, strict=True))
        nll |= {"best setting": min(test), "mean of the settings": fmean(test)}
        found.setdefault(each["method"], []).append((case.title, nll))
    return found


def choice_by_groups(*, by_case: bool = False) -> str:
    """Mean test NLL of settings that held-out groups or labels of their rows choose, over cases or for each case."""
    titles = gathered("groups").comparisons[0].titles
    heads = ("held-out groups", "200 labels", "1000 labels", "all labels", "best setting", "mean of the settings")
    first = "case | method" if by_case else "method"
    lines = [f"| {first} | {' | '.join(heads)} |", "|" + " :--- |" * (1 + by_case) + " ---: |" * len(heads)]
    rows: list[tuple[str, list[dict[str, float]]]] = []
    for method, found in choices().items():
        if by_case:
            rows += [(f"{case} | {titles[method]}", [nll]) for case, nll in found]
        else:
            rows.append((titles[method], [nll for _, nll in found]))
    for title, all_nll in sorted(rows, key=lambda row: row[0]) if by_case else rows:
        lines.append(f"| {title} | {' | '.join(f'{fmean(each[head] for each in all_nll):.3f}' for head in heads)} |")
    return "\n".join(lines) + "\n"


def choice_loss(method: str, other: str) -> str:
    """Test NLL of the choice by held-out groups less that of another choice: its mean and interval over cases."""
    gaps = np.array([nll["held-out groups"] - nll[other] for _, nll in choices()[method]])
    mean, low, high = (short(each, 3) for each in (float(gaps.mean()), *bootstrap_interval(gaps)))
    return f"{mean} ({low} to {high})"


def difference(
    where: str,
    one: str,
    other: str,
    column: str,
    *,
    scaled: bool = False,
    other_scaled: bool | None = None,
    pairs: int | None = None,
    unit: str = "",
    brackets: bool = False,
    words: str = "",
    digits: int | None = None,
    sign: bool = True,
) -> str:
    """A method less another, with its interval: ``−.163, −.182 to −.144``, or ``−.163 (−.182 to −.144)``.

    Args:
        where: Study, variant and track.
        one: A method.
        other: Another, or one of another study with the same variant and track: ``cifar10/summary``.
        column: A column such as ``clean.nll``.
        scaled: Whether both have temperature scaling.
        other_scaled: Whether the other has it, if not as the first.
        pairs: Number of seeds that have both, if not all.
        unit: What stands behind the mean, such as ``points``.
        brackets: Whether the interval stands in brackets.
        words: What to say instead, with mean, low and high as ``{}``: ``{}`` alone is the mean without an interval.
        digits: Number of decimals, if not that of tables.
        sign: Whether a positive number has its sign.
    """
    study, _, name = other.rpartition("/")
    there = f"{study} {where.partition(' ')[2]}" if study else where
    ours, theirs, which = case_of(where).method(one), case_of(there).method(name), MetricColumn.parse(column)
    found = statistics.paired(ours, theirs, which, scaled, reference_scaled=other_scaled)
    assert found.pairs == (found.seeds if pairs is None else pairs), f"{where} has runs missing"
    words = words or (BRACKETS if brackets else "")
    return with_interval(found, which.metric, unit=unit, words=words, digits=digits, sign=sign)


def score(
    where: str,
    method: str,
    column: str,
    *,
    scaled: bool = False,
    seeds: Container[int] | None = None,
    unit: str = " %",
    fraction: bool = False,
    digits: int | None = None,
) -> str:
    """Mean over seeds of a column such as ``corrupted.nll``, in per cent where tables have it so.

    Args:
        where: Study, variant and track.
        method: A method, or several, for the lowest and the highest of their means: ``.249 to .272``.
        column: A column. A metric alone, such as ``nll``, is that of clean data or, if there is one, of the target
            domain.
        scaled: Whether it is after temperature scaling.
        seeds: Seeds, if not all.
        unit: What stands behind a number in per cent.
        fraction: Whether it is a fraction such as .829 instead of 82.9 %.
        digits: Number of decimals, if not that of tables.
    """
    found = sorted(mean_of(where, name, column, scaled=scaled, seeds=seeds) for name in method.split(","))
    ends = found if len(found) == 1 else (found[0], found[-1])
    if fraction or not is_percent(found[0][1]):
        return " to ".join(short(mean, 3 if digits is None else digits, sign=False) for mean, _ in ends)
    return " to ".join(in_words(mean, metric, digits, sign=False) for mean, metric in ends) + unit


def misses(where: str, method: str, column: str, goal: float, *, digits: int | None = None) -> str:
    """By how much the mean of a column misses a goal such as .008, in percentage points where tables have per cent."""
    mean, metric = mean_of(where, method, column)
    gap = direction(metric) * (goal - mean)
    assert gap > 0, f"{method} of {where} meets the goal {goal}"
    return in_words(gap, metric, digits, sign=False)


def mean_of(
    where: str, method: str, column: str, *, scaled: bool = False, seeds: Container[int] | None = None
) -> tuple[float, str]:
    """Mean of a column over all seeds, which must be there, or over some; and its metric."""
    case = case_of(where)
    which = MetricColumn.parse(column if "." in column else f"{case.place}.{column}")
    runs = [run for run in runs_of(where, method) if seeds is None or run.spec.seed in seeds]
    mean = statistics.mean_of_all(statistics.value(run, which, scaled) for run in runs)
    assert mean is not None, f"{where} has no {which}"
    return mean, which.metric


def temperatures(where: str, method: str, words: str = "{} to {}") -> str:
    """Lowest and highest of the fitted temperatures of a method, and their mean, in words."""
    found = [run.temperature for run in runs_of(where, method) if run.temperature is not None]
    return words.format(*(short(each, 2, sign=False) for each in (min(found), max(found), fmean(found))))


def tried(where: str, method: str, **settings: float) -> str:
    """Validation NLL of candidate settings of a method, at the seed for tuning."""
    (found,) = (
        each.val_nll
        for each in case_of(where).method(method).tried
        if all(each.settings[name] == number for name, number in settings.items())
    )
    assert found is not None, f"{where} has no run with {settings}"
    return in_words(found, "nll", sign=False)


def tally(where: str, one: str, other: str, column: str) -> str:
    """In how many cases of a study and track a method is better by its interval, level, or worse: ``| three | one``."""
    study, track = where.split()
    which, counts = MetricColumn.parse(column), [0, 0, 0]
    for case in gathered(study).of_track(track):
        found = statistics.paired(case.method(one), case.method(other), which)
        assert found.pairs == found.seeds, f"{where} has runs missing"
        better = (found.mean or 0.0) * direction(which.metric) > 0
        counts[1 if not found.clear else 0 if better else 2] += 1
    return " | ".join(IN_WORDS[each] for each in counts).replace("  ", " ").strip()


def with_interval(
    found: Difference,
    metric: str = "nll",
    *,
    unit: str = "",
    words: str = "",
    digits: int | None = None,
    sign: bool = True,
) -> str:
    """A difference and its interval, in percentage points where tables have per cent."""
    ends = (found.mean, found.low, found.high)
    mean, low, high = (in_words(each or 0.0, metric, digits, sign=sign) for each in ends)
    return (words or "{}, {} to {}").format(f"{mean} {unit}".rstrip(), low, high)


def in_words(number: float, metric: str, digits: int | None = None, *, sign: bool = True) -> str:
    """A number of a metric as sentences have it, in per cent or percentage points where tables have them."""
    scale, usual = (100, 1) if is_percent(metric) else (1, 3)
    return short(scale * number, usual if digits is None else digits, sign=sign)


def short(number: float, digits: int, *, sign: bool = True) -> str:
    """A number as sentences have it: without a zero before the point, and with its sign, or with a minus only."""
    shown = f"{number:+.{digits}f}".replace("-", "−")
    shown = shown[0] + (shown[1:].removeprefix("0") or "0")
    return shown if sign else shown.removeprefix("+")


def by_corruption(where: str, name: str) -> dict[str, float]:
    """Mean NLL of a method under each corruption, over strengths and seeds."""
    kinds = sort_corruptions(case_of(where)).kinds
    return {kind: fmean(nll(run, kinds[kind]) for run in runs_of(where, name)) for kind in kinds}


def nll(run: Run, conditions: Iterable[str], *, scaled: bool = False) -> float:
    """Mean NLL of a run over some conditions."""
    found = statistics.mean_of_all(statistics.value(run, MetricColumn(each, "nll"), scaled) for each in conditions)
    assert found is not None, f"run {run.id} lacks a condition"
    return found


def under(where: str, name: str, corruption: str) -> str:
    """Mean NLL of a method under one corruption."""
    return f"{by_corruption(where, name)[corruption]:.2f}"


def corruptions_lower(where: str, one: str, other: str) -> int:
    """Under how many corruptions the first method has the lower mean NLL."""
    ours, theirs = by_corruption(where, one), by_corruption(where, other)
    return sum(ours[kind] < theirs[kind] for kind in ours)


def corruptions_by_interval(where: str, one: str, other: str, how: str) -> int:
    """Under how many corruptions the first method is ``ahead``, ``level`` or ``behind``, by its interval."""
    counts = {"ahead": 0, "level": 0, "behind": 0}
    for conditions in sort_corruptions(case_of(where)).kinds.values():
        pairs = zip(runs_of(where, one), runs_of(where, other), strict=True)
        gaps = [nll(ours, conditions) - nll(theirs, conditions) for ours, theirs in pairs]
        found = compute_difference(gaps, seeds=len(gaps))
        counts["level" if not found.clear else "ahead" if (found.mean or 0) < 0 else "behind"] += 1
    return counts[how]


def without_noise(where: str, one: str, other: str, *, scaled: bool = False) -> str:
    """How much lower the NLL of the first method is, over corruptions that are neither noise nor glass blur."""
    kinds = sort_corruptions(case_of(where)).kinds
    kept = [each for kind in kinds if "noise" not in kind and "glass" not in kind for each in kinds[kind]]
    ours, theirs = ([nll(run, kept, scaled=scaled) for run in runs_of(where, name)] for name in (one, other))
    found = compute_difference([b - a for a, b in zip(ours, theirs, strict=True)], seeds=5)
    mean, low, high = (short(each or 0.0, 3, sign=False) for each in (found.mean, found.low, found.high))
    assert (found.low or 0) > 0, "the first method is not ahead"
    return f"{mean} ({low} to {high})"


def overlap(*where: str, words: str = "{} of {}") -> str:
    """How many of the paper's numbers overlap with ours in some comparisons, without evidential learning."""
    found = [each for one in where for each in statistics.overlaps(case_of(one)) if each is not None]
    return words.format(sum(found), len(found))


def summary_run_twice(*names: str, metric: str = "nll", lower: bool = False, unit: str = "") -> str:
    """What the summary changes on clean images of CIFAR-10 in `ablation`, in `alpha`, or in both pooled.

    Args:
        names: Studies.
        metric: A metric.
        lower: Whether to say how much lower it is with the summary.
        unit: What stands behind the mean.
    """
    gaps, column = [], MetricColumn(CLEAN, metric)
    for study in names:
        where, name = f"{study} vgg11 selbo", {"ablation": "base", "alpha": "alpha-0.1"}[study]
        pairs = zip(runs_of(where, name), runs_of(where, "none"), strict=True)
        both = [[statistics.value(run, column) or 0.0 for run in pair] for pair in pairs]
        gaps += [theirs - ours if lower else ours - theirs for ours, theirs in both]
    found = compute_difference(gaps, seeds=len(gaps))
    return with_interval(found, metric, unit=unit, words=BRACKETS, sign=not lower)


def outcome(name: str, *, cells: bool = True) -> str:
    """The primary outcome on label shift: the Summary ELBO with class fractions less another method, as two cells."""
    (primary,) = (each for each in study_tables("primary-shift", "selbo") if each.name == "primary")
    (found,) = (row for row in primary.raw if row["method"] == name)
    mean, low, high = (short(found[key], 3) for key in ("difference", "low", "high"))
    return f"{mean} | {low} to {high}" if cells else f"{mean}, {low} to {high}"


def wrong(name: str, key: str, over: str = "") -> str:
    """What `wrong-fractions` says of a method: ``gain``, or a cost such as ``off_0.10``; or its share of another's."""
    made = cost_of_wrong_fractions(gathered("wrong-fractions"), "selbo")
    assert made is not None
    found = {row["method"]: row for row in made.raw}
    if over:
        return f"{100 * found[name][key] / found[over][key]:.0f} %"
    return short(found[name][key], 3, sign=False)


def settings_tried() -> str:
    """Validation NLL and fitted temperature of ELBO and Summary ELBO with narrower priors, at the seed for tuning."""
    tuned = {}
    for run in Store(RESULTS / "cifar10-prior").all():
        recipe = run.spec.recipe
        if run.spec.seed >= plan.TUNING_SEED and run.val is not None:
            shown = f"{short(run.val.value('nll') or 0.0, 3, sign=False)} | {run.temperature:.2f}".replace(
                "| 0.", "| ."
            )
            tuned[recipe.objective, recipe.prior_std, recipe.kl_weight] = shown
    lines = [
        "| prior | KL times | ELBO: NLL | temperature | Summary ELBO: NLL | temperature |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for prior, kl in sorted({key[1:] for key in tuned}):
        both = " | ".join(tuned[name, prior, kl] for name in ("elbo", "summary_elbo"))
        lines.append(f"| {f'{prior:g}'[1:]} | {f'{kl:g}'[1:]} | {both} |")
    return "\n".join(lines) + "\n"


LABEL_SHIFT = ("shift-sst", "shift-mnist35", "shift-tables", "shift-cifar10")
"""Studies with unlabelled inputs of a target domain whose every method was tuned for itself."""


def ahead_and_behind(other: str, *, scaled: bool = False, after_holm: bool = False) -> tuple[int, int, int]:
    """In how many cases class fractions are ahead of another method and behind it, of how many (paired t-test, 5 %)."""
    found = []
    for study in LABEL_SHIFT:
        for case in gathered(study).comparisons:
            if other not in case.titles:
                continue
            pairs = [case.method(name).there for name in ("fractions", other)]
            test = ttest_rel(*([nll(run, [USE], scaled=scaled) for run in runs] for runs in pairs))
            found.append((test.pvalue, test.statistic < 0))
    p_values = [p_value for p_value, _ in found]
    clear = holm(p_values) if after_holm else [p_value < 0.05 for p_value in p_values]
    chosen = [better for (_, better), kept in zip(found, clear, strict=True) if kept]
    return sum(chosen), len(chosen) - sum(chosen), len(found)


def count(other: str, scores: str = "metrics", *, after_holm: bool = False, words: str = "{}, {}") -> str:
    """In how many cases class fractions are ahead and behind, and of how many, in words; ``scaled`` after scaling."""
    return words.format(*ahead_and_behind(other, scaled=scores == "scaled", after_holm=after_holm))


@cache
def frozen_means(study: str) -> dict[str, list[dict[str, float]]]:
    """Mean metrics of each method of a study of frozen classifiers, one entry per case.

    A case is a target domain: a comparison with one, or each test set of a comparison without.
    """
    found: dict[str, list[dict[str, float]]] = {}
    for case in gathered(study).comparisons:
        for method in case.methods:
            runs = runs_of(f"{study} {case.variant} {case.track}", method.name)
            for place in [USE] if case.has_target_domain else runs[0].conditions:
                means = {
                    metric: fmean(run.conditions[place].metrics[metric] or 0.0 for run in runs)
                    for metric in ("nll", "ece", "accuracy")
                }
                found.setdefault(method.name, []).append(means)
    return found


def at_most(study: str, method: str, other: str, metric: str) -> list[bool]:
    """For each case of a study of frozen classifiers, whether a metric of a method is at most that of another."""
    means = frozen_means(study)
    return [one[metric] <= two[metric] for one, two in zip(means[method], means[other], strict=True)]


def frozen(methods: str = "", study: str = "frozen") -> str:
    """Means over the cases of a study of frozen classifiers, and in how many each method is as good as 100 labels.

    With methods such as ``raw,both``, only their rows.
    """
    means, titles = frozen_means(study), gathered(study).comparisons[0].titles
    lines = [
        "| correction | NLL ↓ | ECE, % ↓ | accuracy, % ↑ | NLL ≤ temperature scaling, 100 labels "
        "| ECE ≤ the same | largest NLL above *as predicted* |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, cases in ((name, means[name]) for name in (methods.split(",") if methods else means)):
        average = {metric: fmean(each[metric] for each in cases) for metric in cases[0]}
        wins = [sum(at_most(study, name, "temperature-100", metric)) for metric in ("nll", "ece")]
        worst = max(one["nll"] - other["nll"] for one, other in zip(cases, means["raw"], strict=True))
        shown = (f"{average['nll']:.3f}", f"{100 * average['ece']:.1f}", f"{100 * average['accuracy']:.1f}")
        cells = (titles[name], *shown, *(f"{each} of {len(cases)}" for each in wins), f"{worst:+.3f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def frozen_mean(method: str, metric: str, study: str = "frozen") -> str:
    """Mean of a metric over the cases of a study of frozen classifiers."""
    return short(fmean(each[metric] for each in frozen_means(study)[method]), 3, sign=False)


def frozen_share(methods: str, metric: str, study: str = "frozen") -> str:
    """Per cent of the cases of some methods, such as ``a,b``, in which a metric is at most that of 100 labels."""
    found = [each for name in methods.split(",") for each in at_most(study, name, "temperature-100", metric)]
    return f"{100 * fmean(found):.0f} %"


def labels_worth(study: str, methods: str) -> str:
    """In how many cases methods, such as ``a,b``, are at least as good as temperature scaling with some labels."""
    titles, numbers = gathered(study).comparisons[0].titles, (20, 100, 1000)
    heads = [f"{metric.upper()} ≤ {number} labels" for metric in ("nll", "ece") for number in numbers]
    lines = ["| correction | " + " | ".join(heads) + " |", "| :--- |" + " ---: |" * len(heads)]
    for name in methods.split(","):
        found = [at_most(study, name, f"temperature-{n}", metric) for metric in ("nll", "ece") for n in numbers]
        lines.append(f"| {titles[name]} | " + " | ".join(f"{sum(each)} of {len(each)}" for each in found) + " |")
    return "\n".join(lines)


def by_shift(study: str, methods: str) -> str:
    """Mean NLL over the cases of a study with many target domains, by size of the label shift, for some methods."""
    cases = [each for each in gathered(study).comparisons if each.data.prevalences]
    lines = ["| correction | " + " | ".join(SHIFTS) + " |", "| :--- |" + " ---: |" * len(SHIFTS)]
    for name in methods.split(","):
        means = [
            fmean(run.conditions[each].metrics["nll"] or 0.0 for case in cases for run in case.method(name).there)
            for each in SHIFTS
        ]
        lines.append(f"| {cases[0].titles[name]} | " + " | ".join(f"{each:.3f}" for each in means) + " |")
    return "\n".join(lines)


def counts() -> str:
    """Class fractions as a belief against all other methods, over all cases of label shift and few labels."""
    lines = [
        "| against | cases | as predicted: ahead | behind | temperature scaling on both: ahead | behind "
        "| after Holm: ahead | behind |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    titles = {name: title for study in LABEL_SHIFT for name, title in gathered(study).comparisons[0].titles.items()}
    for name, title in titles.items():
        if name != "fractions":
            ahead, behind, cases = ahead_and_behind(name)
            scaled, corrected = ahead_and_behind(name, scaled=True), ahead_and_behind(name, after_holm=True)
            cells = (title, cases, ahead, behind, *scaled[:2], *corrected[:2])
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def overlaps() -> str:
    """How many of the paper's values overlap with ours, case by case, with evidential learning counted by itself."""
    lines = ["| study | case | overlap | EDL | EDL runs at chance |", "| :--- | :--- | ---: | ---: | ---: |"]
    for study in studies():
        cases = {each.variant: each for each in gathered(study).of_track("published")}
        lines += [
            f"| `{study}` | {case.title} | {_agreement(case)} |"
            for case in cases.values()
            if any(each is not None for each in statistics.overlaps(case))
        ]
        for variant, case in cases.items():
            if study == "mnist35" and variant in EXCHANGED:
                other = with_clean_rows_of(case.paper, cases[EXCHANGED[variant]].paper)
                lines.append(f"| `{study}` | {case.title}, clean rows exchanged | {_agreement(case, other)} |")
    return "\n".join(lines) + "\n"


def _agreement(case: StudyComparison, paper: PaperValues | None = None) -> str:
    found = [statistics.overlaps(case, evidential=alone, paper=paper) for alone in (False, True)]
    known = [[each for each in part if each is not None] for part in found]
    counts = [f"{sum(part)} of {len(part)}" if part else "–" for part in known]
    apart = [method for method in case.methods if statistics.is_evidential(method)]
    runs = sum(len(method.runs) for method in apart)
    return " | ".join([*counts, f"{sum(map(statistics.one_class_runs, apart))} of {runs}" if runs else "–"])


def with_clean_rows_of(paper: PaperValues, other: PaperValues) -> PaperValues:
    """What the paper reports of one case, with the values on the clean test set of another."""
    methods = {
        name: replace(found, values={**found.values, **_clean(other.methods[name].values)})
        for name, found in paper.methods.items()
    }
    return replace(paper, methods=methods)


def _clean(values: Mapping[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    return {name: each for name, each in values.items() if MetricColumn.parse(name).place == CLEAN}


def repeated() -> list[tuple[tuple[str, MethodRuns], tuple[str, MethodRuns]]]:
    """Methods that two studies trained alike: same data, network and recipe, and at least one seed in common."""
    seen: dict[Hashable, tuple[str, MethodRuns]] = {}
    found = []
    for study in studies():
        for comparison in gathered(study).comparisons:
            for method in comparison.methods:
                key = comparison.data, comparison.model, what_is_trained(method.recipe)
                first = seen.setdefault(key, (study, method))
                if first[0] != study and shared_seeds(first[1], method):
                    found.append((first, (study, method)))
    return found


def what_is_trained(recipe: Recipe) -> Recipe:
    """A recipe without the settings that do nothing in it."""
    believes = recipe.belief and recipe.objective not in WITHOUT_SUMMARY
    return recipe if believes else replace(recipe, **{name: getattr(Recipe, name) for name in OF_A_SUMMARY})


def shared_seeds(first: MethodRuns, second: MethodRuns) -> list[tuple[Run, Run]]:
    """Runs of two methods with the same seed; one run that both studies store is no repeat."""
    theirs = {run.spec.seed: run for run in second.there}
    pairs = [(run, theirs[run.spec.seed]) for run in first.there if run.spec.seed in theirs]
    return [(run, other) for run, other in pairs if run.made_by != other.made_by]


def repeats() -> str:
    """What was run twice, with the clean NLL of both."""
    lines = [
        "| method | study A | study B | seeds | clean NLL, A | clean NLL, B | B less A |",
        "| :--- | :--- | :--- | ---: | ---: | ---: | ---: |",
    ]
    for (study, method), (again, other) in repeated():
        pairs = shared_seeds(method, other)
        ones, twos = ([nll(pair[i], [CLEAN]) for pair in pairs] for i in (0, 1))
        both = [f"{mean_and_error(each)[0]:.3f}" for each in (ones, twos)]
        gap = compute_difference([b - a for a, b in zip(ones, twos, strict=True)], seeds=len(pairs))
        ends = [signed("nll", number) for number in (gap.mean, gap.low, gap.high) if number is not None]
        names = " / ".join(dict.fromkeys((method.title, other.title)))
        cells = (names, f"`{study}`", f"`{again}`", str(len(pairs)), *both, f"{ends[0]} [{ends[1]}, {ends[2]}]")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def times() -> str:
    """How long the runs of each study took, by machine; a run that two studies store counts for the first."""
    lines = ["| study | machine | runs | time |", "| :--- | :--- | ---: | ---: |"]
    counted: set[RunCost] = set()
    for study in studies():
        spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        costs = [run for run in Store(RESULTS / study).all_costs() if run not in counted]
        counted.update(costs)
        for run in costs:
            begin = datetime.fromisoformat(run.made_by.time.replace("Z", "+00:00")).timestamp()
            spans[run.made_by.machine].append((begin, begin + run.seconds.all))
        for machine, found in sorted(spans.items()):
            minutes, seconds = divmod(round(covered(found)), 60)
            name = machine.replace("_", r"\_")
            lines.append(f"| `{study}` | {name} | {len(found)} | {minutes} min {seconds:02} s |")
    return "\n".join(lines) + "\n"


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of what some spans of time cover together."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def narrowed(table: StudyTable, words: list[str]) -> StudyTable:
    """A table with its first column, and those whose names begin with one of some words."""
    kept = [0, *(i for i, head in enumerate(table.heads) if i > 0 and head.label.startswith(tuple(words)))]
    return table._replace(
        heads=[table.heads[i] for i in kept],
        rows=[[row[i] for i in kept] for row in table.rows],
        align="".join(table.align[i] for i in kept),
    )


def full_page(study: str) -> str:
    """All tables of a study, with the figures behind those of each comparison."""
    found = gathered(study)
    parts = [
        f"---\nhide: [toc]\n---\n\n# {found.title}: all tables\n",
        f"In the paper: {found.paper}. Made from `lab/results/{study}.jsonl.xz`; "
        f"`selbo report lab/results` makes the same tables as LaTeX and CSV, all figures, and an HTML report.\n",
    ]
    for track in found.tracks:
        title = TRACK_TITLES[track]
        parts.append(f"## {title[0].upper()}{title[1:]}\n")
        parts += [f"### {table.title}\n\n{markdown(table)}" for table in study_tables(study, track)]
        if track in tracks_with_cases(found):
            parts.append(f"![{found.title}, {title}: all cases](../images/results/{study}-cases-{track}.png)\n")
        comparisons = list(filter(stated_exactly, found.of_track(track)))
        for comparison in comparisons:
            if len(comparisons) > MOST_IN_DETAIL:
                shown = [next(iter_tables(found, comparison))]
            else:
                shown = case_tables(f"{study} {comparison.variant} {track}")
            parts += [f"### {table.title}\n\n{markdown(table)}" for table in shown]
            parts += [
                f"![{comparison.title}, {title}: {kind}](../images/results/{name}.png)\n"
                for kind, name in pictures(study, comparison)
            ]
    return "\n".join(parts)


def pictures(study: str, comparison: StudyComparison) -> Iterator[tuple[str, str]]:
    """Kind and name of the pictures of a comparison."""
    for kind in available_study_figures(gathered(study), comparison):
        if kind in PICTURES:
            yield kind, f"{study}-{kind}-{comparison.variant}-{comparison.track}"


def cache_of(study: str) -> Path:
    """Folder of the pictures of a study, for each state of its results another."""
    return CACHE / f"{study}-{hashlib.sha256(Store(RESULTS / study).packed.read_bytes()).hexdigest()[:16]}"


def draw_missing() -> BaseProcess | None:
    """Begin to draw what is not there yet in another process, which takes about as long as making the tables.

    It is forked, so that the results are read once, which takes a third of that time. Where a fork is not safe,
    `write_pages` draws what is missing.
    """
    missing = [study for study in studies() if not cache_of(study).exists()]
    if not missing or sys.platform != "linux":
        return None
    for study in studies():
        gathered(study)
    drawing = multiprocessing.get_context("fork").Process(target=draw_all, args=(missing,))
    drawing.start()
    return drawing


def draw_all(names: Iterable[str]) -> None:
    """Draw the pictures of some studies."""
    for study in names:
        draw(study)


def draw(study: str) -> list[Path]:
    """The pictures of a study; drawn once for each state of its results."""
    folder, found = cache_of(study), gathered(study)
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=CACHE))
        for track in tracks_with_cases(found):
            save_figure(cases_figure(found, track), unfinished, f"{study}-cases-{track}", formats=["png"])
        for comparison in found.comparisons:
            for kind, name in pictures(study, comparison):
                save_figure(STUDY_FIGURES[kind].draw(comparison), unfinished, name, formats=["png"])
        unfinished.rename(folder)
    return sorted(folder.glob("*.png"))


CALLS = {
    function.__name__: function
    for function in (
        *(table, over_cases, ranks_among, counts, overlaps, repeats, times, settings_tried, difference, under),
        *(
            corruptions_lower,
            corruptions_by_interval,
            without_noise,
            overlap,
            summary_run_twice,
            outcome,
            wrong,
            count,
        ),
        *(ranks_with_labels, ahead_of, stated_and_reached, ends_of_grids, choice_by_groups, choice_loss),
        *(
            frozen,
            frozen_mean,
            frozen_share,
            labels_worth,
            by_shift,
            score,
            tally,
            tried,
            misses,
            temperatures,
        ),
    )
}

if __name__ == "__main__":
    for page in READMES:
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
