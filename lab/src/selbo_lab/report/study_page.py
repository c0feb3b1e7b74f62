"""The page of a study: one self-contained HTML file with its tables and figures."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from selbo import __version__
from selbo.plots import TWO_COLUMNS, duration, save_figure
from selbo.report import RULE, WIDE, Words, inline_svg, load_templates, swatch, write_html
from selbo_lab.report.cases import cases_figure
from selbo_lab.report.method_styles import study_styles
from selbo_lab.report.origin import describe_code, provenance
from selbo_lab.report.overview import tables_over_cases, tracks_with_cases
from selbo_lab.report.study_captions import CASES, FIGURE_WORDS, track_words
from selbo_lab.report.study_data import build_titles, ood_sets
from selbo_lab.report.study_figures import STUDY_FIGURES, STUDY_FORMATS, available_study_figures
from selbo_lab.report.study_tables import BEST, BOLD_NOTE, CHANCE, TRACK_TITLES, TRIAL, Entry, StudyTable, build_tables
from selbo_lab.report.study_takeaway import study_takeaways
from selbo_lab.run.records import Run, StudyComparison, StudyResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW: Final = 2
"""Maximum number of comparisons with open figures; with more, figures are folded to keep tables close."""

FIRST: Final = ("scores", "recall", "ood", "paper", "differences", "baselines")
LAST: Final = "settings"
"""Open tables, in this order, and the one after the figures; all others are folded."""

MARKED: Final = ("scores", "recall", "corruptions", "ood", "overview")
"""Tables, with or without temperature scaling, in which a mark means the best of a column."""


def write_study_page(
    results: StudyResults, path: str | os.PathLike[str], *, figures: str | os.PathLike[str] | None = None
) -> Path:
    """Write the report of a study atomically as a single HTML file.

    Args:
        results: Results of a study, from `selbo_lab.schedule.runner.gather`.
        path: Path of the file; its folder is created if needed.
        figures: Folder for the figures of the page as files too, see `render_study_page`.

    Returns:
        The path of the file.
    """
    return write_html(lambda: render_study_page(results, figures=figures), path)


def render_study_page(results: StudyResults, *, figures: str | os.PathLike[str] | None = None) -> str:
    """The HTML of the page.

    Args:
        results: Results of a study.
        figures: Folder to which every figure of the page is written as PNG and SVG, so that it is drawn only once:
            ``corruption-VARIANT-TRACK.png`` and so on, with the name of OOD inputs at the end, and ``cases-TRACK.png``
            for all cases together.
    """
    runs, seeds = [run for each in results.comparisons for run in each.runs], len(results.seeds)
    template = load_templates("selbo_lab.report").get_template("study_page.html")
    return template.render(
        version=__version__,
        title=results.title,
        takeaways=_takeaways(results),
        rule=RULE.format(seeds=seeds) if seeds > 1 else "",
        trial=TRIAL if results.generated else "",
        paper=results.paper,
        summary=[(results.study, "study"), (seeds, "seed" + "s" * (seeds != 1)), (_counted(runs), "runs")],
        versions=_versions(runs),
        tracks=TRACK_TITLES,
        cases=CASES,
        overviews=_overviews(results, figures),
        few=FEW,
        sections=[_comparison(results, each, figures) for each in results.comparisons],
    )


def _takeaways(results: StudyResults) -> list[tuple[str, str]]:
    """The conclusion of each track; none for a trial, whose numbers are meaningless."""
    found = [] if results.generated else study_takeaways(results)
    return [(f"{name[0].upper()}{name[1:]}. " if len(found) > 1 else "", text) for name, text in found]


def _versions(runs: Sequence[Run | None]) -> str:
    """Provenance of the runs and of the page."""
    there = [run for run in runs if run is not None]
    made = f"Runs: {_each(describe_code(run.made_by) for run in there)}. " if there else ""
    return f"{made}This page: selbo {__version__}."


def slug(*parts: str) -> str:
    """Parts of a name as an id.

    Example:
        >>> slug("LeNet, 1000 images", "selbo")
        'lenet-1000-images-selbo'
    """
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-")


def _counted(runs: Sequence[Run | None]) -> str:
    there = sum(run is not None for run in runs)
    return str(there) if there == len(runs) else f"{there} of {len(runs)}"


# --- all comparisons ---


def _overviews(
    results: StudyResults, folder: str | os.PathLike[str] | None
) -> Iterator[tuple[str, "list[ShownTable]", tuple[float, str]]]:
    """Track, tables and figure for each track with many cases."""
    for track in tracks_with_cases(results):
        first = results.of_track(track)[0]
        tables = [_table(first, table, [TRIAL]) for table in tables_over_cases(results, track)]
        drawn = cases_figure(results, track)
        yield (
            track,
            tables,
            _plot(drawn, folder, f"cases-{track}", name=slug("cases", track), label=CASES.spoken),
        )


# --- one comparison ---


class ComparisonSection(NamedTuple):
    """Content of the page for a comparison."""

    id: str
    track: str
    title: str
    under: str
    sizes: list[tuple[str, str]]
    troubles: list[tuple[str, str]]
    shown: "list[tuple[str, ShownTable]]"
    folded: "list[tuple[str, ShownTable]]"
    figures: list[tuple[Words, list[tuple[float, str]]]]
    settings: "list[tuple[str, ShownTable, str, list[tuple[str, str]]]]"
    made: list[tuple[str, str]]


def _comparison(
    results: StudyResults, comparison: StudyComparison, folder: str | os.PathLike[str] | None
) -> ComparisonSection:
    name = slug(comparison.variant, comparison.track)
    hidden = {TRIAL, provenance(results.seeds, comparison.runs)}
    tables = {
        table.name: (_heading(table), _table(comparison, table, hidden)) for table in build_tables(results, comparison)
    }
    return ComparisonSection(
        id=name,
        track=comparison.track,
        title=comparison.title,
        under=track_words(comparison),
        sizes=_sizes(comparison),
        troubles=_troubles(results, comparison),
        shown=[tables[key] for key in FIRST if key in tables],
        folded=[tables[key] for key in tables if key not in (*FIRST, LAST)],
        figures=[_figure(comparison, each, folder) for each in available_study_figures(results, comparison)],
        settings=[(*tables[key], *_recipe(comparison)) for key in [LAST] if key in tables],
        made=_made(comparison),
    )


def _sizes(comparison: StudyComparison) -> list[tuple[str, str]]:
    sizes = comparison.there[0].sizes if comparison.there else {}
    names = {"train": "training examples", "val": "validation examples", "test": "test examples"}
    names |= {"use": "test examples of the target domain", "unlabelled": "unlabelled inputs"}
    facts = [(f"{sizes[key]:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"), names[key]) for key in names if key in sizes]
    return [*facts, (comparison.model.name, "network"), (comparison.data.name, "data")]


def _troubles(results: StudyResults, comparison: StudyComparison) -> list[tuple[str, str]]:
    """Missing and diverged runs by method."""
    items, titles = [], build_titles(comparison)
    for method in comparison.methods:
        pairs = list(zip(results.seeds, method.runs, strict=True))
        gone = [seed for seed, run in pairs if run is None]
        ill: dict[str, list[int]] = {}
        for seed, run in pairs:
            if run is not None and not run.finished:
                ill.setdefault(run.error or "no reason was kept", []).append(seed)
        found = [f"{_seeds(gone)} missing"] if gone else []
        found += [f"{_seeds(seeds)} diverged ({reason})" for reason, seeds in ill.items()]
        if found:
            items.append((titles[method.name], "; ".join(found)))
    return items


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


# --- tables ---


def _heading(table: StudyTable) -> str:
    return table.shows[:1].upper() + table.shows[1:]


class ShownTable(NamedTuple):
    """A table with what a page shows around it; a row is a swatch, a title and cells."""

    table: StudyTable
    groups: list[tuple[str, int]]
    rows: list[tuple[str, str, list[tuple[str, ...]]]]
    marks: set[str]
    seeds: int
    by: str
    notes: list[str]


def _table(comparison: StudyComparison, table: StudyTable, hidden: Iterable[str]) -> ShownTable:
    """A table with its notes, except those that the page states once."""
    marked = table.name.startswith(MARKED)
    looks = study_styles(build_titles(comparison))
    rows = []
    for row in table.rows:
        name = row[0].method
        rows.append((swatch(looks[name]) if name else "", row[0].text, [_cell(e, marked) for e in row[1:]]))
    by = "row" if table.name.startswith(("recall", "corruptions")) else "column"
    notes = [
        note.replace(BEST, "").replace(BEST.replace("column", by), "")
        for note in table.notes
        if note not in hidden and note != BOLD_NOTE
    ]
    groups = [(group, len(list(same))) for group, same in groupby(head.group for head in table.heads[1:])]
    return ShownTable(
        table,
        groups=groups if any(group for group, _ in groups) else [],
        rows=rows,
        marks={mark for *_, cells in rows for _, mark, *_ in cells if mark},
        seeds=max((len(method.runs) for method in comparison.methods), default=0),
        by=by,
        notes=[*notes, CHANCE] if BOLD_NOTE in table.notes else notes,
    )


def _cell(entry: Entry, marked: bool) -> tuple[str, ...]:
    """Class, mark, text, what follows it smaller, and a note; what a colour says is there to be heard, too."""
    mark = entry.mark if marked or entry.mark in ("better", "worse") else ""
    return entry.mark, mark, entry.value, f" {entry.error}" if entry.error else "", entry.note


def _recipe(comparison: StudyComparison) -> tuple[str, list[tuple[str, str]]]:
    """Settings that all methods share, then those of each method."""
    recipes = {method.title: vars(method.recipe) for method in comparison.methods}
    first = vars(comparison.methods[0].recipe)
    shared = {key: value for key, value in first.items() if all(r[key] == value for r in recipes.values())}
    own = {title: {k: v for k, v in recipe.items() if k not in shared} for title, recipe in recipes.items()}
    return _listed(shared), [(title, _listed(each)) for title, each in own.items()] if any(own.values()) else []


def _listed(settings: Mapping[str, Any]) -> str:
    words = [
        f"{key.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}"
        for key, value in settings.items()
        if value not in ("", None)
    ]
    return ", ".join(words)


# --- figures ---


def _figure(
    comparison: StudyComparison, key: str, folder: str | os.PathLike[str] | None
) -> tuple[Words, list[tuple[float, str]]]:
    words, draw = FIGURE_WORDS[key](comparison), STUDY_FIGURES[key].draw
    end, name = f"{comparison.variant}-{comparison.track}", slug(comparison.variant, comparison.track, key)
    if key != "ood":
        return words, [_plot(draw(comparison), folder, f"{key}-{end}", name=name, label=words.spoken)]
    return words, [
        _plot(
            draw(comparison, each),
            folder,
            f"{key}-{end}-{each}",
            name=slug(name, each),
            label=f"{words.spoken} {title}.",
        )
        for each, title in ood_sets(comparison).items()
    ]


def _plot(
    figure: "Figure", folder: str | os.PathLike[str] | None, file: str, *, name: str, label: str
) -> tuple[float, str]:
    """Width and SVG of a figure, which is written to the folder too, if there is one."""
    if folder is not None:
        save_figure(figure, folder, file, formats=STUDY_FORMATS)
    return figure.get_figwidth() / TWO_COLUMNS * WIDE, inline_svg(figure, name=name, label=label)


# --- where the numbers come from ---


def _made(comparison: StudyComparison) -> list[tuple[str, str]]:
    runs, tested = comparison.there, comparison.tested
    if not runs:
        return []
    made = [run.made_by for run in runs]
    times = sorted(each.time for each in made)
    data = {f"{part} {digest[:12]}" for run in runs for part, digest in run.data.items()}
    return [
        ("Code", _each(describe_code(m) for m in made)),
        ("Packages", _each(m.packages for m in made)),
        ("Machine", _each(f"{m.machine}, {m.threads} thread{'s' * (m.threads != 1)}" for m in made)),
        ("Finished", times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"),
        ("Time", f"{duration(sum(run.seconds.all for run in runs))} for {len(runs)} runs, one after the other"),
        ("Slowest run", duration(max(run.seconds.all for run in tested)) if tested else ""),
        (
            "Data, SHA-256",
            ", ".join(sorted(data)) if len(data) <= 3 else f"{len(data)} checksums, in the files of the runs",
        ),
    ]


def _each(texts: Iterable[str]) -> str:
    """Distinct values, with their counts if there are several."""
    listed = list(texts)
    counts = {text: listed.count(text) for text in dict.fromkeys(listed)}
    if len(counts) == 1:
        return listed[0]
    return "; ".join(f"{text} ({count} run{'s' * (count != 1)})" for text, count in counts.items())
