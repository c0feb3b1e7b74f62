"""`selbo predict`: class probabilities and their uncertainty for the rows of a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from selbo._files import require_model, require_table
from selbo.cli.options import (
    DataFile,
    Debug,
    Device,
    Model,
    NoHeader,
    NumSamples,
    PredictionSeed,
    Stream,
    as_options,
    choose_device,
    resolve_column,
    speaking_of_options,
)
from selbo.cli.output import formula_like, note, progress_bar, table_target, table_writer, write_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from selbo.evaluation.decide import Abstention
    from selbo.evaluation.predict import Prediction
    from selbo.tabular.chunks import LargeTable
    from selbo.tabular.saved_model import Trained
    from selbo.tabular.table import Numbers, Table

ABSTAIN: Final = "When not to answer"
"""Heading of the options about abstention."""

ROWS_WRITTEN: Final = 100_000
"""Rows that are written at a time."""


def predict(
    model: Model,
    data: DataFile,
    out: Annotated[
        str, typer.Option("--out", help="Output file, .csv or .parquet; - for CSV on standard output.")
    ] = "-",
    num_samples: NumSamples = 128,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Apply the temperature fitted on the validation rows.")
    ] = False,
    max_risk: Annotated[
        float | None,
        typer.Option(
            "--max-risk",
            help="Largest share of wrong answers, such as 0.05: the least confident rows get no predicted class.",
            rich_help_panel=ABSTAIN,
        ),
    ] = None,
    labelled: Annotated[
        Path | None,
        typer.Option(
            "--labelled",
            help="Table of rows with known classes that the model was not trained on: --max-risk is then kept whether "
            "or not the probabilities are calibrated.",
            rich_help_panel=ABSTAIN,
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            help="Probability with which --max-risk is kept, with --labelled; 0.95 if not given.",
            rich_help_panel=ABSTAIN,
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="Column to write too; if not given, that of selbo train --id."),
    ] = None,
    stream: Stream = None,
    no_header: NoHeader = False,
    seed: PredictionSeed = None,
    device: Device = "cpu",
    debug: Debug = False,
) -> None:
    """Predict the classes of the rows of a table.

    Writes one line per row, in the order of the rows: the predicted class, the probability of each class, the entropy
    of the prediction and the mutual information (uncertainty about the weights; large for rows unlike the training
    data), both in nats. A target column is ignored. Missing values are imputed as in training. With --max-risk, rows
    that are too uncertain have no predicted class; their probabilities are written all the same. A large table is read,
    predicted and written in parts.

    Example: selbo predict model new_patients.csv --max-risk 0.05 --out predictions.csv
    """
    id_column = resolve_column(id_column, no_header=no_header)
    if labelled is not None and max_risk is None:
        raise ValueError("`--labelled` is for `--max-risk`, which is not given")
    if confidence is not None and labelled is None:
        raise ValueError("`--confidence` is for `--labelled`, which is not given")
    require_model(model)
    for file in filter(None, (data, labelled)):
        require_table(file)

    from selbo.evaluation.predict import at_temperature
    from selbo.tabular import saved_model
    from selbo.tabular.chunks import is_large
    from selbo.tabular.table import listed

    target = table_target(out, source=data)
    found = saved_model.load_model(model, device=choose_device(device))
    temperature = found.manifest.temperature if calibrated else None
    if calibrated and temperature is None:
        note("no temperature was fitted in training, so none is applied")

    def predicted(rows: "Numbers") -> "Prediction":
        prediction = found.predict(rows, num_samples=num_samples, seed=seed)
        return prediction if temperature is None else at_temperature(prediction, temperature)

    def rule_for(prediction: "Prediction") -> "Abstention | None":
        if max_risk is None:
            return None
        with speaking_of_options():
            return _rule(found, prediction, predicted, max_risk, labelled, confidence, no_header)

    with speaking_of_options():
        large = is_large(data, stream=stream)
        work = _predict_large if large else _predict_whole
        rule = None if max_risk is None else rule_for
        rows = work(found, data, target, id_column, predicted=predicted, rule_for=rule, no_header=no_header)
    classes = found.preprocessing.classes
    if (target is None or target.suffix.lower() == ".csv") and (risky := formula_like(classes)):
        note(
            f"a spreadsheet may interpret these classes as formulas: {listed(risky)}; they are written unchanged, to "
            "match your labels"
        )
    if target is not None:
        note(f"wrote {rows} predictions to {target}")


def _predict_whole(
    model: "Trained",
    data: Path,
    target: Path | None,
    id_column: str | None,
    *,
    predicted: "Callable[[Numbers], Prediction]",
    rule_for: "Callable[[Prediction], Abstention | None] | None",
    no_header: bool,
) -> int:
    """Predict a table in memory; returns the number of rows."""
    from selbo.tabular import saved_model
    from selbo.tabular.table import read_table

    identify = id_column or model.preprocessing.id_column
    wanted = (*model.preprocessing.columns, *([identify] if identify else []))
    table = read_table(data, columns=wanted, no_header=no_header)
    if id_column is not None:
        _ = table[id_column]
    inputs, notes = model.preprocessing.transform(table)
    for text in [*notes, *_without_identifiers(identify, table)]:
        note(as_options(text))
    prediction = predicted(inputs)
    answered, rule = None, None if rule_for is None else rule_for(prediction)
    if rule is not None:
        answered = rule(_normalised(prediction)).tolist()
        note(_in_words(rule, sum(answered), len(answered)))
    columns = saved_model.as_columns(prediction, model.preprocessing.classes, answered)
    if identify and identify in table.columns:
        columns = {identify: table[identify].texts(), **columns}
    write_table(columns, target)
    return table.num_rows


def _predict_large(
    model: "Trained",
    data: Path,
    target: Path | None,
    id_column: str | None,
    *,
    predicted: "Callable[[Numbers], Prediction]",
    rule_for: "Callable[[Prediction], Abstention | None] | None",
    no_header: bool,
) -> int:
    """Predict a table chunk by chunk; returns the number of rows. A rule to abstain needs all predictions first."""
    from time import perf_counter

    import numpy as np

    from selbo.tabular import saved_model
    from selbo.tabular.streamed_predictions import ChunkedPredictions, KeptPredictions, select

    begin, classes = perf_counter(), model.preprocessing.classes
    identify = id_column or model.preprocessing.id_column
    with progress_bar(1.0) as report, table_writer(target) as write:
        more = (identify,) if identify else ()
        chunks = ChunkedPredictions(data, model.preprocessing, predicted, more=more, no_header=no_header, report=report)
        if id_column is not None and id_column not in chunks.table.names:
            _ = chunks.table.as_table(next(chunks.table.chunks()).frame)[id_column]
        kept, names = KeptPredictions(), list[str | None]()
        for chunk, prediction in chunks:
            own = {}
            if identify in chunk.table.columns:
                own = {identify: chunk.table[identify].texts()}
            if rule_for is None:
                write({**own, **saved_model.as_columns(prediction, classes)})
            else:
                kept.add(prediction)
                names += own.get(identify, [])
        if rule_for is not None:
            whole = kept.whole()
            rule = rule_for(whole)
            assert rule is not None
            answered = rule(_normalised(whole)).numpy()
            for first in range(0, len(answered), ROWS_WRITTEN):
                rows = np.zeros(len(answered), dtype=bool)
                rows[first : first + ROWS_WRITTEN] = True
                own = {identify: names[first : first + ROWS_WRITTEN]} if names else {}
                write({**own, **saved_model.as_columns(select(whole, rows), classes, answered[rows].tolist())})
            note(_in_words(rule, int(answered.sum()), len(answered)))
    for text in [*chunks.notes, *_without_identifiers(identify, chunks.table)]:
        note(as_options(text))
    note(f"rows per second: {chunks.rows / (perf_counter() - begin):.3g}, from reading to writing")
    return chunks.rows


def _without_identifiers(identify: str, table: "Table | LargeTable") -> list[str]:
    """A note if the column that identified rows in training is not there."""
    if not identify or identify in table.columns:
        return []
    return [f"there is no column {identify!r}, which identified rows in training: predictions have none"]


def _rule(
    model: "Trained",
    prediction: "Prediction",
    predicted: "Callable[[Numbers], Prediction]",
    max_risk: float,
    labelled: Path | None,
    confidence: float | None,
    no_header: bool,
) -> "Abstention":
    """When to answer: by labelled rows or, without them, by the probabilities of the rows themselves."""
    from selbo import _checks
    from selbo.evaluation.decide import abstain
    from selbo.tabular import saved_model
    from selbo.tabular.table import read_table
    from selbo.tabular.task import read_labelled

    if labelled is None:
        return abstain(_normalised(prediction), max_risk=max_risk)
    sure = _checks.fraction("confidence", 0.95 if confidence is None else confidence, low=0.0, high=1.0)
    wanted = (*model.preprocessing.columns, model.preprocessing.target)
    table = read_table(labelled, columns=wanted, no_header=no_header)
    if saved_model.digest(labelled) == model.manifest.data.sha256:
        raise ValueError("`labelled` must hold rows that the model was not trained on, but it is the training file")
    (inputs, labels), _, notes = read_labelled(model.preprocessing, table)
    for text in notes:
        note(as_options(f"{labelled.name}: {text}"))
    return abstain(_normalised(predicted(inputs)), max_risk=max_risk, labels=labels, delta=1 - sure)


def _normalised(prediction: "Prediction") -> "Tensor":
    probs = prediction.probs.double()
    return probs / probs.sum(-1, keepdim=True)


def _in_words(rule: "Abstention", answered: int, rows: int) -> str:
    """What a rule does, and what it guarantees."""
    from math import isfinite

    limit = f"{100 * rule.max_risk:g} %"
    if not isfinite(rule.threshold):
        why, then = "no row is confident enough to expect", "allow a larger --max-risk"
        if rule.confidence is not None:
            why, then = "the labelled rows cannot show", "pass more of them, or allow a larger --max-risk"
        return f"no row is answered: {why} that at most {limit} of the answers are wrong; {then}"
    said = f"{answered} of {rows} rows are answered, those with a confidence of at least {rule.threshold:.3g}; "
    if rule.confidence is None:
        return f"{said}{100 * rule.risk:.2g} % of them are wrong if the probabilities are calibrated"
    return f"{said}at most {limit} of such answers are wrong, with {100 * rule.confidence:g} % confidence"
