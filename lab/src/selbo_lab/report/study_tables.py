"""Tables of a study, and the main one for the terminal; `table_files` writes them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from selbo.report import (
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    Difference,
    Value,
    direction,
    metric_label,
    rich_table,
    shown_cells,
    signed,
    texts,
)
from selbo.report import Column as ShownColumn
from selbo_lab.report import studies
from selbo_lab.report.columns import CORRUPTED, MetricColumn
from selbo_lab.report.origin import provenance
from selbo_lab.report.sample_notes import sample_notes
from selbo_lab.report.studies import Cell
from selbo_lab.report.study_data import ood_title, sort_corruptions
from selbo_lab.run.records import CLEAN, SHIFTS, USE, MethodRuns, Run, StudyComparison, StudyResults, Tried

if TYPE_CHECKING:
    from rich.table import Table as RichTable

TRIAL: Final = "Trial on generated data: the numbers mean nothing."
TRACK_TITLES: Final = {"published": "settings of the paper's code", "selbo": "our settings"}
INTERVALS: Final = (
    "Mean ± standard error. Difference: ours less the paper's. Intervals of 95 %: ours from Student's t; the paper's "
    "is its mean ± 1.96 times its published standard error, both taken half of the last printed digit further."
)
CHANCE: Final = "Each interval stands for itself: of many, some miss by chance."
BOLD_NOTE: Final = f"Bold: the interval does not hold 0. {CHANCE}"
BEST: Final = " Bold: best of its column; italic: within one standard error of the best."
"""Meaning of the marks in a table without colours."""

TARGET_COLUMNS: Final = tuple(MetricColumn(USE, metric) for metric in ("nll", "accuracy", "ece"))
CONSOLE: Final = (
    *(MetricColumn(CLEAN, metric) for metric in ("nll", "accuracy", "ece")),
    *(MetricColumn(CORRUPTED, metric) for metric in ("nll", "ece")),
)
DIFFERENCES: Final = (*CONSOLE, MetricColumn(CLEAN, "f1_macro"), *TARGET_COLUMNS, MetricColumn(USE, "f1_macro"))
"""Columns of the table of differences and of the console; the CSV files hold all of them."""


class Head(NamedTuple):
    """Head of a column: a label, and the heading above several columns."""

    label: str
    group: str = ""


class Entry(NamedTuple):
    """A cell of a table.

    Attributes:
        value: A number, or any text.
        mark: ``best`` or ``close``, of a difference ``better`` or ``worse``.
        error: A standard error or an interval.
        note: What is missing, in parentheses.
        method: Name of the method, where the entry is its title.
    """

    value: str
    mark: str = ""
    error: str = ""
    note: str = ""
    method: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join(filter(None, (self.value, self.error, self.note)))


class RowsOnDemand(Sequence[dict[str, Any]]):
    """Lines of a CSV file, which are many more numbers than the table has; computed when they are asked for."""

    def __init__(self, compute: Callable[[], list[dict[str, Any]]]) -> None:
        self.compute = compute

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The lines."""
        return self.compute()

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


class StudyTable(NamedTuple):
    """A table to read, and the numbers behind it.

    Attributes:
        name: Name in file names.
        subject: Data, network and track.
        shows: Content of the table; empty if the subject says it.
        heads: One head per column.
        rows: One entry per column.
        align: One letter per column, ``l`` or ``r``.
        notes: Sentences below the table.
        raw: Numbers without rounding, one dictionary per line of the CSV file.
    """

    name: str
    subject: str
    shows: str
    heads: list[Head]
    rows: list[list[Entry]]
    align: str
    notes: list[str]
    raw: Sequence[dict[str, Any]]

    @property
    def title(self) -> str:
        """Subject and what is shown of it."""
        return f"{self.subject}: {self.shows}" if self.shows else self.subject


# --- which tables there are ---


def build_tables(results: StudyResults, comparison: StudyComparison) -> list[StudyTable]:
    """All tables of one comparison that hold anything, in the order in which they are read.

    Temperature scaling has tables of its own, with marks of their own, in the track ``selbo``.

    Args:
        results: Results of a study, from `selbo_lab.schedule.runner.gather`.
        comparison: One of its ``comparisons``.
    """
    return list(iter_tables(results, comparison))


