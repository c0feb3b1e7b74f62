"""The page of a calibration: its numbers are those of the predictions, and names are escaped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from selbo.report.calibration import (
    CONFIDENCE_BINS,
    CalibrationResults,
    confidence_histograms,
    render_calibration,
    write_calibration_page,
)

BEFORE, AFTER = np.array([0.99, 0.97, 1.0, 0.6]), np.array([0.8, 0.72, 0.91, 0.56])


def results() -> CalibrationResults:
    rows = [("accuracy, %", "89.0", "75.0", "75.0", ""), ("<b>spam</b>, %", "40.0", "30.0", "30.0", "-0.20 ± 0.10")]
    facts = [("4", "predictions"), ("2.5", "temperature")]
    return CalibrationResults("Calibration of <a>.csv", "One & all.", facts, rows, BEFORE, AFTER, "selbo calibrate a")


def test_the_page_holds_everything_escaped() -> None:
    page = render_calibration(results())
    assert "<title>Calibration of &lt;a&gt;.csv</title>" in page
    assert "One &amp; all." in page
    assert (
        '<th scope="row">&lt;b&gt;spam&lt;/b&gt;, %</th><td>40.0</td><td>30.0</td><td>30.0</td><td>-0.20 ± 0.10</td>'
        in page
    )
    assert "89.0 % on average before and 74.8 % after" in page
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http://www.w3.org", "")  # nothing is fetched


def test_the_histogram_counts_every_prediction() -> None:
    (axes,) = confidence_histograms(results()).axes
    for patch, values in zip(axes.patches, (BEFORE, AFTER), strict=True):
        shares, _, _ = patch.get_data()
        assert len(shares) == CONFIDENCE_BINS
        assert shares.sum() == pytest.approx(1)
        last = (values >= 0.95).mean()
        assert shares[-1] == pytest.approx(last)


def test_the_page_is_written(tmp_path: Path) -> None:
    path = write_calibration_page(results(), tmp_path / "page.html")
    assert path.read_text(encoding="utf-8") == render_calibration(results())
