"""Fill pages with what `lab/results` says: a hook of MkDocs, and `python docs/results.py` for the READMEs.

A page of the documentation has calls such as `{{ table("cifar10 vgg11 selbo", "scores") }}` or
`{{ difference("cifar10 vgg11 selbo summary elbo", "clean.nll") }}`, which are replaced by a table or a number when the
documentation is built. Every study gets a page with all of its tables, `results/STUDY.md`, and figures. Nothing of that
is committed. GitHub shows a README as it is, so there what a call gives stands in the file, between
`<!-- = CALL -->` and `<!-- / -->`; a test compares the two.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from scipy.stats import ttest_rel

from selbo.plots import style
from selbo.report import Difference, difference_of, signed
from selbo_lab.report import studies as statistics
from selbo_lab.report.bootstrap import holm
from selbo_lab.report.cases import cases_figure
from selbo_lab.report.overview import tables_over_cases, tracks_with_cases
from selbo_lab.report.study_figures import FIGURES, available
from selbo_lab.report.study_outcomes import cost_of_wrong_fractions, primary_outcome, stated_exactly
from selbo_lab.report.study_tables import TRACKS, Table, tables_of
from selbo_lab.report.table_files import markdown
from selbo_lab.run.result_store import Store, studies_in
from selbo_lab.schedule import runner
from selbo_lab.studies import plan

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "lab" / "results"
READMES = (ROOT / "README.md", RESULTS / "README.md")
CACHE = ROOT / ".cache" / "figures"
PICTURES = ("scores", "independent", "sweep", "corruption", "recall")
"""Figures that stand in the pages; the HTML report of a study has all of them."""

CALL = re.compile(r"\{\{ (\w+\(.*?\)) \}\}", re.DOTALL)
KEPT = re.compile(r"(<!-- = (\w+\(.*?\)) -->\n?).*?(\n?<!-- / -->)", re.DOTALL)

EXCHANGED = {"lenet-1000": "lenet-8000", "lenet-8000": "lenet-1000"}
"""Variants of `mnist35` whose clean rows are probably exchanged in the paper."""

OF_A_SUMMARY = (
    *("partition", "belief", "concentration", "per_example", "form", "pool_draws", "ema_decay"),
    *("summary_inputs", "summary_warmup"),
)
"""Settings that do nothing where there is no belief."""

WITHOUT_SUMMARY = ("elbo", "label_smoothing", "evidential")
"""Objectives that look at no belief."""


# --- pages ---


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Called by MkDocs: add the page of each study, and its figures."""
    from mkdocs.structure.files import File

    draw_all()
    for study in studies():
        files.append(File.generated(config, f"results/{study}.md", content=full_page(study)))
        for path in draw(study):
            files.append(File.generated(config, f"images/results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(text: str, **_: object) -> str:
    """Called by MkDocs: fill the calls of a page."""
    return CALL.sub(lambda match: evaluate(match[1]), text)


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
def gathered(study: str) -> dict[str, Any]:
    """The results of a study."""
    return runner.gather(RESULTS / study)


def studies() -> list[str]:
    """Names of the studies that have results, in the order of their files."""
    return [folder.name for folder in studies_in(RESULTS)]


def case_of(where: str) -> dict[str, Any]:
    """A comparison by study, variant and track, such as ``cifar10 vgg11 selbo``."""
    study, variant, track = where.split()
    (found,) = (each for each in gathered(study)["comparisons"] if (each["variant"], each["track"]) == (variant, track))
    return found


def methods_of(where: str) -> dict[str, dict[str, Any]]:
    """The methods of a comparison, by name."""
    return {method["name"]: method for method in case_of(where)["methods"]}


def table(where: str, name: str, columns: str = "") -> str:
    """A table of a comparison; with columns such as ``NLL,ECE``, only those whose names begin with one of these."""
    (made,) = (each for each in tables_of(gathered(where.split(maxsplit=1)[0]), case_of(where)) if each.name == name)
    return markdown(narrowed(made, columns.split(",")) if columns else made)


def over_cases(study: str, name: str, track: str = "selbo") -> str:
    """A table over all cases of a study: ``overview``, ``primary`` or ``wrong-fractions``."""
    (made,) = (each for each in tables_over_cases(gathered(study), track) if each.name == name)
    return markdown(made)


def difference(
    where: str, one: str, other: str, column: str, *, scaled: bool = False, unit: str = "", brackets: bool = False
) -> str:
    """A method less another, with its interval: ``−.163, −.182 to −.144``, or ``−.163 (−.182 to −.144)``.

    The other method may be one of another study with the same variant and track: ``cifar10/summary``.
    """
    study, _, name = other.rpartition("/")
    there = f"{study} {where.partition(' ')[2]}" if study else where
    found = statistics.paired(methods_of(where)[one], methods_of(there)[name], column, scaled)
    assert found.pairs == found.seeds, f"{where} has runs missing"
    return with_interval(found, column, unit=unit, brackets=brackets)


def with_interval(found: Difference, column: str = "nll", *, unit: str = "", brackets: bool = False) -> str:
    """A difference and its interval, in percentage points unless it is one of NLL."""
    digits, factor = (3, 1) if column.endswith("nll") else (1, 100)
    mean, low, high = (short(factor * (each or 0.0), digits) for each in (found.mean, found.low, found.high))
    mean = f"{mean} {unit}".rstrip()
    return f"{mean} ({low} to {high})" if brackets else f"{mean}, {low} to {high}"


def short(number: float, digits: int, *, sign: bool = True) -> str:
    """A number as sentences have it: with its sign, and without a zero before the point."""
    shown = f"{number:+.{digits}f}".replace("-", "−")
    shown = shown[0] + shown[1:].removeprefix("0")
    return shown if sign else shown[1:]


def by_corruption(where: str, name: str) -> dict[str, float]:
    """Mean NLL of a method under each corruption, over strengths and seeds."""
    found = defaultdict[str, list[float]](list)
    for run in methods_of(where)[name]["runs"]:
        for condition, measured in run["conditions"].items():
            found[condition.rpartition(" ")[0]].append(measured["metrics"]["nll"])
    return {kind: fmean(each) for kind, each in found.items() if kind}


def under(where: str, name: str, corruption: str) -> str:
    """Mean NLL of a method under one corruption."""
    return f"{by_corruption(where, name)[corruption]:.2f}"


def corruptions_lower(where: str, one: str, other: str) -> int:
    """Under how many corruptions the first method has the lower mean NLL."""
    ours, theirs = by_corruption(where, one), by_corruption(where, other)
    return sum(ours[kind] < theirs[kind] for kind in ours)


def corruptions_by_interval(where: str, one: str, other: str, how: str) -> int:
    """Under how many corruptions the first method is ``ahead``, ``level`` or ``behind``, by its interval."""
    first, second = (methods_of(where)[name]["runs"] for name in (one, other))
    counts = {"ahead": 0, "level": 0, "behind": 0}
    for kind in by_corruption(where, one):
        columns = [f"{kind} {strength}.nll" for strength in range(1, 6)]
        gaps = [
            fmean((statistics.value(a, c) or 0) - (statistics.value(b, c) or 0) for c in columns)
            for a, b in zip(first, second, strict=True)
        ]
        found = difference_of(gaps, seeds=len(gaps))
        counts["level" if not found.clear else "ahead" if (found.mean or 0) < 0 else "behind"] += 1
    return counts[how]


def without_noise(where: str, one: str, other: str, *, scaled: bool = False) -> str:
    """How much lower the NLL of the first method is, over corruptions that are neither noise nor glass blur."""

    def nll(run: dict[str, Any]) -> float:
        kept = [name for name in run["conditions"] if name != "clean" and "noise" not in name and "glass" not in name]
        return fmean(run["conditions"][name]["scaled" if scaled else "metrics"]["nll"] for name in kept)

    pairs = zip(methods_of(where)[other]["runs"], methods_of(where)[one]["runs"], strict=True)
    found = difference_of([nll(theirs) - nll(ours) for theirs, ours in pairs], seeds=5)
    mean, low, high = (short(each or 0.0, 3, sign=False) for each in (found.mean, found.low, found.high))
    assert (found.low or 0) > 0, "the first method is not ahead"
    return f"{mean} ({low} to {high})"


def overlap(where: str) -> str:
    """How many of the paper's numbers overlap with ours, without evidential learning: ``14 of 16``."""
    found = [each for each in statistics.overlaps(case_of(where)) if each is not None]
    return f"{sum(found)} of {len(found)}"


def summary_run_twice(*names: str) -> str:
    """What the summary changes about the clean NLL on CIFAR-10 in `ablation`, in `alpha`, or in both pooled."""
    gaps = []
    for study in names:
        methods = methods_of(f"{study} vgg11 selbo")
        pairs = zip(
            methods[{"ablation": "base", "alpha": "alpha-0.1"}[study]]["runs"], methods["none"]["runs"], strict=True
        )
        gaps += [(statistics.value(a, "clean.nll") or 0) - (statistics.value(b, "clean.nll") or 0) for a, b in pairs]
    return with_interval(difference_of(gaps, seeds=len(gaps)), brackets=True)


def outcome(name: str, *, cells: bool = True) -> str:
    """The primary outcome on label shift: the Summary ELBO with class fractions less another method, as two cells."""
    made = primary_outcome(gathered("primary-shift"), "selbo")
    assert made is not None
    (found,) = (row for row in made.raw if row["method"] == name)
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
        recipe = run["spec"]["recipe"]
        if run["spec"]["seed"] >= plan.TUNING_SEED:
            nll, temperature = run["val"]["metrics"]["nll"], run["temperature"]
            shown = f"{short(nll, 3, sign=False)} | {temperature:.2f}".replace("| 0.", "| .")
            tuned[recipe["objective"], recipe["prior_std"], recipe["kl_weight"]] = shown
    lines = [
        "| prior | KL times | ELBO: NLL | temperature | Summary ELBO: NLL | temperature |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for prior, kl in sorted({key[1:] for key in tuned}):
        both = " | ".join(tuned[name, prior, kl] for name in ("elbo", "summary_elbo"))
        lines.append(f"| {f'{prior:g}'[1:]} | {f'{kl:g}'[1:]} | {both} |")
    return "\n".join(lines) + "\n"


LABEL_SHIFT = ("shift-sst", "shift-mnist35", "shift-tables")
"""Studies with unlabelled inputs of a target domain whose every method was tuned for itself."""


def ahead_and_behind(other: str, scores: str = "metrics", *, after_holm: bool = False) -> tuple[int, int]:
    """In how many cases class fractions are ahead of another method and behind it, by a paired t-test at 5 %."""
    found = []
    for study in LABEL_SHIFT:
        for case in gathered(study)["comparisons"]:
            runs = {method["name"]: method["runs"] for method in case["methods"]}
            pairs = [[run["conditions"]["use"][scores]["nll"] for run in runs[name]] for name in ("fractions", other)]
            test = ttest_rel(*pairs)
            found.append((test.pvalue, test.statistic < 0))
    p_values = [p_value for p_value, _ in found]
    clear = holm(p_values) if after_holm else [p_value < 0.05 for p_value in p_values]
    chosen = [better for (_, better), kept in zip(found, clear, strict=True) if kept]
    return sum(chosen), len(chosen) - sum(chosen)


def count(other: str, scores: str = "metrics", *, after_holm: bool = False, words: str = "{}, {}") -> str:
    """In how many cases class fractions are ahead and behind, in words."""
    return words.format(*ahead_and_behind(other, scores, after_holm=after_holm))


def counts() -> str:
    """Class fractions as a belief against all other methods, over all cases of label shift and few labels."""
    case = gathered(LABEL_SHIFT[0])["comparisons"][0]
    lines = [
        "| against | as predicted: ahead | behind | temperature scaling on both: ahead | behind "
        "| after Holm: ahead | behind |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for method in case["methods"]:
        if method["name"] != case["focus"]:
            name = method["name"]
            ways = (ahead_and_behind(name), ahead_and_behind(name, "scaled"), ahead_and_behind(name, after_holm=True))
            lines.append(f"| {' | '.join([method['title'], *(str(each) for way in ways for each in way)])} |")
    return "\n".join(lines) + "\n"


def overlaps() -> str:
    """How many of the paper's values overlap with ours, case by case, with evidential learning counted by itself."""
    lines = ["| study | case | overlap | EDL | EDL runs at chance |", "| :--- | :--- | ---: | ---: | ---: |"]
    for study in studies():
        cases = {each["variant"]: each for each in gathered(study)["comparisons"] if each["track"] == "published"}
        lines += [
            f"| `{study}` | {case['title']} | {_agreement(case)} |"
            for case in cases.values()
            if any(each is not None for each in statistics.overlaps(case))
        ]
        for variant, case in cases.items():
            if study == "mnist35" and variant in EXCHANGED:
                other = with_clean_rows_of(case["paper"], cases[EXCHANGED[variant]]["paper"])
                lines.append(f"| `{study}` | {case['title']}, clean rows exchanged | {_agreement(case, other)} |")
    return "\n".join(lines) + "\n"


def _agreement(case: dict[str, Any], paper: dict[str, Any] | None = None) -> str:
    found = [statistics.overlaps(case, evidential=alone, paper=paper) for alone in (False, True)]
    known = [[each for each in part if each is not None] for part in found]
    counts = [f"{sum(part)} of {len(part)}" if part else "–" for part in known]
    apart = [method for method in case["methods"] if statistics.is_evidential(method)]
    runs = sum(len(method["runs"]) for method in apart)
    return " | ".join([*counts, f"{sum(map(statistics.one_class_runs, apart))} of {runs}" if runs else "–"])


def with_clean_rows_of(paper: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What the paper reports of one case, with the values on the clean test set of another."""
    made = dict[str, Any]()
    for method, found in paper.items():
        if isinstance(found, dict):
            clean = {key: number for key, number in other[method]["values"].items() if key.startswith("clean.")}
            made[method] = found | {"values": found["values"] | clean}
    return made


def repeated() -> list[tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]]:
    """Methods that two studies trained alike: same data, network and recipe, and at least one seed in common."""
    seen: dict[str, tuple[str, dict[str, Any]]] = {}
    found = []
    for study in studies():
        for comparison in gathered(study)["comparisons"]:
            for method in comparison["methods"]:
                key = training_of(comparison["data"], comparison["model"], method["recipe"])
                first = seen.setdefault(key, (study, method))
                if first[0] != study and shared_seeds(first[1], method):
                    found.append((first, (study, method)))
    return found


def training_of(data: dict[str, Any], model: dict[str, Any], recipe: dict[str, Any]) -> str:
    """What a network comes from, but for the seed, as one text."""
    believes = recipe["belief"] and recipe["objective"] not in WITHOUT_SUMMARY
    ours = {key: value for key, value in recipe.items() if believes or key not in OF_A_SUMMARY}
    return json.dumps([data, model, ours], sort_keys=True)


def shared_seeds(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Runs of two methods with the same seed."""
    theirs = {run["spec"]["seed"]: run for run in second["runs"] if run}
    return [(run, theirs[run["spec"]["seed"]]) for run in first["runs"] if run and run["spec"]["seed"] in theirs]


def repeats() -> str:
    """What was run twice, with the clean NLL of both."""
    lines = [
        "| method | study A | study B | seeds | clean NLL, A | clean NLL, B | B less A |",
        "| :--- | :--- | :--- | ---: | ---: | ---: | ---: |",
    ]
    for (study, method), (again, other) in repeated():
        pairs = shared_seeds(method, other)
        ones, twos = ({"runs": [pair[i] for pair in pairs]} for i in (0, 1))
        both = [f"{statistics.cell(each, 'clean.nll').mean:.3f}" for each in (ones, twos)]
        gap = statistics.paired(twos, ones, "clean.nll")
        ends = [signed("nll", number) for number in (gap.mean, gap.low, gap.high) if number is not None]
        names = " / ".join(dict.fromkeys((method["title"], other["title"])))
        cells = (names, f"`{study}`", f"`{again}`", str(len(pairs)), *both, f"{ends[0]} [{ends[1]}, {ends[2]}]")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def times() -> str:
    """How long the runs of each study took, by machine."""
    lines = ["| study | machine | runs | time |", "| :--- | :--- | ---: | ---: |"]
    for study in studies():
        spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for run in Store(RESULTS / study).all():
            begin = datetime.fromisoformat(run["made_by"]["time"].replace("Z", "+00:00")).timestamp()
            spans[run["made_by"]["machine"]].append((begin, begin + run["seconds"]["all"]))
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


def narrowed(table: Table, words: list[str]) -> Table:
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
        f"---\nhide: [toc]\n---\n\n# {found['title']}: all tables\n",
        f"In the paper: {found['paper']}. Made from `lab/results/{study}.jsonl.xz`; "
        f"`selbo report lab/results` makes the same tables as LaTeX and CSV, all figures, and an HTML report.\n",
    ]
    for track in dict.fromkeys(each["track"] for each in found["comparisons"]):
        title = TRACKS[track]
        parts.append(f"## {title[0].upper()}{title[1:]}\n")
        parts += [f"### {table.title}\n\n{markdown(table)}" for table in tables_over_cases(found, track)]
        if track in tracks_with_cases(found):
            parts.append(f"![{found['title']}, {title}: all cases](../images/results/{study}-cases-{track}.png)\n")
        for comparison in (each for each in found["comparisons"] if each["track"] == track and stated_exactly(each)):
            parts += [f"### {table.title}\n\n{markdown(table)}" for table in tables_of(found, comparison)]
            parts += [
                f"![{comparison['title']}, {title}: {kind}](../images/results/{name}.png)\n"
                for kind, name in pictures(study, comparison)
            ]
    return "\n".join(parts)


def pictures(study: str, comparison: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and name of the pictures of a comparison."""
    for kind in available(gathered(study), comparison):
        if kind in PICTURES:
            yield kind, f"{study}-{kind}-{comparison['variant']}-{comparison['track']}"


def cache_of(study: str) -> Path:
    """Folder of the pictures of a study, for each state of its results another."""
    return CACHE / f"{study}-{hashlib.sha256(Store(RESULTS / study).packed.read_bytes()).hexdigest()[:16]}"


def draw_all() -> None:
    """Draw what is not there yet, in one process per core: Matplotlib takes longer than all tables."""
    missing = [study for study in studies() if not cache_of(study).exists()]
    count = os.cpu_count() or 1
    shares = [missing[i::count] for i in range(min(count, len(missing)))]
    for done in [subprocess.Popen([sys.executable, __file__, *share]) for share in shares]:
        if done.wait():
            raise RuntimeError("the figures of the results could not be drawn: see above")


def draw(study: str) -> list[Path]:
    """The pictures of a study; drawn once for each state of its results."""
    folder, found = cache_of(study), gathered(study)
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=CACHE))
        for track in tracks_with_cases(found):
            style.save(cases_figure(found, track), unfinished, f"{study}-cases-{track}", formats=["png"])
        for comparison in found["comparisons"]:
            for kind, name in pictures(study, comparison):
                style.save(FIGURES[kind].draw(comparison), unfinished, name, formats=["png"])
        unfinished.rename(folder)
    return sorted(folder.glob("*.png"))


CALLS = {
    function.__name__: function
    for function in (
        *(table, over_cases, counts, overlaps, repeats, times, settings_tried, difference, under, corruptions_lower),
        *(corruptions_by_interval, without_noise, overlap, summary_run_twice, outcome, wrong, count),
    )
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        draw(name)
    if not sys.argv[1:]:
        for page in READMES:
            page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
