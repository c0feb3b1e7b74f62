"""Pictures and reports; reads results and summaries, never trains."""

from selbo.report.comparison import Row, Value, summarise, summarise_ood
from selbo.report.curves import (
    COMPARISON_FIGURES,
    belief_histograms,
    corruption_curves,
    entropy_histograms,
    reliability_diagrams,
)
from selbo.report.figures import (
    FIGURES,
    SimplexPanel,
    belief_on_simplex,
    dirichlet_process_draws,
    summary_against_histogram,
)
from selbo.report.page import write_page
from selbo.report.style import ONE_COLUMN, TWO_COLUMNS, save
from selbo.report.tables import console_table

__all__ = [
    "COMPARISON_FIGURES",
    "FIGURES",
    "ONE_COLUMN",
    "TWO_COLUMNS",
    "Row",
    "SimplexPanel",
    "Value",
    "belief_histograms",
    "belief_on_simplex",
    "console_table",
    "corruption_curves",
    "dirichlet_process_draws",
    "entropy_histograms",
    "reliability_diagrams",
    "save",
    "summarise",
    "summarise_ood",
    "summary_against_histogram",
    "write_page",
]
