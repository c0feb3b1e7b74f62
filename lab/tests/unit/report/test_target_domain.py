"""Studies with a target domain: its columns come first, and the page says which labels served what."""

from __future__ import annotations

import contextlib
import io

import pytest

from selbo_lab.report import studies, study_page, study_tables
from selbo_lab.report.columns import MetricColumn
from selbo_lab.report.study_captions import FIGURE_WORDS
from selbo_lab.report.study_data import sort_corruptions
from selbo_lab.report.study_figures import available_study_figures, calibration_figure
from study_fakes import comparison, domain_study, four, study, typed

with contextlib.suppress(ModuleNotFoundError):
    import rich.console  # here, because importing rich draws from the global `random`, which is watched around tests

AT_USE = ["use.nll", "use.accuracy", "use.ece", "use.f1_macro"]


def test_columns_are_those_of_the_place_of_use_then_of_the_training_place() -> None:
    (found,) = typed(domain_study()).comparisons
    assert found.has_target_domain
    assert not found.one_domain
    assert list(map(str, studies.find_columns(found))) == [
        *AT_USE,
        *(column.replace("use", "clean") for column in AT_USE),
    ]
    assert MetricColumn("use", "brier") in studies.all_columns(found)
    assert studies.value(found.methods[0].runs[0], MetricColumn("use", "nll")) == pytest.approx(0.5)


def test_one_place_has_its_columns_once() -> None:
    (found,) = typed(domain_study(noise=0.0)).comparisons
    assert found.one_domain
    assert list(map(str, studies.find_columns(found))) == AT_USE


def test_the_target_domain_is_no_corruption() -> None:
    (found,) = typed(domain_study()).comparisons
    assert studies.value(found.methods[0].runs[0], MetricColumn("corrupted", "nll")) is None
    assert not any(sort_corruptions(found))
    assert "corruption" not in available_study_figures(typed(domain_study()), found)


def test_calibration_is_that_of_the_target_domain() -> None:
    """ECE is .03, .032 and .034 on the test set, and .03 more in the target domain, whose bins are drawn."""
    (found,) = typed(domain_study()).comparisons
    (other,) = typed(study([comparison(four())])).comparisons
    for each, number in ((found, "6.2 ± 0.1"), (other, "3.2 ± 0.1")):
        notes = [text.get_text() for text in calibration_figure(each).axes[0].texts]
        assert f"ECE {number} %" in notes
        assert f"ELBO {number.partition(' ')[0]}" in FIGURE_WORDS["calibration"](each).spoken


def test_other_studies_have_no_target_domain() -> None:
    found = typed(comparison(four(suite="kinds")))
    assert not found.has_target_domain
    assert not any(column.place == "use" for column in studies.find_columns(found))


def test_tables_name_the_domains() -> None:
    results = typed(domain_study())
    tables = {table.name: table for table in study_tables.build_tables(results, results.comparisons[0])}
    assert [head.group for head in tables["scores"].heads] == ["", *["target domain"] * 4, *["source domain"] * 4]
    assert "target and source domain" in tables["scores"].title
    assert [head.group for head in tables["differences"].heads][1:5] == ["target domain"] * 4
    same = typed(domain_study(noise=0.0))
    first = study_tables.build_tables(same, same.comparisons[0])[0]
    assert first.title.endswith(": target domain")
    assert len(first.heads) == 5


def test_the_console_shows_the_target_domain() -> None:
    results = typed(domain_study())
    screen = rich.console.Console(file=io.StringIO(), width=100)
    screen.print(study_tables.terminal_table(results.comparisons[0], results))
    shown = screen.file.getvalue()
    assert shown.count("use") >= 3
    assert "clean" not in shown


def test_the_page_says_which_labels_served_what() -> None:
    source = study_page.render_study_page(typed(domain_study()))
    for text in (
        "88 % of the cases in the target domain can be decided",
        "20 of them served temperature scaling and BBSE",
        "each class weighted by its fraction in the target domain",
        "unlabelled inputs",
        "test examples of the target domain",
        "Accuracy against confidence in the target domain",
    ):
        assert text in source
    (found,) = typed(domain_study()).comparisons
    assert "ECE, %: ELBO 6.2" in FIGURE_WORDS["calibration"](found).spoken  # .03 + .002 + .1 times .3
