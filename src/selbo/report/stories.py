"""The page of the demo: a few stories, each with a picture, its numbers with intervals, and the code that made it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from selbo.plots.labels import duration
from selbo.report.comparison import Value, mean_and_error, noisiest
from selbo.report.curves import corruption_curves
from selbo.report.differences import Difference, compute_difference
from selbo.report.page import comparison_sections, draw_for_screens, write_html
from selbo.report.story_charts import accuracy_bars, claim_arrows, nll_dots
from selbo.report.tables import signed
from selbo.report.takeaway import RELATIONS, joined, relation
from selbo.report.templates import load_templates
from selbo.results import Comparison, Provenance, Record, Text

if TYPE_CHECKING:
    from markupsafe import Markup
    from rich.table import Table

STORY_COLUMNS: Final = ("nll", "accuracy", "ece")
"""Columns of the tables; the first one decides who is ahead."""


@dataclass(frozen=True, kw_only=True)
class Story(Record):
    """One story of the demo.

    Attributes:
        name: Its name on the command line.
        title: Its title on the page.
        short: Its title on a terminal, at most 30 characters.
        stated: What was stated, in a sentence.
        picture: ``claims``, ``accuracy`` or ``corruption``.
        without: The method without the stated numbers, for the columns "without" and "with".
        conditions: Conditions that the methods are compared under.
        code: The code that made it.
        results: Its results; ``focus`` is our method.
    """

    name: Text
    title: Text
    short: Text
    stated: Text
    picture: Text
    without: Text
    conditions: tuple[Text, ...]
    code: Text
    results: Comparison

    @property
    def focus(self) -> str:
        """Our method."""
        return str(self.results.focus)

    @property
    def others(self) -> tuple[str, ...]:
        """The methods that it is compared with."""
        return tuple(each for each in self.results.methods if each != self.focus)


@dataclass(frozen=True, kw_only=True)
class StoryResults(Record):
    """All stories of a demo, and how they were made."""

    title: Text
    stories: tuple[Story, ...]
    made_by: Provenance


# --- numbers ---


def collect_values(story: Story, method: str, condition: str, metric: str) -> list[float]:
    """A metric of a method under a condition, one value per seed that has it."""
    found = (run.value(condition, metric) for run in story.results.of_method(method))
    return [each for each in found if each is not None]


def compute_value(story: Story, method: str, condition: str, metric: str) -> Value:
    """Mean over the seeds and its standard error."""
    return _mean_value(collect_values(story, method, condition, metric))


def _mean_value(found: Sequence[float]) -> Value:
    mean, error = mean_and_error(found) if found else (None, None)
    return Value(mean, error, len(found))


def compare_with(story: Story, other: str, condition: str, metric: str = STORY_COLUMNS[0]) -> Difference:
    """Our method minus another one, by seed."""
    ours, theirs = (
        {run.seed: run.value(condition, metric) for run in story.results.of_method(name)}
        for name in (story.focus, other)
    )
    pairs = [(ours.get(seed), theirs.get(seed)) for seed in story.results.seeds]
    return compute_difference(
        [a - b for a, b in pairs if a is not None and b is not None], seeds=len(story.results.seeds)
    )


def standings(story: Story, condition: str) -> dict[str, list[str]]:
    """Other methods by how ours compares with them in NLL: ``ahead of``, ``level with``, ``behind``, or unknown."""
    found: dict[str, list[str]] = {}
    for other in story.others:
        found.setdefault(relation(STORY_COLUMNS[0], compare_with(story, other, condition)), []).append(other)
    return found


def verdict(story: Story) -> list[str]:
    """One sentence per condition: what our method is ahead of, level with and behind, by its NLL."""
    if len(story.results.seeds) < 2:
        return ["One seed: no difference between the methods can be distinguished from chance."]
    said = []
    for condition in story.conditions:
        found = standings(story, condition)
        parts = [
            f"{word} {joined([f'“{name}”' for name in found[word]])}"
            for word in (*RELATIONS, *set(found).difference(RELATIONS))
            if word in found
        ]
        said.append(f"{_capital(condition)}: “{story.focus}” is {'; '.join(parts)}.")
    return said


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _mean_nll(story: Story, method: str) -> Value:
    """NLL of a method, averaged over the conditions first."""
    columns = [collect_values(story, method, condition, STORY_COLUMNS[0]) for condition in story.conditions]
    by_seed = [sum(each) / len(each) for each in zip(*columns, strict=False)]
    return _mean_value(by_seed)


# --- the terminal ---


def stories_table(found: StoryResults) -> "Table":
    """One line per story: NLL without and with the statement, and how many comparisons are won, drawn and lost."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("NLL", no_wrap=True)
    for title in ("without", "with", "ahead", "level", "behind"):
        table.add_column(title, justify="right", no_wrap=True)
    for story in found.stories:
        nll = [_short_value(_mean_nll(story, method)) for method in (story.without, story.focus)]
        table.add_row(story.short, *nll, *_counts(story))
    return table


def _counts(story: Story) -> list[str]:
    """Number of comparisons that are ahead, level and behind; dashes if a single seed cannot tell."""
    if len(story.results.seeds) < 2:
        return ["-"] * len(RELATIONS)
    every = [standings(story, condition) for condition in story.conditions]
    return [str(sum(len(each.get(word, ())) for each in every)) for word in RELATIONS]


def _short_value(value: Value) -> str:
    if value.mean is None:
        return "-"
    shown = f"{value.mean:.2f}" if value.error is None else f"{value.mean:.2f}±{value.error:.2f}"
    return shown.replace("0.", ".") if value.mean < 1 else shown.replace("±0.", "±.")


