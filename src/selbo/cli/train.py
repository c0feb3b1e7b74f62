"""`selbo train`: train a classifier on a table, with a belief about the task, into a folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selbo._files import require_table
from selbo.cli.options import (
    KNOWLEDGE,
    ClassesOfGroups,
    ClassFraction,
    DataFile,
    Debug,
    Device,
    FractionsOfGroups,
    GroupsOfRows,
    MissingOption,
    NoHeader,
    NumSamples,
    Seed,
    Stream,
    as_options,
    choose_device,
    number_or_auto,
    require_groups,
    resolve_column,
    resolve_columns,
    speaking_of_options,
    stated_fractions,
    widths,
)
from selbo.cli.output import baselines_table, console, metrics_table, note, progress_bar, visible, writable_folder
from selbo.tabular.problems import Problems

if TYPE_CHECKING:
    from selbo.results import StatedGroups
    from selbo.tabular.job import Job
    from selbo.tabular.metrics import TrainingMetrics

NETWORK = "Network and training"


def train(
    context: typer.Context,
    data: DataFile,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Output folder; if not given, one in the current folder that is named after DATA: people-model for "
            "people.csv.",
            file_okay=False,
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Column with the classes; with --groups it may be empty or absent."),
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(
            "--accuracy",
            help="Expected accuracy: share of cases that can be classified correctly.",
            rich_help_panel=KNOWLEDGE,
        ),
    ] = None,
    class_fractions: Annotated[
        str | None,
        typer.Option(
            "--class-fractions",
            help="Class fractions: 0.7,0.3 or no=0.7,yes=0.3; those of the training rows if not given.",
            rich_help_panel=KNOWLEDGE,
        ),
    ] = None,
    class_fraction: ClassFraction = None,
    concentration: Annotated[
        float | None,
        typer.Option(
            "--concentration",
            help="Prior strength of the belief, in training rows; if not given, the number of training rows but at "
            "most 1000; for --unlabelled rows 1000, or 0.3 times that number for a network.",
            rich_help_panel=KNOWLEDGE,
        ),
    ] = None,
    overrule_labels: Annotated[
        bool,
        typer.Option(
            "--overrule-labels",
            help="Allow a --concentration above the number of training rows.",
            rich_help_panel=KNOWLEDGE,
        ),
    ] = False,
    fraction_uncertainty: Annotated[
        float | None,
        typer.Option(
            "--fraction-uncertainty",
            help="Uncertainty of each class fraction, if no --accuracy is given; if not given, 0.05 or half of the "
            "smallest fraction, whichever is less, for --unlabelled rows, else 0.",
            rich_help_panel=KNOWLEDGE,
        ),
    ] = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            "--unlabelled",
            help="Table of unlabelled rows that the belief is about, instead of DATA; it needs the same columns. With "
            "--class-fractions, predictions are for the domain of these rows.",
            rich_help_panel=KNOWLEDGE,
        ),
    ] = None,
    groups: GroupsOfRows = None,
    group_fractions: FractionsOfGroups = None,
    group_classes: ClassesOfGroups = None,
    group_concentration: Annotated[
        str | None,
        typer.Option(
            "--group-concentration",
            metavar="NUMBER|auto",
            help="How sure the fractions of all groups are, in observations; auto estimates it by groups that are held "
            "out, in six times the time; if not given, 100 (about plus or minus 10 points), or the number of rows of a "
            "smaller group unless these were counted.",
            rich_help_panel=KNOWLEDGE,
        ),
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            "--base",
            help="pool (a linear classifier, forests and networks, weighted by cross-validation), network, or auto: a "
            "pool unless --groups or an option of this panel is given.",
            rich_help_panel=NETWORK,
        ),
    ] = "auto",
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="summary_elbo, elbo, plain, plain_summary, label_smoothing or evidential.",
            rich_help_panel=NETWORK,
        ),
    ] = "summary_elbo",
    posterior: Annotated[
        str,
        typer.Option(
            "--posterior",
            help="How summary_elbo and elbo train the posterior over weights: mean_field or natural_gradient.",
            rich_help_panel=NETWORK,
        ),
    ] = "mean_field",
    hidden: Annotated[
        str, typer.Option("--hidden", help="Widths of the hidden layers, such as 128,64.", rich_help_panel=NETWORK)
    ] = "128",
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            help="Training steps; if not given, 2000, or with --groups and no labels 500, and more for large tables.",
            min=1,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", help="Rows per step.", min=1, rich_help_panel=NETWORK)
    ] = 256,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            help="Learning rate; if not given, 0.001, or 0.1 for a natural gradient.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    kl_weight: Annotated[
        float | None,
        typer.Option(
            "--kl-weight",
            help="Weight of the KL divergence; if not given, 0.1, or with --groups and no labels the one of 0.1, 0.03 "
            "and 0.01 that groups which are held out decide for.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    prior_std: Annotated[
        float,
        typer.Option("--prior-std", help="Standard deviation of the prior over weights.", rich_help_panel=NETWORK),
    ] = 0.2,
    drop: Annotated[list[str] | None, typer.Option("--drop", help="Column to leave out; can be repeated.")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Column to use although it looks like an identifier or free text."),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="Column that identifies rows: not used, but kept in predictions."),
    ] = None,
    test: Annotated[Path | None, typer.Option("--test", help="Table of labelled rows to test on.")] = None,
    test_fraction: Annotated[
        float | None,
        typer.Option("--test-fraction", help="Share of rows for testing; 0.2 if not given, 0 with --test."),
    ] = None,
    val_fraction: Annotated[
        float | None,
        typer.Option(
            "--val-fraction",
            help="Share of rows for validation; if not given, 0.1, or 0 for fewer than 200 labelled rows.",
        ),
    ] = None,
    stream: Stream = None,
    no_header: NoHeader = False,
    num_samples: NumSamples = 128,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a model with different settings or a damaged run in the folder."),
    ] = False,
    seed: Seed = 0,
    device: Device = "cpu",
    debug: Debug = False,
) -> None:
    """Train a classifier on a table, and test it.

    State what you know about the task: the expected accuracy (--accuracy) and the class fractions (--class-fractions).
    If you have unlabelled rows from the target domain, pass them with --unlabelled; the belief is then about them.
    If you know the class fractions of groups, such as the vote of each state, pass --groups and --group-fractions:
    individuals are then classified with few labels or none. Missing values, dates, identifiers and text are taken care
    of, and notes describe it. Writes the model, its metrics, test predictions and report.html to a folder (--out).
    selbo.SummaryClassifier trains the same model. A large file is read in parts, in bounded memory (--stream), and a
    network is trained on it: for one pass over the rows, unless --steps is given. If training is interrupted, run the
    same command again to resume.

    Example: selbo train patients.csv --target ill --accuracy 0.9 --class-fractions no=0.8,yes=0.2 --out model
    """
    stated = stated_fractions(class_fractions, class_fraction)
    layers = widths(hidden)
    target, groups, id_column = (resolve_column(each, no_header=no_header) for each in (target, groups, id_column))
    require_groups(groups, group_fractions, group_classes, group_concentration)
    if groups is None and target is None:
        raise MissingOption("'--target', which names the column with the classes, or '--groups'", ctx=context)
    missing = Problems()
    beside = {"--unlabelled": unlabelled, "--group-fractions": group_fractions, "--test": test}
    for what, file in {"data": data, **{f"`{option}`": file for option, file in beside.items()}}.items():
        if file is not None:
            missing.attempt(require_table, file, what)
    missing.stop()
    where = choose_device(device)

    from selbo.estimator import SummaryClassifier
    from selbo.tabular.chunks import is_large
    from selbo.tabular.groups import GroupSource
    from selbo.tabular.job import Job
    from selbo.tabular.predictions import split_names

    with speaking_of_options():
        large = is_large(data, stream=stream) and (groups is None or stream is True)
    classifier = SummaryClassifier(
        accuracy=accuracy,
        class_fractions=stated,
        concentration=concentration,
        base="network" if large and base == "auto" else base,
        method=method,
        posterior=posterior,
        hidden=layers,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        kl_weight=kl_weight,
        prior_std=prior_std,
        num_samples=num_samples,
        unlabelled_label=False,
        overrule_labels=overrule_labels,
        fraction_uncertainty=fraction_uncertainty,
        device=where,
        random_state=seed,
    )
    stated_groups = None
    if groups is not None and group_fractions is not None:
        stated_groups = GroupSource(
            groups,
            group_fractions,
            number_or_auto("--group-concentration", group_concentration),
            None if group_classes is None else tuple(split_names(group_classes)),
        )
    with speaking_of_options():
        job = Job(
            data,
            target,
            classifier,
            unlabelled,
            tuple(resolve_columns(drop, no_header=no_header)),
            test_fraction,
            val_fraction,
            stated_groups,
            test,
            tuple(resolve_columns(keep, no_header=no_header)),
            id_column or "",
            large,
            large and _is_default(context, "steps"),
            no_header,
        )
        folder = default_folder(data) if out is None else out
        if out is None:
            note(f"the output folder is {folder}, because `--out` is not given")
        print_result(train_into(job, folder, overwrite=overwrite), job, folder)


def default_folder(data: Path) -> Path:
    """Output folder if none is given, beside where the user stands: people-model for people.csv."""
    return Path(f"{data.stem}-model")


def _is_default(context: typer.Context, option: str) -> bool:
    """Whether an option was left out."""
    source = context.get_parameter_source(option)
    return source is None or source.name.startswith("DEFAULT")


def train_into(job: "Job", out: Path, *, overwrite: bool) -> "TrainingMetrics":
    """Train into a folder, or read the metrics of a finished run."""
    from selbo.estimator.settings import check_settings
    from selbo.tabular import saved_model, workflow
    from selbo.tabular.streaming import StreamedTask, prepare_streamed
    from selbo.tabular.task import Task, prepare

    def streamed(identity: dict[str, Any]) -> StreamedTask:
        with progress_bar(1.0) as report:
            return prepare_streamed(job, out / saved_model.STORED_ROWS, identity, report)

    problems = Problems()
    task: Task | None = None
    problems.attempt(check_settings, job.classifier)
    identity = problems.attempt(job.identity)
    if identity is None or problems.found:
        if not job.stream:
            problems.attempt(prepare, job)  # names all others too
        problems.stop()
    assert identity is not None
    if saved_model.inspect_folder(out, identity, overwrite=overwrite) != "finished":
        if not job.stream:
            task = prepare(job)
        writable_folder(out)
    with saved_model.sole_writer(out):
        # another process may have finished meanwhile
        state = saved_model.inspect_folder(out, identity, overwrite=overwrite)
        if state == "finished":
            note(f"{out} is already trained with these settings; showing its results")
            return saved_model.finished(out)
        task = task or (streamed(identity) if job.stream else prepare(job))
        for text in task.notes:
            note(as_options(text))
        if state == "resume" and (out / saved_model.CHECKPOINT).exists():
            note("resuming from the checkpoint")
        found = workflow.train_model(task, job, out, identity=identity, replace=state == "replace")
    if isinstance(task, StreamedTask):
        note(task.speeds_in_words(job.classifier))
    return found


def print_result(found: "TrainingMetrics", job: "Job", folder: Path) -> None:
    """Print a short summary of the trained model and its metrics."""
    from rich.table import Table

    from selbo.tabular import saved_model
    from selbo.tabular.group_results import contradictions_in_words

    rows, screen = found.rows, console()
    classes = ", ".join(map(visible, found.classes[:8])) + (", ..." if len(found.classes) > 8 else "")
    facts = Table.grid(padding=(0, 2))
    more = "" if rows.unlabelled is None else f"; {rows.unlabelled} without labels"
    validate = f" {rows.val} to validate," if rows.val else ""
    facts.add_row("Rows", f"{rows.train} to train,{validate} {rows.test} to test on{more}")
    facts.add_row("Inputs", f"{found.features} numbers per row")
    facts.add_row("Classes", f"{len(found.classes)}: {classes}")
    facts.add_row("Method", job.title)
    facts.add_row("Belief", visible(found.belief))
    screen.print(facts)
    if found.stated_groups is not None:
        screen.print(_groups_in_a_line(found.stated_groups))
    if found.metrics:
        screen.print(metrics_table(found.metrics, found.calibrated, found.temperature))
    if found.baselines:
        screen.print(baselines_table(found.baselines))
    for text in found.warnings:
        note(f"warning: {text}")
    for text in found.contradictions:
        note(f"the held-out rows contradict the stated belief, if it was about such rows: {text}")
    if found.shortfall is not None:
        note(found.shortfall)
    if found.stated_groups is not None and (text := contradictions_in_words(found.stated_groups)):
        note(text)
    screen.print(f"Report: {visible(str(folder / saved_model.REPORT))}", soft_wrap=True)


def _groups_in_a_line(found: "StatedGroups") -> str:
    rows = sum(each.rows for each in found.groups)
    kind = "held-out" if found.held_out else "training"
    return (
        f"\nPredictions for {rows} {kind} rows of {len(found.groups)} groups miss the stated fractions by "
        f"{100 * found.error:.1f} points on average; the same prediction for everyone would miss them by "
        f"{100 * found.constant_error:.1f}.\n"
    )