def iter_tables(results: StudyResults, comparison: StudyComparison) -> Iterator[StudyTable]:
    """The tables of `build_tables`, each computed when it is reached."""
    return (table for table in _every_table(results, comparison) if table.rows and len(table.heads) > 1)


def _every_table(results: StudyResults, comparison: StudyComparison) -> Iterator[StudyTable]:
    data, evaluation = comparison.data, comparison.evaluation
    without = data.groups or data.prevalences or evaluation.halves  # nothing was scaled by validation labels
    has_temperatures = comparison.track == "selbo" and not without
    ways = (False, True) if has_temperatures else (False,)
    for scaled in ways:
        yield from _scores(results, comparison, scaled)
    for place in ("clean", "corrupted") if comparison.classes else ():
        yield _recalls(results, comparison, place)
    yield _by_corruption(results, comparison)
    for scaled in ways:
        yield _differences(results, comparison, scaled)
    if comparison.focus and not comparison.has_target_domain:  # studies with a target domain have an overview for that
        yield _baselines(results, comparison, ways)
    if comparison.paper.methods:
        yield _paper(results, comparison)
    yield _settings(results, comparison)


def chosen_by(comparison: StudyComparison) -> str:
    """What the settings of a comparison are chosen by."""
    return "NLL of held-out groups" if comparison.data.groups else "validation NLL"


def _scores(results: StudyResults, comparison: StudyComparison, scaled: bool) -> Iterator[StudyTable]:
    methods = comparison.methods
    remarks = [f"{method.title}: {method.note}" for method in methods if method.note]
    for name, title, foreign, notes in (
        ("scores", _places(comparison), False, [*_conditions(comparison), *remarks]),
        ("ood", "OOD inputs", True, _foreign_names(comparison)),
    ):
        columns = [column for column in studies.find_columns(comparison) if column.ood == foreign]
        entries = [_entries(c.metric, list(studies.cells(comparison, c, scaled).values())) for c in columns]
        yield StudyTable(
            f"{name}-temperature" if scaled else name,
            _title(comparison),
            f"{title}{', temperature scaling on top' if scaled else ''}",
            [Head("method"), *(_head(comparison, column) for column in columns)],
            [[_named_entry(method), *(each[i] for each in entries)] for i, method in enumerate(methods)],
            "l" + "r" * len(columns),
            [_reading(results, methods), *notes, *sample_notes(comparison, columns), *below(results, comparison.runs)],
            RowsOnDemand(partial(_raw_scores, results, comparison, foreign, scaled)),
        )


def _raw_scores(
    results: StudyResults, comparison: StudyComparison, foreign: bool, scaled: bool
) -> list[dict[str, Any]]:
    return [
        _place(results, comparison, method, scaled) | {"column": str(column)} | _raw(cell)
        for column in studies.all_columns(comparison)
        if column.ood == foreign
        for method, cell in studies.cells(comparison, column, scaled).items()
    ]


def _recalls(results: StudyResults, comparison: StudyComparison, place: str) -> StudyTable:
    """Recall of each class, one row each, from frequent to rare; temperature scaling does not change it."""
    methods = comparison.methods
    size = max((run.sizes.get("test", 0) for run in _tested(comparison)), default=0)
    rows, raw = [], []
    for k, (name, share) in enumerate(comparison.classes.items()):
        column = MetricColumn(place, "recall", of_class=k)
        if studies.measured(comparison, column):
            found = studies.cells(comparison, column)
            told = [Entry(name), Entry(f"{100 * share:.3g}"), Entry(f"{share * size:.0f}")]
            entries = _entries("recall", list(found.values()))
            none = not any(cell.mean for cell in found.values())  # is found at all: nothing to praise
            rows.append([*told, *(each._replace(mark="") if none else each for each in entries)])
            raw += [
                _place(results, comparison, method) | {"column": str(column), "class": name} | _raw(cell)
                for method, cell in found.items()
            ]
    return StudyTable(
        "recall" if place == "clean" else f"recall-{place}",
        _title(comparison),
        f"recall of each class, {place}",
        [*(Head(label) for label in ("class", "share, %", "test examples")), *(Head(m.title) for m in methods)],
        rows,
        "l" + "r" * (2 + len(methods)),
        [
            f"{_reading(results, methods).replace('column', 'row')} Per cent. With few examples a recall says little.",
            *sample_notes(comparison, [MetricColumn(place, "recall")]),
            *below(results, comparison.runs),
        ],
        raw,
    )


