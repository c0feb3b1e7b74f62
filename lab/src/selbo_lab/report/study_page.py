"""The page of a study: one HTML file with its tables and figures inside, which needs nothing from outside."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from selbo import __version__
from selbo.plots import TWO_COLUMNS, duration, method_styles
from selbo.report import RULE, WIDE, Results, fill_page, inline_svg, legend, swatch, write_html
from selbo_lab.report.cases import cases_figure
from selbo_lab.report.origin import code_of, provenance
from selbo_lab.report.overview import tables_over_cases, tracks_with_cases
from selbo_lab.report.study_captions import CASES, FIGURE_WORDS, Words, track_words
from selbo_lab.report.study_data import finished, labels_of, ood_sets, titles_of
from selbo_lab.report.study_figures import FIGURES, available
from selbo_lab.report.study_tables import BEST, BOLD, CHANCE, TRACKS, TRIAL, Entry, Head, Table, tables_of
from selbo_lab.report.study_takeaway import study_takeaways

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW: Final = 2
"""Comparisons; on a page with more, figures are folded, so that tables can be compared."""

FIRST: Final = ("scores", "recall", "ood", "paper", "differences", "rivals")
LAST: Final = "settings"
"""Tables that stand open, in this order, and the one after the figures; all others are folded."""

MARKED: Final = ("scores", "recall", "corruptions", "ood", "overview")
"""Tables, with or without temperature scaling, in which a mark means the best of a column."""


def write_study_page(results: Results, path: str | os.PathLike[str]) -> Path:
    """Write the report of a study as a single HTML file, whole or not at all.

    Args:
        results: Of a study, as `selbo_lab.schedule.runner.gather` gives them.
        path: Where to; its folder is made if it is not there.

    Returns:
        The path written.
    """
    return write_html(lambda: render_study_page(results), path)


def render_study_page(results: Results) -> str:
    """The HTML of the page."""
    comparisons = results["comparisons"]
    banner = f'<div class="banner" role="note"><p>{escape(TRIAL)}</p></div>' if results["generated"] else ""
    told = f"In the paper: {results['paper']}." if results["paper"] else ""
    lede = f'<p class="lede">{escape(told)}</p>' if told else ""
    parts = [*_overviews(results), *(_comparison(results, each) for each in comparisons)]
    return fill_page(
        version=escape(__version__, quote=True),
        title=escape(results["title"]),
        takeaway=_takeaway(results),
        style=files("selbo_lab.report").joinpath("study.css").read_text(encoding="utf-8").strip(),
        description=banner + lede,
        facts=_facts(
            [
                (results["study"], "study"),
                (str(len(results["seeds"])), "seed" if len(results["seeds"]) == 1 else "seeds"),
                (_counted(comparisons), "runs"),
            ]
        ),
        belief=_versions(comparisons) + _navigation(comparisons),
        sections="\n".join(parts),
    )


def _takeaway(results: Results) -> str:
    """The conclusion of each track; none of a trial, whose numbers mean nothing."""
    found = [] if results["generated"] else study_takeaways(results)
    if not found:
        return ""
    named = len(found) > 1
    tracks = [f"{name[0].upper()}{name[1:]}. " if named else "" for name, _ in found]
    told = [f"<p><strong>{escape(t)}</strong>{escape(text)}</p>" for t, (_, text) in zip(tracks, found, strict=True)]
    rule = RULE.format(seeds=len(results["seeds"])) if len(results["seeds"]) > 1 else ""
    return f'<div class="conclusion study">{"".join(told)}{f"<p>{escape(rule)}</p>" if rule else ""}</div>'


def _versions(comparisons: Sequence[Results]) -> str:
    """Who made the runs, and who wrote the page."""
    runs = [run for each in comparisons for method in each["methods"] for run in method["runs"] if run is not None]
    made = f"Runs: {_each(code_of(run['made_by']) for run in runs)}. " if runs else ""
    return f'<p class="small versions">{escape(f"{made}This page: selbo {__version__}.")}</p>'


def slug(*parts: str) -> str:
    """Parts of a name as an id.

    Example:
        >>> slug("LeNet, 1000 images", "selbo")
        'lenet-1000-images-selbo'
    """
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-")


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    listed = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for value, name in facts)
    return f'<dl class="facts">{listed}</dl>'


def _counted(comparisons: Sequence[Results]) -> str:
    runs = [run for each in comparisons for method in each["methods"] for run in method["runs"]]
    there = sum(run is not None for run in runs)
    return str(there) if there == len(runs) else f"{there} of {len(runs)}"


def _navigation(comparisons: Sequence[Results]) -> str:
    if len(comparisons) < 2:
        return ""
    items = []
    for title in dict.fromkeys(each["title"] for each in comparisons):
        links = "".join(
            f'<a href="#{slug(each["variant"], each["track"])}">{escape(TRACKS[each["track"]])}</a>'
            for each in comparisons
            if each["title"] == title
        )
        items.append(f"<li><span>{escape(title)}</span>{links}</li>")
    return f'<nav aria-label="Comparisons"><ul>{"".join(items)}</ul></nav>'


# --- all comparisons ---


def _overviews(results: Results) -> Iterator[str]:
    """A section for each track with many cases."""
    for track in tracks_with_cases(results):
        first = next(each for each in results["comparisons"] if each["track"] == track)
        tables = "".join(_table(first, table, [TRIAL]) for table in tables_over_cases(results, track))
        drawn = _plot(cases_figure(results, track), name=slug("cases", track), label=CASES.spoken)
        yield (
            f'<section class="comparison" id="{slug("overview", track)}">\n'
            f'<p class="track {track}">{escape(TRACKS[track])}</p>\n<h2>All cases</h2>\n'
            f"{tables}\n<h3>{escape(CASES.title)}</h3>{_read(CASES, drawn)}\n</section>"
        )


# --- one comparison ---


def _comparison(results: Results, comparison: Results) -> str:
    name = slug(comparison["variant"], comparison["track"])
    tables = {table.name: table for table in tables_of(results, comparison)}
    shown = [key for key in FIRST if key in tables]
    folded = [key for key in tables if key not in (*FIRST, LAST)]
    few = len(results["comparisons"]) <= FEW
    hidden = {TRIAL, provenance(results, comparison)}
    parts = [
        f'<p class="track {comparison["track"]}">{escape(TRACKS[comparison["track"]])}</p>',
        f"<h2>{escape(comparison['title'])}</h2>",
        f'<p class="under">{escape(track_words(comparison))}</p>',
        _facts(_sizes(comparison)),
        _troubles(results, comparison),
        *(f"<h3>{_heading(comparison, tables[key])}</h3>{_table(comparison, tables[key], hidden)}" for key in shown),
        *(_folded(_heading(comparison, tables[key]), _table(comparison, tables[key], hidden)) for key in folded),
        *(_figure(comparison, each, name=name, folded=not few) for each in available(results, comparison)),
        *(
            _folded(_heading(comparison, tables[key]), _table(comparison, tables[key], hidden) + _recipe(comparison))
            for key in [LAST]
            if key in tables
        ),
        _made(comparison),
    ]
    return f'<section class="comparison" id="{name}">\n' + "\n".join(filter(None, parts)) + "\n</section>"


def _sizes(comparison: Results) -> list[tuple[str, str]]:
    runs = [run for method in comparison["methods"] for run in method["runs"] if run is not None]
    sizes = runs[0]["sizes"] if runs else {}
    names = {"train": "training examples", "val": "validation examples", "test": "test examples"}
    names |= {"use": "test examples at use", "unlabelled": "unlabelled inputs"}
    facts = [(f"{sizes[key]:,}".replace(",", "\N{NARROW NO-BREAK SPACE}"), names[key]) for key in names if key in sizes]
    return [*facts, (comparison["model"]["name"], "network"), (comparison["data"]["name"], "data")]


def _troubles(results: Results, comparison: Results) -> str:
    """Runs that are missing or diverged, method by method."""
    items, titles = [], titles_of(comparison)
    for method in comparison["methods"]:
        pairs = list(zip(results["seeds"], method["runs"], strict=True))
        gone = [seed for seed, run in pairs if run is None]
        ill: dict[str, list[int]] = {}
        for seed, run in pairs:
            if run is not None and run["status"] != "finished":
                ill.setdefault(run.get("error") or "no reason was kept", []).append(seed)
        found = [f"{_seeds(gone)} missing"] if gone else []
        found += [f"{_seeds(seeds)} diverged ({reason})" for reason, seeds in ill.items()]
        if found:
            items.append(f"<li>{escape(titles[method['name']])}: {escape('; '.join(found))}</li>")
    if not items:
        return ""
    said = "Not every run is there. Means are over the runs that are, and say so; such a method is never marked best."
    return f'<div class="warn"><p>{said}</p><ul>{"".join(items)}</ul></div>'


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _folded(heading: str, body: str) -> str:
    return f"<details><summary>{heading}</summary>{body}</details>"


# --- tables ---


def _heading(comparison: Results, table: Table) -> str:
    text = table.title.removeprefix(f"{comparison['title']}, {TRACKS[comparison['track']]}: ")
    return escape(text[:1].upper() + text[1:])


def _table(comparison: Results, table: Table, hidden: Iterable[str]) -> str:
    """A table with its notes, but for those that are said once on the page."""
    marked = table.name.startswith(MARKED)
    labels, titles = labels_of(comparison), titles_of(comparison)
    looks = method_styles(labels)
    by_title = {method["title"]: method["name"] for method in comparison["methods"]}
    body = []
    for row in table.rows:
        name = by_title.get(row[0].text)
        first = escape(row[0].text)
        if name is not None:
            small = "" if labels[name] == titles[name] else f'<span class="small">{escape(labels[name])}</span>'
            first = f"{swatch(looks[name])}{first}{small}"
        cells = "".join(_cell(e, side, marked) for e, side in zip(row[1:], table.align[1:], strict=True))
        body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    by = "row" if table.name.startswith(("recall", "corruptions")) else "column"
    marks = {entry.mark for row in table.rows for entry in row} & {
        *(("best", "close") if marked else ()),
        "better",
        "worse",
    }
    seeds = max((len(method["runs"]) for method in comparison["methods"]), default=0)
    shown = [
        note.replace(BEST, "").replace(BEST.replace("column", by), "")
        for note in table.notes
        if note not in hidden and note != BOLD
    ]
    shown += [CHANCE] if BOLD in table.notes else []
    notes = "".join(f"<p>{escape(note)}</p>" for note in shown)
    return (
        f'<div class="scroll" role="region" aria-label="Table: {escape(table.title, quote=True)}" tabindex="0"><table>'
        f"<thead>{_head(table.heads, table.align)}</thead><tbody>{''.join(body)}</tbody></table></div>"
        f'{legend(marks, num_seeds=seeds, column=by)}<div class="notes small">{notes}</div>'
    )


def _head(heads: Sequence[Head], align: str) -> str:
    grouped = any(head.group for head in heads)
    rows = ' rowspan="2"' if grouped else ""
    top, low, i = [f'<th scope="col" class="first"{rows}>{escape(heads[0].label)}</th>'], [], 1
    while i < len(heads):
        span = next((k for k in range(i, len(heads)) if heads[k].group != heads[i].group), len(heads)) - i
        top += [f'<th scope="colgroup" colspan="{span}">{escape(heads[i].group)}</th>'] if grouped else []
        for k in range(i, i + span):
            css = " ".join(filter(None, ["text" * (align[k] == "l"), "start" * (grouped and k == i)]))
            low.append(f'<th scope="col" class="{css}">{escape(heads[k].label)}</th>')
        i += span
    return f"<tr>{''.join(top)}</tr><tr>{''.join(low)}</tr>" if grouped else f"<tr>{''.join(top + low)}</tr>"


def _cell(entry: Entry, side: str, marked: bool) -> str:
    """The mean as it is, what follows it smaller; what a colour says is there to be heard, too."""
    css = " ".join(filter(None, [entry.mark, "text" * (side == "l")]))
    mark = ""
    if entry.mark in ("better", "worse"):
        mark = f'<span class="hidden">{entry.mark}</span>'
    elif marked and entry.mark:
        sign, spoken = {"best": ("★", "best"), "close": ("≈", "close to the best")}[entry.mark]
        mark = f'<span class="mark" aria-hidden="true">{sign}</span><span class="hidden">{spoken}</span>'
    match = re.fullmatch(r"([-+−\d.–]+)( (?:±|\[)[^(]*[^( ])?(?: (\(.*\)))?", entry.text)
    text = escape(entry.text)
    if match:
        error = f'<span class="error">{escape(match[2])}</span>' if match[2] else ""
        note = f' <span class="note">{escape(match[3])}</span>' if match[3] else ""
        text = f"{match[1]}{error}{note}"
    return f"<td{f' class={chr(34)}{css}{chr(34)}' if css else ''}>{mark}{text}</td>"


def _recipe(comparison: Results) -> str:
    """Settings that all methods share, then what each has of its own."""
    recipes = {method["title"]: method["recipe"] for method in comparison["methods"]}
    keys = list(dict.fromkeys(key for recipe in recipes.values() for key in recipe))
    first = comparison["methods"][0]["recipe"]
    shared = {key: first[key] for key in first if all(key in r and r[key] == first[key] for r in recipes.values())}
    own = "".join(
        f"<li><strong>{escape(title)}</strong>: {_listed({k: v for k, v in recipe.items() if k not in shared})}</li>"
        for title, recipe in recipes.items()
    )
    return (
        f'<p class="small">All methods: {_listed(shared)}.</p>'
        f'<ul class="recipe">{own if len(shared) < len(keys) else ""}</ul>'
    )


def _listed(settings: Results) -> str:
    words = [
        f"{key.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}"
        for key, value in settings.items()
        if value not in ("", None)
    ]
    return escape(", ".join(words))


# --- figures ---


def _figure(comparison: Results, key: str, *, name: str, folded: bool) -> str:
    words = FIGURE_WORDS[key](comparison)
    sets: list[tuple[str, ...]] = [(each,) for each in ood_sets(comparison)] if key == "ood" else [()]
    drawn = "".join(_drawing(comparison, key, each, name=name, label=words.spoken) for each in sets)
    body = _read(words, drawn)
    return _folded(escape(words.title), body) if folded else f"<h3>{escape(words.title)}</h3>{body}"


def _read(words: Words, drawn: str) -> str:
    """What a figure shows, the figure, and how to read it."""
    reading = "".join(f"<p>{escape(text)}</p>" for text in words.reading)
    return (
        f'<p class="under">{escape(words.under)}</p>{drawn}'
        f'<div class="read"><h3>How to read this</h3><div>{reading}</div></div>'
    )


def _drawing(comparison: Results, key: str, arguments: tuple[str, ...], *, name: str, label: str) -> str:
    figure = FIGURES[key].draw(comparison, *arguments)
    said = f"{label} {ood_sets(comparison)[arguments[0]]}." if arguments else label
    return _plot(figure, name=slug(name, key, *arguments), label=said)


def _plot(figure: "Figure", *, name: str, label: str) -> str:
    svg = inline_svg(figure, name=name, label=label)
    pixels = figure.get_figwidth() / TWO_COLUMNS * WIDE
    return (
        f'<figure class="plot" tabindex="0"><div style="max-width:{pixels:.0f}px;'
        f'min-width:{min(pixels, 544):.0f}px">{svg}</div></figure>'
    )


# --- where the numbers come from ---


def _made(comparison: Results) -> str:
    runs = [run for method in comparison["methods"] for run in method["runs"] if run is not None]
    if not runs:
        return '<p class="under">No run of this comparison is there yet.</p>'
    made = [run["made_by"] for run in runs]
    packages = [key for key in made[0] if key not in {"selbo", "code", "machine", "threads", "time"}]
    times = sorted(str(each["time"]) for each in made)
    tested = [run for method in comparison["methods"] for run in finished(method)]
    data = {f"{part} {digest[:12]}" for run in runs for part, digest in run["data"].items()}
    rows = [
        ("Code", _each(code_of(m) for m in made)),
        ("Packages", _each(", ".join(f"{key} {m[key]}" for key in packages if m.get(key)) for m in made)),
        ("Machine", _each(f"{m['machine']}, {m['threads']} thread{'s' * (m['threads'] != 1)}" for m in made)),
        ("Finished", times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"),
        ("Time", f"{duration(sum(run['seconds']['all'] for run in runs))} for {len(runs)} runs, one after the other"),
        ("Slowest run", duration(max(run["seconds"]["all"] for run in tested)) if tested else ""),
        (
            "Data, SHA-256",
            ", ".join(sorted(data)) if len(data) <= 3 else f"{len(data)} checksums, in the files of the runs",
        ),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in rows if value)
    return f'<h3>Where the numbers come from</h3><dl class="made">{listed}</dl>'


def _each(texts: Iterable[str]) -> str:
    """Different ones, with how often each comes if there are several."""
    listed = list(texts)
    counts = {text: listed.count(text) for text in dict.fromkeys(listed)}
    if len(counts) == 1:
        return listed[0]
    return "; ".join(f"{text} ({count} run{'s' * (count != 1)})" for text, count in counts.items())
