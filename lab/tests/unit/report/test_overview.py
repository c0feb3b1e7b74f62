"""All cases of a study at a glance, from results whose every number is known."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from selbo.report import page
from selbo_lab.report.cases import cases_figure
from selbo_lab.report.overview import overview
from selbo_lab.report.study_page import render_study_page
from selbo_lab.report.study_tables import Entry
from selbo_lab.report.table_files import write_tables
from study_fakes import Results, broken, comparison, domain_study, four, method, study, typed, without_drawings


def shuffled(*, places: bool = False) -> Results:
    """Three cases; in the last one the two first methods change places. NLL: .2 + .1 times the number of the method."""
    suite = {"suite": "use"} if places else {}
    other = [
        method(1, "elbo", "ELBO", seeds=3, **suite),
        method(0, "smoothing", "LS (ε = 0.1) & <more>", seeds=3, **suite),
        *four(**suite)[2:],
    ]
    cases = [four(**suite), four(**suite), other]
    return study([comparison(each, variant=f"case-{i}") for i, each in enumerate(cases)])


@pytest.mark.parametrize("places", [False, True])
def test_counts_differences_and_ranks(places: bool) -> None:
    results = shuffled(places=places)
    if places:
        for each in results["comparisons"]:
            each["data"] = domain_study()["comparisons"][0]["data"]
    table = overview(typed(results), "selbo")
    assert table is not None
    assert [[entry.text for entry in row] for row in table.rows] == [
        ["ELBO", "–", "–", "–", "1.3"],
        ["LS (ε = 0.1) & <more>", "1", "2", "+0.033", "1.7"],
        ["Summary ELBO", "0", "3", "+0.167", "3.0"],
        ["Summary ELBO (expected accuracy, shells)", "0", "3", "+0.267", "4.0"],
    ]
    assert [row[-1].mark for row in table.rows] == ["best", "", "", ""]
    assert ("target domain" in table.notes[0]) == places


def test_the_method_in_focus_is_held_against_all_others() -> None:
    results = shuffled()
    for each in results["comparisons"]:
        each["focus"] = "smoothing"
    table = overview(typed(results), "selbo")
    assert table is not None
    groups = [head.group for head in table.heads]
    assert groups == ["", *["against ELBO"] * 3, *["against LS (ε = 0.1) & <more>"] * 2, ""]
    assert [[entry.text for entry in row[4:6]] for row in table.rows] == [
        ["2", "1"],
        ["–", "–"],
        ["0", "3"],
        ["0", "3"],
    ]
    assert [(row["ahead_of_focus"], row["behind_focus"]) for row in table.raw] == [(2, 1), (0, 0), (0, 3), (0, 3)]


def test_a_difference_that_scatters_counts_for_neither_side() -> None:
    results = shuffled()
    for each in results["comparisons"]:
        for seed, run in enumerate(each["methods"][2]["runs"]):
            run["conditions"]["clean"]["metrics"]["nll"] = (0.1, 0.9, 0.2)[seed]
    table = overview(typed(results), "selbo")
    assert table is not None
    assert [entry.text for entry in table.rows[2]][1:3] == ["0", "0"]


def test_a_method_with_a_missing_run_has_no_rank_there() -> None:
    results = shuffled()
    results["comparisons"][0] = comparison(broken(), variant="case-0")
    table = overview(typed(study(results["comparisons"])), "selbo")
    assert table is not None
    by_name = {row["method"]: row for row in table.raw}
    assert by_name["smoothing"]["rank"] == 1.5  # second, then first; in the first case no run came to an end
    assert by_name["elbo"]["rank"] == 1.5


def test_equal_methods_share_their_places() -> None:
    results = shuffled()
    for each in results["comparisons"]:
        first, second = each["methods"][:2]
        for one, other in zip(first["runs"], second["runs"], strict=True):
            other["conditions"]["clean"]["metrics"]["nll"] = one["conditions"]["clean"]["metrics"]["nll"] + 1e-9
    table = overview(typed(results), "selbo")
    assert table is not None
    assert [row[-1].text for row in table.rows] == ["1.5", "1.5", "3.0", "4.0"]
    assert [entry.text for entry in table.rows[1]][1:4] == ["0", "0", "0.000"]


def test_few_cases_have_none() -> None:
    assert overview(typed(study([comparison(four())])), "selbo") is None
    assert overview(typed(shuffled()), "published") is None


def test_the_page_of_a_study_begins_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_drawings(monkeypatch)
    page = render_study_page(typed(shuffled()), figures=tmp_path / "many")
    assert page.index('id="overview-selbo"') < page.index('id="case-0-selbo"')
    assert page.count("<h2>All cases</h2>") == 1
    assert page.count("Where each method helps, and where it harms") == 1
    assert {"cases-selbo.png", "cases-selbo.svg"} <= {path.name for path in (tmp_path / "many").iterdir()}
    assert "All cases" not in render_study_page(typed(study([comparison(four())])), figures=tmp_path / "few")
    assert not list((tmp_path / "few").glob("cases*"))


def test_files(tmp_path: Path) -> None:
    written = {path.name: path for path in write_tables(typed(shuffled()), tmp_path / "tables")}
    rows = list(csv.DictReader(written["selbo-overview.csv"].read_text(encoding="utf-8").splitlines()))
    assert [row["ahead"] for row in rows] == ["0", "1", "0", "0"]
    for name in ("selbo.md", "selbo.tex"):
        text = written[name].read_text(encoding="utf-8")
        assert text.index("all cases") < text.index(": test set")
    few = write_tables(typed(study([comparison(four())])), tmp_path)
    assert "selbo-overview.csv" not in {path.name for path in few}


def test_it_says_where_its_numbers_come_from() -> None:
    table = overview(typed(shuffled()), "selbo")
    assert table is not None
    assert table.notes[-1] == "Seeds 0–2; 36 runs; selbo 0.1.0 (0123456789ab); on a machine; 2026-01-02."


def test_a_study_that_has_only_begun_has_no_ranks() -> None:
    results = shuffled()
    for each in results["comparisons"]:
        for one in each["methods"]:
            one["runs"][1] = None
    table = overview(typed(results), "selbo")
    assert table is not None
    assert {row[-1] for row in table.rows} == {Entry("–")}


# --- the figure ---


def drawn(figure: Figure) -> list[list[tuple[str, str]]]:
    """Text and colour of every place, row by row."""
    (axes,) = figure.axes
    texts = {each.get_position(): each.get_text() for each in axes.texts}
    places: dict[int, list[tuple[str, str]]] = {}
    (squares,) = axes.collections
    for square, colour in zip(squares.get_paths(), squares.get_facecolor(), strict=True):
        x, y = square.vertices.min(0)
        places.setdefault(int(y), []).append((texts[x + 0.5, y + 0.5], to_hex(colour)))
    return [places[i] for i in sorted(places)]


def test_the_figure_has_the_differences_of_every_case() -> None:
    results = shuffled()
    results["comparisons"][0]["focus"] = "smoothing"
    figure = cases_figure(typed(results), "selbo")
    (axes,) = figure.axes
    methods = [label.get_text() for label in axes.get_yticklabels()]
    assert methods[0] == "LS (ε = 0.1) & <more>"
    assert "ELBO" not in methods
    assert [label.get_fontweight() for label in axes.get_yticklabels()] == ["bold", "normal", "normal"]
    rows = drawn(figure)
    assert [text for text, _ in rows[0]] == ["+.100", "+.100", "−.100"]
    assert [text for text, _ in rows[2]] == ["+.300", "+.300", "+.200"]
    red, _, blue = (to_rgb(colour) for _, colour in rows[0])
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    # nine differences, all of them clear: .1 four times, .2 three times, .3 twice; the strongest colour begins at .2
    assert rows[2][0][1] == to_hex(colormaps["RdBu"](0.0))
    assert rows[0][2][1] == to_hex(colormaps["RdBu"](0.75))
    assert "NLL, less that of ELBO" in {text.get_text() for text in figure.texts}


def test_a_place_is_white_where_nothing_can_be_told() -> None:
    results = shuffled()
    for seed, run in enumerate(results["comparisons"][0]["methods"][2]["runs"]):
        run["conditions"]["clean"]["metrics"]["nll"] = (0.1, 0.9, 0.2)[seed]
    for run in results["comparisons"][1]["methods"][2]["runs"]:
        run["conditions"]["clean"]["metrics"]["nll"] = None
    row = drawn(cases_figure(typed(results), "selbo"))[1]
    assert row[0][1] == row[1][1] == "#ffffff"
    assert row[1][0] == "–"
    assert row[2][1] != "#ffffff"


def test_all_text_of_the_figure_is_inside_and_long_titles_lose_what_they_share() -> None:
    results = shuffled()
    for i, each in enumerate(results["comparisons"]):
        each["title"] = f"Sentences: {i} labels"
    figure = cases_figure(typed(results), "selbo")
    said = {text.get_text() for text in figure.texts}
    assert {"0 labels", "1 labels", "2 labels"} <= said
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    across, high = canvas.get_width_height()
    (axes,) = figure.axes
    axes.get_yticklabels()[-1].set_fontweight("bold")  # the longest name, in the widest letters
    for text in (*figure.texts, *axes.get_yticklabels(), *axes.get_xticklabels()):
        box = text.get_window_extent()
        assert box.x0 > -1
        assert box.y0 > -1
        assert box.x1 < across + 1
        assert box.y1 < high + 1


def test_a_figure_of_few_cases_is_refused() -> None:
    few = study([comparison(four())])
    with pytest.raises(ValueError, match="must have several cases"):
        cases_figure(typed(few), "selbo")


def test_text_on_a_colour_does_not_change_with_the_paper() -> None:
    """Colours of the theme turn light on dark paper, where those of the cells stay; a legend says what they mean."""
    figure = cases_figure(typed(shuffled()), "selbo")
    drawn = [(face, text.get_color()) for face, text in zip(*_cells(figure), strict=True)]
    coloured = [text for face, text in drawn if to_hex(face) != "#ffffff"]
    assert coloured
    assert not set(coloured) & set(page.THEME)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "better",
        "worse",
        "level: 95 % interval holds 0",
    ]


def _cells(figure: Figure) -> tuple[list[Any], list[Any]]:
    (axes,) = figure.axes
    (squares,) = axes.collections
    return list(squares.get_facecolor()), list(axes.texts)