# --- the page ---


class StorySection(NamedTuple):
    """What the page shows of a story."""

    story: Story
    verdict: Sequence[str]
    pictures: "Sequence[Markup]"
    tables: "Sequence[tuple[str, Sequence[StoryRow]]]"
    folded: Sequence[object]


class StoryRow(NamedTuple):
    """A row of a table: method, means with intervals, the difference, and how ours compares."""

    method: str
    ours: bool
    cells: Sequence[tuple[str, str]]
    difference: str
    relation: str


def write_stories(found: StoryResults, path: str | os.PathLike[str]) -> Path:
    """Write the page of a demo as a single HTML file, atomically."""
    return write_html(lambda: render_stories(found), path)


def render_stories(found: StoryResults) -> str:
    """The HTML of the page."""
    made = found.made_by
    return (
        load_templates()
        .get_template("stories.html")
        .render(
            version=made.selbo,
            title=found.title,
            sections=[_section(story) for story in found.stories],
            seeds=max(len(story.results.seeds) for story in found.stories),
            summary=[_summary_row(story) for story in found.stories],
            command=made.command,
            made=[
                ("Versions", f"selbo {made.selbo}, Python {made.python}, PyTorch {made.torch}"),
                ("Machine", made.machine),
                ("Time", duration(made.seconds)),
            ],
        )
    )


def _summary_row(story: Story) -> tuple[str, str, Sequence[str]]:
    without, ours = (_short_value(_mean_nll(story, method)) for method in (story.without, story.focus))
    return story.name, story.short, (without, ours, *_counts(story))


def _section(story: Story) -> StorySection:
    tables = [(_capital(condition), _rows(story, condition)) for condition in _all_conditions(story)]
    folded = comparison_sections(story.results) if story.picture == "corruption" else []
    return StorySection(story, verdict(story), _pictures(story), tables, folded)


def _all_conditions(story: Story) -> list[str]:
    """The conditions that are compared, then the others; levels of corruption have tables of their own."""
    if noisiest(story.results):
        return list(story.conditions)
    return list(dict.fromkeys([*story.conditions, *(name for run in story.results.runs for name in run.conditions)]))


def _rows(story: Story, condition: str) -> list[StoryRow]:
    rows = []
    for method in story.results.methods:
        cells = [mean_text(metric, compute_value(story, method, condition, metric)) for metric in STORY_COLUMNS]
        if method == story.focus:
            rows.append(StoryRow(method, ours=True, cells=cells, difference="", relation=""))
            continue
        found = compare_with(story, method, condition)
        ends = (
            ""
            if found.low is None or found.high is None
            else f" [{signed('nll', found.low)}, {signed('nll', found.high)}]"
        )
        shown = "–" if found.mean is None else f"{signed('nll', found.mean)}{ends}"
        rows.append(
            StoryRow(
                method, ours=False, cells=cells, difference=shown, relation=relation(STORY_COLUMNS[0], found).split()[0]
            )
        )
    return rows


def mean_text(metric: str, value: Value) -> tuple[str, str]:
    """A mean over the seeds and its standard error, as text.

    Example:
        >>> mean_text("accuracy", Value(0.913, 0.004, 5))
        ('91.3', '± 0.4')
        >>> mean_text("nll", Value(0.2, None, 1))
        ('0.200', '')
    """
    if value.mean is None:
        return "–", ""
    scale, digits = (1.0, 3) if metric == "nll" else (100.0, 1)
    error = "" if value.error is None else f"± {scale * value.error:.{digits}f}"
    return f"{scale * value.mean:.{digits}f}", error


def _pictures(story: Story) -> "list[Markup]":
    results, first = story.results, story.conditions
    if story.picture == "corruption":
        spoken = "Curves of accuracy, ECE and NLL as noise is added, one line per method. " + " ".join(verdict(story))
        return [draw_for_screens(partial(corruption_curves, results), name=story.name, label=spoken)]
    if story.picture == "claims":
        models = [name for name in _all_conditions(story) if name not in first]
        claims = {name: _claims(story, name) for name in models}
        spoken = "Mean confidence before and after, and accuracy. " + " ".join(
            f"{name}: {100 * before:.0f} % to {100 * after:.0f} %, right {100 * right:.0f} %."
            for name, (before, after, right) in claims.items()
        )
        drawn = draw_for_screens(partial(claim_arrows, claims), name=f"{story.name}-claims", label=spoken)
    else:
        bars = {
            condition: {m: compute_value(story, m, condition, "accuracy") for m in results.methods}
            for condition in first
        }
        spoken = "Accuracy. " + " ".join(
            f"{condition}: "
            + ", ".join(f"{name} {100 * (each.mean or 0.0):.0f} %" for name, each in found.items())
            + "."
            for condition, found in bars.items()
        )
        drawn = draw_for_screens(
            partial(accuracy_bars, bars, focus=story.focus), name=f"{story.name}-accuracy", label=spoken
        )
    dots = {
        condition: {m: compute_value(story, m, condition, STORY_COLUMNS[0]) for m in results.methods}
        for condition in first
    }
    spoken = "NLL with 95 % intervals. " + " ".join(verdict(story))
    return [drawn, draw_for_screens(partial(nll_dots, dots, focus=story.focus), name=f"{story.name}-nll", label=spoken)]


def _claims(story: Story, condition: str) -> tuple[float, float, float]:
    """Mean confidence without and with the statement, and the accuracy, under a condition."""
    before, after = (compute_value(story, method, condition, "confidence") for method in (story.without, story.focus))
    right = compute_value(story, story.focus, condition, "accuracy")
    return before.mean or 0.0, after.mean or 0.0, right.mean or 0.0
