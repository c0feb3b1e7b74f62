"""`selbo figure`: draw a figure of the paper, from stored results or from the library alone."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selbo.cli import Debug, console, writable_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

OF_THE_PAPER = {
    "1": ("scores", "scores"),
    "3": ("independent", "scores"),
    "5": ("corruption", "sst"),
    "6": ("corruption", "cifar10"),
    "7": ("corruption", "cifar10-im"),
    "sigma0": ("sweep", "sigma0"),
    "alpha": ("sweep", "alpha"),
    "mnist-c": ("corruption", "mnist35"),
}
"""Figures drawn from the results of a study: kind of figure and study."""

WITHOUT_RESULTS = ("2", "dp-samples")
FIGURE_SEED = 1


def figure(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"Figure of the paper: {', '.join(sorted([*OF_THE_PAPER, *WITHOUT_RESULTS]))}.",
            show_default=False,
        ),
    ],
    results: Annotated[Path, typer.Option("--results", help="Results folder of selbo reproduce.")] = Path("results"),
    out: Annotated[Path, typer.Option("--out", help="Output folder.", file_okay=False)] = Path("figures"),
    debug: Debug = False,
) -> None:
    """Draw a figure of the paper as PNG and SVG.

    1 (effect of s0), 2 (beliefs on the simplex), 3 (independent terms against the Dirichlet process), 5 (SST under
    noise), 6 and 7 (by corruption), dp-samples, mnist-c, sigma0 and alpha. All but 2 and dp-samples use stored
    results of a study. Nothing is trained.

    Example: selbo figure 2 --out figures
    """
    from selbo.plots import save_figure

    known = [*OF_THE_PAPER, *WITHOUT_RESULTS]
    if name not in known:
        raise ValueError(f"NAME must be one of {', '.join(sorted(known))}, but got {name!r}")
    drawn = without_results(name) if name in WITHOUT_RESULTS else from_results(name, results)
    folder, screen = writable_folder(out), console()
    for label, draw in drawn.items():
        for path in save_figure(draw(), folder, label, formats=["png", "svg"]):
            screen.print(str(path), soft_wrap=True)


def without_results(name: str) -> "dict[str, Callable[[], Figure]]":
    """Figures of the method itself, which need no results."""
    import torch

    from selbo.plots import belief_on_simplex, dirichlet_process_samples

    if name == "2":
        return {"figure-2": belief_on_simplex}
    noise = torch.Generator().manual_seed(FIGURE_SEED)
    return {"figure-dp-samples": lambda: dirichlet_process_samples(generator=noise)}


def from_results(name: str, results: Path) -> "dict[str, Callable[[], Figure]]":
    """One figure per comparison of a study that has the necessary results."""
    from selbo_lab.report.study_figures import STUDY_FIGURES, available_study_figures
    from selbo_lab.run.result_store import Store
    from selbo_lab.schedule import runner

    kind, study = OF_THE_PAPER[name]
    folder = results / study
    if not Store(folder).exists():
        raise ValueError(
            f"figure {name} is drawn from the study {study}, which is not in '{results}': "
            f"'selbo reproduce {study} --out {results}' runs it"
        )
    found = runner.gather(folder)
    drawn: dict[str, Callable[[], Figure]] = {
        f"figure-{name}-{each.variant}-{each.track}": partial(STUDY_FIGURES[kind].draw, each)
        for each in found.comparisons
        if kind in available_study_figures(found, each)
    }
    if not drawn:
        raise ValueError(f"figure {name} needs runs of the study {study}, but there are none in '{folder}' yet")
    return drawn
