"""Options that several commands share, and parsers for their values."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer


class MissingOption(typer.BadParameter):
    """An option that is needed unless another one is given."""

    def format_message(self) -> str:
        """The sentence that is shown."""
        return f"Missing option {self.message}"


LARGEST_SEED: Final = 2**32 - 1
"""Largest seed that numpy accepts."""

KNOWLEDGE: Final = "What you know"
"""Heading of the options that state a belief."""

Seed = Annotated[int, typer.Option("--seed", help="Seed for all randomness.", min=0, max=LARGEST_SEED)]
PredictionSeed = Annotated[
    int | None, typer.Option("--seed", help="Seed for the weight samples; the training seed if not given.", min=0)
]
Device = Annotated[str, typer.Option("--device", help="Device: cpu, cuda, cuda:0 or auto.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
NumSamples = Annotated[int, typer.Option("--num-samples", help="Weight samples per prediction.", min=1)]
Stream = Annotated[
    bool | None,
    typer.Option(
        "--stream/--no-stream",
        help="Read the table in parts, in bounded memory, or as a whole; if not given, in parts from 400 MB of CSV or "
        "200 MB of Parquet on.",
        show_default=False,
    ),
]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help="The first line of a CSV file is a row, not names: columns are called column_1, column_2 and so on, and "
        "options take the plain number too.",
    ),
]
Model = Annotated[Path, typer.Argument(metavar="DIR", help="Model folder written by selbo train.", show_default=False)]
DataFile = Annotated[
    Path, typer.Argument(metavar="DATA", help="Table: .csv, .parquet or .npz file.", show_default=False)
]
PredictionsFile = Annotated[
    Path,
    typer.Argument(
        metavar="PREDICTIONS",
        help="Table with one column per class, or the score of one of two: .csv, .parquet or .jsonl file.",
        show_default=False,
    ),
]
ScoreClasses = Annotated[
    str | None,
    typer.Option(
        "--classes",
        help="Names of both classes if a single column has the scores of the second, such as ham,spam; if not given, "
        "'not spam' and spam for a column spam or p_spam.",
    ),
]
PredictionKind = Annotated[
    str | None,
    typer.Option(
        "--input", help="Type of the values: probabilities, log-probabilities or logits; recognised if not given."
    ),
]
AnswersRight = Annotated[
    float | None,
    typer.Option("--accuracy", help="Share of the predicted classes that are right.", rich_help_panel=KNOWLEDGE),
]
RowFractions = Annotated[
    str | None,
    typer.Option(
        "--class-fractions",
        help="Class fractions among the rows: 0.7,0.3 in the order of the columns, or ham=0.7,spam=0.3; one of two "
        "classes is enough.",
        rich_help_panel=KNOWLEDGE,
    ),
]
ClassFraction = Annotated[
    list[str] | None,
    typer.Option(
        "--class-fraction",
        metavar="NAME=VALUE",
        help="Fraction of one class, for names with commas; repeat it for every class.",
        rich_help_panel=KNOWLEDGE,
    ),
]
StatementWorth = Annotated[
    float | None,
    typer.Option(
        "--concentration",
        help="Number of observations behind the stated numbers; 1000 if not given.",
        rich_help_panel=KNOWLEDGE,
    ),
]
GroupsOfRows = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="COLUMN",
        help="Column with the group of each row; --group-fractions states their class fractions, and no label is "
        "needed.",
        rich_help_panel=KNOWLEDGE,
    ),
]
FractionsOfGroups = Annotated[
    Path | None,
    typer.Option(
        "--group-fractions",
        help="Table with one row per group: its name, and one column per class with fractions, percentages or "
        "counts; a column margin, count or concentration gives their precision.",
        rich_help_panel=KNOWLEDGE,
    ),
]
ClassesOfGroups = Annotated[
    str | None,
    typer.Option(
        "--group-classes",
        help="Columns of --group-fractions with the classes, such as yes,no (a name with a comma in quotes); if "
        "not given, the columns of numbers without those that are clearly no class.",
        rich_help_panel=KNOWLEDGE,
    ),
]
ReportFile = Annotated[str | None, typer.Option("--report", help="Also write a report to this .html file.")]
Out = Annotated[Path, typer.Option("--out", help="Output folder.", file_okay=False)]


def require_groups(
    groups: str | None, fractions: Path | None, classes: str | None, concentration: float | str | None
) -> None:
    """Check which of the options about groups are given together."""
    if (groups is None) != (fractions is None):
        raise ValueError("`--groups` and `--group-fractions` must be given together, but one of them is missing")
    if groups is None and concentration is not None:
        raise ValueError("`--group-concentration` is about `--group-fractions`, but none are stated")
    if groups is None and classes is not None:
        raise ValueError("`--group-classes` is about `--group-fractions`, but none are stated")


def choose_device(choice: str) -> str:
    """The requested device; ``auto`` is CUDA if available, else the CPU."""
    import torch

    if choice == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(choice)
    except RuntimeError as error:
        raise ValueError(f"`--device` must be cpu, cuda, cuda:0 or auto, but got {choice!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"`--device` is {choice!r}, but there is no CUDA device: use cpu or auto")
    return choice


def widths(text: str) -> tuple[int, ...]:
    """Parse layer widths such as ``128,64``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"`--hidden` must be whole numbers above 0 such as 128 or 128,64, but got {text!r}")
    return tuple(int(part) for part in parts)


