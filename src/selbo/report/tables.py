"""Tables of a comparison: mean ± standard error with the best marked, for the console and the page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from selbo import _checks
from selbo.plots.labels import number
from selbo.plots.methods import METHOD_COLOURS, MethodStyle, method_styles
from selbo.report.comparison import (
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    Column,
    Value,
    clean_name,
    headline,
    metric_names,
    noise_levels,
    noisiest,
    ood_metrics,
    summarise,
    summarise_ood,
)
from selbo.report.templates import render_macro
from selbo.results import Comparison

if TYPE_CHECKING:
    from markupsafe import Markup
    from rich.table import Table

METRIC_LABELS: Final = {
    "nll": "NLL",
    "accuracy": "accuracy",
    "ece": "ECE",
    "brier": "Brier score",
    "auroc": "AUROC",
    "aurc": "AURC",
    "auprc": "AUPRC",
    "f1": "F1",
    "f1_macro": "F1, macro",
    "f1_micro": "F1, micro",
    "fpr95": "FPR at 95 % TPR",
    "entropy_difference": "entropy difference",
    "group_error": "error of group fractions",
}

PERCENT: Final = frozenset(
    {"accuracy", "ece", "auroc", "aurc", "auprc", "f1", "f1_macro", "f1_micro", "fpr95", "recall", "group_error"}
)
"""Metrics shown in per cent."""

MARKER_SHAPES: Final = {
    "o": '<circle cx="6" cy="6" r="4.6"/>',
    "s": '<path d="M1.8 1.8h8.4v8.4H1.8z"/>',
    "^": '<path d="M6 1 11.2 10.4H.8z"/>',
    "D": '<path d="M6 .6 11.4 6 6 11.4.6 6z"/>',
    "v": '<path d="M6 11 .8 1.6h10.4z"/>',
    "P": '<path d="M4 1h4v3h3v4H8v3H4V8H1V4h3z"/>',
    "*": '<path d="M6 .3 7.7 4.2 11.8 4.6 8.7 7.4 9.6 11.6 6 9.4 2.4 11.6 3.3 7.4.2 4.6 4.3 4.2z"/>',
    "<": '<path d="M1 6 10.4.8v10.4z"/>',
    ">": '<path d="M11 6 1.6.8v10.4z"/>',
    "X": '<path d="M3.2 .8 6 3.6 8.8.8 11.2 3.2 8.4 6l2.8 2.8-2.4 2.4L6 8.4l-2.8 2.8L.8 8.8 3.6 6 .8 3.2z"/>',
}
"""The markers of the figures, in a box of 12 by 12."""


class FormattedValue(NamedTuple):
    """A formatted value: mean and standard error with the same digits, and a note on missing runs."""

    mean: str
    error: str | None
    note: str | None


def metric_label(metric: str, *, unit: bool = True) -> str:
    """Label of a metric, with its unit.

    Example:
        >>> metric_label("ece"), metric_label("nll"), metric_label("top_five")
        ('ECE, %', 'NLL', 'top five')
    """
    label = METRIC_LABELS.get(metric, metric.replace("_", " "))
    return f"{label}, %" if unit and is_percent(metric) else label


def is_percent(metric: str) -> bool:
    """Whether a metric is shown in per cent."""
    return metric in PERCENT


def signed(metric: str, number: float, *, more: int = 0) -> str:
    """Format a difference of a metric with its sign and unit; ``more`` adds digits to those of a table of means."""
    scale, digits = (100.0, 1) if is_percent(metric) else (1.0, 3)
    text = f"{scale * number:+.{digits + more}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def texts(metric: str, values: Sequence[Value], *, num_seeds: int, precise: bool = True) -> list[FormattedValue]:
    """The values of one column, all with the same number of decimals.

    Args:
        metric: Metric, which decides between per cent and plain numbers.
        values: One value per method.
        num_seeds: Expected number of runs; a value from fewer runs gets a note.
        precise: Whether to add a decimal if half of the standard errors would be written as 0.
    """
    scale, digits = (100.0, 1) if is_percent(metric) else (1.0, 3)
    errors = [scale * v.error for v in values if v.error]
    if precise and errors and median(errors) < 0.5 * 10**-digits:
        digits += 1
    return [_text(value, scale=scale, digits=digits, num_seeds=num_seeds) for value in values]


def _text(value: Value, *, scale: float, digits: int, num_seeds: int) -> FormattedValue:
    if value.mean is None:
        return FormattedValue("–", None, None)
    error = None if value.error is None else f"{scale * value.error:.{digits}f}"
    note = None if value.runs == num_seeds else f"{value.runs} of {num_seeds} runs"
    return FormattedValue(f"{scale * value.mean:.{digits}f}", error, note)


# --- the console ---


def console_table(results: Comparison, *, title: str | None = None, width: int = 80) -> "Table":
    """The short table for a terminal: clean, at the highest noise level, and out of distribution.

    The best value of a column is bold and has a star, which is visible without colour.

    Args:
        results: Results of a comparison.
        title: Title above the table, if given.
        width: Characters; long names of methods are wrapped.

    Returns:
        A `rich.table.Table`, to be printed by a `rich.console.Console`.
    """
    columns = headline(results)
    shown = [texts(c.metric, list(c.values.values()), num_seeds=len(results.seeds), precise=False) for c in columns]
    cells = [shown_cells(column, each) for column, each in zip(columns, shown, strict=True)]
    return rich_table(results.methods, columns, cells, title=title, caption=_caption(results, columns), width=width)


def rich_table(
    names: Sequence[str],
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    *,
    title: str | None,
    caption: str,
    width: int,
) -> "Table":
    """A table for a terminal with one row per method, and the metrics in columns.

    Args:
        names: Displayed names of the methods, in the order of the values of each column.
        columns: Group and metric of each column, and which of its values are the best.
        cells: Texts of each column.
        title: Title above the table.
        caption: Caption below the table.
        width: Characters; long names of methods are wrapped.
    """
    require_rich()
    from rich import box
    from rich.table import Table
    from rich.text import Text as Rich

    table = Table(
        title=None if title is None else Rich(title),
        caption=Rich(caption),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    widths = [max(map(len, [*each, c.group, short_label(c.metric)])) for c, each in zip(columns, cells, strict=True)]
    room = _checks.whole("width", width, at_least=40) - sum(1 + w for w in widths)  # one space before each
    table.add_column("\nmethod", width=max(8, min(room, max(map(len, [*names, "method"])))), overflow="fold")
    for column, characters in zip(columns, widths, strict=True):
        table.add_column(
            f"{column.group}\n{short_label(column.metric)}", justify="right", no_wrap=True, width=characters
        )
    best = [[value.best for value in column.values.values()] for column in columns]
    for i, name in enumerate(names):
        row = [Rich(each[i], style="bold" if mark[i] else "") for each, mark in zip(cells, best, strict=True)]
        table.add_row(Rich(name), *row)
    return table


def require_rich() -> None:
    """Raise an error that names the package to install, if rich is missing."""
    try:
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "rich":
            raise
        raise ModuleNotFoundError(
            "tables for the console need rich, which is not installed: pip install 'selbo[cli]'", name="rich"
        ) from None


def short_label(metric: str) -> str:
    """Short label of a metric, for a terminal."""
    return {"accuracy": "acc., %"}.get(metric, metric_label(metric))


def shown_cells(column: Column, shown: Sequence[FormattedValue]) -> list[str]:
    """Cells such as ``.312±.004*``, with a space instead of the star elsewhere, to align digits."""
    bare = [(_bare(text.mean), None if text.error is None else _bare(text.error)) for text in shown]
    return [
        f"{mean}{'' if error is None else f'±{error}'}{'*' if value.best else ' '}"
        for (mean, error), value in zip(bare, column.values.values(), strict=True)
    ]


def _bare(text: str) -> str:
    return text.removeprefix("0") if text.startswith("0.") else text


def _caption(results: Comparison, columns: Sequence[Column]) -> str:
    seeds = len(results.seeds)
    parts = [f"mean ± standard error over {seeds} seeds" if seeds > 1 else "one seed"]
    if len(results.methods) > 1:
        parts.append("* best of its column")
    if (noisy := noisiest(results)) and any(column.group == "noisy" for column in columns):
        parts.append(f"noisy: {results.corruption} {number(noisy[1])}")
    if results.ood_name and any(column.group == "ood" for column in columns):
        parts.append(f"ood: {results.ood_name}")
    return "; ".join(parts)


# --- the page ---


def swatch(look: MethodStyle) -> "Markup":
    """The colour and the marker of a method, as inline SVG."""
    from markupsafe import Markup

    drawing = Markup('<svg class="swatch m{}" viewBox="0 0 12 12" aria-hidden="true">{}</svg>')
    return drawing.format(METHOD_COLOURS.index(look.colour), Markup(MARKER_SHAPES[look.marker]))


def headline_table(results: Comparison) -> "Markup":
    """The short table as HTML, with one group of columns per condition."""
    columns = headline(results)
    noisy = noisiest(results)
    names = {"clean": clean_name(results), "ood": f"against {results.ood_name or 'out-of-distribution inputs'}"}
    if noisy:
        names["noisy"] = f"{results.corruption} {number(noisy[1])}"
    return _html(results, [(names[c.group], metric_label(c.metric), c.metric, c.values) for c in columns])


def clean_table(results: Comparison) -> "Markup":
    """All metrics of the clean test set, and of out-of-distribution detection, as HTML."""
    clean, ood = metric_names(results, results.clean), ood_metrics(results)
    groups = [
        (clean_name(results), clean, summarise(results, results.clean, clean)),
        (f"against {results.ood_name or 'out-of-distribution inputs'}", ood, summarise_ood(results, ood)),
    ]
    columns = [
        (name, metric_label(m), m, {row.method: row.values[m] for row in rows})
        for name, metrics, rows in groups
        for m in metrics
    ]
    return _html(results, columns)


def level_table(results: Comparison, metric: str) -> "Markup":
    """One metric at every noise level, as HTML."""
    group = f"{metric_label(metric)}, by {results.corruption}"
    columns = []
    for name, level in noise_levels(results):
        values = {row.method: row.values[metric] for row in summarise(results, name, [metric])}
        columns.append((group, number(level), metric, values))
    return _html(results, columns)


def _html(results: Comparison, columns: Sequence[tuple[str, str, str, Mapping[str, Value]]]) -> "Markup":
    """A table with one row per method; per column its group, its head, its metric and the values by method."""
    methods, seeds = results.methods, len(results.seeds)
    looks, values = method_styles(methods), [v for *_, by_method in columns for v in by_method.values()]
    return render_macro(
        "tables.html",
        "method_table",
        columns,
        groups=Counter(group for group, *_ in columns),
        shown=[texts(metric, [v[m] for m in methods], num_seeds=seeds) for _, _, metric, v in columns],
        swatches={method: swatch(looks[method]) for method in methods},
        marks={"best" if value.best else "close" for value in values if value.best or value.close},
        seeds=seeds,
        lower=LOWER_IS_BETTER,
        higher=HIGHER_IS_BETTER,
    )