def _by_corruption(results: StudyResults, comparison: StudyComparison) -> StudyTable:
    """NLL under each corruption, one row each, as the mean over its levels; empty for fewer than two kinds.

    With many target domains, by size of the label shift instead.
    """
    methods, kinds = comparison.methods, sort_corruptions(comparison).kinds
    what = "label shift" if comparison.data.prevalences else "corruption"
    if comparison.data.prevalences:
        kinds = {name: [name] for name in SHIFTS}
    rows, raw = [], []
    for kind, conditions in (kinds if len(kinds) > 1 else {}).items():
        found = studies.mean_cells(comparison, [MetricColumn(each, "nll") for each in conditions])
        rows.append([Entry(kind.replace("_", " ")), *_entries("nll", list(found.values()), precise=False)])
        raw += [
            _place(results, comparison, method) | {"column": f"{kind}.nll", "conditions": len(conditions)} | _raw(each)
            for method, each in found.items()
        ]
    strengths = max((len(each) for each in kinds.values()), default=0)
    mean = f" Mean over {strengths} strengths of a run." if strengths > 1 else ""
    return StudyTable(
        "corruptions",
        _title(comparison),
        f"NLL by {what}",
        [Head(what), *(Head(method.title) for method in methods)],
        rows,
        "l" + "r" * len(methods),
        [f"{_reading(results, methods).replace('column', 'row')}{mean}", *below(results, comparison.runs)],
        raw,
    )


def _differences(results: StudyResults, comparison: StudyComparison, scaled: bool) -> StudyTable:
    """Differences between all other methods and the reference."""
    reference = comparison.method(comparison.reference)
    return _pairs(
        results,
        comparison,
        [
            _Pair(
                _named_entry(each),
                _place(results, comparison, each.name, scaled) | {"reference": reference.name},
                partial(studies.paired, each, reference, scaled=scaled),
            )
            for each in comparison.methods
            if each is not reference
        ],
        name="differences-temperature" if scaled else "differences",
        shows=f"difference from {reference.title}{', temperature on both' if scaled else ''}",
        note=f"Method less {reference.title}, seed by seed: mean of the differences and its 95 % interval "
        "(Student's t).",
    )


def _baselines(results: StudyResults, comparison: StudyComparison, ways: Sequence[bool]) -> StudyTable:
    """Differences between the method in focus, unscaled, and each other one, with and without temperature scaling."""
    focus = comparison.method(comparison.focus)
    return _pairs(
        results,
        comparison,
        [
            _Pair(
                Entry(f"{each.title}, temperature") if scaled else _named_entry(each),
                _place(results, comparison, focus.name)
                | {"baseline": each.name, "prediction_of_baseline": "temperature" if scaled else "as predicted"},
                partial(studies.paired, focus, each, reference_scaled=scaled),
            )
            for each in comparison.methods
            if each is not focus
            for scaled in ways
        ],
        name="baselines",
        shows=f"{focus.title} less each of the others",
        note=f"{focus.title} as it predicts, less the baseline, seed by seed: mean and 95 % interval (Student's t).",
    )


class _Pair(NamedTuple):
    """A row of differences: its title, where it stands in the CSV file, and the difference in a column."""

    title: Entry
    place: dict[str, Any]
    found: Callable[[MetricColumn], Difference]


