"""`selbo monitor`: does a stream of predictions contradict what is known about it? An exit status for cron."""

import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from selbo._files import require_predictions
from selbo.cli.options import (
    KNOWLEDGE,
    AnswersRight,
    ClassFraction,
    Debug,
    NoHeader,
    PredictionKind,
    PredictionsFile,
    ReportFile,
    RowFractions,
    ScoreClasses,
    StatementWorth,
    as_options,
    resolve_column,
    resolve_columns,
    speaking_of_options,
    stated_fractions,
)
from selbo.cli.output import console, file_target, note, visible

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table

    from selbo.evaluation.monitor import MonitorState
    from selbo.tabular.predictions import ClassColumns, PredictionFile
    from selbo.tabular.saved_monitor import MonitoredBelief, SavedMonitor

CONTRADICTED: Final = 3
"""Exit code if the stream contradicts the belief."""

ROWS_PER_BATCH: Final = 100
LOCK_SECONDS: Final = 60.0

EXACT_BELOW: Final = 1e4
"""Evidence from which on only its power of ten is shown."""
FRACTIONS_SHOWN: Final = 10


def monitor(
    predictions: PredictionsFile,
    belief: Annotated[
        Path | None,
        typer.Option(
            "--belief",
            help='A .json file such as {"accuracy": 0.9, "concentration": 200}, with class_fractions by name.',
            rich_help_panel=KNOWLEDGE,
        ),
    ] = None,
    accuracy: AnswersRight = None,
    class_fractions: RowFractions = None,
    class_fraction: ClassFraction = None,
    concentration: StatementWorth = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            help="Table of earlier predictions that new ones should look like; needs no labels.",
            rich_help_panel=KNOWLEDGE,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option("--labels", metavar="COLUMN", help="Column with known classes, empty where there is none yet."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="State file (.json) with the counts so far; only new rows are added."),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COLUMN", help="Column that names the batches, such as a day.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", help="Rows per batch without --by.", min=1)
    ] = ROWS_PER_BATCH,
    delta: Annotated[
        float | None, typer.Option("--delta", help="Probability of a false alarm over all time; 0.01 if not given.")
    ] = None,
    restarts: Annotated[
        bool,
        typer.Option("--restarts", help="Begin with every later batch, too: finds a change after many good batches."),
    ] = False,
    columns: Annotated[str | None, typer.Option("--columns", help="Columns of the classes, such as ham,spam.")] = None,
    score_classes: ScoreClasses = None,
    kind: PredictionKind = None,
    report: ReportFile = None,
    no_header: NoHeader = False,
    debug: Debug = False,
) -> None:
    """Check whether a stream of predictions contradicts what you know about it.

    An accuracy and class fractions are checked against labels, where there are some; with --reference, predictions are
    compared with earlier ones. The exit code is 0 if nothing is contradicted and 3 if something is. Over any number of
    runs, a true belief is contradicted with a probability of at most --delta.

    Example: selbo monitor today.csv --accuracy 0.9 --labels truth --state monitor.json --report monitor.html
    """
    labels, by = (resolve_column(each, no_header=no_header) for each in (labels, by))
    others: dict[str, Path] = {"the predictions": predictions}
    page = None if report is None else file_target(report, "--report", (".html",), others)
    kept = None if state is None else file_target(state, "--state", (".json",), others)
    stated = {
        "accuracy": accuracy,
        "class_fractions": stated_fractions(class_fractions, class_fraction),
        "concentration": concentration,
        "delta": delta,
    }
    if belief is not None and any(value is not None for name, value in stated.items() if name != "delta"):
        raise ValueError("`--belief` cannot be combined with --accuracy, --class-fractions or --concentration")
    require_predictions(predictions)

    from selbo.tabular import predictions as files
    from selbo.tabular import saved_monitor

    with speaking_of_options(), _sole_user(kept):
        before = saved_monitor.load_monitor(kept) if kept is not None and kept.exists() else None
        given = None if columns is None else resolve_columns(files.split_names(columns), no_header=no_header)
        classes = None if before is None else before.belief.classes
        names = None if score_classes is None else files.split_names(score_classes)
        file, log_probs, chosen = _read(predictions, given, classes, kind, labels, names, no_header)
        for each in file.table.notes:
            note(f"{predictions.name}: {as_options(each)}")
        nothing = belief is None and reference is None and all(value is None for value in stated.values())
        if before is not None and restarts and not before.belief.restarts:
            raise ValueError(f"`restarts` must be given from the first file on, but {str(kept)!r} was begun without it")
        if before is None or not nothing:
            claimed = replace(_belief(chosen, stated, belief, reference, kind, no_header), restarts=restarts)
            before = _agreeing(before, claimed, kept)
        known = _labels(file, labels, before, chosen.positive)
        order = [chosen.classes.index(name) for name in before.belief.classes]
        batches = _batches(file, by, batch_size, len(log_probs))
        after, rows, new_labels = before.add(predictions.name, log_probs[:, order], known, batches)
        _warn(before, predictions.name, len(log_probs), rows)
        result = after.state()
        if page is not None:
            _report(after, result, page)
        if kept is not None:
            saved_monitor.save_monitor(after, kept)
    screen = console()
    screen.print(_facts(after, result, rows, new_labels))
    screen.print(claims_table(after, result))
    if page is not None:
        note(f"wrote a report to {page}")
    if result.alarm:
        raise typer.Exit(CONTRADICTED)


