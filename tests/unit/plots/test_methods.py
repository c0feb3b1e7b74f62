"""A method has the same colour and the same marker wherever it is drawn, and no other method beside it has them."""

from __future__ import annotations

import random
import re

import pytest
from looks import assert_different, assert_same_everywhere
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from unit.report.test_page import fake as fake_comparison

from selbo.demo import comparison
from selbo.plots import summary_against_histogram
from selbo.plots.methods import KNOWN, METHOD_COLOURS, METHOD_MARKERS, method_styles
from selbo.presets import METHODS
from selbo.report import curves, tables
from selbo.results import Comparison
from selbo.summary.partitions import ScoreBins

COMPARISONS = {
    "demonstration": [method.name for method in comparison.DEMO_METHODS],
    "command": [method.title for method in METHODS.values()],
}


@pytest.mark.parametrize("where", COMPARISONS)
def test_methods_of_one_comparison_look_different(where: str) -> None:
    assert_different(method_styles, COMPARISONS[where])


def test_a_method_looks_the_same_whatever_it_is_compared_with() -> None:
    assert_same_everywhere(method_styles, COMPARISONS.values())


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
    same = ["summary", "Summary ELBO", "summary_elbo"]
    assert len({method_styles([name])[name] for name in same}) == 1


def test_every_colour_has_a_method_and_every_marker_a_shape() -> None:
    assert len(KNOWN) == len(METHOD_COLOURS)
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


# --- further methods ---


def test_further_methods_have_their_positions_and_those_of_the_library_keep_theirs() -> None:
    further = [["ours", "ours-wide theirs"], ["elbo-tuned summary"]]
    looks = method_styles(["ELBO tuned", "Ours wide", "summary"], further)
    assert looks == {
        "ELBO tuned": method_styles(["elbo"])["elbo"],
        "Ours wide": (METHOD_COLOURS[0], METHOD_MARKERS[1], "--"),
        "summary": method_styles(["summary"])["summary"],
    }
    assert method_styles(["ours"], further)["ours"] == looks["summary"]


def test_two_known_names_with_one_position_differ_side_by_side() -> None:
    further = [[], ["", "low high"]]
    looks = method_styles(["low", "high"], further)
    assert method_styles(["low"], further)["low"] == method_styles(["high"], further)["high"]
    assert len({(look.colour, look.marker) for look in looks.values()}) == 2


@pytest.mark.parametrize("further", [[["a"]] * 9, [["a"], ["b"] * 11]])
def test_there_are_eight_rows_of_ten_positions(further: list[list[str]]) -> None:
    with pytest.raises(
        ValueError, match=r"^`further` must have at most 8 rows of at most 10 positions, but has \d+ ro"
    ):
        method_styles(["a"], further)


# --- in figures and pages ---


def drawn_lines(figure: Figure) -> dict[str, tuple[str, str]]:
    """Colour and marker of the lines with a label."""
    lines = (line for axes in figure.axes for line in axes.lines if not str(line.get_label()).startswith("_"))
    return {str(line.get_label()): (to_hex(line.get_color()), str(line.get_marker())) for line in lines}


def test_figures_of_a_comparison_and_of_a_summary_agree() -> None:
    look = method_styles(["Summary ELBO"])["Summary ELBO"]
    compared = Comparison.from_dict(fake_comparison(["elbo", "summary"]))
    assert drawn_lines(curves.corruption_curves(compared))["summary"] == look[:2]
    bars = summary_against_histogram(ScoreBins([0.5]), [0.5, 0.5], {"Summary ELBO": [0.4, 0.6]}).axes[0].containers[0]
    assert {to_hex(bar.get_facecolor()) for bar in bars} == {look.colour}


def test_a_swatch_has_the_colour_and_the_marker() -> None:
    for look in method_styles(COMPARISONS["demonstration"]).values():
        found = re.search(r'class="swatch m(\d)"', tables.swatch(look))
        assert found is not None
        assert METHOD_COLOURS[int(found[1])] == look.colour
        assert tables.MARKER_SHAPES[look.marker] in tables.swatch(look)
