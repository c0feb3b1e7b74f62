"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0)]
Device = Annotated[str, typer.Option("--device", help="Where to compute: cpu, cuda, cuda:0, or auto.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Draws = Annotated[int, typer.Option("--draws", help="Weight draws a prediction.", min=1)]
Model = Annotated[Path, typer.Argument(metavar="DIR", help="Folder made by selbo train.", show_default=False)]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="Table: a .csv, .parquet or .npz file.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", help="Folder for the results.", file_okay=False)]


def device_of(choice: str) -> str:
    """The device that was asked for; ``auto`` is CUDA where there is one."""
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
    """Widths of layers from text such as ``128,64``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"`--hidden` must be whole numbers above 0 such as 128 or 128,64, but got {text!r}")
    return tuple(int(part) for part in parts)