def _pairs(
    results: StudyResults, comparison: StudyComparison, pairs: Sequence[_Pair], *, name: str, shows: str, note: str
) -> StudyTable:
    columns = [each for each in studies.find_columns(comparison) if each.whole_range in DIFFERENCES]
    return StudyTable(
        name,
        _title(comparison),
        shows,
        [Head("baseline" if name == "baselines" else "method"), *(_head(comparison, column) for column in columns)],
        [[each.title, *(_difference(column, each.found(column)) for column in columns)] for each in pairs],
        "l" + "r" * len(columns),
        [
            note,
            BOLD_NOTE,
            *_noise_ranges(comparison),
            *sample_notes(comparison, columns),
            *below(results, comparison.runs),
        ],
        RowsOnDemand(
            lambda: [
                each.place | {"column": str(column)} | _raw(each.found(column))
                for column in studies.all_columns(comparison)
                for each in pairs
            ]
        ),
    )


def _paper(results: StudyResults, comparison: StudyComparison) -> StudyTable:
    rows, raw, columns, numbered = [], [], list[MetricColumn](), dict[str, int]()
    if caveat := comparison.paper.caveat or None:
        numbered[caveat] = 1
    for method in comparison.methods:
        for column, theirs in studies.published(comparison.paper, method.name).items():
            ours = studies.cell(method, column)
            barred = studies.not_comparable(comparison.paper, method.name, column)
            found = studies.against_paper(ours, theirs, barred)
            there = studies.measured(comparison, column)
            reason = found.reason if barred or there else "not measured"
            agreement = reason or ("yes" if found.overlap else "no") + (f" [{numbered[caveat]}]" if caveat else "")
            if barred:
                agreement = f"cannot be compared [{numbered.setdefault(barred, len(numbered) + 1)}]"
            metric, both = column.metric, [Cell(*theirs, 1, 1), ours if there else Cell(None, None, 0, 0)]
            gap = "–" if found.difference is None else signed(metric, found.difference)
            what = Entry(f"{_group(column)} {metric_label(metric)}")
            shown = _entries(metric, both, precise=False)
            rows.append([_named_entry(method), what, *shown, Entry(gap), Entry(agreement)])
            columns.append(column)
            raw.append(
                _place(results, comparison, method.name)
                | {"column": str(column), "paper_mean": theirs[0], "paper_standard_error": theirs[1]}
                | _raw(ours)
                | {"difference": found.difference, "overlap": found.overlap, "reason": reason, "caveat": caveat}
            )
    heads = [Head(label) for label in ("method", "measure", "paper", "ours", "difference", "intervals overlap")]
    notes = [INTERVALS, *(f"[{number}] {text}" for text, number in numbered.items()), *_overlap_note(comparison)]
    notes += [*sample_notes(comparison, columns), *below(results, comparison.runs)]
    return StudyTable("paper", _title(comparison), "the paper's values and ours", heads, rows, "llrrrl", notes, raw)


def _settings(results: StudyResults, comparison: StudyComparison) -> StudyTable:
    rows, raw = [], []
    for method, took in zip(comparison.methods, studies.timings(comparison).values(), strict=True):
        tried, chosen, found = method.tried, method.chosen, studies.tuned(method)
        grid = _named({name: dict.fromkeys(each.settings[name] for each in tried) for name in chosen})
        unknown = f"; {found.unknown} diverged or missing" if found.unknown else ""
        nothing = f"as {method.chosen_with}" if method.chosen_with else "nothing"
        rows.append(
            [
                _named_entry(method),
                Entry(_named({name: [setting] for name, setting in chosen.items()}) or "–"),
                Entry("–" if found.chosen is None else f"{found.chosen:.4f}"),
                Entry("–" if found.low is None else f"{found.low:.4f}–{found.high:.4f}"),
                Entry(f"{len(tried)}: {grid}{unknown}" if tried else nothing),
                Entry("–") if took.mean is None else Entry(f"{took.mean:.1f}", note=_in_brackets(took.note)),
            ]
        )
        raw += [
            _place(results, comparison, method.name)
            | {"setting": _named({name: [each.settings[name]] for name in chosen}), "val_nll": each.val_nll}
            | {"chosen": studies.is_chosen(method, each), "training_seconds": took.mean}
            for each in tried or [Tried(settings=chosen, val_nll=None)]
        ]
    criterion = chosen_by(comparison)
    heads = [Head(each) for each in ("method", "chosen", criterion, "of all tried", "tried", "training, s")]
    notes = [f"Chosen by {criterion}. Training: the mean over the seeds.", *below(results, comparison.runs)]
    return StudyTable("settings", _title(comparison), "what was tried and chosen", heads, rows, "llrrlr", notes, raw)


