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
    NumSamples,
    PredictionSeed,
    device_of,
    speaking_of_options,
)
from selbo.cli.output import formula_like, note, table_target, write_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from selbo.evaluation.decide import Abstention
    from selbo.evaluation.predict import Prediction
    from selbo.tabular.saved_model import Trained
    from selbo.tabular.table import Numbers

ABSTAIN: Final = "When not to answer"
"""Heading of the options about abstention."""


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
    seed: PredictionSeed = None,
    device: Device = "cpu",
    debug: Debug = False,
) -> None:
    """Predict the classes of the rows of a table.

    Writes one line per row, in the order of the rows: the predicted class, the probability of each class, the entropy
    of the prediction and the mutual information (uncertainty about the weights; large for rows unlike the training
    data), both in nats. A target column is ignored. Missing values are imputed as in training. With --max-risk, rows
    that are too uncertain have no predicted class; their probabilities are written all the same.

    Example: selbo predict model new_patients.csv --max-risk 0.05 --out predictions.csv
    """
    if labelled is not None and max_risk is None:
        raise ValueError("`--labelled` is for `--max-risk`, which is not given")
    if confidence is not None and labelled is None:
        raise ValueError("`--confidence` is for `--labelled`, which is not given")
    require_model(model)
    for file in filter(None, (data, labelled)):
        require_table(file)

    from selbo.evaluation.predict import at_temperature
    from selbo.tabular import saved_model
    from selbo.tabular.table import listed, read_table

    target = table_target(out, source=data)
    found = saved_model.load_model(model, device=device_of(device))
    identify = id_column or found.preprocessing.id_column
    table = read_table(data, columns=(*found.preprocessing.columns, *([identify] if identify else [])))
    if id_column is not None:
        _ = table[id_column]
    inputs, notes = found.preprocessing.transform(table)
    if identify and identify not in table.columns:
        notes.append(f"there is no column {identify!r}, which identified rows in training: predictions have none")
    for text in notes:
        note(text)
    temperature = found.manifest.temperature if calibrated else None
    if calibrated and temperature is None:
        note("no temperature was fitted in training, so none is applied")

    def predicted(rows: "Numbers") -> "Prediction":
        prediction = found.predict(rows, num_samples=num_samples, seed=seed)
        return prediction if temperature is None else at_temperature(prediction, temperature)

    prediction = predicted(inputs)
    classes = found.preprocessing.classes
    answered = None
    if max_risk is not None:
        with speaking_of_options():
            rule = _rule(found, prediction, predicted, max_risk, labelled, confidence)
        answered = rule(_normalised(prediction)).tolist()
        note(_in_words(rule, sum(answered), len(answered)))
    columns = saved_model.as_columns(prediction, classes, answered)
    if identify and identify in table.columns:
        columns = {identify: table[identify].texts(), **columns}
    write_table(columns, target)
    if (target is None or target.suffix.lower() == ".csv") and (risky := formula_like(classes)):
        note(
            f"a spreadsheet may interpret these classes as formulas: {listed(risky)}; they are written unchanged, to "
            "match your labels"
        )
    if target is not None:
        note(f"wrote {table.num_rows} predictions to {target}")


def _rule(
    model: "Trained",
    prediction: "Prediction",
    predicted: "Callable[[Numbers], Prediction]",
    max_risk: float,
    labelled: Path | None,
    confidence: float | None,
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
    table = read_table(labelled, columns=(*model.preprocessing.columns, model.preprocessing.target))
    if saved_model.digest(labelled) == model.manifest.data.sha256:
        raise ValueError("`labelled` must hold rows that the model was not trained on, but it is the training file")
    (inputs, labels), _, notes = read_labelled(model.preprocessing, table)
    for text in notes:
        note(f"{labelled.name}: {text}")
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
