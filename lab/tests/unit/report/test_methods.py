"""A method has the same colour and the same marker wherever it is drawn, and no other method beside it has them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from unit.report.test_page import fake as fake_comparison

import study_fakes as fakes
from selbo.demo import comparison
from selbo.plots import summary_against_histogram
from selbo.plots.methods import KNOWN, METHOD_COLOURS, METHOD_MARKERS, method_styles
from selbo.presets import METHODS
from selbo.report import curves, tables
from selbo.results import Comparison
from selbo.summary.partitions import ScoreBins
from selbo_lab.report import study_curves, study_figures, study_page
from selbo_lab.studies import reader


def comparisons() -> Iterator[tuple[str, list[str]]]:
    yield "demonstration", [method.name for method in comparison.DEMO_METHODS]
    yield "command", [method.title for method in METHODS.values()]
    for name in reader.names():
        study = reader.load_study(name)
        for variant, track in study.comparisons([track.name for track in study.tracks]):
            yield f"{name} {variant.name} {track.name}", [method.name for method in track.methods]


COMPARISONS = dict(comparisons())


@pytest.mark.parametrize("where", COMPARISONS)
def test_methods_of_one_comparison_look_different(where: str) -> None:
    looks = method_styles(COMPARISONS[where]).values()
    assert len({(look.colour, look.marker) for look in looks}) == len(COMPARISONS[where])


def test_a_method_looks_the_same_whatever_it_is_compared_with() -> None:
    alone = {name: method_styles([name])[name] for names in COMPARISONS.values() for name in names}
    for names in COMPARISONS.values():
        assert method_styles(names) == {name: alone[name] for name in names}


def test_the_methods_that_are_compared_most_have_a_colour_each_and_a_full_line() -> None:
    looks = method_styles(
        [
            "Summary ELBO",
            "ELBO",
            "label smoothing",
            "evidential",
            "ensemble",
            "plain",
            "plain_summary",
            "plain + temperature",
        ]
    ).values()
    assert {look.colour for look in looks} == set(METHOD_COLOURS)
    assert len({look.marker for look in looks}) == len(METHOD_COLOURS)
    assert {look.line for look in looks} == {"-"}


def test_names_and_titles_are_one_method() -> None:
    for name, method in METHODS.items():
        assert method_styles([name])[name] == method_styles([method.title])[method.title]
    same = ["summary", "base", "Summary ELBO", "summary_elbo"]
    assert len({method_styles([name])[name] for name in same}) == 1


def test_no_row_has_more_places_than_there_are_markers() -> None:
    assert len(KNOWN) == len(METHOD_COLOURS)
    assert max(map(len, KNOWN)) <= len(METHOD_MARKERS)
    assert set(METHOD_MARKERS) == set(tables.MARKER_SHAPES)


def test_unknown_methods_get_colours_of_their_own_in_any_order(seed: int) -> None:
    names = [f"method {i}" for i in range(len(METHOD_COLOURS) - 1)]
    looks = method_styles(["ELBO", *names])
    assert len({look.colour for look in looks.values()}) == len(METHOD_COLOURS)
    assert {look.line for look in looks.values()} == {"-"}
    mixed = ["ELBO", *names]
    random.Random(seed).shuffle(mixed)
    assert method_styles(mixed) == looks
    assert looks["ELBO"] == method_styles(["elbo"])["elbo"]


@pytest.mark.parametrize("count", [9, 40, 72])
def test_many_unknown_methods_look_different(count: int) -> None:
    looks = method_styles([str(i) for i in range(count)])
    assert len({(look.colour, look.marker) for look in looks.values()}) == count


def test_more_methods_than_looks_are_drawn_all_the_same() -> None:
    assert len(method_styles([str(i) for i in range(200)])) == 200


def test_two_known_names_with_one_place_differ_side_by_side() -> None:
    looks = method_styles(["low", "accuracy+0.05"])
    assert method_styles(["low"])["low"] == method_styles(["accuracy+0.05"])["accuracy+0.05"]
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


def test_figures_and_tables_of_a_study_and_of_a_comparison_agree() -> None:
    study = study_of("elbo", "summary")
    look = method_styles(["Summary ELBO"])["Summary ELBO"]
    assert drawn_lines(study_curves.corruption_figure(fakes.typed(study)))["summary"] == look[:2]
    compared = Comparison.from_dict(fake_comparison(["elbo", "summary"]))
    assert drawn_lines(curves.corruption_curves(compared))["summary"] == look[:2]
    diagram = study_figures.calibration_figure(fakes.typed(study)).axes[2]  # the second method, above its counts
    assert look[:2] in {(line.get_markeredgecolor(), line.get_marker()) for line in diagram.lines}
    bars = summary_against_histogram(ScoreBins([0.5]), [0.5, 0.5], {"Summary ELBO": [0.4, 0.6]}).axes[0].containers[0]
    assert {to_hex(bar.get_facecolor()) for bar in bars} == {look.colour}
    page = study_page.render_study_page(fakes.typed(fakes.study([study], seeds=2)))
    assert f"{tables.swatch(look)}summary" in page


def test_a_swatch_has_the_colour_and_the_marker() -> None:
    for look in method_styles(COMPARISONS["demonstration"]).values():
        found = re.search(r'class="swatch m(\d)"', tables.swatch(look))
        assert found is not None
        assert METHOD_COLOURS[int(found[1])] == look.colour
        assert tables.MARKER_SHAPES[look.marker] in tables.swatch(look)