# --- parts of tables ---


def _title(comparison: StudyComparison) -> str:
    return f"{comparison.title}, {TRACK_TITLES[comparison.track]}"


def _named_entry(method: MethodRuns) -> Entry:
    return Entry(method.title, method=method.name)


def _head(comparison: StudyComparison, column: MetricColumn) -> Head:
    metric = column.metric
    arrow = " ↓" if metric in LOWER_IS_BETTER else " ↑" if metric in HIGHER_IS_BETTER else ""
    group = _range_name(comparison, column) or _group(column, comparison.has_target_domain)
    return Head(f"{metric_label(metric)}{arrow}", "test" if group == "clean" and not _corrupted(comparison) else group)


def _places(comparison: StudyComparison) -> str:
    """What was tested, for a title."""
    if not comparison.has_target_domain:
        return "clean and corrupted test sets" if _corrupted(comparison) else "test set"
    return "target domain" if comparison.one_domain else "target and source domain"


def _corrupted(comparison: StudyComparison) -> bool:
    """Whether there are corrupted test sets in addition to the clean one."""
    return any(len(run.conditions) > 1 for run in _tested(comparison))


def _group(column: MetricColumn, two_places: bool = False) -> str:
    if two_places:
        return {USE: "target domain", CLEAN: "source domain"}.get(column.place, column.place)
    return f"against {column.place}" if column.ood else column.place


def _entries(metric: str, cells: Sequence[Cell], *, precise: bool = True) -> list[Entry]:
    shown = texts(metric, [cell.value for cell in cells], num_seeds=0, precise=precise)
    return [
        Entry(
            text.mean,
            "best" if cell.best else "close" if cell.close else "",
            f"± {text.error}" if text.error else "",
            _in_brackets(cell.note),
        )
        for cell, text in zip(cells, shown, strict=True)
    ]


def _in_brackets(note: str | None) -> str:
    return f"({note})" if note else ""


def _difference(column: MetricColumn, found: Difference) -> Entry:
    metric = column.metric
    mean, _, low, high = (None if each is None else signed(metric, each, more=1) for each in found[:4])
    return Entry(
        mean or "–",
        ("better" if direction(metric) * (found.mean or 0.0) > 0 else "worse") if found.clear else "",
        f"[{low}, {high}]" if low else "",
        f"({found.pairs} of {found.seeds} pairs)" if found.pairs < found.seeds else "",
    )


def _reading(results: StudyResults, methods: Sequence[MethodRuns]) -> str:
    seeds = len(results.seeds)
    marks = BEST if len(methods) > 1 else ""
    return f"Mean ± standard error over {seeds} seeds.{marks}" if seeds > 1 else f"One seed.{marks}"


def _range_name(comparison: StudyComparison, column: MetricColumn) -> str:
    """What the two ranges of noise are called where tables have both; else nothing."""
    if len(studies.noise_ranges(comparison)) < 2 or column.place != CORRUPTED:
        return ""
    return f"noise ≤ {studies.tested_noise_levels(comparison)[-1] if column.up_to is None else column.up_to:g}"


def _noise_ranges(comparison: StudyComparison) -> list[str]:
    """How the two ranges of noise differ, where there are two."""
    if len(studies.noise_ranges(comparison)) < 2:
        return []
    levels, top = studies.tested_noise_levels(comparison), comparison.paper_noise
    few = sum(level <= top for level in levels)
    return [
        f"Noise ≤ {top:g}, the range that the paper shows: mean over {few} strengths of a run; ≤ {levels[-1]:g}: over "
        f"all {len(levels)}."
    ]


