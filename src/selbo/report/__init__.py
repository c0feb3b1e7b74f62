"""The HTML report of a comparison, its tables and its figures; reads results, never trains."""

from selbo.report.comparison import Row, Value, summarise, summarise_ood
from selbo.report.curves import (
    COMPARISON_FIGURES,
    belief_histograms,
    corruption_curves,
    entropy_histograms,
    reliability_diagrams,
)
from selbo.report.page import write_page
from selbo.report.tables import console_table

__all__ = [
    "COMPARISON_FIGURES",
    "Row",
    "Value",
    "belief_histograms",
    "console_table",
    "corruption_curves",
    "entropy_histograms",
    "reliability_diagrams",
    "summarise",
    "summarise_ood",
    "write_page",
]