# --- what is read ---


@contextmanager
def _sole_user(path: Path | None) -> Iterator[None]:
    """Lock the state, so that two runs at once do not overwrite each other's counts."""
    if path is None:
        yield
        return
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        raise RuntimeError(f"another selbo monitor has been using {path} for {LOCK_SECONDS:g} seconds") from None
    try:
        yield
    finally:
        with suppress(OSError):  # on Windows, files in use cannot be removed
            Path(lock.lock_file).unlink()
        lock.release()


def _read(
    path: Path,
    columns: Sequence[str] | None,
    classes: Sequence[str] | None,
    kind: str | None,
    labels: str | None,
    names: Sequence[str] | None,
    no_header: bool,
) -> "tuple[PredictionFile, NDArray[np.float64], ClassColumns]":
    """A file, its log-probabilities, and where they are from."""
    from selbo.tabular import predictions as files

    file = files.read_predictions(path, no_header=no_header)
    chosen = files.find_class_columns(file.table, columns=columns, classes=classes, labels=labels, names=names)
    log_probs, _, _ = files.as_log_probs(files.columns_as_array(file.table, chosen.columns), chosen.columns, kind)
    return file, log_probs, chosen


def _belief(
    chosen: "ClassColumns",
    stated: dict[str, Any],
    path: Path | None,
    reference: Path | None,
    kind: str | None,
    no_header: bool,
) -> "MonitoredBelief":
    """What is stated by the options."""
    from selbo import _checks
    from selbo.summary.likelihood import DEFAULT_CONCENTRATION
    from selbo.tabular import saved_monitor
    from selbo.tabular.predictions import in_order

    classes = chosen.classes
    accuracy, fractions, concentration = (stated[each] for each in ("accuracy", "class_fractions", "concentration"))
    if path is not None:
        found = saved_monitor.read_belief(path, classes)
        accuracy, fractions, concentration = found.accuracy, found.class_fractions, found.concentration
    if isinstance(fractions, dict):
        fractions = in_order(fractions, classes)
    if accuracy is None and fractions is None and reference is None:
        raise ValueError("`accuracy`, `class_fractions`, `belief` or `reference` must be given: nothing is stated")
    if fractions is not None and len(fractions) != len(classes):
        raise ValueError(
            f"`class_fractions` must hold {len(classes)} numbers, one per class, but holds {len(fractions)}"
        )
    counts = None
    if reference is not None:
        score = chosen.positive is not None  # a single column need not have the name of its class
        columns, names = (chosen.columns, classes) if score else (None, None)
        _, log_probs, found_columns = _read(reference, columns, classes, kind, None, names, no_header)
        counts = saved_monitor.reference_counts(log_probs[:, [found_columns.classes.index(name) for name in classes]])
    return saved_monitor.MonitoredBelief(
        classes=classes,
        accuracy=None if accuracy is None else _checks.fraction("accuracy", accuracy, low=0.0, high=1.0),
        class_fractions=None if fractions is None else _checks.simplex("class_fractions", fractions),
        concentration=DEFAULT_CONCENTRATION
        if concentration is None
        else _checks.positive("concentration", concentration),
        reference=counts,
        delta=0.01 if stated["delta"] is None else _checks.fraction("delta", stated["delta"], low=0.0, high=1.0),
    )