def number_or_auto(option: str, text: str | None) -> float | str | None:
    """The number that an option states, or "auto"; None if it is not given."""
    if text is None or text.strip().lower() == "auto":
        return None if text is None else "auto"
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"`{option}` must be a number or auto, but got {text!r}") from None


def fractions(parts: Sequence[str], option: str) -> list[float] | dict[str, float]:
    """Parse class fractions such as ``"0.3"`` or ``"yes=0.3"``; a name is everything before the last ``=``.

    Example:
        >>> fractions(["0.3", "0.7"], "--class-fractions")
        [0.3, 0.7]
        >>> fractions(["a,b=0.3", "c=d=0.7"], "--class-fraction")
        {'a,b': 0.3, 'c=d': 0.7}
    """
    found: list[tuple[str, float]] = []
    for part in parts:
        name, _, value = part.rpartition("=")
        try:
            found.append((name, float(value)))
        except ValueError:
            raise ValueError(f"`{option}` must be numbers such as 0.3 or yes=0.3, but {part!r} is none") from None
    if not any(name for name, _ in found) and option == "--class-fractions":
        return [value for _, value in found]
    if not all(name for name, _ in found) or len(dict(found)) < len(found):
        raise ValueError(f"`{option}` must name every class once, but got {','.join(parts)!r}")
    return dict(found)


def resolve_columns(texts: Iterable[str] | None, *, no_header: bool) -> list[str]:
    """The names of columns that an option states: in a file without names also by their position, from 1 on.

    Example:
        >>> (
        ...     resolve_columns(["2", "column_3"], no_header=True),
        ...     resolve_columns(["2"], no_header=False),
        ... )
        (['column_2', 'column_3'], ['2'])
    """
    return [f"column_{int(text)}" if no_header and text.isascii() and text.isdigit() else text for text in texts or ()]


def resolve_column(text: str | None, *, no_header: bool) -> str | None:
    """The name of the column that an option states, see `resolve_columns`; None if it is not given."""
    return None if text is None else resolve_columns([text], no_header=no_header)[0]


def stated_fractions(
    class_fractions: str | None, class_fraction: Sequence[str] | None
) -> list[float] | dict[str, float] | None:
    """Class fractions from `--class-fractions`, separated by commas, or from repeated `--class-fraction`."""
    if class_fraction and class_fractions is not None:
        raise ValueError("`--class-fraction` cannot be given together with `--class-fractions`: use one of the two")
    if class_fraction:
        return fractions(class_fraction, "--class-fraction")
    if class_fractions is None:
        return None
    return fractions([part.strip() for part in class_fractions.split(",") if part.strip()], "--class-fractions")


@contextmanager
def speaking_of_options() -> Iterator[None]:
    """Replace parameter names in errors by option names: `class_fractions` becomes `--class-fractions`."""
    try:
        yield
    except ValueError as error:
        if problems := getattr(error, "problems", None):
            from selbo.tabular.problems import ProblemsError

            raise ProblemsError([as_options(each) for each in problems]) from error
        raise ValueError(as_options(str(error))) from error


def as_options(text: str) -> str:
    """Replace parameter names in a sentence by option names.

    Example:
        >>> as_options("`prior_std` must be a finite number greater than 0")
        '`--prior-std` must be a finite number greater than 0'
    """
    text = text.replace("`X_unlabelled`", "`--unlabelled`").replace("`X`", "DATA")
    return re.sub(r"`([a-z]+(?:_[a-z]+)*)`", lambda found: f"`--{found[1].replace('_', '-')}`", text)
