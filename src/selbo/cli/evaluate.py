"""`selbo evaluate`: metrics of a model on a table with known classes."""

import json
from typing import Annotated

import typer

from selbo.cli.options import DataFile, Debug, Device, Model, NumSamples, PredictionSeed, device_of, speaking_of_options
from selbo.cli.output import console, metrics_table, note, visible


def evaluate(
    model: Model,
    data: DataFile,
    target: Annotated[
        str | None, typer.Option("--target", help="Column with the classes; that of training if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    num_samples: NumSamples = 128,
    seed: PredictionSeed = None,
    device: Device = "cpu",
    debug: Debug = False,
) -> None:
    """Evaluate a model on a table with known classes.

    Shows the metrics of the predictions without and with temperature scaling. The temperature was fitted on the
    validation rows during training.

    Example: selbo evaluate model other_hospital.csv --json
    """
    from selbo.tabular import saved_model, workflow

    found = saved_model.load_model(model, device=device_of(device))
    with speaking_of_options():
        result, notes = workflow.evaluate_file(found, data, num_samples=num_samples, seed=seed, target=target)
    for text in notes:
        note(text)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=1))
        return
    screen = console()
    rows = result.metrics["num_examples"]
    screen.print(f"{rows} rows of {visible(data.name)}, {len(result.classes)} classes\n")
    screen.print(metrics_table(result.metrics, result.calibrated, result.temperature))