def _agreeing(before: "SavedMonitor | None", claimed: "MonitoredBelief", path: Path | None) -> "SavedMonitor":
    """The state so far; raises an error if it is about another belief."""
    from selbo.tabular.saved_monitor import SavedMonitor

    if before is None:
        return SavedMonitor(claimed)
    for name in ("accuracy", "class_fractions", "concentration", "reference", "delta"):
        if getattr(before.belief, name) != getattr(claimed, name):
            raise ValueError(
                f"`state` must be about the same belief, but {str(path)!r} was begun with another `{name}`: leave the "
                "statements out to resume it, or choose another file"
            )
    return before


def _labels(
    file: "PredictionFile", column: str | None, before: "SavedMonitor", positive: str | None
) -> "NDArray[np.int64]":
    """Labels of the rows, -1 where there is none."""
    import numpy as np

    from selbo.evaluation.belief_calibration import UNLABELLED
    from selbo.tabular.predictions import parse_labels

    if column is None or (column not in file.table.columns and before.seen is not None):
        if column is not None:
            note(f"there is no column {column!r} in {file.table.name}: it has no labels")
        elif before.belief.needs_labels and before.seen is None and before.belief.reference is None:
            raise ValueError(
                "`labels` must name the column with known classes: the statements are checked against them"
            )
        return np.full(file.table.num_rows, UNLABELLED)
    return parse_labels(file.table[column], before.belief.classes, positive)


def _batches(file: "PredictionFile", by: str | None, size: int, count: int) -> "dict[str, NDArray[np.int64]]":
    """Rows of each batch: those of a value of a column, in the order of their first rows, or so many in a row."""
    import numpy as np

    if by is None:
        starts = range(0, count, size)
        return {f"{file.table.name}, row {start + 1}": np.arange(start, min(start + size, count)) for start in starts}
    names = [text or "(none)" for text in file.table[by].texts()]
    return {name: np.flatnonzero(np.array(names) == name) for name in dict.fromkeys(names)}


def _warn(before: "SavedMonitor", name: str, rows: int, new: int) -> None:
    if name in before.files and new == rows:
        note(
            f"{name} does not begin with the {before.files[name].rows} rows that were counted before: all {rows} rows "
            "count as new"
        )


# --- what is shown ---


def _facts(saved: "SavedMonitor", state: "MonitorState", rows: int, labels: int) -> "Table":
    from rich.table import Table

    facts = Table.grid(padding=(0, 2))
    facts.add_row("Predictions", f"{state.num_predictions}, {rows} of them new")
    facts.add_row("Labels", f"{state.num_labels}, {labels} of them new")
    facts.add_row("Result", check_in_words(saved, state))
    return facts


