"""Tables of a study as files: Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Final

from selbo.files import replacing
from selbo_lab.report.overview import tables_over_cases
from selbo_lab.report.study_tables import TRACK_TITLES, StudyTable, build_tables
from selbo_lab.run.records import StudyResults

LATEX: Final = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
    | {"±": r"$\pm$", "−": "$-$", "–": "--", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "≤": r"$\leq$"}
    | {"α": r"$\alpha$", "γ": r"$\gamma$", "ε": r"$\varepsilon$", "σ": r"$\sigma$"}
)
MARKDOWN: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_|<"})
"""Replacements of characters in LaTeX and in Markdown."""


def markdown(table: StudyTable) -> str:
    """A table and its notes, without its title."""
    marks = {"best": "**", "better": "**", "worse": "**", "close": "*", "": ""}
    heads = [" ".join(filter(None, (head.group, head.label))).translate(MARKDOWN) for head in table.heads]
    rules = ["---:" if side == "r" else ":---" for side in table.align]
    body = [[f"{marks[e.mark]}{e.text.translate(MARKDOWN)}{marks[e.mark]}" for e in row] for row in table.rows]
    lines = [f"| {' | '.join(row)} |" for row in (heads, rules, *body)]
    return "\n".join([*lines, "", *(f"{note.translate(MARKDOWN)}  " for note in table.notes)]).rstrip() + "\n"


def latex(table: StudyTable, label: str = "") -> str:
    """A floating table in the style of booktabs, with its title as caption and its notes below."""
    bold = r"\textbf{%s}"
    marks = {"best": bold, "better": bold, "worse": bold, "close": r"\textit{%s}", "": "%s"}
    top, rules, start = [], [], 1
    for group, heads in groupby(table.heads, key=lambda head: head.group):
        span = len(list(heads))
        top.append(rf"\multicolumn{{{span}}}{{c}}{{{group.translate(LATEX)}}}" if group else " & " * (span - 1))
        rules += [rf"\cmidrule(lr){{{start}-{start + span - 1}}}"] if group else []
        start += span
    rows = [" & ".join(marks[e.mark] % e.text.translate(LATEX) for e in row) + r" \\" for row in table.rows]
    lines = [r"\begin{table}[htbp]", r"\centering\small", rf"\caption{{{table.title.translate(LATEX)}.}}"]
    lines += [rf"\label{{{label}}}"] if label else []
    lines += [r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"]
    lines += [rf"\begin{{tabular}}{{{table.align}}}", r"\toprule"]
    lines += [" & ".join(top) + r" \\", " ".join(rules)] if rules else []
    lines += [" & ".join(head.label.translate(LATEX) for head in table.heads) + r" \\", r"\midrule", *rows]
    notes = " ".join(note.translate(LATEX) for note in table.notes)
    lines += [r"\bottomrule", r"\end{tabular}}", rf"\par\smallskip{{\footnotesize {notes}\par}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def comma_separated(tables: Iterable[StudyTable]) -> str:
    """The numbers of tables of the same kind; unknown values are empty."""
    raw = [row for table in tables for row in table.raw]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in raw for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(raw)
    return text.getvalue()


def write_tables(results: StudyResults, folder: Path) -> list[Path]:
    """Write all tables of a study: for each track one Markdown and one LaTeX file, and a CSV file for each kind.

    Args:
        results: Results of a study.
        folder: Output folder; created if needed.

    Returns:
        The written paths.
    """
    contents: dict[str, str] = {}
    for track in results.tracks:
        made = [(each.variant, table) for each in results.of_track(track) for table in build_tables(results, each)]
        made = [*(("all", table) for table in tables_over_cases(results, track)), *made]
        title = f"# {results.title}: {TRACK_TITLES[track]}\n\nIn the paper: {results.paper}.\n".translate(MARKDOWN)
        parts = [f"## {table.title.translate(MARKDOWN)}\n\n{markdown(table)}" for _, table in made]
        contents[f"{track}.md"] = "\n".join([title, *parts])
        labels = [f"tab:{results.study}-{variant}-{track}-{table.name}" for variant, table in made]
        floats = [latex(table, label) for label, (_, table) in zip(labels, made, strict=True)]
        contents[f"{track}.tex"] = "\n".join(["% Needs the packages booktabs and graphicx.", *floats])
        for name in dict.fromkeys(table.name for _, table in made):
            contents[f"{track}-{name}.csv"] = comma_separated(table for _, table in made if table.name == name)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        with replacing(folder / name) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    return [folder / name for name in contents]
