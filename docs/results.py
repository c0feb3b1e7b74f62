"""Regenerate the pages of results from `results/`: `.venv/bin/python docs/results.py`.

For each study a page with all tables, `docs/results/STUDY.md`, and the figures that stand in the documentation; and in
`docs/results.md`, `docs/comparison.md` and `README.md` the tables between the marks
`<!-- table STUDY VARIANT TRACK NAME -->` and `<!-- end -->`. With a fifth word, such as `NLL,ECE`, only the columns
stay whose names begin with one of these. Between `<!-- overview STUDY TRACK -->`, `<!-- primary STUDY TRACK -->` or
`<!-- wrong-fractions STUDY TRACK -->` and `<!-- end -->` stands a table over all cases of a study; between
`<!-- counts -->`, `<!-- overlaps -->`, `<!-- repeats -->` or `<!-- times -->` and `<!-- end -->` how often the Summary
ELBO with class fractions is ahead, how many numbers agree with the paper's, what was run twice, and how long everything
took.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from scipy.stats import ttest_rel

from selbo.plots import style
from selbo.report.tables import signed
from selbo_lab.report import studies as statistics
from selbo_lab.report.bootstrap import holm
from selbo_lab.report.cases import cases_figure
from selbo_lab.report.overview import tables_over_cases, tracks_with_cases
from selbo_lab.report.study_figures import FIGURES, available
from selbo_lab.report.study_outcomes import stated_exactly
from selbo_lab.report.study_tables import TRACKS, Table, tables_of
from selbo_lab.report.table_files import markdown
from selbo_lab.run.result_store import Store, studies_in
from selbo_lab.schedule import runner

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = (DOCS / "results.md", DOCS / "comparison.md", ROOT / "README.md")
PICTURES = ("scores", "independent", "sweep", "corruption", "recall")
"""Figures that stand in the pages; the HTML report of a study has all of them."""

MARKED = re.compile(r"(<!-- table (\S+) (\S+) (\S+) (\S+)(?: (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)
OVERVIEW = re.compile(r"(<!-- (overview|primary|wrong-fractions) (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
WHOLE = re.compile(r"(<!-- (counts|overlaps|repeats|times) -->\n).*?(<!-- end -->)", re.DOTALL)

EXCHANGED = {"lenet-1000": "lenet-8000", "lenet-8000": "lenet-1000"}
"""Variants of `mnist35` whose clean rows are probably exchanged in the paper."""

OF_A_SUMMARY = (
    *("partition", "belief", "concentration", "per_example", "form", "pool_draws", "ema_decay"),
    *("summary_inputs", "summary_warmup"),
)
"""Settings that do nothing where there is no belief."""

WITHOUT_SUMMARY = ("elbo", "label_smoothing", "evidential")
"""Objectives that look at no belief."""


@cache
def gathered(study: str) -> dict[str, Any]:
    """The results of a study in `results/`."""
    return runner.gather(ROOT / "results" / study)


def studies() -> list[str]:
    """Names of the studies that have results, in the order of their files."""
    return [folder.name for folder in studies_in(ROOT / "results")]


def refreshed(text: str) -> str:
    """A page with the tables between its marks made anew."""

    def table(match: re.Match[str]) -> str:
        head, study, variant, track, name, words, tail = match.groups()
        found = gathered(study)
        (chosen,) = (each for each in found["comparisons"] if (each["variant"], each["track"]) == (variant, track))
        (made,) = (each for each in tables_of(found, chosen) if each.name == name)
        return f"{head}\n{markdown(made if words is None else narrowed(made, words.split(',')))}\n{tail}"

    def glance(match: re.Match[str]) -> str:
        head, name, study, track, tail = match.groups()
        (made,) = (each for each in tables_over_cases(gathered(study), track) if each.name == name)
        return f"{head}\n{markdown(made)}\n{tail}"

    made = {"counts": counts, "overlaps": overlaps, "repeats": repeats, "times": times}
    with_tables = OVERVIEW.sub(glance, MARKED.sub(table, text))
    return WHOLE.sub(lambda match: f"{match[1]}\n{made[match[2]]()}\n{match[3]}", with_tables)


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
        for run in Store(ROOT / "results" / study).all():
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
        f"In the paper: {found['paper']}. Made by `docs/results.py` from `results/{study}`; "
        f"`selbo report results` makes the same tables as LaTeX and CSV, all figures, and an HTML report.\n",
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


def draw(study: str) -> None:
    """Write the pictures of a study."""
    folder, found = DOCS / "images" / "results", gathered(study)
    for track in tracks_with_cases(found):
        style.save(cases_figure(found, track), folder, f"{study}-cases-{track}", formats=["png"])
    for comparison in found["comparisons"]:
        for kind, name in pictures(study, comparison):
            style.save(FIGURES[kind].draw(comparison), folder, name, formats=["png"])


def main() -> None:
    """Write the pages and, unless told otherwise, the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-pictures", action="store_true", help="tables only")
    arguments = parser.parse_args()
    for page in PAGES:
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
    (DOCS / "results").mkdir(exist_ok=True)
    for study in studies():
        (DOCS / "results" / f"{study}.md").write_text(full_page(study), encoding="utf-8")
        if not arguments.no_pictures:
            draw(study)


if __name__ == "__main__":
    main()