def check_in_words(saved: "SavedMonitor", state: "MonitorState") -> str:
    """Whether the belief is contradicted, in a sentence or two."""
    limit = f"{1 / saved.belief.delta:.4g}"
    now = f"{_shown(state.total)} now, {_shown(state.largest)} at most"
    if state.alarm:
        first = next((each.name for each in saved.batches if each.total >= 1 / saved.belief.delta), None)
        since = "" if first is None else f", first in {first}"
        worst = max(state.evidence, key=lambda name: state.evidence[name])
        begins = saved.batch_that_begins(state)
        return (
            f"the stream contradicts the belief{since}: the evidence reached {limit} ({now}), most of it against "
            f"{CLAIMS[worst]}" + ("" if begins is None else f", from {begins} on")
        )
    if state.num_labels == 0 and saved.belief.reference is None:
        return "nothing was tested yet, as there are no labels"
    return f"the stream does not contradict the belief: the evidence is {now}, and {limit} would contradict it"


CLAIMS: Final = {
    "accuracy": "the accuracy",
    "class fractions": "the class fractions",
    "predictions": "the likeness to the reference",
}
"""What each claim is about."""


def _shown(evidence: float) -> str:
    if evidence < 10:
        return f"{evidence:.2g}"
    return f"{evidence:.0f}" if evidence < EXACT_BELOW else f"1e{math.floor(math.log10(evidence))}"


def claims_table(saved: "SavedMonitor", state: "MonitorState") -> "Table":
    """A table of what is claimed, what was found, and the evidence against it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim", no_wrap=True, overflow="ellipsis", max_width=28)
    for title in ("stated", "found", "evidence against it"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in monitored_claims(saved, state):
        table.add_row(*map(visible, row))
    return table


def monitored_claims(saved: "SavedMonitor", state: "MonitorState") -> list[tuple[str, str, str, str]]:
    """Claim, stated value, found value and evidence, as text."""
    counts, belief, rows = saved.restored().counts, saved.belief, []
    if belief.accuracy is not None:
        found = _percent(counts["accuracy"], 0)
        rows.append(("accuracy, %", f"{100 * belief.accuracy:.1f}", found, _shown(state.evidence["accuracy"])))
    if belief.class_fractions is not None:
        rows.append(("class fractions", "", "", _shown(state.evidence["class fractions"])))
        pairs = list(zip(belief.classes, belief.class_fractions, strict=True))
        for k, (name, share) in enumerate(pairs[:FRACTIONS_SHOWN]):
            rows.append((f"  {name}, %", f"{100 * share:.1f}", _percent(counts["class fractions"], k), ""))
        if len(pairs) > FRACTIONS_SHOWN:
            rows.append((f"  {len(pairs) - FRACTIONS_SHOWN} more classes", "", "", ""))
    if belief.reference is not None:
        rows.append(("like the reference", "", "", _shown(state.evidence["predictions"])))
    return rows


def _percent(counts: Sequence[float], index: int) -> str:
    return f"{100 * counts[index] / sum(counts):.1f}" if sum(counts) else "-"


def _report(saved: "SavedMonitor", state: "MonitorState", path: Path) -> None:
    from selbo.report.monitor import MonitorResults, write_monitor_page

    text = check_in_words(saved, state)
    results = MonitorResults(
        title="Predictions against a belief",
        conclusion=f"{text[:1].upper()}{text[1:]}.",
        contradicted=state.alarm,
        facts=[
            (str(state.num_predictions), "predictions"),
            (str(state.num_labels), "labels"),
            (str(len(saved.batches)), "batches"),
            (f"{100 * saved.belief.delta:g} %", "false alarms, at most"),
        ],
        rows=monitored_claims(saved, state),
        names=[each.name for each in saved.batches],
        evidence={
            CLAIMS[name].removeprefix("the "): [each.evidence[name] for each in saved.batches]
            for name in state.evidence
        },
        total=[each.total for each in saved.batches],
        limit=1 / saved.belief.delta,
        correct=[(each.num_correct, each.num_checked) for each in saved.batches],
        accuracy=saved.belief.accuracy,
        command=shlex.join(["selbo", *sys.argv[1:]]),
    )
    write_monitor_page(results, path)
