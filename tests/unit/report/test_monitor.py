"""The page of a monitor: its curves are the evidence, and names are escaped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from selbo.plots.style import ONE_COLUMN, TWO_COLUMNS
from selbo.report.monitor import MonitorResults, evidence_over_time, render_monitor, write_monitor_page

RESULTS = MonitorResults(
    title="A <stream>",
    conclusion="One & all.",
    contradicted=True,
    facts=[("400", "predictions")],
    rows=[("<b>accuracy</b>, %", "90.0", "80.0", "150")],
    names=["<day 1>", "$2$", "a name that is far too long for an axis", "4"],
    evidence={"accuracy": [0.5, 2.0, 40.0, 290.0], "class fractions": [1.0, 0.8, 0.1, 1e-9]},
    total=[0.75, 1.4, 20.05, 145.0],
    limit=100.0,
    correct=[(9, 10), (0, 0), (7, 10), (5, 10)],
    accuracy=0.9,
    command="selbo monitor <a>",
)


def test_the_page_holds_everything_escaped() -> None:
    page = render_monitor(RESULTS)
    assert "<title>A &lt;stream&gt;</title>" in page
    assert "One &amp; all." in page
    assert '<th scope="row">&lt;b&gt;accuracy&lt;/b&gt;, %</th><td>90.0</td><td>80.0</td><td>150</td>' in page
    assert "one in 100" in page
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize("width", [ONE_COLUMN, TWO_COLUMNS])
def test_curves_are_the_evidence_and_points_the_accuracy(width: float) -> None:
    upper, lower = evidence_over_time(RESULTS, width=width).axes
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in upper.lines}
    np.testing.assert_allclose(lines["accuracy"], RESULTS.evidence["accuracy"])
    np.testing.assert_allclose(lines["class fractions"], [1.0, 0.8, 0.1, 0.01])  # cut where no evidence is left
    np.testing.assert_allclose(lines["together"], RESULTS.total)
    assert any(np.allclose(values, 100.0) for values in lines.values())
    points, stated = lower.lines
    np.testing.assert_allclose(points.get_xdata(), [1, 3, 4])  # a batch without labels has none
    np.testing.assert_allclose(points.get_ydata(), [90, 70, 50])
    np.testing.assert_allclose(stated.get_ydata(), 90)


def test_without_labels_or_an_accuracy_there_is_one_panel() -> None:
    for other in (replace(RESULTS, accuracy=None), replace(RESULTS, correct=[(0, 0)] * 4)):
        (axes,) = evidence_over_time(other).axes
        assert axes.get_ylabel() == "evidence"
    one = replace(RESULTS, evidence={"accuracy": [2.0]}, total=[2.0], names=["a"], correct=[(1, 1)])
    assert len(evidence_over_time(one).axes[0].lines) == 2  # the claim and the limit
    assert evidence_over_time(one).axes[0].get_legend() is None


def test_the_page_is_written(tmp_path: Path) -> None:
    path = write_monitor_page(RESULTS, tmp_path / "page.html")
    assert path.read_text(encoding="utf-8") == render_monitor(RESULTS)