def _overlap_note(comparison: StudyComparison) -> list[str]:
    """Number of overlapping intervals, with evidential learning counted separately."""
    found = [each for each in studies.overlaps(comparison) if each is not None]
    apart = [each for each in studies.overlaps(comparison, evidential=True) if each is not None]
    if not found:
        return []
    told = f"Intervals overlap for {sum(found)} of {len(found)} values that can be compared"
    if not apart:
        return [f"{told}."]
    methods = [method for method in comparison.methods if studies.is_evidential(method)]
    dead, runs = sum(map(studies.one_class_runs, methods)), sum(len(method.runs) for method in methods)
    why = f"; {dead} of {runs} runs predict one class only, and so wide an interval overlaps with nearly anything"
    return [f"{told}, evidential learning left out (there {sum(apart)} of {len(apart)}{why if dead else ''})."]


def _conditions(comparison: StudyComparison) -> list[str]:
    if ranges := _noise_ranges(comparison):
        return ranges
    counts = {len(run.conditions) - 1 for run in _tested(comparison)}
    return [f"Corrupted: mean over {max(counts)} conditions of a run."] if counts and max(counts) > 1 else []


def _foreign_names(comparison: StudyComparison) -> list[str]:
    named = {key: ood_title(found.name or key) for run in _tested(comparison) for key, found in run.ood.items()}
    return [f"{'; '.join(f'{key}: {name}' for key, name in named.items())}. Entropies in nats."] if named else []


def _tested(comparison: StudyComparison) -> list[Run]:
    return [run for run in comparison.there if run.conditions]


def below(results: StudyResults, runs: Iterable[Run | None]) -> list[str]:
    """The last notes of a table: where its numbers come from, and whether they mean anything."""
    return [provenance(results.seeds, runs), *([TRIAL] if results.generated else [])]


def _place(
    results: StudyResults, comparison: StudyComparison, method: str, scaled: bool | None = None
) -> dict[str, Any]:
    how = {} if scaled is None else {"prediction": "temperature" if scaled else "as predicted"}
    where = {"study": results.study, "variant": comparison.variant, "track": comparison.track}
    return where | {"data": "generated" if results.generated else "real", "method": method} | how


def _raw(found: Cell | Difference) -> dict[str, Any]:
    numbers = {"standard_error" if key == "error" else key: number for key, number in found._asdict().items()}
    return {key: number for key, number in numbers.items() if key not in ("best", "close")}


def _named(settings: Mapping[str, Iterable[Any]]) -> str:
    """Settings in words, each with its values."""
    shown = {name: [f"{v:g}" if isinstance(v, float) else str(v) for v in values] for name, values in settings.items()}
    return "; ".join(f"{name.replace('_', ' ')} {', '.join(values)}" for name, values in shown.items())


# --- for the terminal ---


def terminal_table(comparison: StudyComparison, results: StudyResults, *, width: int = 80) -> "RichTable":
    """The main numbers for a terminal; the best of a column is bold and has a star, a mean over fewer runs a dagger."""
    wanted = TARGET_COLUMNS if comparison.has_target_domain else CONSOLE
    names = [each for each in studies.find_columns(comparison) if each.whole_range in wanted]
    if len(studies.noise_ranges(comparison)) > 1:  # a terminal is narrow: of the whole range the NLL alone
        names = [each for each in names if each != MetricColumn(CORRUPTED, "ece")]
    found = {name: studies.cells(comparison, name) for name in names}
    columns = [
        ShownColumn(_range_name(comparison, name) or name.place, name.metric, _values(each))
        for name, each in found.items()
    ]
    titles, lines = comparison.titles, []
    for column, each in zip(columns, found.values(), strict=True):
        shown = shown_cells(column, texts(column.metric, list(column.values.values()), num_seeds=0, precise=False))
        lines.append([f"{text[:-1]}†" if c.note else text for text, c in zip(shown, each.values(), strict=True)])
    few = dict.fromkeys(f"† {titles[m]}: {c.note}." for each in found.values() for m, c in each.items() if c.note)
    caption = " ".join([f"{_reading(results, ())} * best of its column.", *few, *below(results, comparison.runs)])
    return rich_table(list(titles.values()), columns, lines, title=_title(comparison), caption=caption, width=width)


def _values(cells: Mapping[str, Cell]) -> dict[str, Value]:
    return {method: cell.value for method, cell in cells.items()}
