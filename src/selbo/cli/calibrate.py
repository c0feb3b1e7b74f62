"""`selbo calibrate`: calibrate predictions of any classifier to what is known about it, without labels."""

import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from selbo._files import require_predictions, require_table
from selbo.cli.options import (
    KNOWLEDGE,
    AnswersRight,
    ClassesOfGroups,
    ClassFraction,
    Debug,
    FractionsOfGroups,
    GroupsOfRows,
    NoHeader,
    PredictionKind,
    PredictionsFile,
    ReportFile,
    RowFractions,
    ScoreClasses,
    StatementWorth,
    Stream,
    as_options,
    require_groups,
    resolve_column,
    resolve_columns,
    speaking_of_options,
    stated_fractions,
)
from selbo.cli.output import (
    console,
    file_target,
    note,
    progress_bar,
    table_target,
    table_writer,
    visible,
    waiting,
    write_records,
    write_table,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table
    from torch import Tensor

    from selbo.evaluation.check_belief import CheckResult
    from selbo.summary.grouped import GroupedSummary
    from selbo.tabular.chunks import LargeTable
    from selbo.tabular.predictions import ClassColumns, PredictionFile
    from selbo.tabular.saved_calibration import SavedCalibration

CLASSES_SHOWN: Final = 20

FEW_ROWS: Final = 100
"""Number of rows below which their means are rough."""

FEW_GROUPS: Final = 20
"""Number of groups below which their counts say little about confidence."""

NORMAL_95: Final = 1.96
"""Half of a 95 % interval, in standard errors."""


def calibrate(
    predictions: PredictionsFile,
    accuracy: AnswersRight = None,
    class_fractions: RowFractions = None,
    class_fraction: ClassFraction = None,
    concentration: StatementWorth = None,
    groups: GroupsOfRows = None,
    group_fractions: FractionsOfGroups = None,
    group_classes: ClassesOfGroups = None,
    group_concentration: Annotated[
        float | None,
        typer.Option(
            "--group-concentration",
            help="How sure the fractions of all groups are, in observations; if not given, they are counts of these "
            "very rows.",
            rich_help_panel=KNOWLEDGE,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels", metavar="COLUMN", help="Column with known classes, empty for none.", rich_help_panel=KNOWLEDGE
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Columns of the classes, such as ham,spam (a name with a comma in quotes); if not given, those that "
            "selbo predict writes, else those that are probabilities together, else all numbers with fractions.",
        ),
    ] = None,
    score_classes: ScoreClasses = None,
    kind: PredictionKind = None,
    out: Annotated[
        str,
        typer.Option("--out", help="Output file, .csv or of the kind of the input; - for CSV on standard output."),
    ] = "-",
    save: Annotated[str | None, typer.Option("--save", help="Also write the correction to this .json file.")] = None,
    load: Annotated[
        Path | None, typer.Option("--load", help="Apply the correction of this file instead of fitting one.")
    ] = None,
    report: ReportFile = None,
    stream: Stream = None,
    no_header: NoHeader = False,
    debug: Debug = False,
) -> None:
    """Calibrate the predictions of any classifier to what you know about it.

    State how often its answers are right (--accuracy), how frequent the classes are (--class-fractions), or both: no
    label is needed. Class fractions of many small groups of rows (--groups) do without an accuracy. Writes the table
    with calibrated probabilities, in the order of its rows and with all other columns unchanged. Two classes may have a
    single column, the score of one of them. A large CSV or Parquet file is read and written in parts.

    Example: selbo calibrate predictions.csv --accuracy 0.95 --class-fractions spam=0.12,ham=0.88 --out calibrated.csv
    """
    fractions = stated_fractions(class_fractions, class_fraction)
    require_groups(groups, group_fractions, group_classes, group_concentration)
    stated = {"--accuracy": accuracy, "--class-fractions": fractions, "--groups": groups, "--labels": labels}
    _require_statement(stated, {"--concentration": concentration, "--save": save}, load)
    suffix = predictions.suffix.lower()
    target = table_target(out, source=predictions, endings=tuple(dict.fromkeys((".csv", suffix))))
    inputs = {"the input table": predictions}
    if group_fractions is not None:
        inputs["`--group-fractions`"] = require_table(group_fractions, "`--group-fractions`")
        if target is not None and target.resolve() == group_fractions.resolve():
            raise ValueError("`--out` must be another file than `--group-fractions`, but is the same")
    others = {**inputs, **({} if target is None else {"`--out`": target})}
    saved_to = None if save is None else file_target(save, "--save", (".json",), others)
    page = None if report is None else file_target(report, "--report", (".html",), others)
    require_predictions(predictions)

    from selbo.tabular import predictions as files
    from selbo.tabular.saved_calibration import load_calibration, save_calibration

    with speaking_of_options():
        saved = None if load is None else load_calibration(load)
        named = None if columns is None else resolve_columns(files.split_names(columns), no_header=no_header)
        classes = None if saved is None else saved.classes
        known = resolve_column(labels, no_header=no_header)
        names = None if score_classes is None else files.split_names(score_classes)
        source = read_source(predictions, stream, named, classes, known, names, no_header)
        for each in source.notes:
            note(as_options(each))
        chosen = source.chosen
        log_probs, found, text = files.as_log_probs(source.values, chosen.columns, kind, overwrite=True)
        source = source._replace(values=log_probs)
        if columns is None:
            note(_which(chosen, found))
        if text is not None:
            note(text)
        column = resolve_column(groups, no_header=no_header)
        about = _read_groups(source, column, group_fractions, group_classes, group_concentration)
        if saved is None:
            saved = _fit(source, accuracy, fractions, concentration, about)
    effect = measure_effect(saved, chosen.classes, log_probs)
    against = None if about is None else about.contradicting(saved.calibration(log_probs))
    sentence = doubt(saved, effect, fitted=load is None, checks=check_statement(saved, source), groups=against)
    if page is not None:  # first, as it needs packages that may be missing
        _report(saved, effect, predictions.name, page, sentence)
    _write(source, effect.probs, target)
    if saved_to is not None:
        save_calibration(saved, saved_to)
    screen = console(stderr=target is None)
    screen.print(_facts(saved, effect, found, sentence, against))
    screen.print(effect_table(saved, effect))
    for path, what in ((target, f"{len(log_probs)} predictions"), (saved_to, "the correction"), (page, "a report")):
        if path is not None:
            note(f"wrote {what} to {path}")


def _require_statement(stated: Mapping[str, Any], beside: Mapping[str, Any], load: Path | None) -> None:
    """Check that something is stated, by an option or by a file, and nothing twice."""
    there = [name for name, value in {**stated, **beside}.items() if value is not None]
    if load is not None and there:
        raise ValueError(f"`--load` applies a correction as it is, so `{there[0]}` cannot be given with it")
    if load is None and not stated.keys() & there:
        raise ValueError(
            "`--accuracy`, `--class-fractions`, `--groups` or `--labels` must be given: nothing is stated about the "
            "predictions"
        )
    if "--groups" in there and "--class-fractions" in there:
        raise ValueError("`--class-fractions` and `--group-fractions` state the same, but both are given")


class PredictionSource(NamedTuple):
    """A file of predictions.

    Attributes:
        file: Its content, or the file if it is read in parts.
        chosen: The columns of the classes.
        values: Predictions as they are in the file, shape (n, K), or (n, 1) of a single score.
        labels: Numbers of the classes, -1 where there is none; None without labels.
    """

    file: "PredictionFile | LargeTable"
    chosen: "ClassColumns"
    values: "NDArray[np.float64]"
    labels: "NDArray[np.int64] | None"

    @property
    def notes(self) -> tuple[str, ...]:
        """How the file was read, for the user."""
        from selbo.tabular.chunks import LargeTable

        return self.file.notes if isinstance(self.file, LargeTable) else self.file.table.notes


def read_source(
    predictions: Path,
    stream: bool | None,
    columns: Sequence[str] | None,
    classes: Sequence[str] | None,
    labels: str | None,
    names: Sequence[str] | None,
    no_header: bool = False,
) -> PredictionSource:
    """Read a file of predictions, in parts if it is large; JSON lines are read as a whole."""
    from selbo.tabular import predictions as files
    from selbo.tabular.chunks import is_large

    lines = predictions.suffix.lower() == ".jsonl"
    if lines and stream:
        raise ValueError("`stream` is for .csv and .parquet files, but the predictions are JSON lines")
    if not lines and is_large(predictions, stream=stream):
        from selbo.tabular.streamed_calibration import read_large_predictions

        with progress_bar(1.0) as report:
            return PredictionSource(
                *read_large_predictions(
                    predictions,
                    columns=columns,
                    classes=classes,
                    labels=labels,
                    names=names,
                    no_header=no_header,
                    report=report,
                )
            )
    file = files.read_predictions(predictions, no_header=no_header)
    chosen = files.find_class_columns(file.table, columns=columns, classes=classes, labels=labels, names=names)
    known = None if labels is None else files.parse_labels(file.table[labels], chosen.classes, chosen.positive)
    return PredictionSource(file, chosen, files.columns_as_array(file.table, chosen.columns), known)


class GroupBelief(NamedTuple):
    """What is stated about groups of rows.

    Attributes:
        belief: Their class fractions, in the order of the classes of the predictions.
        groups: Group of each row, -1 for none.
    """

    belief: "GroupedSummary"
    groups: "Tensor"

    def contradicting(self, log_probs: "Tensor") -> tuple[int, int]:
        """How many groups contradict their fractions, given predictions for all rows, and how many there are."""
        from selbo.evaluation.check_groups import check_groups

        found = check_groups(self.belief, self.groups, log_probs=log_probs)
        return sum(each.contradicted for each in found), len(found)


def _read_groups(
    source: PredictionSource, column: str | None, file: Path | None, classes: str | None, concentration: float | None
) -> GroupBelief | None:
    """What is stated about groups of the rows; None if nothing is."""
    if column is None or file is None:
        return None
    from selbo.estimator.group_intake import GroupStatement, belief_about_groups
    from selbo.tabular.chunks import LargeTable
    from selbo.tabular.groups import GroupSource, read_groups
    from selbo.tabular.predictions import split_names
    from selbo.tabular.preprocessing import sortable_labels
    from selbo.tabular.table import listed

    if isinstance(source.file, LargeTable):
        raise ValueError("`groups` need the whole file, but it is read in parts: pass --no-stream")
    chosen = None if classes is None else tuple(split_names(classes))
    stated = GroupSource(column, file, concentration, chosen)
    table, of_rows = read_groups(stated, source.file.table)
    for each in table.notes:
        note(as_options(each))
    predicted = source.chosen.classes
    if set(table.classes) != set(predicted):
        raise ValueError(
            f"{table.name} must have one column per class, {listed(predicted)}, but has {listed(table.classes)}"
        )
    given, strength = table.arguments(of_rows), table.concentration
    sizes = Counter(group for group in of_rows if group is not None)
    if isinstance(strength, Mapping) and all(strength[group] == count for group, count in sizes.items()):
        strength = None  # a column `count` of the rows themselves, whose fractions have no error
    statement = GroupStatement(given["groups"], given["group_fractions"], strength)
    labels = sortable_labels(predicted, numeric=table.numeric).tolist()
    return GroupBelief(*belief_about_groups(statement, labels, len(of_rows)))


def _which(chosen: "ClassColumns", kind: str) -> str:
    """Which columns were taken."""
    from selbo.tabular.table import listed

    rest = f"; columns of numbers that are left alone: {listed(chosen.others)}" if chosen.others else ""
    if chosen.positive is None:
        return f"{kind} are read from the columns {listed(chosen.columns)}{rest}"
    other, positive = chosen.classes
    return f"{kind} of {positive!r} against {other!r} are read from the column {listed(chosen.columns)}{rest}"


def _fit(
    source: PredictionSource,
    accuracy: float | None,
    fractions: Sequence[float] | Mapping[str, float] | None,
    concentration: float | None,
    about: GroupBelief | None,
) -> "SavedCalibration":
    """Fit the correction, to a random part of the rows if these are very many and there are no groups."""
    from selbo.evaluation.belief_calibration import UNLABELLED, UnreachableFractionError, fit_to_belief
    from selbo.tabular.predictions import in_order
    from selbo.tabular.saved_calibration import SavedCalibration
    from selbo.tabular.streamed_calibration import rows_to_fit
    from selbo.tabular.table import listed

    classes, log_probs, labels = source.chosen.classes, source.values, source.labels
    if about is None and len(rows := rows_to_fit(log_probs, labels)) < len(log_probs):
        note(f"the correction is fitted to {len(rows)} of {len(log_probs)} rows, chosen at random, and applied to all")
        log_probs, labels = log_probs[rows], None if labels is None else labels[rows]
    if isinstance(fractions, Mapping):
        fractions = in_order(fractions, classes)
    if fractions is not None and len(fractions) != len(classes):
        raise ValueError(
            f"`class_fractions` must hold {len(classes)} numbers, for {listed(classes)}, but holds {len(fractions)}"
        )
    stated = accuracy is not None or fractions is not None or about is not None
    if not stated and labels is not None and bool((labels == UNLABELLED).all()):
        raise ValueError("`labels` must hold some classes if nothing else is stated, but the column is empty")
    try:
        with waiting(f"fitting the correction to {len(log_probs)} rows"):
            calibration = fit_to_belief(
                log_probs,
                None if about is None else about.belief,
                groups=None if about is None else about.groups,
                accuracy=accuracy,
                class_fractions=fractions,
                concentration=concentration,
                labels=labels,
            ).calibration
    except UnreachableFractionError as error:
        raise ValueError(error.naming(f"class {classes[error.index]!r}")) from None
    return SavedCalibration(classes, calibration, accuracy, None if fractions is None else tuple(fractions))


@dataclass(frozen=True)
class Effect:
    """What a correction does to the predictions of a file. Classes are in the order of the correction.

    Attributes:
        probs: Corrected probabilities, shape (n, K), in the order of the columns of the file.
        accuracy: Share of right answers that is claimed for the answers of the classifier, before and after.
        class_fractions: Mean probability of each class, before and after.
        num_changed: Number of predictions whose answer is another one.
        confidence_before: Largest probability of each prediction before.
    """

    probs: "NDArray[np.float64]"
    accuracy: tuple[float, float]
    class_fractions: tuple[list[float], list[float]]
    num_changed: int
    confidence_before: "NDArray[np.float64]"


def measure_effect(saved: "SavedCalibration", classes: Sequence[str], log_probs: "NDArray[np.float64]") -> Effect:
    """Apply a correction, and compare predictions before and after.

    Args:
        saved: The correction.
        classes: Classes of the columns of the file.
        log_probs: Log-probabilities, shape (n, K).
    """
    import numpy as np

    from selbo.tabular.predictions import ROWS_AT_A_TIME

    order = [list(classes).index(name) for name in saved.classes]
    count = len(log_probs)
    probs, confidence = np.empty_like(log_probs), np.empty(count)
    accuracies, fractions, changed = np.zeros(2), np.zeros((2, len(order))), 0
    for first in range(0, count, ROWS_AT_A_TIME):
        part = slice(first, first + ROWS_AT_A_TIME)
        given = log_probs[part][:, order]
        before, after = np.exp(given), saved.calibration(given).exp().numpy()
        after = after / after.sum(1, keepdims=True)
        answers, rows = before.argmax(1), np.arange(len(before))
        probs[part, order] = after
        confidence[part] = before.max(1)
        accuracies += before[rows, answers].sum(), after[rows, answers].sum()
        fractions += before.sum(0), after.sum(0)
        changed += int((after.argmax(1) != answers).sum())
    return Effect(
        probs,
        (float(accuracies[0] / count), float(accuracies[1] / count)),
        ((fractions[0] / count).tolist(), (fractions[1] / count).tolist()),
        changed,
        confidence,
    )


def _write(source: PredictionSource, probs: "NDArray[np.float64]", target: Path | None) -> None:
    """Write the table with new probabilities; where `selbo predict` wrote it, also the answers and the entropy."""
    from selbo.tabular.predictions import PredictionFile
    from selbo.tabular.streamed_calibration import prediction_chunks

    file, as_text = source.file, target is None or target.suffix.lower() == ".csv"
    if isinstance(file, PredictionFile):
        new = _new_columns(file, source.chosen, probs)
        if file.records is not None and target is not None and not as_text:
            write_records(file.replaced_records(new), target)
        else:
            write_table(file.replaced_texts(new) if as_text else file.replaced(new), target)
        return
    with progress_bar(1.0) as report, table_writer(target) as write:
        for chunk, part in prediction_chunks(file):
            new = _new_columns(part, source.chosen, probs[chunk.first : chunk.first + chunk.num_rows])
            write(part.replaced_texts(new) if as_text else part.replaced(new))
            report(f"writing {file.path.name}", chunk.share)


def _new_columns(
    file: "PredictionFile", chosen: "ClassColumns", probs: "NDArray[np.float64]"
) -> dict[str, Sequence[Any]]:
    """Columns that a correction changes."""
    import numpy as np

    from selbo.tabular.predictions import is_from_selbo

    written = probs[:, -len(chosen.columns) :]  # of a single column, the class that it scores, which is the last
    new: dict[str, Sequence[Any]] = {name: written[:, k].tolist() for k, name in enumerate(chosen.columns)}
    if is_from_selbo(file.table, chosen):
        before = file.values["predicted_class"]  # where `selbo predict` declined to answer, nothing is answered
        answers = (chosen.classes[k] for k in probs.argmax(1))
        new["predicted_class"] = [answer if old else None for answer, old in zip(answers, before, strict=True)]
        if "entropy" in file.table.columns:
            new["entropy"] = (-(probs * np.log(np.maximum(probs, np.finfo(float).tiny))).sum(1)).tolist()
    return new


# --- what is shown ---


def _facts(
    saved: "SavedCalibration", effect: Effect, kind: str, sentence: str, groups: tuple[int, int] | None
) -> "Table":
    from rich.table import Table

    facts = Table.grid(padding=(0, 2))
    facts.add_row("Rows", f"{len(effect.probs)} with {kind} of {len(saved.classes)} classes")
    facts.add_row("Temperature", _temperature(saved))
    if groups is not None:
        facts.add_row("Groups", f"{groups[0]} of {groups[1]} contradict what is stated about them after the correction")
    facts.add_row("Doubt", visible(sentence))
    return facts


def _is_scaled(saved: "SavedCalibration") -> bool:
    """Whether a temperature was fitted."""
    return saved.calibration.temperature != 1 or saved.calibration.log_temperature_error > 0


def _temperature(saved: "SavedCalibration") -> str:
    from math import exp

    found, error = saved.calibration.temperature, saved.calibration.log_temperature_error
    if not _is_scaled(saved):
        return f"{found:.3g}, not fitted as no accuracy was stated"
    if error == 0:
        return f"{found:.3g}, at its limit"
    low, high = (found * exp(side * NORMAL_95 * error) for side in (-1, 1))
    return f"{found:.3g} (95 % interval {low:.3g} to {high:.3g})"


def check_statement(saved: "SavedCalibration", source: PredictionSource) -> "list[CheckResult]":
    """Check what is stated against the labels of a file; nothing without labels.

    Args:
        saved: A correction, with the statement.
        source: The file, its predictions as log-probabilities.
    """
    import numpy as np

    from selbo.evaluation.belief_calibration import UNLABELLED
    from selbo.evaluation.check_belief import check_accuracy, check_fractions

    if source.labels is None or not bool((known := source.labels != UNLABELLED).any()):
        return []
    found, labels = [], source.labels[known]
    if saved.accuracy is not None:
        found.append(check_accuracy(saved.accuracy, np.asarray(source.values)[known].argmax(1) == labels))
    if saved.class_fractions is not None:
        found.append(check_fractions(saved.class_fractions, labels))
    return found


def doubt(
    saved: "SavedCalibration",
    effect: Effect,
    *,
    fitted: bool,
    checks: "Sequence[CheckResult]" = (),
    groups: tuple[int, int] | None = None,
) -> str:
    """One sentence on what may be wrong with a correction.

    Args:
        saved: The correction.
        effect: What it does to the predictions.
        fitted: Whether it was fitted to these predictions.
        checks: What labels say about the statement.
        groups: How many groups contradict what is stated about them after the correction, and how many there are.
    """
    rows, changed = len(effect.probs), effect.num_changed
    answers = f"{changed} of {rows} predictions change their answer"
    if changed and saved.accuracy is not None:
        answers += ", and the stated accuracy is that of the answers before"
    elif not changed:
        answers = "no prediction changes its answer"
    return f"{answers[:1].upper()}{answers[1:]}; {_reason(saved, effect, fitted=fitted, checks=checks, groups=groups)}."


def _reason(
    saved: "SavedCalibration",
    effect: Effect,
    *,
    fitted: bool,
    checks: "Sequence[CheckResult]",
    groups: tuple[int, int] | None,
) -> str:
    """The most important reason to doubt."""
    from selbo.evaluation.statement_doubts import FAR, MISSED, leaves_hardly_anything

    stated, fractions = saved.accuracy, saved.class_fractions
    who, side = ("uncorrected", 0) if fitted else ("corrected", 1)
    claimed, reached = effect.accuracy[side], effect.accuracy[1]
    off = 0.0 if stated is None else abs(stated - claimed)
    shift = 0.0
    if fractions is not None:
        shift = sum(abs(one - other) for one, other in zip(fractions, effect.class_fractions[side], strict=True)) / 2
    most = max(fractions or (1.0,))
    frequent = saved.classes[(fractions or (1.0,)).index(most)]
    shown = "" if stated is None else f"{100 * stated:.1f} %"
    wrong = next((each for each in checks if each.contradicted), None)
    labels = f"{checks[0].num_examples} labels" if checks else ""
    against, number = groups or (0, 0)
    reasons = {
        f"always answering {frequent!r} would be right as often as stated, so check both statements": (
            stated is not None and fractions is not None and stated <= most
        ),
        f"{labels} contradict the stated {'' if wrong is None else wrong.about}, so correct the statement": (
            wrong is not None
        ),
        f"corrected, they claim an accuracy of {100 * reached:.1f} % and not {shown}, as the rows are few or "
        f"{'labels' if groups is None else 'groups'} say otherwise": fitted
        and stated is not None
        and abs(stated - reached) > MISSED,
        f"{who}, they claim an accuracy of {100 * claimed:.1f} % where {shown} was stated, so "
        f"{'check the statement on a few labels' if fitted else 'these rows may be of another kind'}": (
            off > FAR and off >= shift and not checks
        ),
        f"{who}, they claim class fractions that differ from those stated by {100 * shift:.0f} points, so "
        f"{'check that it is about these rows' if fitted else 'these rows may be of another kind'}": shift > FAR
        and not checks,
        "no accuracy was stated, so overconfidence is not corrected": not _is_scaled(saved),
        f"{len(effect.probs)} rows are few, so their mean may be off by chance": fitted
        and len(effect.probs) < FEW_ROWS,
        f"{against} of {number} groups contradict what is stated about them, so check these": against > 0,
        "corrected, they say hardly more than the class fractions, so check that the groups are about these rows": (
            groups is not None and leaves_hardly_anything(claimed, reached, max(effect.class_fractions[1]))
        ),
        f"few groups, here {number}, say little about confidence": 0 < number < FEW_GROUPS,
        "the result is as good as the labels, which were not tested here": (
            stated is None and fractions is None and groups is None
        ),
    }
    otherwise = "the result is as good as the statement, which "
    otherwise += f"{labels} do not contradict" if checks else "was not tested here"
    return next((text for text, holds in reasons.items() if holds), otherwise)


def effect_table(saved: "SavedCalibration", effect: Effect) -> "Table":
    """A table of what the predictions claim before and after, what was stated, and the offsets."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    with_offsets = any(error > 0 for error in saved.calibration.offset_errors)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("predictions claim", no_wrap=True, overflow="ellipsis", max_width=24)
    for title in ("before", "after", "stated", *(["offset, 95 %"] if with_offsets else [])):
        table.add_column(title, justify="right", no_wrap=True)
    before, after = effect.class_fractions
    accuracy, *classes = claims(saved, effect)
    order = sorted(range(len(classes)), key=lambda k: -abs(after[k] - before[k]))[:CLASSES_SHOWN]
    for row in (accuracy, *(classes[k] for k in sorted(order))):
        table.add_row(*map(visible, row if with_offsets else row[:-1]))
    if len(order) < len(classes):
        table.add_row(f"{len(classes) - len(order)} more classes")
    return table


def claims(saved: "SavedCalibration", effect: Effect) -> list[tuple[str, ...]]:
    """Name, value before, after and as stated, and offset, of the accuracy and of each class, as text."""
    stated = saved.class_fractions or (None,) * len(saved.classes)
    rows = [("accuracy, %", *map(_percent, (*effect.accuracy, saved.accuracy)), "")]
    for k, name in enumerate(saved.classes):
        values = (effect.class_fractions[0][k], effect.class_fractions[1][k], stated[k])
        offset, error = saved.calibration.offsets[k], NORMAL_95 * saved.calibration.offset_errors[k]
        rows.append((f"{name}, %", *map(_percent, values), f"{offset:.2f} ± {error:.2f}" if error else ""))
    return rows


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _report(saved: "SavedCalibration", effect: Effect, name: str, path: Path, sentence: str) -> None:
    from selbo.report.calibration import CalibrationResults, write_calibration_page

    facts = [
        (str(len(effect.probs)), "predictions"),
        (str(len(saved.classes)), "classes"),
        (_temperature(saved), "temperature"),
        (str(effect.num_changed), "answers change"),
    ]
    results = CalibrationResults(
        title=f"Calibration of {name}",
        doubt=sentence,
        facts=facts,
        rows=claims(saved, effect),
        confidence_before=effect.confidence_before,
        confidence_after=effect.probs.max(1),
        command=shlex.join(["selbo", *sys.argv[1:]]),
    )
    write_calibration_page(results, path)
