"""`selbo predict`: class probabilities and their uncertainty for the rows of a table."""

from typing import Annotated

import typer

from selbo.cli.options import DataFile, Debug, Device, Model, NumSamples, PredictionSeed, device_of
from selbo.cli.output import formula_like, note, table_target, write_table


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
    seed: PredictionSeed = None,
    device: Device = "cpu",
    debug: Debug = False,
) -> None:
    """Predict the classes of the rows of a table.

    Writes one line per row, in the order of the rows: the predicted class, the probability of each class, the entropy
    of the prediction and the mutual information (uncertainty about the weights; large for rows unlike the training
    data), both in nats. A target column is ignored.

    Example: selbo predict model new_patients.csv --out predictions.csv
    """
    from selbo.evaluation.predict import at_temperature
    from selbo.tabular import saved_model
    from selbo.tabular.table import listed, read_table

    target = table_target(out, source=data)
    found = saved_model.load_model(model, device=device_of(device))
    table = read_table(data, columns=found.preprocessing.columns)
    inputs, notes = found.preprocessing.transform(table)
    for text in notes:
        note(text)
    prediction = found.predict(inputs, num_samples=num_samples, seed=seed)
    if calibrated and found.manifest.temperature is None:
        note("no temperature was fitted in training, so none is applied")
    elif calibrated and found.manifest.temperature is not None:
        prediction = at_temperature(prediction, found.manifest.temperature)
    classes = found.preprocessing.classes
    write_table(saved_model.as_columns(prediction, classes), target)
    if (target is None or target.suffix.lower() == ".csv") and (risky := formula_like(classes)):
        note(
            f"a spreadsheet may interpret these classes as formulas: {listed(risky)}; they are written unchanged, to "
            "match your labels"
        )
    if target is not None:
        note(f"wrote {table.num_rows} predictions to {target}")
