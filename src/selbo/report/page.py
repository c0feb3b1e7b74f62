"""The page of a comparison: one self-contained HTML file with its tables and figures."""

import io
import math
import os
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from selbo._files import replacing
from selbo.plots.labels import duration, number
from selbo.plots.methods import METHOD_COLOURS
from selbo.plots.panels import GUIDE
from selbo.plots.style import INK, ONE_COLUMN, PALE, TWO_COLUMNS, saving_style
from selbo.report.class_tables import MOST_IN_MATRIX, baseline_table, class_table, confusion_table, group_table
from selbo.report.comparison import (
    Value,
    clean_name,
    metric_names,
    noise_levels,
    noisiest,
    summarise,
    summarise_ood,
)
from selbo.report.curves import COMPARISON_FIGURES, CURVES, available_figures, distances, require_stated_belief
from selbo.report.groups import describe_groups, group_fractions, stated_group_table
from selbo.report.outcomes import baseline_takeaway, group_takeaway
from selbo.report.tables import clean_table, headline_table, level_table, metric_label, texts
from selbo.report.takeaway import takeaway
from selbo.report.templates import load_templates, render_macro
from selbo.results import Comparison

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

THEME: Final = {
    INK: "--ink",
    PALE: "--pale",
    GUIDE: "--guide",
    "#ffffff": "--paper",
    **{colour: f"--m{i}" for i, colour in enumerate(METHOD_COLOURS)},
}
"""Colours of the figures, and the style sheet variables that replace them, which change in dark mode."""

WIDE: Final = 928
PHONE: Final = 416
"""Maximum width in pixels of figures of two columns and of one column; smaller ones are scaled in proportion."""

MOST_TABLE_GROUPS: Final = 200
"""Maximum number of groups in a table; ``metrics.json`` holds all of them."""

MOST_CHART_CLASSES: Final = 60
"""Maximum number of classes for the small chart of their counts."""


