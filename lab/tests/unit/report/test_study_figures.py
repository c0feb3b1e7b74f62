"""Figures of a study show the numbers of its runs: heights, lines and markers are checked, not only their presence."""

from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

import study_fakes as fakes
from selbo.plots import style
from selbo_lab.report import study_curves, study_data, study_figures, study_page, study_scores
from study_fakes import typed

pytestmark = pytest.mark.usefixtures("figure_settings")

Results = dict[str, Any]
SHELLS = "Summary ELBO (expected accuracy, shells)"
SUITES = pytest.mark.parametrize("suite", ["noise", "kinds", "severities"])


def titled(figure: Figure, title: str) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_title(loc="left") == title]


def line(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = [each for each in axes.get_lines() if each.get_label() == label]
    return [float(x) for x in found.get_xdata()], [float(y) for y in found.get_ydata()]


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def inside(figure: Figure) -> bool:
    """Whether all text is drawn within the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [each.get_window_extent() for each in figure.legends]
    across, high = canvas.get_width_height()
    return all(b is None or (b.x0 > -1 and b.y0 > -1 and b.x1 < across + 1 and b.y1 < high + 1) for b in boxes)


# --- data ---


def test_a_mean_over_seeds_leaves_out_what_is_not_there() -> None:
    elbo, smoothing, summary, shells = fakes.broken()
    assert study_data.point(typed(elbo), "nll").mean == pytest.approx((0.20 + 0.22) / 2)
    assert study_data.point(typed(summary), "nll").mean == pytest.approx((0.41 + 0.42) / 2)
    assert study_data.point(typed(summary), "nll").error == pytest.approx(statistics.stdev([0.41, 0.42]) / math.sqrt(2))
    assert study_data.point(typed(smoothing), "nll").runs == 0
    assert math.isnan(study_data.point(typed(smoothing), "nll").mean)
    assert study_data.point(typed(shells), "nll").runs == 2


def test_a_mean_over_conditions_needs_all_of_them() -> None:
    (elbo, *_) = fakes.four(suite="kinds")
    both = study_data.point(typed(elbo), "nll", ["fog", "shot_noise"])
    assert both.mean == pytest.approx(0.21 + 0.4)
    elbo["runs"][0]["conditions"]["fog"]["metrics"]["nll"] = None
    left = study_data.point(typed(elbo), "nll", ["fog", "shot_noise"])
    assert (left.mean, left.runs) == (pytest.approx(0.215 + 0.4), 2)


def test_conditions_are_sorted_into_levels_kinds_and_severities() -> None:
    noise, kinds, severities = (
        study_data.sort_corruptions(typed(fakes.comparison(fakes.four(suite=suite))))
        for suite in ("noise", "kinds", "severities")
    )
    assert noise == ({0.0: "clean", 0.1: "noise 0.1", 0.5: "noise 0.5"}, {}, {})
    assert kinds == ({}, {"fog": ["fog"], "shot_noise": ["shot_noise"]}, {})
    assert severities.kinds == {"fog": ["fog 1", "fog 2"], "shot_noise": ["shot_noise 1", "shot_noise 2"]}
    assert severities.severities == {1: ["fog 1", "shot_noise 1"], 2: ["fog 2", "shot_noise 2"]}


@pytest.mark.parametrize(("titles", "rows"), [(["a" * 12] * 9, 2), (["a" * 35] * 3 + ["b"] * 3, 2), (["a" * 300], 1)])
def test_a_legend_has_as_many_columns_as_fit_and_ends_above_the_panels(titles: list[str], rows: int) -> None:
    methods = [
        {**fakes.four(suite="noise")[0], "name": str(i), "title": f"{title}{i}"} for i, title in enumerate(titles)
    ]
    figure = study_curves.corruption_figure(typed(fakes.comparison(methods)))
    (legend,) = figure.legends
    figure.canvas.draw()
    box = legend.get_window_extent()
    assert math.ceil(len(titles) / legend._ncols) == rows
    assert box.y0 >= max(axes.title.get_window_extent().y1 for axes in figure.axes)
    if rows > 1:
        assert box.x1 <= figure.bbox.x1


def test_titles_are_different() -> None:
    methods = fakes.four()
    assert study_data.build_titles(typed(fakes.comparison(methods))) == {
        each["name"]: each["title"] for each in methods
    }
    methods[1]["title"] = "ELBO"
    titles = study_data.build_titles(typed(fakes.comparison(methods)))
    assert titles["elbo"] == "ELBO (elbo)"
    assert titles["smoothing"] == "ELBO (smoothing)"


# --- corruption ---


@SUITES
@pytest.mark.parametrize("methods", [fakes.four, fakes.broken])
def test_corruption_figures_stay_within_their_paper(suite: str, methods: Any) -> None:
    assert inside(study_curves.corruption_figure(typed(fakes.comparison(methods(suite=suite)))))


def test_noise_is_drawn_as_curves() -> None:
    figure = study_curves.corruption_figure(typed(fakes.comparison(fakes.four(suite="noise"))))
    (nll,), (accuracy,) = titled(figure, "NLL"), titled(figure, "accuracy, %")
    x, y = line(nll, "Summary ELBO")
    assert x == [0.0, 0.1, 0.5]
    assert y == pytest.approx([0.41, 0.51, 0.91])
    assert line(accuracy, "ELBO")[1] == pytest.approx([90, 87, 75])
    assert legend_of(figure) == ["ELBO", "LS (ε = 0.1) & <more>", "Summary ELBO", SHELLS]


def test_noise_beyond_the_paper_is_grey() -> None:
    comparison = fakes.comparison(fakes.four(suite="noise"))
    for top, shaded in ((0.1, True), (0.5, False), (0.0, False)):
        figure = study_curves.corruption_figure(typed(comparison | {"paper_noise": top}), "nll")
        (axes,) = figure.axes
        assert inside(figure)
        assert ("grey: not in the paper" in axes.get_xlabel()) == shaded
        spans = [patch.get_x() for patch in axes.patches]
        assert spans == ([0.1] if shaded else [])


def test_labels_of_noise_axes_do_not_touch() -> None:
    figure = study_curves.corruption_figure(typed(fakes.comparison(fakes.four(suite="noise")) | {"paper_noise": 0.1}))
    figure.canvas.draw()
    boxes = [axes.xaxis.label.get_window_extent() for axes in figure.axes]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_the_band_is_one_standard_error() -> None:
    figure = study_curves.corruption_figure(typed(fakes.comparison(fakes.four(suite="noise"))), "nll")
    (axes,) = figure.axes
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    error = 0.01 / math.sqrt(3)
    assert heights.min() == pytest.approx(0.21 - error)
    assert heights.max() == pytest.approx(0.71 + error)


def test_kinds_are_rows_below_the_clean_set_and_the_mean() -> None:
    figure = study_curves.corruption_figure(typed(fakes.comparison(fakes.four(suite="kinds"))), "nll", "ece")
    first, second = figure.axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["clean", "all corruptions", "fog", "shot noise"]
    assert {text.get_text() for text in second.get_yticklabels()} == {""}
    x, y = line(first, "ELBO")
    assert x == pytest.approx([0.21, 0.61, 0.41, 0.81])
    assert [round(each) for each in y] == [0, 1, 2, 3]
    assert line(second, "ELBO")[0] == pytest.approx([3.2, 7.2, 5.2, 9.2])
    assert first.get_ylim()[0] > first.get_ylim()[1]
    bars = [c for c in first.collections if isinstance(c, LineCollection)]
    assert np.ptp(bars[0].get_segments()[0][:, 0]) == pytest.approx(2 * 0.01 / math.sqrt(3))


def test_severities_have_rows_and_curves() -> None:
    figure = study_curves.corruption_figure(typed(fakes.comparison(fakes.four(suite="severities"))), "nll")
    rows, curves = figure.axes
    assert line(rows, "ELBO")[0] == pytest.approx([0.21, 0.21 + 0.6, 0.21 + 0.3, 0.21 + 0.9])
    assert line(curves, "ELBO") == ([0.0, 1.0, 2.0], pytest.approx([0.21, 0.21 + 0.4, 0.21 + 0.8]))


def test_a_method_without_runs_is_not_drawn_and_the_others_keep_their_colours() -> None:
    whole, part = (
        study_curves.corruption_figure(typed(fakes.comparison(methods(suite="noise"))), "nll")
        for methods in (fakes.four, fakes.broken)
    )
    colours = [{each.get_label(): each.get_color() for each in figure.axes[0].get_lines()} for figure in (whole, part)]
    assert set(colours[0]) - set(colours[1]) == {"LS (ε = 0.1) & <more>"}
    assert all(colours[0][label] == colour for label, colour in colours[1].items())
    assert "LS (ε = 0.1) & <more>" not in legend_of(part)


def test_one_seed_has_no_width() -> None:
    figure = study_curves.corruption_figure(typed(fakes.comparison(fakes.four(1, suite="kinds"))), "nll")
    bars = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
    assert all(np.ptp(segment[:, 0]) == 0 for bar in bars for segment in bar.get_segments())


def test_nll_over_a_wide_range_is_logarithmic() -> None:
    methods = fakes.four(suite="kinds")
    for run in methods[0]["runs"]:
        run["conditions"]["fog"]["metrics"]["nll"] = 40.0
    nll, ece = study_curves.corruption_figure(typed(fakes.comparison(methods)), "nll", "ece").axes
    assert (nll.get_xscale(), ece.get_xscale()) == ("log", "linear")


def test_many_methods_and_corruptions_fit() -> None:
    methods = [fakes.method(i, f"m{i}", f"a method with number {i}", seeds=2) for i in range(10)]
    for i, method in enumerate(methods):
        for seed, run in enumerate(method["runs"]):
            run["conditions"] |= {f"corruption {k} x": fakes.condition(i, seed, 0.1 * k, None) for k in range(19)}
    figure = study_curves.corruption_figure(typed(fakes.comparison(methods)))
    assert inside(figure)
    assert len(figure.axes[0].get_yticks()) == 21
    assert len({(each.get_color(), each.get_marker()) for each in figure.axes[0].get_lines()}) == 10


def test_a_colour_that_comes_again_has_a_broken_line() -> None:
    methods = [fakes.method(i, f"m{i}", f"method {i}", seeds=1, suite="noise") for i in range(9)]
    (axes,) = study_curves.corruption_figure(typed(fakes.comparison(methods)), "ece").axes
    lines = [each.get_linestyle() for each in axes.get_lines()]
    assert (lines.count("-"), len(lines)) == (8, 9)


def test_without_corruption_there_is_no_such_figure() -> None:
    comparison = fakes.comparison(fakes.four())
    with pytest.raises(ValueError, match="under corruption"):
        study_curves.corruption_figure(typed(comparison))
    assert "corruption" not in study_figures.available_study_figures(
        typed(fakes.study([comparison])), typed(comparison)
    )


# --- classes ---


@pytest.mark.parametrize("methods", [fakes.four, fakes.broken])
def test_recall_is_drawn_class_by_class(methods: Any) -> None:
    rare = fakes.comparison(methods(suite="severities")) | {"classes": {"an ordinary class": 0.9, "rare": 0.1}}
    for condition in rare["methods"][0]["runs"][0]["conditions"].values():
        condition["recall"] = [1.0, 0.2]
    figure = study_curves.recall_figure(typed(rare))
    assert inside(figure)
    for title in ("recall, clean, %", "recall, corrupted, %"):
        (axes,) = titled(figure, title)
        assert line(axes, SHELLS) == ([0, 1], pytest.approx([90, 80]))
        elbo = statistics.mean([0.2] + [0.8] * (sum(run is not None for run in rare["methods"][0]["runs"]) - 1))
        assert line(axes, "ELBO")[1][1] == pytest.approx(100 * elbo)
        assert [label.get_text() for label in axes.get_xticklabels()] == ["an ordinary class", "rare"]
    assert not titled(study_curves.recall_figure(typed(rare | {"methods": fakes.four()})), "recall, corrupted, %")


def test_equal_classes_have_no_figure_of_recall() -> None:
    assert not study_curves.has_recall(typed(fakes.comparison(fakes.four())))
    with pytest.raises(ValueError, match="must have rare classes and their recall"):
        study_curves.recall_figure(typed(fakes.comparison(fakes.four()) | {"classes": {}}))


# --- sweeps ---


def test_a_sweep_is_drawn_in_the_order_of_the_setting() -> None:
    (comparison,) = fakes.sweep_study()["comparisons"]
    figure = study_curves.sweep_figure(typed(comparison), "nll")
    assert inside(figure)
    (axes,) = figure.axes
    level, swept = axes.get_lines()
    assert list(swept.get_xdata()) == [10, 100, 1000]
    assert list(swept.get_ydata()) == pytest.approx([0.41, 0.515, 0.31])  # the middle one from seeds 1 and 2
    assert list(level.get_ydata()) == pytest.approx([0.21, 0.21])
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["10", "100", "1000"]
    assert axes.get_xlabel() == "concentration α"
    assert "ELBO" in legend_of(figure)


def test_a_sweep_of_the_prior_has_no_level_line() -> None:
    methods = [
        fakes.method(i, f"p{i}", f"prior {i}", seeds=1, recipe={"prior_std": s}) for i, s in enumerate((0.1, 1, 2))
    ]
    (axes,) = study_curves.sweep_figure(typed(fakes.comparison(methods)), "accuracy").axes
    (swept,) = axes.get_lines()
    assert list(swept.get_xdata()) == [0.1, 1, 2]
    assert list(swept.get_ydata()) == pytest.approx([90, 88, 86])
    assert axes.get_xlabel() == "prior standard deviation"


def test_methods_that_differ_in_more_are_no_sweep() -> None:
    comparison = fakes.comparison(fakes.four())
    assert study_data.find_sweep(typed(comparison)) is None
    with pytest.raises(ValueError, match="one setting"):
        study_curves.sweep_figure(typed(comparison))


# --- scores ---


def test_scores_are_shares_with_the_belief_on_the_same_bins() -> None:
    figure = study_scores.scores_figure(typed(fakes.scores_study()["comparisons"][0]))
    assert inside(figure)
    without, with_belief = figure.axes[0], figure.axes[2]
    (shares,) = [patch for patch in without.patches if isinstance(patch, StepPatch)]
    assert shares.get_data().values[[0, 25, 49]] == pytest.approx([0.4, 0.2, 0.4])
    bars, belief = [patch for patch in with_belief.patches if isinstance(patch, StepPatch)]
    assert bars.get_data().values.sum() == pytest.approx(1)
    edges = [0, 0.01, 0.05, 0.1, 0.9, 0.95, 0.99, 1]
    assert belief.get_data().edges == pytest.approx(edges)
    assert belief.get_data().values == pytest.approx(np.array(fakes.UNEQUAL["s0"]) / np.diff(edges) / 50)


def test_the_decision_surface_follows_the_scores() -> None:
    plane = study_scores.scores_figure(typed(fakes.scores_study()["comparisons"][0])).axes[1]
    grid = np.asarray(plane.images[0].get_array())
    assert grid[:, 0].max() < 0.5 < grid[:, -1].min()
    assert grid[0, 0] < 0.3
    assert grid[0, -1] > 0.7
    zero, one = [c for c in plane.collections if isinstance(c, PathCollection)]
    assert np.asarray(zero.get_offsets()).tolist() == [[0, 0], [0, 2]]
    assert np.asarray(one.get_offsets()).tolist() == [[1, 0], [1, 2]]


def test_the_grid_has_the_second_coordinate_first() -> None:
    places, scores = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]), np.array([0.0, 0.4, 1.0])
    grid = study_scores.smooth(places, scores, low=np.zeros(2), high=np.full(2, 9.0), cells=9)
    assert grid.shape == (9, 9)
    assert grid[0, 0] < 0.3
    assert abs(grid[0, -1] - 0.4) < 0.15
    assert grid[-1, 0] > 0.7


def test_the_paper_s_third_figure_has_two_methods() -> None:
    figure = study_scores.independent_figure(typed(fakes.scores_study()["comparisons"][0]))
    assert len(figure.axes) == 5
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert "title of independent-5" in texts
    assert "title of none" not in texts


def test_a_method_of_the_scores_may_have_diverged() -> None:
    results = fakes.scores_study()
    results["comparisons"][0]["methods"][1]["runs"] = [fakes.diverged(0)]
    assert len(study_scores.scores_figure(typed(results["comparisons"][0])).axes) == 7
    with pytest.raises(ValueError, match="beta-5"):
        study_scores.scores_figure(typed(fakes.comparison(fakes.four())))


# --- calibration, entropy, beliefs ---


@pytest.mark.parametrize("methods", [fakes.four, fakes.broken])
def test_calibration_pools_the_seeds(methods: Any) -> None:
    figure = study_figures.calibration_figure(typed(fakes.comparison(methods())))
    drawn = 4 if methods is fakes.four else 3
    assert len(figure.axes) == 2 * drawn
    (bars,) = [c for c in figure.axes[1].containers if isinstance(c, BarContainer)]
    assert [bar.get_height() for bar in bars] == [20, 80]
    rare, many = figure.axes[0].get_lines()[1:]
    assert [list(each.get_ydata()) for each in (rare, many)] == [[0.5], [0.8]]


def test_entropy_is_drawn_for_the_set_that_is_named() -> None:
    methods = fakes.broken(ood=("fashion", "svhn"))
    for method in methods:
        for run in method["runs"]:
            if run is not None and run["status"] == "finished":
                entropy = {**run["ood"]["svhn"]["entropy"], "out": [0, 0, 0, 50]}
                run["ood"]["svhn"] = {**run["ood"]["svhn"], "name": "house numbers", "entropy": entropy}
    comparison = fakes.comparison(methods)
    for name, title, last in ((None, "Fashion & co", 0.6), ("svhn", "house numbers", 1.0)):
        figure = study_figures.ood_figure(typed(comparison), name)
        assert legend_of(figure) == ["test set", title]
        _, outside = figure.axes[0].patches
        assert isinstance(outside, StepPatch)
        assert outside.get_data().values[-1] == pytest.approx(last)


def test_every_belief_has_its_own_regions() -> None:
    figure = study_figures.belief_figure(typed(fakes.comparison(fakes.broken())))
    assert inside(figure)
    bins, shells = figure.axes
    heights = [[bar.get_height() for bar in c] for c in bins.containers if isinstance(c, BarContainer)]
    assert heights == [[1, *[0] * 9], pytest.approx(fakes.EQUAL["s0"])]
    assert [text.get_text() for text in bins.get_xticklabels()] == ["0", *(f".{i}" for i in range(1, 10)), "1"]
    assert bins.get_xlabel() == "probability of class 1"
    assert [text.get_text() for text in shells.get_xticklabels()] == ["> .95", ".85–.95", "centre"]
    assert any(text.get_text().startswith("distance 0.9") for text in bins.texts)
    colours = {bar.get_facecolor() for bar in bins.containers[0]} & {
        bar.get_facecolor() for bar in shells.containers[0]
    }
    assert not colours
    ticks = [text.get_window_extent() for text in shells.get_yticklabels()]
    assert min(box.x0 for box in ticks) > bins.get_window_extent().x1


# --- files ---


def test_all_figures_are_written_as_png_and_svg(tmp_path: Path) -> None:
    results = fakes.study(
        [
            fakes.comparison(fakes.broken(suite="kinds", ood=("fashion",))),
            fakes.comparison(fakes.four(), track="published"),
        ]
    )
    study_page.render_study_page(typed(results), figures=tmp_path / "figures")
    paths = sorted((tmp_path / "figures").iterdir())
    assert [path.name for path in paths] == sorted(
        f"{name}.{ending}"
        for name in (
            *(f"{name}-net-selbo" for name in ("corruption", "calibration")),
            "ood-net-selbo-fashion",
            "belief-net-selbo",
            *(f"{name}-net-published" for name in ("calibration", "belief")),
        )
        for ending in ("png", "svg")
    )
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_the_same_figure_is_the_same_bytes(tmp_path: Path) -> None:
    comparison = fakes.scores_study()["comparisons"][0]
    first, second = (
        style.save_figure(
            study_scores.independent_figure(typed(comparison)), tmp_path / name, "figure", formats=["png", "svg"]
        )
        for name in "ab"
    )
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_page_is_the_same_whether_or_not_its_figures_are_written(tmp_path: Path) -> None:
    results = typed(fakes.study([fakes.comparison(fakes.broken(suite="kinds", ood=("fashion",)))]))
    page = study_page.write_study_page(results, tmp_path / "report.html", figures=tmp_path / "figures")
    assert page.read_text(encoding="utf-8") == study_page.render_study_page(results)
    assert len(list((tmp_path / "figures").iterdir())) == 8


def test_a_study_without_runs_has_no_figures(tmp_path: Path) -> None:
    methods = fakes.four()
    for method in methods:
        method["runs"] = [None, None, None]
    study_page.render_study_page(typed(fakes.study([fakes.comparison(methods)])), figures=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_figure_names_its_study() -> None:
    assert {name: figure.study for name, figure in study_figures.STUDY_FIGURES.items() if figure.study} == {
        "scores": "scores",
        "independent": "scores",
    }
    results = fakes.scores_study()
    assert study_figures.available_study_figures(typed(results), typed(results["comparisons"][0]))[:2] == [
        "scores",
        "independent",
    ]
    assert "scores" not in study_figures.available_study_figures(
        typed(results | {"study": "sst"}), typed(results["comparisons"][0])
    )


@pytest.mark.parametrize(("objective", "told"), [("elbo", False), ("summary_elbo", True), ("cross_entropy", True)])
def test_a_belief_that_an_objective_ignores_is_not_shown(objective: str, told: bool) -> None:
    run = fakes.run(0, 0, belief=fakes.EQUAL)
    recipe = {"objective": objective, "belief": "expect(0.9)", "partition": "equal", "bayesian": True}
    assert (typed({**run, "recipe": recipe}).belief is not None) == told
