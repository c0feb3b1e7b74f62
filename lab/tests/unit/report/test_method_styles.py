"""A method of the studies looks the same wherever it is drawn, and no other method beside it does."""

from __future__ import annotations

from typing import Any

import pytest
from looks import assert_different, assert_same_everywhere
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import study_fakes as fakes
from selbo.plots import method_styles
from selbo.plots.methods import METHOD_COLOURS, METHOD_MARKERS
from selbo.report import swatch
from selbo_lab.report import study_curves, study_figures, study_page
from selbo_lab.report.method_styles import STUDY_METHODS, study_styles
from selbo_lab.studies import reader

COMPARISONS = {
    f"{name} {variant.name} {track.name}": [method.name for method in track.methods]
    for name in reader.names()
    for study in [reader.load_study(name)]
    for variant, track in study.comparisons([track.name for track in study.tracks])
}


@pytest.mark.parametrize("where", COMPARISONS)
def test_methods_of_one_comparison_look_different(where: str) -> None:
    assert_different(study_styles, COMPARISONS[where])


def test_a_method_looks_the_same_whatever_it_is_compared_with() -> None:
    assert_same_everywhere(study_styles, COMPARISONS.values())


def test_methods_of_the_library_keep_their_styles() -> None:
    names = ["summary", "elbo", "label-smoothing", "evidential", "ensemble", "plain", "plain-summary"]
    assert study_styles(names) == method_styles(names)
    assert study_styles(["base"])["base"] == study_styles(["Summary ELBO"])["Summary ELBO"]


def test_no_method_stands_twice_and_no_row_has_more_places_than_there_are_markers() -> None:
    names = [name for row in STUDY_METHODS for place in row for name in place.split()]
    assert len(set(names)) == len(names)
    assert len(STUDY_METHODS) == len(METHOD_COLOURS)
    assert max(map(len, STUDY_METHODS)) <= len(METHOD_MARKERS)


def test_two_known_names_with_one_place_differ_side_by_side() -> None:
    looks = study_styles(["low", "accuracy+0.05"])
    assert study_styles(["low"])["low"] == study_styles(["accuracy+0.05"])["accuracy+0.05"]
    assert len({(look.colour, look.marker) for look in looks.values()}) == 2


# --- in figures and pages ---


def drawn_lines(figure: Figure) -> dict[str, tuple[str, str]]:
    """Colour and marker of the lines with a label."""
    lines = (line for axes in figure.axes for line in axes.lines if not str(line.get_label()).startswith("_"))
    return {str(line.get_label()): (to_hex(line.get_color()), str(line.get_marker())) for line in lines}


def study_of(*names: str) -> dict[str, Any]:
    return fakes.comparison([fakes.method(i, name, name, seeds=2, suite="noise") for i, name in enumerate(names)])


def test_two_studies_draw_a_method_with_the_same_colour_and_marker() -> None:
    first, second = study_of("elbo", "summary"), study_of("plain", "summary", "elbo")
    one, two = (drawn_lines(study_curves.corruption_figure(fakes.typed(each))) for each in (first, second))
    assert {name: two[name] for name in one} == one
    assert len(set(two.values())) == 3


@pytest.mark.parametrize("name", ["summary", "published-histogram"])
def test_figures_and_the_page_of_a_study_agree(name: str) -> None:
    study, look = study_of("elbo", name), study_styles([name])[name]
    assert drawn_lines(study_curves.corruption_figure(fakes.typed(study)))[name] == look[:2]
    diagram = study_figures.calibration_figure(fakes.typed(study)).axes[2]  # the second method, above its counts
    assert look[:2] in {(line.get_markeredgecolor(), line.get_marker()) for line in diagram.lines}
    page = study_page.render_study_page(fakes.typed(fakes.study([study], seeds=2)))
    assert f"{swatch(look)}{name}" in page