def write_page(results: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write the report of a comparison, or of one method, as a single HTML file.

    The file is written atomically: a failure leaves an existing file unchanged. Sections without data are left out.

    Args:
        results: The results; `selbo.results.Comparison.from_dict` reads them from JSON.
        path: Path of the file; its folder is created if needed.

    Returns:
        The path of the file.
    """
    return write_html(lambda: render_page(results), path)


def write_html(render: Callable[[], str], path: str | os.PathLike[str]) -> Path:
    """Write a page atomically; creates its folder if needed, and raises an error if ``path`` is a folder."""
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"`path` must be the name of a file, but {str(target)!r} is a folder")
    page = render()
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return target


def render_page(results: Comparison) -> str:
    """The HTML of the page."""
    belief = results.belief
    template = load_templates().get_template("comparison.html")
    return template.render(
        version=results.made_by.selbo,
        title=results.title,
        takeaway=_paragraphs(takeaway(results)),
        description=_paragraphs(results.description),
        summary=_facts(results),
        belief=belief,
        concentration=number(belief.concentration, digits=6) if belief else "",
        sections=comparison_sections(results),
        notes=results.notes or (),
        command=results.made_by.command,
        made=_made(results),
    )


def comparison_sections(results: Comparison) -> "list[Section]":
    """The sections of the page; those without data are left out."""
    return [
        _result(results),
        *_baseline_sections(results),
        *_stated_group_sections(results),
        *_group_sections(results),
        *_class_sections(results),
        *(_figure_section(results, name) for name in available_figures(results)),
    ]


def _paragraphs(text: str | None) -> list[str | list[str]]:
    """Split text into paragraphs at empty lines; a paragraph whose lines all begin with a dash is a list."""
    parts = [part.splitlines() for part in re.split(r"\n\s*\n", text.strip())] if text else []
    return [
        [line[2:] for line in lines]
        if all(line.startswith("- ") for line in lines)
        else " ".join(" ".join(lines).split())
        for lines in parts
    ]


def _thousands(count: int) -> str:
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


# --- settings and results ---


def _facts(results: Comparison) -> list[tuple[str, str]]:
    task = results.task
    facts = [
        *([] if task.num_train is None else [(_thousands(task.num_train), "training examples")]),
        (_thousands(task.num_test), "test examples"),
        (str(task.num_classes), "classes"),
        (str(len(results.methods)), "method" if len(results.methods) == 1 else "methods"),
        (str(len(results.seeds)), "seed" if len(results.seeds) == 1 else "seeds each"),
    ]
    if task.num_classes <= MOST_CHART_CLASSES and max(task.class_counts) > 0:
        low, high = min(task.class_counts), max(task.class_counts)
        kind = "test" if task.num_train is None else "training"
        note = f"{kind} examples per class, {f'{low} to {high}' if low < high else f'{low} each'}"
        facts.append((render_macro("parts.html", "class_counts", task), note))
    return facts


class Section(NamedTuple):
    """A section: ``shown`` is kept on the printed page of its title, ``tables`` are folded."""

    title: str
    under: str
    shown: "Markup"
    reading: Sequence[str] = ()
    conclusion: Sequence[str | list[str]] = ()
    folded: str = ""
    tables: "Sequence[Markup]" = ()


def _result(results: Comparison) -> Section:
    said = _paragraphs(results.conclusion)
    seeds = len(results.seeds)
    under = f"Mean ± standard error over {seeds} seeds." if seeds > 1 else "One seed: no standard error can be stated."
    glossary = (
        "NLL is the negative log-likelihood of the correct class, in nats. ECE, the expected calibration error, is the "
        "mean gap between confidence and accuracy. Lower is better for both; higher is better for accuracy, F1 and "
        "AUROC."
    )
    measured = metric_names(results, results.clean)
    if "group_error" in measured:
        error = (
            "The error of group fractions is the mean difference, without its sign, between the predicted and the "
            "stated fractions of groups, in points."
        )
        glossary = f"{glossary} {error}" if "nll" in measured else error
    if len(results.methods) == 1:
        return Section("The result", under, _tiles(results), [glossary], said)
    marks = (
        "If another mean is within one standard error of the best one, there is no clear winner. The marks describe "
        "these runs; they are not a statistical test."
    )
    if seeds == 1:
        marks = "With a single seed, small differences may be chance."
    folded, tables = f"All metrics of the {clean_name(results)}", [clean_table(results)]
    return Section("The result", under, headline_table(results), [marks, glossary], said, folded, tables)


def _tiles(results: Comparison) -> "Markup":
    (row,) = summarise(results, results.clean, metric_names(results, results.clean))
    tiles = []
    for metric, value in row.values.items():
        (text,) = texts(metric, [value], num_seeds=len(results.seeds))
        tiles.append((render_macro("tables.html", "shown_value", text), metric_label(metric)))
    return render_macro("parts.html", "facts", tiles, css="facts tiles")


def _baseline_sections(results: Comparison) -> list[Section]:
    """The method beside simple baselines, if there is a single run that has them."""
    found = results.runs[0].baselines if len(results.runs) == 1 else None
    if not found:
        return []
    return [
        Section(
            "Is it better than simple baselines?",
            f"The same rows of the {clean_name(results)} by simple baselines, with 95 % intervals.",
            baseline_table(found),
            [
                "Class frequencies are the constant answer: the share of each class among the training rows. Logistic "
                "regression has the settings of scikit-learn and the inputs of the model. A prior correction turns the "
                "class fractions of its training rows into the stated ones. The difference is the NLL of a baseline "
                "minus that of the model, row by row: above 0 the model is better, and its interval shows whether that "
                "may be chance."
            ],
            conclusion=[baseline_takeaway(found)],
        )
    ]


def _group_sections(results: Comparison) -> list[Section]:
    """Results per group, if there is a single run that has them."""
    run = results.runs[0]
    if len(results.runs) != 1 or run.groups is None:
        return []
    return [
        Section(
            "Is it as good in every group?",
            f"Metrics on the {clean_name(results)} by {run.grouped_by or 'group'}, with 95 % intervals.",
            group_table(run.groups, run.grouped_by or "group"),
            [
                "Overconfidence is the mean probability of the predicted classes minus the accuracy: above 0 the group "
                "is right less often than the predictions claim, and its interval shows whether that may be chance. Of "
                "20 groups that do not differ, one interval misses on average."
            ],
            conclusion=[group_takeaway(run.groups)],
        )
    ]


def _class_sections(results: Comparison) -> list[Section]:
    """Results per class, if there is a single run that has them."""
    found = results.runs[0].classes if len(results.runs) == 1 else None
    if found is None:
        return []
    matrix = len(found.per_class) <= MOST_IN_MATRIX
    each = Section(
        "How well is each class recognised?",
        f"Recall and precision on the {clean_name(results)}, with 95 % intervals (Wilson) and the number of rows.",
        class_table(found.per_class),
        [
            "Recall is the share of the rows of a class that are predicted as that class. Precision is the share of "
            "the rows predicted as a class that belong to it. Bars show the interval, marks the share, on a scale from "
            "0 to 100 %. With few rows the interval is wide, and the share is uncertain."
        ],
    )
    which = Section(
        "Which classes are mistaken for which?" if matrix else "Which classes are confused most?",
        f"Rows of the {clean_name(results)} by their true and their predicted class."
        if matrix
        else f"Pairs of classes by the number of rows of the {clean_name(results)} that are mistaken.",
        confusion_table(found),
    )
    return [each, which]


def _stated_group_sections(results: Comparison) -> list[Section]:
    """Stated and predicted fractions of groups, if there is a single run that has them."""
    found = results.runs[0].stated_groups if len(results.runs) == 1 else None
    if found is None:
        return []
    names, against = results.task.class_names, found.contradicted
    draw = partial(group_fractions, found, names)
    shown = draw_for_screens(draw, name="groups", label=describe_groups(found, names))
    if against:
        shown += stated_group_table(against[:MOST_TABLE_GROUPS], names)
    rows = "held-out rows" if found.held_out else "training rows"
    first = min(len(found.groups), MOST_TABLE_GROUPS)
    folded = f"The numbers of {'all' if first == len(found.groups) else 'the first'} {first} groups"
    under = f"Class fractions of {len(found.groups)} groups ({found.column}): stated, and predicted for {rows}."
    if against:
        under += f" Contradicted, as in the table: {len(against)}."
    reading = [
        "A pale bar is the interval of a stated fraction, computed from its concentration, with a mark at the "
        "stated value. A dot is the mean predicted probability of the rows of the group. Its line is the interval of "
        "the fraction among these rows, if predictions are calibrated. Groups are sorted by the stated fraction.",
        "A group is contradicted if the difference is too large to be chance: p, the p-value corrected for the number "
        "of groups, is below .01. Without labels, all rows are tested beside the held-out ones. Its fraction is wrong "
        "or less precise than stated, or people with the same inputs differ between groups.",
    ]
    title = "Do the predictions agree with the stated fractions?"
    return [
        Section(title, under, shown, reading, folded=folded, tables=[stated_group_table(found.groups[:first], names)])
    ]


# --- figures ---


class Words(NamedTuple):
    """Texts of a figure: title, subtitle, how to read it, and a description for screen readers."""

    title: str
    under: str
    reading: list[str]
    spoken: str


def _figure_section(results: Comparison, name: str) -> Section:
    words = WORDS[name](results)
    shown = draw_for_screens(partial(COMPARISON_FIGURES[name], results), name=name, label=words.spoken)
    more = "The numbers of these curves"
    tables = [level_table(results, m) for m in _curve_metrics(results)] if name == "corruption_curves" else []
    return Section(words.title, words.under, shown, words.reading, folded=more, tables=tables)


def draw_for_screens(draw: "Callable[..., Figure]", *, name: str, label: str) -> "Markup":
    """A figure drawn twice, for wide screens and for phones; the style sheet shows one of the two.

    Args:
        draw: Draws the figure; called with ``width``, in inches.
        name: Prefix of every id, unique on a page.
        label: Description for screen readers.
    """
    drawings = []
    for css, full, pixels in (("wide", TWO_COLUMNS, WIDE), ("narrow", ONE_COLUMN, PHONE)):
        drawn = draw(width=full)
        svg = inline_svg(drawn, name=f"{name}-{css}", label=label)
        drawings.append((css, drawn.get_figwidth() / full * pixels, svg))
    return render_macro("parts.html", "figure", drawings)


def inline_svg(figure: "Figure", *, name: str, label: str) -> "Markup":
    """A figure as inline SVG: text stays text, and colours are variables of the style sheet.

    Args:
        figure: Any matplotlib figure.
        name: Prefix of every id, unique on a page.
        label: Description for screen readers.
    """
    import matplotlib
    from markupsafe import Markup

    buffer = io.StringIO()
    with (
        warnings.catch_warnings(),
        saving_style(),
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}),
    ):
        # the browser renders the text, with fonts that may have glyphs missing in matplotlib's
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawing = buffer.getvalue()
    drawing = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style .*?</style>", "", drawing, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]+)"', drawing)
    if box is None:
        raise RuntimeError("matplotlib wrote an SVG without a viewBox")
    inside = drawing[drawing.index(">", drawing.index("<svg")) + 1 :].replace("xlink:href", "href")
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', inside))
    inside = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", inside)
    inside = re.sub(r'(url\(|href=")#', rf"\1#{name}-", inside)
    for colour, variable in THEME.items():
        inside = re.sub(rf"(?<=: ){colour}\b", f"var({variable})", inside)
    inside = re.sub(r"\n\s*", "\n", inside).strip()
    return Markup('<svg viewBox="{}" role="img" aria-label="{}">{}').format(box[1], label, Markup(inside))


def _curve_metrics(results: Comparison) -> list[str]:
    measured = {metric for name, _ in noise_levels(results) for metric in metric_names(results, name)}
    return [metric for metric in CURVES if metric in measured]


def _spoken(metric: str, values: dict[str, Value], results: Comparison) -> str:
    shown = texts(metric, list(values.values()), num_seeds=len(results.seeds))
    return f"{metric_label(metric)}: " + ", ".join(f"{n} {t.mean}" for n, t in zip(values, shown, strict=True)) + "."


def _seeds(results: Comparison) -> str:
    return f"mean over {len(results.seeds)} seeds" if len(results.seeds) > 1 else "one seed"


def _belief_words(results: Comparison) -> Words:
    reading = [
        "A pale bar with a cap shows the belief s₀: the expected share of predictions in a region. The coloured bar in "
        "front of it shows the actual share. Where the coloured bars end at the caps, the predictions match it.",
        "The distance above a panel is the total variation distance: the share of the predictions that would have to "
        "move to another region to match the belief exactly. 0 is a perfect match, 1 is no overlap.",
    ]
    belief = require_stated_belief(results)
    if belief.shells:
        reading.append(
            f"Each group ({', '.join(belief.shells)}) has one bar per class, for predictions that give this class a "
            f"probability in that range; “{belief.regions[-1]}” holds all other predictions."
        )
    spoken = ", ".join(f"{name} {mean:.3f}" for name, (mean, _) in distances(results).items())
    return Words(
        "Do the predictions look like the belief?",
        f"Where predictions fall, region by region, against the belief s₀; {_seeds(results)}.",
        reading,
        f"Bars of region masses against the belief, one panel per method. Distance to the belief: {spoken}.",
    )


def _reliability_words(results: Comparison) -> Words:
    rows = summarise(results, results.clean, ["ece"])
    return Words(
        "Can the stated confidence be trusted?",
        f"Accuracy against confidence on the {clean_name(results)}, with the number of predictions below.",
        [
            "The confidence of a prediction is the probability of the predicted class, the largest of all. "
            "Of all predictions with a confidence of 80 %, 80 % should be correct: then the marker lies on the "
            "diagonal. Below it a method is overconfident, above it underconfident. The line from a marker to the "
            "diagonal is the gap, and ECE is the mean gap, weighted by the number of predictions.",
            "The bars below count the predictions of a run in each bin, on a logarithmic scale. A hollow marker has "
            "fewer than 30 predictions and is uncertain.",
        ],
        "Reliability diagrams, one per method. " + _spoken("ece", {r.method: r.values["ece"] for r in rows}, results),
    )


def _risk_words(results: Comparison) -> Words:
    run = next(each for each in results.runs if each.risk_curve is not None)
    assert run.risk_curve is not None
    risk = run.risk_curve.risk
    half, all_of_them = 100 * risk[len(risk) // 2 - 1], 100 * risk[-1]
    one = f" Here {half:.1f} % of the more confident half are wrong, of all {all_of_them:.1f} %."
    return Words(
        "What if it may decline to answer?",
        f"Share of wrong answers on the {clean_name(results)}, if only the most confident predictions are answered.",
        [
            "Read it from right to left: at 100 % every case is answered; further left, the least confident ones are "
            f"left to somebody else.{one if len(results.runs) == 1 else ''} The dashed curve is that of a ranking in "
            "which every wrong prediction is less confident than every right one: none can be lower. AURC is the area "
            "under the curve, the mean error over all shares of answers; smaller is better.",
        ],
        f"Curve of the error rate by share of answers. Of {run.method}, {half:.1f} % are wrong if half of the cases "
        f"are answered, and {all_of_them:.1f} % if all are.",
    )


def _corruption_words(results: Comparison) -> Words:
    name, level = noisiest(results) or ("", 0.0)
    metrics = _curve_metrics(results)
    rows = summarise(results, name, metrics)
    numbers = " ".join(_spoken(m, {row.method: row.values[m] for row in rows}, results) for m in metrics)
    axis = results.corruption
    return Words(
        "What happens when the inputs get worse?",
        f"Accuracy, ECE and NLL against {axis}; {_seeds(results)}, with bands of one standard error."
        if len(results.seeds) > 1
        else f"Accuracy, ECE and NLL against {axis}; one seed.",
        [
            "From left to right the test inputs get worse; the first points are the clean test set. Accuracy falls, as "
            "the inputs carry less information. A well-calibrated method becomes less confident too: its ECE stays "
            "low, and its NLL rises slowly.",
        ],
        f"Curves of accuracy, ECE and NLL against {axis}, one line per method. At {number(level)}: {numbers}",
    )


def _entropy_words(results: Comparison) -> Words:
    rows = summarise_ood(results, ["auroc"])
    other, classes = results.ood_name or "out-of-distribution inputs", results.task.num_classes
    return Words(
        "Does it notice inputs that belong to no class?",
        f"Entropy of the predictions for the test set (filled) and for {other} (line), as shares of each.",
        [
            "Entropy measures the uncertainty of a prediction: 0 if one class has all probability, "
            f"{math.log(classes):.2f} if all {classes} classes have the same. The inputs of the line belong to no "
            "class, so their entropy should be high, and that of the test set low: the less overlap, the better.",
            "AUROC is the probability that a random input of the line has a higher entropy than a random test input; "
            "50 % is guessing. The height of a bar that exceeds the panel is written next to it.",
        ],
        "Histograms of entropy in and out of distribution, one panel per method. "
        + _spoken("auroc", {row.method: row.values["auroc"] for row in rows}, results),
    )


WORDS: Final[dict[str, Callable[[Comparison], Words]]] = {
    "belief_histograms": _belief_words,
    "reliability_diagrams": _reliability_words,
    "risk_coverage_curves": _risk_words,
    "corruption_curves": _corruption_words,
    "entropy_histograms": _entropy_words,
}


# --- provenance ---


def _made(results: Comparison) -> list[tuple[str, str]]:
    made = results.made_by
    times = {method: fmean(run.seconds for run in results.of_method(method)) for method in results.methods}
    each = ", ".join(f"{method} {duration(seconds)}" for method, seconds in times.items())
    return [
        ("Seeds", ", ".join(map(str, results.seeds))),
        ("Versions", f"selbo {made.selbo}, Python {made.python}, PyTorch {made.torch}"),
        ("Machine", made.machine),
        ("Time", f"{duration(made.seconds)} in all; a run: {each}"),
    ]
