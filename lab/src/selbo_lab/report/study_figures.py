"""Figures of a study, drawn from its results and written as PNG and SVG."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from selbo.plots import (
    BELIEF,
    FOOT,
    GUIDE,
    TWO_COLUMNS,
    Grid,
    build_axis,
    compare_histograms,
    figure_style,
    filled,
    legend_entries,
    plus_minus,
    total_variation,
)
from selbo.report import (
    EntropyPanel,
    ReliabilityPanel,
    entropy_panels,
    mean_and_error,
    reliability_panels,
)
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.method_styles import study_styles
from selbo_lab.report.studies import cell
from selbo_lab.report.study_curves import (
    corruption_figure,
    has_corruption,
    has_recall,
    has_sweep,
    recall_figure,
    sweep_figure,
)
from selbo_lab.report.study_data import build_titles, ood_sets
from selbo_lab.report.study_scores import AGAINST, EFFECT, has_scores, independent_figure, scores_figure
from selbo_lab.run.build import parse_partition
from selbo_lab.run.records import CLEAN, Run, StudyComparison, StudyResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDY_FORMATS: Final = ("png", "svg")
"""File formats of the figures of a study."""

OWN_AXIS: Final = 0.3
OWN_TICKS: Final = 0.42
"""Inches below and between panels that have axes of their own."""


# --- calibration and entropy ---


def calibration_figure(comparison: StudyComparison) -> "Figure":
    """Reliability diagrams, pooled over the seeds, one per method; see `selbo.report.curves.reliability_diagrams`."""
    labels, ece = build_titles(comparison), MetricColumn(comparison.place, "ece")
    looks, panels = study_styles(labels), {}
    for method in comparison.methods:
        if bins := [run.reliability for run in method.tested if run.reliability]:
            panels[labels[method.name]] = ReliabilityPanel(bins, cell(method, ece).value, looks[method.name])
    return reliability_panels(panels)


def ood_figure(comparison: StudyComparison, ood: str | None = None) -> "Figure":
    """Entropy of predictions for the test set and for out-of-distribution inputs, one panel per method.

    Args:
        comparison: A comparison of a study.
        ood: Name of the out-of-distribution data set; the first if not given.
    """
    labels, sets = build_titles(comparison), ood_sets(comparison)
    name = next(iter(sets)) if ood is None else ood
    looks, panels = study_styles(labels), {}
    for method in comparison.methods:
        entropies = [run.ood[name].entropy for run in method.tested if name in run.ood]
        if found := [each for each in entropies if each is not None and each.outside is not None]:
            auroc = cell(method, MetricColumn(name, "auroc", ood=True)).value
            panels[labels[method.name]] = EntropyPanel(found, auroc, looks[method.name])
    return entropy_panels(panels, ood_name=sets[name])


# --- beliefs ---


def belief_figure(comparison: StudyComparison) -> "Figure":
    """Region masses of the predictions against s0; one panel per method with a belief.

    Returns:
        A figure with one axes per method; the number above a panel is the total variation distance to s0.
    """
    told = _told(comparison)
    if not told:
        raise ValueError("`comparison` must have a method with a belief and a finished run, but has none")
    labels = build_titles(comparison)
    looks = study_styles(labels)
    with figure_style():
        names = [labels[name] for name in told]
        grid = Grid(len(told), width=TWO_COLUMNS, height=1.2, foot=FOOT, names=names, gap=OWN_TICKS)
        grid.step += OWN_AXIS  # regions differ from method to method
        grid.height += OWN_AXIS * (grid.rows - 1)
        grid.figure.set_size_inches(grid.width, grid.height)
        panels = [grid.place(i) for i in range(len(told))]
        for i, (axes, (name, runs)) in enumerate(zip(panels, told.items(), strict=True)):
            belief, classes = runs[0].belief, len(runs[0].conditions[CLEAN].recall or ())
            assert belief is not None
            s0 = np.asarray(belief.s0, dtype=np.float64)
            masses = [np.asarray(run.histogram.masses, dtype=np.float64) for run in runs if run.histogram]
            regions = parse_partition(runs[0].spec.recipe.partition, classes)
            axis, ends = build_axis(belief.regions, scale=regions.scale(), shells=regions.shells())
            shown, colours = {"predictions": np.asarray(np.mean(masses, axis=0))}, [looks[name].colour]
            compare_histograms(axes, s0, shown, colours=colours, axis=axis, width=grid.panel)
            for end in ends:
                axes.axvline(end, color=GUIDE, linewidth=0.6, linestyle=(0, (1, 2)), zorder=0.4)
            away = mean_and_error([total_variation(s0, each) for each in masses])
            grid.name(axes, labels[name], f"distance {plus_minus(*away, digits=3)}")
            if grid.first(i):
                axes.set_ylabel("mass")
        grid.legend({BELIEF: legend_entries(panels[0])[0][0], "predictions": filled()})
    return grid.figure


def _told(comparison: StudyComparison) -> dict[str, list[Run]]:
    runs = {method.name: [run for run in method.tested if run.belief] for method in comparison.methods}
    return {name: each for name, each in runs.items() if each}


# --- all of a study ---


class StudyFigure(NamedTuple):
    """A figure of one comparison.

    Attributes:
        draw: Draws the figure of a comparison.
        has: Whether a comparison has the data.
        study: The only study with this figure; None for any.
    """

    draw: Callable[..., "Figure"]
    has: Callable[[StudyComparison], bool]
    study: str | None = None


def _has_reliability(comparison: StudyComparison) -> bool:
    return any(run.reliability for run in comparison.tested)


def _has_score_figure(names: Sequence[str]) -> Callable[[StudyComparison], bool]:
    return lambda comparison: has_scores(comparison, names)


STUDY_FIGURES: Final[dict[str, StudyFigure]] = {
    "scores": StudyFigure(scores_figure, _has_score_figure(EFFECT), "scores"),
    "independent": StudyFigure(independent_figure, _has_score_figure(AGAINST), "scores"),
    "sweep": StudyFigure(sweep_figure, has_sweep),
    "corruption": StudyFigure(corruption_figure, has_corruption),
    "recall": StudyFigure(recall_figure, has_recall),
    "calibration": StudyFigure(calibration_figure, _has_reliability),
    "ood": StudyFigure(ood_figure, lambda comparison: bool(ood_sets(comparison))),
    "belief": StudyFigure(belief_figure, lambda comparison: bool(_told(comparison))),
}
"""Figures of a comparison by name, in the order of the page."""


def available_study_figures(results: StudyResults, comparison: StudyComparison) -> list[str]:
    """Names of the figures for which a comparison has data."""
    return [
        name
        for name, figure in STUDY_FIGURES.items()
        if figure.study in {None, results.study} and figure.has(comparison)
    ]
