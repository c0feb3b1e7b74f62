"""`selbo evaluate`: metrics of a model on a table with known classes."""

import json
from typing import Annotated

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
    ReportFile,
    Stream,
    as_options,
    choose_device,
    resolve_column,
    speaking_of_options,
)
from selbo.cli.output import console, file_target, groups_table, metrics_table, note, progress_bar, visible


def evaluate(
    model: Model,
    data: DataFile,
    target: Annotated[
        str | None, typer.Option("--target", help="Column with the classes; that of training if not given.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COLUMN", help="Also evaluate the rows of each value of this column."),
    ] = None,
    report: ReportFile = None,
    stream: Stream = None,
    no_header: NoHeader = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    num_samples: NumSamples = 128,
    seed: PredictionSeed = None,
    device: Device = "cpu",
    debug: Debug = False,
) -> None:
    """Evaluate a model on a table with known classes.

    Shows the metrics of the predictions without and with temperature scaling. The temperature was fitted on the
    validation rows during training. With --by, groups of rows are compared, such as hospitals, with 95 % intervals.
    A large table is read in parts.

    Example: selbo evaluate model other_hospital.csv --by site --report evaluation.html
    """
    target, by = (resolve_column(each, no_header=no_header) for each in (target, by))
    page = None if report is None else file_target(report, "--report", (".html",), {"the table": data})
    require_model(model)
    require_table(data)

    from selbo.report import outcomes
    from selbo.tabular import evaluation, saved_model

    found = saved_model.load_model(model, device=choose_device(device))
    with speaking_of_options(), progress_bar(1.0) as advance:
        result, notes, shown = evaluation.evaluate_file(
            found,
            data,
            num_samples=num_samples,
            seed=seed,
            target=target,
            by=by,
            stream=stream,
            no_header=no_header,
            report=advance,
        )
    for text in notes:
        note(as_options(text))
    if page is not None:
        from selbo.report.page import write_page

        write_page(shown, page)
        note(f"wrote a report to {page}")
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=1))
        return
    screen = console()
    rows = result.metrics["num_examples"]
    screen.print(f"{rows} rows of {visible(data.name)}, {len(result.classes)} classes\n")
    screen.print(metrics_table(result.metrics, result.calibrated, result.temperature))
    if result.groups is not None and by is not None:
        screen.print(groups_table(result.groups, by))
        screen.print(visible(outcomes.group_takeaway(result.groups)))
